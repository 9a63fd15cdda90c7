"""Asks now and then where twins begin, and keeps a ledger row for each that begins later than its source."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from twinshore.fleet import KafkaError, Link, NamedPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.questions import OffsetKind
from twinshore.logs.ends import log_ends
from twinshore.mirror.incidents.beginnings import Lack, lacking, suspects
from twinshore.mirror.incidents.kinds import After, known
from twinshore.service.clock import wall_ms
from twinshore.store import Incident, IncidentKind, LedgerRow, Store

KIND = IncidentKind.LOST_BEGINNING


class KnownStarts(Protocol):
    """What pumps told."""

    def starts(self, link: str) -> Mapping[NamedPartition, int]:
        """Where the source's logs begin."""

    def cut_to(self, link: str) -> Mapping[NamedPartition, int]:
        """Where twins were cut to begin."""


class BeginningWatch:
    """One link's; for one thread."""

    def __init__(
        self,
        link: Link,
        source: KafkaCluster,
        target: KafkaCluster,
        store: Store,
        pumps: KnownStarts,
        log: Callable[[str], None],
    ) -> None:
        self._link, self._source, self._target = link, source, target
        self._store, self._pumps, self._log = store, pumps, log
        # By which twin it was: of a topic that was made again nothing of this is true any more.
        self._highest: dict[tuple[NamedPartition, str], int] = {}

    def look(self) -> None:
        """One look at all twins that are exact; a mapped one may begin anywhere."""
        link = self._link.name
        mapped = self._store.extents.reached(link)
        open_rows = self._store.ledger.rows(link, open_only=True)
        # Where a topic is another one by now, its own row says so, and the twin's start means nothing.
        other = {row.incident.topic for row in open_rows if known(row.incident.kind).after is After.TOPIC}
        twins_rows = [row for row in self._store.twins.of(link) if row.topic not in other]
        rows = [row for row in twins_rows if (row.topic, row.partition) not in mapped]
        anchors = {NamedPartition(row.topic, row.partition): row.anchor_offset for row in rows}
        called = {NamedPartition(self._link.twin_of(one.topic), one.partition): one for one in anchors}
        twins = {called[twin]: at for twin, at in _starts(self._target, called).items()}
        told = self._pumps.starts(link)
        ours = [row for row in open_rows if row.incident.kind is KIND]
        opened = {NamedPartition(row.incident.topic, row.incident.partition): row for row in ours}
        known_lacks = {named: Lack(row.incident.from_offset, row.incident.to_offset) for named, row in opened.items()}
        sources = _starts(self._source, suspects(twins, told, known_lacks))
        ids = {NamedPartition(row.topic, row.partition): row.target_topic_id for row in rows}
        before = {named: self._highest.get((named, twin_id), 0) for named, twin_id in ids.items()}
        for seen in (anchors, told, self._pumps.cut_to(link), sources):
            before |= {named: max(at, before[named]) for named, at in seen.items() if named in before}
        self._highest = {(named, ids[named]): at for named, at in before.items()}
        self._tell(lacking(twins, sources, before), opened, sources)

    def _tell(
        self,
        lacks: dict[NamedPartition, Lack],
        opened: dict[NamedPartition, LedgerRow],
        asked: dict[NamedPartition, int],
    ) -> None:
        for named, row in opened.items():
            lack, end = lacks.get(named), row.incident.to_offset
            if named in asked and (lack is None or lack.end != end):
                self._close(named, row, "more is missing" if lack else "the twin has all that its source has")
        for named, lack in lacks.items():
            before = opened.get(named)
            if before is None or before.incident.to_offset != lack.end:
                self._open(named, lack)

    def _open(self, named: NamedPartition, lack: Lack) -> None:
        place = (self._link.name, named.topic, named.partition)
        incident = Incident(*place, KIND, lack.begin, lack.end, known(KIND).policy, lack.sentence, KIND.side)
        self._store.ledger.add(incident, now_ms=wall_ms())
        self._log(f"{self._link.name}: {named}: {KIND}: {lack.sentence}")

    def _close(self, named: NamedPartition, row: LedgerRow, came_to: str) -> None:
        self._store.ledger.close(row.id, now_ms=wall_ms(), came_to=came_to)
        self._log(f"{self._link.name}: {named}: {KIND}: {came_to}")


def _starts(cluster: KafkaCluster, parts: Collection[NamedPartition]) -> dict[NamedPartition, int]:
    """Where these logs begin; of those that cannot be read now, nothing."""
    try:
        return log_ends(cluster, parts, OffsetKind.EARLIEST).of if parts else {}
    except KafkaError:
        return {}
