"""Members of the newer protocol are served where the groups' home has all that they name; by values."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from testkit.errors import mentions
from tests.proxy.talks import (
    EAST,
    LAYOUT,
    WEST,
    answer,
    asked,
    asked_part,
    by_kio,
    carried,
    newer_group,
    request,
    said_part,
    seen,
    session,
    told,
    view,
)
from twinshore.kafka.protocol.apis import METADATA, OFFSET_COMMIT
from twinshore.proxy.core import group_requests
from twinshore.proxy.core.api_versions import (
    CONSUMER_GROUP_HEARTBEAT,
    DESCRIBE_GROUPS,
    HANDLED_API_VERSIONS,
    JOIN_GROUP,
)
from twinshore.proxy.core.group_requests import (
    ActiveMembers,
    Subscription,
    describe_missing_topics,
    find_missing_topics,
    list_pattern_prefixes,
)
from twinshore.proxy.core.message_codec import build_message, decode_request, to_error_code
from twinshore.proxy.core.model import (
    CONSUMER_GROUP_DESCRIBE,
    BrokerId,
    BrokerRequest,
    FanOut,
    ForwardRequest,
    RespondNow,
    RoutingTable,
)
from twinshore.proxy.core.session import ClientSession

LOADING, NO_COORDINATOR, NOT_COORDINATOR, INCONSISTENT, UNKNOWN_MEMBER, INVALID, NO_GROUP = 14, 15, 16, 23, 25, 42, 69
UNSUPPORTED, STALE = 35, 113
BEAT = CONSUMER_GROUP_HEARTBEAT
# The topics as a member of the classic protocol names them: a version, names, no data of its own.
ORDERS_BILLS = b"\0\0" + b"\0\0\0\2" + b"\0\6orders" + b"\0\5bills" + b"\xff\xff\xff\xff"
ORDERS = b"\0\0" + b"\0\0\0\1" + b"\0\6orders" + b"\xff\xff\xff\xff"


def beat(version: int = 1, epoch: int = 0, names: tuple[str, ...] | None = ("orders",), **values: Any) -> Any:
    whole = {"group_id": "g", "member_id": "me", "member_epoch": epoch, "subscribed_topic_names": names}
    return asked(BEAT, version, **whole | values)


class Coordinator:
    """On east. `members`: of the newer protocol, with the topics of each. `classic`: what classic ones said as they
    joined. `has`: topics that nobody has seen there yet. `hides`: the error of west's topics."""

    def __init__(self, code: int = 0, **values: Any) -> None:
        self.code, self.members = code, values.get("members", {})
        self.classic, self.state = values.get("classic", ()), values.get("state", "Stable")
        self.has, self.silent = values.get("has", ()), values.get("silent", ())
        self.hides = values.get("hides", 0)
        self.heard: list[int] = []

    def __call__(self, ask: BrokerRequest) -> memoryview | None:
        found = decode_request(request(ask.key, ask.version, ask.body))
        self.heard.append(ask.key)
        assert ask.place == EAST or ask.key in (METADATA, OFFSET_COMMIT), ask
        if ask.key in self.silent:
            return None
        if ask.key == BEAT:
            return answer(BEAT, ask.version, error_code=to_error_code(self.code), member_id="me", member_epoch=5)
        if ask.key == DESCRIBE_GROUPS:
            part = said_part(DESCRIBE_GROUPS, ask.version, "groups", "members")
            members = tuple(build_message(part, member_id="old", member_metadata=one) for one in self.classic)
            whole = said_part(DESCRIBE_GROUPS, ask.version, "groups")
            one = build_message(whole, group_id="g", group_state=self.state, members=members)
            return answer(DESCRIBE_GROUPS, ask.version, groups=(one,))
        if ask.key == CONSUMER_GROUP_DESCRIBE:
            return newer_group(ask, self.members, 5)
        assert ask.key == METADATA
        kind = said_part(METADATA, ask.version, "topics")
        named = [str(one.name) for one in found.topics]
        codes = {one: self.hides if ask.place.cluster == "west" else 0 if one in self.has else 3 for one in named}
        topics = tuple(build_message(kind, name=one, error_code=to_error_code(code)) for one, code in codes.items())
        return answer(METADATA, ask.version, topics=topics)


def refused(version: int, body: memoryview) -> tuple[int, str]:
    found = by_kio(BEAT, version, body)
    return int(found.error_code), str(found.error_message or "")


def lasting() -> tuple[ClientSession, ActiveMembers]:
    """A client's session on east, and what hears why its members are refused."""
    at_work = ActiveMembers()
    return ClientSession(EAST, LAYOUT, lambda: None, at_work=at_work), at_work


