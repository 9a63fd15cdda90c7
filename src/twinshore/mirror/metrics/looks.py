"""Looks at the source's ends now and then, so that lag and recovery point grow though no pump asks for a partition.

What they come to is left in the store, with its time: `twinshore status` reads it there."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from twinshore.fleet import Cluster, Link, NamedPartition, TwinshoreError
from twinshore.kafka.cluster import KafkaCluster
from twinshore.links.filters import admits
from twinshore.links.link_state import STANDBY
from twinshore.logs.looks import log_ends, starts_of, still_there
from twinshore.mirror.incidents.kinds import rests
from twinshore.mirror.metrics.meters import Meters
from twinshore.mirror.metrics.words import (
    LOOK_S_MAX,
    WAITS_KIND,
    Mark,
    lag_row,
    reached_of,
    waits_of,
    waits_row,
    waits_told,
)
from twinshore.service.clock import wall_ms
from twinshore.service.connections import QUICK
from twinshore.service.scheduler import tasks
from twinshore.store import IncidentKind, Store

TWINS_S = 15.0
OURS_S = 0.2


def made_again(store: Store, link: str) -> frozenset[str]:
    """Topics of which the ledger says that they are others now than their twins were made of."""
    rows = store.ledger.rows(link, open_only=True)
    return frozenset(row.incident.topic for row in rows if row.incident.kind is IncidentKind.RECREATED_TOPIC)


def refused_topics(store: Store, link: str) -> frozenset[str]:
    """Topics of which the ledger says that the link refuses them, and that it never began with."""
    rows = [row.incident for row in store.ledger.rows(link, open_only=True)]
    found = {one.topic for one in rows if one.topic and one.partition < 0 and rests(one.kind, one.policy)}
    return frozenset(found - store.twins.begun(link, found)) if found else frozenset()


def admitted(link: Link, reached: Mapping[NamedPartition, int]) -> dict[NamedPartition, int]:
    """The partitions of topics that the link's filters admit; each topic is asked about once."""
    topics = {topic for topic in {named.topic for named in reached} if admits(link, topic)}
    return {named: at for named, at in reached.items() if named.topic in topics}


class Looks:
    """One link's, in a separate task: a slow source must not hold up the driver. `holds`: the link with the filters
    that hold now; what they do not admit has no lag. `ours`: whether this process carries the link now."""

    def __init__(
        self,
        holds: Callable[[], Link],
        source: Cluster,
        store: Store,
        meters: Meters,
        every_s: float,
        ours: Callable[[], object],
    ) -> None:
        link = holds()
        self._link, self._store, self._meters = link.name, store, meters
        self._every_s, self._ours, self._holds = every_s, ours, holds
        self._filters: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
        self._twins: tuple[NamedPartition, ...] = ()
        self._count = 0
        self._refused: frozenset[str] = frozenset()
        self._read_at_s = self._looked_at_s = -1e9
        self._held = self._waited = False
        self._before: dict[NamedPartition, tuple[Mark, ...]] = {}
        self._spoken_s: float | None = None
        self._source = KafkaCluster(
            source, client_id=QUICK.client_id, patience_s=LOOK_S_MAX, call_s=LOOK_S_MAX, pool=QUICK.pool
        )
        self._task = tasks.every(f"looks {link.name}", self._turn, asks=(link.source,), first_s=OURS_S)

    def close(self) -> None:
        self._task.close()
        self._source.close()

    def _turn(self) -> float:
        ours = bool(self._ours())
        if ours == self._held and time.monotonic() - self._looked_at_s < self._every_s:
            return OURS_S
        self._looked_at_s = time.monotonic()
        # The driver says what is wrong; here the age of the last look grows, and that is a metric.
        with suppress(TwinshoreError):
            self._look(self._source, ours)
        return OURS_S

    def _look(self, source: KafkaCluster, ours: bool) -> None:
        if not ours:
            if self._held:
                self._meters.forget(self._link)
            self._held = False
            self._listen()
            return
        seen_s = time.monotonic()
        if not self._held:
            self._listen()
            # What came while no mirror ran may have come at once after the last one spoke.
            seen_s = self._spoken_s or seen_s
            self._remember(seen_s)
            self._held = True
        # One that was made a moment ago counts at once: a link that is paused right then has a lag.
        refused = refused_topics(self._store, self._link)
        link = self._holds()
        filters = (link.topics, link.exclude)
        known = self._store.twins.count(self._link) == self._count
        known = known and (refused, filters) == (self._refused, self._filters)
        if not known or time.monotonic() - self._read_at_s >= TWINS_S:
            self._refused, self._filters = refused, filters
            self._read_twins(source, link, seen_s)
        asked_s = time.monotonic()
        ends = log_ends(source, self._twins).without(made_again(self._store, self._link))
        if ends.gone or ends.mute:
            # Deleted, or not to be read now: the others are looked at without them until the twins are read anew.
            kept = tuple(named for named in self._twins if named.topic not in ends.gone)
            self._meters.keep_only(self._link, kept)
            self._twins = tuple(named for named in kept if named.topic not in ends.mute)
        self._meters.looked(self._link, ends.of, seen_s, asked_s)
        self._leave_word()

    def _leave_word(self) -> None:
        """What the look came to, and since when what is missing has been so, which the last mirror knew better."""
        self._recall()
        self._before = {}
        now_ms = wall_ms()
        waits = waits_told(self._meters.waits(self._link, time.monotonic(), now_ms))
        word = self._meters.word(self._link)
        rows = [lag_row(self._link, word)] if word is not None else []
        if waits or self._waited:
            rows.append(waits_row(self._link, waits, now_ms))
        if rows:
            self._store.memories.remember(rows)
        self._waited = bool(waits)

    def _read_twins(self, source: KafkaCluster, link: Link, seen_s: float) -> None:
        """Those that are new, and were never carried, stand where they begin."""
        reached = reached_of(self._store.twins.of(self._link), ())
        self._count = len(reached)
        reached |= starts_of(source, self._refused)  # All that these hold is missing.
        reached = admitted(link, reached)
        self._twins = still_there(source, tuple(reached))
        self._read_at_s = time.monotonic()
        self._meters.keep_only(self._link, self._twins)
        for named in self._twins:
            self._meters.knew(self._link, named, reached[named], self._end_before(named, reached[named]), seen_s)

    def _listen(self) -> None:
        """When a mirror that carried the link last spoke of it, on this process's monotonic clock."""
        for word in self._store.links.statuses():
            if word.link == self._link and word.state != STANDBY:
                self._spoken_s = time.monotonic() - max(0, wall_ms() - word.updated_ms) / 1000

    def _remember(self, at_s: float) -> None:
        """So that a restart does not make a recovery point young."""
        self._before = waits_of(self._store.memories.of(self._link, WAITS_KIND))
        for at in self._store.receipts.positions(self._link):
            named = NamedPartition(at.topic, at.partition)
            self._meters.knew(self._link, named, at.to_offset, self._end_before(named, at.source_end), at_s)
        self._waited = bool(self._before)
        self._recall()

    def _end_before(self, named: NamedPartition, end: int) -> int:
        """Where the source ended when a mirror last saw it. A leader that is mute now says it to nobody here, and what
        was missing would be forgotten as what the source has lost."""
        marks = self._before.get(named)
        return max(end, marks[-1].end) if marks else end

    def _recall(self) -> None:
        """Also of a source that does not answer now; again once it has said where it ends."""
        self._meters.recall(self._link, self._before, time.monotonic(), wall_ms())
