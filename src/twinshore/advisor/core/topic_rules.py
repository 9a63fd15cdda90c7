"""Rules about partitions (leaders, replicas in sync), topics (replicas, settings, placement), and Kafka's internal
topics for committed offsets, transactions and share groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from twinshore.advisor.core import advice_report
from twinshore.advisor.core.advice_report import is_in_one_rack
from twinshore.advisor.core.model import (
    MIN_ISR_CONFIG,
    NO_LEADER,
    OFFSETS_TOPIC,
    SHARES_TOPIC,
    TRANSACTIONS_TOPIC,
    UNCLEAN_ELECTION_CONFIG,
    ClusterSnapshot,
    JudgeCluster,
    PartitionSnapshot,
    RuleCase,
    Severity,
    TopicConfigChange,
    TopicSnapshot,
    compute_majority,
)
from twinshore.config.sentences import count_phrase, join_names

ITEMS_NAMED_MAX = 10


def _where(topic: TopicSnapshot, meant: Callable[[PartitionSnapshot], bool]) -> list[PartitionSnapshot]:
    return [partition for partition in topic.partitions if meant(partition)]


def _named(partitions: list[PartitionSnapshot]) -> str:
    return join_names(
        [
            f"{partition.number} (replicas {_nodes(partition.replicas)}, in sync {_nodes(partition.isr)})"
            for partition in partitions
        ],
        ITEMS_NAMED_MAX,
    )


def _nodes(nodes: tuple[int, ...]) -> str:
    return ",".join(map(str, nodes)) or "none"


def _away(snapshot: ClusterSnapshot, partitions: list[PartitionSnapshot]) -> str:
    lacking = {
        node
        for partition in partitions
        for node in partition.replicas
        if node not in (*partition.isr, *partition.removing)
    }
    if not lacking:
        return "what takes its place is copied right now: look again once it is in sync"
    away = sorted(lacking - snapshot.racks.keys())
    if away:
        return f"bring broker {', '.join(map(str, away))} back: it does not answer the cluster"
    behind = ", ".join(map(str, sorted(lacking)))
    return f"see why broker {behind} does not keep up: its log, its disk, its network"


def _offline(snapshot: ClusterSnapshot, _: Mapping[str, float]) -> Iterator[RuleCase]:
    for topic in snapshot.topics:
        if partitions := _where(topic, lambda partition: partition.leader == NO_LEADER):
            yield RuleCase(
                f"topic {topic.name}", f"no leader of partition {_named(partitions)}", by_hand=_back(partitions)
            )


def _back(partitions: list[PartitionSnapshot]) -> str:
    told = []
    if last := sorted({node for partition in partitions for node in partition.isr}):
        told.append(
            f"start broker {', '.join(map(str, last))} again: it was in sync last, and has all that was acknowledged"
        )
    if unknown := [partition for partition in partitions if not partition.isr]:
        nodes = ", ".join(map(str, sorted({node for partition in unknown for node in partition.replicas})))
        told.append(
            f"start broker {nodes} again: none is in sync, and which one has all that was acknowledged is not told here"
            " (of eligible leader replicas `kafka-topics.sh --describe` shows Elr and LastKnownElr)"
        )
    return "; ".join([*told, "an unclean election would lose records"])


def _below_min(snapshot: ClusterSnapshot, _: Mapping[str, float]) -> Iterator[RuleCase]:
    for topic in snapshot.topics:
        minimum = topic.number(MIN_ISR_CONFIG)
        if minimum is None:
            continue
        # A minimum above the number of replicas is a finding of min-insync-high.
        partitions = [
            partition
            for partition in topic.partitions
            if partition.leader >= 0
            and len(partition.isr)
            < snapshot.effective_min_isr(minimum, len(partition.replicas))
            <= len(partition.replicas)
        ]
        if partitions:
            evidence = f"{MIN_ISR_CONFIG}={minimum}, partition {_named(partitions)}"
            yield RuleCase(f"topic {topic.name}", evidence, by_hand=_away(snapshot, partitions))


def _under_replicated(snapshot: ClusterSnapshot, _: Mapping[str, float]) -> Iterator[RuleCase]:
    for topic in snapshot.topics:
        if partitions := _where(
            topic, lambda partition: partition.leader >= 0 and not set(partition.replicas) <= set(partition.isr)
        ):
            yield RuleCase(
                f"topic {topic.name}", f"partition {_named(partitions)}", by_hand=_away(snapshot, partitions)
            )


def _leader_elsewhere(snapshot: ClusterSnapshot, _: Mapping[str, float]) -> Iterator[RuleCase]:
    for topic in snapshot.topics:
        # A reassignment changes the preferred leader; the leader follows at its end.
        partitions = _where(
            topic,
            lambda partition: (
                bool(partition.replicas)
                and not partition.moves
                and partition.leader not in (NO_LEADER, partition.replicas[0])
            ),
        )
        if partitions:
            named = join_names(
                [f"{tp.number} (broker {tp.leader}, not {tp.replicas[0]})" for tp in partitions], ITEMS_NAMED_MAX
            )
            able = [partition.number for partition in partitions if partition.replicas[0] in partition.isr]
            lines = (advice_report.build_election_command(snapshot, topic.name, able),) if able else ()
            yield RuleCase(
                f"topic {topic.name}",
                f"leader of partition {named}",
                lines,
                "" if able else _away(snapshot, partitions),
            )


PARTITION_JUDGES: dict[str, JudgeCluster] = {
    "offline": _offline,
    "below-min-insync": _below_min,
    "under-replicated": _under_replicated,
    "leader-elsewhere": _leader_elsewhere,
}

LimitValues = Mapping[str, float]
FLUSH_NEVER = 9_223_372_036_854_775_807


def _chosen(topic: TopicSnapshot) -> bool:
    """Whether the topic itself sets both settings that decide between CP and AP, as `advise settings` does."""
    return (
        topic.is_set_on_topic(MIN_ISR_CONFIG) and topic.is_set_on_topic(UNCLEAN_ELECTION_CONFIG) and not topic.internal
    )


def _third_copy(snapshot: ClusterSnapshot, topic: TopicSnapshot, limits: LimitValues) -> tuple[tuple[str, ...], str]:
    """No command if the policy wants two replicas: another rule's command would undo it."""
    if limits["copies"] < 3:
        return (), "give it a third replica, or waive this in a policy: two keep the records or the writing, not both"
    return advice_report.build_more_replicas_command(snapshot, topic, int(limits["copies"]))


