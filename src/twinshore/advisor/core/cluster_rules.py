"""Rules about brokers (racks, versions, defaults), consumer groups (records they will miss or do not read), and links
(what the target would lack after a switch now).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping

from twinshore.advisor.core import advice_report
from twinshore.advisor.core.model import (
    MIN_ISR_CONFIG,
    BrokerSnapshot,
    ClusterSnapshot,
    ConsumerGroupSnapshot,
    GroupPosition,
    JudgeCluster,
    LinkSnapshot,
    RuleCase,
)
from twinshore.config.grouping import grouped
from twinshore.config.sentences import count_phrase, join_names

ITEMS_NAMED_MAX = 10
HOUR_MS = 3_600_000
LimitValues = Mapping[str, float]
# The highest metadata.version of each release.
_RELEASES = {7: "3.3", 8: "3.4", 11: "3.5", 14: "3.6", 19: "3.7", 20: "3.8", 21: "3.9", 25: "4.0", 27: "4.1"}


def describe_metadata_version(level: int) -> str:
    known = _RELEASES.get(level)
    return f"{level} (Kafka {known})" if known else str(level)


def _racks_unset(snapshot: ClusterSnapshot, _: LimitValues) -> Iterator[RuleCase]:
    bare = [str(broker.node) for broker in snapshot.brokers if not broker.rack]
    if bare and len(snapshot.brokers) > 1:
        by_hand = advice_report.describe_server_properties({"broker.rack": "NAME OF ITS ZONE"})
        yield RuleCase("cluster", f"no broker.rack at broker {join_names(bare, ITEMS_NAMED_MAX)}", by_hand=by_hand)


def _versions(snapshot: ClusterSnapshot, _: LimitValues) -> Iterator[RuleCase]:
    by_level = grouped((broker.supports, str(broker.node)) for broker in snapshot.brokers if broker.supports)
    if len(by_level) > 1:
        told = "; ".join(
            f"broker {join_names(nodes, ITEMS_NAMED_MAX)} up to {describe_metadata_version(at)}"
            for at, nodes in sorted(by_level.items())
        )
        yield RuleCase(
            "cluster", f"metadata.version: {told}", by_hand="finish the upgrade: bring all brokers to one version"
        )


def _unfinished(snapshot: ClusterSnapshot, _: LimitValues) -> Iterator[RuleCase]:
    levels = {broker.supports for broker in snapshot.brokers}
    least = min(levels, default=0)
    if len(levels) == 1 and 0 < snapshot.finalized < least:
        line = (
            f"kafka-features.sh {advice_report.build_bootstrap_options(snapshot)} upgrade --feature "
            f"metadata.version={least}"
        )
        yield RuleCase(
            "cluster",
            f"it works by {describe_metadata_version(snapshot.finalized)}, all brokers know "
            f"{describe_metadata_version(least)}",
            (line,),
        )


def _with(snapshot: ClusterSnapshot, setting: str) -> dict[str, list[BrokerSnapshot]]:
    """Brokers by their value of a setting, as far as readable."""
    told = ((broker.says(setting), broker) for broker in snapshot.brokers)
    return grouped((value, broker) for value, broker in told if value is not None)


def _at(brokers: list[BrokerSnapshot]) -> str:
    return f"broker {join_names([str(broker.node) for broker in brokers], ITEMS_NAMED_MAX)}"


def _auto_create(snapshot: ClusterSnapshot, _: LimitValues) -> Iterator[RuleCase]:
    setting = "auto.create.topics.enable"
    if brokers := _with(snapshot, setting).get("true"):
        yield RuleCase(
            "cluster",
            f"{setting}=true at {_at(brokers)}",
            by_hand=advice_report.describe_server_properties({setting: "false"}),
        )


def _least(snapshot: ClusterSnapshot, setting: str) -> tuple[int, list[BrokerSnapshot]] | None:
    numbers = [(number, broker) for broker in snapshot.brokers if (number := broker.number(setting)) is not None]
    if not numbers:
        return None
    low = min(number for number, _ in numbers)
    return low, [broker for number, broker in numbers if number == low]


def _offsets_retention(snapshot: ClusterSnapshot, limits: LimitValues) -> Iterator[RuleCase]:
    setting, hours = "offsets.retention.minutes", limits["hours"]
    least = _least(snapshot, setting)
    if least and least[0] < hours * 60:
        by_hand = advice_report.describe_server_properties({setting: f"{hours * 60:.0f}"})
        yield RuleCase("cluster", f"{setting}={least[0]} ({least[0] / 60:g} h) at {_at(least[1])}", by_hand=by_hand)


def _transaction_timeout(snapshot: ClusterSnapshot, limits: LimitValues) -> Iterator[RuleCase]:
    setting, minutes = "transaction.max.timeout.ms", limits["minutes"]
    high = [broker for broker in snapshot.brokers if (broker.number(setting) or 0) > minutes * 60_000]
    if high:
        most = max(broker.number(setting) or 0 for broker in high)
        by_hand = advice_report.describe_server_properties({setting: f"{minutes * 60_000:.0f}"})
        yield RuleCase("cluster", f"{setting}={most} ({most / 60_000:.7g} min) at {_at(high)}", by_hand=by_hand)


def _transactional_expiry(snapshot: ClusterSnapshot, limits: LimitValues) -> Iterator[RuleCase]:
    for setting in ("transactional.id.expiration.ms", "producer.id.expiration.ms"):
        least = _least(snapshot, setting)
        if least and least[0] < limits["hours"] * HOUR_MS:
            by_hand = advice_report.describe_server_properties({setting: f"{limits['hours'] * HOUR_MS:.0f}"})
            evidence = f"{setting}={least[0]} ({least[0] / HOUR_MS:g} h) at {_at(least[1])}"
            yield RuleCase(f"cluster, {setting}", evidence, by_hand=by_hand)


def _new_topics(snapshot: ClusterSnapshot, limits: LimitValues) -> Iterator[RuleCase]:
    copies, minimum = _least(snapshot, "default.replication.factor"), _least(snapshot, MIN_ISR_CONFIG)
    weak: list[str] = []
    lines: tuple[str, ...] = ()
    by_hand: list[str] = []
    if copies and copies[0] < limits["copies"]:
        weak.append(f"default.replication.factor={copies[0]} at {_at(copies[1])}")
        by_hand.append(
            advice_report.describe_server_properties({"default.replication.factor": f"{limits['copies']:.0f}"})
        )
    if minimum and minimum[0] < limits["min_insync"]:
        weak.append(f"{MIN_ISR_CONFIG}={minimum[0]} at {_at(minimum[1])}")
        lines, before = _of_all_topics(snapshot, int(limits["min_insync"]))
        by_hand += before
    if weak:
        yield RuleCase("cluster", "; ".join(weak), lines, "; ".join(by_hand))


def _of_all_topics(snapshot: ClusterSnapshot, minimum: int) -> tuple[tuple[str, ...], list[str]]:
    """The command that raises the brokers' min.insync.replicas, and the steps before it.

    The value also applies to topics without their own, and those with few replicas would refuse writers with one broker
    away.
    """
    line = advice_report.build_set_brokers_command(snapshot, {MIN_ISR_CONFIG: str(minimum)})
    meant = f"{MIN_ISR_CONFIG} of brokers is also that of each topic without its own"
    if snapshot.in_part:
        return (), [f"{meant}: look at all topics before it is raised"]
    those = [topic for topic in snapshot.topics if not topic.is_set_on_topic(MIN_ISR_CONFIG)]
    few = [topic for topic in those if topic.copies <= minimum]
    pins = [
        advice_report.build_set_topic_command(snapshot, topic.name, {MIN_ISR_CONFIG: topic.says(MIN_ISR_CONFIG) or "1"})
        for topic in few
    ]
    settled = all(topic.settled for topic in those)
    if settled and not pins:
        return (line,), []
    keep = (
        f"{count_phrase(len(few), 'topic')} of no more than {count_phrase(minimum, 'replica')} must keep theirs: first"
    )
    first = [f"{keep} {join_names(pins, ITEMS_NAMED_MAX)}"] if pins else []
    when = "then" if settled else "once each partition of those topics has a leader and all replicas in sync"
    return (), [meant, *first, f"{when}: {line}"]


BROKER_JUDGES: dict[str, JudgeCluster] = {
    "racks-unset": _racks_unset,
    "mixed-versions": _versions,
    "upgrade-unfinished": _unfinished,
    "auto-create": _auto_create,
    "offsets-retention": _offsets_retention,
    "transaction-timeout": _transaction_timeout,
    "producer-expiry": _transactional_expiry,
    "new-topics": _new_topics,
}

RETENTION_MS_CONFIG = "retention.ms"
# Kafka Connect commits each minute by default.
COMMIT_INTERVAL_MAX_S = 70


def _of(group: ConsumerGroupSnapshot, topic: str) -> str:
    return f"group {group.name} on {topic}"


def _lost(snapshot: ClusterSnapshot, _: LimitValues) -> Iterator[RuleCase]:
    for group in snapshot.groups:
        for topic, positions in group.by_topic().items():
            gone = [position for position in positions if position.offset < position.log_start]
            if gone:
                total = sum(position.log_start - position.offset for position in gone)
                named = join_names(
                    [f"{position}: at {position.offset}, log begins at {position.log_start}" for position in gone],
                    ITEMS_NAMED_MAX,
                )
                yield RuleCase(
                    _of(group, topic),
                    f"offsets of {count_phrase(total, 'record')} are gone unread ({named})",
                    by_hand="let its consumers read faster, or set retention.ms higher; what is gone stays gone",
                )


def estimate_hours_left(position: GroupPosition, retention_ms: int) -> float | None:
    """Hours until the group's next record is deleted, at the earliest: Kafka deletes whole segments.

    None if unknown, if the group catches up, or had read everything earlier. A slower group loses time by the
    difference of the rates.
    """
    if position.next_age_ms is None:
        return None
    left_h = max(0.0, (retention_ms - position.next_age_ms) / HOUR_MS)
    before = position.before
    if before is not None and before.offset >= before.log_end:
        return None
    if before is None or before.apart_s <= 0 or position.next_age_ms <= 0:
        return left_h
    read_s = max(0, position.offset - before.offset) / before.apart_s
    written_s = position.lag / (position.next_age_ms / 1000)
    if read_s >= written_s:
        return None
    return left_h / (1 - read_s / written_s)


def _retention(snapshot: ClusterSnapshot, limits: LimitValues) -> Iterator[RuleCase]:
    for group in snapshot.groups:
        for name, positions in group.by_topic().items():
            topic = snapshot.topic(name)
            retention_ms = topic.number(RETENTION_MS_CONFIG) if topic else None
            deletes = topic is not None and "delete" in (topic.says("cleanup.policy") or "delete")
            if retention_ms is None or retention_ms < 0 or not deletes:
                continue
            aged_ms = limits["part"] * retention_ms
            waits = [
                position
                for position in positions
                if position.lag and position.offset >= position.log_start and _at_least(position, aged_ms)
            ]
            known = [
                (left, position)
                for position in waits
                if (left := estimate_hours_left(position, retention_ms)) is not None
            ]
            soon = sorted(
                ((left, position) for left, position in known if left < limits["hours"]), key=lambda pair: pair[0]
            )
            if soon:
                yield _will_lose(snapshot, group, name, soon, retention_ms)


def _at_least(position: GroupPosition, age_ms: float) -> bool:
    """A minimum age: with short retention, records that a group reads in time are also hours from deletion."""
    return position.next_age_ms is not None and position.next_age_ms >= age_ms


def _will_lose(
    snapshot: ClusterSnapshot,
    group: ConsumerGroupSnapshot,
    topic: str,
    soon: list[tuple[float, GroupPosition]],
    retention_ms: int,
) -> RuleCase:
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
    more = f"; {count_phrase(len(soon) - 1, 'more partition')} as well" if len(soon) > 1 else ""
    line = advice_report.build_set_topic_command(snapshot, topic, {RETENTION_MS_CONFIG: str(retention_ms * 2)})
    return RuleCase(_of(group, topic), evidence + more, (line,), "let its consumers read faster, or start them")


def _in_hours(hours: float) -> str:
    return f"{hours:.1f} h" if hours >= 1 else f"{hours * 60:.0f} min"


def _abandoned(snapshot: ClusterSnapshot, limits: LimitValues) -> Iterator[RuleCase]:
    for group in snapshot.groups:
        if group.live:
            continue
        for topic, positions in group.by_topic().items():
            # Some applications assign partitions themselves, as Flink does, and commit without being members.
            lag = sum(position.lag for position in positions if position.waits is not False and not _moved(position))
            if lag > limits["records"]:
                yield RuleCase(
                    _of(group, topic),
                    f"no members, and {count_phrase(lag, 'record')} to read{_kept_until(snapshot, topic, positions)}",
                    (advice_report.build_describe_group_command(snapshot, group.name),),
                    "start its consumers, or delete the group if nobody needs it; an application that commits without"
                    " being a member, as Flink does, may be between two commits: look again some minutes later",
                )


def _kept_until(snapshot: ClusterSnapshot, topic: str, positions: Iterable[GroupPosition]) -> str:
    """The oldest next record's age beside the retention, or empty if unknown."""
    found = snapshot.topic(topic)
    retention_ms = found.number(RETENTION_MS_CONFIG) if found else None
    ages = [position.next_age_ms for position in positions if position.lag and position.next_age_ms is not None]
    if not ages or retention_ms is None or retention_ms < 0:
        return ""
    return (
        f"; the oldest is {_in_hours(max(ages) / HOUR_MS)} old, and retention.ms is {_in_hours(retention_ms / HOUR_MS)}"
    )


