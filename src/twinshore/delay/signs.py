"""From what was seen to what is wrong, with the sentence that an operator needs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from twinshore.delay.alarms import AlarmKey, AlarmKind, Sign, cluster_key
from twinshore.delay.arrival import worst
from twinshore.delay.readings import Axis, View, WatchedPlace
from twinshore.delay.windows import Verdict
from twinshore.fleet.sentences import listed
from twinshore.store.proof_values import ProofRow
from twinshore.store.values import TwinRow

NAMED_MAX = 5
PAUSED = "It has been paused since, which does not mean that it is well. Nobody is told again until it is resumed."


class Judged(NamedTuple):
    """What a tick said of a place; `why` is why its window began anew, the last time it did."""

    place: WatchedPlace
    tick: int
    verdict: Verdict
    why: str = ""


def window_signs(
    judged: Iterable[Judged],
    period_s: float,
    resting: Mapping[tuple[str, str], frozenset[int]] = MappingProxyType({}),
) -> list[Sign]:
    """One sign for each topic and each group of it that was judged. The ticks are one and the same. `resting`: which
    partitions are stopped, by link and topic; -1 for all."""
    topics: dict[AlarmKey, list[tuple[Judged, bool]]] = {}
    for one in judged:
        if one.verdict.judged:
            place, verdict = one.place, one.verdict
            kind = AlarmKind.GROUP if place.group else AlarmKind.END_OFFSET
            wrong = verdict.consume_delayed if place.group else verdict.latest_delayed
            topics.setdefault(AlarmKey(place.link, kind, place.topic, place.group), []).append((one, wrong))
    none = frozenset[int]()
    return [_window_sign(key, seen, period_s, resting.get((key.link, key.topic), none)) for key, seen in topics.items()]


def _window_sign(key: AlarmKey, seen: Sequence[tuple[Judged, bool]], period_s: float, resting: frozenset[int]) -> Sign:
    wrong = [one for one, delayed in seen if delayed]
    if not wrong:
        return Sign(key, False)
    source, _, target = key.link.partition("->")
    group = bool(key.group)
    moved = sum(one.verdict.a_consume_sub if group else one.verdict.a_max_sub for one in wrong)
    came = sum(one.verdict.b_consume_sub if group else one.verdict.b_max_sub for one in wrong)
    who = f"group {key.group} on {key.topic}" if group else key.topic
    what = (
        f"{who} moved by {moved:,} on {source} within {period_s:g} s, and by {came:,} on {target} in {3 * period_s:g} s"
    )
    remedy = "`twinshore delay` shows both places" if group else "`twinshore status` says whether the mirror carries"
    numbers = [one.place.partition for one in wrong]
    return Sign(key, True, f"{key.link}: {what} ({partitions(numbers)}). {remedy}.", beyond(numbers, resting))


def beyond(wrong: Iterable[int], resting: frozenset[int]) -> bool:
    """Whether a partition is wrong that does not rest, though others of its topic do."""
    return bool(resting) and -1 not in resting and not resting.issuperset(wrong)


def recovery_signs(
    link: str,
    views: Iterable[View],
    bound_s: Callable[[str], float],
    resting: Mapping[str, frozenset[int]] = MappingProxyType({}),
) -> list[Sign]:
    """One sign for each topic whose target lies on the source's axis. A paused topic is behind on purpose. `resting`:
    which partitions of a topic are stopped; -1 for all."""
    topics: dict[str, list[View]] = {}
    for view in views:
        if view.axis is not Axis.FOREIGN and not view.place.group:
            topics.setdefault(view.place.topic, []).append(view)
    none = frozenset[int]()
    return [
        _recovery_sign(link, topic, seen, bound_s(topic), resting.get(topic, none)) for topic, seen in topics.items()
    ]


def _recovery_sign(link: str, topic: str, seen: Sequence[View], bound_s: float, resting: frozenset[int]) -> Sign:
    key = AlarmKey(link, AlarmKind.RECOVERY_POINT, topic)
    late = [view for view in seen if view.recovery_point_ms > bound_s * 1000]
    running = [view for view in late if view.state != "paused"]
    late = running or late
    most = worst(late)
    if most is None:
        return Sign(key, False)
    source = link.partition("->")[0]
    lag = sum(view.lag_records for view in late)
    sentence = (
        f"{link}: {lag:,} records of {topic} ({partitions([view.place.partition for view in late])}) are on {source}"
        f" alone, the oldest for {most.recovery_point_ms / 1000:.1f} s (bound {bound_s:g} s). If {source} were lost"
        " now, they would be."
    )
    if not running:
        return Sign(key, False, f"{sentence} {PAUSED}", held=True)
    return Sign(key, True, sentence, beyond([view.place.partition for view in late], resting))


class Lost(NamedTuple):
    """What a topic's twin lacked when the topic was read last; `why` says that the source has it no more."""

    why: str
    lag_records: int
    oldest_ms: int


