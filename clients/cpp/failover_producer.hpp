// A producer whose topics may move to another cluster, planned or by force, while it writes. Records of a topic are sent
// where it is at home; while a switch holds it they are kept, in order. What a home that died has not acknowledged is
// sent again at the new one. One producer of librdkafka for each topic and cluster, so that what becomes of one topic
// touches no other; one thread asks them all for their answers, and moves topics.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "centre.hpp"

namespace twinshore {

struct Record {
    std::string topic;
    std::optional<std::string> key, value;
    Headers headers = {};
    std::int32_t partition = RD_KAFKA_PARTITION_UA;  // by the key, as Java's clients do it
    std::int64_t timestamp_ms = 0;                   // 0: the time of the call
};

// What became of a record; without an error it is where it says.
struct Answer {
    std::string error;
    std::int32_t partition;
    std::int64_t offset;
};
using Told = std::function<void(const Answer&)>;

class FailoverProducer {
public:
    // How many records may be kept or on their way.
    static constexpr std::size_t WAITING_MAX = 100'000;

    // `clusters`: settings of librdkafka by the application's name of each. `begin`: where topics are written of which no
    // cluster says where they are at home. `topics`: what may be written: names, or beginnings of names with a * behind;
    // a switch waits for whoever may write its topics. `warn` hears what an operator should read, in a thread of ours, and
    // calls nothing here.
    FailoverProducer(Clusters clusters, std::string begin, std::vector<std::string> topics, std::string name,
        std::function<void(const std::string&)> warn = {});
    ~FailoverProducer();

    // Returns once the record is taken; `told` hears what became of it, in a thread of ours, and must not throw. Waits
    // while too many are on their way, but where `told` calls it. Any thread may call it.
    void send(Record record, Told told = {});

    // Waits for all that was sent; how many are left then.
    std::size_t flush(std::chrono::milliseconds within);

    // Where the topic is written now, or why it waits.
    std::string where(const std::string& topic) const;

    // Waits for all that was sent, and tells those that are left; how many they were.
    std::size_t close(std::chrono::milliseconds within = std::chrono::seconds(30));

private:
    struct Lane;
    struct Call {
        std::uint64_t number;
        Lane* lane;
        Record record;
        Told told;
    };
    using Calls = std::map<std::uint64_t, Call>;
    // A switch says that it holds a topic before its rules keep writers out: so such a refusal counts once the cluster
    // was read behind it. `amid`: a hold has run out, so the rules may be a switch's still.
    struct Refused {
        Call call;
        std::string why;
        std::int64_t heard;
        bool amid;
    };
    // One topic: what is kept, and what is on its way to the cluster `at`, each in order. While something is refused
    // nothing more is sent. `leaving`: what is on its way
    // is given back, as `at` is not the home any more or the producer met a fatal error.
    struct Lane {
        Calls kept, sent;
        std::vector<Refused> refused;
        std::string at;
        Handle producer;
        bool leaving = false;
        std::int64_t left_at = 0;
    };

    void run();
    void turn();
    void go(const std::string& topic, Lane& lane);
    rd_kafka_resp_err_t produce(const Lane& lane, Call& call);
    void leave(Lane& lane);
    void judge(const std::string& topic, Lane& lane);
    void heard(const rd_kafka_message_t& message);
    bool is_home(const std::string& topic, const std::string& cluster) const;
    Handle producer(const std::string& cluster);

    const Clusters clusters_;
    mutable std::mutex guard_;  // of all below
    std::condition_variable changed_;
    std::map<std::string, Lane> lanes_;
    std::uint64_t number_ = 0;
    std::size_t waiting_ = 0;
    std::vector<std::pair<Call, std::string>> refused_;  // which librdkafka did not take, and why
    bool stopping_ = false;
    std::unique_ptr<Centre> centre_;
    std::thread thread_;
};

}  // namespace twinshore
