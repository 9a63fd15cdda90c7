"""Alarm rules: which conditions hold, when an alarm rises, repeats and clears, and which alarm causes which.

Also here: the age limit of current figures, and figures and discovery for Zabbix.

A dead cluster makes a link blind, with late heartbeats and topics. That is one message: the root cause is reported and
lists its consequences. A consequence that outlives the cause is reported alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from twinshore.config.grouping import grouped
from twinshore.config.sections.delay import DelaySection
from twinshore.config.sentences import format_age, join_names
from twinshore.monitoring.core.partition_lag import (
    DelayVerdict,
    MonitoredPartition,
    OffsetRelation,
    PartitionLag,
    find_worst_lag,
)
from twinshore.state.core.values import AlarmRow, PartitionDelayRow, ProofRow, TwinRow

# The store gets figures once a period; a busy machine may be late.
FRESH_PERIODS_MAX = 3
FRESHNESS_MIN_S = 10.0


def get_freshness_limit_s(section: DelaySection) -> float:
    """Seconds after which figures no longer count as current. Independent of `blind_s`."""
    return max(FRESHNESS_MIN_S, FRESH_PERIODS_MAX * section.period_s, FRESH_PERIODS_MAX * section.sample_s)


def describe_stale_figures(rows: Iterable[PartitionDelayRow], now_ms: int, bound_s: float) -> list[str]:
    """Returns a sentence for each link with figures older than `bound_s`. Groups do not count: they are read less
    often.
    """
    found = []
    for link, ours in _by_link(rows).items():
        old = [row for row in ours if now_ms - row.at_ms > bound_s * 1000]
        if old:
            age_s = (now_ms - min(row.at_ms for row in old)) / 1000
            which = f"{len(old)} of {len(ours)} partitions" if len(old) < len(ours) else f"all {len(ours)} partitions"
            lag, behind_ms = sum(one.lag_records for one in old), max(one.recovery_point_ms for one in old)
            found.append(
                f"{link}: the figures of {which} are old, the oldest {age_s:.0f} s (last known: lag {lag:,}, recovery"
                f" point {behind_ms / 1000:.1f} s): what was replicated since is unknown"
            )
    return found


def describe_unread_links(links: Iterable[str], rows: Iterable[PartitionDelayRow]) -> list[str]:
    seen = _by_link(rows)
    return [
        f"{link}: no partition is watched: nothing was read yet, or no topic of the link is on both sides"
        for link in links
        if link not in seen
    ]


def describe_paused(rows: Iterable[PartitionDelayRow], topic: str = "") -> list[str]:
    """Describes what operators paused, by link: all partitions or a number. `topic`: the one topic of all `rows`."""
    whole = f"{topic} of " if topic else ""
    found = []
    for link, ours in _by_link(rows).items():
        count = sum(row.state == "paused" for row in ours)
        if count:
            found.append(
                f"{whole}{link} is paused" if count == len(ours) else f"{count} partitions of {link} are paused"
            )
    return found


def _by_link(rows: Iterable[PartitionDelayRow]) -> dict[str, list[PartitionDelayRow]]:
    return grouped((row.link, row) for row in rows if not row.group)


def build_zabbix_discovery(rows: Iterable[PartitionDelayRow]) -> str:
    """Zabbix low-level discovery of links and topics. An agent does not pass on ">", so keys say `east..west`."""
    found = sorted({(row.link, row.topic) for row in rows})
    named = [(link, link.replace("->", ".."), topic) for link, topic in found]
    return json.dumps({"data": [{"{#LINK}": link, "{#KEY}": key, "{#TOPIC}": topic} for link, key, topic in named]})


def compute_figure(item: str, rows: Sequence[PartitionDelayRow], alarms: Sequence[AlarmRow], topic: str) -> float | int:
    """Computes `lag`, `recovery-point` (seconds) or `alarms` of these partitions and alarms, or of `topic` alone."""
    ours = [row for row in rows if not row.group and topic in ("", row.topic)]
    if item == "lag":
        return sum(row.lag_records for row in ours)
    if item == "recovery-point":
        return max((row.recovery_point_ms for row in ours), default=0) / 1000
    # An alarm of a whole link, cluster or process counts for each topic.
    return sum(not topic or alarm.topic in ("", topic) for alarm in alarms)


def explain_missing_figure(
    item: str, rows: Sequence[PartitionDelayRow], topic: str, now_ms: int, bound_s: float, unseen: Sequence[str] = ()
) -> str:
    """Why no current figure exists; empty if one does. `unseen`: sentences about what no monitor watches now."""
    ours = [row for row in rows if not row.group and topic in ("", row.topic)]
    if item == "alarms" and (unseen or ours or not topic):
        return "; ".join(unseen)
    if not ours:
        return f"no monitor has read {topic or 'anything'} yet"
    oldest = min(ours, key=lambda row: row.at_ms)
    age_s = (now_ms - oldest.at_ms) / 1000
    if age_s <= bound_s:
        return ""
    last = f"lag {oldest.lag_records}, recovery point {oldest.recovery_point_ms / 1000:.1f} s"
    return f"{oldest.topic}-{oldest.partition} of {oldest.link} was read last {age_s:.0f} s ago ({last})"


ZABBIX_ITEMS = ("lag", "recovery-point", "alarms")


class AlarmKind(StrEnum):
    END_OFFSET = "end offset delay"  # The published algorithm's first alarm,
    GROUP = "group delay"  # and its second.
    RECOVERY_POINT = "recovery point"
    HEARTBEAT = "heartbeat"
    BLIND = "blind"
    STOPPED = "stopped"
    CLUSTER = "cluster away"
    STORE = "store away"
    MONITOR = "monitor silent"
    MIRROR = "mirror silent"
    UNPROVEN = "unproven"


class AlarmKey(NamedTuple):
    """The subject of an alarm, one for all partitions of a topic. `link` may also name a cluster, or the silent
    process.
    """

    link: str
    kind: AlarmKind
    topic: str = ""
    group: str = ""


LATENESS_KINDS = frozenset({AlarmKind.HEARTBEAT, AlarmKind.RECOVERY_POINT, AlarmKind.END_OFFSET, AlarmKind.GROUP})
# The store belongs to no link: one key for all links.
STORE_ALARM_KEY = AlarmKey("the store", AlarmKind.STORE)
# Causes, before consequences.
_ORDER = (AlarmKind.STORE, AlarmKind.CLUSTER, AlarmKind.MIRROR, AlarmKind.BLIND, AlarmKind.STOPPED)


def get_cluster_alarm_key(cluster: str) -> AlarmKey:
    """The alarm key of an unreachable cluster, shared by all its links."""
    return AlarmKey(cluster, AlarmKind.CLUSTER)


def list_possible_causes(key: AlarmKey) -> Iterator[AlarmKey]:
    """Yields every alarm that could cause this one, the most distant first."""
    kind = key.kind
    if kind in LATENESS_KINDS or kind is AlarmKind.MIRROR:
        yield STORE_ALARM_KEY
    if kind in LATENESS_KINDS or kind in (AlarmKind.BLIND, AlarmKind.STOPPED):
        source, arrow, target = key.link.partition("->")
        if arrow:
            yield get_cluster_alarm_key(source)
            yield get_cluster_alarm_key(target)
    if kind in LATENESS_KINDS:
        yield AlarmKey(key.link, AlarmKind.MIRROR)
    if kind in LATENESS_KINDS or (kind is AlarmKind.BLIND and (key.topic or key.group)):
        yield AlarmKey(key.link, AlarmKind.BLIND)
    if kind in LATENESS_KINDS and key.topic:
        yield AlarmKey(key.link, AlarmKind.BLIND, key.topic)
        yield AlarmKey(key.link, AlarmKind.STOPPED, key.topic)


def find_root_cause(key: AlarmKey, there: Container[AlarmKey], *, beyond: bool = False) -> AlarmKey:
    """Returns the root cause among `there`, or `key` itself.

    `beyond`: other than stopped partitions are affected too, so a stopped topic is no explanation.
    """
    while (
        cause := next(
            (one for one in list_possible_causes(key) if one in there and explains_consequence(one, beyond)), None
        )
    ) is not None:
        key = cause
    return key


def explains_consequence(cause: AlarmKey, beyond: bool) -> bool:
    """Whether `cause` explains an alarm; see `find_root_cause`."""
    return not (beyond and cause.kind is AlarmKind.STOPPED)


def find_consequences(key: AlarmKey, among: Iterable[AlarmKey]) -> list[AlarmKey]:
    """Alarms that may follow from this one, directly or indirectly."""
    return sorted(one for one in among if one != key and key in _ancestors(one))


def _ancestors(key: AlarmKey) -> set[AlarmKey]:
    found: set[AlarmKey] = set()
    for cause in list_possible_causes(key):
        found |= {cause} | _ancestors(cause)
    return found


def rank_alarm(key: AlarmKey) -> int:
    """Sort key: causes before consequences."""
    if key.kind is AlarmKind.BLIND and (key.topic or key.group):
        return len(_ORDER)
    return _ORDER.index(key.kind) if key.kind in _ORDER else len(_ORDER) + 1


# A consequence that outlives its cause is reported alone, after this time to end with the cause.
CONSEQUENCE_SETTLE_MS = 30_000
CONSEQUENCES_NAMED_MAX = 5
# Late consequences are gathered for so long after the last message of their cause.
CONSEQUENCES_GATHER_MS = 60_000


class AlertCondition(NamedTuple):
    """Whether something is wrong now, and the sentence to report.

    If nothing is wrong, `sentence` says why the alarm is over, unless the subject recovered. `beyond`: more than the
    stopped partitions are affected. `held`: intended, as in a pause; an open alarm stays open with this sentence, none
    rises or repeats.
    """

    key: AlarmKey
    wrong: bool
    sentence: str = ""
    beyond: bool = False
    held: bool = False


class AlarmTiming(NamedTuple):
    """`rise_s`: how long the condition must hold without a break. `clear_s`: how long to be gone. `repeat_s`: interval
    of messages, 0 for none. `grouping_s`: a consequence that rises so soon after the first message counts as reported;
    a later one may be another loss.
    """

    rise_s: float = 0.0
    clear_s: float = 0.0
    repeat_s: float = 600.0
    grouping_s: float = 120.0


class ActiveAlarm(NamedTuple):
    """A condition that holds, or held until just now.

    `told_ms` is None if the alarm rose in a quiet time or as a consequence. `part_ms`: when the alarm last was a
    consequence of a raised one. `beyond`: as in `AlertCondition`.
    """

    key: AlarmKey
    wrong_ms: int
    sentence: str
    raised_ms: int | None = None
    told_ms: int | None = None
    times_told: int = 0
    right_ms: int | None = None
    part_ms: int | None = None
    beyond: bool = False


def shift_alarm_clock(one: ActiveAlarm, by_ms: int) -> ActiveAlarm:
    """Shifts every time of the alarm by `by_ms`, after the clock was set."""
    moments = {name: value for name, value in one._asdict().items() if name.endswith("_ms") and value is not None}
    return one._replace(**{name: at_ms + by_ms for name, at_ms in moments.items()})


class AlarmTransition(StrEnum):
    RAISED = "raised"
    REPEATED = "repeated"
    CLEARED = "cleared"
    TEST = "test"


class AlarmEvent(NamedTuple):
    """A transition of an alarm.

    `tell`: operators get a message; otherwise the event only goes into the history. `parts`: sentences of the
    consequences; the first `also` of them rose since the last message.
    """

    happening: AlarmTransition
    key: AlarmKey
    at_ms: int
    raised_ms: int
    sentence: str
    tell: bool = True
    parts: tuple[str, ...] = ()
    also: int = 0


AlarmBook = Mapping[AlarmKey, ActiveAlarm]


def update_alarms(
    book: AlarmBook,
    conditions: Iterable[AlertCondition],
    now_ms: int,
    timings: Mapping[AlarmKind, AlarmTiming],
    *,
    quiet: bool = False,
) -> tuple[dict[AlarmKey, ActiveAlarm], list[AlarmEvent]]:
    """Returns the new alarm book and the events. Alarms without a condition in `conditions` stay."""
    standing = dict(book)
    events: list[AlarmEvent] = []
    joined: set[AlarmKey] = set()
    for condition in sorted(conditions, key=lambda condition: rank_alarm(condition.key)):
        timing = timings.get(condition.key.kind, AlarmTiming())
        before = standing.get(condition.key)
        if condition.wrong:
            cause = _cause(condition, standing)
            one, happened = _wrong(before, condition, now_ms, timing, quiet=quiet, cause=cause)
            standing[condition.key] = one
            if cause is not None and _is_news(one, cause, timings) and not quiet:
                joined.add(cause.key)
        elif before is None:
            continue
        elif condition.held and before.raised_ms is not None:
            standing[condition.key], happened = before._replace(right_ms=None, sentence=condition.sentence), None
        else:
            stays, happened = _right(before, now_ms, timing, condition.sentence, quiet=quiet)
            if stays is None:
                del standing[condition.key]
            else:
                standing[condition.key] = stays
        events += [happened] if happened else []
    for key in sorted(joined):
        one = standing[key]
        if one.right_ms is None and one.told_ms is not None and now_ms - one.told_ms >= CONSEQUENCES_GATHER_MS:
            standing[key], happened = _again(one, now_ms)
            events.append(happened)
    return standing, [_with_parts(event, standing, book.get(event.key), timings) for event in events]


def _cause(condition: AlertCondition, standing: AlarmBook) -> ActiveAlarm | None:
    """The root cause. A cause that has not risen yet counts too: consequences wait for it."""
    found = find_root_cause(condition.key, standing, beyond=condition.beyond)
    return None if found == condition.key else standing[found]


def _is_news(one: ActiveAlarm, cause: ActiveAlarm, timings: Mapping[AlarmKind, AlarmTiming]) -> bool:
    """Whether the alarm rose too late to count as part of its cause's message."""
    if one.raised_ms is None or one.told_ms is not None or cause.told_ms is None:
        return False
    first = cause.times_told <= 1
    return one.raised_ms > cause.told_ms + (
        timings.get(cause.key.kind, AlarmTiming()).grouping_s * 1000 if first else 0
    )