def _moved(position: GroupPosition) -> bool:
    return position.before is not None and position.offset != position.before.offset


def _stuck(snapshot: ClusterSnapshot, limits: LimitValues) -> Iterator[RuleCase]:
    for group in snapshot.groups:
        if not group.live:
            continue
        for topic, positions in group.by_topic().items():
            still = [position for position in positions if _stands(position, limits["seconds"])]
            if still:
                apart_s = min(position.before.apart_s for position in still if position.before)
                by_hand = "see whether a record stops its consumer, or whether it commits at all"
                if apart_s < COMMIT_INTERVAL_MAX_S:
                    by_hand += (
                        f"; one that has much to read and commits each minute, as Kafka Connect does, looks the same:"
                        f" look again with --apart {COMMIT_INTERVAL_MAX_S}"
                    )
                named = join_names(
                    [f"{position} at {position.offset} with {position.lag:,} to read" for position in still],
                    ITEMS_NAMED_MAX,
                )
                yield RuleCase(
                    _of(group, topic),
                    f"it has members, and committed nothing in {apart_s:.0f} s: {named}",
                    (advice_report.build_describe_group_command(snapshot, group.name),),
                    by_hand,
                )


def _stands(position: GroupPosition, seconds: float) -> bool:
    before = position.before
    if before is None or before.apart_s < seconds or not position.lag or not position.waits:
        return False
    # There was something to read at the earlier reading too.
    return position.offset == before.offset and before.log_end > before.offset


