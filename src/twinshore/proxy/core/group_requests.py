"""Members and lists of groups are forwarded to the groups' home; OffsetCommit and OffsetFetch cover all clusters.

Before groups move, members gather: each commits, rejoins, and waits for the response until groups have moved. A member
that has not rejoined since is **at work**: it may still commit.

A coordinator of the newer protocol assigns partitions of its own cluster, and ignores topics that this cluster lacks.
So a member is served if the groups' home has every topic that it names, or a twin. Else it is refused, with a message
that names the topic if the topic's cluster shows it to this client. A member sends its subscription on joining and on
changes. The proxy remembers and judges it again at each heartbeat, as topics come and go. For a member unknown to the
connection, the coordinator is asked.

A classic group changes to the newer protocol when the first such member joins, and then the coordinator assigns to all.
So no such member joins a group whose classic members read topics that the coordinator lacks, and no reader of such
topics joins a group of the newer protocol.

Committed offsets in topics that the groups' home lacks are kept with the topic, in a group of the same name without
members. Only the home knows members, and confirms the member before a write elsewhere. That holds for a short time:
`still` is checked right before the write.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from kio.schema.consumer_protocol_subscription.v0 import ConsumerProtocolSubscription
from kio.serial import entity_reader
from kio.serial.errors import SerialError

from twinshore.config.errors import WireError
from twinshore.config.frozen import GROUPS_HOME
from twinshore.config.sentences import escape_line, join_names
from twinshore.kafka.protocol.apis import METADATA, OFFSET_COMMIT, OFFSET_FETCH
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.requests import Request
from twinshore.kafka.protocol.response_check import check_response
from twinshore.proxy.core import message_codec
from twinshore.proxy.core.api_versions import (
    CONSUMER_GROUP_HEARTBEAT,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    SYNC_GROUP,
)
from twinshore.proxy.core.message_codec import (
    build_commit_errors,
    build_error_response,
    build_message,
    build_metadata_request,
    build_topic_errors,
    decode_request,
    decode_response,
    encode_message,
    get_element_type,
    get_request_type,
    get_response_type,
    to_error_code,
)
from twinshore.proxy.core.model import (
    ANY_BROKER,
    CONSUMER_GROUP_DESCRIBE,
    RESPONSE_TIMEOUT_S,
    BrokerId,
    BrokerRequest,
    BrokerResponse,
    FanOut,
    FanOutSteps,
    ForwardRequest,
    ParkRequest,
    Parts,
    RequestDecision,
    RespondNow,
    RoutingTable,
)
from twinshore.proxy.core.traffic import RequestCounter

# JoinGroup is answered once all members have joined, as late as the slowest may: half an hour for Connect.
_JOINING_S: Final = 1800.0


# Heartbeats come every three seconds by default.
_SILENT_S: Final = 20.0
# Refusals noted in one second.
_REFUSED_MAX: Final = 8
# A client is a member of one group. Beyond these, groups are ignored, or looked up each time.
_GROUPS_MAX: Final = 16
# No application names so many topics or has such a pattern, and each is checked at each heartbeat.
SUBSCRIBED_TOPICS_MAX: Final = 10_000
PATTERN_CHARS_MAX: Final = 16_384
_SHOWN_MAX: Final = 80
# What stands for itself in a pattern; a dot does where it is written as `\\.`, which is one sign here.
_DOT: Final = "\0"
_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-" + _DOT)
_REPEATS: Final = ("*", "?", "{")
_REBALANCES: Final = ("PreparingRebalance", "CompletingRebalance")
_IDLE: Final = ("Empty", "Dead")
# Broker errors for a topic that is missing, or hidden from this client.
_HIDDEN: Final = (Code.UNKNOWN_TOPIC_OR_PARTITION, Code.TOPIC_AUTHORIZATION_FAILED)


class ActiveMembers:
    """The members at work of all clients, by group and member id.

    A silent member is dropped: it has ended, or waits at another process.
    """

    def __init__(self) -> None:
        self._heard: dict[tuple[str, str], float | None] = {}
        self._refused: dict[str, None] = {}

    def refused(self, why: str) -> None:
        """Note why a member was refused, for the operator."""
        if len(self._refused) < _REFUSED_MAX:
            self._refused[why] = None

    def told(self) -> list[str]:
        """Returns why members were refused since the last call."""
        found, self._refused = list(self._refused), {}
        return found

    def begins(self, group: str, member: str) -> None:
        self._heard[group, member] = None

    def ends(self, group: str, member: str) -> None:
        self._heard.pop((group, member), None)

    def look(self, now_s: float) -> None:
        """Drop silent members, once a second."""
        dated = {one: now_s if at_s is None else at_s for one, at_s in self._heard.items()}
        self._heard = {one: at_s for one, at_s in dated.items() if now_s <= at_s + _SILENT_S}

    def some(self, most: int) -> tuple[str, ...]:
        """Returns at most `most` groups with members at work."""
        return tuple(sorted({group for group, _ in self._heard})[:most])


class ClientMembers:
    """One client's members at work: ids by group."""

    def __init__(self, at_work: ActiveMembers) -> None:
        self._at_work, self._ids = at_work, dict[str, str]()

    def judge(self, request: Request, place: BrokerId | None, table: RoutingTable) -> RequestDecision:
        """Judge JoinGroup, SyncGroup, Heartbeat and LeaveGroup. Joins and heartbeats may use different connections."""
        asked = decode_request(request)
        group, member = str(asked.group_id), str(getattr(asked, "member_id", ""))
        if request.key in (JOIN_GROUP, LEAVE_GROUP) or place is None or place.cluster != table.group_home():
            gone = (one.member_id for one in getattr(asked, "members", ()))
            for one in {self._ids.pop(group, member), member, *map(str, gone)}:
                self._at_work.ends(group, one)
        elif group in self._ids or len(self._ids) < _GROUPS_MAX:
            if (before := self._ids.get(group, member)) != member:
                self._at_work.ends(group, before)
            self._ids[group] = member
            self._at_work.begins(group, member)
        return route_member_request(request, place, table)


