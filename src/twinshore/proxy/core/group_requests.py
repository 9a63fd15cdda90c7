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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

from kio.schema.consumer_protocol_subscription.v0 import ConsumerProtocolSubscription
from kio.serial import entity_reader
from kio.serial.errors import SerialError

from twinshore.config.errors import WireError
from twinshore.config.frozen import GROUPS_HOME
from twinshore.config.sentences import escape_line, join_names
from twinshore.kafka.protocol.apis import OFFSET_COMMIT, OFFSET_FETCH
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.requests import Request
from twinshore.kafka.protocol.response_check import check_response
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
    ask_broker,
    ask_brokers,
    ask_metadata,
    build_commit_errors,
    build_error_response,
    build_request,
    build_response,
    build_topic_errors,
    decode_request,
    decode_response,
    encode_message,
    get_response_type,
    strip_commit_epochs,
    strip_topic_epochs,
)
from twinshore.proxy.core.model import (
    ANY_BROKER,
    CONSUMER_GROUP_DESCRIBE,
    RESPONSE_TIMEOUT_S,
    BrokerId,
    BrokerRequest,
    FanOut,
    FanOutSteps,
    ForwardRequest,
    ParkRequest,
    Parts,
    RequestDecision,
    RespondNow,
    RoutingTable,
    SubRequests,
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
_HIDDEN: Final = (Code.unknown_topic_or_partition, Code.topic_authorization_failed)


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
        return RespondNow(build_error_response(request, Code.not_coordinator))
    if table.groups_gathering and request.key == HEARTBEAT:
        # On this error a member commits what it has read, and rejoins.
        return RespondNow(build_error_response(request, Code.rebalance_in_progress))
    if table.groups_gathering and request.key == JOIN_GROUP:
        return ParkRequest(build_error_response(request, Code.coordinator_load_in_progress))
    return ForwardRequest(place, _JOINING_S if request.key in (JOIN_GROUP, SYNC_GROUP) else RESPONSE_TIMEOUT_S)


def route_describe_groups(request: Request, place: BrokerId | None, table: RoutingTable) -> RequestDecision:
    """Route DescribeGroups of both protocols and ListGroups. Other clusters only keep offsets, and list no groups."""
    if place is not None and place.cluster == table.group_home():
        return ForwardRequest(place)
    if request.key == LIST_GROUPS:
        return RespondNow(build_response(request))
    asked = decode_request(request)
    names = asked.group_ids if request.key == CONSUMER_GROUP_DESCRIBE else asked.groups
    groups = [{"group_id": name, "error_code": Code.not_coordinator} for name in names]
    return RespondNow(build_response(request, groups=groups))


class Subscription(NamedTuple):
    """A member's topics. `pattern`: as brokers read it, or empty."""

    names: tuple[str, ...]
    pattern: str


def build_subscription(names: Iterable[str] | None, pattern: str | None) -> Subscription:
    return Subscription(tuple(map(str, names or ())), str(pattern or ""))


class ConsumerProtocolGroups:
    """Groups of the newer protocol (KIP-848), for one client.

    `at_work` notes why a member is refused, as not every client shows that. `holds`: whether joins to a group wait.
    `news` asks for a new look at the clusters.
    """

    def __init__(self, at_work: ActiveMembers, holds: Callable[[str], bool], news: Callable[[], None]) -> None:
        self._at_work, self._holds, self._news = at_work, holds, news
        self._known: dict[tuple[str, str], Subscription] = {}
        self._hidden: dict[tuple[str, str], tuple[str, ...]] = {}  # topics that a member lacks and may not see

    def beat(self, request: Request, place: BrokerId | None, table: RoutingTable) -> RequestDecision:
        """Judge ConsumerGroupHeartbeat, by which members join, go on and leave."""
        asked = decode_request(request)
        if not table.serves_newer_groups:
            why = describe_unsupported_protocol(asked.group_id, table.lack_newer_groups)
            return self._refused(request, Code.unsupported_version, why)
        if place is None or place.cluster != table.group_home():
            return RespondNow(build_error_response(request, Code.not_coordinator))
        member = str(asked.group_id), str(asked.member_id)
        if asked.member_epoch < 0:
            self._known.pop(member, None)
            self._hidden.pop(member, None)
            return ForwardRequest(place)
        joins = asked.member_epoch == 0
        if table.groups_gathering or (joins and self._holds(member[0])):
            return RespondNow(build_error_response(request, Code.coordinator_load_in_progress))
        if why := describe_oversized_subscription(asked):
            return self._refused(request, Code.invalid_request, why)
        wanted = self._complete(asked, Subscription((), "") if joins else self._known.get(member))
        if joins or wanted is None or find_missing_topics(wanted, table) not in ((), self._hidden.get(member)):
            return FanOut(self._ask(request, asked, wanted, place, table))
        return ForwardRequest(place, rewrite=partial(_goes_on, request))

    def _complete(self, asked: Any, before: Subscription | None) -> Subscription | None:
        """Returns the whole subscription, of which a request has what has changed; None if unknown."""
        names, pattern = asked.subscribed_topic_names, getattr(asked, "subscribed_topic_regex", "")
        if before is not None:
            names = before.names if names is None else names
            pattern = before.pattern if pattern is None else pattern
        if names is None or pattern is None:
            return None
        member, wanted = (str(asked.group_id), str(asked.member_id)), build_subscription(names, pattern)
        if member[1] and (member in self._known or len(self._known) < _GROUPS_MAX):
            self._known[member] = wanted
        return wanted

    def _ask(
        self, request: Request, asked: Any, wanted: Subscription | None, place: BrokerId, table: RoutingTable
    ) -> FanOutSteps:
        """Ask what must be known first, then the coordinator."""
        group, why = str(asked.group_id), ""
        if wanted is None:
            described = yield from read_group_member(group, str(asked.member_id), place, table)
            if described is None:
                pattern = getattr(asked, "subscribed_topic_regex", None)
                wanted = build_subscription(asked.subscribed_topic_names, pattern)
            else:
                before = build_subscription(described.subscribed_topic_names, described.subscribed_topic_regex)
                wanted = self._complete(asked, before)
        if asked.member_epoch == 0:
            classic = yield from _classic_topics(group, place, table)
            if classic is None:
                return build_error_response(request, Code.coordinator_load_in_progress)
            why = describe_mixed_protocols(group, classic, table)
        if not why and wanted is not None and (missing := find_missing_topics(wanted, table)):
            # The twin may be new.
            made = yield from _existing_topics(sorted({*missing} & {*wanted.names}), place, table)
            if made:
                self._news()
            missing = tuple(topic for topic in missing if topic not in made)
            shown = yield from _shown_topics(missing, table)
            if shown is None:
                return build_error_response(request, Code.coordinator_load_in_progress)
            why = describe_missing_topics(group, wanted, missing, table, shown)
            if not why and (group, str(asked.member_id)) in self._known:
                self._hidden[group, str(asked.member_id)] = missing
        if why:
            return self._refused(request, Code.invalid_request, why).body
        body = request.view[request.position :]
        (answer,) = yield [BrokerRequest(place, request.key, request.version, [body])]
        if answer is None:
            return build_error_response(request, Code.coordinator_not_available)
        return _goes_on(request, answer, 0) or [answer]

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
        return build_error_response(request, Code.inconsistent_group_protocol)


def _describe(group: str, key: int, place: BrokerId, table: RoutingTable) -> SubRequests[Any]:
    """Describe the group at its coordinator, by this API; None without an answer."""
    answer = yield from ask_broker(place, build_request(key, table.offers[key][1], groups=(group,), group_ids=(group,)))
    return None if answer is None else next(iter(answer.groups), None)


def read_group_members(group: str, place: BrokerId, table: RoutingTable) -> SubRequests[Any]:
    """Returns members of the newer protocol; None without an answer."""
    found = yield from _describe(group, CONSUMER_GROUP_DESCRIBE, place, table)
    return None if found is None else found.members


def check_group_idle(group: str, place: BrokerId, table: RoutingTable) -> SubRequests[bool | None]:
    """Whether the group has no members of either protocol; None without an answer."""
    found = yield from _describe(group, DESCRIBE_GROUPS, place, table)
    if found is None or found.error_code not in (Code.none, Code.group_id_not_found):
        return None
    if not found.error_code and found.group_state not in _IDLE:
        return False
    # This request does not find groups of the newer protocol.
    newer = (yield from read_group_members(group, place, table)) if table.serves_newer_groups else ()
    return None if newer is None else not newer


def read_group_member(group: str, member: str, place: BrokerId, table: RoutingTable) -> SubRequests[Any]:
    """Returns the member of the newer protocol; None if unknown."""
    known = yield from read_group_members(group, place, table)
    return next((one for one in known or () if one.member_id == member), None)


def _classic_topics(group: str, place: BrokerId, table: RoutingTable) -> SubRequests[set[str] | None]:
    """Returns topics of the group's classic members; None while unknown."""
    found = yield from _describe(group, DESCRIBE_GROUPS, place, table)
    if found is None or (found.members and found.group_state in _REBALANCES):
        return None
    return {topic for one in found.members for topic in parse_subscribed_topics(one.member_metadata)}


def _shown_topics(topics: Iterable[str], table: RoutingTable) -> SubRequests[frozenset[str] | None]:
    """Returns those topics that their clusters show to this client; None without an answer."""
    by_broker: dict[BrokerId, list[str]] = {}
    for topic in topics:
        if (cluster := table.route(topic)) is not None:
            by_broker.setdefault(BrokerId(cluster, ANY_BROKER), []).append(topic)
    answers = yield from ask_metadata(by_broker, table)
    if None in answers.values():
        return None
    found = (topic for answer in answers.values() for topic in answer.topics)
    return frozenset(str(topic.name) for topic in found if topic.error_code not in _HIDDEN)


def _existing_topics(names: Sequence[str], place: BrokerId, table: RoutingTable) -> SubRequests[frozenset[str]]:
    """Returns those topics that the groups' home has by now."""
    asked = [name for name in names if name not in table.own]
    answers = yield from ask_metadata({place: asked} if asked else {}, table)
    found = (topic for answer in answers.values() if answer is not None for topic in answer.topics)
    return frozenset(str(topic.name) for topic in found if not topic.error_code)


def _goes_on(request: Request, view: memoryview, at: int) -> Parts | None:
    """Answer UNKNOWN_MEMBER_ID to a member of a group that has moved, who then rejoins. GROUP_ID_NOT_FOUND would end
    it.
    """
    answer = decode_response(CONSUMER_GROUP_HEARTBEAT, request.version, view[at:])
    if answer.error_code != Code.group_id_not_found:
        return None
    return build_error_response(request, Code.unknown_member_id, error_message=answer.error_message)


def parse_subscribed_topics(metadata: bytes) -> Iterator[str]:
    """Yields the topics in a classic member's metadata; none if unreadable."""
    body, kind = memoryview(metadata), ConsumerProtocolSubscription
    try:
        # The first two bytes are its version; later ones begin alike.
        found = entity_reader(kind)(check_response(body[2:], kind), 0)[0]
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


def find_missing_topics(wanted: Subscription, table: RoutingTable) -> tuple[str, ...]:
    """Returns topics that the groups' home lacks: those that the member names, then possible matches of its pattern."""
    matches: set[str] = set()
    elsewhere = table.elsewhere if wanted.pattern else ()
    for prefix in list_pattern_prefixes(wanted.pattern) if elsewhere else ():
        at = bisect_left(elsewhere, prefix)
        while at < len(elsewhere) and elsewhere[at].startswith(prefix):
            matches.add(elsewhere[at])
            at += 1
        if len(matches) == len(elsewhere):
            break
    named = (topic for topic in wanted.names if not table.stays(topic))
    return tuple(dict.fromkeys((*named, *sorted(matches))))


def describe_missing_topics(
    group: str, wanted: Subscription, missing: Iterable[str], table: RoutingTable, shown: frozenset[str]
) -> str:
    """Returns why a member that lacks these topics is refused, else empty. `shown`: topics that the member may see."""
    home, named = table.group_home(), escape_line(group)
    topic = next((topic for topic in missing if topic in shown), None)
    if topic is None:
        return ""
    if topic in wanted.names:
        return (
            f"group {named} cannot read {topic}: groups are at home on {home}, which does not have it, as it is on"
            f" {table.route(topic)}; have a link replicate it to {home}, or set group.protocol=classic"
        )
    return (
        f"group {named} cannot read by the pattern {escape_line(wanted.pattern)[:_SHOWN_MAX]}, which may mean {topic}:"
        f" groups are at home on {home}, which does not have it; subscribe to topics by name, or set"
        " group.protocol=classic"
    )


@lru_cache(256)
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
                f"group {escape_line(group)} cannot have members of both protocols: classic ones read {topic}, which is"
                f" on {table.route(topic)}, and groups are at home on {table.group_home()}; stop those of one protocol"
                " first"
            )
    return ""