def _beyond(snapshot: ClusterSnapshot, _: LimitValues) -> Iterator[RuleCase]:
    for group in snapshot.groups:
        for topic, positions in group.by_topic().items():
            ahead = [position for position in positions if position.offset > position.log_end]
            if ahead:
                named = join_names(
                    [f"{position}: at {position.offset}, log ends at {position.log_end}" for position in ahead],
                    ITEMS_NAMED_MAX,
                )
                yield RuleCase(
                    _of(group, topic),
                    named,
                    (advice_report.build_describe_group_command(snapshot, group.name),),
                    "its log lost its end, or the topic was made again: set the group where it should read on",
                )


def _unplaced(snapshot: ClusterSnapshot, _: LimitValues) -> Iterator[RuleCase]:
    for group in snapshot.groups:
        if group.unplaced:
            yield RuleCase(
                f"group {group.name}",
                f"no committed offset in {join_names(group.unplaced, ITEMS_NAMED_MAX)}, which hold records",
                (advice_report.build_describe_group_command(snapshot, group.name),),
                "let it commit at its first poll, or set auto.offset.reset=earliest",
            )


GROUP_JUDGES: dict[str, JudgeCluster] = {
    "group-lost": _lost,
    "group-retention": _retention,
    "group-abandoned": _abandoned,
    "group-stuck": _stuck,
    "group-beyond-end": _beyond,
    "group-unplaced": _unplaced,
}


