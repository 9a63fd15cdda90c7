// Asks the clusters where topics are at home, and tells them that this client follows: a thread for each of them, so that
// one that is silent keeps nobody from hearing the others.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "following.hpp"

namespace twinshore {

class Centre {
public:
    // `news` is called from its threads whenever a cluster was asked; `warn` hears why one cannot be, once for each reason.
    Centre(std::string name, std::vector<std::string> topics, std::string begin, const Clusters& clusters,
        std::function<void()> news, std::function<void(const std::string&)> warn);
    ~Centre() { end(); }

    // Says goodbye: nobody waits for this client any more.
    void end();

    // Warns, once for each sentence.
    void tell(const std::string& sentence);

    Following following;

private:
    void follow(const std::string& cluster, const Settings& settings);
    bool sleep(std::int64_t nanos);  // whether it goes on
    const std::string id_;
    const std::function<void()> news_;
    const std::function<void(const std::string&)> warn_;
    std::mutex guard_;
    std::condition_variable end_;
    std::set<std::string> warned_;
    bool stopping_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace twinshore
