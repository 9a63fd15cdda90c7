"""Watches monitors and mirrors from another process: whether each monitor still samples and each mirror reports.

Only the local clock is trusted: silence is measured here, since a monitor's beat or a mirror's status last changed.

Also here: the open alarms, their causes, and when each was last judged. A monitor that stops in good order stores that
time; for a killed one the last beat counts.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from twinshore.config.errors import StoreError
from twinshore.config.model import Link
from twinshore.config.repeat_filter import RepeatFilter
from twinshore.config.sentences import format_age
from twinshore.config.settings import Settings
from twinshore.kafka.clock import wall_ms
from twinshore.monitoring.core.alerts import STORE_ALARM_KEY, AlarmKey, AlarmKind, AlertCondition, find_root_cause
from twinshore.monitoring.notify import AlarmManager, open_alarm_manager
from twinshore.replication.links import load_links
from twinshore.runtime import process
from twinshore.runtime.live_settings import LiveSettings
from twinshore.state.core.values import AlarmRow, LinkStateRow, LinkStatus, WatcherRow
from twinshore.state.log import LINKS_SUBJECT
from twinshore.state.store import Store, open_store

log = logging.getLogger(__name__)

MISSED_BEATS_MAX = 4
MISSED_MIRROR_STATUSES_MAX = 10
SILENCE_MIN_S = 5.0
# What an attempt on a store that is away may take, and the pause before the next.
STORE_CATCH_UP_S = 15.0
WATCHES_WATCHERS, WATCHES_LINKS = "watchers", "links"
MONITOR_OF, NAME_MAX = "monitor of ", 250
# Without a host: a watcher that restarts elsewhere replaces the dead one, which is then not missed for ever.
WATCHER = "watcher of watchers"


SILENCE_CONSEQUENCES = (
    "the lag of its links is unknown. Start `twinshore delay watch`",
    "no process watches the monitor now. Start `twinshore delay watch-watchers`",
)


def get_mirror_silence_limit_s(progress_s: float) -> float:
    """Seconds of silence before a mirror's alarm wakes an operator; longer than `status_ttl_s`."""
    return max(SILENCE_MIN_S, MISSED_MIRROR_STATUSES_MAX * progress_s)


def get_watch_alarm_key(watch: str) -> AlarmKey:
    return AlarmKey(watch[:130], AlarmKind.MONITOR)


@dataclass(slots=True)
class SilenceTimers:
    """Since when each process has reported nothing new, on this process's monotonic clock."""

    since_s: dict[str, tuple[object, float]] = field(default_factory=dict)
    from_s: float = 0.0

    def restart_timers(self, now_s: float) -> None:
        """Restarts all timers while the store is unreachable: other processes need time to report afterwards."""
        self.since_s.clear()
        self.from_s = now_s + STORE_CATCH_UP_S

    def of(self, name: str, word: object, now_s: float) -> float:
        """Seconds since `word` last changed; 0 if it is new."""
        known = self.since_s.get(name)
        if known is None or known[0] != word:
            self.since_s[name] = (word, now_s)
            return 0.0
        return now_s - known[1]

    def keep(self, names: set[str]) -> None:
        """Drops all other timers."""
        for name in set(self.since_s) - names:
            del self.since_s[name]