def _single_copy(snapshot: ClusterSnapshot, limits: LimitValues) -> Iterator[RuleCase]:
    for topic in snapshot.own_topics():
        if topic.copies == 1 < limits["copies"]:
            lines, by_hand = advice_report.build_more_replicas_command(snapshot, topic, int(limits["copies"]))
            parts = [str(partition.number) for partition in topic.partitions if len(partition.replicas) == 1]
            flush = "" if _flushes(topic) else "; nothing makes its broker flush, so the machine's power is enough"
            yield RuleCase(
                f"topic {topic.name}",
                f"one replica of partition {join_names(parts, ITEMS_NAMED_MAX)}{flush}",
                lines,
                by_hand,
            )


def _few_copies(snapshot: ClusterSnapshot, limits: LimitValues) -> Iterator[RuleCase]:
    for topic in snapshot.own_topics():
        if 1 < topic.copies < limits["copies"]:
            lines, by_hand = advice_report.build_more_replicas_command(snapshot, topic, int(limits["copies"]))
            yield RuleCase(f"topic {topic.name}", f"{topic.copies} replicas", lines, by_hand)


def _min_isr_low(snapshot: ClusterSnapshot, limits: LimitValues) -> Iterator[RuleCase]:
    for topic in snapshot.own_topics():
        minimum, enough = topic.number(MIN_ISR_CONFIG), compute_majority(topic.copies)
        if minimum is not None and topic.copies > 1 and minimum < enough:
            # An owner who set this on the topic may want writing to go on with the last replica.
            own = topic.is_set_on_topic(MIN_ISR_CONFIG)
            able = topic.settled and not own
            safe = TopicConfigChange(topic.name, ((MIN_ISR_CONFIG, str(enough)),)) if able else None
            meant = "waive it in a policy if writing shall go on with the last replica" if own else ""
            evidence = f"{MIN_ISR_CONFIG}={minimum} of {topic.copies} replicas; {enough} would be more than half"
            severity = Severity.NOTE if minimum == 1 and _chosen(topic) else None
            evidence += "; set on the topic with unclean election, as AP has it" if severity else ""
            if topic.copies > 2:
                lines, later = advice_report.build_min_isr_command(snapshot, topic, enough)
                by_hand = "; ".join(filter(None, (meant, later)))
                yield RuleCase(f"topic {topic.name}", evidence, lines, by_hand, safe, severity)
                continue
            # With two replicas both would be needed. A third comes first, and copies while writing goes on.
            lines, by_hand = _third_copy(snapshot, topic, limits)
            line = advice_report.build_set_topic_command(snapshot, topic.name, {MIN_ISR_CONFIG: str(enough)})
            after = by_hand or f"once the third replica is in sync: {line}"
            yield RuleCase(f"topic {topic.name}", evidence, lines, after, severity=severity)