def lost_signs(link: str, lost: Mapping[str, Lost]) -> list[Sign]:
    """One sign for each topic that was deleted before all of it had crossed. It is well again once the topic is."""
    signs = []
    for topic, one in sorted(lost.items()):
        sentence = (
            f"{link}: {one.why} before all of it had crossed: {one.lag_records:,} records of {topic} were on"
            f" {link.partition('->')[0]} alone, the oldest for {one.oldest_ms / 1000:.1f} s, and are lost if nothing"
            f" else holds them. `twinshore status` says what the twin holds."
        )
        signs.append(Sign(AlarmKey(link, AlarmKind.RECOVERY_POINT, topic), True, sentence))
    return signs


def stopped_signs(link: str, topics: Iterable[str], stopped: Mapping[str, str]) -> list[Sign]:
    """One sign for each topic: whether the mirror has stopped a partition of it, by its ledger's open rows."""
    signs = []
    for topic in sorted({*topics, *stopped} - {""}):
        said = stopped.get(topic, "")
        sentence = f"{link}: {topic} is stopped, or some of it: {said} `twinshore status` shows what rests."
        signs.append(Sign(AlarmKey(link, AlarmKind.STOPPED, topic), bool(said), sentence if said else ""))
    return signs


def away_signs(away: Mapping[str, Mapping[str, str]]) -> list[Sign]:
    """One sign for each cluster: whether any link finds it away; `away`: of each link, by the names of its clusters,
    why it does not answer, empty where it does."""
    found: dict[str, str] = {}
    for link in away.values():
        for cluster, why in link.items():
            found[cluster] = found.get(cluster) or why
    return [
        Sign(
            cluster_key(cluster),
            bool(why),
            f"{cluster} does not answer: {why}. Nobody knows how far behind its links are." if why else "",
        )
        for cluster, why in sorted(found.items())
    ]


def heartbeat_signs(link: str, silent_ms: int, bound_s: float, *, alive: bool, paused: bool = False) -> list[Sign]:
    """Whether heartbeats that used to cross have stopped; `alive`: one came. Of a paused link none is expected."""
    key = AlarmKey(link, AlarmKind.HEARTBEAT)
    if not bound_s:
        return [Sign(key, False)]
    if paused:
        return [Sign(key, False, f"{link}: no heartbeat crossed when the link was paused. {PAUSED}", held=True)]
    if silent_ms <= bound_s * 1000:
        return [Sign(key, False)] if alive else []
    source, _, target = link.partition("->")
    sentence = (
        f"{link}: no heartbeat of {source} has reached {target} for {silent_ms / 1000:.0f} s. Either nothing crosses,"
        " or no mirror runs: `twinshore topology` shows what does."
    )
    return [Sign(key, True, sentence)]


def blind_signs(
    link: str,
    seen_ms: Mapping[str, int],
    failures: Mapping[str, str],
    now_ms: int,
    bound_s: float,
    *,
    ever: bool,
    lasts: Mapping[str, str] = MappingProxyType({}),
) -> list[Sign]:
    """Signs for what could not be read; `seen_ms`: when each topic was read last, the link itself as "". `ever`:
    whether it was read at all; `lasts`: what was known of a topic last, in words. Of the topics of a link that cannot
    be read nothing is said."""
    signs = []
    whole = "" in failures or now_ms - seen_ms.get("", now_ms) > bound_s * 1000
    for topic, at_ms in seen_ms.items():
        unseen_s = (now_ms - at_ms) / 1000
        wrong = unseen_s > bound_s and (whole or bool(topic))
        if (topic and (whole or not ever)) or not (wrong or ever) or (topic in failures and not wrong):
            continue
        of = f"{topic} of {link}" if topic else link
        why = failures.get(topic) or failures.get("") or "nothing was answered"
        sentence = f"{link}: nobody knows how far behind {of} is: it could not be read for {unseen_s:.0f} s: {why}."
        if lasts.get(topic):
            sentence += f" {lasts[topic].capitalize()}."
        signs.append(Sign(AlarmKey(link, AlarmKind.BLIND, topic), wrong, sentence if wrong else ""))
    return signs


