"""Where the logs of both homes end, and which transactions are open on the old one. Only asks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from twinshore.fleet import KafkaError, NamedPartition
from twinshore.fleet.sentences import counted, have, listed
from twinshore.kafka.cluster import KafkaCluster, OffsetKind
from twinshore.kafka.transactions import Transactions
from twinshore.switch.decision import Cannot, Done, Outcome, Wait
from twinshore.switch.deeds import Kind
from twinshore.switch.record import Moved, Record

ASK_S = 5.0
NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class LogEnds:
    """`ends` of each topic by partition. `unsettled`: a sentence where replicas lag or a transaction is open."""

    ends: dict[str, tuple[int, ...]]
    unsettled: str = ""


def log_ends(cluster: KafkaCluster, topics: Iterable[Moved]) -> LogEnds:
    """The log ends of these topics, read at all three heights."""
    some = list(topics)
    parts = [NamedPartition(one.topic, number) for one in some for number in range(one.partitions)]
    # The end first: a log that grows between the questions is neither behind nor held by a transaction.
    end, high, stable = (
        cluster.list_offsets(parts, kind)
        for kind in (OffsetKind.LOG_END, OffsetKind.HIGH_WATERMARK, OffsetKind.LAST_STABLE)
    )
    lagging = [str(named) for named in parts if high[named] < end[named]]
    held = [str(named) for named in parts if stable[named] < high[named]]
    unsettled = ""
    if lagging:
        unsettled = f"replicas on {cluster.name} are behind their leaders in {listed(lagging, NAMED_MAX)}"
    elif held:
        unsettled = f"a transaction is open on {cluster.name} in {listed(held, NAMED_MAX)}"
    ends = {
        one.topic: tuple(end[NamedPartition(one.topic, number)] for number in range(one.partitions)) for one in some
    }
    return LogEnds(ends, unsettled)


def open_transactions(cluster: KafkaCluster, topics: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Where markers are still to come, by transactional id; also of transactions that have written nothing yet."""
    names = set(topics)
    asker = Transactions(cluster, patience_s=ASK_S, go=lambda: None)
    found = {
        name: tuple(sorted(str(named) for named in parts if named.topic in names))
        for name, parts in asker.open_by_id("").items()
    }
    return {name: parts for name, parts in found.items() if parts}


def drain(old: KafkaCluster, record: Record) -> Outcome:
    """Done once nothing is open on the topics and two looks behind each other saw the same ends."""
    due = open_transactions(old, record.names())
    parts = listed(sorted({named for some in due.values() for named in some}), NAMED_MAX)
    if record.kind is Kind.DRILL:
        seen = log_ends(old, record.topics)
        would = f"; transactions are open in {parts}, and would be waited for" if due else ""
        return Done(_ending(record, seen), f"the logs on {old.name} as they are now{would}")
    if due:
        return Wait(f"{listed(list(due), NAMED_MAX)} {have(due)} a transaction open on {old.name} in {parts}")
    seen = log_ends(old, record.topics)
    found = _ending(record, seen)
    if seen.unsettled:
        return Wait(seen.unsettled, found)
    if not all(one.ends for one in record.topics):
        return Wait(f"the logs on {old.name} are looked at a second time", found)
    if grows := _grown(record, {one.topic: one.ends for one in record.topics}, seen):
        return Wait(f"somebody still writes to {grows} on {old.name}", found)
    return Done(found, f"nothing is open on {old.name}, and two looks saw the same ends")


def level(new: KafkaCluster, record: Record) -> Outcome:
    """Done once the twins end where the old home does; their ends are the points at which the topics change homes."""
    seen = log_ends(new, record.topics)
    behind = sum(
        max(0, old_end - new_end)
        for one in record.topics
        for old_end, new_end in zip(one.ends, seen.ends[one.topic], strict=True)
    )
    if behind:
        return Wait(f"the twins on {new.name} are {counted(behind, 'offset')} behind")
    if record.kind is Kind.DRILL:
        points = tuple(replace(one, points=one.ends) for one in record.topics)
        return Done(replace(record, topics=points), f"the twins on {new.name} have come as far")
    if seen.unsettled:
        return Wait(seen.unsettled)
    beyond = [one.topic for one in record.topics if one.ends != seen.ends[one.topic]]
    if beyond:
        return Cannot(f"{listed(beyond, NAMED_MAX)} on {new.name} ends beyond the old home: somebody else wrote there")
    return Done(_at(record, seen), f"the twins on {new.name} are level")


def changed(cluster: KafkaCluster, topics: Iterable[Moved], *, new: bool) -> str:
    """What is not as it was planned: a topic made again, or with other partitions. A partition that nobody planned with
    would be left behind. Empty where all is as it was."""
    some = list(topics)
    seen = cluster.metadata([one.topic for one in some], refresh=True).topics
    for one in some:
        topic = seen.get(one.topic)
        if topic is None or topic.error:
            return f"topic {one.topic} is not on {cluster.name} now"
        if topic.topic_id.hex() != (one.new_id if new else one.old_id):
            return f"topic {one.topic} was deleted and made again on {cluster.name}"
        if len(topic.partitions) != one.partitions:
            count = counted(len(topic.partitions), "partition")
            return f"topic {one.topic} has {count} on {cluster.name}, and the link carries {one.partitions}: plan again"
    return ""


def behind(old: KafkaCluster, new: KafkaCluster, topics: Iterable[Moved]) -> int:
    """How many offsets the twins lack now, whatever receipts say."""
    some = list(topics)
    ours, theirs = (log_ends(cluster, some).ends for cluster in (old, new))
    return sum(max(0, end - twin) for one in some for end, twin in zip(ours[one.topic], theirs[one.topic], strict=True))


def written_since(old: KafkaCluster, record: Record) -> str:
    """Who wrote on the old home though nobody should; empty where its logs end at the points still."""
    grown = _grown(record, {one.topic: one.points for one in record.topics}, log_ends(old, record.topics))
    return f"somebody wrote to {grown} on {old.name} while writers were held" if grown else ""


def _grown(record: Record, before: Mapping[str, tuple[int, ...]], seen: LogEnds) -> str:
    """Which partitions end elsewhere than before; empty where none does."""
    grown = [
        f"{one.topic}-{number}"
        for one in record.topics
        for number, (then, now) in enumerate(zip(before[one.topic], seen.ends[one.topic], strict=True))
        if then != now
    ]
    return listed(grown, NAMED_MAX)


def answers(cluster: KafkaCluster) -> str:
    """Why the cluster cannot be asked now; empty where it can."""
    try:
        cluster.cluster_id()
        cluster.metadata([], refresh=True)
    except KafkaError as error:
        return error.message
    return ""


def _ending(record: Record, seen: LogEnds) -> Record:
    return replace(record, topics=tuple(replace(one, ends=seen.ends[one.topic]) for one in record.topics))


def _at(record: Record, seen: LogEnds) -> Record:
    return replace(record, topics=tuple(replace(one, points=seen.ends[one.topic]) for one in record.topics))