def describe_unsupported_protocol(group: str, lacking: Sequence[str]) -> str:
    where = join_names(lacking, len(lacking), " and ") or "a cluster"
    return (
        f"group {escape_line(str(group))} is of the new protocol, which {where} does not have: set "
        "group.protocol=classic"
    )


NO_GENERATION: Final = -1
# Versions of OffsetFetch: the first with an error of the group, with leader epochs, and with several groups.
_GROUP_ERROR_VERSION: Final = 2
_EPOCHS_VERSION: Final = 5
_SEVERAL_GROUPS_VERSION: Final = 8
_BATCHED_COORDINATORS: Final = 4
# The first version of OffsetCommit for members of the newer protocol. From there a missing group is an error.
_NEWER_COMMIT_VERSION: Final = 9
# After this error every client repeats the request at the same broker.
_AGAIN: Final = Code.coordinator_load_in_progress


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
            return RespondNow(build_commit_errors(request, asked.topics, Code.not_coordinator))
        if table.offset_commits_paused:
            return ParkRequest(build_commit_errors(request, asked.topics, _AGAIN))
        self._counting.committed(request, str(asked.group_id), asked.topics, place.cluster)
        told = strip_commit_epochs(asked, table)
        if all(table.stays(str(topic.name)) for topic in asked.topics):
            is_newer = request.version >= _NEWER_COMMIT_VERSION
            rewrite = partial(_members_told, version=request.version) if is_newer else None
            body = encode_message(told) if told is not asked else None
            return ForwardRequest(place, rewrite=rewrite, body=body, topics=(GROUPS_HOME,))
        return FanOut(self._commit(request, told, place, table, still), topics=(GROUPS_HOME,))

    def _commit(
        self, request: Request, asked: Any, place: BrokerId, table: RoutingTable, still: Callable[[], bool]
    ) -> FanOutSteps:
        if asked.generation_id_or_member_epoch != NO_GENERATION:
            code = yield from _check_member(request, asked, place, table)
        else:
            idle = yield from check_group_idle(str(asked.group_id), place, table)
            code = _AGAIN if idle is None else Code.none if idle else Code.unknown_member_id
        if code not in (Code.none, Code.rebalance_in_progress):
            return build_commit_errors(request, asked.topics, code)
        questions: dict[BrokerId, Any] = {}
        lost: dict[str, int] = {}
        for cluster, topics in group_topics_by_cluster(asked.topics, table).items():
            commit = replace(asked, topics=topics)
            coordinator: BrokerId | Code = place
            if cluster != place.cluster:
                coordinator = yield from self.coordinator(str(asked.group_id), cluster, table)
                commit = replace(commit, generation_id_or_member_epoch=NO_GENERATION, member_id="")
                if hasattr(commit, "group_instance_id"):
                    commit = replace(commit, group_instance_id=None)
            if isinstance(coordinator, Code):
                lost |= {str(topic.name): coordinator for topic in topics}
            else:
                questions[coordinator] = commit
        if not still():
            return build_commit_errors(request, asked.topics, _AGAIN)
        answers = yield from ask_brokers(questions)
        told: dict[str, Any] = {}
        for at, answer in answers.items():
            topics = () if answer is None else _by_member(answer).topics
            codes = [part.error_code for topic in topics for part in topic.partitions]
            if at == place or not self.moved(asked.group_id, at, codes or [Code.not_coordinator]):
                told |= {str(topic.name): topic for topic in topics}
        kind = get_response_type(OFFSET_COMMIT, request.version)
        missing = [topic for topic in asked.topics if str(topic.name) not in told]
        refused = [build_topic_errors(kind, topic, lost.get(str(topic.name), _AGAIN)) for topic in missing]
        return build_response(request, topics=[*told.values(), *refused])

    def fetch(self, request: Request, place: BrokerId | None, table: RoutingTable) -> RequestDecision:
        """Fetch each offset from where it is kept."""
        asked = decode_request(request)
        groups = asked.groups if request.version >= _SEVERAL_GROUPS_VERSION else [asked]
        if place is None or place.cluster != table.group_home():
            refused = [_offset_errors(request, group, Code.not_coordinator) for group in groups]
            return RespondNow(_offsets_response(request, refused))
        names = [str(topic.name) for group in groups for topic in group.topics or ()]
        here = all(table.stays(name) and not table.may_have_offsets_elsewhere(name) for name in names)
        if len(table.clusters) == 1 or (here and all(group.topics is not None for group in groups)):
            rewrite = partial(_hide_epochs, version=request.version)
            return ForwardRequest(place, rewrite=rewrite if request.version >= _EPOCHS_VERSION else None)
        return FanOut(self._fetch(request, asked, groups, place, table))

    def _fetch(
        self, request: Request, asked: Any, groups: Sequence[Any], place: BrokerId, table: RoutingTable
    ) -> FanOutSteps:
        results: dict[str, dict[str, Any]] = {}
        for group in groups:
            results[group.group_id] = yield from self._offsets(request, asked, group, place, table)
        return _offsets_response(request, [*results.values()])

    def _offsets(
        self, request: Request, asked: Any, group: Any, place: BrokerId, table: RoutingTable
    ) -> SubRequests[dict[str, Any]]:
        """Fetch one group's offsets. An unreadable offset fails the whole group, since the client would restart without
        it.
        """
        shares = dict.fromkeys(table.clusters) if group.topics is None else group_topics_by_cluster(group.topics, table)
        found = yield from self._offsets_at(request, asked, group, shares, place, table)
        if isinstance(found, dict) and group.topics is not None and (more := _missing(group, found, place, table)):
            # The twin may be newer than the offsets.
            elsewhere = yield from self._offsets_at(request, asked, group, more, place, table)
            found = found | elsewhere if isinstance(elsewhere, dict) else elsewhere
        if not isinstance(found, dict):
            return _offset_errors(request, group, found)
        return {"group_id": group.group_id, "topics": _merged(found, table)}

    def _offsets_at(
        self, request: Request, asked: Any, group: Any, shares: Mapping[str, Any], place: BrokerId, table: RoutingTable
    ) -> SubRequests[dict[tuple[str, str], Any] | int]:
        """Returns the group's offsets by cluster and topic, or an error code."""
        several = request.version >= _SEVERAL_GROUPS_VERSION
        questions: dict[BrokerId, Any] = {}
        for cluster, topics in shares.items():
            coordinator: BrokerId | Code = place
            share = replace(group, topics=topics)
            if cluster != place.cluster:
                coordinator = yield from self.coordinator(str(group.group_id), cluster, table)
                if hasattr(share, "member_id"):
                    share = replace(share, member_id=None, member_epoch=NO_GENERATION)
            if isinstance(coordinator, Code):
                return coordinator
            questions[coordinator] = replace(asked, groups=(share,)) if several else share
        answers = yield from ask_brokers(questions)
        found: dict[tuple[str, str], Any] = {}
        for at, answer in answers.items():
            if several and answer is not None:
                answer = answer.groups[0]
            code = Code.not_coordinator if answer is None else getattr(answer, "error_code", Code.none)
            if at != place and self.moved(group.group_id, at, [code]):
                return _AGAIN
            if answer is None or code:
                return _AGAIN if answer is None else int(code)
            found |= {(at.cluster, str(topic.name)): strip_topic_epochs(topic) for topic in answer.topics}
        return found

    def coordinator(self, group: str, cluster: str, table: RoutingTable) -> SubRequests[BrokerId | Code]:
        """Find the group's coordinator on a cluster other than home."""
        known = self._coordinators.get((cluster, group))
        if known is not None:
            return BrokerId(cluster, known)
        if not table.clusters[cluster].answers:
            return _AGAIN
        version = table.offers[FIND_COORDINATOR][1]
        question = build_request(FIND_COORDINATOR, version, key=group, coordinator_keys=(group,))
        answer = yield from ask_broker(BrokerId(cluster, ANY_BROKER), question)
        if answer is not None and version >= _BATCHED_COORDINATORS:
            answer = answer.coordinators[0]
        if answer is None or answer.error_code:
            return _AGAIN
        self._coordinators[cluster, group] = answer.node_id
        return BrokerId(cluster, answer.node_id)

    def moved(self, group: str, place: BrokerId, codes: Sequence[int]) -> bool:
        """Whether the coordinator there has moved or is silent, and so is looked up again. The client only knows that
        at home.
        """
        moved = any(code in (Code.not_coordinator, Code.coordinator_not_available) for code in codes)
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
    if all(part.error_code != Code.group_id_not_found for topic in whole.topics for part in topic.partitions):
        return whole

    def told(part: Any) -> Any:
        gone = part.error_code == Code.group_id_not_found
        return replace(part, error_code=Code.unknown_member_id) if gone else part

    topics = (replace(topic, partitions=tuple(map(told, topic.partitions))) for topic in whole.topics)
    return replace(whole, topics=tuple(topics))


