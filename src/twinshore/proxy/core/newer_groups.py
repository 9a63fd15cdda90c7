"""Groups of the newer protocol (KIP-848), whose coordinator deals out partitions. Pure.

It deals out those of its own cluster alone, and says nothing of a topic that its cluster does not have. So a member is
served where the groups' home has every topic that it names, its own or a twin's, and refused else, with a sentence that
names the topic. A member says what it subscribes to as it joins, and as that changes. It is remembered, and judged anew
with each heartbeat, as topics come and go. Of a member that comes by a connection that does not know it the coordinator
is asked.

A group of the classic protocol becomes one of the newer protocol as the first member of that joins it, and then the
coordinator deals out to all. So nobody joins a group whose classic members read what the coordinator does not have, and
who reads that is no member of a group that is of the newer protocol already.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from kio.schema.consumer_protocol_subscription.v0 import ConsumerProtocolSubscription
from kio.serial import entity_reader
from kio.serial.errors import SerialError

from twinshore.fleet.errors import WireError
from twinshore.fleet.sentences import listed, one_line
from twinshore.kafka.errors import Code
from twinshore.kafka.shapes import checked
from twinshore.links.filters import is_of_no_application
from twinshore.proxy.core.layout import Place
from twinshore.proxy.core.messages import (
    answer_kind,
    error,
    filled,
    part_of,
    read_asked,
    read_said,
    refusal,
    request_kind,
    written,
)
from twinshore.proxy.core.moves import Ask, Errand, Move, Parts, Pass, Run, Said, Say
from twinshore.proxy.core.offers import DESCRIBE_GROUPS, HEARTBEAT_OF_NEWER_GROUP, JOIN_GROUP
from twinshore.proxy.core.seen import CONSUMER_GROUP_DESCRIBE, Seen
from twinshore.wire.apis import METADATA
from twinshore.wire.serving.requests import Request

# A client is a member of one group; whoever says that it is one of many more is asked about each time.
_MEMBERS_MAX: Final = 16
_SHOWN_MAX: Final = 80
# What stands for itself in a pattern; a dot does where it is written as `\\.`, which is one sign here.
_DOT: Final = "\0"
_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-" + _DOT)
_REPEATS: Final = ("*", "?", "{")
_REBALANCES: Final = ("PreparingRebalance", "CompletingRebalance")
_IDLE: Final = ("Empty", "Dead")
_Piece = Generator[Sequence[Ask], Sequence[Said], Any]


class Subscription(NamedTuple):
    """`pattern`: of names, as brokers read it; empty where there is none."""

    names: tuple[str, ...]
    pattern: str


class NewerGroups:
    """For one client. `tell` hears why a member is refused, as not every client shows it; `holds`: whether nobody may
    join a group now; `news`: the clusters seem to be other than they are known."""

    def __init__(self, tell: Callable[[str], None], holds: Callable[[str], bool], news: Callable[[], None]) -> None:
        self._tell, self._holds, self._news = tell, holds, news
        self._known: dict[tuple[str, str], Subscription] = {}

    def beat(self, request: Request, place: Place | None, seen: Seen) -> Move:
        """ConsumerGroupHeartbeat, by which members join, go on and leave."""
        asked = read_asked(request)
        if not seen.serves_newer_groups:
            return self._refused(request, Code.UNSUPPORTED_VERSION, not_served(asked.group_id, seen.lack_newer_groups))
        if place is None or place.cluster != seen.group_home():
            return Say(refusal(request, Code.NOT_COORDINATOR))
        member = str(asked.group_id), str(asked.member_id)
        if asked.member_epoch < 0:
            self._known.pop(member, None)
            return Pass(place)
        joins = asked.member_epoch == 0
        if seen.groups_gather or (joins and self._holds(member[0])):
            return Say(refusal(request, Code.COORDINATOR_LOAD_IN_PROGRESS))
        wanted = self._wanted(asked, member)
        if joins or wanted is None or why_not(member[0], wanted, seen):
            return Run(self._looked(request, asked, wanted, place, seen))
        return Pass(place, rewrite=partial(_goes_on, request))

    def _wanted(self, asked: Any, member: tuple[str, str]) -> Subscription | None:
        """All that the member subscribes to; None where it has not said that here."""
        names, pattern = asked.subscribed_topic_names, getattr(asked, "subscribed_topic_regex", "")
        before = Subscription((), "") if asked.member_epoch == 0 else self._known.get(member)
        if before is not None:
            names = before.names if names is None else names
            pattern = before.pattern if pattern is None else pattern
        if names is None or pattern is None:
            return None
        return self._remembered(member, Subscription(tuple(map(str, names)), str(pattern)))

    def _remembered(self, member: tuple[str, str], wanted: Subscription) -> Subscription:
        if member[1] and (member in self._known or len(self._known) < _MEMBERS_MAX):
            self._known[member] = wanted
        return wanted

    def _looked(self, request: Request, asked: Any, wanted: Subscription | None, place: Place, seen: Seen) -> Errand:
        """Asks what must be known first, and then the coordinator."""
        group, why = str(asked.group_id), ""
        if wanted is None:
            wanted = yield from self._described(asked, place, seen)
        if asked.member_epoch == 0:
            classic = yield from _classic_members(group, place, seen)
            if classic is None:
                return refusal(request, Code.COORDINATOR_LOAD_IN_PROGRESS)
            why = not_together(group, classic, seen)
        if not why and wanted is not None and (why := why_not(group, wanted, seen)):
            # A twin may just have been made.
            made = yield from _there(wanted.names, place, seen)
            if made:
                self._news()
            why = why_not(group, wanted, seen, made)
        if why:
            self._tell(why)
            return refusal(request, Code.INVALID_REQUEST, error_message=why)
        body = request.view[request.position :]
        (said,) = yield [Ask(place, request.key, request.version, [body])]
        if said is None:
            return refusal(request, Code.COORDINATOR_NOT_AVAILABLE)
        return _goes_on(request, said, 0) or [said]

    def _described(self, asked: Any, place: Place, seen: Seen) -> _Piece:
        """What the coordinator knows of the member, with what it says itself; of one that nobody knows that alone."""
        group, member = str(asked.group_id), str(asked.member_id)
        one = yield from described(group, member, place, seen)
        names, pattern = asked.subscribed_topic_names, getattr(asked, "subscribed_topic_regex", None)
        if one is None:
            return None if names is None and not pattern else Subscription(tuple(map(str, names or ())), pattern or "")
        names = one.subscribed_topic_names if names is None else names
        pattern = one.subscribed_topic_regex if pattern is None else pattern
        return self._remembered((group, member), Subscription(tuple(map(str, names)), str(pattern or "")))

    def _refused(self, request: Request, code: Code, why: str) -> Say:
        self._tell(why)
        return Say(refusal(request, code, error_message=why))

    def joins(self, request: Request, move: Move, seen: Seen) -> Move:
        """JoinGroup, by which members of the classic protocol join: what was made of it already."""
        if not isinstance(move, Pass) or not seen.serves_newer_groups:
            return move
        asked = read_asked(request)
        topics = {topic for one in asked.protocols for topic in subscribed(one.metadata)}
        why = not_together(str(asked.group_id), topics, seen)
        return move._replace(rewrite=partial(self._joined, request, why)) if why else move

    def _joined(self, request: Request, why: str, view: memoryview, at: int) -> Parts | None:
        """A coordinator that deals out by itself names nobody as the one who does."""
        answer = read_said(JOIN_GROUP, request.version, view[at:])
        if answer.error_code or answer.leader:
            return None
        self._tell(why)
        return refusal(request, Code.INCONSISTENT_GROUP_PROTOCOL)


def describe(request: Request, place: Place | None, seen: Seen) -> Move:
    """ConsumerGroupDescribe: what the groups' home knows."""
    if place is not None and place.cluster == seen.group_home():
        return Pass(place)
    kind = answer_kind(request.key, request.version)
    part, code = part_of(kind, "groups"), error(Code.NOT_COORDINATOR)
    groups = tuple(filled(part, group_id=group, error_code=code) for group in read_asked(request).group_ids)
    return Say(written(filled(kind, groups=groups)))