def check_watchers(
    silences: SilenceTimers,
    watches: Sequence[WatcherRow],
    words: Sequence[LinkStatus],
    now_s: float,
    *,
    own: str,
    word_s: float,
    standing: Collection[AlarmKey] = (),
) -> list[AlertCondition]:
    """Returns a condition for each monitor and mirror.

    `own`: the caller's name. `word_s`: how long a mirror may be silent. `standing`: the caller's alarms, which clear
    for processes no longer expected to report.
    """
    conditions: list[AlertCondition] = []
    if now_s < silences.from_s:
        return conditions
    for row in watches:
        if row.name == own:
            continue
        silent_s = silences.of(f"watch {row.name}", (row.owner, row.heartbeats), now_s)
        # A monitor that beats but reads nothing reports its blindness itself.
        wrong = silent_s > _patience_s(row)
        means = SILENCE_CONSEQUENCES[row.kind == WATCHES_WATCHERS]
        said = f"{row.name} ({row.owner}) has said nothing for {silent_s:.0f} s: {means} again."
        conditions.append(AlertCondition(get_watch_alarm_key(row.name), wrong, said if wrong else ""))
    for status in words:
        silent_s = silences.of(f"mirror {status.link}", (status.owner, status.updated_ms), now_s)
        wrong = silent_s > word_s
        said = (
            f"{status.link}: its mirror ({status.owner}) has said nothing for {silent_s:.0f} s; its last status was:"
            f" {status.sentence}. Start `twinshore mirror run` again."
        )
        conditions.append(AlertCondition(AlarmKey(status.link, AlarmKind.MIRROR), wrong, said if wrong else ""))
    silences.keep({f"watch {row.name}" for row in watches} | {f"mirror {status.link}" for status in words})
    spoken = {condition.key for condition in conditions}
    over = [key for key in standing if key.kind in (AlarmKind.MONITOR, AlarmKind.MIRROR) and key not in spoken]
    return conditions + [AlertCondition(key, False) for key in over]


def build_monitor_name(links: Sequence[str]) -> str:
    return f"{MONITOR_OF}{', '.join(links)}"[:NAME_MAX]


def find_replaced_watches(links: Collection[str], watches: Sequence[WatcherRow]) -> list[str]:
    """Watches that a monitor of these links replaces: those of no other link. A replaced monitor that still lives
    registers again within a second.
    """
    ours = [row for row in watches if row.kind == WATCHES_LINKS and row.name != build_monitor_name(list(links))]
    return [row.name for row in ours if row.links and set(row.links) <= set(links)]


def find_living_monitors(watches: Sequence[WatcherRow], now_ms: int) -> list[WatcherRow]:
    """Monitors that are not silent, by the wall clock: for callers that look once."""
    silent = find_silent_watches(watches, now_ms)
    return [row for row in watches if row.kind == WATCHES_LINKS and row.name not in silent]


def find_unwatched_links(links: Sequence[str], watches: Sequence[WatcherRow], now_ms: int) -> list[str]:
    """Links that no living monitor watches."""
    covered = {link for row in find_living_monitors(watches, now_ms) for link in row.links}
    return [link for link in links if link not in covered]


def find_watched_links(silences: SilenceTimers, watches: Sequence[WatcherRow], now_s: float) -> frozenset[str]:
    """Links of the monitors that are not silent, by this process's clock."""
    rows = [row for row in watches if row.kind == WATCHES_LINKS]
    living = [
        row for row in rows if silences.of(f"watch {row.name}", (row.owner, row.heartbeats), now_s) <= _patience_s(row)
    ]
    return frozenset(link for row in living for link in row.links)


def _patience_s(row: WatcherRow) -> float:
    return max(SILENCE_MIN_S, MISSED_BEATS_MAX * row.heartbeat_interval_ms / 1000)


def check_store_silence(silent_s: float, why: str = "") -> AlertCondition:
    """Whether the store is silent for too long to watch others."""
    key = AlarmKey(WATCHER, AlarmKind.BLIND)
    said = f"the store has not answered for {silent_s:.0f} s. Which monitors and mirrors are alive is unknown: {why}."
    return AlertCondition(key, True, said) if silent_s > SILENCE_MIN_S else AlertCondition(key, False)