def _with_parts(
    event: AlarmEvent, standing: AlarmBook, before: ActiveAlarm | None, timings: Mapping[AlarmKind, AlarmTiming]
) -> AlarmEvent:
    """Adds the consequences, unreported ones first so that they are named."""
    if not event.tell:
        return event
    among = [
        key
        for key, one in standing.items()
        if one.raised_ms is not None and explains_consequence(event.key, one.beyond)
    ]
    found = [standing[key] for key in find_consequences(event.key, among)]
    news = [one for one in found if before and _is_news(one, before, timings)]
    ordered = [*news, *(one for one in found if one not in news)] if news else found
    also = len(news) if event.happening is AlarmTransition.REPEATED else 0
    return event._replace(parts=tuple(one.sentence for one in ordered), also=also)


def _wrong(
    before: ActiveAlarm | None,
    condition: AlertCondition,
    now_ms: int,
    timing: AlarmTiming,
    *,
    quiet: bool,
    cause: ActiveAlarm | None,
) -> tuple[ActiveAlarm, AlarmEvent | None]:
    one = before or ActiveAlarm(condition.key, now_ms, condition.sentence)
    one = one._replace(right_ms=None, sentence=condition.sentence, beyond=condition.beyond)
    hushed = quiet or cause is not None
    if cause is not None and cause.raised_ms is not None:
        one = one._replace(part_ms=now_ms)
    if one.raised_ms is None:
        if now_ms - one.wrong_ms < timing.rise_s * 1000:
            return one, None
        tell = not hushed and not _settles(one, now_ms)
        one = one._replace(raised_ms=now_ms, told_ms=now_ms if tell else None, times_told=int(tell))
        return one, AlarmEvent(AlarmTransition.RAISED, one.key, now_ms, now_ms, one.sentence, tell=tell)
    if hushed:
        return one, None
    first = one.told_ms is None
    if first and _settles(one, now_ms):
        return one, None
    again = timing.repeat_s > 0 and not first and now_ms - (one.told_ms or 0) >= timing.repeat_s * 1000
    if not first and not again:
        return one, None
    return _again(one, now_ms)