def _status(link: LinkSnapshot) -> str:
    return f"twinshore status --link {shlex.quote(link.name)} --topics"


def _not_running(snapshot: ClusterSnapshot, _: LimitValues) -> Iterator[RuleCase]:
    for link in snapshot.links:
        if link.twins and not link.runs:
            yield RuleCase(f"link {link.name}", link.says, (_status(link),), "start `twinshore mirror run`")


def _behind(snapshot: ClusterSnapshot, limits: LimitValues) -> Iterator[RuleCase]:
    for link in snapshot.links:
        late = [(twin.lag, twin.topic) for twin in link.twins if twin.lag is not None and twin.lag > limits["records"]]
        if late:
            named = join_names([f"{topic} {lag:,}" for lag, topic in sorted(late, reverse=True)], ITEMS_NAMED_MAX)
            total = sum(lag for lag, _ in late)
            yield RuleCase(f"link {link.name}", f"{total:,} records are not on the twins: {named}", (_status(link),))


def _stopped(snapshot: ClusterSnapshot, _: LimitValues) -> Iterator[RuleCase]:
    for link in snapshot.links:
        rest = [f"{twin.topic} ({count_phrase(twin.stopped, 'partition')})" for twin in link.twins if twin.stopped]
        if rest:
            why = f"; {join_names(link.incidents, ITEMS_NAMED_MAX, '; ')}" if link.incidents else ""
            by_hand = "each incident names what lets its partition go on"
            yield RuleCase(
                f"link {link.name}",
                f"not replicated: {join_names(rest, ITEMS_NAMED_MAX)}{why}",
                (_status(link),),
                by_hand,
            )


