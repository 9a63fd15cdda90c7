"""Rules about topics: copies, what is asked of them, and where they are. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from twinshore.advisor import commands
from twinshore.advisor.profiles import MIN_ISR, UNCLEAN, majority
from twinshore.advisor.rule import Change, Found, Limit, Rule, Weight
from twinshore.advisor.seen import Seen, Topic
from twinshore.fleet.sentences import counted, listed

NAMED = 10
Limits = Mapping[str, float]
COPIES = Limit("copies", 3, "replicas that a partition should have")
FLUSH_NEVER = 9_223_372_036_854_775_807


def _more_copies(seen: Seen, topic: Topic, copies: int) -> tuple[tuple[str, ...], str]:
    """The command that gives it so many, or what must be done before."""
    moved = commands.placed(seen, topic, copies)
    if moved is None:
        return (), f"start {counted(copies - len(seen.brokers), 'more broker')}, then reassign the topic's partitions"
    return (commands.reassign(seen, topic.name, moved),), ""


def _single_copy(seen: Seen, limits: Limits) -> Iterator[Found]:
    for topic in seen.own_topics():
        if topic.copies == 1:
            lines, by_hand = _more_copies(seen, topic, int(limits["copies"]))
            parts = [str(part.number) for part in topic.partitions if len(part.replicas) == 1]
            flush = "" if _flushes(topic) else "; nothing makes its broker flush, so the machine's power is enough"
            yield Found(
                f"topic {topic.name}", f"one replica of partition {listed(parts, NAMED)}{flush}", lines, by_hand
            )


def _few_copies(seen: Seen, limits: Limits) -> Iterator[Found]:
    for topic in seen.own_topics():
        if 1 < topic.copies < limits["copies"]:
            lines, by_hand = _more_copies(seen, topic, int(limits["copies"]))
            yield Found(f"topic {topic.name}", f"{topic.copies} replicas", lines, by_hand)


def _min_isr_low(seen: Seen, _: Limits) -> Iterator[Found]:
    for topic in seen.own_topics():
        minimum, enough = topic.number(MIN_ISR), majority(topic.copies)
        if minimum is not None and topic.copies > 1 and minimum < enough:
            change = {MIN_ISR: str(enough)}
            # Raised while a replica is away it would refuse writes at the very next loss.
            safe = Change(topic.name, tuple(change.items())) if topic.in_sync > enough else None
            evidence = f"{MIN_ISR}={minimum} of {topic.copies} replicas; {enough} would be more than half"
            line = commands.set_on_topic(seen, topic.name, change)
            if topic.copies > 2:
                yield Found(f"topic {topic.name}", evidence, (line,), safe=safe)
                continue
            # Of two replicas both would be needed: a third comes first, and copies while others write.
            lines, by_hand = _more_copies(seen, topic, 3)
            after = by_hand or f"once the third replica is in sync: {line}"
            yield Found(f"topic {topic.name}", evidence, lines, after)


def _min_isr_high(seen: Seen, _: Limits) -> Iterator[Found]:
    for topic in seen.own_topics():
        minimum, copies = topic.number(MIN_ISR), topic.copies
        if minimum is None or minimum < copies or minimum < 2:
            continue
        evidence = f"{MIN_ISR}={minimum} of {counted(copies, 'replica')}"
        if copies < 3:
            lines, by_hand = _more_copies(seen, topic, 3)
            yield Found(f"topic {topic.name}", evidence, lines, by_hand)
            continue
        change = {MIN_ISR: str(majority(copies))}
        safe = Change(topic.name, tuple(change.items()))
        yield Found(f"topic {topic.name}", evidence, (commands.set_on_topic(seen, topic.name, change),), safe=safe)


def _unclean(seen: Seen, _: Limits) -> Iterator[Found]:
    for topic in seen.topics:
        if topic.says(UNCLEAN) != "true":
            continue
        change = {UNCLEAN: "false"}
        # A partition that waits for a leader now may have no other way back: that is its owner's decision.
        led = all(part.leader >= 0 for part in topic.partitions)
        safe = Change(topic.name, tuple(change.items())) if led else None
        where = "set on the topic" if topic.owns(UNCLEAN) else "by the brokers' default"
        line = commands.set_on_topic(seen, topic.name, change)
        yield Found(f"topic {topic.name}", f"{UNCLEAN}=true, {where}", (line,), safe=safe)


def _flushes(topic: Topic) -> bool:
    return any((topic.number(name) or FLUSH_NEVER) < FLUSH_NEVER for name in ("flush.messages", "flush.ms"))


def _flush_forced(seen: Seen, limits: Limits) -> Iterator[Found]:
    for topic in seen.own_topics():
        records, time_ms = topic.number("flush.messages"), topic.number("flush.ms")
        often = [f"flush.messages={records}"] if records is not None and records < limits["records"] else []
        often += [f"flush.ms={time_ms}"] if time_ms is not None and time_ms < limits["ms"] else []
        if often and topic.copies > 1:
            names = [one.partition("=")[0] for one in often if topic.owns(one.partition("=")[0])]
            if names:
                line = (commands.unset_on_topic(seen, topic.name, names),)
                yield Found(f"topic {topic.name}", " and ".join(often), line)
                continue
            names = [f"log.flush.interval.{one.partition('=')[0].removeprefix('flush.')}" for one in often]
            by_hand = f"take {', '.join(names)} out of server.properties of every broker, and restart them in turn"
            yield Found(f"topic {topic.name}", f"{' and '.join(often)}, by the brokers' default", (), by_hand)


def _message_size(seen: Seen, _: Limits) -> Iterator[Found]:
    fetches = {one.node: one.number("replica.fetch.max.bytes") for one in seen.brokers}
    least = min(((size, node) for node, size in fetches.items() if size is not None), default=None)
    if least is None:
        return
    for topic in seen.own_topics():
        most = topic.number("max.message.bytes")
        # Kafka's own default is 12 bytes, the header of a batch, above the fetch's 1 MiB: no case of this.
        if most is not None and most > least[0] + 12:
            evidence = f"max.message.bytes={most} where broker {least[1]} has replica.fetch.max.bytes={least[0]}"
            by_hand = commands.in_properties({"replica.fetch.max.bytes": str(most)})
            yield Found(f"topic {topic.name}", evidence, by_hand=by_hand)


def _one_rack(seen: Seen, _: Limits) -> Iterator[Found]:
    racks = set(seen.racks.values())
    if len(racks) < 2 or "" in racks:
        return
    for topic in seen.topics:
        alone = [
            part
            for part in topic.partitions
            if len(part.replicas) > 1 and len({seen.racks.get(node, "") for node in part.replicas}) == 1
        ]
        if alone:
            # As few-copies has it: two assignments of one partition would undo each other.
            copies = int(COPIES.default) if len(seen.brokers) >= COPIES.default else 1
            moved = commands.placed(seen, topic, copies) or {}
            named = [f"{part.number} (rack {seen.racks.get(part.replicas[0], '')})" for part in alone]
            line = commands.reassign(seen, topic.name, moved)
            yield Found(f"topic {topic.name}", f"all replicas of partition {listed(named, NAMED)}", (line,))


TOPIC_RULES = (
    Rule(
        "single-copy",
        Weight.GRAVE,
        "a topic has one replica",
        "all of its records on that broker, and writing until it is back",
        "one broker or its disk is lost",
        _single_copy,
        (COPIES,),
    ),
    Rule(
        "few-copies",
        Weight.WARNING,
        "a topic has fewer replicas than it should",
        "records, or writing: with two replicas one has to be chosen",
        "a second broker is lost while the first is away, for instance restarted",
        _few_copies,
        (COPIES,),
    ),
    Rule(
        "min-insync-low",
        Weight.WARNING,
        "min.insync.replicas is less than a majority",
        "records that were acknowledged to producers with acks=all",
        "followers are behind, then the leader is lost",
        _min_isr_low,
    ),
    Rule(
        "min-insync-high",
        Weight.GRAVE,
        "min.insync.replicas is as many as there are replicas, or more",
        "writing with acks=all: producers get NOT_ENOUGH_REPLICAS",
        "one broker is away, also when it is only restarted",
        _min_isr_high,
    ),
    Rule(
        "unclean-election",
        Weight.GRAVE,
        "a replica that lacks records may become leader",
        "records that were acknowledged, with whatever acks: the logs of the others are cut to the new leader's",
        "all replicas in sync are lost, and one that is behind is there",
        _unclean,
    ),
    Rule(
        "flush-forced",
        Weight.NOTE,
        "each few records are forced to disk",
        "latency and throughput; replicas guard records better",
        "always",
        _flush_forced,
        (
            Limit("records", 1000, "flush.messages from which on it is no matter"),
            Limit("ms", 1000, "flush.ms from which on it is no matter"),
        ),
    ),
    Rule(
        "message-size",
        Weight.WARNING,
        "batches may be larger than a follower's fetch",
        "replicas in sync: a follower gets one such batch for each request, and falls behind",
        "a producer sends such batches faster than followers take them one by one",
        _message_size,
    ),
    Rule(
        "one-rack",
        Weight.WARNING,
        "all replicas of a partition are in one rack",
        "its records, and writing",
        "that rack or zone loses its power or its network",
        _one_rack,
    ),
)
