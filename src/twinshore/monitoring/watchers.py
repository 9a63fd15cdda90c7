"""Who watches the watchers: whether every monitor still samples and every mirror still speaks, seen by another process.

Nobody's clock is trusted but one's own: a watch lives as long as its beat changes, a mirror as long as its word does;
how long ago that was is counted here. `check_watchers` is pure.

The alarms that stand, which of them follow from others, and which somebody judges now; when the others were judged
last, as what stood then may be over.

A monitor that ends in good order leaves the moment in the store; of one that was killed its last beat is there.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
from twinshore.state.core.values import AlarmRow, LinkStateRow, LinkStatus, WatcherRow
from twinshore.state.log import LINKS_SUBJECT
from twinshore.state.store import Store, open_store

MISSED_BEATS_MAX = 4
MISSED_MIRROR_STATUSES_MAX = 10
SILENCE_MIN_S = 5.0
# What an attempt on a store that is away may take, and the pause before the next.
STORE_CATCH_UP_S = 15.0
WATCHES_WATCHERS, WATCHES_LINKS = "watchers", "links"
MONITOR_OF, NAME_MAX = "monitor of ", 250
# Without a host: one that starts again elsewhere takes the place of the one that died, and is not missed for ever.
WATCHER = "watcher of watchers"


SILENCE_CONSEQUENCES = (
    "nobody knows any more how far behind its links are. Start `twinshore delay watch`",
    "nobody would miss the monitor now. Start `twinshore delay watch-watchers`",
)


def get_mirror_silence_limit_s(receipts_s: float) -> float:
    """A mirror that has said nothing for longer is missed, which wakes somebody: so later than its word is old, which
    it is behind `status_ttl_s`."""
    return max(SILENCE_MIN_S, MISSED_MIRROR_STATUSES_MAX * receipts_s)


def get_watch_alarm_key(watch: str) -> AlarmKey:
    """The alarm for one that is silent."""
    return AlarmKey(watch[:130], AlarmKind.MONITOR)


@dataclass(slots=True)
class SilenceTimers:
    """Since when each of them has said nothing new, on this process's own monotonic clock."""

    since_s: dict[str, tuple[object, float]] = field(default_factory=dict)
    from_s: float = 0.0

    def restart_timers(self, now_s: float) -> None:
        """The store does not answer: whoever could say nothing either gets the time to say it afterwards."""
        self.since_s.clear()
        self.from_s = now_s + STORE_CATCH_UP_S

    def of(self, name: str, word: object, now_s: float) -> float:
        """For how long `word` has been the last one; 0 when it is new."""
        known = self.since_s.get(name)
        if known is None or known[0] != word:
            self.since_s[name] = (word, now_s)
            return 0.0
        return now_s - known[1]

    def keep(self, names: set[str]) -> None:
        """Forgets all others."""
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
    """A sign for each monitor and each mirror. `own` is whoever asks; `word_s`: how long a mirror may be silent;
    `standing`: the asker's alarms, of which those of nobody who is still expected to speak are no longer wrong."""
    signs: list[AlertCondition] = []
    if now_s < silences.from_s:
        return signs
    for row in watches:
        if row.name == own:
            continue
        silent_s = silences.of(f"watch {row.name}", (row.owner, row.beat), now_s)
        # A monitor that beats but reads nothing tells that itself, as blindness.
        wrong = silent_s > _patience_s(row)
        means = SILENCE_CONSEQUENCES[row.kind == WATCHES_WATCHERS]
        said = f"{row.name} ({row.owner}) has said nothing for {silent_s:.0f} s: {means} again."
        signs.append(AlertCondition(get_watch_alarm_key(row.name), wrong, said if wrong else ""))
    for word in words:
        silent_s = silences.of(f"mirror {word.link}", (word.owner, word.updated_ms), now_s)
        wrong = silent_s > word_s
        said = (
            f"{word.link}: its mirror ({word.owner}) has said nothing for {silent_s:.0f} s; its last word was:"
            f" {word.sentence}. Start `twinshore mirror run` again."
        )
        signs.append(AlertCondition(AlarmKey(word.link, AlarmKind.MIRROR), wrong, said if wrong else ""))
    silences.keep({f"watch {row.name}" for row in watches} | {f"mirror {word.link}" for word in words})
    spoken = {sign.key for sign in signs}
    over = [key for key in standing if key.kind in (AlarmKind.MONITOR, AlarmKind.MIRROR) and key not in spoken]
    return signs + [AlertCondition(key, False) for key in over]


def build_monitor_name(links: Sequence[str]) -> str:
    """What a monitor of these links is called."""
    return f"{MONITOR_OF}{', '.join(links)}"[:NAME_MAX]


