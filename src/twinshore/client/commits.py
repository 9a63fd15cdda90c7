"""How a place is committed with librdkafka's consumer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import OFFSET_INVALID, OFFSET_STORED, Consumer, KafkaError, KafkaException, Message, TopicPartition

NO_OFFSET = KafkaError._NO_OFFSET


def commit(consumer: Consumer, offsets: Sequence[TopicPartition] | None, asynchronous: bool) -> None:
    """Nothing to commit is no error."""
    try:
        asked: dict[str, Any] = {"asynchronous": asynchronous} | ({} if offsets is None else {"offsets": list(offsets)})
        if offsets is None or offsets:
            consumer.commit(**asked)
    except KafkaException as error:
        if error.args[0].code() != NO_OFFSET:
            raise


def commit_further(consumer: Consumer, places: Mapping[tuple[str, int], int], ask_s: float) -> None:
    """Those behind which the group does not stand yet."""
    if places:
        there = consumer.committed([TopicPartition(*where) for where in places], ask_s)
        further = [(one, places[one.topic, one.partition]) for one in there]
        commit(
            consumer, [TopicPartition(one.topic, one.partition, at) for one, at in further if at > one.offset], False
        )


def behind(message: Message) -> TopicPartition:
    """The place that a group has once it is done with the record. KafkaException for one that is an error."""
    if message.error():
        raise KafkaException(message.error())
    return TopicPartition(message.topic() or "", message.partition() or 0, (message.offset() or 0) + 1)


def asks_for_the_groups_place(dealt: TopicPartition) -> bool:
    """Where an application that was told of its partitions gave this one no offset; the beginning or the end is one."""
    return dealt.offset in (OFFSET_INVALID, OFFSET_STORED)
