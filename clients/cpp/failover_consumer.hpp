// A member of a consumer group that reads topics where they are at home, and goes on at the same offset after a switch. A
// topic and its twin hold the same records at the same offsets, so a place is a place on either cluster. When a switch
// holds a topic the member stops reading it, commits where that is its habit, leaves the group, and says so: then the
// switch takes the group's places along. At the new home it joins again and reads on at the place that stands there, or
// behind what it has handed out itself, whichever lies further: what it has handed out it hands out no second time.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "centre.hpp"

namespace twinshore {

struct Message {
    std::string cluster, topic;
    std::int32_t partition;
    std::int64_t offset, timestamp_ms;
    std::optional<std::string> key, value;
    Headers headers;
};

// Called from within poll. `before_move(topic, old)`: a topic is about to be left. `after_move(topic, old, home)`: it is
// read at its new home now. `warn` hears what an operator should read, and may be called by threads of ours as well.
struct Moving {
    std::function<void(const std::string& topic, const std::string& old)> before_move = {};
    std::function<void(const std::string& topic, const std::string& old, const std::string& home)> after_move = {};
    std::function<void(const std::string&)> warn = {};
};

// One thread at a time may call it.
class FailoverConsumer {
public:
    // `clusters`: settings of librdkafka by the application's name of each, with group.id and without
    // group.instance.id, or Error. `begin`: where topics are read of which no cluster says where they are at home.
    FailoverConsumer(Clusters clusters, std::string begin, std::string name, Moving moving = {});
    ~FailoverConsumer();

    // Once, by their names.
    void subscribe(std::vector<std::string> topics);

    // The next record; none where there is none within the time.
    std::optional<Message> poll(std::chrono::milliseconds within);

    // Commits behind what was handed out, of what is read now. Error where the cluster does not take it.
    void commit();

    // The cluster that the topic is read on now, or why it waits.
    std::string where(const std::string& topic) const;

    // Leaves the group, commits where that is its habit, and says goodbye.
    void close();

private:
    using Place = std::pair<std::string, std::int32_t>;
    // In the group on one cluster. Another set of topics takes another member: so nothing comes of what was left.
    struct Member {
        Handle kafka;
        std::set<std::string> topics;
    };

    void follow();
    void leave(const std::string& cluster, const std::set<std::string>& stay);
    void commit_last(const std::string& cluster, rd_kafka_t* kafka, const rd_kafka_topic_partition_list_t* places);
    void leave_group(rd_kafka_t* kafka);
    void join(const std::string& cluster, const std::map<std::string, std::int64_t>& topics);
    void carry(const std::string& topic, std::int64_t term);
    void rebalanced(rd_kafka_t* kafka, bool dealt, rd_kafka_topic_partition_list_t* partitions);
    void place(rd_kafka_t* kafka, rd_kafka_topic_partition_list_t* partitions);
    Partitions places(rd_kafka_t* kafka) const;
    Message message(const std::string& cluster, const rd_kafka_message_t& raw);
    bool commits(const std::string& cluster) const;
    Handle member(const std::string& cluster);

    const Clusters clusters_;
    const std::string begin_, name_;
    const Moving moving_;
    std::vector<std::string> topics_;
    std::map<std::string, Member> members_;            // by cluster
    std::map<std::string, std::string> at_, left_;     // by topic: where it is read, or was read last
    std::map<std::string, std::int64_t> terms_;        // in which it was read last
    std::map<Place, std::int64_t> next_;               // behind what was handed out, of what this member reads now
    std::map<Place, std::int64_t> behind_;             // the same, of topics that were left
    std::map<Place, std::int64_t> carried_;            // the same as the new home counts, until partitions are dealt there
    std::atomic<bool> news_{true};
    std::int64_t looked_ = 0;
    std::size_t turn_ = 0;
    std::unique_ptr<Centre> centre_;
};

}  // namespace twinshore
