"""Rules about consumer groups: what they will not get, and what they do not take. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from twinshore.advisor import commands
from twinshore.advisor.rule import Found, Limit, Rule, Weight
from twinshore.advisor.seen import Group, GroupPlace, Seen
from twinshore.fleet.sentences import counted, listed

NAMED = 10
HOUR_MS = 3_600_000
Limits = Mapping[str, float]
RETENTION = "retention.ms"
# Kafka Connect commits each minute, unless it is told otherwise.
SELDOM_S = 70


def _of(group: Group, topic: str) -> str:
    return f"group {group.name} on {topic}"


def _lost(seen: Seen, _: Limits) -> Iterator[Found]:
    for group in seen.groups:
        for topic, places in group.by_topic().items():
            gone = [one for one in places if one.offset < one.log_start]
            if gone:
                total = sum(one.log_start - one.offset for one in gone)
                named = listed([f"{one}: at {one.offset}, log begins at {one.log_start}" for one in gone], NAMED)
                yield Found(
                    _of(group, topic),
                    f"offsets of {counted(total, 'record')} are gone unread ({named})",
                    by_hand="let its consumers read faster, or set retention.ms higher; what is gone stays gone",
                )


def hours_left(place: GroupPlace, retention_ms: int) -> float | None:
    """In how many hours the next record of the place will be deleted; None where that cannot be said, or where the
    group gains on it, or had read everything at the earlier look. A group that reads at a part of the pace at which
    those records were written ages by the rest. Kafka deletes whole segments, so this is the earliest."""
    if place.next_age_ms is None:
        return None
    left_h = max(0.0, (retention_ms - place.next_age_ms) / HOUR_MS)
    before = place.before
    if before is not None and before.offset >= before.log_end:
        return None
    if before is None or before.apart_s <= 0 or place.next_age_ms <= 0:
        return left_h
    read_s = max(0, place.offset - before.offset) / before.apart_s
    written_s = place.lag / (place.next_age_ms / 1000)
    if read_s >= written_s:
        return None
    return left_h / (1 - read_s / written_s)


def _retention(seen: Seen, limits: Limits) -> Iterator[Found]:
    for group in seen.groups:
        for name, places in group.by_topic().items():
            topic = seen.topic(name)
            retention_ms = topic.number(RETENTION) if topic else None
            deletes = topic is not None and "delete" in (topic.says("cleanup.policy") or "delete")
            if retention_ms is None or retention_ms < 0 or not deletes:
                continue
            aged_ms = limits["part"] * retention_ms
            waits = [one for one in places if one.lag and one.offset >= one.log_start and _at_least(one, aged_ms)]
            known = [(left, one) for one in waits if (left := hours_left(one, retention_ms)) is not None]
            soon = sorted(((left, one) for left, one in known if left < limits["hours"]), key=lambda pair: pair[0])
            if soon:
                yield _will_lose(seen, group, name, soon, retention_ms)


def _at_least(place: GroupPlace, age_ms: float) -> bool:
    """Where retention is short, the next record of a group that keeps up is hours from its end as well."""
    return place.next_age_ms is not None and place.next_age_ms >= age_ms


def _will_lose(seen: Seen, group: Group, topic: str, soon: list[tuple[float, GroupPlace]], retention_ms: int) -> Found:
    left, first = soon[0]
    grows = ""
    if first.before is not None:
        grown = first.lag - max(0, first.before.log_end - first.before.offset)
        grows = f"; its lag changed by {grown:+,} in {first.before.apart_s:.0f} s"
    evidence = (
        f"will lose records from {_in_hours(left)} on: {first.topic}-{first.partition} at {first.offset} has"
        f" {first.lag:,} to read, the next one {_in_hours((first.next_age_ms or 0) / HOUR_MS)} old, and retention.ms is"
        f" {_in_hours(retention_ms / HOUR_MS)}{grows}"
    )
    more = f"; {counted(len(soon) - 1, 'more partition')} as well" if len(soon) > 1 else ""
    line = commands.set_on_topic(seen, topic, {RETENTION: str(retention_ms * 2)})
    return Found(_of(group, topic), evidence + more, (line,), "let its consumers read faster, or start them")


def _in_hours(hours: float) -> str:
    return f"{hours:.1f} h" if hours >= 1 else f"{hours * 60:.0f} min"


def _abandoned(seen: Seen, limits: Limits) -> Iterator[Found]:
    for group in seen.groups:
        if group.live:
            continue
        for topic, places in group.by_topic().items():
            # Some applications deal out partitions by themselves, as Flink does, and commit without being members.
            lag = sum(one.lag for one in places if one.waits is not False and not _moved(one))
            if lag > limits["records"]:
                yield Found(
                    _of(group, topic),
                    f"no members, and {counted(lag, 'record')} to read{_kept_until(seen, topic, places)}",
                    (commands.describe_group(seen, group.name),),
                    "start its consumers, or delete the group if nobody needs it; an application that commits without"
                    " being a member, as Flink does, may be between two commits: look again some minutes later",
                )


def _kept_until(seen: Seen, topic: str, places: Iterable[GroupPlace]) -> str:
    """By when, where it is known how old the next one is."""
    known = seen.topic(topic)
    retention_ms = known.number(RETENTION) if known else None
    ages = [one.next_age_ms for one in places if one.lag and one.next_age_ms is not None]
    if not ages or retention_ms is None or retention_ms < 0:
        return ""
    return (
        f"; the oldest is {_in_hours(max(ages) / HOUR_MS)} old, and retention.ms is {_in_hours(retention_ms / HOUR_MS)}"
    )


def _moved(place: GroupPlace) -> bool:
    return place.before is not None and place.offset != place.before.offset


def _stuck(seen: Seen, limits: Limits) -> Iterator[Found]:
    for group in seen.groups:
        if not group.live:
            continue
        for topic, places in group.by_topic().items():
            still = [one for one in places if _stands(one, limits["seconds"])]
            if still:
                apart_s = min(one.before.apart_s for one in still if one.before)
                by_hand = "see whether a record stops its consumer, or whether it commits at all"
                if apart_s < SELDOM_S:
                    by_hand += (
                        f"; one that has much to read and commits each minute, as Kafka Connect does, looks the same:"
                        f" look again with --apart {SELDOM_S}"
                    )
                named = listed([f"{one} at {one.offset} with {one.lag:,} to read" for one in still], NAMED)
                yield Found(
                    _of(group, topic),
                    f"it has members, and committed nothing in {apart_s:.0f} s: {named}",
                    (commands.describe_group(seen, group.name),),
                    by_hand,
                )


def _stands(place: GroupPlace, seconds: float) -> bool:
    before = place.before
    if before is None or before.apart_s < seconds or not place.lag or not place.waits:
        return False
    # It had something to read at the earlier look already.
    return place.offset == before.offset and before.log_end > before.offset


def _beyond(seen: Seen, _: Limits) -> Iterator[Found]:
    for group in seen.groups:
        for topic, places in group.by_topic().items():
            ahead = [one for one in places if one.offset > one.log_end]
            if ahead:
                named = listed([f"{one}: at {one.offset}, log ends at {one.log_end}" for one in ahead], NAMED)
                yield Found(
                    _of(group, topic),
                    named,
                    (commands.describe_group(seen, group.name),),
                    "its log lost its end, or the topic was made again: set the group where it should read on",
                )


def _unplaced(seen: Seen, _: Limits) -> Iterator[Found]:
    for group in seen.groups:
        if group.unplaced:
            yield Found(
                f"group {group.name}",
                f"no place in {listed(group.unplaced, NAMED)}, which hold records",
                (commands.describe_group(seen, group.name),),
                "let it commit at its first poll, or set auto.offset.reset=earliest",
            )


GROUP_RULES = (
    Rule(
        "group-lost",
        Weight.GRAVE,
        "records were deleted before a group read them",
        "these records, for this group: it goes on by its auto.offset.reset, and latest skips all that is there",
        "it has happened",
        _lost,
        story="oldest",
    ),
    Rule(
        "group-retention",
        Weight.GRAVE,
        "retention will overtake a group",
        "records that it has not read yet",
        "it goes on as between the two looks",
        _retention,
        (
            Limit("hours", 24, "hours ahead that are looked at"),
            Limit("part", 0.25, "part of retention.ms that the next record must have waited already"),
        ),
        story="oldest",
    ),
    Rule(
        "group-abandoned",
        Weight.WARNING,
        "a group without members has records to read",
        "these records, when retention deletes them; its places, when offsets.retention.minutes are over",
        "nobody starts it again",
        _abandoned,
        (Limit("records", 0, "records to read that are fine"),),
        story="offsets-retention",
    ),
    Rule(
        "group-stuck",
        Weight.WARNING,
        "a group with members commits nothing",
        "records read again after a restart, or never read, as its consumer hangs",
        "the consumer is restarted, or retention overtakes it",
        _stuck,
        (Limit("seconds", 8, "seconds between two looks from which on it is judged"),),
    ),
    Rule(
        "group-beyond-end",
        Weight.GRAVE,
        "a group's place is past the end of its log",
        "records: they were lost from the log, or the group will skip or repeat what comes, by its auto.offset.reset",
        "it reads on",
        _beyond,
        story="unclean",
    ),
    Rule(
        "group-unplaced",
        Weight.NOTE,
        "a group has no place in partitions with records, and has others of the topic, or members that hold them",
        "records that are there already, if auto.offset.reset=latest",
        "its first reader of such a partition is restarted before it commits",
        _unplaced,
        story="newest",
    ),
)
