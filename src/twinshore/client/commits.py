"""How a place is committed with librdkafka's consumer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

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
