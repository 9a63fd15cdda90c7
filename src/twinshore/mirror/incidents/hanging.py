"""Which open transactions of the source have held their twins for too long. Pure.

How old a transaction is cannot be read from the log, whose time stamps are the producer's own; so its age counts from
when it was first seen to hold a twin.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from twinshore.fleet import NamedPartition
from twinshore.fleet.incidents import IncidentKind
from twinshore.kafka.questions import ProducerState
from twinshore.mirror.incidents.kinds import known
from twinshore.mirror.lane.orders import Stoppage

KIND = IncidentKind.HANGING_TRANSACTION


class Holder(NamedTuple):
    """The oldest open transaction of a partition; `end` is the source's end behind it."""

    producer_id: int
    first_offset: int
    end: int


class Hanging(NamedTuple):
    """A transaction that has held a twin for longer than it may."""

    named: NamedPartition
    holder: Holder
    age_s: float

    @property
    def place(self) -> tuple[str, int, int]:
        """What tells it from every other one, in the ledger as well."""
        return self.named.topic, self.named.partition, self.holder.first_offset

    def stoppage(self) -> Stoppage:
        """What the ledger says of it."""
        topic, partition, first = self.place
        sentence = (
            f"producer id {self.holder.producer_id} holds a transaction open that began at offset {first}, for"
            f" {self.age_s:.0f} s or longer: the twin waits there, {self.holder.end - first} offsets behind. End it at"
            f" its application, or with kafka-transactions.sh abort --topic {topic} --partition {partition}"
            f" --start-offset {first} on the source"
        )
        return Stoppage(topic, partition, KIND, first, self.holder.end, sentence, known(KIND).policy)


def holder_of(stable: int, end: int, producers: Iterable[ProducerState]) -> Holder | None:
    """Who holds the last stable offset below the end; nobody does where the two are the same."""
    opened = [one for one in producers if one.current_txn_start >= 0]
    if stable >= end or not opened:
        return None
    first = min(opened, key=lambda one: one.current_txn_start)
    return Holder(first.producer_id, first.current_txn_start, end)


class Patience:
    """Since when each transaction has been seen to hold its twin."""

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._since_s: dict[tuple[NamedPartition, int, int], float] = {}

    def seen(self, holders: Mapping[NamedPartition, Holder], now_s: float) -> list[Hanging]:
        """Those that hold too long. `holders` are all there are now: any other has ended."""
        before, self._since_s = self._since_s, {}
        found = []
        for named, holder in holders.items():
            key = (named, holder.producer_id, holder.first_offset)
            since_s = self._since_s[key] = before.get(key, now_s)
            if now_s - since_s >= self._after_s:
                found.append(Hanging(named, holder, now_s - since_s))
        return found
