"""Something to mirror: a topic on a lab cluster, with records."""

from __future__ import annotations

import json

from confluent_kafka import Producer

from twinshore.fleet import Cluster
from twinshore.lab.clients import admin_of, client_settings, create_topic
from twinshore.lab.errors import LabError

_ANSWER_S = 60.0
_POLL_EVERY = 1_000


def fill(cluster: Cluster, topic: str, *, records: int, partitions: int) -> int:
    """Appends records to the topic, which is made if it is not there; returns its number of partitions. Each record is
    small JSON with a key, and so the next call appends as many more."""
    found = admin_of(cluster).list_topics(timeout=_ANSWER_S).topics.get(topic)
    if found is None:
        create_topic(cluster, topic, partitions=partitions)
    if not records:
        return len(found.partitions) if found is not None else partitions
    producer = Producer({**client_settings(cluster), "enable.idempotence": True, "linger.ms": 20})
    for number in range(records):
        value = json.dumps({"number": number, "item": f"item {number % 97}", "amount": number % 1_000 / 10})
        while True:
            try:
                producer.produce(topic, value, str(number % 1_000))
                break
            except BufferError:
                producer.poll(0.5)
        if number % _POLL_EVERY == 0:
            producer.poll(0)
    left = producer.flush(_ANSWER_S)
    if left:
        raise LabError(f"{left} records of {topic} were not acknowledged by {cluster.name} within {_ANSWER_S:.0f} s")
    return len(found.partitions) if found is not None else partitions
