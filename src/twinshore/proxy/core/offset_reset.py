"""Offset resets of a consumer group while its members run.

While a group is held, its members are told to rebalance: each commits and sends JoinGroup, which waits here. Then the
reset has the coordinator remove all members, and commits offsets for the empty group, as brokers allow from outside.
From then on no removed member can commit, even by a request on its way or another proxy. On joining, members learn that
they are unknown, discard what they read, rejoin, and fetch the committed offsets.

A removed member that commits an old offset is told success, and the commit is dropped: an error would end many
applications. Offsets kept on another cluster have no coordinator that knows members. Such commits are written until
offsets are set, and parked from then until the reset is over.

A removed librdkafka client commits as from outside until it has rejoined. So each connection remembers its member id in
the group. And for some seconds no connection without one commits reset offsets from outside: such a client may have
reconnected.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import Any, Final, TypeGuard

from twinshore.config.errors import ConfigError
from twinshore.kafka.protocol.apis import OFFSET_COMMIT
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.requests import Request
from twinshore.proxy.core import message_codec
from twinshore.proxy.core.api_versions import HEARTBEAT, JOIN_GROUP
from twinshore.proxy.core.group_requests import NO_GENERATION, OffsetRequests
from twinshore.proxy.core.message_codec import (
    build_commit_errors,
    build_error_response,
    build_topic_errors,
    decode_request,
    decode_response,
    encode_message,
    get_response_type,
    to_error_code,
)
from twinshore.proxy.core.model import (
    BrokerId,
    FanOut,
    FanOutSteps,
    ForwardRequest,
    ParkRequest,
    Parts,
    RequestDecision,
    RespondLater,
    RespondNow,
    RoutingTable,
)
from twinshore.proxy.core.transaction_requests import route_txn_offset_commit
from twinshore.state.core.proxy_values import ResetGoal, ResetRow, ResetState


class ResetTargetKind(StrEnum):
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIME = "time"
    SHIFT = "shift"


@dataclass(frozen=True, slots=True)
class ResetTarget:
    """Where to reset to. `number`: the offset, the time in milliseconds, or the shift in offsets."""

    way: ResetTargetKind
    number: int = 0

    @property
    def is_relative(self) -> bool:
        """Whether goals depend on the committed offset or the log's start."""
        return self.way in (ResetTargetKind.SHIFT, ResetTargetKind.EARLIEST)


@dataclass(frozen=True, slots=True)
class ResetPartition:
    """A partition of the group. `cluster` keeps the committed offset; the log has `begins` to below `ends`.

    `since`: the first offset at or after the requested time; -1 if none.
    """

    cluster: str
    topic: str
    partition: int
    was: int | None
    begins: int
    ends: int
    since: int = -1

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"


def parse_target(
    *, earliest: bool, latest: bool, offset: int | None, time: str, shift: int | None, unfinished: int
) -> ResetTarget | None:
    """Returns the requested target, if any. ConfigError for more than one.

    `unfinished`: how many options take up an unfinished reset, with its own goals.
    """
    since_ms = parse_time_ms(time) if time else None
    numbers = {ResetTargetKind.OFFSET: offset, ResetTargetKind.TIME: since_ms, ResetTargetKind.SHIFT: shift}
    numbers |= {ResetTargetKind.EARLIEST: 0 if earliest else None, ResetTargetKind.LATEST: 0 if latest else None}
    found = [ResetTarget(way, number) for way, number in numbers.items() if number is not None]
    if len(found) + unfinished > 1:
        raise ConfigError("proxy.reset-targets-many")
    return found[0] if found else None


