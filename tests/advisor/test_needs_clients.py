"""Settings for needs are taken by the clients that they are for: librdkafka's and Java's begin with each of them."""

from __future__ import annotations

import itertools
from contextlib import closing

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from tests.kafka.protocol.serving.java_clients import java_clients
from twinshore.advisor.core.settings import Availability, Choice, Duplicates, Latency, Loss, Needs, Order, Side, choose
from twinshore.advisor.operations.settings import sentences_of, values_of
from twinshore.lab.jars import KAFKA_NEWEST

# How many replicas there are is no client's setting.
CHOICES = [choose(Needs(*words)) for words in itertools.product(Loss, Order, Duplicates, Latency, Availability)]


def of(choice: Choice, side: Side, *, java: bool) -> dict[str, str]:
    return {one.name: (not java and one.librdkafka) or one.value for one in choice.settings if one.side is side}


def pairs(*, java: bool) -> list[tuple[dict[str, str], dict[str, str]]]:
    """Each producer's and consumer's settings that there are, once."""
    found: list[tuple[dict[str, str], dict[str, str]]] = []
    for choice in CHOICES:
        pair = of(choice, Side.PRODUCER, java=java), of(choice, Side.CONSUMER, java=java)
        found += [pair] if pair not in found else []
    return found


def test_librdkafka_begins_with_each() -> None:
    for producer, consumer in pairs(java=False):
        Producer(producer)
        with closing(Consumer({**consumer, "group.id": "one"})):
            pass
    refused = {**of(choose(Needs(duplicates=Duplicates.NONE)), Side.PRODUCER, java=False)}
    with pytest.raises(KafkaException, match=r"message\.timeout\.ms"):
        Producer({**refused, "delivery.timeout.ms": "120000"})


def test_java_begins_with_each() -> None:
    with java_clients(KAFKA_NEWEST) as java:
        for producer, consumer in pairs(java=True):
            java.begins(producer, consumer)
        with pytest.raises(Exception, match="ConfigException"):
            java.begins({"delivery.timeout.ms": "30000", "linger.ms": "20"}, {})


def test_where_librdkafka_has_another_word_that_is_told() -> None:
    choice = choose(Needs(duplicates=Duplicates.NONE))
    lines = list(sentences_of(choice))
    assert lines[lines.index("auto.offset.reset=none") + 1] == "# librdkafka: auto.offset.reset=error"
    (reset,) = [one for one in values_of(choice)["settings"] if one["name"] == "auto.offset.reset"]
    assert (reset["value"], reset["librdkafka"]) == ("none", "error")
    assert not [one for one in lines if one.startswith("# librdkafka") and "auto.offset.reset" not in one]