def _settles(one: ActiveAlarm, now_ms: int) -> bool:
    """Whether the alarm's cause ended only just now. A cause never explained an alarm with `beyond`."""
    return one.part_ms is not None and now_ms - one.part_ms < CONSEQUENCE_SETTLE_MS and not one.beyond


def _again(one: ActiveAlarm, now_ms: int) -> tuple[ActiveAlarm, AlarmEvent]:
    one = one._replace(told_ms=now_ms, times_told=one.times_told + 1)
    return one, AlarmEvent(AlarmTransition.REPEATED, one.key, now_ms, one.raised_ms or now_ms, one.sentence)


def _right(
    before: ActiveAlarm, now_ms: int, timing: AlarmTiming, why: str, *, quiet: bool
) -> tuple[ActiveAlarm | None, AlarmEvent | None]:
    if before.raised_ms is None:
        return None, None
    right_ms = now_ms if before.right_ms is None else before.right_ms
    if now_ms - right_ms < timing.clear_s * 1000:
        return before._replace(right_ms=right_ms), None
    # Without a message that something is wrong, no message that it is over.
    tell = before.told_ms is not None and not quiet
    lasted_s = max(0, right_ms - before.raised_ms) / 1000
    sentence = (
        f"{describe_alarm_key(before.key)}: {f'over: {why}' if why else 'well again'}; it lasted {lasted_s:.0f} s"
    )
    return None, AlarmEvent(AlarmTransition.CLEARED, before.key, now_ms, before.raised_ms, sentence, tell=tell)


