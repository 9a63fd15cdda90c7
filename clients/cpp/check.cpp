// `make check` runs this, with the files of the cases that all clients play and of the lines that all read: the consumer on clusters that librdkafka plays within this process, so that it takes no broker.
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "failover_consumer.hpp"

#include <librdkafka/rdkafka_mock.h>  // it leans on the other one

using namespace twinshore;

namespace {

constexpr int WITHIN_MS = 30'000, RECORDS = 10;

void must(bool holds, const std::string& what) {
    if (!holds) throw Error("it does not hold: " + what);
    std::cout << "ok: " << what << std::endl;
}

const Settings QUIET{{"log_level", "3"}};

// One partition of each topic.
class Played {
public:
    Played() : handle_(handle(RD_KAFKA_PRODUCER, conf(QUIET))), mock_(rd_kafka_mock_cluster_new(handle_.get(), 1)) {
        servers = rd_kafka_mock_cluster_bootstraps(mock_);
        for (const char* topic : {"twinshore.homes", "twinshore.followers", "moves", "stays"})
            check(rd_kafka_mock_topic_create(mock_, topic, 1, 1), topic);
        writer_ = handle(RD_KAFKA_PRODUCER, conf(way({})));
        char* const said = rd_kafka_clusterid(writer_.get(), WITHIN_MS);
        id = said ? said : "";
        if (said) rd_kafka_mem_free(writer_.get(), said);
    }
    ~Played() {
        writer_.reset();
        rd_kafka_mock_cluster_destroy(mock_);
    }

    void write(const std::string& topic, const std::string& key, const std::string& value) {
        check(rd_kafka_producev(writer_.get(), RD_KAFKA_V_TOPIC(topic.c_str()), RD_KAFKA_V_PARTITION(0),
                  RD_KAFKA_V_KEY(key.data(), key.size()), RD_KAFKA_V_VALUE(const_cast<char*>(value.data()), value.size()),
                  RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_END), topic);
        check(rd_kafka_flush(writer_.get(), WITHIN_MS), topic);
    }

    // Where the group stands; below 0 where it does not.
    std::int64_t committed(const std::string& group, const std::string& topic) const {
        const Handle asker = handle(RD_KAFKA_CONSUMER, conf(way({{"group.id", group}})));
        const Partitions asked = partitions();
        rd_kafka_topic_partition_list_add(asked.get(), topic.c_str(), 0);
        check(rd_kafka_committed(asker.get(), asked.get(), WITHIN_MS), group);
        return asked->elems[0].offset;
    }

    std::string servers, id;

private:
    Settings way(Settings more) const {
        more.insert(QUIET.begin(), QUIET.end());
        more["bootstrap.servers"] = servers;
        return more;
    }