def _differs(snapshot: ClusterSnapshot, _: LimitValues) -> Iterator[RuleCase]:
    for link in snapshot.links:
        for twin in link.twins:
            if not twin.differs:
                continue
            told = ", ".join(
                f"{name} is {_value(has)}, it should be {_value(wanted)}" for name, has, wanted in twin.differs
            )
            there = advice_report.ClusterAddress(link.bootstrap, link.secured)
            adds = {name: wanted for name, _, wanted in twin.differs if wanted is not None}
            drops = [name for name, _, wanted in twin.differs if wanted is None]
            lines = [advice_report.build_set_topic_command(there, twin.name, adds)] if adds else []
            lines += [advice_report.build_unset_topic_command(there, twin.name, drops)] if drops else []
            by_hand = "a mirror that runs sets it by itself"
            yield RuleCase(f"twin {twin.name} of {link.name}", told, tuple(lines), by_hand)


def _rights(snapshot: ClusterSnapshot, _: LimitValues) -> Iterator[RuleCase]:
    for link in snapshot.links:
        there = advice_report.ClusterAddress(link.bootstrap, link.secured)
        if link.open:
            evidence = "only this cluster has an authorizer: whoever reaches the other one may do everything there"
            yield RuleCase(f"link {link.name}", evidence, by_hand="set authorizer.class.name on every broker there")
        told = [f"lacking there: {acl}" for acl in link.lacks]
        told += [f"there, and no more here: {acl}" for acl in link.left]
        if told:
            lines = [advice_report.build_acl_command(there, acl, gives=True) for acl in link.lacks]
            lines += [advice_report.build_acl_command(there, acl, gives=False) for acl in link.left]
            by_hand = "a mirror that runs does it by itself, where the link's section `follow` says `acls`"
            yield RuleCase(f"link {link.name}, ACLs", join_names(told, ITEMS_NAMED_MAX, "; "), tuple(lines), by_hand)


def _value(text: str | None) -> str:
    return "Kafka's default" if text is None else text


LINK_JUDGES: dict[str, JudgeCluster] = {
    "link-not-running": _not_running,
    "twin-behind": _behind,
    "twin-stopped": _stopped,
    "twin-differs": _differs,
    "twin-rights": _rights,
}
