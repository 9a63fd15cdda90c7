"""Rules about brokers (racks, versions, defaults), consumer groups (records they will miss or do not read), and links
(what the target would lack after a switch now).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping

from twinshore.advisor.core import advice_report
from twinshore.advisor.core.model import (
    MIN_ISR_CONFIG,
    AdvisorRule,
    BrokerSnapshot,
    ClusterSnapshot,
    ConsumerGroupSnapshot,
    GroupPosition,
    LinkSnapshot,
    RuleCase,
    RuleLimit,
    Severity,
)
from twinshore.config.sentences import count_phrase, join_names

ITEMS_NAMED_MAX = 10
HOUR_MS = 3_600_000
LimitValues = Mapping[str, float]
# The highest metadata.version of each release.
_RELEASES = {7: "3.3", 8: "3.4", 11: "3.5", 14: "3.6", 19: "3.7", 20: "3.8", 21: "3.9", 25: "4.0", 27: "4.1"}


def describe_metadata_version(level: int) -> str:
    known = _RELEASES.get(level)
    return f"{level} (Kafka {known})" if known else str(level)


def _racks_unset(seen: ClusterSnapshot, _: LimitValues) -> Iterator[RuleCase]:
    bare = [str(one.node) for one in seen.brokers if not one.rack]
    if bare and len(seen.brokers) > 1:
        by_hand = advice_report.describe_server_properties({"broker.rack": "NAME OF ITS ZONE"})
        yield RuleCase("cluster", f"no broker.rack at broker {join_names(bare, ITEMS_NAMED_MAX)}", by_hand=by_hand)


def _versions(seen: ClusterSnapshot, _: LimitValues) -> Iterator[RuleCase]:
    by_level: dict[int, list[str]] = {}
    for one in seen.brokers:
        if one.supports:
            by_level.setdefault(one.supports, []).append(str(one.node))
    if len(by_level) > 1:
        told = "; ".join(
            f"broker {join_names(nodes, ITEMS_NAMED_MAX)} up to {describe_metadata_version(at)}"
            for at, nodes in sorted(by_level.items())
        )
        yield RuleCase(
            "cluster", f"metadata.version: {told}", by_hand="finish the upgrade: bring all brokers to one version"
        )


def _unfinished(seen: ClusterSnapshot, _: LimitValues) -> Iterator[RuleCase]:
    levels = {one.supports for one in seen.brokers}
    least = min(levels, default=0)
    if len(levels) == 1 and 0 < seen.finalized < least:
        line = (
            f"kafka-features.sh {advice_report.build_bootstrap_options(seen)} upgrade --feature "
            f"metadata.version={least}"
        )
        yield RuleCase(
            "cluster",
            f"it works by {describe_metadata_version(seen.finalized)}, all brokers know "
            f"{describe_metadata_version(least)}",
            (line,),
        )


def _with(seen: ClusterSnapshot, setting: str) -> dict[str, list[BrokerSnapshot]]:
    """Brokers by their value of a setting, as far as readable."""
    found: dict[str, list[BrokerSnapshot]] = {}
    for one in seen.brokers:
        if (value := one.says(setting)) is not None:
            found.setdefault(value, []).append(one)
    return found


def _at(brokers: list[BrokerSnapshot]) -> str:
    return f"broker {join_names([str(one.node) for one in brokers], ITEMS_NAMED_MAX)}"


def _auto_create(seen: ClusterSnapshot, _: LimitValues) -> Iterator[RuleCase]:
    setting = "auto.create.topics.enable"
    if brokers := _with(seen, setting).get("true"):
        yield RuleCase(
            "cluster",
            f"{setting}=true at {_at(brokers)}",
            by_hand=advice_report.describe_server_properties({setting: "false"}),
        )


def _least(seen: ClusterSnapshot, setting: str) -> tuple[int, list[BrokerSnapshot]] | None:
    numbers = [(number, one) for one in seen.brokers if (number := one.number(setting)) is not None]
    if not numbers:
        return None
    low = min(number for number, _ in numbers)
    return low, [one for number, one in numbers if number == low]


def _offsets_retention(seen: ClusterSnapshot, limits: LimitValues) -> Iterator[RuleCase]:
    setting, hours = "offsets.retention.minutes", limits["hours"]
    least = _least(seen, setting)
    if least and least[0] < hours * 60:
        by_hand = advice_report.describe_server_properties({setting: f"{hours * 60:.0f}"})
        yield RuleCase("cluster", f"{setting}={least[0]} ({least[0] / 60:g} h) at {_at(least[1])}", by_hand=by_hand)


def _transaction_timeout(seen: ClusterSnapshot, limits: LimitValues) -> Iterator[RuleCase]:
    setting, minutes = "transaction.max.timeout.ms", limits["minutes"]
    high = [one for one in seen.brokers if (one.number(setting) or 0) > minutes * 60_000]
    if high:
        most = max(one.number(setting) or 0 for one in high)
        by_hand = advice_report.describe_server_properties({setting: f"{minutes * 60_000:.0f}"})
        yield RuleCase("cluster", f"{setting}={most} ({most / 60_000:.7g} min) at {_at(high)}", by_hand=by_hand)


def _transactional_expiry(seen: ClusterSnapshot, limits: LimitValues) -> Iterator[RuleCase]:
    for setting in ("transactional.id.expiration.ms", "producer.id.expiration.ms"):
        least = _least(seen, setting)
        if least and least[0] < limits["hours"] * HOUR_MS:
            by_hand = advice_report.describe_server_properties({setting: f"{limits['hours'] * HOUR_MS:.0f}"})
            evidence = f"{setting}={least[0]} ({least[0] / HOUR_MS:g} h) at {_at(least[1])}"
            yield RuleCase(f"cluster, {setting}", evidence, by_hand=by_hand)


def _new_topics(seen: ClusterSnapshot, limits: LimitValues) -> Iterator[RuleCase]:
    copies, minimum = _least(seen, "default.replication.factor"), _least(seen, MIN_ISR_CONFIG)
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
        lines, before = _of_all_topics(seen, int(limits["min_insync"]))
        by_hand += before
    if weak:
        yield RuleCase("cluster", "; ".join(weak), lines, "; ".join(by_hand))


def _of_all_topics(seen: ClusterSnapshot, minimum: int) -> tuple[tuple[str, ...], list[str]]:
    """The command that raises the brokers' min.insync.replicas, and the steps before it.

    The value also applies to topics without their own, and those with few replicas would refuse writers with one broker
    away.
    """
    line = advice_report.build_set_brokers_command(seen, {MIN_ISR_CONFIG: str(minimum)})
    meant = f"{MIN_ISR_CONFIG} of brokers is also that of each topic without its own"
    if seen.in_part:
        return (), [f"{meant}: look at all topics before it is raised"]
    those = [one for one in seen.topics if not one.is_set_on_topic(MIN_ISR_CONFIG)]
    few = [one for one in those if one.copies <= minimum]
    pins = [
        advice_report.build_set_topic_command(seen, one.name, {MIN_ISR_CONFIG: one.says(MIN_ISR_CONFIG) or "1"})
        for one in few
    ]
    settled = all(one.settled for one in those)
    if settled and not pins:
        return (line,), []
    keep = (
        f"{count_phrase(len(few), 'topic')} of no more than {count_phrase(minimum, 'replica')} must keep theirs: first"
    )
    first = [f"{keep} {join_names(pins, ITEMS_NAMED_MAX)}"] if pins else []
    when = "then" if settled else "once each partition of those topics has a leader and all replicas in sync"
    return (), [meant, *first, f"{when}: {line}"]


BROKER_RULES = (
    AdvisorRule(
        "racks-unset",
        Severity.WARNING,
        "brokers do not say in which rack they are",
        "partitions whose replicas all happen to stand in one zone",
        "a zone loses its power or its network",
        _racks_unset,
    ),
    AdvisorRule(
        "mixed-versions",
        Severity.WARNING,
        "brokers are of several versions",
        "what only the newer ones can do, and clients that meet both",
        "a leader moves to a broker of the other version",
        _versions,
    ),
    AdvisorRule(
        "upgrade-unfinished",
        Severity.NOTE,
        "all brokers know a newer metadata.version than the cluster works by",
        "features and repairs of the newer version, which stay off",
        "always; once it is raised, there is no way back to the older version",
        _unfinished,
    ),
    AdvisorRule(
        "auto-create",
        Severity.WARNING,
        "a topic is made by whoever asks for it",
        "records in topics of misspelt names, and the defaults of brokers in place of what was decided",
        "a client names a topic wrongly, or one that was deleted",
        _auto_create,
    ),
    AdvisorRule(
        "offsets-retention",
        Severity.WARNING,
        "places of groups are forgotten soon",
        "records never read (auto.offset.reset=latest) or read again (earliest)",
        "a group is without members for so long, then comes back",
        _offsets_retention,
        (RuleLimit("hours", 168, "hours for which places should be kept; Kafka's default is 168"),),
        story="offsets-retention",
    ),
    AdvisorRule(
        "transaction-timeout",
        Severity.WARNING,
        "a transaction may stay open for long",
        "reading with read_committed: nothing behind the open transaction is delivered",
        "a transactional producer dies with a transaction open and a long timeout",
        _transaction_timeout,
        (RuleLimit("minutes", 15, "minutes that a transaction may ask for; Kafka's default is 15"),),
    ),
    AdvisorRule(
        "producer-expiry",
        Severity.WARNING,
        "brokers forget producers soon",
        "records written twice, and fencing of an old producer",
        "a producer is silent for so long, then sends a batch again",
        _transactional_expiry,
        (RuleLimit("hours", 24, "hours for which producers should be remembered"),),
        story="retry-twice",
    ),
    AdvisorRule(
        "new-topics",
        Severity.NOTE,
        "new topics are weak unless whoever makes them says otherwise",
        "records of topics that are yet to be made",
        "one or two brokers are lost",
        _new_topics,
        story="min-insync-1",
    ),
)

RETENTION_MS_CONFIG = "retention.ms"
# Kafka Connect commits each minute by default.
COMMIT_INTERVAL_MAX_S = 70


def _of(group: ConsumerGroupSnapshot, topic: str) -> str:
    return f"group {group.name} on {topic}"


def _lost(seen: ClusterSnapshot, _: LimitValues) -> Iterator[RuleCase]:
    for group in seen.groups:
        for topic, places in group.by_topic().items():
            gone = [one for one in places if one.offset < one.log_start]
            if gone:
                total = sum(one.log_start - one.offset for one in gone)
                named = join_names(
                    [f"{one}: at {one.offset}, log begins at {one.log_start}" for one in gone], ITEMS_NAMED_MAX
                )
                yield RuleCase(
                    _of(group, topic),
                    f"offsets of {count_phrase(total, 'record')} are gone unread ({named})",
                    by_hand="let its consumers read faster, or set retention.ms higher; what is gone stays gone",
                )


def estimate_hours_left(place: GroupPosition, retention_ms: int) -> float | None:
    """Hours until the group's next record is deleted, at the earliest: Kafka deletes whole segments.

    None if unknown, if the group catches up, or had read everything earlier. A slower group loses time by the
    difference of the rates.
    """
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


def _retention(seen: ClusterSnapshot, limits: LimitValues) -> Iterator[RuleCase]:
    for group in seen.groups:
        for name, places in group.by_topic().items():
            topic = seen.topic(name)
            retention_ms = topic.number(RETENTION_MS_CONFIG) if topic else None
            deletes = topic is not None and "delete" in (topic.says("cleanup.policy") or "delete")
            if retention_ms is None or retention_ms < 0 or not deletes:
                continue
            aged_ms = limits["part"] * retention_ms
            waits = [one for one in places if one.lag and one.offset >= one.log_start and _at_least(one, aged_ms)]
            known = [(left, one) for one in waits if (left := estimate_hours_left(one, retention_ms)) is not None]
            soon = sorted(((left, one) for left, one in known if left < limits["hours"]), key=lambda pair: pair[0])
            if soon:
                yield _will_lose(seen, group, name, soon, retention_ms)


def _at_least(place: GroupPosition, age_ms: float) -> bool:
    """A minimum age: with short retention, records that a group reads in time are also hours from deletion."""
    return place.next_age_ms is not None and place.next_age_ms >= age_ms


def _will_lose(
    seen: ClusterSnapshot,
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
    line = advice_report.build_set_topic_command(seen, topic, {RETENTION_MS_CONFIG: str(retention_ms * 2)})
    return RuleCase(_of(group, topic), evidence + more, (line,), "let its consumers read faster, or start them")


def _in_hours(hours: float) -> str:
    return f"{hours:.1f} h" if hours >= 1 else f"{hours * 60:.0f} min"


def _abandoned(seen: ClusterSnapshot, limits: LimitValues) -> Iterator[RuleCase]:
    for group in seen.groups:
        if group.live:
            continue
        for topic, places in group.by_topic().items():
            # Some applications assign partitions themselves, as Flink does, and commit without being members.
            lag = sum(one.lag for one in places if one.waits is not False and not _moved(one))
            if lag > limits["records"]:
                yield RuleCase(
                    _of(group, topic),
                    f"no members, and {count_phrase(lag, 'record')} to read{_kept_until(seen, topic, places)}",
                    (advice_report.build_describe_group_command(seen, group.name),),
                    "start its consumers, or delete the group if nobody needs it; an application that commits without"
                    " being a member, as Flink does, may be between two commits: look again some minutes later",
                )


def _kept_until(seen: ClusterSnapshot, topic: str, places: Iterable[GroupPosition]) -> str:
    """The oldest next record's age beside the retention, or empty if unknown."""
    known = seen.topic(topic)
    retention_ms = known.number(RETENTION_MS_CONFIG) if known else None
    ages = [one.next_age_ms for one in places if one.lag and one.next_age_ms is not None]
    if not ages or retention_ms is None or retention_ms < 0:
        return ""
    return (
        f"; the oldest is {_in_hours(max(ages) / HOUR_MS)} old, and retention.ms is {_in_hours(retention_ms / HOUR_MS)}"
    )


