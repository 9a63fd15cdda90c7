"""What a forced switch takes over, what it may leave inconsistent, and how much it may lose.

A forced switch takes over unfinished switches of its topics, which then count as rolled back. Changes on the new home
are undone at once; those on the old home, which may be gone, become a deferred cleanup.

A fail-back or a rebuild makes twins of topics whose home may die during the run. Before the point of no return, such a
switch is taken over like any other. Past that point, topics under refill stay in the old switch: their twins are
incomplete, and the rest is on the unreachable home.

Committed offsets, output records and state of a group are replicated one by one. If `outputs` name all topics that the
group writes, its offsets waited for these: output may be duplicated, and nothing is missing. Otherwise output may also
be missing.

The possible loss is estimated from the log ends that the mirror last saw, including paused topics. Progress rows only
know what came with replicated batches, so their figure is a lower bound.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from twinshore.config.model import next_term
from twinshore.config.sentences import count_phrase, join_names
from twinshore.groups.core.commit_rules import OutputRules, output_topics
from twinshore.kafka.protocol.offsets import TopicPartitionTuple
from twinshore.replication.core.lag import LagStatus
from twinshore.state.core.values import HomeRow, ReplicatedPosition
from twinshore.switch.core.acl_rules import deferred_cleanup_of, has_promoted, select_rights
from twinshore.switch.core.steps import (
    MAKES_TWINS,
    MOVES_HOMES,
    SwitchKind,
    SwitchState,
    SwitchStatus,
    SwitchStep,
    is_past,
)
from twinshore.switch.core.unreplicated import ranges_from_json, topics_of_ranges

HomeEpoch = tuple[str, int]  # its cluster, and its term


def why_not_take_over(state: SwitchState, old: str, new: str, *, answers: bool = True) -> str:
    """Returns why a forced switch from `old` to `new` may not take this one over, or an empty string. `answers`:
    whether `old` does.
    """
    if state.state is SwitchStatus.DONE:
        return ""  # nothing but its claims can be left
    # Without the store it writes to the cluster that keeps its state, regardless of claims in the store.
    alone = bool(state.kept) and not state.awaits_store
    if is_reversed_by(state, old, new) and not (alone and answers):
        return ""  # the switch back moves its topics from the home that it gave them
    if alone:
        return "may go on without the store: `twinshore switch resume` or `rollback` moves it into the store"
    if state.committed and not is_refilling(state):
        return f"is past its point of no return ({state.step.words}): `twinshore switch resume` ends it"
    if state.kind in MAKES_TWINS and (state.new, state.old) != (old, new):
        return f"makes twins of them on {state.old}: `twinshore switch rollback` ends it"
    if state.kind not in MAKES_TWINS | MOVES_HOMES:
        return f"is a {state.kind}: `twinshore switch rollback` ends it"
    if state.kind not in MAKES_TWINS and (state.old, state.new) != (old, new):
        return f"moves them from {state.old} to {state.new}: `twinshore switch rollback` ends it"
    return ""


def is_reversed_by(state: SwitchState, old: str, new: str) -> bool:
    """Returns whether a switch from `old` to `new` moves topics back that this one has moved."""
    return has_promoted(state) and (state.new, state.old) == (old, new)


def is_refilling(state: SwitchState) -> bool:
    """Returns whether the switch has deleted twins, or is about to: without their home these stay incomplete."""
    past = state.committed and not state.ended and not is_past(state.kind, state.step, SwitchStep.REFILL)
    return past and state.kind in (SwitchKind.FAILBACK, SwitchKind.REBUILD)


def refilling_topics(state: SwitchState) -> tuple[str, ...]:
    """Returns the topics whose twins are under refill. Clients cannot be sent to these."""
    if not is_refilling(state):
        return ()
    if state.kind is SwitchKind.REBUILD:
        return state.names()
    return tuple(topic for topic in topics_of_ranges(ranges_from_json(state.tails)) if topic in state.names())


def homes_by_topic(rows: Mapping[str, HomeRow]) -> dict[str, HomeEpoch]:
    return {topic: (row.home, row.term) for topic, row in rows.items()}


def find_topics_moved_since(state: SwitchState, *homes: Mapping[str, HomeEpoch]) -> tuple[str, ...]:
    """Returns topics of a committed switch that, by any of `homes`, have moved again: the remaining steps would act on
    an outdated home.
    """
    if state.kind not in MOVES_HOMES or not state.committed:
        return ()
    moved = {move.topic: (state.new, next_term(move.term)) for move in state.topics}
    now = [(topic, home) for epochs in homes for topic, home in epochs.items() if topic in moved]
    return tuple(sorted({topic for topic, home in now if home[1] >= moved[topic][1] and home != moved[topic]}))


def drop_topics(
    state: SwitchState, topics: Collection[str], now_ms: int, why: str = "has moved on since"
) -> SwitchState:
    """Returns the switch without these topics; done if none is left."""
    if not topics:
        return state
    left = tuple(move for move in state.topics if move.topic not in topics)
    rights = select_rights(state.rights, [move.topic for move in left]) if has_promoted(state) else state.rights
    which = f"{join_names(state.names())} {why}"
    state = replace(state, rights=rights).tell(now_ms, f"{join_names(sorted(topics))} {why}: this switch leaves it")
    if left:
        return replace(state, topics=left)
    return replace(state, state=SwitchStatus.DONE, kept="", awaits_store=False, waits="", why=which)


def mark_taken_over(state: SwitchState, topics: Collection[str], by: str, now_ms: int) -> SwitchState:
    """Returns the state of the switch that was taken over. An ended switch is unchanged; a switch past the point of no
    return goes on with its other topics.
    """
    if state.ended:
        return state
    if is_refilling(state) or (has_promoted(state) and len(topics_taken_over(state, topics)) < len(state.topics)):
        return drop_topics(state, topics_taken_over(state, topics), now_ms, f"is moved by force, by {by}")
    why = f"{by} moves the topics by force"
    if has_promoted(state):
        state = state.tell(now_ms, f"ended at {state.step.words}, as {state.new} is gone: {why}")
        return replace(state, state=SwitchStatus.DONE, kept="", awaits_store=False, waits="")
    state = state.tell(now_ms, f"taken over at {state.step.words}: {why}")
    return replace(state, state=SwitchStatus.ROLLED_BACK, why=why, waits="")


def topics_taken_over(state: SwitchState, topics: Collection[str]) -> tuple[str, ...]:
    """Returns all topics of the switch, or only those in `topics` if the switch keeps the rest."""
    return tuple(one for one in state.names() if one in topics) if keeps_other_topics(state) else state.names()


def topics_freed(state: SwitchState, topics: Collection[str]) -> tuple[str, ...]:
    """Returns the topics whose claims to release. After a crash, topics already dropped from the state may still be
    claimed.
    """
    return tuple(topics) if keeps_other_topics(state) else state.names()


def keeps_other_topics(state: SwitchState) -> bool:
    """Returns whether the switch is too far to roll back the topics that are not taken."""
    return is_refilling(state) or has_promoted(state)


def describe_takeover(state: SwitchState, topics: Collection[str]) -> str:
    cleanup = deferred_cleanup_of(state)
    away = cleanup.old if cleanup else ""
    if state.ended:
        return f"frees what is claimed still for the {_called(state)}, which has ended"
    if has_promoted(state):
        return _said_of_flipped(state, topics)
    which = f"{_called(state)}, by {state.by}, which stands at {state.step.words}"
    if is_refilling(state):
        return f"takes {join_names(topics_taken_over(state, topics))} out of the {which}: nothing was deleted of it"
    later = f"; what it changed on {away} is undone when {away} is back" if away else ""
    return f"takes over the {which}: it counts as turned back{later}"


def _said_of_flipped(state: SwitchState, topics: Collection[str]) -> str:
    which = f"{_called(state)}, by {state.by}, which stands at {state.step.words}: it has moved them already"
    left = sorted(set(state.names()) - set(topics))
    some = join_names(sorted(set(state.names()) & set(topics)))
    what = f"takes {some} out of the {which}, and {join_names(left)} stays on {state.new}" if left else ""
    runs = state.kept and not state.awaits_store and state.step is SwitchStep.AFTER
    command = "; see that no command `after` of it runs any more on another host" if runs else ""
    return (what or f"ends the {which}") + command


def describe_refilling_topics(state: SwitchState, topics: Collection[str]) -> str:
    some = join_names([one for one in refilling_topics(state) if one in topics])
    refill = f"{some}, which the {_called(state)} refills on {state.old}: only a part is there"
    return f"left out: {refill}, and it stays at home on {state.new} until that is back"


def _called(state: SwitchState) -> str:
    noun = state.kind if state.kind is SwitchKind.REBUILD else f"{state.kind} switch"
    return f"{noun} {state.id[:8]} of {join_names(state.names())}"


# Topic suffixes of a Kafka Streams application, whose id is its group's name.
REPARTITION_SUFFIX = "-repartition"
STREAMS_SUFFIXES = ("-changelog", REPARTITION_SUFFIX)


@dataclass(frozen=True, slots=True)
class InconsistentGroup:
    """A group that reads and writes topics of the switch.

    `named`: topics in its `outputs`, for which the offsets waited. `unnamed`: topics inferred by name. `again`: upper
    limit of offsets that are read again. `placeless`: input partitions without a replicated offset; these count in
    full.
    """

    group: str
    named: frozenset[str]
    unnamed: frozenset[str]
    again: int
    placeless: tuple[str, ...] = ()

    def sentence(self) -> str:
        written = join_names(sorted(self.named | self.unnamed))
        if self.unnamed:
            unnamed = join_names(sorted(self.unnamed))
            why = f"no `outputs` name {unnamed}, so its committed offsets did not wait for them"
            sentence = f"what it wrote to {written} may be missing or come twice: {why}"
        else:
            again = f"it reads up to {count_phrase(self.again, 'offset')} again"
            sentence = f"{again}, and {written} may hold already what it wrote of these, and of unreplicated records"
        sentence = f"group {self.group} may be torn: {sentence}"
        if not self.placeless:
            return sentence
        where = f"no committed offset in {join_names(self.placeless)}"
        return f"{sentence}; it has {where}, and starts there where its `auto.offset.reset` says"


def describe_torn_transactions(new: str) -> str:
    """Describes partly replicated transactions: records are replicated below the last stable offset, each partition on
    its own.
    """
    open_ones = f"a transaction that was open has no record on {new}"
    return f"{open_ones}; one that was committed and replicated in part is torn: its replicated records stay"


def topics_read_by_group(
    group: str, rules: OutputRules, topics: Iterable[str], places: Iterable[TopicPartitionTuple]
) -> frozenset[str]:
    """Returns the topics that the group reads, if it is known to write some of them too; else none. A group reads the
    topics where it has a committed offset; a Kafka Streams application also reads the repartition topics.
    """
    some = frozenset(topics)
    own = _own(group, some)
    read = {topic for topic, _ in places if topic in some}
    if not read or not output_topics(rules, group, some) | own:
        return frozenset()
    return frozenset(read | {topic for topic in own if topic.endswith(REPARTITION_SUFFIX)})


def assess_group(
    group: str,
    rules: OutputRules,
    topics: Iterable[str],
    places: Mapping[TopicPartitionTuple, int],
    spans: Mapping[TopicPartitionTuple, tuple[int, int]],
) -> InconsistentGroup | None:
    """Returns None if the group is not known to both read and write these topics. `spans`: start and end offset of each
    input partition.
    """
    some = frozenset(topics)
    reads = topics_read_by_group(group, rules, some, places)
    if not reads:
        return None
    named = output_topics(rules, group, some)
    filled = {where: span for where, span in spans.items() if where[0] in reads and span[1] > span[0]}
    placeless = tuple(f"{topic}-{number}" for topic, number in sorted(filled.keys() - places.keys()))
    again = sum(max(0, end - places.get(where, begin)) for where, (begin, end) in filled.items())
    return InconsistentGroup(group, named, _own(group, some) - named, again, placeless)


def _own(group: str, topics: frozenset[str]) -> frozenset[str]:
    return frozenset(one for one in topics if one.startswith(f"{group}-") and one.endswith(STREAMS_SUFFIXES))


LOSS_UNKNOWN = "how much is lost is not known"  # said first: a count of before may be taken for it


@dataclass(frozen=True, slots=True)
class UnreplicatedOffsets:
    """`offsets` were unreplicated at `seen_ms`; a lower bound unless `whole`. `unknown`: topics without any figure."""

    offsets: int
    seen_ms: int
    whole: bool = True
    unknown: tuple[str, ...] = ()

    def sentences(self, home: str, topics: int, now_ms: int) -> list[str]:
        """`topics`: how many were asked about."""
        if len(self.unknown) == topics:
            return [f"the unreplicated offsets of {home} are not known: this store has not seen where its logs end"]
        age = f"{max(0.0, (now_ms - self.seen_ms) / 1000):.0f} s"
        count = f"{count_phrase(self.offsets, 'offset')} were not replicated"
        if self.whole:
            loss = f"{LOSS_UNKNOWN}: {age} before now, when {home} was last seen, {count}"
        elif self.offsets:
            loss = f"{LOSS_UNKNOWN}: {age} before now, when {home} was last seen in part, at least {count}"
        else:
            seen = f"nothing was missing of the part that was seen {age} ago"
            loss = f"the unreplicated offsets of {home} are not known: {seen}"
        if not self.unknown:
            return [loss]
        unknown = f"the unreplicated offsets of {join_names(self.unknown)} are not known"
        return [loss, f"{unknown}: this store has not seen where that ends"]


def estimate_unreplicated(
    partitions: Mapping[str, int], positions: Iterable[ReplicatedPosition], lag: LagStatus | None, *, every: bool
) -> UnreplicatedOffsets:
    """Estimates by the mirror's last lag status, or by progress rows for topics without a status. `partitions`: count
    by topic. `every`: these are all topics of the link, so a status without topics applies.
    """
    if every and lag is not None and not lag.topics and lag.partitions == sum(partitions.values()):
        seen = lag.partitions > lag.unseen
        return UnreplicatedOffsets(lag.lag, lag.seen_ms, not lag.unseen, () if seen else tuple(sorted(partitions)))
    progress = defaultdict[str, list[ReplicatedPosition]](list)
    for position in positions:
        progress[position.topic].append(position)
    offsets, whole, by_status = 0, True, False
    unknown: list[str] = []
    last_ms: list[int] = []
    for topic, count in sorted(partitions.items()):
        status, rows = lag.topics.get(topic) if lag is not None else None, progress[topic]
        if status is not None and status.partitions > status.unseen:
            offsets, by_status = offsets + status.lag, True
            whole = whole and not status.unseen and status.partitions >= count
        elif rows:
            offsets, whole = offsets + sum(max(0, row.source_end - row.to_offset) for row in rows), False
            last_ms.append(max(row.last_ms for row in rows))
        else:
            unknown.append(topic)
    seen_ms = lag.seen_ms if lag is not None and by_status else max(last_ms, default=0)
    return UnreplicatedOffsets(offsets, seen_ms, whole, tuple(unknown))
