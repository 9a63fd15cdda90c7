// What a client must do by the home lines it has read: write there, or park. No network: lines and times in, orders out.
// It writes to a cluster only for as long as it has read the lines there, and has said there that it follows, within its
// lease; both count from before it asked. After a lapse it says so first and reads then: so either it hears of a switch, or
// the switch sees it. A client that starts waits for clusters that have not answered yet, for one lease.
// A hold counts from when it was heard, and ends by the first reading that was asked for after its time.
// A topic of which a cluster has a line of a newer version waits while that line stands there: it is no word.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "kafka.hpp"

namespace twinshore {

struct Word {
    std::int64_t term, step;
    bool operator==(const Word& other) const { return term == other.term && step == other.step; }
    bool operator<(const Word& other) const { return term != other.term ? term < other.term : step < other.step; }
};

enum class State { settled, announced, held };

// Where a topic is at home, as a line of twinshore.homes says.
struct HomeLine {
    std::string home, cluster_id;
    Word word;
    State state;
    std::vector<std::int64_t> points;
    std::string rest;  // what else it says, but for who said it when
    std::int64_t hold = 0;  // for how long a line that holds counts, from when it is heard; 0 until another word comes
    // A newer version wrote it in a form that cannot be read here: so the topic has a home, and nobody here knows which.
    bool unknown = false;

    // Whether a hold ended by time alone: rules of its switch may keep writers out until somebody ends that.
    bool ran_out() const { return state == State::settled && hold > 0; }
    // Whether both say the same, whoever said it when.
    bool agrees(const HomeLine& other) const;
};

// Whether the line is further above the highest word that is known of its topic than any switch would write it.
bool is_far(const HomeLine& line, const Word& known);

// The topic that a key names; none where it is the key of another line.
std::optional<std::string> topic_of(std::string_view key);

// The line that a value is, also where only a newer version can read it; none where it is no such line, as strangers may write to the topic.
std::optional<HomeLine> home_line(std::string_view value);

// A place kept under the term `was`, as the home of term `now` counts: what lay behind the point at which the topic
// changed homes is not there. `line` is the newest that is known. None where nobody knows the place.
std::optional<std::int64_t> since(
    std::int32_t partition, std::int64_t place, std::int64_t was, std::int64_t now, const std::optional<HomeLine>& line);

// The cluster where a topic is at home, in this term (0: no line tells of it); without a cluster it is parked.
struct Order {
    std::string cluster, why;
    std::int64_t term = 0;
    bool writes() const { return !cluster.empty(); }
};

// What is to be said to a cluster, and what of it was news.
struct Saying {
    std::map<std::string, Word> heard;
    std::set<std::string> parked;
    std::string value;
};

// Any thread may call it.
class Following {
public:
    // `begin`: where topics are written of which no cluster says where they are at home. `topics`: names, or beginnings
    // of names with a * behind. `expected`: ids of clusters, by the application's name, where it gave them.
    Following(std::string name, std::vector<std::string> topics, const std::vector<std::string>& clusters,
        std::string begin, Settings expected);

    // The cluster that the client calls so has this id. False where another one was expected: it is not followed.
    bool met(const std::string& cluster, const std::string& id);
    // These lines stand on that cluster, which was asked then, and had answered by `heard`.
    void read(const std::string& cluster, const std::map<std::string, HomeLine>& lines, std::int64_t asked,
        std::int64_t heard);
    // Whether that cluster was read by a question asked after then.
    bool read_since(const std::string& cluster, std::int64_t then) const;
    bool ran_out(const std::string& topic) const;
    bool covers(const std::string& topic) const;

    // Topics that a switch holds, and by which word.
    std::map<std::string, Word> held() const;
    // Nothing is on its way to the topic since it was held by this word.
    void parked(const std::string& topic, Word word);

    // What has to be said to this cluster now; none where there is no need yet.
    std::optional<Saying> says(const std::string& cluster, std::int64_t at);
    // That cluster has it: asked then, answered by now.
    void said(const std::string& cluster, const Saying& what, std::int64_t asked, std::int64_t done);

    // For whoever writes, at this time.
    Order order(const std::string& topic, std::int64_t at) const;
    // For whoever reads, and so does no harm where the topic is at home no more: as far as was heard.
    Order heard(const std::string& topic, std::int64_t at) const;
    std::optional<HomeLine> line(const std::string& topic) const;
    // How soon the lines are read again: often while a switch is under way.
    std::int64_t pause() const;

private:
    // What stands of a topic. `clash`: another cluster says something else in the same word.
    struct Told {
        HomeLine line;
        bool clash = false;
        bool is(State state) const { return !clash && line.state == state; }
    };
    // The last word that held, and until when it counts.
    struct Hold {
        Word word;
        std::int64_t until;
    };
    // On one cluster: when it was last told, last read, and first heard since the last lapse.
    struct Lease {
        std::int64_t read, said, visible;
    };
    Order by_lines(const std::string& topic) const;
    Order in_time(const std::string& topic, std::int64_t at) const;
    // The line, or what it leaves behind once its hold has run out here.
    HomeLine in_force(const std::string& topic, HomeLine line) const;

    const std::string name_;
    const std::vector<std::string> topics_;
    const std::string begin_;
    const Settings expected_;
    mutable std::mutex guard_;
    std::map<std::string, std::string> clusters_;  // their names, by id
    std::map<std::string, Told> told_;
    std::map<std::string, Word> parked_;
    std::map<std::string, Hold> holds_;
    std::map<std::string, std::pair<Saying, std::int64_t>> last_;
    std::map<std::string, Lease> leases_;
    std::map<std::string, std::set<std::string>> unread_;  // topics of lines that cannot be read here, by cluster
    std::int64_t first_, number_ = 0;
};

}  // namespace twinshore