def describe_alarm_key(key: AlarmKey) -> str:
    topic = f" {key.topic}" if key.topic else ""
    # Without a topic, `group` names a part of the link: its windows, its groups.
    group = (f", group {key.group}" if topic else f" {key.group}") if key.group else ""
    return f"{key.link}{topic}{group}: {key.kind}"


def is_hushed(event: AlarmEvent, row: AlarmRow, now_ms: int) -> bool:
    """Whether people want no message: none of a silenced alarm, and of an acknowledged one no mere repeat."""
    repeats = event.happening is AlarmTransition.REPEATED and not event.also
    return now_ms < row.silent_until_ms or (repeats and bool(row.acknowledged_by))


def describe_marks(row: AlarmRow, now_ms: int) -> str:
    """Returns what people said of the alarm; empty if nothing."""
    told = []
    if row.acknowledged_by:
        told.append(f"acknowledged by {row.acknowledged_by}{f': {row.reason}' if row.reason else ''}")
    if now_ms < row.silent_until_ms:
        left = format_age((row.silent_until_ms - now_ms) / 1000)
        told.append(f"silenced by {row.silenced_by} for {left} more")
    return "; ".join(told)


def describe_event(event: AlarmEvent) -> str:
    """The event's sentence with its consequences; for a cleared cause, those that still hold."""
    if not event.parts:
        return event.sentence
    intro = "Still so" if event.happening is AlarmTransition.CLEARED else "With it"
    news, rest = event.parts[: event.also], event.parts[event.also :]
    return " ".join([event.sentence, *_listed("Also", news), *_listed(intro, rest)])


