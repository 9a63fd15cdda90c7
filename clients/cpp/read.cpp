// An example, and what tests run: read TOPIC[,TOPIC] GROUP EAST WEST, until its input has a line or ends. For each record it
// prints "read CLUSTER PARTITION OFFSET KEY NUMBER", where a topic moves "leaves CLUSTER" and "moved FROM TO", and "done"
// last.
#include <atomic>
#include <iostream>
#include <sstream>
#include <thread>

#include "failover_consumer.hpp"

int main(int count, char** words) try {
    if (count != 5) throw twinshore::Error("read TOPIC GROUP EAST WEST");
    std::atomic<bool> ending{false};
    std::thread input([&ending] {
        std::string line;
        std::getline(std::cin, line);
        ending = true;
    });
    twinshore::Clusters clusters;
    for (int one : {3, 4})
        clusters[one == 3 ? "east" : "west"] = {
            {"bootstrap.servers", words[one]}, {"group.id", words[2]}, {"auto.offset.reset", "earliest"}};
    twinshore::Moving moving;
    moving.before_move = [](const std::string&, const std::string& old) { std::cout << "leaves " << old << std::endl; };
    moving.after_move = [](const std::string&, const std::string& old, const std::string& home) {
        std::cout << "moved " << old << " " << home << std::endl;
    };
    moving.warn = [](const std::string& sentence) { std::cerr << sentence << std::endl; };
    twinshore::FailoverConsumer consumer(clusters, "east", "cpp-read", moving);
    std::vector<std::string> topics;
    std::istringstream named(words[1]);
    for (std::string topic; std::getline(named, topic, ',');) topics.push_back(topic);
    consumer.subscribe(topics);
    while (!ending)
        if (const auto message = consumer.poll(std::chrono::milliseconds(100)))
            std::cout << "read " << message->cluster << " " << message->partition << " " << message->offset << " "
                      << message->key.value_or("-") << " " << message->value.value_or("-") << std::endl;
    input.join();
    consumer.close();
    std::cout << "done" << std::endl;
} catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    std::_Exit(1);
}
