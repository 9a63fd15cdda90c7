"""One sync direction of a link: offsets of the reading side become known on the writing side, round by round."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from typing import Protocol

from twinshore.config.errors import KafkaError
from twinshore.config.model import TopicPartition
from twinshore.groups.core import commit_rules
from twinshore.groups.core.sync_state import GroupState, PlannedCommit, SyncRoundResult, SyncState, describe_code
from twinshore.kafka.consumer_groups import (
    COORDINATOR_UNAVAILABLE_CODES,
    GroupCoordinators,
    GroupListing,
    GroupListings,
    always_allowed,
    group_by_coordinator,
)
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.protocol.error_codes import error_kind
from twinshore.kafka.protocol.offsets import CommittedOffset, GroupOffsets, TopicPartitionTuple

GroupsByCoordinator = Mapping[int, Mapping[str, Iterable[TopicPartitionTuple] | None]]
# The group has members now: UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, STALE_MEMBER_EPOCH.
# A share group's coordinator answers NON_EMPTY_GROUP.
_LIVE = frozenset({25, 22, 27, 113, 68})
ROUNDS_UNTIL_GONE = 3
# A consumer may have moved past an offset that was read longer ago: do not commit by it.
TARGET_READ_MAX_AGE_S = 2.0
# Offsets of the reading side are older, since log ends are read later; the group may have been reset.
SOURCE_READ_MAX_AGE_S = 10.0
GROUPS_PER_COMMIT_MAX = 500
# Wait before asking again for unknown log ends: each request takes a client's whole patience.
UNKNOWN_END_RETRY_S = 15.0


class OffsetReader(Protocol):
    @property
    def name(self) -> str: ...

    def places(
        self, wanted: GroupsByCoordinator, known: Mapping[str, GroupOffsets]
    ) -> tuple[dict[str, GroupOffsets], dict[int, KafkaError]]: ...


class OffsetClient(OffsetReader, Protocol):
    @property
    def asked(self) -> Counter[str]: ...

    def located(self, groups: Sequence[str]) -> GroupCoordinators: ...

    def commit(
        self,
        places: Mapping[int, Mapping[str, Mapping[TopicPartitionTuple, CommittedOffset]]],
        still: Callable[[], bool] = ...,
    ) -> dict[str, dict[TopicPartitionTuple, int]]: ...


class LogEndSource(Protocol):
    def offsets_of_each(
        self, partitions: Iterable[TopicPartition], kind: OffsetKind
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, KafkaError]]: ...


DecideCommit = Callable[..., commit_rules.CommitDecision]


class SyncDirection:
    """`reader` reports offsets, `writer` receives commits."""

    def __init__(
        self,
        reader: OffsetReader,
        writer: OffsetClient,
        written: LogEndSource,
        sync_state: SyncState,
        rule: DecideCommit = commit_rules.decide_commit,
        rules: commit_rules.CommitRules = commit_rules.DEFAULT_RULES,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reader, self._writer, self._written = reader, writer, written
        self.sync_state = sync_state
        self._rule, self.rules = rule, rules
        self._clock = clock
        # How many groups are read and committed together: fewer if a coordinator is slow.
        self._at_once = GROUPS_PER_COMMIT_MAX
        # Called for each commit: the other direction must not take it for a consumer's progress.
        self.echo: Callable[[str, TopicPartitionTuple, int], None] | None = None
        self._known: dict[str, GroupOffsets] = {}
        self._ends: dict[TopicPartitionTuple, int] = {}
        self._ends_until_s = 0.0
        self._endless: dict[str, float] = {}
        self._missed: dict[str, int] = {}
        self._unread: dict[str, tuple[float, str]] = {}

    def turn(
        self,
        scope: commit_rules.SyncScope,
        reading: GroupListings,
        writing: GroupListings,
        admits: Callable[[GroupListing], bool],
        now_s: float,
        *,
        may: Callable[[], bool] = always_allowed,
        holds: Callable[[], bool] = always_allowed,
    ) -> SyncRoundResult:
        """Runs one round. `may`: whether this process still owns the link. `holds`: whether the scope is still valid;
        called after log ends are read, since no offset up to such an end is wrong.
        """
        direction, sync_state = SyncRoundResult(), self.sync_state
        if scope is not sync_state.scope or now_s >= self._ends_until_s:
            # A log end is trusted for a while: a twin's log can be lost like any other.
            self._ends.clear()
            self._ends_until_s = now_s + sync_state.verify_s
        sync_state.rescope(scope)
        self._listen(reading, admits, now_s, direction)
        heard_at_s = self._clock()
        self._see_members(writing)
        for node, error in writing.away.items():
            direction.told[f"broker {node} of {self._writer.name}"] = error.message
        due = dict(sync_state.due(now_s))
        spots = self._spots(due, now_s, direction)
        nodes = self._nodes([name for name, ours in spots.items() if ours], writing.groups, now_s, direction)
        self._over([(name, group) for name, group in due.items() if not spots[name]], now_s)
        for node, names in self._portions(nodes):
            read_at_s = self._clock()
            theirs = self._theirs(node, {name: spots[name] for name in names}, now_s, direction)
            wishes = self._wishes(due, spots, theirs, now_s)
            done = True
            if wishes:
                may_now = self._clock() - heard_at_s < SOURCE_READ_MAX_AGE_S and holds() and may()
                # Checked last: the store, which the other checks read, may have been slow.
                done = may_now and self._fresh(node, read_at_s, direction)
                if done:
                    self._commit(node, wishes, now_s, direction, may)
            # What was read and not used for a commit is checked again.
            self._over([(name, due[name]) for name in theirs if done or name not in wishes], now_s, wishes)
        sync_state.unanswered(due.values(), now_s)
        direction.groups = len(sync_state.groups)
        return direction

    def _over(self, some: Iterable[tuple[str, GroupState]], now_s: float, wishes: Container[str] = ()) -> None:
        """Marks these groups as compared, except without a known log end."""
        for name, group in some:
            if group.renews and name not in wishes:
                self.sync_state.renewed(group, now_s)
            # Without a log end, nothing was compared.
            parts = self.sync_state.scope.parts
            group.check = any(parts[where][0] not in self._ends for where in group.open)

    def _portions(self, nodes: Mapping[str, int]) -> Iterator[tuple[int, list[str]]]:
        for node, groups in group_by_coordinator(nodes).items():
            names = list(groups)
            while names:
                some, names = names[: self._at_once], names[self._at_once :]
                yield node, some

    def _fresh(self, node: int, read_at_s: float, direction: SyncRoundResult) -> bool:
        """Returns whether the offsets read there are recent enough to commit: this process may have stalled."""
        fresh = self._clock() - read_at_s < TARGET_READ_MAX_AGE_S
        self._at_once = min(GROUPS_PER_COMMIT_MAX, self._at_once * 2) if fresh else max(1, self._at_once // 2)
        if not fresh:
            took = f"its answer to OffsetFetch took longer than {TARGET_READ_MAX_AGE_S:g} s, and is fetched again"
            direction.told[f"broker {node} of {self._writer.name}"] = took
        return fresh

    # -- the reading side

    def _listen(
        self, reading: GroupListings, admits: Callable[[GroupListing], bool], now_s: float, direction: SyncRoundResult
    ) -> None:
        nodes = {one.group: one.coordinator for one in reading.groups.values() if admits(one)}
        found, away = self._reader.places(group_by_coordinator(nodes), self._known)
        for node, error in {**reading.away, **away}.items():
            direction.told[f"broker {node} of {self._reader.name}"] = error.message
        unread, self._unread = self._unread, {}
        for name, said in list(found.items()):
            if said.error:
                del found[name]
            if said.error and said.error not in COORDINATOR_UNAVAILABLE_CODES:
                why = f"cannot be read on {self._reader.name}: {describe_code(said.error)}"
                direction.told[f"group {name}"] = why
                self._unread[name] = (unread[name][0] if name in unread else now_s, why)
        direction.changed = sum(self._known.get(name) is not said for name, said in found.items())
        self._known.update(found)
        if not reading.away:
            self._let_go(nodes.keys())
        self.sync_state.heard(found, now_s)

    def _let_go(self, names: Set[str]) -> None:
        """Drops groups that are gone. A moving coordinator lists none of its groups for a moment."""
        gone = self._known.keys() - names
        self._missed = {name: self._missed.get(name, 0) + 1 for name in gone}
        over = [name for name, times in self._missed.items() if times >= ROUNDS_UNTIL_GONE]
        self.sync_state.forget(over)
        for name in over:
            del self._known[name]

    def _see_members(self, writing: GroupListings) -> None:
        groups = self.sync_state.groups
        absent = []
        for name, group in groups.items():
            there = writing.groups.get(name)
            was, group.live = group.live, there is not None and there.live
            if was and not group.live:
                self.sync_state.left(group)
            if there is None and not writing.away:
                absent.append(name)
        self.sync_state.absent(absent)

    def refusals(self) -> dict[str, tuple[float, str]]:
        """Returns refused groups, and groups with refused offsets: since when, and why."""
        return {
            name: (min(since_s for since_s, _ in group.refused.values()), group.refused[min(group.refused)][1])
            for name, group in self.sync_state.groups.items()
            if group.refused and not group.live
        } | self._unread

    # -- what should be

    def _spots(
        self, due: Mapping[str, GroupState], now_s: float, direction: SyncRoundResult
    ) -> dict[str, dict[TopicPartitionTuple, tuple[commit_rules.TranslatedOffset, int]]]:
        """Returns translated offset and log end, by group and partition. Offsets that cannot have moved on are skipped;
        without a log end the group waits.
        """
        spots: dict[str, dict[TopicPartitionTuple, commit_rules.TranslatedOffset]] = {}
        short: set[TopicPartitionTuple] = set()
        parts = self.sync_state.scope.parts
        for name, group in due.items():
            ours = spots[name] = {}
            for where in list(group.open):
                twin, translation = parts[where]
                spot = translation.forward(group.said.places[where].offset)
                if spot is None:
                    self.sync_state.stands(group, where, commit_rules.GroupSyncStatus.UNKNOWN, 0, now_s)
                    group.open.discard(where)
                    continue
                ours[where] = spot
                if spot.offset > self._ends.get(twin, -1):
                    short.add(twin)
        self._ask_ends(short, direction)
        for name, ours in spots.items():
            for where in ours:
                if parts[where][0] not in self._ends and where not in due[name].standing:
                    self.sync_state.stands(due[name], where, commit_rules.GroupSyncStatus.AWAY, 0, now_s)
        return {
            name: {
                where: (spot, self._ends[parts[where][0]])
                for where, spot in ours.items()
                if parts[where][0] in self._ends and (due[name].check or not self._stands(due[name], where, spot))
            }
            for name, ours in spots.items()
        }

    def _stands(self, group: GroupState, where: TopicPartitionTuple, spot: commit_rules.TranslatedOffset) -> bool:
        goal = min(spot.offset, self._ends[self.sync_state.scope.parts[where][0]])
        memory = self.sync_state.memory_of(group, where)
        whole = spot.reached and goal == spot.offset
        if whole or memory.agreed != goal or group.said.places[where].offset < memory.high:
            return False
        state, _, since_s = group.standing.get(where, (commit_rules.GroupSyncStatus.BEHIND, 0, 0.0))
        group.standing[where] = (state, spot.offset - goal, since_s)
        return True

    def _ask_ends(self, short: Iterable[TopicPartitionTuple], direction: SyncRoundResult) -> None:
        named = {TopicPartition(*where): where for where in short if self._clock() >= self._endless.get(where[0], 0.0)}
        if not named:
            return
        self._writer.asked["ListOffsets"] += 1
        try:
            found, failed = self._written.offsets_of_each(named, OffsetKind.HIGH_WATERMARK)
        except KafkaError as error:
            found, failed = {}, dict.fromkeys(named, error)
        self._ends.update((named[partition], end) for partition, end in found.items())
        # One partition without a leader, or one refused topic, must not delay all other groups.
        for partition, why in failed.items():
            self._endless[partition.topic] = self._clock() + UNKNOWN_END_RETRY_S
            direction.told[f"topic {partition.topic} of {self._writer.name}"] = f"its groups wait: {why.message}"

    # -- the writing side

    def _theirs(
        self,
        node: int,
        spots: Mapping[str, Mapping[TopicPartitionTuple, object]],
        now_s: float,
        direction: SyncRoundResult,
    ) -> dict[str, Mapping[TopicPartitionTuple, CommittedOffset]]:
        """Returns the groups' offsets on the writing side; those without an answer wait for the next round. Unlisted
        groups are asked for too: their coordinator may be moving.
        """
        parts = self.sync_state.scope.parts
        # With `makes` off it matters if a group has any offset there.
        wanted: dict[str, list[TopicPartitionTuple] | None] = {
            name: [parts[where][0] for where in ours] if self.rules.makes else None for name, ours in spots.items()
        }
        theirs: dict[str, Mapping[TopicPartitionTuple, CommittedOffset]] = {}
        found, away = self._writer.places({node: wanted}, {})
        for broker, error in away.items():
            direction.told[f"broker {broker} of {self._writer.name}"] = error.message
        for name in spots:
            said = found.get(name)
            if said is None or said.error in COORDINATOR_UNAVAILABLE_CODES:
                self.sync_state.silent(self.sync_state.groups[name], spots[name], now_s)
            elif not said.error:
                theirs[name] = said.places
            else:
                sentence = f"cannot be read on {self._writer.name}: {describe_code(said.error)}"
                for where in spots[name]:
                    self.sync_state.refuses(self.sync_state.groups[name], where, sentence, 0, now_s)
                direction.told[f"group {name}"] = sentence
        return theirs

    def _wishes(
        self,
        due: Mapping[str, GroupState],
        spots: Mapping[str, Mapping[TopicPartitionTuple, tuple[commit_rules.TranslatedOffset, int]]],
        theirs: Mapping[str, Mapping[TopicPartitionTuple, CommittedOffset]],
        now_s: float,
    ) -> dict[str, dict[TopicPartitionTuple, PlannedCommit]]:
        """Returns what to commit, by group and target partition, and settles the rest."""
        parts, sync_state = self.sync_state.scope.parts, self.sync_state
        wishes: dict[str, dict[TopicPartitionTuple, PlannedCommit]] = {}
        for name, there in theirs.items():
            group = due[name]
            sync_state.note_metadata(name, there.values())
            rules = sync_state.rules_for(name, self.rules)._replace(makes=self.rules.makes or bool(there))
            for where, (spot, end) in spots[name].items():
                twin = parts[where][0]
                has = there.get(twin)
                decision = self._rule(
                    group.said.places[where], spot, end, has, sync_state.memory_of(group, where), rules
                )
                to = decision.to
                if to is None and group.renews and has is not None and not decision.memory.own:
                    to = has
                stands = to.offset if to is not None else has.offset if has is not None else spot.offset
                behind = spot.offset - stands
                if to is None:
                    sync_state.settle(group, where, decision, behind, now_s)
                else:
                    wishes.setdefault(name, {})[twin] = PlannedCommit(where, decision, to, behind)
        return wishes

    def _commit(
        self,
        node: int,
        wishes: Mapping[str, Mapping[TopicPartitionTuple, PlannedCommit]],
        now_s: float,
        direction: SyncRoundResult,
        may: Callable[[], bool],
    ) -> None:
        places = {name: {twin: commit.place for twin, commit in ours.items()} for name, ours in wishes.items()}
        for name, ours in wishes.items():
            for commit in ours.values():
                self.sync_state.sends(self.sync_state.groups[name], commit.where, commit.place)
        answers = self._writer.commit({node: places}, may)
        for name, codes in answers.items():
            group = self.sync_state.groups[name]
            for twin, code in codes.items():
                self._answered(name, group, wishes[name][twin], code, now_s, direction)
                if not code and self.echo is not None:
                    self.echo(name, twin, wishes[name][twin].place.offset)
            if group.renews:
                # Refused or not: there are several renewals before an offset expires.
                self.sync_state.renewed(group, now_s)
        direction.commits += len(answers)

    def _answered(
        self, name: str, group: GroupState, commit: PlannedCommit, code: int, now_s: float, direction: SyncRoundResult
    ) -> None:
        if not code:
            direction.moved[commit.decision.state] += 1
            self.sync_state.settle(group, commit.where, commit.decision, commit.behind, now_s)
        elif code in _LIVE:
            group.live = True
            self.sync_state.sends(group, commit.where, None)
        elif code not in COORDINATOR_UNAVAILABLE_CODES:
            sentence = f"{self._writer.name} refuses its place in {commit.where[0]}: {describe_code(code)}"
            self.sync_state.refuses(group, commit.where, sentence, commit.behind, now_s)
            if not error_kind(code).retriable:
                group.open.discard(commit.where)
                direction.told[f"group {name}"] = sentence

    def _nodes(
        self, names: Sequence[str], listed: Mapping[str, GroupListing], now_s: float, direction: SyncRoundResult
    ) -> dict[str, int]:
        found = {name: listed[name].coordinator for name in names if name in listed}
        new = [name for name in names if name not in listed]
        if not new:
            return found
        nodes, errors = self._writer.located(new)
        for name, error in errors.items():
            group = self.sync_state.groups[name]
            for where in list(group.open):
                self.sync_state.refuses(group, where, f"does not follow: {error}", 0, now_s)
            group.open.clear()
            self._over([(name, group)], now_s)
            direction.told[f"group {name}"] = f"does not follow: {error}"
        for name in new:
            if name not in nodes and name not in errors:
                self.sync_state.silent(self.sync_state.groups[name], self.sync_state.groups[name].open, now_s)
        return found | nodes