def _moved(place: GroupPosition) -> bool:
    return place.before is not None and place.offset != place.before.offset


def _stuck(seen: ClusterSnapshot, limits: LimitValues) -> Iterator[RuleCase]:
    for group in seen.groups:
        if not group.live:
            continue
        for topic, places in group.by_topic().items():
            still = [one for one in places if _stands(one, limits["seconds"])]
            if still:
                apart_s = min(one.before.apart_s for one in still if one.before)
                by_hand = "see whether a record stops its consumer, or whether it commits at all"
                if apart_s < COMMIT_INTERVAL_MAX_S:
                    by_hand += (
                        f"; one that has much to read and commits each minute, as Kafka Connect does, looks the same:"
                        f" look again with --apart {COMMIT_INTERVAL_MAX_S}"
                    )
                named = join_names(
                    [f"{one} at {one.offset} with {one.lag:,} to read" for one in still], ITEMS_NAMED_MAX
                )
                yield RuleCase(
                    _of(group, topic),
                    f"it has members, and committed nothing in {apart_s:.0f} s: {named}",
                    (advice_report.build_describe_group_command(seen, group.name),),
                    by_hand,
                )


def _stands(place: GroupPosition, seconds: float) -> bool:
    before = place.before
    if before is None or before.apart_s < seconds or not place.lag or not place.waits:
        return False
    # There was something to read at the earlier reading too.
    return place.offset == before.offset and before.log_end > before.offset