def _listed(intro: str, sentences: tuple[str, ...]) -> list[str]:
    more = f" And {len(sentences) - CONSEQUENCES_NAMED_MAX} more." if len(sentences) > CONSEQUENCES_NAMED_MAX else ""
    return [f"{intro} ({len(sentences)}): {' '.join(sentences[:CONSEQUENCES_NAMED_MAX])}{more}"] if sentences else []


NAMED_MAX = 5
PAUSED_NOTE = "It is paused since then, and may still be behind. No further message is sent until it is resumed."


class WindowVerdict(NamedTuple):
    """The verdict of one tick on one partition. `why`: the reason of the last window restart."""

    place: MonitoredPartition
    tick: int
    verdict: DelayVerdict
    why: str = ""


def check_windows(
    judged: Iterable[WindowVerdict],
    period_s: float,
    resting: Mapping[tuple[str, str], frozenset[int]] = MappingProxyType({}),
) -> list[AlertCondition]:
    """Returns a condition for each judged topic and group. All verdicts must be of the same tick.

    `resting`: stopped partitions by link and topic; -1 stands for all.
    """
    topics: dict[AlarmKey, list[tuple[WindowVerdict, bool]]] = {}
    for one in judged:
        if one.verdict.judged:
            place, verdict = one.place, one.verdict
            kind = AlarmKind.GROUP if place.group else AlarmKind.END_OFFSET
            wrong = verdict.consume_delayed if place.group else verdict.latest_delayed
            topics.setdefault(AlarmKey(place.link, kind, place.topic, place.group), []).append((one, wrong))
    none = frozenset[int]()
    return [
        _window_condition(key, seen, period_s, resting.get((key.link, key.topic), none)) for key, seen in topics.items()
    ]