@pytest.mark.parametrize("version", [0, 1])
def test_a_member_whose_topics_are_all_at_the_groups_home_is_passed_on(version: int) -> None:
    ours, coordinator = session(), Coordinator()
    body, _ = carried(ours.move(beat(version, names=("orders", "shared")), seen()), coordinator)
    assert (refused(version, body)[0], coordinator.heard) == (0, [DESCRIBE_GROUPS, BEAT])
    # Later ones name nothing, and go straight to the coordinator.
    assert isinstance(move := ours.move(beat(version, 5, None), seen()), ForwardRequest)
    assert move.place == EAST
    for place in (WEST, None):
        told_of = refused(version, told(session(place).move(beat(version), seen())))
        assert told_of[0] == NOT_COORDINATOR


@pytest.mark.parametrize("version", [0, 1])
def test_one_that_names_a_topic_which_is_elsewhere_is_refused_and_the_log_says_why(version: int) -> None:
    ours, at_work = lasting()
    coordinator = Coordinator()
    body, _ = carried(ours.move(beat(version, names=("orders", "bills")), seen()), coordinator)
    code, why = refused(version, body)
    assert (code, BEAT in coordinator.heard) == (INVALID, False)
    assert mentions(why, "group g", "bills", "at home on east", "west")
    assert (at_work.told(), at_work.told()) == ([why], [])


def test_a_twin_that_was_just_made_is_seen_by_asking() -> None:
    coordinator = Coordinator(has=("bills",))
    body, _ = carried(session().move(beat(names=("bills",)), seen()), coordinator)
    assert (refused(1, body)[0], coordinator.heard) == (0, [DESCRIBE_GROUPS, METADATA, BEAT])
    # Which topic of that name is meant is not the coordinator's to say where each site has its own.
    own = replace(seen(), own={"bills": "west"})
    body, _ = carried(session().move(beat(names=("bills",)), own), Coordinator(has=("bills",)))
    assert refused(1, body)[0] == INVALID


def test_what_a_member_named_is_judged_again_with_each_heartbeat() -> None:
    ours = session()
    carried(ours.move(beat(names=("orders", "later")), seen()), Coordinator())
    assert isinstance(ours.move(beat(1, 5, None), seen()), ForwardRequest)
    west = seen().clusters["west"]
    made = RoutingTable(
        {**seen().clusters, "west": replace(west, topics=west.topics | {"later"})}, {}, HANDLED_API_VERSIONS
    )
    body, _ = carried(ours.move(beat(1, 5, None), made), Coordinator())
    assert refused(1, body)[0] == INVALID
    assert isinstance(ours.move(beat(1, 5, ("orders",)), made), ForwardRequest), "it has another subscription"
    assert isinstance(ours.move(beat(1, -1, None), made), ForwardRequest), "it leaves"
    assert isinstance(ours.move(beat(1, 5, None), made), FanOut), "and is forgotten"


def test_of_a_member_by_a_new_connection_its_coordinator_is_asked() -> None:
    for topics, code in ((("orders",), 0), (("orders", "bills"), INVALID)):
        ours, coordinator = session(), Coordinator(members={"me": topics, "other": ("bills",)})
        body, _ = carried(ours.move(beat(1, 5, None), seen()), coordinator)
        assert refused(1, body)[0] == code
        assert coordinator.heard[0] == CONSUMER_GROUP_DESCRIBE
        assert isinstance(ours.move(beat(1, 5, None), seen()), FanOut if code else ForwardRequest), "once"
    # What it names by now counts more than what the coordinator has heard of it.
    ours = session()
    body, _ = carried(ours.move(beat(1, 5, ("bills",)), seen()), Coordinator(members={"me": ("orders",)}))
    assert refused(1, body)[0] == INVALID
    body, _ = carried(session().move(beat(1, 5, ("bills",)), seen()), Coordinator())
    assert refused(1, body)[0] == INVALID, "also of one that nobody knows"
    # One that the coordinator does not know it refuses itself.
    coordinator = Coordinator(UNKNOWN_MEMBER)
    body, _ = carried(session().move(beat(1, 5, None), seen()), coordinator)
    assert (refused(1, body)[0], coordinator.heard) == (UNKNOWN_MEMBER, [CONSUMER_GROUP_DESCRIBE, BEAT])


