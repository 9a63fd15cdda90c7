"""A reader against brokers that do not keep to the protocol: nothing of theirs is taken for the log."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.proof.logs import batched, records
from tests.proof.small_broker import TOPIC, SmallBroker
from twinshore.config.errors import KafkaError
from twinshore.config.model import TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.log_reader import LogReader
from twinshore.proof.prover import chunks_of

NAMED = TopicPartition(TOPIC, 0)
RECORDS = 40


def broker() -> SmallBroker:
    chance = random.Random(5)
    return SmallBroker("small", batched(chance, records(chance, RECORDS), RECORDS, most=5))


@contextmanager
def reading(one: SmallBroker) -> Iterator[LogReader]:
    with one.serving() as cluster:
        kafka = KafkaCluster(cluster)
        reader = LogReader(kafka, NAMED, 0, one.end, client_id="test")
        try:
            yield reader
        finally:
            reader.close()
            kafka.close()


@pytest.mark.parametrize("fault", ["other", "cut", "close"])
def test_the_log_is_read_whole_whatever_a_connection_brings(fault: str) -> None:
    one = broker()
    one.faults.extend([fault, fault])
    with reading(one) as reader:
        assert sum(len(chunk.opened()[1]) for chunk in chunks_of(reader)) == RECORDS
        assert reader.position == one.end


def test_an_answer_of_two_gigabytes_is_refused_before_there_is_room_for_it() -> None:
    one = broker()
    one.faults.append("huge")
    with reading(one) as reader:
        tracemalloc.start()
        try:
            with pytest.raises(KafkaError, match="Fetch claims 2147483647 bytes"):
                list(reader.fetches())
            assert tracemalloc.get_traced_memory()[1] < 100 << 20
        finally:
            tracemalloc.stop()
