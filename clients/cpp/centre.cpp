#include "centre.hpp"

#include <random>

namespace twinshore {

namespace {

const char* const HOMES = "twinshore.homes";
const char* const FOLLOWERS = "twinshore.followers";
constexpr int PATIENCE_MS = 1'000;

std::string new_id() {
    std::random_device random;
    std::string id;
    for (int sign = 0; sign < 32; ++sign) id += "0123456789abcdef"[random() & 15];
    return id;
}

std::vector<std::string> names_of(const Clusters& clusters) {
    std::vector<std::string> found;
    for (const auto& [cluster, settings] : clusters) found.push_back(cluster);
    return found;
}

Settings expected_ids(const Clusters& clusters) {
    Settings found;
    for (const auto& [cluster, settings] : clusters)
        if (settings.count(EXPECTED_ID)) found[cluster] = settings.at(EXPECTED_ID);
    return found;
}

// What concerns the way to the cluster, and no more.
Settings way(const Settings& settings) {
    Settings found;
    for (const auto& [key, value] : settings)
        for (const char* part : {"bootstrap.", "metadata.broker.list", "security.", "ssl.", "sasl.", "enable.s", "client.",
                 "broker.address", "socket.keepalive", "log_level"})
            if (key.rfind(part, 0) == 0) found[key] = value;
    return found;
}

Settings with(Settings settings, const Settings& more) {
    for (const auto& [key, value] : more) settings[key] = value;
    return settings;
}

// One cluster's.
class Lines {
public:
    Lines(std::string cluster, const Settings& settings, const std::string& id, Following& following)
        : cluster_(std::move(cluster)), key_("[\"follower\",\"" + id + "\"]"), following_(following),
          reader_(handle(RD_KAFKA_CONSUMER, conf(with(way(settings), {{"isolation.level", "read_uncommitted"},
              {"enable.partition.eof", "true"}, {"auto.offset.reset", "error"}, {"fetch.wait.max.ms", "100"},
              {"fetch.error.backoff.ms", "50"}, {"allow.auto.create.topics", "false"}})))),
          writer_(writer(settings)),
          homes_topic_(rd_kafka_topic_new(reader_.get(), HOMES, nullptr)),
          followers_topic_(rd_kafka_topic_new(reader_.get(), FOLLOWERS, nullptr)) {}

    ~Lines() { stop(); }

    void ask() {
        const bool there = exists(homes_topic_.get(), HOMES);
        char* const id = rd_kafka_clusterid(reader_.get(), PATIENCE_MS);
        const std::string met = id ? id : "";
        if (id) rd_kafka_mem_free(reader_.get(), id);
        if (met.empty()) throw Error("it does not say which cluster it is");
        if (!following_.met(cluster_, met)) throw Error("it is cluster " + met + ", which was not expected there");
        if (!made_) make_followers();
        std::int64_t asked = now();
        if (const auto what = following_.says(cluster_, asked)) {
            write(what->value.data(), what->value.size());
            following_.said(cluster_, *what, asked, now());
            asked = now();
        }
        read_homes(there);
        following_.read(cluster_, homes_, asked, now());
    }

    // A value of nothing says goodbye.
    void write(const char* value, std::size_t size) {
        rd_kafka_resp_err_t answer = RD_KAFKA_RESP_ERR__IN_PROGRESS;
        const auto error = rd_kafka_producev(writer_.get(), RD_KAFKA_V_TOPIC(FOLLOWERS), RD_KAFKA_V_PARTITION(0),
            RD_KAFKA_V_KEY(key_.data(), key_.size()), RD_KAFKA_V_VALUE(const_cast<char*>(value), size),
            RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_OPAQUE(&answer), RD_KAFKA_V_END);
        check(error, FOLLOWERS);
        // It is answered, or times out: `answer` lives until then.
        while (answer == RD_KAFKA_RESP_ERR__IN_PROGRESS) rd_kafka_poll(writer_.get(), PATIENCE_MS);
        check(answer, FOLLOWERS);
    }

private:
    static Handle writer(const Settings& settings) {
        Conf made = conf(with(way(settings), {{"acks", "all"}, {"linger.ms", "0"},
            {"message.timeout.ms", std::to_string(PATIENCE_MS)}}));
        rd_kafka_conf_set_dr_msg_cb(made.get(), [](rd_kafka_t*, const rd_kafka_message_t* message, void*) {
            *static_cast<rd_kafka_resp_err_t*>(message->_private) = message->err;
        });
        return handle(RD_KAFKA_PRODUCER, std::move(made));
    }

    bool exists(rd_kafka_topic_t* topic, const char* name) {
        const rd_kafka_metadata_t* found = nullptr;
        check(rd_kafka_metadata(reader_.get(), 0, topic, &found, PATIENCE_MS), name);
        const auto error = found->topic_cnt == 1 ? found->topics[0].err : RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
        rd_kafka_metadata_destroy(found);
        if (error == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART || error == RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC) return false;
        check(error, name);
        return true;
    }

