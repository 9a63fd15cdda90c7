"""All metrics as Prometheus reads them: pumps' figures from the meters, states and the ledger from the store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from twinshore.fleet import Cluster, Link, NamedPartition, StoreError
from twinshore.fleet.incidents import Effect
from twinshore.fleet.settings import MirrorSettings
from twinshore.links.in_force import in_force
from twinshore.links.link_state import STATES, STOPPED, UNKNOWN
from twinshore.mirror.desk.desk_core import Account
from twinshore.mirror.lane.quota import SIDES
from twinshore.mirror.lane.reading import JOINED, QUEUED, READ
from twinshore.mirror.metrics import table
from twinshore.mirror.metrics.looks import Looks
from twinshore.mirror.metrics.meters import NOTHING, MeterReading, Meters
from twinshore.mirror.metrics.table import Kind, Metric
from twinshore.mirror.metrics.words import GROUPS_KIND, WORD_S_MIN, group_word, is_fresh, put_groups, word_holds_s
from twinshore.service.clock import wall_ms
from twinshore.service.server import AddressTaken, MetricsServer
from twinshore.store import IncidentCount, LinkStatus, Store

AGAIN_S = 2.0
TOPICS_MAX = 1_000
PARTITIONS_MAX = 2_000


class Recording(Protocol):
    """Who writes down what pumps tell, and knows how each link stands."""

    def take(self, account: Account) -> None: ...

    def quotas(self, link: str) -> dict[str, float]: ...

    def reading(self, link: str) -> dict[str, float]: ...

    def words(self) -> Mapping[str, Mapping[str, str]]: ...


class Instruments:
    """Serves as soon as its port is free: another mirror on this host, for whose links this one stands by, may have it.
    Without a port it measures all the same."""

    def __init__(
        self,
        settings: MirrorSettings,
        links: Sequence[Link],
        store: Store,
        recorder: Recording,
        meters: Meters,
        log: Callable[[str], None],
    ) -> None:
        self._settings, self._store, self._recorder, self._meters = settings, store, recorder, meters
        self._looks: dict[str, Looks] = {}
        self._server: MetricsServer | None = None
        self._log = log
        self._tried_at_s: float | None = None
        bounds = SeriesBounds(settings.metrics_topics_max, settings.metrics_partitions_max)
        holds_s = word_holds_s(settings.receipts_s)
        before = _words(store)
        self._collector = MirrorCollector(
            links, self._meters, store, bounds, holds_s, recorder.quotas, reading=recorder.reading, before=before
        )
        self._serve()

    def take(self, account: Account) -> None:
        """What a pump told."""
        self._recorder.take(account)
        self._meters.take(account)

    def watch(self, holds: Callable[[], Link], source: Cluster, ours: Callable[[], object]) -> None:
        """From now on the source's ends are looked at, while `ours` says that this process carries the link. `holds`:
        the link, with the filters that hold now."""
        link = holds()
        self._looks[link.name] = Looks(holds, source, self._store, self._meters, self._settings.ends_s, ours)
        self._collector.watch(link)

    def leave(self, link: Link) -> None:
        """Nobody here carries the link any more."""
        self._collector.leave(link)
        if look := self._looks.pop(link.name, None):
            look.close()
        self._meters.forget(link.name)

    def _words(self) -> dict[str, dict[str, Any]]:
        """How each link stands, for /health; a lag that is not known now is null."""
        now_s = time.monotonic()
        return {
            link: {**said, "lag_records": self._meters.lag(link), "look_age_s": self._meters.look_age_s(link, now_s)}
            for link, said in self._recorder.words().items()
        }

    def beat(self) -> None:
        """The driver's loop turns."""
        self._serve()
        if self._server:
            self._server.beat()

    def _serve(self) -> None:
        now_s, settings = time.monotonic(), self._settings
        first = self._tried_at_s is None
        if self._server or not settings.metrics_port or now_s < (self._tried_at_s or 0.0) + AGAIN_S:
            return
        self._tried_at_s = now_s
        try:
            self._server = MetricsServer(settings.metrics_address, settings.metrics_port, self._collector, self._words)
        except AddressTaken as error:
            if first:
                self._log(f"no metrics yet: {error.message}; another mirror may serve there; tried every {AGAIN_S:g} s")
            return
        if not first:
            self._log(f"metrics are served at {settings.metrics_address}:{settings.metrics_port} now")

    def close(self) -> None:
        if self._server:
            self._server.close()
        for look in list(self._looks.values()):
            look.close()


def _words(store: Store) -> Sequence[LinkStatus]:
    """What mirrors said last of their links."""
    try:
        return store.links.statuses()
    except StoreError:
        return ()


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
    switches: int = 0


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
        if known.up:
            sheet.put(table.SWITCHES_OPEN, (), known.switches)
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
            switches = len(self._store.switches.all(open_only=True))
        except StoreError:
            return StoreSays()
        return StoreSays(True, links, words, counts, stopped, groups, switches)

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