def _beyond(seen: ClusterSnapshot, _: LimitValues) -> Iterator[RuleCase]:
    for group in seen.groups:
        for topic, places in group.by_topic().items():
            ahead = [one for one in places if one.offset > one.log_end]
            if ahead:
                named = join_names(
                    [f"{one}: at {one.offset}, log ends at {one.log_end}" for one in ahead], ITEMS_NAMED_MAX
                )
                yield RuleCase(
                    _of(group, topic),
                    named,
                    (advice_report.build_describe_group_command(seen, group.name),),
                    "its log lost its end, or the topic was made again: set the group where it should read on",
                )


def _unplaced(seen: ClusterSnapshot, _: LimitValues) -> Iterator[RuleCase]:
    for group in seen.groups:
        if group.unplaced:
            yield RuleCase(
                f"group {group.name}",
                f"no place in {join_names(group.unplaced, ITEMS_NAMED_MAX)}, which hold records",
                (advice_report.build_describe_group_command(seen, group.name),),
                "let it commit at its first poll, or set auto.offset.reset=earliest",
            )


GROUP_RULES = (
    AdvisorRule(
        "group-lost",
        Severity.CRITICAL,
        "records were deleted before a group read them",
        "these records, for this group: it goes on by its auto.offset.reset, and latest skips all that is there",
        "it has happened",
        _lost,
        story="oldest",
    ),
    AdvisorRule(
        "group-retention",
        Severity.CRITICAL,
        "retention will overtake a group",
        "records that it has not read yet",
        "it goes on as between the two looks",
        _retention,
        (
            RuleLimit("hours", 24, "hours ahead that are looked at"),
            RuleLimit("part", 0.25, "part of retention.ms that the next record must have waited already"),
        ),
        story="oldest",
    ),
    AdvisorRule(
        "group-abandoned",
        Severity.WARNING,
        "a group without members has records to read",
        "these records, when retention deletes them; its places, when offsets.retention.minutes are over",
        "nobody starts it again",
        _abandoned,
        (RuleLimit("records", 0, "records to read that are fine"),),
        story="offsets-retention",
    ),
    AdvisorRule(
        "group-stuck",
        Severity.WARNING,
        "a group with members commits nothing",
        "records read again after a restart, or never read, as its consumer hangs",
        "the consumer is restarted, or retention overtakes it",
        _stuck,
        (RuleLimit("seconds", 8, "seconds between two looks from which on it is judged"),),
    ),
    AdvisorRule(
        "group-beyond-end",
        Severity.CRITICAL,
        "a group's place is past the end of its log",
        "records: they were lost from the log, or the group will skip or repeat what comes, by its auto.offset.reset",
        "it reads on",
        _beyond,
        story="unclean",
    ),
    AdvisorRule(
        "group-unplaced",
        Severity.NOTE,
        "a group has no place in partitions with records, and has others of the topic, or members that hold them",
        "records that are there already, if auto.offset.reset=latest",
        "its first reader of such a partition is restarted before it commits",
        _unplaced,
        story="newest",
    ),
)