def route_member_request(request: Request, place: BrokerId | None, table: RoutingTable) -> RequestDecision:
    """Route JoinGroup, SyncGroup, Heartbeat and LeaveGroup."""
    if place is None or place.cluster != table.group_home():
        return RespondNow(build_error_response(request, Code.NOT_COORDINATOR))
    if table.groups_gathering and request.key == HEARTBEAT:
        # On this error a member commits what it has read, and rejoins.
        return RespondNow(build_error_response(request, Code.REBALANCE_IN_PROGRESS))
    if table.groups_gathering and request.key == JOIN_GROUP:
        return ParkRequest(build_error_response(request, Code.COORDINATOR_LOAD_IN_PROGRESS))
    return ForwardRequest(place, _JOINING_S if request.key in (JOIN_GROUP, SYNC_GROUP) else RESPONSE_TIMEOUT_S)


def route_describe_groups(request: Request, place: BrokerId | None, table: RoutingTable) -> RequestDecision:
    """Route DescribeGroups of both protocols and ListGroups. Other clusters only keep offsets, and list no groups."""
    if place is not None and place.cluster == table.group_home():
        return ForwardRequest(place)
    kind = get_response_type(request.key, request.version)
    if request.key == LIST_GROUPS:
        return RespondNow(encode_message(build_message(kind)))
    asked, part, code = decode_request(request), get_element_type(kind, "groups"), to_error_code(Code.NOT_COORDINATOR)
    names = asked.group_ids if request.key == CONSUMER_GROUP_DESCRIBE else asked.groups
    return RespondNow(
        encode_message(
            build_message(kind, groups=tuple(build_message(part, group_id=one, error_code=code) for one in names))
        )
    )


_GroupsPiece = Generator[Sequence[BrokerRequest], Sequence[BrokerResponse], Any]


class Subscription(NamedTuple):
    """A member's topics. `pattern`: as brokers read it, or empty. `begins`: prefixes of matching names."""

    names: tuple[str, ...]
    pattern: str
    begins: tuple[str, ...] = ()


class _Lacks(NamedTuple):
    """Topics that the groups' home lacks: named by a member, or possible matches of the pattern."""

    named: tuple[str, ...]
    meant: tuple[str, ...]


_NOTHING: Final = _Lacks((), ())


