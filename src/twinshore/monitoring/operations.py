"""`twinshore delay`: lag of topics, open alarms and watchers; a check for scripts, Nagios and Zabbix; and forgetting a
monitor that was killed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import IntEnum
from typing import Any

from twinshore.config.errors import ConfigError, RefusedError
from twinshore.config.grouping import grouped
from twinshore.config.model import Link, Plan
from twinshore.config.schema import did_you_mean
from twinshore.config.sentences import count_phrase
from twinshore.config.settings import Settings
from twinshore.kafka.clock import wall_ms
from twinshore.monitoring.core import alerts
from twinshore.monitoring.core.alerts import (
    describe_marks,
    describe_paused,
    describe_stale_figures,
    describe_unread_links,
    get_freshness_limit_s,
)
from twinshore.monitoring.notify import send_test
from twinshore.monitoring.sampler import find_stopped_partitions
from twinshore.monitoring.watchers import (
    CauseByAlarm,
    LastWatch,
    build_last_watch,
    find_alarm_causes,
    find_silent_watches,
    find_unwatched_links,
    get_watch_alarm_key,
    read_last_watch_rows,
    read_open_alarms,
)
from twinshore.replication.core.link_config import effective_link
from twinshore.state.core.values import AlarmRow, AuditRow, PartitionDelayRow, WatcherRow
from twinshore.state.store import Store


class CheckStatus(IntEnum):
    """Exit codes of such checks."""

    OK = 0
    WARNING = 1
    CRITICAL = 2


@dataclass(frozen=True, slots=True)
class CheckResult:
    """CRITICAL: no monitor watches, so the open alarms are the last known. WARNING: alarms are open, or figures are
    old.
    """

    level: CheckStatus
    sentences: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.level.name}: {'; '.join(self.sentences)}"


@dataclass(frozen=True, slots=True)
class CheckFigure:
    """One number, or `why` there is no current one: 0 would report that all is well."""

    value: float = 0.0
    why: str = ""


def check_item(item: str) -> None:
    """Raises ConfigError for an unknown item."""
    if item not in ("", *alerts.ZABBIX_ITEMS):
        raise ConfigError("monitoring.unknown-item", item=item, known=", ".join(alerts.ZABBIX_ITEMS))


def read_zabbix_discovery(links: Sequence[str], settings: Settings, store: Store) -> str:
    return alerts.build_zabbix_discovery(
        [row for one in settings.chosen(links) for row in store.delay.partitions(one.name)]
    )


def read_figure(
    item: str, links: Sequence[str], topic: str, settings: Settings, store: Store, *, clock: Callable[[], int]
) -> CheckFigure:
    """Reads `item` of these links, or of one topic. `clock` as in `read_delays`."""
    check_item(item)
    seen, unseen = _look(links, settings, store, clock)
    fresh_s = get_freshness_limit_s(settings.delay.section)
    why = alerts.explain_missing_figure(item, seen.rows, topic, seen.now_ms, fresh_s, unseen)
    if why:
        return CheckFigure(why=why)
    # One cause counts once; for a topic all its alarms count.
    heads = find_alarm_causes(seen.standing)
    counted = seen.standing if topic else [row for row, head in heads.items() if row == head]
    return CheckFigure(alerts.compute_figure(item, seen.rows, counted, topic))


def check_links(
    links: Sequence[str], topic: str, settings: Settings, store: Store, *, clock: Callable[[], int]
) -> CheckResult:
    """Checks these links, or one of their topics together with alarms of whole links."""
    seen, told = _look(links, settings, store, clock)
    rows, standing, now_ms = seen.rows, seen.standing, seen.now_ms
    heads, known = find_alarm_causes(standing), {row.topic for row in rows}
    if topic:
        rows = tuple(row for row in rows if row.topic == topic)
        standing = tuple(row for row in standing if row.topic in ("", topic))
    if topic and not rows:
        told.append(f"topic {topic} is not monitored{did_you_mean(topic, sorted(known))}")
    stands = _sentences(standing, heads, rows, seen.watch, now_ms)
    if told:
        # Open alarms are the last known, and worth as much as their age.
        return CheckResult(CheckStatus.CRITICAL, (*told, *stands))
    warnings = (
        *stands,
        *describe_stale_figures(rows, now_ms, get_freshness_limit_s(settings.delay.section)),
        *describe_unread_links([] if topic else [link.name for link in settings.chosen(links)], rows),
    )
    if warnings:
        return CheckResult(CheckStatus.WARNING, warnings)
    return CheckResult(CheckStatus.OK, (_in_figures(rows), *describe_paused(rows, topic)))


def _look(links: Sequence[str], settings: Settings, store: Store, clock: Callable[[], int]) -> tuple[Delays, list[str]]:
    """The figures and alarms, also those of silent monitors; and sentences about what no process watches now."""
    silent = [row for row in store.delay.alarms(open_only=True, limit=None) if row.kind == "monitor silent"]
    chosen = settings.chosen(links)
    seen = _read(chosen, settings, store, clock)
    unseen = _unseen([link.name for link in chosen], seen.watchers, seen.now_ms)
    return replace(seen, standing=(*seen.standing, *silent)), unseen


def _read(chosen: Sequence[Link], settings: Settings, store: Store, clock: Callable[[], int]) -> Delays:
    rows = tuple(row for link in chosen for row in store.delay.partitions(link.name))
    standing, watchers = tuple(read_open_alarms(chosen, store)), tuple(store.delay.watchers())
    told, now_ms = read_last_watch_rows(settings.links, store), clock()
    return Delays(rows, standing, watchers, now_ms, build_last_watch(settings.links, watchers, told, now_ms))


def _unseen(links: Sequence[str], watchers: Sequence[WatcherRow], now_ms: int) -> list[str]:
    """Sentences about what no process watches now."""
    told = [
        f"{name} has said nothing for {age_s:.0f} s" for name, age_s in find_silent_watches(watchers, now_ms).items()
    ]
    without = find_unwatched_links(links, watchers, now_ms)
    if without:
        told.append(f"no monitor watches {', '.join(without)}: start `twinshore delay watch`")
    return told


def _in_figures(rows: Sequence[PartitionDelayRow]) -> str:
    worst_ms = max((row.recovery_point_ms for row in rows if not row.group), default=0)
    return f"{count_phrase(len(rows), 'partition')} watched, recovery point {worst_ms / 1000:.1f} s"


def _sentences(
    standing: Sequence[AlarmRow], heads: CauseByAlarm, rows: Sequence[PartitionDelayRow], watch: LastWatch, now_ms: int
) -> list[str]:
    """One sentence for each cause with its consequences: the alarm's duration or last judgement, and the topic's last
    reading.
    """
    read_ms = _read_ms(rows)
    said = {}
    for row in standing:
        at_ms = read_ms.get((row.link, row.topic))
        read = f", read {(now_ms - at_ms) / 1000:.0f} s ago" if at_ms is not None else ""
        said[row] = f"{row.sentence} [{watch.describe_duration(row, now_ms)}{read}]"
    found = []
    for row in [row for row in standing if heads[row] == row or heads[row] not in said]:
        parts = [said[other] for other in standing if heads[other] == row and other != row]
        listed = f" (with it {len(parts)}: {'; '.join(parts)})" if parts else ""
        found.append(f"{said[row]}{listed}")
    return found


def _read_ms(rows: Sequence[PartitionDelayRow]) -> Mapping[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for row in rows:
        if not row.group:
            key = (row.link, row.topic)
            found[key] = min(row.at_ms, found.get(key, row.at_ms))
    return found


AUDIT_KIND = "monitor"


@dataclass(frozen=True, slots=True)
class ForgetWatcher:
    """Names the watcher, as `twinshore delay` shows it."""

    name: str


@dataclass(frozen=True, slots=True)
class ForgetWatcherStep:
    """`missed`: the alarms that the step clears."""

    name: str
    missed: tuple[AlarmRow, ...]

    def sentence(self, *, done: bool) -> str:
        word = "is not missed" if done else "would not be missed"
        return f"{self.name} {word} any more; if it is alive after all, it says so again at once"


def plan(watcher: ForgetWatcher, store: Store) -> Plan[ForgetWatcherStep]:
    """Plans to forget the watcher. Raises ConfigError if no watch or alarm has that name."""
    names, key = [row.name for row in store.delay.watchers()], get_watch_alarm_key(watcher.name)
    missed = tuple(row for row in store.delay.alarms(key.link, open_only=True) if row.kind == key.kind)
    if watcher.name not in names and not missed:
        raise ConfigError("monitoring.unknown-monitor", monitor=watcher.name, known="; ".join(names) or "none")
    return Plan((ForgetWatcherStep(watcher.name, missed),))


def act(plan: Plan[ForgetWatcherStep], store: Store, *, by: str) -> Iterator[ForgetWatcherStep]:
    """Forgets the watcher. One that is still alive registers again."""
    for step in plan.steps:
        now_ms = wall_ms()
        was = "missed" if step.missed else "expected"
        audit_row = AuditRow(now_ms, "", AUDIT_KIND, step.name, was, "forgotten", f"by {by}", by)
        store.delay.remove_watcher(step.name, [audit_row])
        for row in step.missed:
            store.delay.clear_alarm(row.id, now_ms)
        yield step


@dataclass(frozen=True, slots=True)
class AlarmMark:
    """What a person says of an open alarm. `hours`: silence from now on; 0 ends a silence; None: an acknowledgement."""

    number: int
    reason: str = ""
    hours: float | None = None

    def sentence(self, *, done: bool) -> str:
        would = "" if done else "would be "
        if self.hours is None:
            return f"alarm {self.number} {would}acknowledged: it is not sent again"
        what = f"silenced for {self.hours:g} h" if self.hours else "silenced no more"
        return f"alarm {self.number} {would}{what}"


def plan_mark(mark: AlarmMark, store: Store) -> Plan[AlarmMark]:
    """Raises ConfigError if no such alarm is open."""
    if mark.number not in {row.id for row in store.delay.alarms(open_only=True, limit=None)}:
        raise ConfigError("monitoring.alarm-not-open", number=mark.number)
    return Plan((mark,))


def act_mark(plan: Plan[AlarmMark], store: Store, *, by: str) -> Iterator[AlarmMark]:
    for mark in plan.steps:
        now_ms = wall_ms()
        marks: dict[str, Any] = {"acknowledged_by": by[:255], "acknowledged_ms": now_ms, "reason": mark.reason}
        if mark.hours is not None:
            marks = {"silenced_by": by[:255], "silent_until_ms": now_ms + int(mark.hours * 3_600_000)}
        told = AuditRow(now_ms, "", "alarm", str(mark.number), "", mark.sentence(done=True), mark.reason or "done", by)
        if not store.delay.mark_alarm(mark.number, marks, told):
            raise ConfigError("monitoring.alarm-not-open", number=mark.number)
        yield mark


@dataclass(frozen=True, slots=True)
class WebhookTest:
    """One event that is no alarm, of this operator."""

    by: str

    def sentence(self, *, done: bool) -> str:
        return "the webhook took the test" if done else "the webhook would get one test event"


def plan_test(settings: Settings, by: str) -> Plan[WebhookTest]:
    """Raises ConfigError without a webhook."""
    if not settings.delay.hook_url:
        raise ConfigError("monitoring.no-webhook")
    return Plan((WebhookTest(by),))


def act_test(plan: Plan[WebhookTest], settings: Settings) -> Iterator[WebhookTest]:
    """Sends it, as the monitor sends alarms. Raises RefusedError if the webhook does not take it."""
    for step in plan.steps:
        if why := send_test(settings.delay, step.by, wall_ms()):
            raise RefusedError("monitoring.webhook-failed", cause=why)
        yield step


@dataclass(frozen=True, slots=True)
class TopicDelay:
    """Lag of a topic's partitions, or of a group's committed offsets in them, together.

    `about`: a lower bound, because another tool writes the copy. `seen_s`: age of the oldest figure. `stopped`: why the
    topic is not replicated completely. `unplaced`: the group's next offset on the target is unknown or not comparable.
    """

    link: str
    topic: str
    group: str
    about: bool
    partitions: int
    source_end: int
    target_end: int
    lag_records: int
    recovery_point_ms: int
    seen_s: float
    stopped: str = ""
    unplaced: bool = False

    @property
    def unknown(self) -> bool:
        """Whether lag and recovery point mean nothing: a copy that never was a twin and is not replicated may lack
        everything.
        """
        return self.unplaced or (self.about and bool(self.stopped))


@dataclass(frozen=True, slots=True)
class Delays:
    """The last figures of the monitors; `now_ms` is the time of the request."""

    rows: tuple[PartitionDelayRow, ...]
    standing: tuple[AlarmRow, ...]
    watchers: tuple[WatcherRow, ...]
    now_ms: int
    watch: LastWatch
    stopped: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def topics(self) -> list[TopicDelay]:
        found = grouped(((row.link, row.topic, row.group), row) for row in self.rows)
        return [self._topic(key, ours) for key, ours in sorted(found.items())]

    def sentences(self) -> list[str]:
        """Topics that are not replicated, alarms with their consequences, and the watchers."""
        heads = find_alarm_causes(self.standing)
        shown = {(row.link, row.topic) for row in self.rows}
        found = [f"not replicated: {why}" for at, why in sorted(self.stopped.items()) if at in shown]
        for alarm in [row for row in self.standing if heads[row] == row]:
            parts = [row for row in self.standing if heads[row] == alarm and row != alarm]
            that = "" if self.watch.watches(alarm) else "that "
            marks = f" [{said}]" if (said := describe_marks(alarm, self.now_ms)) else ""
            found.append(f"alarm {that}{self.watch.describe_duration(alarm, self.now_ms)}: {alarm.sentence}{marks}")
            found += [
                f"  with it, {self.watch.describe_duration(part, self.now_ms)}: {part.sentence}" for part in parts
            ]
        found += [f"{row.name}: {row.sentence}, {self._age_s(row.heartbeat_ms):.0f} s ago" for row in self.watchers]
        return [*found, *([] if self.watchers else ["no monitor watches: start `twinshore delay watch`"])]

    def as_values(self) -> dict[str, Any]:
        heads = find_alarm_causes(self.standing)
        parts = {row: heads[row].id if heads[row] != row else None for row in self.standing}
        return {
            "partitions": [_values(row) | {"age_s": round(self._age_s(row.at_ms), 3)} for row in self.rows],
            "alarms": [asdict(row) | {"part_of": parts[row]} | self._watched(row) for row in self.standing],
            "watchers": [asdict(row) | {"age_s": round(self._age_s(row.heartbeat_ms), 3)} for row in self.watchers],
            "not_replicated": [{"link": at[0], "topic": at[1], "why": why} for at, why in sorted(self.stopped.items())],
        }

    def _watched(self, row: AlarmRow) -> dict[str, Any]:
        return {"watched": self.watch.watches(row), "last_watched_ms": self.watch.get_last_judged_ms(row)}

    def _age_s(self, at_ms: int) -> float:
        return (self.now_ms - at_ms) / 1000

    def _topic(self, key: tuple[str, str, str], ours: Sequence[PartitionDelayRow]) -> TopicDelay:
        return TopicDelay(
            *key,
            any(row.offset_relation == "foreign" for row in ours),
            len(ours),
            sum(row.source_end for row in ours),
            sum(row.target_end for row in ours),
            sum(row.lag_records for row in ours),
            max(row.recovery_point_ms for row in ours),
            max(self._age_s(row.at_ms) for row in ours),
            self.stopped.get(key[:2], ""),
            bool(key[2]) and any(row.target_end < 0 or row.offset_relation == "mapped" for row in ours),
        )


def read_delays(
    links: Sequence[str], topic: str, settings: Settings, store: Store, *, clock: Callable[[], int]
) -> Delays:
    """Reads the figures of these links, or all; of one topic if named. Raises ConfigError if no such topic is
    monitored.

    `clock` returns milliseconds and is read after the store, so that no row is from the future.
    """
    chosen = settings.chosen(links)
    found = _read(chosen, settings, store, clock)
    rows = tuple(row for row in found.rows if topic in ("", row.topic))
    if topic and not rows:
        near = did_you_mean(topic, sorted({row.topic for row in found.rows}))
        raise ConfigError("monitoring.unknown-topic", topic=topic, near=near)
    stopped = {(link.name, name): why for link in chosen for name, why in _stopped(link, store) if topic in ("", name)}
    return replace(found, rows=rows, stopped=stopped)


def read_alarm_history(links: Sequence[str], settings: Settings, store: Store, *, limit: int) -> list[AlarmRow]:
    """Reads open and cleared alarms, newest first. Without link names also those that belong to no link."""
    names = [one.name for one in settings.chosen(links)] if links else []
    return list(store.delay.alarms(*names, limit=limit))


def describe_alarm_durations(
    rows: Sequence[AlarmRow], settings: Settings, store: Store, *, clock: Callable[[], int]
) -> list[str]:
    """How long each alarm was open; or that it is open, or when last judged. `clock` as in `read_delays`."""
    told, watchers = read_last_watch_rows(settings.links, store), store.delay.watchers()
    now_ms = clock()
    watch = build_last_watch(settings.links, watchers, told, now_ms)
    durations = []
    for row in rows:
        if row.cleared_ms is not None:
            durations.append(f"for {(row.cleared_ms - row.raised_ms) / 1000:.0f} s")
        else:
            said = "stands" if watch.watches(row) else watch.describe_duration(row, now_ms)
            durations.append("; ".join(filter(None, (said, describe_marks(row, now_ms)))))
    return durations


def _stopped(link: Link, store: Store) -> Iterable[tuple[str, str]]:
    """Topics with a stopped partition, by the incident log, as the monitor finds them."""
    held = effective_link(link, store.controls.of(link.name)).link
    said, _ = find_stopped_partitions(held, store.incidents.rows(link.name, open_only=True))
    return said.items()


def _values(row: PartitionDelayRow) -> dict[str, Any]:
    return {name: value for name, value in asdict(row).items() if name != "unreplicated_ends"}