def part_signs(link: str, parts: Mapping[str, tuple[int, str] | None], now_ms: int, bound_s: float) -> list[Sign]:
    """Signs for what is read beside topics: since when it could not be, and why; None where it can."""
    signs = []
    for part, failing in parts.items():
        key = AlarmKey(link, AlarmKind.BLIND, group=part.removeprefix("/"))
        since_ms, why = failing or (now_ms, "")
        unread_s = (now_ms - since_ms) / 1000
        if failing is None:
            signs.append(Sign(key, False))
        elif unread_s > bound_s:
            said = f"{link}: not all {key.group} could be read for {unread_s:.0f} s: {why}. Topics are watched on."
            signs.append(Sign(key, True, said))
    return signs


def unjudged_signs(
    link: str,
    unjudged_ms: int,
    bound_s: float,
    why: str,
    left: Mapping[WatchedPlace, tuple[int, str]] = MappingProxyType({}),
    *,
    well: bool,
) -> list[Sign]:
    """Whether the published windows have said nothing for too long; `well`: they have judged, or have nothing to.
    `left` are places of which they judged nothing while they judged others: for how long, and why."""
    key = AlarmKey(link, AlarmKind.BLIND, group="windows")
    if unjudged_ms <= bound_s * 1000 and left:
        return [Sign(key, True, _left_in_words(link, left))]
    if unjudged_ms <= bound_s * 1000:
        return [Sign(key, False)] if well else []
    reason = f", last because {why}" if why else ""
    sentence = (
        f"{link}: the published windows have judged nothing for {unjudged_ms / 1000:.0f} s{reason}. Recovery"
        " points go on; the monitor's log says what its Spark query does."
    )
    return [Sign(key, True, sentence)]


def _left_in_words(link: str, left: Mapping[WatchedPlace, tuple[int, str]]) -> str:
    place, (longest_ms, why) = max(left.items(), key=lambda one: one[1][0])
    more = f" and {len(left) - 1:,} more" if len(left) > 1 else ""
    again = f"; theirs begin anew again and again, last because {why}" if why else ""
    return (
        f"{link}: the published windows have judged nothing of {str(place).removeprefix(link).strip()}{more} for"
        f" {longest_ms / 1000:.0f} s{again}. Recovery points go on."
    )


class Unproven(NamedTuple):
    """A partition, and since when it waits to be proven whole; 0: nobody knows since when."""

    since_ms: int
    topic: str
    partition: int


def unproven_signs(
    link: str, rows: Sequence[ProofRow], twins: Iterable[TwinRow], now_ms: int, asked_h: float
) -> list[Sign]:
    """Whether anything of the link waits longer to be proven whole than was asked for; `asked_h` 0: nothing was asked.
    `twins` are those that it carries: one without a proof waits since it was made."""
    if not asked_h:
        return []
    key = AlarmKey(link, AlarmKind.UNPROVEN)
    proven = {(row.topic, row.partition) for row in rows}
    bare = [one for one in twins if (one.topic, one.partition) not in proven]
    waiting = [Unproven(_waits_since_ms(row), row.topic, row.partition) for row in rows]
    waiting += [Unproven(one.created_ms, one.topic, one.partition) for one in bare]
    advice = "`twinshore prove` says how long a pass takes at reread_mb_s, and whether anything is proven at all."
    if not waiting:
        return [Sign(key, True, f"{link}: nothing is carried and nothing proven (asked for: {asked_h:g} h). {advice}")]
    old = sorted(one for one in waiting if now_ms - one.since_ms > asked_h * 3_600_000)
    if not old:
        return [Sign(key, False)]
    first = old[0]
    since = f"{(now_ms - first.since_ms) / 3_600_000:,.1f} h ago" if first.since_ms else "nobody knows when"
    said = f"was last proven whole {since}" if (first.topic, first.partition) in proven else "was never proven"
    never = sum((one.topic, one.partition) not in proven for one in old)
    sentence = (
        f"{link}: {first.topic}-{first.partition} {said} (asked for: every {asked_h:g} h), and so were {len(old)} of"
        f" {len(waiting)} partitions{f', {never} of them never proven' if never else ''}. {advice}"
    )
    return [Sign(key, True, sentence)]


def _waits_since_ms(row: ProofRow) -> int:
    """A proof that does not reach the source's end is as old as when it last went on, however young its parts."""
    if row.to_offset <= row.from_offset:
        return row.proven_ms
    return min(row.read_ms, row.proven_ms) if row.source_end > row.to_offset else row.read_ms


def partitions(numbers: Sequence[int]) -> str:
    """As in "partitions 1, 4 and 7 more"."""
    numbers = sorted(set(numbers))
    return f"partition{'s' if len(numbers) > 1 else ''} {listed([str(one) for one in numbers], NAMED_MAX)}"