def find_replaced_watches(links: Collection[str], watches: Sequence[WatcherRow]) -> list[str]:
    """The watches that a monitor of these links takes the place of: those of nothing that it does not watch. One of
    them that is alive after all says so again within a second."""
    ours = [row for row in watches if row.kind == WATCHES_LINKS and row.name != build_monitor_name(list(links))]
    return [row.name for row in ours if row.links and set(row.links) <= set(links)]


def find_unwatched_links(links: Sequence[str], watches: Sequence[WatcherRow], now_ms: int) -> list[str]:
    """Those of the links that no living monitor watches, for a look that has no memory."""
    silent = find_silent_watches(watches, now_ms)
    living = [row for row in watches if row.kind == WATCHES_LINKS and row.name not in silent]
    covered = {link for row in living for link in row.links}
    return [link for link in links if link not in covered]


def find_watched_links(silences: SilenceTimers, watches: Sequence[WatcherRow], now_s: float) -> frozenset[str]:
    """The links of monitors that are not silent, by one's own clock."""
    rows = [row for row in watches if row.kind == WATCHES_LINKS]
    living = [row for row in rows if silences.of(f"watch {row.name}", (row.owner, row.beat), now_s) <= _patience_s(row)]
    return frozenset(link for row in living for link in row.links)


def _patience_s(row: WatcherRow) -> float:
    return max(SILENCE_MIN_S, MISSED_BEATS_MAX * row.every_ms / 1000)


def check_store_silence(silent_s: float, why: str = "") -> AlertCondition:
    """Whether the store has not answered for so long that nobody watches."""
    key = AlarmKey(WATCHER, AlarmKind.BLIND)
    said = (
        f"the store has not answered for {silent_s:.0f} s, so nobody knows which monitors and mirrors are alive: {why}."
    )
    return AlertCondition(key, True, said) if silent_s > SILENCE_MIN_S else AlertCondition(key, False)


class Watcher:
    """`twinshore delay watch-watchers`: looks into the store every second until `stop`, and nowhere else."""

    def __init__(self, settings: Settings, log: Callable[[str], None], *, every_s: float = 1.0) -> None:
        self._settings, self._log, self._every_s = settings, log, every_s
        self._stop = threading.Event()
        self._owner = f"{socket.gethostname()} process {os.getpid()}"
        self.name = WATCHER

    def stop(self) -> None:
        self._stop.set()

    def run(self) -> None:
        """Until `stop`, SIGINT, SIGTERM or SIGHUP."""
        with ExitStack() as stack:
            store = stack.enter_context(open_store(self._settings.store.url, self._settings.store.password))
            alarms = open_alarm_manager(self._settings.delay, store, stack, self._log)
            # Every monitor's, also of those that have ended since: only this process can see that they are not missed.
            alarms.load(None, (AlarmKind.MONITOR,))
            alarms.load({WATCHER}, (AlarmKind.BLIND,))
            process.on_shutdown_signal(self.stop)
            self._log("watches every monitor and every mirror of this store")
            self._watch(store, alarms)
            store.delay.end_watch(self.name)
        self._log("stopped in good order")

    def _watch(self, store: Store, alarms: AlarmManager) -> None:
        silences, beat, heard_s, trouble = SilenceTimers(), 0, time.monotonic(), RepeatFilter(self._log)
        watched: frozenset[str] = frozenset()
        links, revision = frozenset[str](), -1
        word_s = get_mirror_silence_limit_s(self._settings.mirror.receipts_s)
        while not self._stop.wait(self._every_s):
            beat += 1
            now_ms = wall_ms()
            try:
                own = WatcherRow(
                    self.name, WATCHES_WATCHERS, self._owner, beat, int(self._every_s * 1000), now_ms, now_ms, "watches"
                )
                store.delay.beat_watch(own)
                watches = store.delay.watches()
                if (now := store.revisions.of(LINKS_SUBJECT)) != revision:
                    # Links come and go while this runs; one that was removed is nobody's.
                    there = frozenset(link.name for link in load_links(self._settings, store).links)
                    alarms.load(there - links, (AlarmKind.MIRROR,))
                    links, revision = there, now
                words = [one for one in store.links.statuses() if one.link in links]
            except StoreError as error:
                trouble.say(f"the store cannot be read, so nobody is watched: {error.message}")
                # It can be told all the same; the history has it once the store is back.
                silences.restart_timers(time.monotonic())
                alarms.judge([check_store_silence(time.monotonic() - heard_s, error.message)], now_ms)
                continue
            trouble.well()
            heard_s = time.monotonic()
            alarms.save()
            now_s = time.monotonic()
            before, watched = watched, find_watched_links(silences, watches, now_s) & links
            # A monitor that lives misses the mirrors of its links itself, with what follows from their silence.
            alarms.leave(AlarmKind.MIRROR, watched)
            if before - watched:
                alarms.load(before - watched, (AlarmKind.MIRROR,))
            words = [word for word in words if word.link not in watched]
            standing = tuple(alarms.book)
            signs = check_watchers(silences, watches, words, now_s, own=self.name, word_s=word_s, standing=standing)
            alarms.judge([*signs, check_store_silence(0.0)], now_ms)


