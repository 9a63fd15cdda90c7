"""`twinshore delay watch`: one process that samples every link, judges, keeps the history and reports alarms.

Also serves the monitor's /metrics and /health, from its state at the time of the request.
"""

from __future__ import annotations

import logging
import os
import queue
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from twinshore.config.errors import ConfigError, StoreError
from twinshore.config.frozen import DELAY_CLIENT_ID
from twinshore.config.model import Link
from twinshore.config.sections.delay import DelaySection
from twinshore.config.sentences import count_phrase
from twinshore.config.settings import Settings
from twinshore.monitoring.core.alerts import (
    STORE_ALARM_KEY,
    AlarmKey,
    AlarmKind,
    AlertCondition,
    check_away_clusters,
    check_unproven_partitions,
    check_windows,
    find_root_cause,
)
from twinshore.monitoring.core.monitored_link import MonitoredLink
from twinshore.monitoring.notify import STORE_RETRY_INTERVAL_S, AlarmManager, ConfiguredAlarms, open_alarm_manager
from twinshore.monitoring.sampler import ExpectedNames, LinkSample, Sampler
from twinshore.monitoring.watchers import (
    WATCHER,
    WATCHES_LINKS,
    WATCHES_WATCHERS,
    SilenceTimers,
    build_last_watch_rows,
    build_monitor_name,
    check_watchers,
    find_replaced_watches,
    get_mirror_silence_limit_s,
)
from twinshore.monitoring.windows import ThresholdRules, WindowEngine, open_window_engine
from twinshore.replication.core.filters import admits
from twinshore.runtime import process
from twinshore.runtime.endpoints import LinkClients
from twinshore.runtime.http import MetricsServer
from twinshore.runtime.live_settings import LiveSettings
from twinshore.state.core.values import WatcherRow
from twinshore.state.store import Store, open_store

log = logging.getLogger(__name__)


class MonitorState(Protocol):
    states: dict[str, MonitoredLink]
    sampled_ms: dict[str, int]


class DelayCollector(Collector):
    """Builds the monitor's metrics from its state; stores none."""

    def __init__(self, monitor: MonitorState, alarms: AlarmManager) -> None:
        self._monitor, self._alarms = monitor, alarms

    def collect(self) -> Iterator[Metric]:
        lag = _gauge("twinshore_delay_lag_records", "Records on the source alone.", "topic")
        aged, whole = "Age of the oldest of them, since they arrived.", "with all of its partitions."
        point = _gauge("twinshore_delay_recovery_point_seconds", aged, "topic")
        read = _gauge("twinshore_delay_read_timestamp_seconds", f"When the topic was read last, {whole}", "topic")
        sampled = _gauge("twinshore_delay_sampled_timestamp_seconds", "When the link was read last.")
        judged = _gauge("twinshore_delay_judged_timestamp_seconds", "When the windows judged it last.")
        late = _gauge("twinshore_delay_heartbeat_seconds", "How long the newest heartbeat took.")
        count = CounterMetricFamily("twinshore_delay_samples", "Times the link was read.", labels=["link"])
        alone = "Alarms that stand, without those that follow from others."
        alarms = _gauge("twinshore_delay_alarms", alone, "kind")
        parts = _gauge("twinshore_delay_alarm_parts", "Alarms that stand and follow from others.", "kind")
        for name, state in self._monitor.states.items():
            for title, (records, age_s) in _by_topic(state).items():
                lag.add_metric([name, title], records)
                point.add_metric([name, title], age_s)
            for title, at_ms in list(state.seen_ms.items()):
                if title:
                    read.add_metric([name, title], at_ms / 1000)
            sampled.add_metric([name], self._monitor.sampled_ms[name] / 1000)
            judged.add_metric([name], state.judged_ms / 1000)
            count.add_metric([name], state.samples)
            if state.beat_seen_ms:
                late.add_metric([name], state.beat_late_ms / 1000)
        standing = {key: one for key, one in list(self._alarms.book.items()) if one.raised_ms is not None}
        heads = {key for key, one in standing.items() if find_root_cause(key, standing, beyond=one.beyond) == key}
        for family, some in ((alarms, heads), (parts, standing.keys() - heads)):
            for (link, kind), number in Counter((key.link, key.kind.value) for key in some).items():
                family.add_metric([link, kind], number)
        yield from (lag, point, read, sampled, judged, late, count, alarms, parts)