def _status(link: LinkSnapshot) -> str:
    return f"twinshore status --link {shlex.quote(link.name)} --topics"


def _not_running(seen: ClusterSnapshot, _: LimitValues) -> Iterator[RuleCase]:
    for link in seen.links:
        if link.twins and not link.runs:
            yield RuleCase(f"link {link.name}", link.says, (_status(link),), "start `twinshore mirror run`")


def _behind(seen: ClusterSnapshot, limits: LimitValues) -> Iterator[RuleCase]:
    for link in seen.links:
        late = [(one.lag, one.topic) for one in link.twins if one.lag is not None and one.lag > limits["records"]]
        if late:
            named = join_names([f"{topic} {lag:,}" for lag, topic in sorted(late, reverse=True)], ITEMS_NAMED_MAX)
            total = sum(lag for lag, _ in late)
            yield RuleCase(f"link {link.name}", f"{total:,} records are not on the twins: {named}", (_status(link),))


def _stopped(seen: ClusterSnapshot, _: LimitValues) -> Iterator[RuleCase]:
    for link in seen.links:
        rest = [f"{one.topic} ({count_phrase(one.stopped, 'partition')})" for one in link.twins if one.stopped]
        if rest:
            why = f"; {join_names(link.incidents, ITEMS_NAMED_MAX, '; ')}" if link.incidents else ""
            by_hand = "each incident names what lets its partition go on"
            yield RuleCase(
                f"link {link.name}", f"not carried: {join_names(rest, ITEMS_NAMED_MAX)}{why}", (_status(link),), by_hand
            )


