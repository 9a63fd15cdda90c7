"""What a broker holds and remembers of a raw writer."""

from __future__ import annotations

from testkit.raw_writer import RawWriter
from twinshore.kafka.leader_queries import OffsetKind


def end_of(writer: RawWriter) -> int:
    return writer.kafka.list_offsets([writer.partition], OffsetKind.LOG_END)[writer.partition]


def state_of(writer: RawWriter) -> tuple[int, int] | None:
    """Epoch and last sequence that the leader remembers of the writer."""
    states = writer.kafka.describe_producers([writer.partition])[writer.partition]
    return next(((one.epoch, one.last_sequence) for one in states if one.producer_id == writer.producer_id), None)