class ConsumerProtocolGroups:
    """Groups of the newer protocol (KIP-848), for one client.

    `at_work` notes why a member is refused, as not every client shows that. `holds`: whether joins to a group wait.
    `news` asks for a new look at the clusters.
    """

    def __init__(self, at_work: ActiveMembers, holds: Callable[[str], bool], news: Callable[[], None]) -> None:
        self._at_work, self._holds, self._news = at_work, holds, news
        self._known: dict[tuple[str, str], Subscription] = {}
        self._hidden: dict[tuple[str, str], _Lacks] = {}  # topics that a member lacks and may not see

    def beat(self, request: Request, place: BrokerId | None, table: RoutingTable) -> RequestDecision:
        """Judge ConsumerGroupHeartbeat, by which members join, go on and leave."""
        asked = decode_request(request)
        if not table.serves_newer_groups:
            return self._refused(
                request,
                Code.UNSUPPORTED_VERSION,
                describe_unsupported_protocol(asked.group_id, table.lack_newer_groups),
            )
        if place is None or place.cluster != table.group_home():
            return RespondNow(build_error_response(request, Code.NOT_COORDINATOR))
        member = str(asked.group_id), str(asked.member_id)
        if asked.member_epoch < 0:
            self._known.pop(member, None)
            self._hidden.pop(member, None)
            return ForwardRequest(place)
        joins = asked.member_epoch == 0
        if table.groups_gathering or (joins and self._holds(member[0])):
            return RespondNow(build_error_response(request, Code.COORDINATOR_LOAD_IN_PROGRESS))
        if why := describe_oversized_subscription(asked):
            return self._refused(request, Code.INVALID_REQUEST, why)
        wanted = self._wanted(asked, member)
        if joins or wanted is None or find_missing_topics(wanted, table) not in (_NOTHING, self._hidden.get(member)):
            return FanOut(self._looked(request, asked, wanted, place, table))
        return ForwardRequest(place, rewrite=partial(_goes_on, request))

    def _wanted(self, asked: Any, member: tuple[str, str]) -> Subscription | None:
        """Returns the whole subscription; None if unknown here."""
        names, pattern = asked.subscribed_topic_names, getattr(asked, "subscribed_topic_regex", "")
        before = Subscription((), "") if asked.member_epoch == 0 else self._known.get(member)
        if before is not None:
            names = before.names if names is None else names
            pattern = before.pattern if pattern is None else pattern
        if names is None or pattern is None:
            return None
        same = before is not None and before.pattern == pattern
        begins = before.begins if before is not None and same else list_pattern_prefixes(str(pattern))
        return self._remembered(member, Subscription(tuple(map(str, names)), str(pattern), begins))

    def _remembered(self, member: tuple[str, str], wanted: Subscription) -> Subscription:
        if member[1] and (member in self._known or len(self._known) < _GROUPS_MAX):
            self._known[member] = wanted
        return wanted

    def _looked(
        self, request: Request, asked: Any, wanted: Subscription | None, place: BrokerId, table: RoutingTable
    ) -> FanOutSteps:
        """Ask what must be known first, then the coordinator."""
        group, why = str(asked.group_id), ""
        if wanted is None:
            wanted = yield from self._described(asked, place, table)
        if asked.member_epoch == 0:
            classic = yield from _classic_members(group, place, table)
            if classic is None:
                return build_error_response(request, Code.COORDINATOR_LOAD_IN_PROGRESS)
            why = describe_mixed_protocols(group, classic, table)
        if not why and wanted is not None and (lacking := find_missing_topics(wanted, table)) != _NOTHING:
            # The twin may be new.
            made = yield from _there(lacking.named, place, table)
            if made:
                self._news()
            lacking = lacking._replace(named=tuple(topic for topic in lacking.named if topic not in made))
            shown = yield from _shown(lacking, table)
            if shown is None:
                return build_error_response(request, Code.COORDINATOR_LOAD_IN_PROGRESS)
            why = describe_missing_topics(group, wanted, lacking, table, shown)
            if not why and (group, str(asked.member_id)) in self._known:
                self._hidden[group, str(asked.member_id)] = lacking
        if why:
            self._at_work.refused(why)
            return build_error_response(request, Code.INVALID_REQUEST, error_message=why)
        body = request.view[request.position :]
        (said,) = yield [BrokerRequest(place, request.key, request.version, [body])]
        if said is None:
            return build_error_response(request, Code.COORDINATOR_NOT_AVAILABLE)
        return _goes_on(request, said, 0) or [said]

    def _described(self, asked: Any, place: BrokerId, table: RoutingTable) -> _GroupsPiece:
        """Returns the subscription by coordinator and request; by the request alone if the member is unknown."""
        group, member = str(asked.group_id), str(asked.member_id)
        one = yield from read_group_member(group, member, place, table)
        names, pattern = asked.subscribed_topic_names, getattr(asked, "subscribed_topic_regex", None)
        if one is None:
            found = Subscription(tuple(map(str, names or ())), pattern or "", list_pattern_prefixes(pattern or ""))
            return None if names is None and not pattern else found
        names = one.subscribed_topic_names if names is None else names
        pattern = one.subscribed_topic_regex if pattern is None else pattern
        wanted = Subscription(tuple(map(str, names)), str(pattern or ""), list_pattern_prefixes(str(pattern or "")))
        return self._remembered((group, member), wanted)

    def _refused(self, request: Request, code: Code, why: str) -> RespondNow:
        self._at_work.refused(why)
        return RespondNow(build_error_response(request, code, error_message=why))

    def joins(self, request: Request, move: RequestDecision, table: RoutingTable) -> RequestDecision:
        """Judge a classic JoinGroup, routed as `move`."""
        if not isinstance(move, ForwardRequest) or not table.serves_newer_groups:
            return move
        asked = decode_request(request)
        topics = {topic for one in asked.protocols for topic in parse_subscribed_topics(one.metadata)}
        why = describe_mixed_protocols(str(asked.group_id), topics, table)
        return move._replace(rewrite=partial(self._joined, request, why)) if why else move

    def _joined(self, request: Request, why: str, view: memoryview, at: int) -> Parts | None:
        """Refuse the member if the coordinator assigns, which an answer without a leader shows."""
        answer = decode_response(JOIN_GROUP, request.version, view[at:])
        if answer.error_code or answer.leader:
            return None
        self._at_work.refused(why)
        return build_error_response(request, Code.INCONSISTENT_GROUP_PROTOCOL)