def _differs(seen: ClusterSnapshot, _: LimitValues) -> Iterator[RuleCase]:
    for link in seen.links:
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


def _rights(seen: ClusterSnapshot, _: LimitValues) -> Iterator[RuleCase]:
    for link in seen.links:
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


LINK_RULES = (
    AdvisorRule(
        "link-not-running",
        Severity.CRITICAL,
        "no mirror carries a link that has twins",
        "all that is written from now on, on the other side",
        "this cluster is lost, and clients move to the other one",
        _not_running,
    ),
    AdvisorRule(
        "twin-behind",
        Severity.WARNING,
        "twins lack records",
        "these records: a switch by force would lose them, a planned one waits for them",
        "this cluster is lost now",
        _behind,
        (RuleLimit("records", 1000, "records that a topic's twin may lack"),),
    ),
    AdvisorRule(
        "twin-stopped",
        Severity.CRITICAL,
        "partitions of twins are stopped",
        "all that these partitions get, on the other side",
        "this cluster is lost, and clients move to the other one",
        _stopped,
    ),
    AdvisorRule(
        "twin-differs",
        Severity.WARNING,
        "a twin's settings are not those of its source",
        "what the settings promise: the twin keeps another promise than its topic",
        "clients move to the other cluster",
        _differs,
    ),
    AdvisorRule(
        "twin-rights",
        Severity.WARNING,
        "who may use twins is not who may use their topics",
        "reading and writing there: clients are refused, or others are let in",
        "clients move to the other cluster",
        _rights,
    ),
)