class Watcher:
    """`twinshore delay watch-watchers`: reads the store every second until `stop`, and nothing else."""

    def __init__(self, settings: Settings, *, every_s: float = 1.0) -> None:
        self._settings, self._every_s = settings, every_s
        self._stop = threading.Event()
        self._owner = f"{socket.gethostname()} process {os.getpid()}"
        self.name = WATCHER

    def stop(self) -> None:
        self._stop.set()

    def run(self) -> None:
        """Runs until `stop`, SIGINT, SIGTERM or SIGHUP."""
        with ExitStack() as stack:
            store = stack.enter_context(open_store(self._settings.store.url, self._settings.store.password))
            alarms = open_alarm_manager(self._settings.delay, store, stack)
            live = LiveSettings(self._settings)
            live.changed = lambda: alarms.obey(live.values.settings.delay)
            # Alarms of every monitor, also of ended ones: only this process can clear them.
            alarms.load(None, (AlarmKind.MONITOR,))
            alarms.load({WATCHER}, (AlarmKind.BLIND,))
            process.on_shutdown_signal(self.stop)
            log.info("watches every monitor and every mirror of this store")
            self._watch(store, alarms, live)
            store.delay.remove_watcher(self.name)
        log.info("stopped in good order")

    def _watch(self, store: Store, alarms: AlarmManager, live: LiveSettings) -> None:
        silences, beat, heard_s, trouble = SilenceTimers(), 0, time.monotonic(), RepeatFilter(log)
        watched: frozenset[str] = frozenset()
        links, revision = frozenset[str](), -1
        word_s = get_mirror_silence_limit_s(self._settings.mirror.progress_s)
        while not self._stop.wait(self._every_s):
            beat += 1
            now_ms = wall_ms()
            try:
                own = WatcherRow(
                    self.name, WATCHES_WATCHERS, self._owner, beat, int(self._every_s * 1000), now_ms, now_ms, "watches"
                )
                store.delay.save_heartbeat(own)
                live.look(store)
                watches = store.delay.watchers()
                if (now := store.revisions.of(LINKS_SUBJECT)) != revision:
                    # Links are added and removed while this runs; a removed link has no mirror.
                    there = frozenset(link.name for link in load_links(self._settings, store).links)
                    alarms.load(there - links, (AlarmKind.MIRROR,))
                    links, revision = there, now
                status = [one for one in store.links.statuses() if one.link in links]
            except StoreError as error:
                trouble.say(f"the store cannot be read, so no monitor and no mirror is watched: {error.message}")
                # Messages work without the store; the history follows once the store is back.
                silences.restart_timers(time.monotonic())
                alarms.judge([check_store_silence(time.monotonic() - heard_s, error.message)], now_ms)
                continue
            trouble.well()
            heard_s = time.monotonic()
            alarms.save()
            now_s = time.monotonic()
            before, watched = watched, find_watched_links(silences, watches, now_s) & links
            # A living monitor reports the mirrors of its links itself, with the consequences.
            alarms.leave(AlarmKind.MIRROR, watched)
            if before - watched:
                alarms.load(before - watched, (AlarmKind.MIRROR,))
            status = [one for one in status if one.link not in watched]
            standing = tuple(alarms.book)
            conditions = check_watchers(
                silences, watches, status, now_s, own=self.name, word_s=word_s, standing=standing
            )
            alarms.judge([*conditions, check_store_silence(0.0)], now_ms)


def find_silent_watches(watches: Sequence[WatcherRow], now_ms: int) -> Mapping[str, float]:
    """Names and silent seconds of silent watches, by the wall clock: for callers that look once."""
    found = {row.name: (now_ms - row.heartbeat_ms) / 1000 for row in watches}
    bounds = {row.name: _patience_s(row) for row in watches}
    return {name: age_s for name, age_s in found.items() if age_s > bounds[name]}


CauseByAlarm = dict[AlarmRow, AlarmRow]


def read_open_alarms(links: Sequence[Link], store: Store) -> list[AlarmRow]:
    """Reads the open alarms of these links, their clusters and the store."""
    clusters = sorted({cluster for link in links for cluster in (link.source, link.target)})
    names = [*(link.name for link in links), *clusters, STORE_ALARM_KEY.link]
    return [row for name in names for row in store.delay.alarms(name, open_only=True)]