def parse_time_ms(text: str) -> int:
    """Parse a time such as 2026-11-26T10:00:00Z, UTC without a zone. ConfigError if invalid."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError("proxy.time-invalid", text=text) from None
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def parse_topics(words: Iterable[str]) -> dict[str, frozenset[int] | None]:
    """Parse `orders` and `orders:0,2` to topics with partitions, None for all. ConfigError if invalid."""
    found: dict[str, frozenset[int] | None] = {}
    for word in words:
        topic, colon, numbers = word.partition(":")
        parts = numbers.split(",")
        if not topic or (colon and not all(one.isascii() and one.isdigit() for one in parts)):
            raise ConfigError("proxy.topic-option-invalid", text=word)
        some = frozenset(map(int, parts)) if colon else None
        before = found.get(topic, frozenset())
        found[topic] = before | some if some is not None and before is not None else None
    return found


def compute_goals(target: ResetTarget, spots: Sequence[ResetPartition]) -> tuple[tuple[ResetGoal, ...], list[str]]:
    """Returns a goal for each partition, and why some have none."""
    goals, why = [], []
    for tp in spots:
        to = _to(target, tp)
        if to is None:
            why.append(f"{tp.name} has no committed offset")
        elif not tp.begins <= to <= tp.ends:
            why.append(f"{tp.name} has {tp.begins} to {tp.ends}, and {to} lies outside")
        else:
            goals.append(ResetGoal(tp.cluster, tp.topic, tp.partition, tp.was, to))
    return tuple(goals), why


def _to(target: ResetTarget, tp: ResetPartition) -> int | None:
    match target.way:
        case ResetTargetKind.EARLIEST:
            return tp.begins
        case ResetTargetKind.LATEST:
            return tp.ends
        case ResetTargetKind.OFFSET:
            return target.number
        case ResetTargetKind.TIME:
            # Records of that time do not exist yet: the log's end.
            return tp.ends if tp.since < 0 else max(tp.since, tp.begins)
        case ResetTargetKind.SHIFT:
            return None if tp.was is None else tp.was + target.number


def reverse_goals(goals: Sequence[ResetGoal]) -> tuple[ResetGoal, ...]:
    """Returns goals that undo these. A partition without an earlier offset keeps the new one."""
    return tuple(one._replace(was=one.to, to=one.was) for one in goals if one.was is not None)


def resume_goals(
    goals: Sequence[ResetGoal], spots: Sequence[ResetPartition]
) -> tuple[tuple[ResetGoal, ...], list[str]]:
    """Returns the goals of an unfinished reset, on the clusters that keep offsets now, and remarks.

    An offset outside the log goes to the nearest one inside. Deleted topics are left out.
    """
    there = {(one.topic, one.partition): one for one in spots}
    found, told = [], []
    for goal in goals:
        tp = there.get((goal.topic, goal.partition))
        if tp is None:
            told.append(f"{goal.topic}-{goal.partition} is not there any more")
            continue
        to = min(max(goal.to, tp.begins), tp.ends)
        if to != goal.to:
            told.append(f"{tp.name} has {tp.begins} to {tp.ends} by now: it goes to {to} in place of {goal.to}")
        found.append(goal._replace(cluster=tp.cluster, to=to))
    return tuple(found), told


def refresh_goals(
    target: ResetTarget | None, goals: Sequence[ResetGoal], spots: Sequence[ResetPartition]
) -> tuple[tuple[ResetGoal, ...], list[str]]:
    """Returns the goals with current offsets, shifts computed from there, and why some have none."""
    meant = {(one.topic, one.partition) for one in goals}
    partitions = [tp for tp in spots if (tp.topic, tp.partition) in meant]
    if target is not None and target.is_relative:
        return compute_goals(target, partitions)
    was = {(tp.topic, tp.partition): tp.was for tp in partitions}
    return tuple(one._replace(was=was.get((one.topic, one.partition))) for one in goals), []


def find_stale_goals(
    goals: Sequence[ResetGoal], spots: Sequence[ResetPartition], *, are_set: bool = False
) -> list[str]:
    """Returns why goals cannot be set any more, or would have no effect."""
    there = {(one.topic, one.partition): one for one in spots}
    why = []
    for goal in goals:
        tp = there.get((goal.topic, goal.partition))
        if tp is None:
            why.append(f"{goal.topic}-{goal.partition} is not there any more")
        elif tp.cluster != goal.cluster:
            why.append(f"{tp.cluster} keeps the committed offset of {tp.name} by now, and not {goal.cluster}")
        elif not are_set and not tp.begins <= goal.to <= tp.ends:
            why.append(f"{tp.name} has {tp.begins} to {tp.ends} by now, and {goal.to} lies outside")
    return why


def find_unset_goals(goals: Sequence[ResetGoal], spots: Sequence[ResetPartition], *, but: str = "") -> list[str]:
    """Returns partitions whose offset is not the goal, except those on cluster `but`."""
    stand = {(tp.cluster, tp.topic, tp.partition): tp.was for tp in spots}
    wrong = [
        one for one in goals if one.cluster != but and stand.get((one.cluster, one.topic, one.partition)) != one.to
    ]
    return [f"{one.topic}-{one.partition}" for one in wrong]


def describe_partition(tp: ResetPartition, to: int | None = None) -> str:
    """Describe the committed offset; with `to`, also the new one and what readers repeat or skip."""
    was = "none" if tp.was is None else str(tp.was)
    log = f"{tp.begins} to {tp.ends}"
    if to is None:
        return f"{tp.name}: {was}, of {log}"
    return f"{tp.name}: {was} -> {to}, of {log}{_means(tp, to)}"


def _means(tp: ResetPartition, to: int) -> str:
    if tp.was is None:
        return ""
    if to < tp.was:
        return f": {max(0, min(tp.was, tp.ends) - to)} are read again"
    if to > tp.was:
        return f": {max(0, to - max(tp.was, tp.begins))} are skipped"
    return ": it stays"


def group_goals_by_topic(goals: Iterable[ResetGoal]) -> Mapping[str, list[ResetGoal]]:
    found: dict[str, list[ResetGoal]] = {}
    for one in goals:
        found.setdefault(one.topic, []).append(one)
    return found


# ILLEGAL_GENERATION and GROUP_AUTHORIZATION_FAILED. Both make a client abort its transaction and go on; the oldest
# versions, without member ids, know only the second.
_OF_A_MEMBER: Final = 22
_OF_NO_MEMBER: Final = 30
_NAMES_MEMBERS: Final = 3
_JAVA: Final = "apache-kafka-java"
_LATER_JAVA: Final = re.compile(r"([3-9]|\d\d+)\.")
# A client is a member of one group; beyond these, groups are ignored.
_GROUPS_MAX: Final = 16
# How long a member may not know of its removal, and transactions without a member id may be its own.
MEMBERS_DOUBTED_MS: Final = 600_000
# How long the home's answer about a member is valid: shorter than until a proxy counts as gone.
MEMBER_CHECK_VALID_S: Final = 5.0
_OVER: Final = (ResetState.DONE, ResetState.ROLLED_BACK)


def commits_key(group: str) -> str:
    """Returns the name under which the group's commits are counted; no topic has such a name."""
    return f"places of {group}"