    void make_followers() {
        if (!exists(followers_topic_.get(), FOLLOWERS)) {
            char why[512];
            rd_kafka_NewTopic_t* topic = rd_kafka_NewTopic_new(FOLLOWERS, 1, -1, why, sizeof why);
            for (const auto& [key, value] : Settings{{"cleanup.policy", "delete"}, {"retention.ms", "3600000"},
                     {"segment.ms", "600000"}, {"segment.bytes", "16777216"}, {"max.message.bytes", "1048588"}})
                rd_kafka_NewTopic_set_config(topic, key.c_str(), value.c_str());
            Queue answers(rd_kafka_queue_new(reader_.get()));
            rd_kafka_CreateTopics(reader_.get(), &topic, 1, nullptr, answers.get());
            rd_kafka_NewTopic_destroy(topic);
            const Event answer(rd_kafka_queue_poll(answers.get(), 5 * PATIENCE_MS));
            if (!answer) throw Error(std::string(FOLLOWERS) + ": it is not made in time");
            check(rd_kafka_event_error(answer.get()), FOLLOWERS);
            std::size_t count = 0;
            const auto* made = rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(answer.get()), &count);
            const auto error = count ? rd_kafka_topic_result_error(made[0]) : RD_KAFKA_RESP_ERR_NO_ERROR;
            if (error != RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS) check(error, FOLLOWERS);
        }
        made_ = true;
    }

    // To where the log ends now. A topic that is not there says that there was no switch yet.
    void read_homes(bool there) {
        std::int64_t begin = 0, end = 0;
        if (there)
            check(rd_kafka_query_watermark_offsets(reader_.get(), HOMES, 0, &begin, &end, PATIENCE_MS), HOMES);
        if (!there || end < next_) stop();  // it is another log
        if (there && !begun_) {
            if (rd_kafka_consume_start(homes_topic_.get(), 0, begin))
                check(rd_kafka_last_error(), HOMES);
            begun_ = true;
            next_ = begin;
        }
        const std::int64_t until = now() + PATIENCE_MS * MS;
        while (next_ < end) {
            if (now() > until) throw Error(std::string(HOMES) + " cannot be read to its end");
            const KafkaMessage message(rd_kafka_consume(homes_topic_.get(), 0, 100));
            if (!message) continue;
            if (message->err && message->err != RD_KAFKA_RESP_ERR__PARTITION_EOF) check(message->err, HOMES);
            next_ = message->err ? message->offset : message->offset + 1;
            if (!message->err) take(*message);
        }
    }

    void stop() {
        if (begun_) rd_kafka_consume_stop(homes_topic_.get(), 0);
        begun_ = false;
        homes_.clear();
        next_ = 0;
    }

    void take(const rd_kafka_message_t& message) {
        const auto topic = topic_of({static_cast<const char*>(message.key), message.key ? message.key_len : 0});
        if (!topic || !following_.covers(*topic)) return;
        if (!message.payload) {
            homes_.erase(*topic);
        } else if (const auto line = home_line({static_cast<const char*>(message.payload), message.len})) {
            const auto there = homes_.find(*topic);
            // One that only a newer version can read stands until it is taken away.
            if (there != homes_.end() && there->second.unknown) return;
            if (line->unknown) {
                homes_.insert_or_assign(*topic, *line);
                return;
            }
            const auto heard = following_.line(*topic);
            Word known = there == homes_.end() ? Word{0, 0} : there->second.word;
            if (heard) known = std::max(known, heard->word);
            if (is_far(*line, known)) return;
            // Of two lines with one word the log's first stands.
            const auto [found, is_new] = homes_.try_emplace(*topic, *line);
            if (!is_new && found->second.word < line->word) found->second = *line;
        }
    }

    const std::string cluster_, key_;
    Following& following_;
    const Handle reader_, writer_;
    const Topic homes_topic_, followers_topic_;
    std::map<std::string, HomeLine> homes_;
    std::int64_t next_ = 0;
    bool begun_ = false, made_ = false;
};

}  // namespace

Centre::Centre(std::string name, std::vector<std::string> topics, std::string begin, const Clusters& clusters,
    std::function<void()> news, std::function<void(const std::string&)> warn)
    : following(std::move(name), std::move(topics), names_of(clusters), std::move(begin), expected_ids(clusters)), id_(new_id()),
      news_(std::move(news)), warn_(std::move(warn)) {
    for (const auto& [cluster, settings] : clusters)
        threads_.emplace_back([this, cluster = cluster, settings = settings] { follow(cluster, settings); });
}

void Centre::end() {
    {
        std::lock_guard lock(guard_);
        stopping_ = true;
    }
    end_.notify_all();
    for (auto& thread : threads_) thread.join();
    threads_.clear();
}

void Centre::follow(const std::string& cluster, const Settings& settings) {
    do {
        try {
            Lines lines(cluster, settings, id_, following);
            do {
                lines.ask();
                news_();
            } while (sleep(following.pause()));
            lines.write(nullptr, 0);
        } catch (const std::exception& error) {
            tell(cluster + ": " + error.what());  // the lease runs on: that is what it is for
        }
    } while (sleep(SECOND / 4));
}

bool Centre::sleep(std::int64_t nanos) {
    std::unique_lock lock(guard_);
    return !end_.wait_for(lock, std::chrono::nanoseconds(nanos), [this] { return stopping_; });
}

void Centre::tell(const std::string& sentence) {
    {
        std::lock_guard lock(guard_);
        if (stopping_ || !warned_.insert(sentence).second) return;
    }
    if (warn_) warn_(sentence);
}

}  // namespace twinshore
