"""Settings for needs are taken by the clients that they are for: librdkafka's and Java's begin with each of them."""

from __future__ import annotations

import itertools
from contextlib import closing

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from tests.kafka.protocol.serving.java_clients import java_clients
from twinshore.advisor.core.settings_advice import (
    ApplicationNeeds,
    AvailabilityNeed,
    DuplicateTolerance,
    LatencyNeed,
    LossTolerance,
    OrderingNeed,
    SettingOwner,
    SettingsChoice,
    choose_settings,
)
from twinshore.advisor.operations.settings_advice import choice_as_values, describe_choice
from twinshore.lab.jars import KAFKA_NEWEST

# How many replicas there are is no client's setting.
CHOICES = [
    choose_settings(ApplicationNeeds(*words))
    for words in itertools.product(LossTolerance, OrderingNeed, DuplicateTolerance, LatencyNeed, AvailabilityNeed)
]


def of(choice: SettingsChoice, side: SettingOwner, *, java: bool) -> dict[str, str]:
    return {one.name: (not java and one.librdkafka) or one.value for one in choice.settings if one.side is side}


def pairs(*, java: bool) -> list[tuple[dict[str, str], dict[str, str]]]:
    """Each producer's and consumer's settings that there are, once."""
    found: list[tuple[dict[str, str], dict[str, str]]] = []
    for choice in CHOICES:
        pair = of(choice, SettingOwner.PRODUCER, java=java), of(choice, SettingOwner.CONSUMER, java=java)
        found += [pair] if pair not in found else []
    return found


def test_librdkafka_begins_with_each() -> None:
    for producer, consumer in pairs(java=False):
        Producer(producer)
        with closing(Consumer({**consumer, "group.id": "one"})):
            pass
    refused = {
        **of(choose_settings(ApplicationNeeds(duplicates=DuplicateTolerance.NONE)), SettingOwner.PRODUCER, java=False)
    }
    with pytest.raises(KafkaException, match=r"message\.timeout\.ms"):
        Producer({**refused, "delivery.timeout.ms": "120000"})


def test_java_begins_with_each() -> None:
    with java_clients(KAFKA_NEWEST) as java:
        for producer, consumer in pairs(java=True):
            java.begins(producer, consumer)
        with pytest.raises(Exception, match="ConfigException"):
            java.begins({"delivery.timeout.ms": "30000", "linger.ms": "20"}, {})


def test_where_librdkafka_has_another_word_that_is_told() -> None:
    choice = choose_settings(ApplicationNeeds(duplicates=DuplicateTolerance.NONE))
    lines = list(describe_choice(choice))
    assert lines[lines.index("auto.offset.reset=none") + 1] == "# librdkafka: auto.offset.reset=error"
    (reset,) = [one for one in choice_as_values(choice)["settings"] if one["name"] == "auto.offset.reset"]
    assert (reset["value"], reset["librdkafka"]) == ("none", "error")
    assert not [one for one in lines if one.startswith("# librdkafka") and "auto.offset.reset" not in one]