def _window_condition(
    key: AlarmKey, seen: Sequence[tuple[WindowVerdict, bool]], period_s: float, resting: frozenset[int]
) -> AlertCondition:
    wrong = [one for one, delayed in seen if delayed]
    if not wrong:
        return AlertCondition(key, False)
    source, _, target = key.link.partition("->")
    group = bool(key.group)
    moved = sum(one.verdict.a_consume_sub if group else one.verdict.a_max_sub for one in wrong)
    came = sum(one.verdict.b_consume_sub if group else one.verdict.b_max_sub for one in wrong)
    who = f"group {key.group} on {key.topic}" if group else key.topic
    what = (
        f"{who} moved by {moved:,} on {source} within {period_s:g} s, and by {came:,} on {target} in {3 * period_s:g} s"
    )
    remedy = "`twinshore delay` shows both offsets" if group else "`twinshore status` shows whether the mirror runs"
    numbers = [one.place.partition for one in wrong]
    return AlertCondition(
        key,
        True,
        f"{key.link}: {what} ({describe_partitions(numbers)}). {remedy}.",
        is_beyond_stopped(numbers, resting),
    )


def is_beyond_stopped(wrong: Iterable[int], resting: frozenset[int]) -> bool:
    """Whether an affected partition is not stopped while others of the topic are."""
    return bool(resting) and -1 not in resting and not resting.issuperset(wrong)


def check_recovery_points(
    link: str,
    views: Iterable[PartitionLag],
    bound_s: Callable[[str], float],
    resting: Mapping[str, frozenset[int]] = MappingProxyType({}),
) -> list[AlertCondition]:
    """Returns a condition for each topic with comparable offsets. A paused topic is behind on purpose.

    `resting`: stopped partitions by topic; -1 stands for all.
    """
    ours = (lag for lag in views if lag.axis is not OffsetRelation.FOREIGN and not lag.place.group)
    topics = grouped((lag.place.topic, lag) for lag in ours)
    none = frozenset[int]()
    return [
        _recovery_condition(link, topic, lags, bound_s(topic), resting.get(topic, none))
        for topic, lags in topics.items()
    ]


def _recovery_condition(
    link: str, topic: str, lags: Sequence[PartitionLag], bound_s: float, resting: frozenset[int]
) -> AlertCondition:
    key = AlarmKey(link, AlarmKind.RECOVERY_POINT, topic)
    late = [lag for lag in lags if lag.recovery_point_ms > bound_s * 1000]
    running = [lag for lag in late if lag.state != "paused"]
    late = running or late
    most = find_worst_lag(late)
    if most is None:
        return AlertCondition(key, False)
    source = link.partition("->")[0]
    records = sum(lag.lag_records for lag in late)
    sentence = (
        f"{link}: {records:,} records of {topic}"
        f" ({describe_partitions([lag.place.partition for lag in late])}) are on {source}"
        f" alone, the oldest for {most.recovery_point_ms / 1000:.1f} s (bound {bound_s:g} s). If {source} were lost"
        " now, they would be."
    )
    if not running:
        return AlertCondition(key, False, f"{sentence} {PAUSED_NOTE}", held=True)
    return AlertCondition(key, True, sentence, is_beyond_stopped([lag.place.partition for lag in late], resting))


class LostRecords(NamedTuple):
    """What a deleted topic's twin lacked at the last reading. `why`: that the source lacks the topic."""

    why: str
    lag_records: int
    oldest_ms: int


def check_lost_records(link: str, lost: Mapping[str, LostRecords]) -> list[AlertCondition]:
    """Returns a condition for each topic deleted before full replication. The alarm clears when the topic is back."""
    conditions = []
    for topic, one in sorted(lost.items()):
        sentence = (
            f"{link}: {one.why} before all of it was replicated: {one.lag_records:,} records of {topic} were on"
            f" {link.partition('->')[0]} alone, the oldest for {one.oldest_ms / 1000:.1f} s, and are lost if nothing"
            f" else holds them. `twinshore status` says what the twin holds."
        )
        conditions.append(AlertCondition(AlarmKey(link, AlarmKind.RECOVERY_POINT, topic), True, sentence))
    return conditions


