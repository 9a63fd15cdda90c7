// What all parts of the client share: settings, records, the clock, and librdkafka's handles, which end themselves.
#pragma once

#include <librdkafka/rdkafka.h>
#include <time.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace twinshore {

using Settings = std::map<std::string, std::string>;
using Clusters = std::map<std::string, Settings>;  // by the application's name of each
using Headers = std::vector<std::pair<std::string, std::optional<std::string>>>;

// Of a cluster: nothing goes there unless the cluster that answers has this id.
inline const char* const EXPECTED_ID = "twinshore.cluster.id";
constexpr std::int64_t MS = 1'000'000;
constexpr std::int64_t SECOND = 1'000 * MS;

struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Nanoseconds. It runs on while the machine sleeps, as leases do.
inline std::int64_t now() {
    timespec at{};
    clock_gettime(CLOCK_BOOTTIME, &at);
    return at.tv_sec * SECOND + at.tv_nsec;
}

template <auto end>
struct Ends {
    template <typename Thing>
    void operator()(Thing* thing) const {
        end(thing);
    }
};
using Handle = std::unique_ptr<rd_kafka_t, Ends<rd_kafka_destroy>>;
using Topic = std::unique_ptr<rd_kafka_topic_t, Ends<rd_kafka_topic_destroy>>;
using Queue = std::unique_ptr<rd_kafka_queue_t, Ends<rd_kafka_queue_destroy>>;
using Event = std::unique_ptr<rd_kafka_event_t, Ends<rd_kafka_event_destroy>>;
using KafkaMessage = std::unique_ptr<rd_kafka_message_t, Ends<rd_kafka_message_destroy>>;
using Conf = std::unique_ptr<rd_kafka_conf_t, Ends<rd_kafka_conf_destroy>>;
using Partitions = std::unique_ptr<rd_kafka_topic_partition_list_t, Ends<rd_kafka_topic_partition_list_destroy>>;

inline Partitions partitions() { return Partitions(rd_kafka_topic_partition_list_new(1)); }

inline void check(rd_kafka_resp_err_t error, const std::string& what) {
    if (error) throw Error(what + ": " + rd_kafka_err2str(error));
}

inline Conf conf(const Settings& settings) {
    Conf made(rd_kafka_conf_new());
    char why[512];
    for (const auto& [key, value] : settings)
        if (key.rfind("twinshore.", 0) != 0 &&
            rd_kafka_conf_set(made.get(), key.c_str(), value.c_str(), why, sizeof why) != RD_KAFKA_CONF_OK)
            throw Error(key + ": " + why);
    return made;
}

inline Handle handle(rd_kafka_type_t type, Conf conf) {
    char why[512];
    rd_kafka_t* made = rd_kafka_new(type, conf.get(), why, sizeof why);
    if (!made) throw Error(why);
    conf.release();  // it is the handle's now
    return Handle(made);
}

}  // namespace twinshore