def _told_of(group: str, key: int, place: BrokerId, table: RoutingTable) -> _GroupsPiece:
    """Describe the group at its coordinator, by this API; None without an answer."""
    version = table.offers[key][1]
    body = encode_message(build_message(get_request_type(key, version), groups=(group,), group_ids=(group,)))
    (said,) = yield [BrokerRequest(place, key, version, body)]
    return None if said is None else next(iter(decode_response(key, version, said).groups), None)


def read_group_members(group: str, place: BrokerId, table: RoutingTable) -> _GroupsPiece:
    """Returns members of the newer protocol; None without an answer."""
    found = yield from _told_of(group, CONSUMER_GROUP_DESCRIBE, place, table)
    return None if found is None else found.members


def check_group_idle(group: str, place: BrokerId, table: RoutingTable) -> _GroupsPiece:
    """Whether the group has no members of either protocol; None without an answer."""
    found = yield from _told_of(group, DESCRIBE_GROUPS, place, table)
    if found is None or found.error_code not in (Code.NONE, Code.GROUP_ID_NOT_FOUND):
        return None
    if not found.error_code and found.group_state not in _IDLE:
        return False
    # This request does not find groups of the newer protocol.
    newer = (yield from read_group_members(group, place, table)) if table.serves_newer_groups else ()
    return None if newer is None else not newer


def read_group_member(group: str, member: str, place: BrokerId, table: RoutingTable) -> _GroupsPiece:
    """Returns the member of the newer protocol; None if unknown."""
    known = yield from read_group_members(group, place, table)
    return next((one for one in known or () if one.member_id == member), None)


def _classic_members(group: str, place: BrokerId, table: RoutingTable) -> _GroupsPiece:
    """Returns topics of the group's classic members; None while unknown."""
    found = yield from _told_of(group, DESCRIBE_GROUPS, place, table)
    if found is None:
        return None
    if found.members and found.group_state in _REBALANCES:
        return None
    return {topic for one in found.members for topic in parse_subscribed_topics(one.member_metadata)}


def _shown(lacking: _Lacks, table: RoutingTable) -> _GroupsPiece:
    """Returns those topics that their clusters show to this client; None without an answer."""
    by_cluster: dict[str, list[str]] = {}
    for topic in dict.fromkeys((*lacking.named, *lacking.meant)):
        if (cluster := table.route(topic)) is not None:
            by_cluster.setdefault(cluster, []).append(topic)
    version = table.offers[METADATA][1]
    if not by_cluster:
        return frozenset[str]()
    said = yield [
        BrokerRequest(BrokerId(name, ANY_BROKER), METADATA, version, build_metadata_request(topics, version))
        for name, topics in by_cluster.items()
    ]
    heard = [decode_response(METADATA, version, one) for one in said if one is not None]
    if len(heard) < len(said):
        return None
    told = [one for some in heard for one in some.topics]
    return frozenset(str(one.name) for one in told if one.error_code not in _HIDDEN)


def _there(names: Sequence[str], place: BrokerId, table: RoutingTable) -> _GroupsPiece:
    """Returns those topics that the groups' home has by now."""
    lacking = [name for name in names if name not in table.own]
    version = table.offers[METADATA][1]
    asks = [BrokerRequest(place, METADATA, version, build_metadata_request(lacking, version))] if lacking else []
    (said,) = (yield asks) if asks else (None,)
    told = () if said is None else decode_response(METADATA, version, said).topics
    return frozenset(str(one.name) for one in told if not one.error_code)


def _goes_on(request: Request, view: memoryview, at: int) -> Parts | None:
    """Answer UNKNOWN_MEMBER_ID to a member of a group that has moved, who then rejoins. GROUP_ID_NOT_FOUND would end
    it.
    """
    answer = decode_response(CONSUMER_GROUP_HEARTBEAT, request.version, view[at:])
    if answer.error_code != Code.GROUP_ID_NOT_FOUND:
        return None
    return build_error_response(request, Code.UNKNOWN_MEMBER_ID, error_message=answer.error_message)


def parse_subscribed_topics(metadata: bytes) -> Iterator[str]:
    """Yields the topics in a classic member's metadata; none if unreadable."""
    body = memoryview(metadata)
    try:
        # The first two bytes are its version; later ones begin alike.
        found = entity_reader(ConsumerProtocolSubscription)(check_response(body[2:], ConsumerProtocolSubscription), 0)[
            0
        ]
    except (SerialError, WireError, LookupError, struct.error, ValueError, OverflowError):
        return
    yield from map(str, found.topics or ())