def members(group: str, place: Place, seen: Seen) -> _Piece:
    """Those of the newer protocol, as their coordinator knows them; None where it does not say."""
    version = seen.offers[CONSUMER_GROUP_DESCRIBE][1]
    body = written(filled(request_kind(CONSUMER_GROUP_DESCRIBE, version), group_ids=(group,)))
    (said,) = yield [Ask(place, CONSUMER_GROUP_DESCRIBE, version, body)]
    if said is None:
        return None
    return [one for some in read_said(CONSUMER_GROUP_DESCRIBE, version, said).groups for one in some.members]


def is_idle(group: str, place: Place, seen: Seen) -> _Piece:
    """Whether the group has no members of either protocol; None where its coordinator does not say."""
    version = seen.offers[DESCRIBE_GROUPS][1]
    body = written(filled(request_kind(DESCRIBE_GROUPS, version), groups=(group,)))
    (said,) = yield [Ask(place, DESCRIBE_GROUPS, version, body)]
    found = next(iter(() if said is None else read_said(DESCRIBE_GROUPS, version, said).groups), None)
    if found is None or found.error_code not in (Code.NONE, Code.GROUP_ID_NOT_FOUND):
        return None
    if not found.error_code and found.group_state not in _IDLE:
        return False
    # One of the newer protocol is none by this question.
    newer = (yield from members(group, place, seen)) if seen.serves_newer_groups else ()
    return None if newer is None else not newer


def described(group: str, member: str, place: Place, seen: Seen) -> _Piece:
    """The member of the newer protocol, as its coordinator knows it; None where it knows none."""
    known = yield from members(group, place, seen)
    return next((one for one in known or () if one.member_id == member), None)