def check_stopped_topics(link: str, topics: Iterable[str], stopped: Mapping[str, str]) -> list[AlertCondition]:
    """Returns a condition for each topic: whether the incident log has a stopped partition."""
    conditions = []
    for topic in sorted({*topics, *stopped} - {""}):
        said = stopped.get(topic, "")
        sentence = f"{link}: {topic} is stopped, or some of it: {said} `twinshore status` shows what rests."
        conditions.append(
            AlertCondition(AlarmKey(link, AlarmKind.STOPPED, topic), bool(said), sentence if said else "")
        )
    return conditions


def check_away_clusters(away: Mapping[str, Mapping[str, str]]) -> list[AlertCondition]:
    """Returns a condition for each cluster: whether any link cannot reach the cluster.

    `away`: by link and cluster, why there is no answer; empty if there is.
    """
    found: dict[str, str] = {}
    for link in away.values():
        for cluster, why in link.items():
            found[cluster] = found.get(cluster) or why
    conditions = []
    for cluster, why in sorted(found.items()):
        sentence = f"{cluster} does not answer: {why}. The lag of its links is unknown." if why else ""
        conditions.append(AlertCondition(get_cluster_alarm_key(cluster), bool(why), sentence))
    return conditions


def check_heartbeats(
    link: str, silent_ms: int, bound_s: float, *, alive: bool, paused: bool = False
) -> list[AlertCondition]:
    """Whether replicated heartbeats have stopped. `alive`: one has arrived. A paused link expects none."""
    key = AlarmKey(link, AlarmKind.HEARTBEAT)
    if not bound_s:
        return [AlertCondition(key, False)]
    if paused:
        return [
            AlertCondition(
                key, False, f"{link}: no heartbeat arrived when the link was paused. {PAUSED_NOTE}", held=True
            )
        ]
    if silent_ms <= bound_s * 1000:
        return [AlertCondition(key, False)] if alive else []
    source, _, target = link.partition("->")
    sentence = (
        f"{link}: no heartbeat of {source} has reached {target} for {silent_ms / 1000:.0f} s. Either the link stands"
        " still or no mirror runs: `twinshore topology` shows which links run."
    )
    return [AlertCondition(key, True, sentence)]


def check_blind_spots(
    link: str,
    seen_ms: Mapping[str, int],
    failures: Mapping[str, str],
    now_ms: int,
    bound_s: float,
    *,
    ever: bool,
    lasts: Mapping[str, str] = MappingProxyType({}),
) -> list[AlertCondition]:
    """Returns conditions for what could not be read; none for topics of an unreadable link.

    `seen_ms`: when each topic was last read, with the link as "". `ever`: whether the link was ever read. `lasts`: the
    last known figures of a topic, as a sentence.
    """
    conditions = []
    whole = "" in failures or now_ms - seen_ms.get("", now_ms) > bound_s * 1000
    for topic, at_ms in seen_ms.items():
        unseen_s = (now_ms - at_ms) / 1000
        wrong = unseen_s > bound_s and (whole or bool(topic))
        if (topic and (whole or not ever)) or not (wrong or ever) or (topic in failures and not wrong):
            continue
        of = f"{topic} of {link}" if topic else link
        why = failures.get(topic) or failures.get("") or "nothing was answered"
        sentence = f"{link}: the lag of {of} is unknown: it could not be read for {unseen_s:.0f} s: {why}."
        if lasts.get(topic):
            sentence += f" {lasts[topic].capitalize()}."
        conditions.append(AlertCondition(AlarmKey(link, AlarmKind.BLIND, topic), wrong, sentence if wrong else ""))
    return conditions


def check_link_parts(
    link: str, parts: Mapping[str, tuple[int, str] | None], now_ms: int, bound_s: float
) -> list[AlertCondition]:
    """Returns conditions for the link's groups and heartbeats. `parts`: since when one is unreadable, and why; None if
    readable.
    """
    conditions = []
    for part, failing in parts.items():
        key = AlarmKey(link, AlarmKind.BLIND, group=part.removeprefix("/"))
        since_ms, why = failing or (now_ms, "")
        unread_s = (now_ms - since_ms) / 1000
        if failing is None:
            conditions.append(AlertCondition(key, False))
        elif unread_s > bound_s:
            said = f"{link}: not all {key.group} could be read for {unread_s:.0f} s: {why}. Topics are watched on."
            conditions.append(AlertCondition(key, True, said))
    return conditions