def describe_oversized_subscription(asked: Any) -> str:
    """Returns why the subscription is too large, else empty."""
    names, pattern = asked.subscribed_topic_names or (), getattr(asked, "subscribed_topic_regex", None) or ""
    if len(names) > SUBSCRIBED_TOPICS_MAX:
        return f"a member names {len(names)} topics: {SUBSCRIBED_TOPICS_MAX} are taken at most; use a pattern"
    if len(pattern) > PATTERN_CHARS_MAX:
        return f"a pattern has {len(pattern)} characters: {PATTERN_CHARS_MAX} are taken at most"
    return ""


def find_missing_topics(wanted: Subscription, table: RoutingTable) -> _Lacks:
    """Returns topics of the subscription that the groups' home lacks."""
    meant: set[str] = set()
    elsewhere = table.elsewhere if wanted.pattern else ()
    for begin in wanted.begins if elsewhere else ():
        at = bisect_left(elsewhere, begin)
        while at < len(elsewhere) and elsewhere[at].startswith(begin):
            meant.add(elsewhere[at])
            at += 1
        if len(meant) == len(elsewhere):
            break
    named = tuple(topic for topic in wanted.names if not table.stays(topic))
    return _Lacks(named, tuple(sorted(meant))) if named or meant else _NOTHING


def describe_missing_topics(
    group: str, wanted: Subscription, lacking: _Lacks, table: RoutingTable, shown: frozenset[str]
) -> str:
    """Returns why a member that lacks these topics is refused, else empty. `shown`: topics that the member may see."""
    home, named = table.group_home(), escape_line(group)
    for topic in lacking.named:
        if topic in shown:
            return (
                f"group {named} cannot read {topic}: groups are at home on {home}, which does not have it, as it is on"
                f" {table.route(topic)}; have a link carry it to {home}, or set group.protocol=classic"
            )
    for topic in lacking.meant:
        if topic in shown:
            return (
                f"group {named} cannot read by the pattern {escape_line(wanted.pattern)[:_SHOWN_MAX]}, which may mean"
                f" {topic}: groups are at home on {home}, which does not have it; subscribe to topics by name, or set"
                " group.protocol=classic"
            )
    return ""


def list_pattern_prefixes(pattern: str) -> tuple[str, ...]:
    """Returns prefixes; every matching name has one.

    Brokers have their own pattern rules, so only literal characters that begin an alternative count.
    """
    if "(?" in pattern:
        return ("",)
    return tuple(dict.fromkeys(_beginning(part) for part in pattern.split("|")))


def _beginning(part: str) -> str:
    if part.startswith("(") and part.endswith(")") and part.count("(") == part.count(")") == 1:
        part = part[1:-1]  # librdkafka wraps each pattern of a subscription in these
    part = part.removeprefix("^").replace(r"\.", _DOT)
    count = next((at for at, sign in enumerate(part) if sign not in _PLAIN), len(part))
    found = part[: count - 1] if count and part[count : count + 1] in _REPEATS else part[:count]
    return found.replace(_DOT, ".")


def describe_mixed_protocols(group: str, topics: Iterable[str], table: RoutingTable) -> str:
    """Returns why classic readers of these topics exclude the newer protocol, else empty."""
    for topic in sorted(topics):
        if not table.stays(topic):
            return (
                f"group {escape_line(group)} cannot have members of both protocols: classic ones read {topic}, which "
                "is on"
                f" {table.route(topic)}, and groups are at home on {table.group_home()}; stop those of one"
                f" protocol first"
            )
    return ""


def describe_unsupported_protocol(group: str, lacking: Sequence[str]) -> str:
    where = join_names(lacking, len(lacking), " and ") or "a cluster"
    return (
        f"group {escape_line(str(group))} is of the new protocol, which {where} does not have: set "
        "group.protocol=classic"
    )


NO_GENERATION: Final = -1
_ERROR_OF_GROUP: Final = 2
_EPOCHS_OF_PLACES: Final = 5
_SEVERAL_GROUPS: Final = 8
_BATCHED_COORDINATORS: Final = 4
_TELLS_NO_GROUP: Final = 9
_OF_NEWER_GROUPS: Final = 9
# After this error every client repeats the request at the same broker.
_AGAIN: Final = Code.COORDINATOR_LOAD_IN_PROGRESS
_MOVED: Final = Code.NOT_COORDINATOR
_Piece: TypeAlias = Generator[Sequence[BrokerRequest], Sequence[BrokerResponse], Any]