def _gauge(name: str, says: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, says, labels=["link", *labels])


def _by_topic(state: MonitoredLink) -> Mapping[str, tuple[int, float]]:
    """Lag records and age in seconds of each completely read topic. An old figure must not look current."""
    found: dict[str, tuple[int, float]] = {}
    read, failures = state.read, state.failures
    for place, lag in list(state.lags.items()):
        if place in read and place.topic not in failures:
            records, age_s = found.get(lag.place.topic, (0, 0.0))
            found[lag.place.topic] = (records + lag.lag_records, max(age_s, lag.recovery_point_ms / 1000))
    return found


@contextmanager
def serve_metrics(section: DelaySection, monitor: MonitorState, alarms: AlarmManager) -> Iterator[MetricsServer]:
    def links() -> dict[str, Any]:
        return {name: {"sampled_ms": at_ms} for name, at_ms in monitor.sampled_ms.items()}

    collector = DelayCollector(monitor, alarms)
    with closing(MetricsServer(section.metrics_address, section.metrics_port, collector, links)) as server:
        yield server


CLUSTER_TIMEOUT_S = 2.0
SAMPLE_WAIT_S = 0.1
MONITOR_BEAT_INTERVAL_S = 1.0
QUEUED_SAMPLES_MAX = 100
STALE_ROWS_KEPT_MS = 600_000
# Below the silence for which others, by the machine's clock, would report a monitor.
CLOCK_OFFSET_MAX_S = 2.0
BEATS_BEFORE_TAKEOVER = 3
MONITOR_ALARM_KINDS = tuple(kind for kind in AlarmKind if kind is not AlarmKind.MONITOR)
# A mirror silent for longer is suspected, and consequences of its silence wait for the verdict.
MIRROR_SUSPECT_S = 3.0


class Clock:
    """Milliseconds since 1970 that jump only in `settle`: the machine's clock may be set while ages are measured."""

    def __init__(self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic) -> None:
        self._wall, self._steady = wall, steady
        self._base = wall() - steady()

    def __call__(self) -> int:
        return int((self._base + self._steady()) * 1000)

    def settle(self) -> int:
        """Adopts the machine's clock if it was set or the machine slept. Returns the shift in ms, 0 for none."""
        off_s = self._wall() - self._steady() - self._base
        if abs(off_s) <= CLOCK_OFFSET_MAX_S:
            return 0
        self._base += off_s
        return int(off_s * 1000)