def _hide_epochs(view: memoryview, at: int, version: int) -> Parts:
    whole = decode_response(OFFSET_FETCH, version, view[at:])
    if version < _SEVERAL_GROUPS_VERSION:
        return encode_message(replace(whole, topics=tuple(map(strip_topic_epochs, whole.topics))))
    groups = (replace(group, topics=tuple(map(strip_topic_epochs, group.topics))) for group in whole.groups)
    return encode_message(replace(whole, groups=tuple(groups)))


def _check_member(request: Request, asked: Any, place: BrokerId, table: RoutingTable) -> SubRequests[int]:
    """Ask the groups' home about the member that commits."""
    epoch = asked.generation_id_or_member_epoch
    heartbeat = build_request(
        HEARTBEAT,
        table.offers[HEARTBEAT][1],
        group_id=asked.group_id,
        generation_id=epoch,
        member_id=asked.member_id,
        group_instance_id=getattr(asked, "group_instance_id", None),
    )
    answer = yield from ask_broker(place, heartbeat)
    if answer is None:
        return Code.coordinator_not_available
    is_newer = table.serves_newer_groups and request.version >= _NEWER_COMMIT_VERSION
    if answer.error_code == Code.unknown_member_id and is_newer:
        # A heartbeat of the newer protocol would take news that is meant for the member.
        member = yield from read_group_member(str(asked.group_id), str(asked.member_id), place, table)
        if member is not None:
            return Code.none if member.member_epoch == epoch else Code.stale_member_epoch
    return int(answer.error_code)