class OffsetRequests:
    """OffsetCommit and OffsetFetch of one client. Remembers coordinators on other clusters."""

    def __init__(self, counting: RequestCounter | None = None) -> None:
        self._coordinators: dict[tuple[str, str], int] = {}
        self._counting = counting or RequestCounter()

    def route_commit(
        self,
        request: Request,
        asked: Any,
        place: BrokerId | None,
        table: RoutingTable,
        still: Callable[[], bool] = lambda: True,
    ) -> RequestDecision:
        """Commit each offset where it is kept. `still`: whether the grounds for the decision hold."""
        if place is None or place.cluster != table.group_home():
            return RespondNow(build_commit_errors(request, asked.topics, Code.NOT_COORDINATOR))
        if table.offset_commits_paused:
            return ParkRequest(build_commit_errors(request, asked.topics, _AGAIN))
        self._counting.committed(request, str(asked.group_id), asked.topics, place.cluster)
        told = message_codec.strip_commit_epochs(asked, table)
        if all(table.stays(str(one.name)) for one in asked.topics):
            rewrite = partial(_members_told, version=request.version) if request.version >= _TELLS_NO_GROUP else None
            body = encode_message(told) if told is not asked else None
            return ForwardRequest(place, rewrite=rewrite, body=body, topics=(GROUPS_HOME,))
        asked = told
        return FanOut(self._commit(request, asked, place, table, still), topics=(GROUPS_HOME,))

    def _commit(
        self, request: Request, asked: Any, place: BrokerId, table: RoutingTable, still: Callable[[], bool]
    ) -> FanOutSteps:
        if asked.generation_id_or_member_epoch != NO_GENERATION:
            code = yield from _member(request, asked, place, table)
        else:
            idle = yield from check_group_idle(str(asked.group_id), place, table)
            code = _AGAIN if idle is None else Code.NONE if idle else Code.UNKNOWN_MEMBER_ID
        if code not in (Code.NONE, Code.REBALANCE_IN_PROGRESS):
            return build_commit_errors(request, asked.topics, code)
        asks: list[BrokerRequest] = []
        lost: dict[str, int] = {}
        for cluster, topics in group_topics_by_cluster(asked.topics, table).items():
            body = replace(asked, topics=topics)
            where: BrokerId | Code = place
            if cluster != place.cluster:
                where = yield from self.coordinator(str(asked.group_id), cluster, table)
                body = replace(body, generation_id_or_member_epoch=NO_GENERATION, member_id="")
                if hasattr(body, "group_instance_id"):
                    body = replace(body, group_instance_id=None)
            if isinstance(where, Code):
                lost |= {str(topic.name): where for topic in topics}
            else:
                asks.append(BrokerRequest(where, OFFSET_COMMIT, request.version, encode_message(body)))
        if not still():
            return build_commit_errors(request, asked.topics, _AGAIN)
        said = (yield asks) if asks else []
        told: dict[str, Any] = {}
        for ask, heard in zip(asks, said, strict=True):
            topics = () if heard is None else _by_member(decode_response(OFFSET_COMMIT, request.version, heard)).topics
            codes = [part.error_code for one in topics for part in one.partitions]
            if ask.place == place or not self.moved(asked.group_id, ask.place, codes or [_MOVED]):
                told |= {str(one.name): one for one in topics}
        kind = get_response_type(OFFSET_COMMIT, request.version)
        missing = [one for one in asked.topics if str(one.name) not in told]
        refused = (build_topic_errors(kind, one, lost.get(str(one.name), _AGAIN)) for one in missing)
        return encode_message(build_message(kind, topics=(*told.values(), *refused)))

    def fetch(self, request: Request, place: BrokerId | None, table: RoutingTable) -> RequestDecision:
        """Fetch each offset from where it is kept."""
        asked = decode_request(request)
        several = request.version >= _SEVERAL_GROUPS
        groups = asked.groups if several else [asked]
        if place is None or place.cluster != table.group_home():
            return RespondNow(_told_places(request, [_no_places(request, one, Code.NOT_COORDINATOR) for one in groups]))
        topics = [topic for one in groups for topic in one.topics or ()]
        names = [str(one.name) for one in topics]
        here = all(table.stays(name) and not table.may_have_offsets_elsewhere(name) for name in names)
        if len(table.clusters) == 1 or (here and all(one.topics is not None for one in groups)):
            hides = request.version >= _EPOCHS_OF_PLACES
            return ForwardRequest(place, rewrite=partial(_places_hidden, version=request.version) if hides else None)
        return FanOut(self._fetch(request, asked, groups, place, table))

    def _fetch(
        self, request: Request, asked: Any, groups: Sequence[Any], place: BrokerId, table: RoutingTable
    ) -> FanOutSteps:
        told: dict[str, Any] = {}
        for group in groups:
            told[group.group_id] = yield from self._places(request, asked, group, place, table)
        return _told_places(request, [*told.values()])

    def _places(self, request: Request, asked: Any, group: Any, place: BrokerId, table: RoutingTable) -> _Piece:
        """Fetch one group's offsets. An unreadable offset fails the whole group, since the client would restart without
        it.
        """
        shares = dict.fromkeys(table.clusters) if group.topics is None else group_topics_by_cluster(group.topics, table)
        found = yield from self._places_at(request, asked, group, shares, place, table)
        if isinstance(found, Mapping) and group.topics is not None and (more := _missing(group, found, place, table)):
            # The twin may be newer than the offsets.
            elsewhere = yield from self._places_at(request, asked, group, more, place, table)
            found = elsewhere if not isinstance(elsewhere, Mapping) else {**found, **elsewhere}
        if not isinstance(found, Mapping):
            return found
        kind = get_response_type(OFFSET_FETCH, request.version)
        kind = get_element_type(kind, "groups") if request.version >= _SEVERAL_GROUPS else kind
        return build_message(kind, group_id=group.group_id, topics=_merged(found, table))

    def _places_at(
        self, request: Request, asked: Any, group: Any, shares: Mapping[str, Any], place: BrokerId, table: RoutingTable
    ) -> _Piece:
        """Returns the group's offsets by cluster and topic, or an error response."""
        several = request.version >= _SEVERAL_GROUPS
        asks: list[BrokerRequest] = []
        for cluster, topics in shares.items():
            where: BrokerId | Code = place
            one = replace(group, topics=topics)
            if cluster != place.cluster:
                where = yield from self.coordinator(str(group.group_id), cluster, table)
                if hasattr(one, "member_id"):
                    one = replace(one, member_id=None, member_epoch=NO_GENERATION)
            if isinstance(where, Code):
                return _no_places(request, group, where)
            body = encode_message(replace(asked, groups=(one,)) if several else one)
            asks.append(BrokerRequest(where, OFFSET_FETCH, request.version, body))
        said = (yield asks) if asks else []
        found: dict[tuple[str, str], Any] = {}
        for ask, heard in zip(asks, said, strict=True):
            whole = None if heard is None else decode_response(OFFSET_FETCH, request.version, heard)
            answer = whole.groups[0] if several and whole is not None else whole
            code = _MOVED if answer is None else getattr(answer, "error_code", Code.NONE)
            if ask.place != place and self.moved(group.group_id, ask.place, [code]):
                return _no_places(request, group, _AGAIN)
            if answer is None or code:
                return answer or _no_places(request, group, _AGAIN)
            found |= {
                (ask.place.cluster, str(one.name)): message_codec.strip_topic_epochs(one) for one in answer.topics
            }
        return found

    def coordinator(
        self, group: str, cluster: str, table: RoutingTable
    ) -> Generator[Sequence[BrokerRequest], Sequence[BrokerResponse], BrokerId | Code]:
        """Find the group's coordinator on a cluster other than home."""
        known = self._coordinators.get((cluster, group))
        if known is not None:
            return BrokerId(cluster, known)
        if not table.clusters[cluster].answers:
            return _AGAIN
        version = table.offers[FIND_COORDINATOR][1]
        body = encode_message(
            build_message(get_request_type(FIND_COORDINATOR, version), key=group, coordinator_keys=(group,))
        )
        (said,) = yield [BrokerRequest(BrokerId(cluster, ANY_BROKER), FIND_COORDINATOR, version, body)]
        whole = None if said is None else decode_response(FIND_COORDINATOR, version, said)
        answer = whole.coordinators[0] if whole is not None and version >= _BATCHED_COORDINATORS else whole
        if answer is None or answer.error_code:
            return _AGAIN
        self._coordinators[cluster, group] = answer.node_id
        return BrokerId(cluster, answer.node_id)

    def moved(self, group: str, place: BrokerId, codes: Sequence[int]) -> bool:
        """Whether the coordinator there has moved or is silent, and so is looked up again. The client only knows that
        at home.
        """
        moved = any(code in (Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE) for code in codes)
        if moved:
            self._coordinators.pop((place.cluster, str(group)), None)
        return moved


