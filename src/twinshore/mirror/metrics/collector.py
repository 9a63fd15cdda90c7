"""All metrics as Prometheus reads them: pumps' figures from the meters, states and the ledger from the store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from twinshore.fleet import Link, NamedPartition, StoreError
from twinshore.fleet.incidents import Effect
from twinshore.links.in_force import in_force
from twinshore.links.link_state import STATES, STOPPED, UNKNOWN
from twinshore.mirror.lane.quota import SIDES
from twinshore.mirror.lane.reading import JOINED, QUEUED, READ
from twinshore.mirror.metrics import table
from twinshore.mirror.metrics.group_word import GROUPS_KIND, group_word, put_groups
from twinshore.mirror.metrics.lag_word import WORD_S_MIN, is_fresh
from twinshore.mirror.metrics.meters import NOTHING, MeterReading, Meters
from twinshore.mirror.metrics.table import Kind, Metric
from twinshore.service.clock import wall_ms
from twinshore.store import IncidentCount, LinkStatus, Store

TOPICS_MAX = 1_000
PARTITIONS_MAX = 2_000


@dataclass(frozen=True, slots=True)
class SeriesBounds:
    """How many topics, and how many partitions, have series of their own."""

    topics: int = TOPICS_MAX
    partitions: int = PARTITIONS_MAX


@dataclass(frozen=True, slots=True)
class StoreSays:
    """What the store says at a scrape; empty, and not `up`, when it does not answer."""

    up: bool = False
    links: Mapping[str, Link] = field(default_factory=dict)
    words: Mapping[str, LinkStatus] = field(default_factory=dict)
    counts: Sequence[IncidentCount] = ()
    stopped: Mapping[str, frozenset[NamedPartition]] = field(default_factory=dict)
    groups: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


class Sheet:
    """The families of one scrape."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {one.name: _family(one) for one in table.METRICS}

    def put(self, metric: Metric, labels: Sequence[str], value: float) -> None:
        family = self._families[metric.name]
        assert isinstance(family, CounterMetricFamily | GaugeMetricFamily)
        family.add_metric(list(labels), value)

    def carried(self, level: str, labels: Sequence[str], reading: MeterReading) -> None:
        values = (reading.records, reading.bytes, reading.batches, reading.lag, reading.recovery_point_s)
        for metric, value in zip(table.BY_LEVEL[level], values, strict=True):
            if value is not None:
                self.put(metric, labels, value)

    def families(self) -> Iterator[Family]:
        yield from self._families.values()


def _family(metric: Metric) -> Family:
    if metric.kind is Kind.COUNTER:
        return CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
    return GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)