def _classic_members(group: str, place: Place, seen: Seen) -> _Piece:
    """What the classic members of the group read; None while the coordinator does not say."""
    version = seen.offers[DESCRIBE_GROUPS][1]
    body = written(filled(request_kind(DESCRIBE_GROUPS, version), groups=(group,)))
    (said,) = yield [Ask(place, DESCRIBE_GROUPS, version, body)]
    if said is None:
        return None
    (found,) = read_said(DESCRIBE_GROUPS, version, said).groups
    if found.members and found.group_state in _REBALANCES:
        return None
    return {topic for one in found.members for topic in subscribed(one.member_metadata)}


def _there(names: Sequence[str], place: Place, seen: Seen) -> _Piece:
    """Which of these the groups' home has, though that was not known."""
    lacking = [name for name in names if not seen.stays(name) and name not in seen.own]
    version = seen.offers[METADATA][1]
    kind = request_kind(METADATA, version)
    topics = tuple(filled(part_of(kind, "topics"), name=name) for name in lacking)
    body = written(filled(kind, topics=topics, allow_auto_topic_creation=False))
    (said,) = (yield [Ask(place, METADATA, version, body)]) if lacking else (None,)
    told = () if said is None else read_said(METADATA, version, said).topics
    return frozenset(str(one.name) for one in told if not one.error_code)


def _goes_on(request: Request, view: memoryview, at: int) -> Parts | None:
    """A member of a group that has moved without it is told that it is none: it joins anew then. That there is no such
    group would end it."""
    answer = read_said(HEARTBEAT_OF_NEWER_GROUP, request.version, view[at:])
    if answer.error_code != Code.GROUP_ID_NOT_FOUND:
        return None
    return refusal(request, Code.UNKNOWN_MEMBER_ID, error_message=answer.error_message)


def subscribed(metadata: bytes) -> Iterator[str]:
    """The topics that a member of the classic protocol reads, as it says it; none where these bytes say nothing."""
    body = memoryview(metadata)
    try:
        # The first two bytes are its version; later ones begin alike.
        found = entity_reader(ConsumerProtocolSubscription)(checked(body[2:], ConsumerProtocolSubscription), 0)[0]
    except (SerialError, WireError, LookupError, struct.error, ValueError, OverflowError):
        return
    yield from map(str, found.topics or ())


def why_not(group: str, wanted: Subscription, seen: Seen, made: frozenset[str] = frozenset()) -> str:
    """Why a member cannot be served that subscribes to this; empty where it can. `made`: topics that the groups' home
    has, though that is not known yet."""
    home, named = seen.group_home(), one_line(group)
    for topic in wanted.names:
        if not seen.stays(topic) and topic not in made:
            return (
                f"group {named} cannot read {topic}: groups are at home on {home}, which does not have it, as it is on"
                f" {seen.route(topic)}; have a link carry it to {home}, or set group.protocol=classic"
            )
    if wanted.pattern:
        begins = beginnings(wanted.pattern)
        shown = one_line(wanted.pattern)[:_SHOWN_MAX]
        for topic in seen.routes:
            if topic.startswith(begins) and not seen.stays(topic) and not is_of_no_application(topic):
                return (
                    f"group {named} cannot read by the pattern {shown}, which may mean {topic}: groups are at home on"
                    f" {home}, which does not have it; subscribe to topics by name, or set group.protocol=classic"
                )
    return ""


def beginnings(pattern: str) -> tuple[str, ...]:
    """What every name begins with that the pattern may mean, one of these. Brokers read it by rules of their own, so
    nothing more is made of it than what stands for itself where an alternative begins."""
    if "(?" in pattern:
        return ("",)
    return tuple(_beginning(part) for part in pattern.split("|"))


def _beginning(part: str) -> str:
    if part.startswith("(") and part.endswith(")") and part.count("(") == part.count(")") == 1:
        part = part[1:-1]  # librdkafka puts each pattern of a subscription between these
    part = part.removeprefix("^").replace(r"\.", _DOT)
    count = next((at for at, sign in enumerate(part) if sign not in _PLAIN), len(part))
    found = part[: count - 1] if count and part[count : count + 1] in _REPEATS else part[:count]
    return found.replace(_DOT, ".")


def not_together(group: str, topics: Iterable[str], seen: Seen) -> str:
    """Why the group cannot have members of both protocols, if the classic ones read these; empty where it can."""
    for topic in sorted(topics):
        if not seen.stays(topic):
            return (
                f"group {one_line(group)} cannot have members of both protocols: classic ones read {topic}, which is on"
                f" {seen.route(topic)}, and groups are at home on {seen.group_home()}; stop those of one protocol first"
            )
    return ""


def not_served(group: str, lacking: Sequence[str]) -> str:
    """Why nobody is served."""
    where = listed(lacking, len(lacking), " and ") or "a cluster"
    return (
        f"group {one_line(str(group))} is of the new protocol, which {where} does not have: set group.protocol=classic"
    )