@pytest.mark.parametrize("version", [0, 1])
def test_a_member_whose_group_has_moved_without_it_joins_anew(version: int) -> None:
    ours = session()
    carried(ours.move(beat(version), seen()), Coordinator())
    move = ours.move(beat(version, 5, None), seen())
    assert isinstance(move, ForwardRequest)
    assert move.rewrite is not None
    gone = answer(BEAT, version, error_code=to_error_code(NO_GROUP), error_message="no such group")
    assert refused(version, view(move.rewrite(gone, 0) or b""))[0] == UNKNOWN_MEMBER
    assert move.rewrite(answer(BEAT, version, error_code=to_error_code(STALE)), 0) is None
    body, _ = carried(session().move(beat(version, 5, None), seen()), Coordinator(NO_GROUP))
    assert refused(version, body)[0] == UNKNOWN_MEMBER


def test_a_coordinator_that_does_not_answer_is_looked_for_again() -> None:
    for silent, code in ((BEAT, NO_COORDINATOR), (DESCRIBE_GROUPS, LOADING)):
        body, _ = carried(session().move(beat(), seen()), Coordinator(silent=(silent,)))
        assert refused(1, body)[0] == code


def test_while_groups_move_or_are_reset_members_ask_again() -> None:
    deaf = seen().without(frozenset(seen().clusters))
    for epoch in (0, 5):
        assert refused(1, told(session().move(beat(1, epoch), deaf)))[0] == LOADING
    assert isinstance(session().move(beat(1, -1, None), deaf), ForwardRequest), "who leaves may"
    newer = group_requests.ConsumerProtocolGroups(ActiveMembers(), lambda group: group == "g", lambda: None)
    assert refused(1, told(newer.beat(beat(), EAST, seen())))[0] == LOADING
    assert not isinstance(newer.beat(beat(1, 5), EAST, seen()), RespondNow), "who is a member goes on"


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("place", [EAST, WEST, None])
def test_where_a_cluster_has_no_such_groups_they_are_refused_in_a_sentence(
    version: int, place: BrokerId | None
) -> None:
    old = {key: some for key, some in HANDLED_API_VERSIONS.items() if key != CONSUMER_GROUP_DESCRIBE}
    clusters = {**seen().clusters, "west": replace(seen().clusters["west"], offers=old)}
    code, why = refused(version, told(session(place).move(beat(version), RoutingTable(clusters, {}, old))))
    assert code == UNSUPPORTED
    assert mentions(why, "group g", "west", "group.protocol=classic")


@pytest.mark.parametrize(
    ("pattern", "begin"),
    [
        ("orders", ("orders",)),
        ("^orders.*", ("orders",)),
        (r"v1\.orders\.[a-z]+", ("v1.orders.",)),
        ("(^orders-.*)|(^bills)", ("orders-", "bills")),  # as librdkafka has it
        ("orders|bil.*", ("orders", "bil")),
        ("orders?", ("order",)),
        ("orders*", ("order",)),
        ("orders{2}", ("order",)),
        ("orders+", ("orders",)),
        ("(a)?b", ("",)),
        ("(?i)orders|bills", ("",)),
        ("[ob]rders", ("",)),
        (".*", ("",)),
        ("", ("",)),
        ("a(b|c)d", ("a", "c")),
        (r"\Qa|b\E", ("", "b")),
    ],
)
def test_nothing_is_made_of_a_pattern_but_what_its_names_begin_with(pattern: str, begin: tuple[str, ...]) -> None:
    assert list_pattern_prefixes(pattern) == begin


def test_a_pattern_is_refused_where_it_may_mean_what_is_elsewhere() -> None:
    def by_pattern(pattern: str, group: str = "g") -> str:
        wanted = Subscription(("orders",), pattern)
        return describe_missing_topics(group, wanted, find_missing_topics(wanted, seen()), seen(), frozenset(["bills"]))

    assert by_pattern("ord.*") == ""
    for pattern in ("b.*", ".*", "x|bills", "bills|b|bi"):
        assert "which may mean bills" in by_pattern(pattern)
    body, _ = carried(session().move(beat(1, 0, ("orders",), subscribed_topic_regex="(^bi.*)"), seen()), Coordinator())
    assert refused(1, body)[0] == INVALID
    hostile = by_pattern("x" * 9000 + "\n|b", "g\n")
    assert "\n" not in hostile
    assert len(hostile) < 500