def find_silent_watches(watches: Sequence[WatcherRow], now_ms: int) -> Mapping[str, float]:
    """Those that are silent by the wall clock, for a look that has no memory: name and seconds."""
    found = {row.name: (now_ms - row.beaten_ms) / 1000 for row in watches}
    bounds = {row.name: _patience_s(row) for row in watches}
    return {name: age_s for name, age_s in found.items() if age_s > bounds[name]}


CauseByAlarm = dict[AlarmRow, AlarmRow]


def read_open_alarms(links: Sequence[Link], store: Store) -> list[AlarmRow]:
    """The open alarms of these links, of their clusters and of the store."""
    clusters = sorted({cluster for one in links for cluster in (one.source, one.target)})
    names = [*(one.name for one in links), *clusters, STORE_ALARM_KEY.link]
    return [row for name in names for row in store.delay.alarms(name, open_only=True)]


def find_alarm_causes(standing: Sequence[AlarmRow]) -> CauseByAlarm:
    """For each alarm the one that it follows from; itself where it follows from none of them."""
    rows = {AlarmKey(row.link, AlarmKind(row.kind), row.topic, row.group): row for row in standing}
    return {row: rows[find_root_cause(key, rows)] for key, row in rows.items()}


# As `Remembered` of the store: when a monitor of the link ended in good order.
LAST_WATCH_KIND = "last watch"
LAST_WATCH_PHRASE = "stood when a monitor last watched"
# These may also be seen by whoever watches the watchers.
WATCHER_ALARM_KINDS = frozenset({AlarmKind.MIRROR, AlarmKind.MONITOR})


def build_last_watch_rows(links: Iterable[str], now_ms: int) -> list[LinkStateRow]:
    """For the store: their monitor ends now."""
    return [LinkStateRow(link, LAST_WATCH_KIND, "", "", LAST_WATCH_KIND, now_ms) for link in links]


@dataclass(frozen=True, slots=True)
class LastWatch:
    """`living`: links that a monitor watches now. `last_ms`: when one last watched the others, as far as anybody knows.
    `watchers`: whether somebody watches the watchers; `anybody`: whether anybody watches at all."""

    links: tuple[Link, ...]
    living: frozenset[str]
    last_ms: Mapping[str, int]
    watchers: bool
    anybody: bool

    def watches(self, row: AlarmRow) -> bool:
        """Whether somebody judges this alarm now."""
        if row.kind in WATCHER_ALARM_KINDS and self.watchers:
            return True
        ours = self._links_of(row)
        return any(link in self.living for link in ours) if ours else self.anybody

    def get_last_judged_ms(self, row: AlarmRow) -> int | None:
        """When it was judged last; None where that is now, or nobody knows."""
        if self.watches(row):
            return None
        ours = self._links_of(row) or tuple(self.last_ms)
        return max((self.last_ms[link] for link in ours if link in self.last_ms), default=None)

    def describe_duration(self, row: AlarmRow, now_ms: int) -> str:
        """As in "for 9 s"; of what nobody judges any more, when that was seen last."""
        if self.watches(row):
            return f"for {(now_ms - row.raised_ms) / 1000:.0f} s"
        last_ms = self.get_last_judged_ms(row)
        return (
            LAST_WATCH_PHRASE
            if last_ms is None
            else f"{LAST_WATCH_PHRASE}, {format_age(max(0.0, (now_ms - last_ms) / 1000))} ago"
        )

    def _links_of(self, row: AlarmRow) -> tuple[str, ...]:
        """The link itself, or those of a cluster; none of what is no link's."""
        return tuple(one.name for one in self.links if row.link in (one.name, one.source, one.target))


def build_last_watch(
    links: Sequence[Link], watches: Sequence[WatcherRow], told: Iterable[LinkStateRow], now_ms: int
) -> LastWatch:
    """Of all these links, by the entries of those who watch, and by what ended monitors left."""
    names, silent = [one.name for one in links], find_silent_watches(watches, now_ms)
    last_ms = {row.link: row.since_ms for row in told}
    for row in watches:
        for link in row.links if row.name in silent else ():
            last_ms[link] = max(row.beaten_ms, last_ms.get(link, 0))
    alive = [row for row in watches if row.name not in silent]
    return LastWatch(
        tuple(links),
        frozenset(names) - frozenset(find_unwatched_links(names, watches, now_ms)),
        last_ms,
        any(row.kind == WATCHES_WATCHERS for row in alive),
        bool(alive),
    )


def read_last_watch_rows(links: Iterable[Link], store: Store) -> Sequence[LinkStateRow]:
    """What ended monitors of these links left in the store."""
    return store.link_states.of_each([one.name for one in links], LAST_WATCH_KIND)