class Monitor:
    """Monitors these links until `stop`."""

    def __init__(self, settings: Settings, links: Sequence[Link]) -> None:
        if not links:
            raise ConfigError("config.no-links")
        self._settings, self._links = settings, links
        self._rules = settings.delay
        self._section = settings.delay.section
        self._live, self._thresholds = LiveSettings(settings), ThresholdRules(settings.delay)
        self._stop = threading.Event()
        self._clock = Clock()
        self._silences = SilenceTimers()
        self._samples: queue.Queue[LinkSample] = queue.Queue(QUEUED_SAMPLES_MAX * len(links))
        self._owner = f"{socket.gethostname()} process {os.getpid()}"
        self._name = build_monitor_name([link.name for link in links])
        self._beats, self._beaten_s, self._saved_ms, self._store_again_s = 0, 0.0, 0, 0.0
        now_ms = self._clock()
        self.states = {link.name: MonitoredLink(link.name, now_ms) for link in links}
        self._alarmed: frozenset[AlarmKey] = frozenset()
        # A mirror is suspected before it is reported, and consequences of its silence wait for that.
        progress_s = settings.mirror.progress_s
        self._mirror_s = get_mirror_silence_limit_s(progress_s)
        self._suspect_s = min(self._mirror_s, max(MIRROR_SUSPECT_S, 3 * progress_s))
        self._served: MetricsServer | None = None
        self.sampled_ms = dict.fromkeys(self.states, now_ms)

    def stop(self) -> None:
        self._stop.set()

    def run(self) -> None:
        """Runs until `stop`, SIGINT, SIGTERM or SIGHUP."""
        process.on_shutdown_signal(self.stop)
        with ExitStack() as stack:
            store = stack.enter_context(open_store(self._settings.store.url, self._settings.store.password))
            alarms = open_alarm_manager(self._rules, store, stack, mirror_s=self._mirror_s - self._suspect_s)
            self._live.changed = partial(self._obey, alarms)
            self._live.look(store)
            self._load(alarms)
            for state in self.states.values():
                state.restore(store.delay.partitions(state.link))
            self._alarmed = frozenset(alarms.book)
            if self._section.metrics_port:
                self._served = stack.enter_context(serve_metrics(self._section, self, alarms))
            engine = stack.enter_context(open_window_engine(self._thresholds, Path(self._section.folder)))
            for name in find_replaced_watches(self.states.keys(), store.delay.watchers()):
                # Killed, and watched these links under another name: no other process would ever end the watch.
                store.delay.remove_watcher(name)
                log.info(f"replaces {name}")
            threads = [threading.Thread(target=self._sample, args=(link, store), daemon=True) for link in self._links]
            for thread in threads:
                thread.start()
            log.info(f"watches {', '.join(self.states)}, a reading every {self._section.sample_s:g} s")
            while not self._stop.is_set():
                self._turn(store, engine, alarms)
            for thread in threads:
                thread.join(timeout=CLUSTER_TIMEOUT_S * 2)
            self._leave(store)
        log.info("stopped in good order")

    def _obey(self, alarms: ConfiguredAlarms) -> None:
        """Goes by the settings that are in force now."""
        self._rules = self._thresholds.settings = self._live.values.settings.delay
        self._section = self._rules.section
        alarms.obey(self._rules)

    def _load(self, alarms: AlarmManager) -> None:
        clusters = {cluster for link in self._links for cluster in (link.source, link.target)}
        alarms.load({*self.states, *clusters, WATCHER, STORE_ALARM_KEY.link}, (*MONITOR_ALARM_KINDS, AlarmKind.MONITOR))

    def _turn(self, store: Store, engine: WindowEngine, alarms: AlarmManager) -> None:
        moved_ms = self._clock.settle()
        if moved_ms:
            self._move(alarms, moved_ms)
        samples = self._waiting()
        now_ms = self._clock()
        for sample in samples:
            self._take(sample, engine)
        for tick, judged in engine.verdicts():
            for name, state in self.states.items():
                before = state.rulings
                state.take_verdicts([one for one in judged if one.place.link == name], now_ms)
                if state.rulings and not before:
                    log.info(f"the windows judge {name}", extra={"link": name})
            if tick >= 0:
                found = check_windows(judged, self._section.period_s, self._resting())
                alarms.judge(
                    [condition for condition in found if self.states[condition.key.link].vouches(condition)], now_ms
                )
        for name in {sample.link for sample in samples}:
            alarms.judge([*self._away(), *self._conditions(self.states[name], now_ms)], now_ms)
        self._alarmed = frozenset(alarms.book)
        self._keep(store, alarms, now_ms)

    def _move(self, alarms: AlarmManager, moved_ms: int) -> None:
        log.warning(f"the machine's clock moved by {moved_ms / 1000:+.0f} s; ages go on as they were")
        self._waiting()
        now_ms = self._clock()
        for name, state in self.states.items():
            self.states[name] = state.after_clock_shift(now_ms, moved_ms)
            self.sampled_ms[name] += moved_ms
        alarms.move(moved_ms)
        self._saved_ms = 0

    def _waiting(self) -> list[LinkSample]:
        """All samples since the last turn. After a slow turn they are judged together, by the current time."""
        found: list[LinkSample] = []
        with suppress(queue.Empty):
            found.append(self._samples.get(timeout=SAMPLE_WAIT_S))
            while True:
                found.append(self._samples.get_nowait())
        return found

    def _conditions(self, state: MonitoredLink, now_ms: int) -> list[AlertCondition]:
        ours = self._section
        bounds = {"heartbeat_s": ours.heartbeat_s, "blind_s": ours.blind_s, "period_s": ours.period_s}
        return state.conditions(now_ms, self._rules.recovery_point_s, **bounds)

    def _resting(self) -> Mapping[tuple[str, str], frozenset[int]]:
        """Stopped partitions by link and topic."""
        return {(name, topic): on for name, state in self.states.items() for topic, on in state.resting.items()}

    def _away(self) -> list[AlertCondition]:
        """Conditions of the clusters that were sampled at least once."""
        return check_away_clusters(
            {
                link.name: {name: self.states[link.name].away.get(name, "") for name in (link.source, link.target)}
                for link in self._links
                if self.states[link.name].samples
            }
        )

    def _take(self, sample: LinkSample, engine: WindowEngine) -> None:
        state = self.states[sample.link]
        state.take(sample.readings, sample.failures, sample.at_ms, sample.over, sample.deleted)
        state.away, state.stopped, state.resting = sample.away, sample.stopped, sample.resting
        if sample.paused:
            state.expect_no_heartbeat(sample.at_ms)
        if not sample.failures.get(""):
            self.sampled_ms[sample.link] = sample.at_ms
        if sample.tick >= 0:
            state.take_parts(sample.failures, sample.at_ms)
            if sample.heartbeat is not None:
                state.take_heartbeat(sample.heartbeat.offset, sample.heartbeat.written_ms, sample.at_ms)
            if sample.readings:
                engine.give(sample.tick, sample.readings)

    def _keep(self, store: Store, alarms: AlarmManager, now_ms: int) -> None:
        """Writes beat, figures and alarms to the store. After a failed write the next one brings everything."""
        if time.monotonic() - self._beaten_s < MONITOR_BEAT_INTERVAL_S:
            return
        self._beaten_s = time.monotonic()
        self._beats += 1
        if self._served:
            self._served.beat()
        for state in self.states.values():
            # Also without new samples: that is what blindness is.
            alarms.judge([*self._away(), *self._conditions(state, now_ms)], now_ms)
            over = [(key, state.explain_over(key, now_ms)) for key in alarms.book]
            alarms.judge([AlertCondition(key, False, why) for key, why in over if why], now_ms)
        if self._beaten_s < self._store_again_s:
            return
        oldest_ms = min(self.sampled_ms.values())
        says = f"watches {', '.join(map(_in_words, self.states.values()))}; {_stand(len(alarms.book))}"
        try:
            when = (self._beats, int(MONITOR_BEAT_INTERVAL_S * 1000), now_ms, oldest_ms)
            store.delay.save_heartbeat(
                WatcherRow(self._name, WATCHES_LINKS, self._owner, *when, says, tuple(self.states))
            )
            if now_ms - self._saved_ms >= self._section.period_s * 1000:
                self._live.look(store)
                for state in self.states.values():
                    store.delay.save_partitions(state.rows())
                    if state.left:
                        store.delay.forget_topics(state.link, state.left)
                    if not state.unseen(now_ms, STALE_ROWS_KEPT_MS / 2) and not state.failures:
                        # The last figures of an unreadable topic are the only ones.
                        store.delay.forget_partitions(state.link, now_ms - STALE_ROWS_KEPT_MS)
                if self._settings.proof.read_again_h:
                    alarms.judge(
                        [condition for link in self._links for condition in self._unproven(store, link, now_ms)], now_ms
                    )
                alarms.refresh()
                self._saved_ms = now_ms
            alarms.save()
            watchers = [row for row in store.delay.watchers() if row.kind == WATCHES_WATCHERS]
            words = [status for status in store.links.statuses() if status.link in self.states]
            if self._beats == BEATS_BEFORE_TAKEOVER:
                # Until now another process watched the mirrors, and may have raised an alarm.
                self._load(alarms)
        except StoreError as error:
            log.warning(f"the store cannot be written: {error.message}")
            away = f"the store cannot be written, so no other process sees what this monitor sees: {error.message}."
            alarms.judge([AlertCondition(STORE_ALARM_KEY, True, away)], now_ms)
            self._store_again_s = time.monotonic() + STORE_RETRY_INTERVAL_S
            self._silences.restart_timers(time.monotonic())
            return
        now_s, standing = time.monotonic(), tuple(alarms.book)
        suspect_s = self._suspect_s
        conditions = check_watchers(
            self._silences, watchers, words, now_s, own=self._name, word_s=suspect_s, standing=standing
        )
        alarms.judge([AlertCondition(STORE_ALARM_KEY, False), *conditions], now_ms)

    def _unproven(self, store: Store, link: Link, now_ms: int) -> list[AlertCondition]:
        """Checks what the link replicates, and what it proves without replicating."""
        replicated = [twin for twin in store.twins.active(link.name) if admits(link, twin.topic)]
        left = {twin.topic for twin in store.twins.of(link.name)} - {twin.topic for twin in replicated}
        rows = [row for row in store.proofs.of(link.name) if row.topic not in left and admits(link, row.topic)]
        return check_unproven_partitions(link.name, rows, replicated, now_ms, self._settings.proof.read_again_h)

    def _leave(self, store: Store) -> None:
        try:
            store.link_states.remember(build_last_watch_rows(self.states, self._clock()))
            store.delay.remove_watcher(self._name)
        except StoreError as error:
            log.warning(f"this monitor ends, and the store could not be told: {error.message}")

    def _sample(self, link: Link, store: Store) -> None:
        """The thread of one link, so that an unreachable cluster delays no other link."""
        clients = LinkClients(
            link, self._settings, client_id=DELAY_CLIENT_ID, patience_s=CLUSTER_TIMEOUT_S, call_s=CLUSTER_TIMEOUT_S
        )
        expected = partial(self._expected, link.name)
        sampler = Sampler(link, clients.source, clients.target, store, groups=self._section.groups, expected=expected)
        period_ms = max(1, int(self._section.period_s * 1000))
        last, due_s = -1, time.monotonic()
        with closing(sampler):
            while not self._stop.wait(max(0.0, due_s - time.monotonic())):
                due_s = max(due_s + self._section.sample_s, time.monotonic())
                tick = self._clock() // period_ms
                try:
                    sample = sampler.sample(self._clock, tick if tick != last else -1)
                except Exception as error:
                    # After any error the next reading may succeed; until then the link is reported blind.
                    sample = LinkSample(
                        link.name, self._clock(), -1, (), failures={"": f"{type(error).__name__}: {error}"}
                    )
                if sample.tick >= 0 and "" not in sample.failures:
                    last = tick
                self._samples.put(sample)

    def _expected(self, link: str) -> ExpectedNames:
        """Called in the link's thread. Returns topics that were seen before, and topics and groups that are late."""
        late = [key for key in self._alarmed if key.link == link and key.topic]
        topics = self.states[link].topics | {key.topic for key in late}
        return ExpectedNames(topics, frozenset(key.group for key in late if key.group))


def _in_words(state: MonitoredLink) -> str:
    return f"{state.link} (heartbeats take {state.beat_late_ms / 1000:.1f} s)" if state.beat_seen_ms else state.link


def _stand(alarms: int) -> str:
    return f"{count_phrase(alarms, 'alarm')} {'stands' if alarms == 1 else 'stand'}"