@pytest.mark.claim("proxy", "names-hidden", "a member of a newer group hears of no topic that it may not see")
@pytest.mark.parametrize("values", [{"names": ("bills",)}, {"names": (), "subscribed_topic_regex": "b"}])
def test_a_topic_that_the_client_may_not_see_is_not_named(values: dict[str, Any]) -> None:
    ours, at_work = lasting()
    for code in (3, 29):
        coordinator = Coordinator(0, hides=code)
        body, asks = carried(ours.move(beat(**values), seen()), coordinator)
        assert (refused(1, body), coordinator.heard[-1]) == ((0, ""), BEAT)
        assert [one.place.cluster for one in asks if one.key == METADATA][-1] == "west", "as this client, there"
        assert "bills" not in "".join(at_work.told())
    assert isinstance(ours.move(beat(1, 5, None, subscribed_topic_regex=None), seen()), ForwardRequest), (
        "it is looked at once"
    )
    body, _ = carried(session().move(beat(**values), seen()), Coordinator(silent=(METADATA,)))
    assert refused(1, body)[0] == LOADING, "of a cluster that is silent nothing is said"


@pytest.mark.claim("proxy", "request-bounds", "no request of a client holds up the others, or takes the memory of all")
def test_a_large_subscription_is_refused_and_a_pattern_costs_no_time() -> None:
    for values in ({"names": ("a",) * 10_001}, {"subscribed_topic_regex": "a" * 16_385}):
        code, why = refused(1, told(session().move(beat(**values), seen())))
        assert code == INVALID
        assert "are taken at most" in why
    topics = frozenset(f"team-{number}.events" for number in range(10_000))
    west = replace(seen().clusters["west"], topics=topics)
    many = RoutingTable({**seen().clusters, "west": west}, {}, HANDLED_API_VERSIONS)
    pattern = "|".join(f"team-x{number}" for number in range(1_300))
    wanted = Subscription((), pattern)
    assert find_missing_topics(wanted, many) == ()
    began_s = time.process_time()
    for _ in range(10):
        find_missing_topics(wanted, many)
    assert time.process_time() - began_s < 0.5, "13 million comparisons take more than a second"


def test_nobody_joins_classic_members_of_a_topic_that_is_elsewhere() -> None:
    coordinator = Coordinator(classic=(ORDERS, ORDERS_BILLS))
    body, _ = carried(session().move(beat(), seen()), coordinator)
    code, why = refused(1, body)
    assert (code, coordinator.heard) == (INVALID, [DESCRIBE_GROUPS])
    assert mentions(why, "group g", "both protocols", "bills", "west")
    for classic, state, wanted in (
        ((ORDERS,), "Stable", 0),
        ((b"\0",), "PreparingRebalance", LOADING),
        ((b"none of ours",), "Stable", 0),
    ):
        body, _ = carried(session().move(beat(), seen()), Coordinator(classic=classic, state=state))
        assert refused(1, body)[0] == wanted


def joins(version: int, metadata: bytes) -> Any:
    part = asked_part(JOIN_GROUP, version, "protocols")
    named = (build_message(part, name="range", metadata=metadata),)
    return asked(JOIN_GROUP, version, group_id="g", protocol_type="consumer", protocols=named)


@pytest.mark.parametrize("version", range(10))
def test_a_classic_member_of_a_topic_elsewhere_is_none_of_a_group_of_the_newer_protocol(version: int) -> None:
    ours, at_work = lasting()
    move = ours.move(joins(version, ORDERS), seen())
    assert isinstance(move, ForwardRequest)
    assert move.rewrite is None
    move = ours.move(joins(version, ORDERS_BILLS), seen())
    assert isinstance(move, ForwardRequest)
    assert move.rewrite is not None
    led = answer(JOIN_GROUP, version, leader="me", member_id="me")
    assert move.rewrite(led, 0) is None, "one of them deals out"
    alone = answer(JOIN_GROUP, version, leader="", member_id="me")
    found = by_kio(JOIN_GROUP, version, view(move.rewrite(alone, 0) or b""))
    assert int(found.error_code) == INCONSISTENT
    assert mentions(at_work.told()[0], "group g", "both protocols")
    failed = answer(JOIN_GROUP, version, leader="", error_code=to_error_code(79))
    assert move.rewrite(failed, 0) is None


@pytest.mark.parametrize("version", [0, 1])
def test_groups_are_described_where_they_are_at_home(version: int) -> None:
    describes = asked(CONSUMER_GROUP_DESCRIBE, version, group_ids=("g",))
    assert isinstance(session().move(describes, seen()), ForwardRequest)
    found = by_kio(CONSUMER_GROUP_DESCRIBE, version, told(session(WEST).move(describes, seen())))
    assert [(one.group_id, int(one.error_code)) for one in found.groups] == [("g", NOT_COORDINATOR)]