def _min_isr_high(snapshot: ClusterSnapshot, limits: LimitValues) -> Iterator[RuleCase]:
    for topic in snapshot.own_topics():
        minimum, copies = topic.number(MIN_ISR_CONFIG), topic.copies
        if minimum is None:
            continue
        counts = snapshot.effective_min_isr(minimum, copies)
        if counts < copies or counts < 2:
            continue
        evidence = f"{MIN_ISR_CONFIG}={minimum} of {count_phrase(copies, 'replica')}"
        evidence += f", of which Kafka asks for {counts}" if counts < minimum else ""
        if copies < 3:
            lines, by_hand = _third_copy(snapshot, topic, limits)
            # With two replicas, no loss requires both: that owner accepts that writing waits.
            severity = Severity.NOTE if minimum == compute_majority(copies) and _chosen(topic) else None
            evidence += "; set on the topic with unclean election, as CP has it" if severity else ""
            yield RuleCase(f"topic {topic.name}", evidence, lines, by_hand, severity=severity)
            continue
        # No automatic fix: the owner may have meant the promise that this takes back.
        lines, later = advice_report.build_min_isr_command(snapshot, topic, compute_majority(copies))
        meant = "waive it in a policy if writers shall be refused as soon as one replica is away"
        yield RuleCase(f"topic {topic.name}", evidence, lines, "; ".join(filter(None, (later, meant))))


def _unclean(snapshot: ClusterSnapshot, _: LimitValues) -> Iterator[RuleCase]:
    for topic in snapshot.topics:
        if topic.says(UNCLEAN_ELECTION_CONFIG) != "true":
            continue
        change = {UNCLEAN_ELECTION_CONFIG: "false"}
        # For a partition without a leader this may be the only way back: the owner must decide.
        led = all(partition.leader >= 0 for partition in topic.partitions)
        # If one replica in sync is enough to write, the owner has put writing first.
        meant = _chosen(topic) and topic.number(MIN_ISR_CONFIG) == 1
        safe = TopicConfigChange(topic.name, tuple(change.items())) if led and not meant else None
        where = "set on the topic" if topic.is_set_on_topic(UNCLEAN_ELECTION_CONFIG) else "by the brokers' default"
        where += f" with {MIN_ISR_CONFIG}=1: writing goes on, whatever is lost" if meant else ""
        line = advice_report.build_set_topic_command(snapshot, topic.name, change)
        severity = Severity.WARNING if meant else None
        yield RuleCase(
            f"topic {topic.name}", f"{UNCLEAN_ELECTION_CONFIG}=true, {where}", (line,), safe=safe, severity=severity
        )


def _flushes(topic: TopicSnapshot) -> bool:
    return any((topic.number(name) or FLUSH_NEVER) < FLUSH_NEVER for name in ("flush.messages", "flush.ms"))


def _flush_forced(snapshot: ClusterSnapshot, limits: LimitValues) -> Iterator[RuleCase]:
    for topic in snapshot.own_topics():
        records, time_ms = topic.number("flush.messages"), topic.number("flush.ms")
        often = [f"flush.messages={records}"] if records is not None and records < limits["records"] else []
        often += [f"flush.ms={time_ms}"] if time_ms is not None and time_ms < limits["ms"] else []
        if often and topic.copies > 1:
            names = [one.partition("=")[0] for one in often if topic.is_set_on_topic(one.partition("=")[0])]
            if names:
                line = (advice_report.build_unset_topic_command(snapshot, topic.name, names),)
                yield RuleCase(f"topic {topic.name}", " and ".join(often), line)
                continue
            names = [f"log.flush.interval.{one.partition('=')[0].removeprefix('flush.')}" for one in often]
            by_hand = f"take {', '.join(names)} out of server.properties of every broker, and restart them in turn"
            yield RuleCase(f"topic {topic.name}", f"{' and '.join(often)}, by the brokers' default", (), by_hand)


