#include "failover_consumer.hpp"

#include <algorithm>
#include <cstring>
#include <thread>

namespace twinshore {

namespace {

constexpr std::int64_t LOOK = SECOND / 20;
constexpr int LOOK_MS = 50, ASK_MS = 10'000, LEAVE_MS = 5'000;

}  // namespace

FailoverConsumer::FailoverConsumer(Clusters clusters, std::string begin, std::string name, Moving moving)
    : clusters_(std::move(clusters)), begin_(std::move(begin)), name_(std::move(name)), moving_(std::move(moving)) {
    if (!clusters_.count(begin_)) throw Error("no cluster is called " + begin_);
    for (const auto& [cluster, settings] : clusters_) {
        const auto group = settings.find("group.id");
        if (group == settings.end() || group->second.empty()) throw Error(cluster + ": group.id is not set");
        if (settings.count("group.instance.id"))  // who rejoins in time is given its old partitions, whatever it subscribes to
            throw Error(cluster + ": group.instance.id cannot be set, as such a member leaves no group when its topics move");
        conf(settings);  // a setting that is wrong is told to whoever gave it
    }
}

FailoverConsumer::~FailoverConsumer() { close(); }

void FailoverConsumer::subscribe(std::vector<std::string> topics) {
    if (centre_) throw Error(name_ + " has subscribed already");
    for (const auto& topic : topics)
        if (topic.empty() || topic[0] == '^' || topic.back() == '*')
            throw Error("topics are followed by their names, and " + topic + " is none");
    topics_ = std::move(topics);
    centre_ = std::make_unique<Centre>(name_, topics_, begin_, clusters_, [this] { news_ = true; }, moving_.warn);
}

std::optional<Message> FailoverConsumer::poll(std::chrono::milliseconds within) {
    if (!centre_) throw Error(name_ + " has subscribed to nothing");
    const std::int64_t until = now() + within.count() * MS;
    while (true) {
        follow();
        const int left_ms = static_cast<int>(std::clamp<std::int64_t>((until - now()) / MS, 0, LOOK_MS));
        if (members_.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(std::min(left_ms, 5)));
        for (std::size_t step = 1; step <= members_.size(); ++step) {  // by turns
            auto& [cluster, member] = *std::next(members_.begin(), ++turn_ % members_.size());
            const int wait_ms = step == members_.size() ? left_ms : 0;
            const KafkaMessage found(rd_kafka_consumer_poll(member.kafka.get(), wait_ms));
            if (found && !found->err) {
                const auto at = at_.find(rd_kafka_topic_name(found->rkt));
                if (at != at_.end() && at->second == cluster) return message(cluster, *found);
                continue;  // the group deals what is not read here
            }
            if (found && found->err != RD_KAFKA_RESP_ERR__PARTITION_EOF)
                centre_->tell(cluster + ": " + rd_kafka_message_errstr(found.get()));
        }
        if (now() >= until) return {};
    }
}

void FailoverConsumer::commit() {
    for (auto& [cluster, member] : members_) {
        const Partitions done = places(member.kafka.get());
        if (done->cnt) check(rd_kafka_commit(member.kafka.get(), done.get(), 0), cluster);
    }
}

std::string FailoverConsumer::where(const std::string& topic) const {
    const auto at = at_.find(topic);
    if (at != at_.end()) return at->second;
    if (!centre_) return "nothing is subscribed to";
    const Order order = centre_->following.heard(topic, now());
    return order.writes() ? "about to be read on " + order.cluster : order.why;
}

void FailoverConsumer::close() {
    while (!members_.empty()) {
        const auto [cluster, topics] = std::pair(members_.begin()->first, members_.begin()->second.topics);
        leave(cluster, topics);
    }
    at_.clear();
    centre_.reset();
}

// Leaves what a switch holds, and joins where topics are at home.
void FailoverConsumer::follow() {
    if (!news_.exchange(false) && now() < looked_ + LOOK) return;
    looked_ = now();
    const auto held = centre_->following.held();
    std::map<std::string, std::map<std::string, std::int64_t>> wanted;  // topics with their terms, by cluster
    std::map<std::string, std::set<std::string>> names;
    for (const auto& topic : topics_) {
        const Order order = centre_->following.heard(topic, now());
        if (!order.writes()) continue;
        wanted[order.cluster][topic] = std::max<std::int64_t>(order.term, 1);  // no line tells of the first one
        names[order.cluster].insert(topic);
    }
    std::vector<std::string> others;
    for (const auto& [cluster, member] : members_)
        if (member.topics != names[cluster]) others.push_back(cluster);
    for (const auto& cluster : others) leave(cluster, names[cluster]);
    for (const auto& [topic, word] : held)
        if (!at_.count(topic)) centre_->following.parked(topic, word);
    for (const auto& [cluster, topics] : wanted)
        if (!members_.count(cluster)) join(cluster, topics);
}

// All of the member's topics; those that stay are joined again.
void FailoverConsumer::leave(const std::string& cluster, const std::set<std::string>& stay) {
    Member& member = members_.at(cluster);
    std::vector<std::string> leaving;
    std::set_difference(member.topics.begin(), member.topics.end(), stay.begin(), stay.end(), std::back_inserter(leaving));
    if (moving_.before_move)
        for (const auto& topic : leaving) moving_.before_move(topic, cluster);
    const Partitions done = places(member.kafka.get());
    for (int one = 0; one < done->cnt; ++one)
        behind_[{done->elems[one].topic, done->elems[one].partition}] = done->elems[one].offset;
    for (auto one = carried_.begin(); one != carried_.end();) {  // of what was not dealt out here yet
        const auto mine = one++;
        if (member.topics.count(mine->first.first)) behind_.insert(carried_.extract(mine));
    }
    const bool by_force = stay.empty() && std::all_of(leaving.begin(), leaving.end(),
        [this](const auto& topic) { return centre_->following.heard(topic, now()).writes(); });
    if (commits(cluster) && done->cnt && !by_force) commit_last(cluster, member.kafka.get(), done.get());
    leave_group(member.kafka.get());
    for (const auto& topic : member.topics) at_.erase(topic);
    for (const auto& topic : leaving) left_[topic] = cluster;
    rd_kafka_destroy_flags(member.kafka.release(), RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
    members_.erase(cluster);
}

// A home that does not answer takes no place, and is left all the same: this member knows how far it has read.
void FailoverConsumer::commit_last(const std::string& cluster, rd_kafka_t* kafka, const rd_kafka_topic_partition_list_t* places) {
    const Queue answers(rd_kafka_queue_new(kafka));
    auto error = rd_kafka_commit_queue(kafka, places, answers.get(), nullptr, nullptr);
    if (!error) {
        const Event answer(rd_kafka_queue_poll(answers.get(), LEAVE_MS));
        error = answer ? rd_kafka_event_error(answer.get()) : RD_KAFKA_RESP_ERR__TIMED_OUT;
    }
    if (error) centre_->tell(name_ + " leaves " + cluster + ", which does not take its place: " + rd_kafka_err2str(error));
}

// Within its time, also where the cluster is dead. What was fetched and not handed out is dropped.
void FailoverConsumer::leave_group(rd_kafka_t* kafka) {
    const Queue events(rd_kafka_queue_new(kafka));
    if (rd_kafka_error_t* error = rd_kafka_consumer_close_queue(kafka, events.get())) rd_kafka_error_destroy(error);
    const std::int64_t until = now() + LEAVE_MS * MS;
    while (!rd_kafka_consumer_closed(kafka) && now() < until) {
        const Event event(rd_kafka_queue_poll(events.get(), LOOK_MS / 10));
        if (event && rd_kafka_event_type(event.get()) == RD_KAFKA_EVENT_REBALANCE)
            rebalanced(kafka, rd_kafka_event_error(event.get()) == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS,
                rd_kafka_event_topic_partition_list(event.get()));
    }
}

void FailoverConsumer::join(const std::string& cluster, const std::map<std::string, std::int64_t>& topics) {
    Member made{member(cluster), {}};
    const Partitions names = partitions();
    for (const auto& [topic, term] : topics) {
        rd_kafka_topic_partition_list_add(names.get(), topic.c_str(), RD_KAFKA_PARTITION_UA);
        made.topics.insert(topic);
        carry(topic, term);
        at_[topic] = cluster;
    }
    rd_kafka_poll_set_consumer(made.kafka.get());
    check(rd_kafka_subscribe(made.kafka.get(), names.get()), cluster);
    members_.emplace(cluster, std::move(made));
    for (const auto& [topic, term] : topics) {
        const auto left = left_.find(topic);
        if (left == left_.end()) continue;
        const std::string before = left->second;
        left_.erase(left);
        if (before != cluster && moving_.after_move) moving_.after_move(topic, before, cluster);
    }
}

// How far the topic was handed out, as its home counts now.
void FailoverConsumer::carry(const std::string& topic, std::int64_t term) {
    const auto line = centre_->following.line(topic);
    const auto was = terms_.try_emplace(topic, term).first->second;
    for (auto one = behind_.begin(); one != behind_.end();) {
        const auto& [where, place] = *one;
        const auto here = where.first == topic ? since(where.second, place, was, term, line) : std::nullopt;
        if (here) carried_[where] = *here;
        one = where.first == topic ? behind_.erase(one) : std::next(one);
    }
    terms_[topic] = term;
}

void FailoverConsumer::rebalanced(rd_kafka_t* kafka, bool dealt, rd_kafka_topic_partition_list_t* partitions) {
    const char* const protocol = rd_kafka_rebalance_protocol(kafka);
    const bool is_incremental = protocol && !std::strcmp(protocol, "COOPERATIVE");
    rd_kafka_error_t* error = nullptr;
    if (dealt) {
        place(kafka, partitions);
        if (is_incremental) error = rd_kafka_incremental_assign(kafka, partitions);
        else rd_kafka_assign(kafka, partitions);
    } else {
        // Another member may read on there: how far this one came says nothing any more.
        for (int one = 0; one < partitions->cnt; ++one)
            next_.erase({partitions->elems[one].topic, partitions->elems[one].partition});
        if (is_incremental) error = rd_kafka_incremental_unassign(kafka, partitions);
        else rd_kafka_assign(kafka, nullptr);
    }
    if (error) {
        centre_->tell(name_ + ": " + rd_kafka_error_string(error));
        rd_kafka_error_destroy(error);
    }
}

// Right behind a move, where the group's place lies before what this member has handed out, behind that. At any later
// time the group's place alone counts, as for every consumer.
void FailoverConsumer::place(rd_kafka_t* kafka, rd_kafka_topic_partition_list_t* partitions) {
    const Partitions ours = twinshore::partitions();
    std::set<std::string> dealt;
    for (int one = 0; one < partitions->cnt; ++one) {
        const auto& part = partitions->elems[one];
        dealt.insert(part.topic);
        if (carried_.count({part.topic, part.partition}))
            rd_kafka_topic_partition_list_add(ours.get(), part.topic, part.partition);
    }
    if (ours->cnt && rd_kafka_committed(kafka, ours.get(), ASK_MS))
        centre_->tell(name_ + ": the group does not say where it stands, and this member reads on where it was");
    for (int one = 0; one < ours->cnt; ++one) {
        const auto& part = ours->elems[one];
        auto* const mine = rd_kafka_topic_partition_list_find(partitions, part.topic, part.partition);
        const Place where{part.topic, part.partition};
        mine->offset = next_[where] = std::max<std::int64_t>(part.err ? -1 : part.offset, carried_.at(where));
    }
    for (auto one = carried_.begin(); one != carried_.end();)
        one = dealt.count(one->first.first) ? carried_.erase(one) : std::next(one);
}

// Behind what was handed out of what this member reads now.
Partitions FailoverConsumer::places(rd_kafka_t* kafka) const {
    rd_kafka_topic_partition_list_t* raw = nullptr;
    check(rd_kafka_assignment(kafka, &raw), name_);
    const Partitions mine(raw);
    Partitions found = partitions();
    for (int one = 0; one < mine->cnt; ++one) {
        const auto next = next_.find({mine->elems[one].topic, mine->elems[one].partition});
        if (next != next_.end())
            rd_kafka_topic_partition_list_add(found.get(), mine->elems[one].topic, mine->elems[one].partition)->offset =
                next->second;
    }
    return found;
}

Message FailoverConsumer::message(const std::string& cluster, const rd_kafka_message_t& raw) {
    const auto bytes = [](const void* at, std::size_t size) {
        return at ? std::optional(std::string(static_cast<const char*>(at), size)) : std::nullopt;
    };
    Message made{cluster, rd_kafka_topic_name(raw.rkt), raw.partition, raw.offset, rd_kafka_message_timestamp(&raw, nullptr),
        bytes(raw.key, raw.key_len), bytes(raw.payload, raw.len), {}};
    rd_kafka_headers_t* headers = nullptr;
    if (!rd_kafka_message_headers(&raw, &headers)) {
        const char* name = nullptr;
        const void* value = nullptr;
        std::size_t size = 0;
        for (std::size_t one = 0; !rd_kafka_header_get_all(headers, one, &name, &value, &size); ++one)
            made.headers.emplace_back(name, bytes(value, size));
    }
    next_[{made.topic, made.partition}] = made.offset + 1;
    return made;
}

// As librdkafka reads the setting: it takes more words than true and false.
bool FailoverConsumer::commits(const std::string& cluster) const {
    char word[16] = "";
    std::size_t size = sizeof word;
    rd_kafka_conf_get(conf(clusters_.at(cluster)).get(), "enable.auto.commit", word, &size);
    return !std::strcmp(word, "true");
}

Handle FailoverConsumer::member(const std::string& cluster) {
    Conf made = conf(clusters_.at(cluster));
    rd_kafka_conf_set_opaque(made.get(), this);
    rd_kafka_conf_set_rebalance_cb(made.get(),
        [](rd_kafka_t* kafka, rd_kafka_resp_err_t what, rd_kafka_topic_partition_list_t* partitions, void* ours) {
            static_cast<FailoverConsumer*>(ours)->rebalanced(kafka, what == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS, partitions);
        });
    return handle(RD_KAFKA_CONSUMER, std::move(made));
}

}  // namespace twinshore