def find_alarm_causes(standing: Sequence[AlarmRow]) -> CauseByAlarm:
    """Maps each alarm to its root cause among `standing`, or to itself."""
    rows = {AlarmKey(row.link, AlarmKind(row.kind), row.topic, row.group): row for row in standing}
    return {row: rows[find_root_cause(key, rows)] for key, row in rows.items()}


# A row of link states: when a monitor of the link stopped in good order.
LAST_WATCH_KIND = "last watch"
LAST_WATCH_PHRASE = "stood when a monitor last watched"
# A watcher of monitors also judges these.
WATCHER_ALARM_KINDS = frozenset({AlarmKind.MIRROR, AlarmKind.MONITOR})


def build_last_watch_rows(links: Iterable[str], now_ms: int) -> list[LinkStateRow]:
    """Rows for the store: the monitor of these links stops now."""
    return [LinkStateRow(link, LAST_WATCH_KIND, "", "", LAST_WATCH_KIND, now_ms) for link in links]


@dataclass(frozen=True, slots=True)
class LastWatch:
    """Which links are watched now, and when the others last were.

    `living`: links with a living monitor. `last_ms`: the last known watch of the others. `watchers`: whether a watcher
    of monitors lives. `anybody`: whether any monitor or watcher does.
    """

    links: tuple[Link, ...]
    living: frozenset[str]
    last_ms: Mapping[str, int]
    watchers: bool
    anybody: bool

    def watches(self, row: AlarmRow) -> bool:
        if row.kind in WATCHER_ALARM_KINDS and self.watchers:
            return True
        ours = self._links_of(row)
        return any(link in self.living for link in ours) if ours else self.anybody

    def get_last_judged_ms(self, row: AlarmRow) -> int | None:
        """When the alarm was last judged; None if that is now or unknown."""
        if self.watches(row):
            return None
        ours = self._links_of(row) or tuple(self.last_ms)
        return max((self.last_ms[link] for link in ours if link in self.last_ms), default=None)

    def describe_duration(self, row: AlarmRow, now_ms: int) -> str:
        """For example "for 9 s". For an alarm that is no longer judged: when it was last seen."""
        if self.watches(row):
            return f"for {(now_ms - row.raised_ms) / 1000:.0f} s"
        last_ms = self.get_last_judged_ms(row)
        if last_ms is None:
            return LAST_WATCH_PHRASE
        return f"{LAST_WATCH_PHRASE}, {format_age(max(0.0, (now_ms - last_ms) / 1000))} ago"

    def _links_of(self, row: AlarmRow) -> tuple[str, ...]:
        """The link itself or the links of a cluster; empty if the alarm belongs to no link."""
        return tuple(link.name for link in self.links if row.link in (link.name, link.source, link.target))


def build_last_watch(
    links: Sequence[Link], watches: Sequence[WatcherRow], rows: Iterable[LinkStateRow], now_ms: int
) -> LastWatch:
    names, silent = [one.name for one in links], find_silent_watches(watches, now_ms)
    last_ms = {row.link: row.since_ms for row in rows}
    for row in watches:
        for link in row.links if row.name in silent else ():
            last_ms[link] = max(row.heartbeat_ms, last_ms.get(link, 0))
    alive = [row for row in watches if row.name not in silent]
    return LastWatch(
        tuple(links),
        frozenset(names) - frozenset(find_unwatched_links(names, watches, now_ms)),
        last_ms,
        any(row.kind == WATCHES_WATCHERS for row in alive),
        bool(alive),
    )


def read_last_watch_rows(links: Iterable[Link], store: Store) -> Sequence[LinkStateRow]:
    return store.link_states.of_each([link.name for link in links], LAST_WATCH_KIND)