    const Handle handle_;
    rd_kafka_mock_cluster_t* const mock_;
    Handle writer_;
};

Clusters clusters(const Played& east, const Played& west, const Settings& more) {
    Clusters found;
    for (const auto& [name, played] : {std::pair("east", &east), std::pair("west", &west)}) {
        found[name] = {{"bootstrap.servers", played->servers}, {"auto.offset.reset", "earliest"}};
        for (const Settings& some : {QUIET, more}) found[name].insert(some.begin(), some.end());
    }
    return found;
}

// The next so many; fewer where there are no more within the time.
std::vector<Message> read(FailoverConsumer& consumer, std::size_t count) {
    std::vector<Message> found;
    const std::int64_t until = now() + WITHIN_MS * MS;
    while (found.size() < count && now() < until)
        if (auto message = consumer.poll(std::chrono::milliseconds(100))) found.push_back(std::move(*message));
    return found;
}

void it_refuses_to_be_a_static_member() {
    std::string why;
    try {
        FailoverConsumer({{"east", {{"group.id", "readers"}, {"group.instance.id", "one"}}}}, "east", "check");
    } catch (const Error& error) {
        why = error.what();
    }
    must(why.find("group.instance.id") != std::string::npos, "it refuses to be a static member");
}

void it_commits_by_itself_as_it_is_set() {
    Played east, west;
    east.write("stays", "key", "0");
    const auto stands = [&](const std::string& word) {
        const std::string group = "readers-" + word;
        FailoverConsumer consumer(clusters(east, west, {{"group.id", group}, {"enable.auto.commit", word}}), "east", "check");
        consumer.subscribe({"stays"});
        if (read(consumer, 1).size() != 1) throw Error(group + " reads nothing");
        consumer.close();
        return east.committed(group, "stays");
    };
    must(stands("T") == 1, "it commits as it leaves where that is its habit");
    for (const char* word : {"F", "False"})
        must(stands(word) < 0, std::string("it commits nothing by itself where that is ") + word);
}

// On both, as a switch does.
void say(Played& east, Played& west, const std::string& topic, const Played& home, int term, int step, const char* state) {
    const std::string line = "{\"home\":\"" + std::string(&home == &east ? "east" : "west") + "\",\"cluster_id\":\"" + home.id +
        "\",\"term\":" + std::to_string(term) + ",\"step\":" + std::to_string(step) + ",\"state\":\"" + state +
        "\",\"since_ms\":1,\"points\":[" + std::to_string(RECORDS) + "]}";
    for (Played* played : {&east, &west}) played->write("twinshore.homes", "[\"home\",\"" + topic + "\"]", line);
}

// It counts from when it was heard, and ends by a reading that was asked for after its time.
void a_hold_ends_by_itself() {
    const auto line = [](int step, const char* state) {
        return *home_line("{\"home\":\"east\",\"cluster_id\":\"e\",\"term\":1,\"step\":" + std::to_string(step) +
            ",\"state\":\"" + state + "\",\"since_ms\":1,\"points\":[],\"hold_ms\":3000}");
    };
    Following following("check", {"orders"}, {"east"}, "east", {});
    following.met("east", "e");
    following.read("east", {{"orders", line(1, "held")}}, 1, SECOND);
    following.read("east", {{"orders", line(1, "held")}}, 4 * SECOND - 1, 9 * SECOND);
    must(following.held().size() == 1, "a topic is held until the hold has run out");
    following.read("east", {{"orders", line(1, "held")}}, 4 * SECOND, 9 * SECOND);
    following.read("east", {{"orders", line(1, "held")}}, 2 * SECOND, 9 * SECOND);
    must(following.held().empty() && following.heard("orders", 0).writes(), "a hold ends by itself");
    following.read("east", {{"orders", line(2, "held")}}, 5 * SECOND, 5 * SECOND);
    must(following.held().size() == 1, "a new word is a new hold");
}

// The cases that the clients of each language play.
void it_writes_by_what_it_was_answered(const char* file) {
    std::ifstream text(file);
    if (!text) throw Error(std::string(file) + " cannot be read");
    const nlohmann::json played = nlohmann::json::parse(text);
    const auto nanos = [](const nlohmann::json& seconds) {
        return static_cast<std::int64_t>(seconds.get<double>() * SECOND);
    };
    for (const auto& one : played["cases"]) {
        const std::vector<std::string> clusters = one["clusters"];
        Following following("check", {"orders"}, clusters, played["begin"], {});
        for (const auto& asked : one["asked"]) {
            const std::string cluster = asked[0];
            const std::int64_t at = nanos(asked[1]);
            following.met(cluster, cluster);
            following.said(cluster, *following.says(cluster, at), at, at);
            std::map<std::string, HomeLine> lines;
            if (const auto& told = asked[2]; told.is_string())
                lines["orders"] = *home_line("{\"v\":2}");
            else if (!told.is_null())
                lines["orders"] = {told[0], told[0], {told[1], 0}, State::settled, {}, {}};
            following.read(cluster, lines, at + 10 * MS, at + 10 * MS);
        }
        must(following.order("orders", nanos(one["at_s"])).cluster == one["writes"], one["name"]);
    }
}

// What the readers of each language make of these lines.
void it_reads_each_line_as_the_others_do(const char* file) {
    std::ifstream text(file);
    if (!text) throw Error(std::string(file) + " cannot be read");
    const std::map<State, std::string> states{
        {State::settled, "settled"}, {State::announced, "announced"}, {State::held, "held"}};
    for (const auto& one : nlohmann::json::parse(text)) {
        const std::string key = one["key"], value = one["value"];
        const auto topic = topic_of(key);
        const auto line = topic ? home_line(value) : std::nullopt;
        std::string points;
        for (const std::int64_t point : line ? line->points : std::vector<std::int64_t>{})
            points += (points.empty() ? "" : ", ") + std::to_string(point);
        const std::string read = !line ? "none" : line->unknown ? "unknown"
            : *topic + " on " + line->home + " " + line->cluster_id + " " + std::to_string(line->word.term) + "." +
                std::to_string(line->word.step) + " " + states.at(line->state) + " [" + points + "] " +
                std::to_string(line->hold / MS);
        must(read == one["reads"], "line, " + one["name"].get<std::string>() + ": " + read);
    }
}

void its_follower_line_has_a_version() {
    Following following("shop", {"orders"}, {"east"}, "east", {});
    must(nlohmann::json::parse(following.says("east", 0)->value)["v"] == 1, "its follower line has a version");
}

void a_line_that_no_switch_writes_is_far() {
    const auto line = [](std::int64_t term, std::int64_t step) {
        return *home_line("{\"home\":\"east\",\"cluster_id\":\"e\",\"term\":" + std::to_string(term) + ",\"step\":" +
            std::to_string(step) + ",\"state\":\"settled\",\"since_ms\":1,\"points\":[]}");
    };
    must(is_far(line(1'001, 0), {0, 0}) && is_far(line(30'000, 0), {2, 9}) && is_far(line(2, 2 << 20), {2, 9}),
        "a line is far that is above all that is known");
    must(!is_far(line(1'000, 0), {0, 0}) && !is_far(line(3, 5), {2, 9}) && !is_far(line(1, 0), {2, 9}),
        "the lines of switches are not");
}

// What is handed out until then.
std::vector<Message> read_until(FailoverConsumer& consumer, const std::function<bool()>& holds, const std::string& what) {
    std::vector<Message> found;
    const std::int64_t until = now() + WITHIN_MS * MS;
    while (!holds()) {
        if (now() >= until) throw Error("it does not come to it: " + what);
        if (auto message = consumer.poll(std::chrono::milliseconds(10))) found.push_back(std::move(*message));
    }
    return found;
}

// A new group waits for its members for three seconds on a cluster that is played: so a topic that has moved is not dealt yet.
void it_reads_on_where_it_was_though_a_neighbour_leaves_another_home() {
    Played east, west;
    for (int one = 0; one < RECORDS; ++one) {
        east.write("stays", "key", std::to_string(one));
        for (Played* played : {&east, &west}) played->write("moves", "key", std::to_string(one));
    }
    say(east, west, "stays", west, 30'000, 0, "settled");  // a stranger's, which leads nobody away
    FailoverConsumer consumer(clusters(east, west, {{"group.id", "readers"}, {"enable.auto.commit", "false"}}), "east", "check");
    consumer.subscribe({"moves", "stays"});
    if (read(consumer, 2 * RECORDS).size() != 2 * RECORDS) throw Error("it does not read all");
    say(east, west, "stays", east, 1, 1, "announced");
    say(east, west, "moves", west, 2, 0, "settled");
    west.write("moves", "key", "new");
    const auto first = read_until(consumer, [&] { return consumer.where("moves") == "west"; }, "one moves");
    say(east, west, "stays", east, 1, 2, "held");
    const auto next = read_until(consumer, [&] { return consumer.where("stays") != "east"; }, "its neighbour is left");
    if (!first.empty() || !next.empty()) throw Error("it was dealt too early to show anything");
    const auto found = read(consumer, 1);
    must(found.size() == 1 && found[0].cluster == "west" && found[0].offset == RECORDS,
        "it reads on where it was though a neighbour leaves another home");
}

}  // namespace

int main(int count, char** words) try {
    it_refuses_to_be_a_static_member();
    a_hold_ends_by_itself();
    it_writes_by_what_it_was_answered(count > 1 ? words[1] : "../../tests/routing/client_orders.json");
    it_reads_each_line_as_the_others_do(count > 2 ? words[2] : "../../tests/fixtures/formats/home_lines.json");
    its_follower_line_has_a_version();
    a_line_that_no_switch_writes_is_far();
    it_commits_by_itself_as_it_is_set();
    it_reads_on_where_it_was_though_a_neighbour_leaves_another_home();
} catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    std::_Exit(1);
}
