#include "failover_producer.hpp"

namespace twinshore {

namespace {

constexpr auto TURN = std::chrono::milliseconds(5);
constexpr int SLICE_MS = 100;
// What was given up may still arrive so long after its connection was closed: the topic is not parked before that.
constexpr std::int64_t QUIET = 2 * SECOND;

std::int64_t wall_ms() {
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
        .count();
}

bool is_given_back(rd_kafka_resp_err_t error) {
    return error == RD_KAFKA_RESP_ERR__PURGE_QUEUE || error == RD_KAFKA_RESP_ERR__PURGE_INFLIGHT ||
           error == RD_KAFKA_RESP_ERR__FATAL;
}

bool is_shut_out(rd_kafka_resp_err_t error) {
    return error == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED || error == RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED;
}

rd_kafka_vu_t field(rd_kafka_vtype_t type) {
    rd_kafka_vu_t made{};
    made.vtype = type;
    return made;
}

rd_kafka_vu_t field(rd_kafka_vtype_t type, const std::optional<std::string>& bytes) {
    rd_kafka_vu_t made = field(type);
    made.u.mem.ptr = bytes ? const_cast<char*>(bytes->data()) : nullptr;
    made.u.mem.size = bytes ? bytes->size() : 0;
    return made;
}

}  // namespace

FailoverProducer::FailoverProducer(Clusters clusters, std::string begin, std::vector<std::string> topics, std::string name,
    std::function<void(const std::string&)> warn)
    : clusters_(std::move(clusters)) {
    if (!clusters_.count(begin)) throw Error("no cluster is called " + begin);
    for (const auto& [cluster, settings] : clusters_) {
        if (settings.count("transactional.id")) throw Error(cluster + ": transactions are not written by a FailoverProducer");
        producer(cluster);  // a setting that is wrong is told to whoever gave it
    }
    centre_ = std::make_unique<Centre>(
        std::move(name), std::move(topics), std::move(begin), clusters_, [this] { changed_.notify_all(); }, std::move(warn));
    thread_ = std::thread(&FailoverProducer::run, this);
}

FailoverProducer::~FailoverProducer() { close(); }

void FailoverProducer::send(Record record, Told told) {
    if (!centre_->following.covers(record.topic)) throw Error("topic " + record.topic + " is not one that it may write");
    std::unique_lock lock(guard_);
    if (std::this_thread::get_id() != thread_.get_id())
        changed_.wait(lock, [this] { return waiting_ < WAITING_MAX || stopping_; });
    if (stopping_) throw Error("the producer is closed");
    if (!record.timestamp_ms) record.timestamp_ms = wall_ms();  // the time of the call, also where it is sent later
    Lane& lane = lanes_[record.topic];
    const std::string topic = record.topic;
    ++waiting_;
    const auto number = number_++;
    lane.kept.emplace(number, Call{number, &lane, std::move(record), std::move(told)});
    if (lane.kept.size() == 1) go(topic, lane);
}

std::size_t FailoverProducer::flush(std::chrono::milliseconds within) {
    std::unique_lock lock(guard_);
    changed_.wait_for(lock, within, [this] { return !waiting_; });
    return waiting_;
}

std::string FailoverProducer::where(const std::string& topic) const {
    const Order order = centre_->following.order(topic, now());
    return order.writes() ? order.cluster : order.why;
}

std::size_t FailoverProducer::close(std::chrono::milliseconds within) {
    if (!thread_.joinable()) return 0;
    const auto left = flush(within);
    {
        std::lock_guard lock(guard_);
        stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
    for (auto& [topic, lane] : lanes_) {
        if (lane.producer) leave(lane);
        for (Refused& one : lane.refused)
            if (one.call.told) one.call.told({one.why, -1, -1});
        lane.refused.clear();
        for (Calls* some : {&lane.sent, &lane.kept}) {
            for (auto& [number, call] : *some)
                if (call.told) call.told({"the producer was closed before that was acknowledged", -1, -1});
            some->clear();
        }
    }
    centre_->end();  // when nothing is on its way any more
    return left;
}

void FailoverProducer::run() {
    std::unique_lock lock(guard_);
    while (!stopping_) {
        lock.unlock();
        turn();
        lock.lock();
        if (!stopping_) changed_.wait_for(lock, TURN);
    }
}

void FailoverProducer::turn() {
    std::vector<Lane*> asked, left;
    std::unique_lock lock(guard_);
    for (auto& [topic, lane] : lanes_)
        if (lane.producer) asked.push_back(&lane);  // it is taken away in this thread alone
    lock.unlock();
    for (Lane* lane : asked) rd_kafka_poll(lane->producer.get(), 0);
    lock.lock();
    for (const auto& [topic, word] : centre_->following.held()) {
        const auto lane = lanes_.find(topic);
        if (lane == lanes_.end() || (lane->second.sent.empty() && now() > lane->second.left_at + QUIET))
            centre_->following.parked(topic, word);
    }
    for (auto& [topic, lane] : lanes_) {
        const Order order = centre_->following.order(topic, now());
        const bool moved = order.writes() && lane.producer && order.cluster != lane.at;
        const bool is_dead = lane.producer && rd_kafka_fatal_error(lane.producer.get(), nullptr, 0) &&
                             now() > lane.left_at + SECOND;
        lane.leaving = lane.leaving || moved || is_dead;
        if (lane.leaving) left.push_back(&lane);
    }
    lock.unlock();
    for (Lane* lane : left) leave(*lane);
    lock.lock();
    for (auto& [topic, lane] : lanes_) {
        judge(topic, lane);
        go(topic, lane);
    }
    const auto refused = std::move(refused_);
    refused_.clear();
    waiting_ -= refused.size();
    if (!refused.empty()) changed_.notify_all();
    lock.unlock();
    for (const auto& [call, why] : refused)
        if (call.told) call.told({why, -1, -1});
}

// What was refused is kept where its topic is held or at home elsewhere by now; else it is refused for good.
void FailoverProducer::judge(const std::string& topic, Lane& lane) {
    if (lane.refused.empty()) return;
    const bool is_here = lane.producer && is_home(topic, lane.at);
    const Following& following = centre_->following;
    if (is_here && (!following.read_since(lane.at, lane.refused.back().heard) || following.ran_out(topic))) return;
    for (Refused& one : lane.refused) {
        if (is_here && !one.amid) refused_.emplace_back(std::move(one.call), one.why);
        else lane.kept.emplace(one.call.number, std::move(one.call));
    }
    lane.refused.clear();
}

// Sends what is kept, if the topic may be written now.
void FailoverProducer::go(const std::string& topic, Lane& lane) {
    while (!lane.kept.empty() && !lane.leaving && lane.refused.empty()) {
        const Order order = centre_->following.order(topic, now());
        if (!order.writes() || (lane.producer && lane.at != order.cluster)) return;
        if (!lane.producer) {
            try {
                lane.producer = producer(order.cluster);
            } catch (const Error& error) {
                return centre_->tell(order.cluster + ": " + error.what());  // the next turn tries again
            }
            lane.at = order.cluster;
        }
        // On its way before it is given away: its answer is heard in another thread.
        const auto node = lane.sent.insert(lane.kept.extract(lane.kept.begin())).position;
        Call& call = node->second;
        const auto error = produce(lane, call);
        if (!error) continue;
        auto back = lane.sent.extract(node);
        if (error == RD_KAFKA_RESP_ERR__QUEUE_FULL || error == RD_KAFKA_RESP_ERR__FATAL) {
            lane.kept.insert(std::move(back));
            return;  // the next turn tries again
        }
        refused_.emplace_back(std::move(back.mapped()), rd_kafka_err2str(error));
    }
}

rd_kafka_resp_err_t FailoverProducer::produce(const Lane& lane, Call& call) {
    const Record& record = call.record;
    std::vector<rd_kafka_vu_t> fields{field(RD_KAFKA_VTYPE_TOPIC), field(RD_KAFKA_VTYPE_PARTITION),
        field(RD_KAFKA_VTYPE_TIMESTAMP), field(RD_KAFKA_VTYPE_MSGFLAGS), field(RD_KAFKA_VTYPE_OPAQUE),
        field(RD_KAFKA_VTYPE_KEY, record.key), field(RD_KAFKA_VTYPE_VALUE, record.value)};
    fields[0].u.cstr = record.topic.c_str();
    fields[1].u.i32 = record.partition;
    fields[2].u.i64 = record.timestamp_ms;
    fields[3].u.i = RD_KAFKA_MSG_F_COPY;
    fields[4].u.ptr = &call;
    for (const auto& [name, value] : record.headers) {
        fields.push_back(field(RD_KAFKA_VTYPE_HEADER));
        fields.back().u.header.name = name.c_str();
        fields.back().u.header.val = value ? value->data() : nullptr;
        fields.back().u.header.size = value ? static_cast<ssize_t>(value->size()) : 0;
    }
    rd_kafka_error_t* const error = rd_kafka_produceva(lane.producer.get(), fields.data(), fields.size());
    const auto code = error ? rd_kafka_error_code(error) : RD_KAFKA_RESP_ERR_NO_ERROR;
    if (error) rd_kafka_error_destroy(error);
    return code;
}

// All that is on its way is given back. Librdkafka may tell of some of it later: nothing newer is sent before that.
void FailoverProducer::leave(Lane& lane) {
    rd_kafka_purge(lane.producer.get(), RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
    for (int tries = 0; rd_kafka_outq_len(lane.producer.get()) && tries < 10; ++tries)
        rd_kafka_poll(lane.producer.get(), SLICE_MS);
    std::unique_lock lock(guard_);
    if (!lane.sent.empty() && !stopping_) return;  // the next turn tries again
    const Handle old = std::move(lane.producer);
    lane.at.clear();
    lane.leaving = false;
    lane.left_at = now();
    lock.unlock();  // its end may take a while
}

void FailoverProducer::heard(const rd_kafka_message_t& message) {
    Call* const call = static_cast<Call*>(message._private);
    std::unique_lock lock(guard_);
    Lane& lane = *call->lane;
    auto node = lane.sent.extract(call->number);
    if (message.err && !stopping_) {
        const bool is_ours = is_given_back(message.err) || rd_kafka_fatal_error(lane.producer.get(), nullptr, 0);
        if (is_ours || lane.leaving || !is_home(call->record.topic, lane.at)) {
            lane.kept.insert(std::move(node));
            return;
        }
        if (is_shut_out(message.err)) {
            const bool amid = centre_->following.ran_out(call->record.topic);
            lane.refused.push_back({std::move(node.mapped()), rd_kafka_err2str(message.err), now(), amid});
            return;
        }
    }
    --waiting_;
    changed_.notify_all();
    lock.unlock();
    if (call->told) call->told({message.err ? rd_kafka_err2str(message.err) : "", message.partition, message.offset});
}

bool FailoverProducer::is_home(const std::string& topic, const std::string& cluster) const {
    const Order order = centre_->following.order(topic, now());
    return order.writes() && order.cluster == cluster;
}

Handle FailoverProducer::producer(const std::string& cluster) {
    Settings settings{{"partitioner", "murmur2_random"}};  // as Java's clients do it
    for (const auto& [key, value] : clusters_.at(cluster)) settings[key] = value;
    // What was given up might still arrive, so nothing may be.
    for (const char* other : {"request.required.acks", "delivery.timeout.ms", "retries", "message.send.max.retries"})
        settings.erase(other);
    settings["acks"] = "all";
    settings["enable.idempotence"] = "true";
    settings["message.timeout.ms"] = "0";
    Conf made = conf(settings);
    rd_kafka_conf_set_opaque(made.get(), this);
    rd_kafka_conf_set_dr_msg_cb(made.get(), [](rd_kafka_t*, const rd_kafka_message_t* message, void* ours) {
        static_cast<FailoverProducer*>(ours)->heard(*message);
    });
    return handle(RD_KAFKA_PRODUCER, std::move(made));
}

}  // namespace twinshore