class MirrorCollector(Collector):
    """Reads everything at each scrape; keeps none of it."""

    def __init__(
        self,
        links: Sequence[Link],
        meters: Meters,
        store: Store,
        bounds: SeriesBounds,
        word_s: float = WORD_S_MIN,
        quotas: Callable[[str], Mapping[str, float]] = lambda _: {},
        *,
        reading: Callable[[str], Mapping[str, float]] = lambda _: {},
        before: Iterable[LinkStatus] = (),
    ) -> None:
        """`word_s`: what a mirror said of a link longer ago is not known to be so still. `quotas`: a link's, bytes a
        second by the side whose quota holds it back. `reading`: what is told of a link of a broadcast. `before`:
        the words that stood when this process began; while one of them stands, nobody knows whether its mirror
        still lives."""
        self._links = {link.name: link for link in links}
        self._meters, self._store, self._bounds = meters, store, bounds
        self._word_s, self._quotas, self._reading = word_s, quotas, reading
        self._before = {(word.link, word.owner, word.updated_ms) for word in before}

    def watch(self, link: Link) -> None:
        """From the next scrape on it is shown."""
        self._links = {**self._links, link.name: link}

    def leave(self, link: Link) -> None:
        """From the next scrape on nothing is shown of it."""
        self._links = {name: one for name, one in self._links.items() if name != link.name}

    def describe(self) -> list[Family]:
        """The registry asks at the start; the store need not answer then."""
        return [_family(one) for one in table.METRICS]

    def collect(self) -> Iterator[Family]:
        watched = list(self._links.values())
        sheet, now_s, known = Sheet(), wall_ms() / 1000, self._known(watched)
        sheet.put(table.STORE_UP, (), float(known.up))
        topics_left, partitions_left = self._bounds.topics, self._bounds.partitions
        missing = {"topic": 0, "partition": 0}
        for link in watched:
            readings = self._meters.readings(link.name, time.monotonic())
            self._link(sheet, link.name, readings, known, now_s)
            topics = _by_topic(readings)
            kept = list(topics)[:topics_left]
            topics_left, missing["topic"] = topics_left - len(kept), missing["topic"] + len(topics) - len(kept)
            _topics(sheet, known.links.get(link.name, link), {topic: topics[topic] for topic in kept}, known)
            shown = list(readings)[:partitions_left]
            partitions_left -= len(shown)
            missing["partition"] += len(readings) - len(shown)
            stopped = known.stopped.get(link.name, frozenset())
            for named in shown:
                labels = (link.name, named.topic, str(named.partition))
                sheet.carried("partition", labels, readings[named])
                sheet.put(table.PARTITION_STOPPED, labels, _is_stopped(named, stopped))
        for name, said in known.groups.items():
            put_groups(sheet.put, name, said, now_s)
        for level, count in missing.items():
            sheet.put(table.LEFT_OUT, (level,), count)
        for one in known.counts:
            sheet.put(table.INCIDENTS_OPEN, (one.link, one.kind), one.open)
            sheet.put(table.INCIDENTS, (one.link, one.kind), one.all)
        yield from sheet.families()

    def _link(
        self, sheet: Sheet, name: str, readings: Mapping[NamedPartition, MeterReading], known: StoreSays, now_s: float
    ) -> None:
        look_age_s = self._meters.look_age_s(name, time.monotonic())
        whole = sum(readings.values(), NOTHING)
        if not readings and self._meters.lag(name) == 0:
            whole = MeterReading(lag=0, recovery_point_s=0.0)
        sheet.carried("link", (name,), whole)
        sheet.put(table.LINK_PARTITIONS, (name,), len(readings))
        sheet.put(table.LINK_UNSEEN, (name,), whole.unseen)
        quotas = self._quotas(name)
        for side in SIDES:
            sheet.put(table.LINK_QUOTA, (name, side), quotas.get(side, 0.0))
        reading = self._reading(name)
        for metric, told in ((table.LINK_QUEUE, QUEUED), (table.LINK_JOINED, JOINED), (table.LINK_READ, READ)):
            if told in reading:
                sheet.put(metric, (name,), reading[told])
        if look_age_s is not None:
            sheet.put(table.LINK_LOOK_AGE, (name,), look_age_s)
        if known.up:
            sheet.put(table.LINK_THROTTLE, (name,), known.links[name].control.throttle_bytes_s)
        word = known.words.get(name)
        word_age_s = now_s - word.updated_ms / 1000 if word else 0.0
        # Who stopped in good order said so once, and it stays true.
        said_now = word is not None and self._is_new(word) and is_fresh(word_age_s, self._word_s)
        holds = word is not None and (said_now or word.state == STOPPED)
        state = word.state if word and holds and word.state in STATES else UNKNOWN
        for one in STATES if known.up else ():
            sheet.put(table.LINK_STATE, (name, one), float(one == state))
        if word is None:
            return
        sheet.put(table.LINK_WORD_AGE, (name,), max(0.0, word_age_s))
        if not said_now or word.state == STOPPED:
            return
        sheet.put(table.LINK_LANES, (name,), word.lanes)
        sheet.put(table.LINK_RECORDS_S, (name,), word.records_per_s)
        sheet.put(table.LINK_BYTES_S, (name,), word.bytes_per_s)
        for quantile, value_ms in (("0.5", word.p50_ms), ("0.99", word.p99_ms)):
            if value_ms is not None:
                sheet.put(table.LINK_ACKNOWLEDGED, (name, quantile), value_ms / 1000)

    def _is_new(self, word: LinkStatus) -> bool:
        """Whether it was said since this process began: by the word itself, for a clock may be set back."""
        return (word.link, word.owner, word.updated_ms) not in self._before

    def _known(self, watched: Sequence[Link]) -> StoreSays:
        names = {link.name for link in watched}
        try:
            links = {link.name: in_force(link, self._store.controls.of(link.name)).link for link in watched}
            words = {word.link: word for word in self._store.links.statuses() if word.link in names}
            counts = [one for one in self._store.ledger.counts() if one.link in names]
            stopped = {name: self._stopped(name) for name in names}
            groups = {name: group_word(self._store.memories.of(name, GROUPS_KIND)) for name in names}
        except StoreError:
            return StoreSays()
        return StoreSays(True, links, words, counts, stopped, groups)

    def _stopped(self, link: str) -> frozenset[NamedPartition]:
        rows = [row.incident for row in self._store.ledger.rows(link, open_only=True)]
        return frozenset(
            NamedPartition(one.topic, one.partition)
            for one in rows
            if one.topic and (one.policy.stops or one.policy.effect is Effect.TOPIC)
        )


def _topics(
    sheet: Sheet, link: Link, topics: Mapping[str, dict[NamedPartition, MeterReading]], known: StoreSays
) -> None:
    stopped = known.stopped.get(link.name, frozenset())
    for topic, ours in topics.items():
        labels = (link.name, topic)
        sheet.carried("topic", labels, sum(ours.values(), NOTHING))
        sheet.put(table.TOPIC_PAUSED, labels, float(link.control.pauses(topic)))
        sheet.put(table.TOPIC_STOPPED, labels, sum(_is_stopped(named, stopped) for named in ours))


def _is_stopped(named: NamedPartition, stopped: frozenset[NamedPartition]) -> bool:
    return named in stopped or NamedPartition(named.topic, -1) in stopped


def _by_topic(readings: Mapping[NamedPartition, MeterReading]) -> dict[str, dict[NamedPartition, MeterReading]]:
    found: dict[str, dict[NamedPartition, MeterReading]] = {}
    for named, reading in readings.items():
        found.setdefault(named.topic, {})[named] = reading
    return found