def _members_told(view: memoryview, at: int, version: int) -> Parts | None:
    """Returns the commit response for a missing group; None if the group is there."""
    whole = decode_response(OFFSET_COMMIT, version, view[at:])
    told = _by_member(whole)
    return None if told is whole else encode_message(told)


def _by_member(whole: Any) -> Any:
    """Answer UNKNOWN_MEMBER_ID to a member of a group that has moved, who then rejoins. GROUP_ID_NOT_FOUND would reach
    the application.
    """
    if all(part.error_code != Code.GROUP_ID_NOT_FOUND for one in whole.topics for part in one.partitions):
        return whole

    def told(part: Any) -> Any:
        gone = part.error_code == Code.GROUP_ID_NOT_FOUND
        return replace(part, error_code=to_error_code(Code.UNKNOWN_MEMBER_ID)) if gone else part

    topics = (replace(one, partitions=tuple(map(told, one.partitions))) for one in whole.topics)
    return replace(whole, topics=tuple(topics))


def _places_hidden(view: memoryview, at: int, version: int) -> Parts:
    whole = decode_response(OFFSET_FETCH, version, view[at:])
    if version < _SEVERAL_GROUPS:
        return encode_message(replace(whole, topics=tuple(map(message_codec.strip_topic_epochs, whole.topics))))
    groups = (replace(one, topics=tuple(map(message_codec.strip_topic_epochs, one.topics))) for one in whole.groups)
    return encode_message(replace(whole, groups=tuple(groups)))