def late_commits_key(group: str) -> str:
    """Returns the same for commits that no coordinator checks, while members gather."""
    return f"late places of {group}"


def list_awaited_keys(row: ResetRow) -> tuple[str, ...]:
    """Returns the counts that must be zero before a proxy reports that it holds the group."""
    ways = (commits_key(row.group), late_commits_key(row.group))
    return ways if row.state is ResetState.SETTING else ways[:1]


class OffsetResets:
    """The resets in force, for all clients of a process.

    `clock`: seconds that also pass while the process is suspended. `waiting`: by group, how many members wait to join.
    """

    def __init__(self, clock: Callable[[], float] = lambda: 0.0) -> None:
        self.clock = clock
        self.revision = 0
        self.waiting = Counter[str]()
        self._now_ms = 0
        self._rows: dict[str, ResetRow] = {}
        self._goals: dict[str, frozenset[tuple[str, str, int]]] = {}
        self._held: frozenset[str] = frozenset()

    def take(self, rows: Sequence[ResetRow], revision: int) -> bool:
        """Replace the resets. Returns whether other groups are held."""
        self.revision = revision
        self._rows = {row.group: row for row in rows}
        self._goals = {row.group: frozenset(one[:3] for one in row.goals) for row in rows}
        return self._judge()

    def tick(self, now_ms: int) -> bool:
        """Set the time. Returns whether other groups are held."""
        self._now_ms = now_ms
        return self._judge()

    def _judge(self) -> bool:
        before, self._held = self._held, frozenset(row.group for row in self.held())
        return self._held != before

    def held(self) -> list[ResetRow]:
        """Returns resets whose members wait."""
        return [row for row in self._rows.values() if row.holds(self._now_ms)]

    def holds(self, group: str) -> bool:
        """Whether the group's members wait."""
        return group in self._held

    def stands(self, group: str) -> tuple[object, ...]:
        """Returns a value that changes with the group's reset or its state."""
        row = self._rows.get(group)
        return () if row is None else (row.run, row.state, group in self._held)

    def sets(self, group: str) -> bool:
        """Whether members are being removed and offsets set."""
        return group in self._held and self._rows[group].state is ResetState.SETTING

    def is_former_member(self, group: str, member: str) -> bool:
        """Whether this member was removed; while offsets are set, all count as removed."""
        row = self._rows.get(group)
        if row is None or not member or row.state is ResetState.GIVEN_UP:
            return False
        return self.sets(group) or member in row.members

    def means(self, group: str, table: RoutingTable, topic: str, partition: int) -> bool:
        """Whether a running or recent reset covers this partition, on the cluster that keeps this client's offset."""
        goals = self._goals.get(group, ())
        return bool(goals) and (table.keeps(topic), topic, partition) in goals

    def may_be_former_member(self, group: str, member: str) -> bool:
        """Whether this may be a removed member that does not know."""
        row = self._rows.get(group)
        if row is None or not member:
            return False
        return group in self._held or (row.state in _OVER and member in row.members)

    def was_just_reset(self, group: str) -> bool:
        """Whether members were removed seconds ago, and may commit as from outside."""
        row = self._rows.get(group)
        return _has_removed_members(row) and self._now_ms < row.until_ms

    def doubts(self, group: str) -> bool:
        """Whether members were removed lately, and may not know."""
        row = self._rows.get(group)
        return _has_removed_members(row) and self._now_ms < row.since_ms + MEMBERS_DOUBTED_MS


