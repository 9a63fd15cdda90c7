"""A call that was kept back and that no client took, as its `on_delivery` is given it."""

from __future__ import annotations

from typing import cast

from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE, KafkaError, Message

from twinshore.client.kept import Kept


class _Refused:
    """What a Message of librdkafka's says of a record that was not written. That class is not made here: earlier
    versions cannot, and later ones advise against it."""

    __slots__ = ("_error", "_kept")

    def __init__(self, kept: Kept, error: KafkaError) -> None:
        self._kept, self._error = kept, error

    def __len__(self) -> int:
        return len(self._kept.value or b"")

    def __bool__(self) -> bool:
        return True

    def topic(self) -> str:
        return self._kept.topic

    def partition(self) -> int | None:
        return self._kept.partition if self._kept.partition >= 0 else None

    def offset(self) -> None:
        return None

    def key(self) -> bytes | None:
        return self._kept.key

    def value(self) -> bytes | None:
        return self._kept.value

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return list(self._kept.headers) or None

    def timestamp(self) -> tuple[int, int]:
        time_ms = self._kept.timestamp
        return (TIMESTAMP_CREATE_TIME, time_ms) if time_ms else (TIMESTAMP_NOT_AVAILABLE, -1)

    def error(self) -> KafkaError:
        return self._error

    def latency(self) -> None:
        return None

    def leader_epoch(self) -> None:
        return None


def refused(kept: Kept, error: KafkaError) -> Message:
    return cast(Message, _Refused(kept, error))