def _message_size(snapshot: ClusterSnapshot, _: LimitValues) -> Iterator[RuleCase]:
    fetches = {broker.node: broker.number("replica.fetch.max.bytes") for broker in snapshot.brokers}
    least = min(((size, node) for node, size in fetches.items() if size is not None), default=None)
    if least is None:
        return
    for topic in snapshot.own_topics():
        most = topic.number("max.message.bytes")
        # Kafka's default exceeds the fetch's 1 MiB by 12 bytes, a batch's header: no finding.
        if most is not None and most > least[0] + 12:
            evidence = f"max.message.bytes={most} where broker {least[1]} has replica.fetch.max.bytes={least[0]}"
            by_hand = advice_report.describe_server_properties({"replica.fetch.max.bytes": str(most)})
            yield RuleCase(f"topic {topic.name}", evidence, by_hand=by_hand)


def _one_rack(snapshot: ClusterSnapshot, limits: LimitValues) -> Iterator[RuleCase]:
    racks = set(snapshot.racks.values())
    if len(racks) < 2 or "" in racks:
        return
    for topic in snapshot.topics:
        alone = [partition for partition in topic.partitions if is_in_one_rack(snapshot.racks, partition)]
        if alone:
            # The same target as few-copies: two assignments of one partition would undo each other.
            copies = int(limits["copies"]) if len(snapshot.brokers) >= limits["copies"] else 1
            named = [
                f"{partition.number} (rack {snapshot.racks.get(partition.replicas[0], '')})" for partition in alone
            ]
            lines, by_hand = advice_report.build_more_replicas_command(snapshot, topic, copies)
            yield RuleCase(
                f"topic {topic.name}", f"all replicas of partition {join_names(named, ITEMS_NAMED_MAX)}", lines, by_hand
            )


TOPIC_JUDGES: dict[str, JudgeCluster] = {
    "single-copy": _single_copy,
    "few-copies": _few_copies,
    "min-insync-low": _min_isr_low,
    "min-insync-high": _min_isr_high,
    "unclean-election": _unclean,
    "flush-forced": _flush_forced,
    "message-size": _message_size,
    "one-rack": _one_rack,
}


def _weak(name: str, factor: str = "") -> JudgeCluster:
    """Judges this topic. `factor`: the broker setting that applies when Kafka creates the topic."""

    def judge(snapshot: ClusterSnapshot, limits: Mapping[str, float]) -> Iterator[RuleCase]:
        copies, minimum = int(limits["copies"]), int(limits["min_insync"])
        topic = snapshot.topic(name)
        if topic is not None:
            yield from _made(snapshot, topic, copies, minimum)
            return
        if not factor:
            return
        # Kafka creates the topic at its first use, with the brokers' settings at that time.
        low = [broker for broker in snapshot.brokers if (broker.number(factor) or copies) < copies]
        if low:
            nodes = ", ".join(str(broker.node) for broker in low)
            evidence = f"it is not made yet; {factor}={low[0].number(factor)} at broker {nodes}"
            yield RuleCase(
                f"topic {name}", evidence, by_hand=advice_report.describe_server_properties({factor: str(copies)})
            )

    return judge


def _made(snapshot: ClusterSnapshot, topic: TopicSnapshot, copies: int, minimum: int) -> Iterator[RuleCase]:
    weak: list[str] = []
    lines: list[str] = []
    by_hand = ""
    if topic.copies < copies:
        weak.append(count_phrase(topic.copies, "replica"))
        now, by_hand = advice_report.build_more_replicas_command(snapshot, topic, copies)
        lines += now
    told = topic.number(MIN_ISR_CONFIG)
    safe = None
    if told is not None and told < minimum:
        weak.append(f"{MIN_ISR_CONFIG}={told}")
        if topic.copies >= minimum:
            now, later = advice_report.build_min_isr_command(snapshot, topic, minimum)
            lines += now
            by_hand = "; ".join(filter(None, (by_hand, later)))
        else:
            # Set earlier, this would refuse the groups' commits.
            line = advice_report.build_set_topic_command(snapshot, topic.name, {MIN_ISR_CONFIG: str(minimum)})
            by_hand = f"{by_hand or 'reassign its partitions'}; once the new replicas are in sync: {line}"
        # Automatic only if this fixes everything and one replica may still fail.
        if topic.settled and topic.copies >= max(copies, minimum + 1):
            safe = TopicConfigChange(topic.name, ((MIN_ISR_CONFIG, str(minimum)),))
    if weak:
        yield RuleCase(f"topic {topic.name}", " and ".join(weak), tuple(lines), by_hand, safe)


INTERNAL_JUDGES: dict[str, JudgeCluster] = {
    "offsets-topic": _weak(OFFSETS_TOPIC, "offsets.topic.replication.factor"),
    "transactions-topic": _weak(TRANSACTIONS_TOPIC, "transaction.state.log.replication.factor"),
    "shares-topic": _weak(SHARES_TOPIC),
}
