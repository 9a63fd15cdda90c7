"""Asks the source which of its open transactions hold twins back, and keeps the ledger of those that hang."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from twinshore.fleet import KafkaError, NamedPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.errors import Code
from twinshore.kafka.questions import OffsetKind
from twinshore.mirror.incidents.hanging import KIND, Holder, Patience, holder_of
from twinshore.mirror.lane.orders import Stoppage
from twinshore.service.clock import wall_ms
from twinshore.store import Store

GONE = "its topic is gone from the source"
LOOK_S_MAX = 30.0
LOOK_S_MIN = 0.5
LOOKS_MIN = 5  # in the time that a transaction may take


class HeldTwins:
    """Looks now and then at the partitions that lag."""

    def __init__(
        self,
        link: str,
        source: KafkaCluster,
        store: Store,
        after_s: float,
        *,
        stopped: Callable[[str, Stoppage], None],
        log: Callable[[str], None],
    ) -> None:
        """`stopped` writes a row; `log` gets a sentence for each that opens or closes."""
        self._link, self._source, self._store = link, source, store
        self._stopped, self._log = stopped, log
        self._patience = Patience(after_s)
        self._every_s = min(LOOK_S_MAX, max(LOOK_S_MIN, after_s / LOOKS_MIN))
        self._looked_at_s = 0.0

    def look(self, behind: Iterable[NamedPartition]) -> None:
        """`behind` are the partitions that lag. Rows of transactions that have ended are closed: of those partitions
        alone that the source has answered for, whether or not they are known to lag; and of those that it has no
        more."""
        now_s = time.monotonic()
        if now_s - self._looked_at_s < self._every_s:
            return
        self._looked_at_s = now_s
        rows = [row for row in self._store.ledger.rows(self._link, open_only=True) if row.incident.kind == KIND]
        told = {NamedPartition(row.incident.topic, row.incident.partition) for row in rows}
        try:
            holders, answered, gone = self._holders(sorted({*behind, *told}))
        except KafkaError:
            return  # Whatever ails the source is told by those who read it; nothing is known to have ended.
        hanging = {one.place: one for one in self._patience.seen(holders, now_s)}
        holding = {(named.topic, named.partition, holder.first_offset) for named, holder in holders.items()}
        now_ms = wall_ms()
        for row in rows:
            place = (row.incident.topic, row.incident.partition, row.incident.from_offset)
            hanging.pop(place, None)  # It has its row.
            named = NamedPartition(*place[:2])
            if named in gone:
                self._store.ledger.close(row.id, now_ms=now_ms, came_to=GONE)
                self._log(f"{self._link}: {named}: {GONE}, and with it the transaction of offset {place[2]}")
            elif place not in holding and named in answered:
                self._store.ledger.close(row.id, now_ms=now_ms)
                self._log(f"{self._link}: {named}: the transaction of offset {place[2]} has ended")
        for found in hanging.values():
            stopped = found.stoppage()
            self._stopped(self._link, stopped)
            self._log(f"{self._link}: {stopped.topic}-{stopped.partition}: {stopped.kind}: {stopped.sentence}")

    def _holders(
        self, asked: list[NamedPartition]
    ) -> tuple[dict[NamedPartition, Holder], set[NamedPartition], set[NamedPartition]]:
        """Who holds which back, of which partitions that is known, and which the source has no more."""
        stable, silent = self._source.offsets_of_each(asked, OffsetKind.LAST_STABLE)
        gone = {named for named, error in silent.items() if error.code == Code.UNKNOWN_TOPIC_OR_PARTITION}
        ends, _ = self._source.offsets_of_each(stable, OffsetKind.HIGH_WATERMARK)
        held = [named for named in ends if stable[named] < ends[named]]
        producers = self._source.describe_producers(held)
        found = {named: holder_of(stable[named], ends[named], producers[named]) for named in held}
        return {named: holder for named, holder in found.items() if holder is not None}, set(ends), gone
