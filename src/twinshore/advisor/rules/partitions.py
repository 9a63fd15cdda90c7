"""Rules about partitions as they are now: leaders, and replicas in sync. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from twinshore.advisor import commands
from twinshore.advisor.profiles import MIN_ISR
from twinshore.advisor.rule import Found, Rule, Weight
from twinshore.advisor.seen import NO_LEADER, Partition, Seen, Topic
from twinshore.fleet.sentences import listed

NAMED = 10


def _where(topic: Topic, meant: Callable[[Partition], bool]) -> list[Partition]:
    return [part for part in topic.partitions if meant(part)]


def _named(parts: list[Partition]) -> str:
    return listed(
        [f"{part.number} (replicas {_nodes(part.replicas)}, in sync {_nodes(part.isr)})" for part in parts], NAMED
    )


def _nodes(nodes: tuple[int, ...]) -> str:
    return ",".join(map(str, nodes)) or "none"


def _away(seen: Seen, parts: list[Partition]) -> str:
    """Which brokers have to come back."""
    lacking = {node for part in parts for node in part.replicas if node not in (*part.isr, *part.removing)}
    if not lacking:
        return "what takes its place is copied right now: look again once it is in sync"
    away = sorted(lacking - seen.racks.keys())
    if away:
        return f"bring broker {', '.join(map(str, away))} back: it does not answer the cluster"
    behind = ", ".join(map(str, sorted(lacking)))
    return f"see why broker {behind} does not keep up: its log, its disk, its network"


def _offline(seen: Seen, _: Mapping[str, float]) -> Iterator[Found]:
    for topic in seen.topics:
        if parts := _where(topic, lambda part: part.leader == NO_LEADER):
            yield Found(f"topic {topic.name}", f"no leader of partition {_named(parts)}", by_hand=_back(parts))


def _back(parts: list[Partition]) -> str:
    told = []
    if last := sorted({node for part in parts for node in part.isr}):
        told.append(
            f"start broker {', '.join(map(str, last))} again: it was in sync last, and has all that was acknowledged"
        )
    if unknown := [part for part in parts if not part.isr]:
        nodes = ", ".join(map(str, sorted({node for part in unknown for node in part.replicas})))
        told.append(
            f"start broker {nodes} again: none is in sync, and which one has all that was acknowledged is not told here"
            " (of eligible leader replicas `kafka-topics.sh --describe` shows Elr and LastKnownElr)"
        )
    return "; ".join([*told, "an unclean election would lose records"])


def _below_min(seen: Seen, _: Mapping[str, float]) -> Iterator[Found]:
    for topic in seen.topics:
        minimum = topic.number(MIN_ISR)
        if minimum is None:
            continue
        # What can never be met is the case of min-insync-high.
        parts = [
            one
            for one in topic.partitions
            if one.leader >= 0
            and len(one.isr) < seen.min_isr_that_counts(minimum, len(one.replicas)) <= len(one.replicas)
        ]
        if parts:
            evidence = f"{MIN_ISR}={minimum}, partition {_named(parts)}"
            yield Found(f"topic {topic.name}", evidence, by_hand=_away(seen, parts))


def _under_replicated(seen: Seen, _: Mapping[str, float]) -> Iterator[Found]:
    for topic in seen.topics:
        if parts := _where(topic, lambda part: part.leader >= 0 and not set(part.replicas) <= set(part.isr)):
            yield Found(f"topic {topic.name}", f"partition {_named(parts)}", by_hand=_away(seen, parts))


def _leader_elsewhere(seen: Seen, _: Mapping[str, float]) -> Iterator[Found]:
    for topic in seen.topics:
        # Which one is preferred changes with a move, and who leads follows at its end.
        parts = _where(
            topic,
            lambda part: bool(part.replicas) and not part.moves and part.leader not in (NO_LEADER, part.replicas[0]),
        )
        if parts:
            named = listed([f"{one.number} (broker {one.leader}, not {one.replicas[0]})" for one in parts], NAMED)
            able = [part.number for part in parts if part.replicas[0] in part.isr]
            lines = (commands.elect_preferred(seen, topic.name, able),) if able else ()
            yield Found(
                f"topic {topic.name}", f"leader of partition {named}", lines, "" if able else _away(seen, parts)
            )


PARTITION_RULES = (
    Rule(
        "offline",
        Weight.GRAVE,
        "a partition has no leader",
        "reading and writing, now; and its records, if its replicas in sync never come back",
        "now",
        _offline,
        story="unclean",
    ),
    Rule(
        "below-min-insync",
        Weight.GRAVE,
        "fewer replicas are in sync than min.insync.replicas asks for",
        "writing with acks=all, now",
        "now",
        _below_min,
        story="refused",
    ),
    Rule(
        "under-replicated",
        Weight.WARNING,
        "a replica is not in sync",
        "records that only those in sync have",
        "those are lost before it has caught up",
        _under_replicated,
        story="min-insync-1",
    ),
    Rule(
        "leader-elsewhere",
        Weight.NOTE,
        "a leader is not the preferred one",
        "balance: some brokers carry more than their part",
        "traffic grows",
        _leader_elsewhere,
    ),
)