def _member(
    request: Request, asked: Any, place: BrokerId, table: RoutingTable
) -> Generator[Sequence[BrokerRequest], Sequence[BrokerResponse], int]:
    """Ask the groups' home about the member that commits."""
    version = table.offers[HEARTBEAT][1]
    beat = build_message(
        get_request_type(HEARTBEAT, version),
        group_id=asked.group_id,
        generation_id=asked.generation_id_or_member_epoch,
        member_id=asked.member_id,
        group_instance_id=getattr(asked, "group_instance_id", None),
    )
    (said,) = yield [BrokerRequest(place, HEARTBEAT, version, encode_message(beat))]
    if said is None:
        return Code.COORDINATOR_NOT_AVAILABLE
    code = int(decode_response(HEARTBEAT, version, said).error_code)
    if code == Code.UNKNOWN_MEMBER_ID and table.serves_newer_groups and request.version >= _OF_NEWER_GROUPS:
        # A heartbeat of the newer protocol would take news that is meant for the member.
        one = yield from read_group_member(str(asked.group_id), str(asked.member_id), place, table)
        if one is not None:
            epoch = asked.generation_id_or_member_epoch
            return Code.NONE if one.member_epoch == epoch else Code.STALE_MEMBER_EPOCH
    return code


def group_topics_by_cluster(topics: Sequence[Any], table: RoutingTable) -> dict[str, tuple[Any, ...]]:
    """Group topics by the cluster that keeps their offsets."""
    found: dict[str, tuple[Any, ...]] = {}
    for one in topics:
        cluster = table.keeps(str(one.name))
        found[cluster] = (*found.get(cluster, ()), one)
    return found


def _missing(
    group: Any, found: Mapping[tuple[str, str], Any], place: BrokerId, table: RoutingTable
) -> dict[str, tuple[Any, ...]]:
    """Returns topics without an offset at the groups' home whose own cluster may have one, by cluster."""
    more: dict[str, tuple[Any, ...]] = {}
    for topic in group.topics:
        name = str(topic.name)
        there = found.get((place.cluster, name))
        has = {one.partition_index for one in there.partitions if _is_place(one)} if there is not None else set()
        if table.may_have_offsets_elsewhere(name) and not has.issuperset(topic.partition_indexes):
            cluster = table.routes[name]
            more[cluster] = (*more.get(cluster, ()), topic)
    return more


def _merged(found: Mapping[tuple[str, str], Any], table: RoutingTable) -> tuple[Any, ...]:
    """Merge topics. Where an offset is missing, that of the topic's own cluster counts."""
    told: dict[str, Any] = {}
    for (cluster, name), topic in found.items():
        if cluster == table.keeps(name):
            told[name] = topic
    for (cluster, name), topic in found.items():
        if table.may_have_offsets_elsewhere(name) and cluster == table.routes[name]:
            parts = {one.partition_index: one for one in topic.partitions}
            parts |= {
                one.partition_index: one for one in (told[name].partitions if name in told else ()) if _is_place(one)
            }
            told[name] = replace(topic, partitions=tuple(parts.values()))
    return tuple(told.values())


def _is_place(part: Any) -> bool:
    """Whether the partition has an offset, or an error."""
    return bool(part.error_code) or part.committed_offset >= 0


def _no_places(request: Request, group: Any, code: Code) -> Any:
    """Build an error response. Older versions have the error at each partition; newer ones list none, since clients
    would take those for lost.
    """
    kind = get_response_type(OFFSET_FETCH, request.version)
    kind = get_element_type(kind, "groups") if request.version >= _SEVERAL_GROUPS else kind
    if request.version >= _ERROR_OF_GROUP:
        return build_message(kind, group_id=group.group_id, error_code=to_error_code(code))
    return build_message(kind, topics=tuple(build_topic_errors(kind, one, code) for one in group.topics or ()))


def _told_places(request: Request, told: Sequence[Any]) -> Parts:
    if request.version < _SEVERAL_GROUPS:
        return encode_message(told[0])
    return encode_message(build_message(get_response_type(OFFSET_FETCH, request.version), groups=tuple(told)))
