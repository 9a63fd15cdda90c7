"""Filler that nobody may cut off any more: a gap was being filled when the settings began to forbid every cut.

It was written to be cut off at once, so readers were never to see it. Where it stands now is told, and nothing is cut.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from twinshore.fleet import KafkaError, Link, NamedPartition, WireError
from twinshore.fleet.incidents import POLICY_LEFT_FILLER, Effect, IncidentSide
from twinshore.fleet.once import Once
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.questions import OffsetKind
from twinshore.service.clock import wall_ms
from twinshore.store import Incident, IncidentKind, LedgerRow, Store
from twinshore.wire.filler import is_filler

BATCHES_BACK_MAX = 1_000  # They are 200 million offsets.
LOOK_S = 2.0  # It is in the link's turn.
FillerAt = Callable[[int], int | None]


class _OutOfTime(Exception):
    """The rest is for the next look."""


class LeftFiller:
    """One link's; all calls are one thread's. Each partition is examined once, by as many looks as that takes: since
    nothing may be cut, no pump writes filler above a twin's anchor."""

    def __init__(self, link: Link, target: KafkaCluster, store: Store, log: Callable[[str], None]) -> None:
        self._link, self._target, self._store, self._log = link, target, store, log
        self._once = Once(log)
        self._examined: set[NamedPartition] = set()
        self._untold: set[NamedPartition] = set()  # of which no row tells of a gap
        self._seen: dict[tuple[NamedPartition, int], int | None] = {}  # of the partition that is being examined

    def look(self, anchors: Mapping[NamedPartition, int], *, never: bool) -> None:
        """`anchors`: of exact twins whose sources begin later. `never`: nothing may be cut, and no
        pump that did not know it yet can write."""
        failed: list[str] = []
        try:
            if never:
                new = {named: at for named, at in anchors.items() if named not in self._examined}
                failed = self._examine(new) if new else []
            self._close_past()
        except KafkaError as error:
            failed = [error.message]
        if failed:
            self._once.say(f"{self._link.name}: filler that may be left on twins cannot be looked for: {failed[0]}")
        else:
            self._once.well()

    def _examine(self, anchors: Mapping[NamedPartition, int]) -> list[str]:
        """Why some could not be examined; those are next time."""
        gaps: dict[NamedPartition, list[Incident]] = {}
        for told in (row.incident for row in self._store.ledger.rows(self._link.name)):
            named = NamedPartition(told.topic, told.partition)
            if named in anchors and told.kind is IncidentKind.RETENTION_GAP and told.policy.effect is Effect.PASSES:
                gaps.setdefault(named, []).append(told)
        # A row may come late: the store was away, or the next pump tells of what the one before had begun.
        self._examined |= self._untold & (anchors.keys() - gaps.keys())
        self._untold |= anchors.keys() - gaps.keys()
        twins = self._twins(gaps)
        starts, silent = self._target.offsets_of_each(twins.values(), OffsetKind.EARLIEST)
        ends, mute = self._target.offsets_of_each(twins.values(), OffsetKind.HIGH_WATERMARK)
        failed = [error.message for error in (silent | mute).values()]
        until_s = time.monotonic() + LOOK_S
        for named, rows in gaps.items():
            twin = twins[named]
            if time.monotonic() > until_s:
                break
            if twin not in starts or twin not in ends:
                continue
            first = max(anchors[named], starts[twin])
            filler_at = partial(self._filler_at, twin, until_s)
            try:
                spans = [(row.from_offset, min(row.to_offset, ends[twin])) for row in rows]
                found = {filled(filler_at, first, begin, end) for begin, end in spans if first < end >= begin}
            except _OutOfTime:
                break
            except (KafkaError, WireError) as error:
                failed.append(str(error))
                continue
            self._tell(named, twin, sorted(filter(None, found)))
            self._examined.add(named)
            self._seen.clear()
        return failed

    def _filler_at(self, twin: NamedPartition, until_s: float, at: int) -> int | None:
        """Where the batch of filler begins that has this offset. The next look need not read it again."""
        if (twin, at) not in self._seen:
            if time.monotonic() > until_s:
                raise _OutOfTime
            found = self._target.read_batch(twin, at)
            self._seen[twin, at] = found[1].base_offset if found is not None and is_filler(*found) else None
        return self._seen[twin, at]

    def _twins(self, parts: Iterable[NamedPartition]) -> dict[NamedPartition, NamedPartition]:
        return {named: NamedPartition(self._link.twin_of(named.topic), named.partition) for named in parts}

    def _tell(self, named: NamedPartition, twin: NamedPartition, spans: Iterable[tuple[int, int]]) -> None:
        for begin, end in spans:
            what = f"offsets {begin} to {end - 1} of twin {twin} hold records without a value, which readers see"
            why = "they fill a part of a retention gap and were to be cut off, which [safety] never_delete forbids now"
            then = "without never_delete the twin is cut to its source's start, with all that lies before that"
            incident = Incident(
                *(self._link.name, named.topic, named.partition, IncidentKind.REFUSED, begin, end),
                *(POLICY_LEFT_FILLER, f"{what}: {why}; {then}", IncidentSide.TARGET),
            )
            self._store.ledger.add(incident, now_ms=wall_ms())
            self._log(f"{self._link.name}: {what}: {why}")

    def _close_past(self) -> None:
        """What is cut off since, by whomever, or stood on a twin that is none any more."""
        rows = [row for row in self._store.ledger.rows(self._link.name, open_only=True) if is_left_filler(row)]
        if not rows:
            return
        ours = {NamedPartition(row.topic, row.partition) for row in self._store.twins.of(self._link.name)}
        there = {row: NamedPartition(row.incident.topic, row.incident.partition) for row in rows}
        twins = self._twins(there.values())
        starts, _ = self._target.offsets_of_each([twins[one] for one in ours & twins.keys()], OffsetKind.EARLIEST)
        for row, named in there.items():
            if named not in ours or starts.get(twins[named], -1) >= row.incident.to_offset:
                self._store.ledger.close(row.id, now_ms=wall_ms())


def is_left_filler(row: LedgerRow) -> bool:
    """Whether the row says so of a partition."""
    return row.incident.policy.effect is Effect.FILLER


def filled(filler_at: FillerAt, first: int, begin: int, end: int) -> tuple[int, int] | None:
    """Where filler stands on a twin, of a gap that a pump found from `begin` on, and that goes to `end`, or the twin to
    there; None where there is none. It may stand below `begin` too, as the pump before could not tell of all that it
    wrote. `first`: the lowest that counts. `filler_at`: where the batch of filler begins that has an offset, if one
    has."""

    def is_filled(at: int) -> bool:
        return first <= at < end and filler_at(at) is not None

    at = to = max(first, begin)
    if is_filled(at):
        # In a gap markers stand behind filler only, so its end can be searched for.
        low, to = at + 1, end
        while low < to:
            middle = (low + to) // 2
            low, to = (middle + 1, to) if is_filled(middle) else (low, middle)
    for _ in range(BATCHES_BACK_MAX):
        before = filler_at(at - 1) if at > first else None
        if before is None:
            break
        at = max(first, before)
    return (at, to) if at < to else None