def group_topics_by_cluster(topics: Sequence[Any], table: RoutingTable) -> dict[str, tuple[Any, ...]]:
    """Group topics by the cluster that keeps their offsets."""
    found: dict[str, tuple[Any, ...]] = {}
    for topic in topics:
        cluster = table.keeps(str(topic.name))
        found[cluster] = (*found.get(cluster, ()), topic)
    return found


def _missing(
    group: Any, found: Mapping[tuple[str, str], Any], place: BrokerId, table: RoutingTable
) -> dict[str, tuple[Any, ...]]:
    """Returns topics without an offset at the groups' home whose own cluster may have one, by cluster."""
    more: dict[str, tuple[Any, ...]] = {}
    for topic in group.topics:
        name = str(topic.name)
        there = found.get((place.cluster, name))
        has = {part.partition_index for part in there.partitions if _has_offset(part)} if there is not None else set()
        if table.may_have_offsets_elsewhere(name) and not has.issuperset(topic.partition_indexes):
            cluster = table.routes[name]
            more[cluster] = (*more.get(cluster, ()), topic)
    return more


def _merged(found: Mapping[tuple[str, str], Any], table: RoutingTable) -> tuple[Any, ...]:
    """Merge topics. Where an offset is missing, that of the topic's own cluster counts."""
    topics = {name: topic for (cluster, name), topic in found.items() if cluster == table.keeps(name)}
    for (cluster, name), topic in found.items():
        if table.may_have_offsets_elsewhere(name) and cluster == table.routes[name]:
            parts = {part.partition_index: part for part in topic.partitions}
            at_home = topics[name].partitions if name in topics else ()
            parts |= {part.partition_index: part for part in at_home if _has_offset(part)}
            topics[name] = replace(topic, partitions=tuple(parts.values()))
    return tuple(topics.values())


def _has_offset(part: Any) -> bool:
    """Whether the partition has an offset, or an error."""
    return bool(part.error_code) or part.committed_offset >= 0


def _offset_errors(request: Request, group: Any, code: int) -> dict[str, Any]:
    """Returns the values of an error response. Older versions have the error at each partition; newer ones list none,
    since clients would take those for lost.
    """
    if request.version >= _GROUP_ERROR_VERSION:
        return {"group_id": group.group_id, "error_code": code}
    kind = get_response_type(OFFSET_FETCH, request.version)
    return {"topics": [build_topic_errors(kind, topic, code) for topic in group.topics or ()]}


def _offsets_response(request: Request, groups: Sequence[dict[str, Any]]) -> Parts:
    return build_response(request, **groups[0] if request.version < _SEVERAL_GROUPS_VERSION else {"groups": groups})
