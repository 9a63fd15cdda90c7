// An example, and what tests run: load TOPIC EAST WEST RECORDS_PER_S, until its input has a line or ends. For each record
// that was acknowledged it prints "acked PARTITION OFFSET KEY NUMBER", for each that was refused "refused ...".
#include <atomic>
#include <iostream>
#include <thread>

#include "failover_producer.hpp"

int main(int count, char** words) try {
    if (count != 5) throw twinshore::Error("load TOPIC EAST WEST RECORDS_PER_S");
    const std::string topic = words[1];
    const auto pause = std::chrono::nanoseconds(1'000'000'000 / std::stoi(words[4]));
    std::atomic<bool> ending{false};
    std::thread input([&ending] {
        std::string line;
        std::getline(std::cin, line);
        ending = true;
    });
    const twinshore::Clusters clusters{
        {"east", {{"bootstrap.servers", words[2]}}}, {"west", {{"bootstrap.servers", words[3]}}}};
    twinshore::FailoverProducer producer(
        clusters, "east", {topic}, "cpp-load", [](const std::string& sentence) { std::cerr << sentence << std::endl; });
    const auto begun = std::chrono::steady_clock::now();
    for (long number = 0; !ending; ++number) {
        const std::string key = "key-" + std::to_string(number % 7), value = std::to_string(number);
        producer.send({topic, key, value}, [key, value](const twinshore::Answer& answer) {
            if (answer.error.empty())
                std::cout << "acked " << answer.partition << " " << answer.offset << " " << key << " " << value << std::endl;
            else
                std::cout << "refused " << key << " " << value << " " << answer.error << std::endl;
        });
        std::this_thread::sleep_until(begun + (number + 1) * pause);
    }
    input.join();
    const auto left = producer.close(std::chrono::seconds(60));
    std::cout << "left " << left << std::endl;
} catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    std::_Exit(1);
}
