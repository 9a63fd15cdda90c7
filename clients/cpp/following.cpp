#include "following.hpp"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

namespace twinshore {

using nlohmann::json;

namespace {

constexpr std::int64_t LEASE = 5 * SECOND, NEVER = INT64_MIN / 4;
constexpr std::size_t BYTES_MAX = 1 << 19, TOPIC_MAX = 249, PARTITIONS_MAX = 20'000;
constexpr std::int64_t TERM_MAX = 30'000, STEP_MAX = INT64_C(1) << 31, OFFSET_MAX = INT64_C(1) << 62,
                       HOLD_MS_MAX = 86'400'000;
// Of the lines that are read and written here; a line that names none is of this one.
constexpr std::int64_t VERSION = 1, VERSIONS_MAX = INT64_C(1) << 31;

bool is_number(const json& one, std::int64_t from, std::int64_t below) {
    return one.is_number_integer() && one >= from && one < below;
}

// 0 where it is none. Of a newer one nothing else is looked at.
std::int64_t version_of(const json& said) {
    const auto found = said.find("v");
    if (found == said.end()) return VERSION;
    return is_number(*found, 1, VERSIONS_MAX) ? found->get<std::int64_t>() : 0;
}

// A number is one partition's point, [count, point] are so many with the same one.
bool read_points(const json& said, std::vector<std::int64_t>& points) {
    if (!said.is_array()) return false;
    for (const json& one : said) {
        const bool run = one.is_array() && one.size() == 2 && is_number(one[0], 1, PARTITIONS_MAX + 1);
        const json& point = run ? one[1] : one;
        if (!is_number(point, 0, OFFSET_MAX)) return false;
        points.insert(points.end(), run ? one[0].get<std::size_t>() : 1, point.get<std::int64_t>());
        if (points.size() > PARTITIONS_MAX) return false;
    }
    return true;
}

}  // namespace

bool HomeLine::agrees(const HomeLine& other) const {
    return word == other.word && cluster_id == other.cluster_id && state == other.state &&
           points == other.points && rest == other.rest && hold == other.hold;
}

bool is_far(const HomeLine& line, const Word& known) {
    const std::int64_t step = line.word.term == known.term ? known.step : 0;
    return line.word.term > known.term + 1'000 || line.word.step > step + (1 << 20);
}

std::optional<std::string> topic_of(std::string_view key) {
    const json said = json::parse(key, nullptr, false);
    if (!said.is_array() || said.size() != 2 || said[0] != "home" || !said[1].is_string()) return {};
    std::string topic = said[1];
    const auto sound = [](unsigned char sign) {
        return (sign < 128 && std::isalnum(sign)) || sign == '.' || sign == '_' || sign == '-';
    };
    if (topic.empty() || topic.size() > TOPIC_MAX || !std::all_of(topic.begin(), topic.end(), sound)) return {};
    return topic;
}

std::optional<HomeLine> home_line(std::string_view value) {
    const json said = value.size() > BYTES_MAX ? json() : json::parse(value, nullptr, false);
    if (!said.is_object()) return {};
    const std::int64_t version = version_of(said);
    if (version > VERSION) {
        HomeLine line{"", "", {0, 0}, State::held, {}, {}};
        line.unknown = true;
        return line;
    }
    if (version < VERSION) return {};
    const auto text = [&said](const char* field) {
        const auto found = said.find(field);
        return found == said.end() ? std::string() : found->is_string() ? found->get<std::string>() : "\n";
    };
    static const std::map<std::string, State> STATES{
        {"settled", State::settled}, {"announced", State::announced}, {"held", State::held}};
    const auto state = STATES.find(text("state"));
    HomeLine line{text("home"), text("cluster_id"), {}, State::settled, {}, {}};
    for (const char* field : {"switch", "source", "pair", "link", "back", "source_topic_id", "target_topic_id"})
        line.rest += text(field) + '\0';
    const std::string texts = line.home + line.cluster_id + line.rest + text("set_by");
    if (line.home.empty() || line.cluster_id.empty() || texts.find('\n') != std::string::npos || state == STATES.end())
        return {};
    const json none, &term = said.value("term", none), &step = said.value("step", none);
    if (!is_number(term, 1, TERM_MAX + 1) || !is_number(step, 0, STEP_MAX) ||
        !is_number(said.value("since_ms", none), 0, OFFSET_MAX) || !read_points(said.value("points", none), line.points))
        return {};
    const json& hold = said.value("hold_ms", none);
    line.hold = is_number(hold, 0, HOLD_MS_MAX + 1) ? hold.get<std::int64_t>() * MS : 0;
    line.word = {term, step};
    line.state = state->second;
    return line;
}

std::optional<std::int64_t> since(
    std::int32_t partition, std::int64_t place, std::int64_t was, std::int64_t now, const std::optional<HomeLine>& line) {
    if (was == now) return place;
    const bool told = line && line->word.term == now && was + 1 == now;
    if (!told || static_cast<std::size_t>(partition) >= line->points.size()) return {};
    return std::min(place, line->points[partition]);
}

Following::Following(std::string name, std::vector<std::string> topics, const std::vector<std::string>& clusters,
    std::string begin, Settings expected)
    : name_(std::move(name)), topics_(std::move(topics)), begin_(std::move(begin)), expected_(std::move(expected)),
      first_(NEVER) {
    for (const std::string& cluster : clusters) leases_[cluster] = {NEVER, NEVER, NEVER};
}

bool Following::met(const std::string& cluster, const std::string& id) {
    std::lock_guard lock(guard_);
    bool was_known = false;
    const auto before = clusters_.find(id);
    const bool is_same = before != clusters_.end() && before->second == cluster;
    for (auto one = clusters_.begin(); one != clusters_.end();) {
        const bool is_ours = one->second == cluster;
        was_known = was_known || is_ours;
        one = is_ours ? clusters_.erase(one) : std::next(one);
    }
    if (was_known && !is_same) {
        leases_[cluster] = {NEVER, NEVER, NEVER};
        last_.erase(cluster);
        unread_.erase(cluster);
    }
    const auto expected = expected_.find(cluster);
    if (expected != expected_.end() && expected->second != id) return false;
    clusters_[id] = cluster;
    return true;
}

HomeLine Following::in_force(const std::string& topic, HomeLine line) const {
    const auto hold = holds_.find(topic);
    if (hold != holds_.end() && hold->second.until == NEVER && hold->second.word == line.word) line.state = State::settled;
    return line;
}

void Following::read(const std::string& cluster, const std::map<std::string, HomeLine>& lines, std::int64_t asked,
    std::int64_t heard) {
    std::lock_guard lock(guard_);
    std::set<std::string>& unread = unread_[cluster];
    unread.clear();
    for (const auto& [topic, one] : lines) {
        if (one.unknown) {
            unread.insert(topic);
            continue;
        }
        const HomeLine line = in_force(topic, one);
        const auto hold = holds_.find(topic);
        if (line.hold && (hold == holds_.end() || hold->second.word < line.word))
            holds_.insert_or_assign(topic, Hold{line.word, heard + line.hold});
        const auto [found, is_new] = told_.try_emplace(topic, Told{line});
        Told& before = found->second;
        if (is_new || line.word < before.line.word) continue;
        if (before.line.word < line.word) before = Told{line};
        else before.clash = before.clash || !before.line.agrees(line);
    }
    for (auto& [topic, hold] : holds_) {
        if (hold.until > asked) continue;
        hold.until = NEVER;
        const auto told = told_.find(topic);
        if (told != told_.end()) told->second.line = in_force(topic, told->second.line);
    }
    Lease& lease = leases_.at(cluster);
    lease.read = std::max(lease.read, asked);
    first_ = first_ == NEVER ? asked : std::min(first_, asked);
}

bool Following::read_since(const std::string& cluster, std::int64_t then) const {
    std::lock_guard lock(guard_);
    const auto lease = leases_.find(cluster);
    return lease != leases_.end() && lease->second.read > then;
}

bool Following::ran_out(const std::string& topic) const {
    std::lock_guard lock(guard_);
    const auto one = told_.find(topic);
    return one != told_.end() && !one->second.clash && one->second.line.ran_out();
}

bool Following::covers(const std::string& topic) const {
    return std::any_of(topics_.begin(), topics_.end(), [&topic](const std::string& one) {
        const bool begins = !one.empty() && one.back() == '*';
        return begins ? topic.compare(0, one.size() - 1, one, 0, one.size() - 1) == 0 : topic == one;
    });
}

std::map<std::string, Word> Following::held() const {
    std::lock_guard lock(guard_);
    std::map<std::string, Word> found;
    for (const auto& [topic, one] : told_)
        if (one.is(State::held)) found.emplace(topic, one.line.word);
    return found;
}

void Following::parked(const std::string& topic, Word word) {
    std::lock_guard lock(guard_);
    const auto one = told_.find(topic);
    if (one != told_.end() && one->second.is(State::held) && one->second.line.word == word) parked_[topic] = word;
}

std::optional<Saying> Following::says(const std::string& cluster, std::int64_t at) {
    std::lock_guard lock(guard_);
    Saying saying;
    for (const auto& [topic, one] : told_)
        if (!one.clash && one.line.state != State::settled) saying.heard.emplace(topic, one.line.word);
    for (const auto& [topic, word] : parked_) {
        const auto heard = saying.heard.find(topic);
        if (heard != saying.heard.end() && heard->second == word) saying.parked.insert(topic);
    }
    const auto last = last_.find(cluster);
    if (last != last_.end() && at < last->second.second + SECOND && last->second.first.heard == saying.heard &&
        last->second.first.parked == saying.parked)
        return {};
    json heard = json::object();
    for (const auto& [topic, word] : saying.heard) heard[topic] = {word.term, word.step};
    const json value{
        {"v", VERSION}, {"name", name_}, {"topics", topics_}, {"heard", heard}, {"parked", saying.parked},
        {"lease_ms", LEASE / MS}, {"said", ++number_}};
    saying.value = value.dump(-1, ' ', true, json::error_handler_t::replace);
    return saying;
}

void Following::said(const std::string& cluster, const Saying& what, std::int64_t asked, std::int64_t done) {
    std::lock_guard lock(guard_);
    Lease& lease = leases_.at(cluster);
    if (done >= lease.said + LEASE) lease.visible = done;
    last_.insert_or_assign(cluster, std::pair(what, asked));
    lease.said = std::max(lease.said, asked);
}

Order Following::order(const std::string& topic, std::int64_t at) const {
    std::lock_guard lock(guard_);
    const Order found = in_time(topic, at);
    if (!found.writes()) return found;
    const Lease& lease = leases_.at(found.cluster);
    if (at >= std::min(lease.read, lease.said) + LEASE || lease.read <= lease.visible)
        return {"", found.cluster + " was not read, or told that this client follows, within its lease"};
    return found;
}

Order Following::heard(const std::string& topic, std::int64_t at) const {
    std::lock_guard lock(guard_);
    return in_time(topic, at);
}

Order Following::in_time(const std::string& topic, std::int64_t at) const {
    for (const auto& [cluster, topics] : unread_)
        if (topics.count(topic))
            return {"", "where topic " + topic + " is at home " + cluster + " says in a form of a newer version"};
    const Order found = by_lines(topic);
    const bool is_whole = std::all_of(
        leases_.begin(), leases_.end(), [](const auto& one) { return one.second.read != NEVER; });
    if (!found.writes() || is_whole) return found;
    const bool is_early = first_ == NEVER || at < first_ + LEASE;
    if (is_early || leases_.at(found.cluster).read == NEVER)
        return {"", "topic " + topic + " has no leader: a cluster that could carry it is silent"};
    return found;
}

Order Following::by_lines(const std::string& topic) const {
    const auto one = told_.find(topic);
    if (one == told_.end()) {
        const bool known = !expected_.count(begin_) || std::any_of(clusters_.begin(), clusters_.end(),
            [this](const auto& met) { return met.second == begin_; });
        if (!known) return {"", begin_ + " has not shown yet that it is the cluster that is expected there"};
        return {begin_, ""};
    }
    const auto& [line, clash] = one->second;
    if (clash) return {"", "clusters say different things of " + topic + " in one word"};
    if (line.state == State::held) return {"", "topic " + topic + " is held by a switch"};
    const auto cluster = clusters_.find(line.cluster_id);
    if (cluster == clusters_.end())
        return {"", "topic " + topic + " is at home on " + line.home + ", which this client has not met"};
    return {cluster->second, "", line.word.term};
}

std::optional<HomeLine> Following::line(const std::string& topic) const {
    std::lock_guard lock(guard_);
    const auto one = told_.find(topic);
    if (one == told_.end() || one->second.clash) return {};
    return one->second.line;
}

std::int64_t Following::pause() const {
    std::lock_guard lock(guard_);
    const bool quiet = std::all_of(
        told_.begin(), told_.end(), [](const auto& one) { return one.second.is(State::settled); });
    return quiet ? SECOND : SECOND / 20;
}

}  // namespace twinshore