def _has_removed_members(row: ResetRow | None) -> TypeGuard[ResetRow]:
    """Whether this reset is over, and had members removed."""
    return row is not None and row.state in _OVER and bool(row.members)


class ResetFilter:
    """Applies resets to one client's requests, before members and offsets are judged."""

    def __init__(
        self,
        resets: OffsetResets,
        committed: OffsetRequests,
        members: Callable[[Request, BrokerId | None, RoutingTable], RequestDecision],
        now: Callable[[], RoutingTable] | None = None,
    ):
        self._resets, self._committed, self._members, self._now = resets, committed, members, now
        self._waits = ""
        self._ids: dict[str, str] = {}
        self._software = ""

    def is_made_with(self, software: str) -> None:
        """Set the client's software; empty if unknown."""
        self._software = software or self._software

    def _gives_up(self, asked: Any) -> bool:
        """Whether the client discards what it reads if only JoinGroup tells of the removal.

        Other clients' cooperative members may keep positions, so a heartbeat must tell them.
        """
        name, _, version = self._software.partition(" ")
        if name == _JAVA:
            return _LATER_JAVA.match(version) is not None
        of_librdkafka = "rdkafka" in name or "rdkafka" in version
        return of_librdkafka and getattr(asked, "group_instance_id", None) is None

    def close(self) -> None:
        self._wait_for("")

    def _wait_for(self, group: str) -> None:
        if self._waits != group:
            self._resets.waiting[self._waits] -= 1
            self._resets.waiting[group] += 1
            self._resets.waiting = +self._resets.waiting
            del self._resets.waiting[""]
            self._waits = group

    def of_members(self, request: Request, place: BrokerId | None, table: RoutingTable) -> RequestDecision:
        """Judge a member request. JoinGroup waits while the group is held."""
        move = self._members(request, place, table)
        asked = decode_request(request)
        group, member = str(asked.group_id), str(getattr(asked, "member_id", ""))
        if member and (group in self._ids or len(self._ids) < _GROUPS_MAX):
            self._ids[group] = member
        if request.key == JOIN_GROUP and isinstance(move, ForwardRequest) and self._resets.holds(group):
            self._wait_for(group)
            return ParkRequest(build_error_response(request, Code.coordinator_load_in_progress))
        self._wait_for("")
        former = request.key == HEARTBEAT and self._resets.may_be_former_member(group, member)
        if former and isinstance(move, ForwardRequest) and self._gives_up(asked):
            return move._replace(rewrite=partial(_rebalances, version=request.version))
        return move

    def commit(self, request: Request, place: BrokerId | None, table: RoutingTable) -> RequestDecision:
        """Judge OffsetCommit."""
        asked = decode_request(request)
        group, member = str(asked.group_id), str(asked.member_id)
        if place is None or place.cluster != table.group_home():
            return self._committed.route_commit(request, asked, place, table)
        outside = asked.generation_id_or_member_epoch == NO_GENERATION and not member
        if self._resets.holds(group):
            return self._while_held(request, asked, place, table, outside=outside)
        if outside and self._resets.may_be_former_member(group, self._ids.get(group, "")):
            return self._without_some(request, asked, place, table)
        if outside and group not in self._ids and self._resets.was_just_reset(group) and self._is_meant(asked, table):
            return RespondNow(build_commit_errors(request, asked.topics, Code.unknown_member_id))
        move = _on_its_way(self._commit_of(request, asked, place, table), commits_key(group))
        return self._told(move, request, group, table) if self._resets.may_be_former_member(group, member) else move

    def _commit_of(self, request: Request, asked: Any, place: BrokerId, table: RoutingTable) -> RequestDecision:
        """Route a commit, with a check before writes to other clusters.

        A suspended process may count as gone, and then members are removed and offsets set without it.
        """
        group = str(asked.group_id)
        stands, until_s = self._resets.stands(group), self._resets.clock() + MEMBER_CHECK_VALID_S

        def still() -> bool:
            deaf = self._now is not None and self._now().offset_commits_paused
            return not deaf and self._resets.stands(group) == stands and self._resets.clock() <= until_s

        return self._committed.route_commit(request, asked, place, table, still)

    def _while_held(
        self, request: Request, asked: Any, place: BrokerId, table: RoutingTable, *, outside: bool
    ) -> RequestDecision:
        """Judge a commit of a held group. Undecided commits are parked, since the reset may be given up."""
        group, member = str(asked.group_id), str(asked.member_id)
        known = self._ids.get(group, "") if outside else member
        if outside and not known:
            # As for a group with members.
            return RespondNow(build_commit_errors(request, asked.topics, Code.unknown_member_id))
        if self._resets.sets(group) and (outside or self._elsewhere(asked, table)):
            return ParkRequest(build_commit_errors(request, asked.topics, Code.coordinator_load_in_progress))
        if outside and self._resets.is_former_member(group, known):
            return self._without_some(request, asked, place, table)
        move = self._commit_of(request, asked, place, table)
        if outside or self._elsewhere(asked, table):
            move = _on_its_way(move, late_commits_key(group))
        return self._told(move, request, group, table) if self._resets.is_former_member(group, member) else move

    def _is_meant(self, asked: Any, table: RoutingTable) -> bool:
        return bool(_parted(asked.topics, partial(self._resets.means, str(asked.group_id), table))[0])

    def _elsewhere(self, asked: Any, table: RoutingTable) -> bool:
        """Whether a reset offset is kept where members are unknown."""
        named = ((str(one.name), part.partition_index) for one in asked.topics for part in one.partitions)
        return any(
            not table.stays(topic) and self._resets.means(asked.group_id, table, topic, part) for topic, part in named
        )

    def _without_some(self, request: Request, asked: Any, place: BrokerId, table: RoutingTable) -> RequestDecision:
        """Commit the offsets that are not reset."""
        group = str(asked.group_id)
        left, kept = _parted(asked.topics, partial(self._resets.means, group, table))
        if not kept:
            return RespondNow(build_commit_errors(request, left, Code.none))
        move = self._commit_of(request, replace(asked, topics=tuple(kept)), place, table)
        if left and isinstance(move, ForwardRequest):
            move = move._replace(
                body=encode_message(message_codec.strip_commit_epochs(replace(asked, topics=tuple(kept)), table))
            )
        return self._told(move, request, group, table, left)

    def _told(
        self, move: RequestDecision, request: Request, group: str, table: RoutingTable, left: Sequence[Any] = ()
    ) -> RequestDecision:
        """Report ignored offsets as written."""

        def more(body: Parts) -> Parts:
            whole = decode_response(OFFSET_COMMIT, request.version, memoryview(b"".join(body)))
            kind = get_response_type(OFFSET_COMMIT, request.version)
            told = [build_topic_errors(kind, one, Code.none) for one in left]
            return encode_message(self._without_errors(whole, group, table, told))

        match move:
            case ForwardRequest():
                inner = move.rewrite

                def rewrite(view: memoryview, at: int) -> Parts | RespondLater | None:
                    # First this: the inner rewrite handles another error.
                    body = more([view[at:]])
                    told = inner(memoryview(b"".join(body)), 0) if inner else None
                    return told or body

                return move._replace(rewrite=rewrite)
            case FanOut():
                return move._replace(errand=_with(move.errand, more))
            case _:
                return move

    def _without_errors(self, whole: Any, group: str, table: RoutingTable, left: Sequence[Any]) -> Any:
        def told(topic: str, part: Any) -> Any:
            gone = part.error_code == Code.unknown_member_id and self._resets.means(
                group, table, topic, part.partition_index
            )
            return replace(part, error_code=to_error_code(Code.none)) if gone else part

        topics = [
            replace(one, partitions=tuple(map(partial(told, str(one.name)), one.partitions))) for one in whole.topics
        ]
        return replace(whole, topics=(*topics, *left))

    def commit_in_transaction(self, request: Request, place: BrokerId | None, table: RoutingTable) -> RequestDecision:
        """Judge TxnOffsetCommit: the coordinator checks members.

        Commits of reset offsets without a member id abort while the group is held, in newer versions also for a while
        after.
        """
        asked = decode_request(request)
        group = str(asked.group_id)
        move = route_txn_offset_commit(request, place, table)
        if not isinstance(move, ForwardRequest):
            return move
        held, names = self._resets.holds(group), request.version >= _NAMES_MEMBERS
        doubtful = held or (names and self._resets.doubts(group))
        if getattr(asked, "member_id", "") or not doubtful:
            return move if held else move._replace(topics=(*move.topics, commits_key(group)))
        named = [(str(topic.name), one.partition_index) for topic in asked.topics for one in topic.partitions]
        if not any(self._resets.means(group, table, *one) for one in named):
            return move
        return RespondNow(build_commit_errors(request, asked.topics, _OF_A_MEMBER if names else _OF_NO_MEMBER))


def _on_its_way(move: RequestDecision, way: str) -> RequestDecision:
    """Count the request by this name until answered."""
    return move._replace(topics=(*move.topics, way)) if isinstance(move, ForwardRequest | FanOut) else move


def _rebalances(view: memoryview, at: int, version: int) -> Parts | None:
    """Answer a heartbeat so that the member, current or removed, joins."""
    whole = decode_response(HEARTBEAT, version, view[at:])
    if whole.error_code not in (Code.none, Code.unknown_member_id):
        return None
    return encode_message(replace(whole, error_code=to_error_code(Code.rebalance_in_progress)))


def _with(errand: FanOutSteps, more: Callable[[Parts], Parts]) -> FanOutSteps:
    body = yield from errand
    return more(body)


def _parted(topics: Sequence[Any], means: Callable[[str, int], bool]) -> tuple[list[Any], list[Any]]:
    """Split partitions into those that `means` selects and the others."""
    both: Mapping[bool, list[Any]] = {True: [], False: []}
    for one in topics:
        for meant, found in both.items():
            some = tuple(part for part in one.partitions if means(str(one.name), part.partition_index) is meant)
            if some:
                found.append(replace(one, partitions=some))
    return both[True], both[False]
