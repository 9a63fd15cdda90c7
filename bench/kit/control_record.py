"""A program by itself: aborts a transaction on each partition of a topic, so that control records are there."""

from __future__ import annotations

import sys

from confluent_kafka import Producer

if __name__ == "__main__":
    bootstrap, topic = sys.argv[1:]
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in (0, 1):
        producer.produce(topic, "aborted", partition=number)
    producer.flush(30)
    producer.abort_transaction(30)
