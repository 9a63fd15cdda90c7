"""Which acknowledged records are lost, there twice, or out of order, at one moment. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from twinshore.loss.partition import Partition
from twinshore.loss.settings import Harm


class Damage(NamedTuple):
    harm: Harm
    record: int
    says: str


def damages(state: Partition) -> Iterator[Damage]:
    """By the log of the leader that the controller has, if it runs: followers will cut theirs to it."""
    leader = state.led
    if leader is None:
        return
    records = [entry.record for entry in leader.log]
    acknowledged = state.acknowledged
    for record in acknowledged:
        count = records.count(record)
        if count == 0:
            yield Damage(Harm.LOST, record, f"Record {record} was acknowledged, and the leader's log does not have it")
        if count > 1:
            yield Damage(Harm.TWICE, record, f"Record {record} is in the leader's log {count} times")
    firsts = [record for at, record in enumerate(records) if record in acknowledged and record not in records[:at]]
    for one, other in pairwise(firsts):
        if one > other:
            yield Damage(Harm.REORDERED, other, f"Record {other} stands behind record {one}, which was sent later")
    yield from _read(state, records)


def _read(state: Partition, records: list[int]) -> Iterator[Damage]:
    reader = state.reader
    if reader is None:
        return
    for at, record in enumerate(records[: max(reader.place, state.first)]):
        if record in state.acknowledged and not reader.handled[record - 1] and reader.hand != record:
            passed = f"Record {record} is in the log, and the group has passed it unhandled"
            deleted = f"Record {record} was deleted by retention, and the group had not handled it"
            yield Damage(Harm.LOST, record, deleted if at < state.first else passed)
    for record, count in enumerate(reader.handled, 1):
        if count > 1:
            yield Damage(Harm.TWICE, record, f"Record {record} was handled {count} times")