def check_unjudged_windows(
    link: str,
    unjudged_ms: int,
    bound_s: float,
    why: str,
    left: Mapping[MonitoredPartition, tuple[int, str]] = MappingProxyType({}),
    *,
    well: bool,
) -> list[AlertCondition]:
    """Whether the published windows gave no verdict for too long.

    `well`: they have judged, or have nothing to judge. `left`: partitions without a verdict while others got one, with
    the duration in ms and the reason.
    """
    key = AlarmKey(link, AlarmKind.BLIND, group="windows")
    if unjudged_ms <= bound_s * 1000 and left:
        return [AlertCondition(key, True, _left_in_words(link, left))]
    if unjudged_ms <= bound_s * 1000:
        return [AlertCondition(key, False)] if well else []
    reason = f", last because {why}" if why else ""
    sentence = (
        f"{link}: the published windows have judged nothing for {unjudged_ms / 1000:.0f} s{reason}. Recovery"
        " points go on; the monitor's log says what its Spark query does."
    )
    return [AlertCondition(key, True, sentence)]


def _left_in_words(link: str, left: Mapping[MonitoredPartition, tuple[int, str]]) -> str:
    place, (longest_ms, why) = max(left.items(), key=lambda one: one[1][0])
    more = f" and {len(left) - 1:,} more" if len(left) > 1 else ""
    again = f"; theirs start again and again, last because {why}" if why else ""
    return (
        f"{link}: the published windows have judged nothing of {str(place).removeprefix(link).strip()}{more} for"
        f" {longest_ms / 1000:.0f} s{again}. Recovery points go on."
    )


class UnprovenPartition(NamedTuple):
    """A partition and since when its proof is due; 0 if unknown."""

    since_ms: int
    topic: str
    partition: int


def check_unproven_partitions(
    link: str, rows: Sequence[ProofRow], twins: Iterable[TwinRow], now_ms: int, asked_h: float
) -> list[AlertCondition]:
    """Whether any partition waits longer for a full proof than `asked_h` hours; 0 disables the check. A twin without a
    proof waits since its creation.
    """
    if not asked_h:
        return []
    key = AlarmKey(link, AlarmKind.UNPROVEN)
    proven = {(row.topic, row.partition) for row in rows}
    bare = [twin for twin in twins if (twin.topic, twin.partition) not in proven]
    waiting = [UnprovenPartition(_waits_since_ms(row), row.topic, row.partition) for row in rows]
    waiting += [UnprovenPartition(twin.created_ms, twin.topic, twin.partition) for twin in bare]
    advice = "`twinshore prove` says how long a pass takes at reread_mb_s, and whether anything is proven at all."
    if not waiting:
        return [
            AlertCondition(
                key, True, f"{link}: nothing is replicated and nothing proven (asked for: {asked_h:g} h). {advice}"
            )
        ]
    old = sorted(one for one in waiting if now_ms - one.since_ms > asked_h * 3_600_000)
    if not old:
        return [AlertCondition(key, False)]
    first = old[0]
    since = f"{(now_ms - first.since_ms) / 3_600_000:,.1f} h ago" if first.since_ms else "unknown since when"
    said = f"was last proven whole {since}" if (first.topic, first.partition) in proven else "was never proven"
    never = sum((one.topic, one.partition) not in proven for one in old)
    sentence = (
        f"{link}: {first.topic}-{first.partition} {said} (asked for: every {asked_h:g} h), and so were {len(old)} of"
        f" {len(waiting)} partitions{f', {never} of them never proven' if never else ''}. {advice}"
    )
    return [AlertCondition(key, True, sentence)]


def _waits_since_ms(row: ProofRow) -> int:
    """An incomplete proof is as old as its last progress, however young its parts are."""
    if row.to_offset <= row.from_offset:
        return row.proven_ms
    return min(row.read_ms, row.proven_ms) if row.source_end > row.to_offset else row.read_ms


def describe_partitions(numbers: Sequence[int]) -> str:
    """As in "partitions 1, 4 and 7 more"."""
    numbers = sorted(set(numbers))
    return f"partition{'s' if len(numbers) > 1 else ''} {join_names([str(one) for one in numbers], NAMED_MAX)}"
