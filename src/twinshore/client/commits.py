"""How a place is committed with librdkafka's consumer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

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


def behind(message: Message) -> TopicPartition:
    """The place that a group has once it is done with the record. KafkaException for one that is an error."""
    if message.error():
        raise KafkaException(message.error())
    return TopicPartition(message.topic() or "", message.partition() or 0, (message.offset() or 0) + 1)
