"""Groups are at home on one cluster; places in topics that it does not have live with the topic."""

from __future__ import annotations

from typing import Any

import pytest

from tests.proxy.talks import (
    EAST,
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
from twinshore.kafka.protocol.apis import LIST_OFFSETS, OFFSET_COMMIT, OFFSET_FETCH, OFFSET_FOR_LEADER_EPOCH
from twinshore.proxy.core.api_versions import (
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    HANDLED_API_VERSIONS,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    SYNC_GROUP,
)
from twinshore.proxy.core.message_codec import build_message, decode_request, to_error_code
from twinshore.proxy.core.model import CONSUMER_GROUP_DESCRIBE, BrokerId, BrokerRequest, ForwardRequest

NOT_HERE, AGAIN, AWAY, NOT_COORDINATOR, UNKNOWN_MEMBER, REBALANCING, STALE = 6, 14, 15, 16, 25, 27, 113
MEMBERS = [
    (key, version)
    for key in (JOIN_GROUP, SYNC_GROUP, HEARTBEAT, LEAVE_GROUP)
    for version in range(HANDLED_API_VERSIONS[key][0], HANDLED_API_VERSIONS[key][1] + 1)
]
WEST_KEEPS = BrokerId("west", 2)


@pytest.mark.parametrize(("key", "version"), MEMBERS)
def test_members_are_passed_on_at_home_and_refused_elsewhere(key: int, version: int) -> None:
    asks = asked(key, version, group_id="g")
    assert isinstance(move := session().move(asks, seen()), ForwardRequest)
    assert move.place == EAST
    for place in (WEST, None):
        assert int(by_kio(key, version, told(session(place).move(asks, seen()))).error_code) == NOT_COORDINATOR


@pytest.mark.parametrize("version", range(7))
def test_groups_are_described_and_listed_at_home_alone(version: int) -> None:
    describe = asked(DESCRIBE_GROUPS, version, groups=("g",))
    assert isinstance(session().move(describe, seen()), ForwardRequest)
    found = by_kio(DESCRIBE_GROUPS, version, told(session(WEST).move(describe, seen())))
    assert [(one.group_id, int(one.error_code)) for one in found.groups] == [("g", NOT_COORDINATOR)]
    if version in range(6):
        listed = asked(LIST_GROUPS, version)
        assert isinstance(session().move(listed, seen()), ForwardRequest)
        assert by_kio(LIST_GROUPS, version, told(session(WEST).move(listed, seen()))).groups == ()


def commit(version: int, *topics: str, generation: int = 4) -> Any:
    kind = asked_part(OFFSET_COMMIT, version, "topics")
    part = asked_part(OFFSET_COMMIT, version, "topics", "partitions")
    places = (build_message(part, partition_index=0, committed_offset=41),)
    named = tuple(build_message(kind, name=topic, partitions=places) for topic in topics)
    return asked(
        OFFSET_COMMIT,
        version,
        group_id="g",
        generation_id_or_member_epoch=generation,
        member_id="me" if generation >= 0 else "",
        topics=named,
    )


class Brokers:
    """Both clusters' coordinators; `codes` says what each answers. `newer`: members of the newer protocol; `state`: the
    group's at home; `lacks`: topics by cluster in which the group has no place there."""

    def __init__(self, version: int, **codes: int) -> None:
        self.version, self.codes = version, codes
        self.heard: list[tuple[int, BrokerId, Any]] = []
        self.newer: tuple[str, ...] = ()
        self.state = "Empty"
        self.lacks: tuple[tuple[str, str], ...] = ()

    def __call__(self, ask: BrokerRequest) -> memoryview | None:
        found = decode_request(request(ask.key, ask.version, ask.body))
        self.heard.append((ask.key, ask.place, found))
        code = to_error_code(self.codes.get(ask.place.cluster, 0))
        if ask.key == HEARTBEAT:
            return answer(HEARTBEAT, ask.version, error_code=to_error_code(self.codes.get("heartbeat", 0)))
        if ask.key == FIND_COORDINATOR:
            part = said_part(FIND_COORDINATOR, ask.version, "coordinators")
            one = build_message(
                part, key="g", node_id=2, host="w2", port=9092, error_code=to_error_code(self.codes.get("find", 0))
            )
            return answer(FIND_COORDINATOR, ask.version, coordinators=(one,))
        if ask.key == DESCRIBE_GROUPS:
            group = build_message(
                said_part(DESCRIBE_GROUPS, ask.version, "groups"), group_id="g", group_state=self.state
            )
            return answer(DESCRIBE_GROUPS, ask.version, groups=(group,))
        if ask.key == CONSUMER_GROUP_DESCRIBE:
            return newer_group(ask, dict.fromkeys(self.newer, ()), 4)
        if ask.key == OFFSET_COMMIT:
            return answer(OFFSET_COMMIT, ask.version, topics=self._topics(ask, found.topics, code))
        return self._places(ask, found, code)

    def _topics(self, ask: BrokerRequest, topics: Any, code: Any) -> tuple[Any, ...]:
        kind, part = said_part(ask.key, ask.version, "topics"), said_part(ask.key, ask.version, "topics", "partitions")
        told_of = (build_message(part, partition_index=0, error_code=code),)
        return tuple(build_message(kind, name=one.name, partitions=told_of) for one in topics)

    def _places(self, ask: BrokerRequest, found: Any, code: Any) -> memoryview:
        several = ask.version >= 8
        group = found.groups[0] if several else found
        names = ["groups", "topics"] if several else ["topics"]
        kind, part = said_part(ask.key, ask.version, *names), said_part(ask.key, ask.version, *names, "partitions")
        offset = 10 if ask.place.cluster == "east" else 20
        wanted = ["orders", "bills"] if group.topics is None else [str(one.name) for one in group.topics]

        def places(name: str) -> Any:
            at = -1 if (ask.place.cluster, name) in self.lacks else offset
            return (build_message(part, partition_index=0, committed_offset=at, committed_leader_epoch=7),)

        topics = tuple(build_message(kind, name=name, partitions=places(name)) for name in wanted)
        if not several:
            return answer(OFFSET_FETCH, ask.version, topics=topics, error_code=code)
        whole = build_message(
            said_part(OFFSET_FETCH, ask.version, "groups"), group_id="g", topics=topics, error_code=code
        )
        return answer(OFFSET_FETCH, ask.version, groups=(whole,))

    def calls(self) -> list[tuple[int, str]]:
        return [(key, place.cluster) for key, place, _ in self.heard]


def codes_of(version: int, body: memoryview) -> dict[str, int]:
    found = by_kio(OFFSET_COMMIT, version, body)
    return {str(one.name): int(one.partitions[0].error_code) for one in found.topics}


@pytest.mark.parametrize("version", range(2, 10))
def test_a_place_in_a_topic_that_home_does_not_have_is_kept_with_the_topic(version: int) -> None:
    assert isinstance(session().move(commit(version, "orders", "shared"), seen()), ForwardRequest)
    ours, brokers = session(), Brokers(version)
    body, _ = carried(ours.move(commit(version, "orders", "bills"), seen()), brokers)
    assert codes_of(version, body) == {"orders": 0, "bills": 0}
    assert brokers.calls() == [
        (HEARTBEAT, "east"),
        (FIND_COORDINATOR, "west"),
        (OFFSET_COMMIT, "east"),
        (OFFSET_COMMIT, "west"),
    ]
    (_, _, beat), _, (_, home, here), (_, there, away) = brokers.heard
    assert (beat.group_id, beat.generation_id, beat.member_id) == ("g", 4, "me")
    assert (home, here.generation_id_or_member_epoch, [str(one.name) for one in here.topics]) == (EAST, 4, ["orders"])
    assert (there, away.generation_id_or_member_epoch, away.member_id) == (WEST_KEEPS, -1, "")
    assert [str(one.name) for one in away.topics] == ["bills"]
    # Who keeps places there is asked once.
    carried(ours.move(commit(version, "bills"), seen()), brokers)
    assert brokers.calls()[4:] == [(HEARTBEAT, "east"), (OFFSET_COMMIT, "west")]


def test_a_member_that_home_does_not_know_commits_nothing_anywhere() -> None:
    brokers = Brokers(8, heartbeat=UNKNOWN_MEMBER)
    body, _ = carried(session().move(commit(8, "orders", "bills"), seen()), brokers)
    assert (codes_of(8, body), brokers.calls()) == (
        {"orders": UNKNOWN_MEMBER, "bills": UNKNOWN_MEMBER},
        [(HEARTBEAT, "east")],
    )
    body, _ = carried(session().move(commit(8, "orders", "bills"), seen()), Brokers(8, heartbeat=REBALANCING))
    assert codes_of(8, body) == {"orders": 0, "bills": 0}, "while a group rebalances its members may commit"


def test_a_member_of_the_newer_protocol_is_known_by_its_epoch() -> None:
    """A coordinator knows those by no heartbeat of the classic protocol."""
    for member, epoch, code in (("me", 4, 0), ("me", 3, STALE), ("other", 4, UNKNOWN_MEMBER)):
        brokers = Brokers(9, heartbeat=UNKNOWN_MEMBER)
        brokers.newer = (member,)
        body, _ = carried(session().move(commit(9, "orders", "bills", generation=epoch), seen()), brokers)
        assert codes_of(9, body) == {"orders": code, "bills": code}
        written = [place for key, place in brokers.calls() if key == OFFSET_COMMIT]
        assert written == ([] if code else ["east", "west"])


@pytest.mark.claim(
    "proxy",
    "outside-commits",
    "A commit from outside a group is refused in topics of every cluster while the group has members at its home",
)
def test_a_commit_from_outside_counts_while_the_group_has_no_members() -> None:
    for state, newer, code in (("Empty", (), 0), ("Dead", (), 0), ("Stable", (), 25), ("Dead", ("me",), 25)):
        brokers = Brokers(8)
        brokers.state, brokers.newer = state, newer
        body, _ = carried(session().move(commit(8, "orders", "bills", generation=-1), seen()), brokers)
        assert codes_of(8, body) == {"orders": code, "bills": code}
        written = [place for key, place in brokers.calls() if key == OFFSET_COMMIT]
        assert written == ([] if code else ["east", "west"])
    body, _ = carried(session().move(commit(8, "bills", generation=-1), seen()), lambda _: None)
    assert codes_of(8, body) == {"bills": AGAIN}, "nobody says whether it has members"


def test_a_cluster_that_is_away_refuses_its_own_places_only() -> None:
    body, _ = carried(session().move(commit(8, "orders", "bills"), seen(away=("west",))), Brokers(8))
    assert codes_of(8, body) == {"orders": 0, "bills": AGAIN}
    body, _ = carried(session().move(commit(8, "orders", "bills"), seen()), Brokers(8, find=AWAY))
    assert codes_of(8, body) == {"orders": 0, "bills": AGAIN}


def test_a_coordinator_that_has_moved_is_looked_for_again() -> None:
    ours = session()
    brokers = Brokers(8, west=NOT_COORDINATOR)
    body, _ = carried(ours.move(commit(8, "bills"), seen()), brokers)
    assert codes_of(8, body) == {"bills": AGAIN}, "the group's home is where it was"
    brokers = Brokers(8)
    carried(ours.move(commit(8, "bills"), seen()), brokers)
    assert (FIND_COORDINATOR, "west") in brokers.calls()


@pytest.mark.parametrize("place", [WEST, None])
def test_places_are_asked_for_at_the_group_s_home(place: BrokerId | None) -> None:
    body = told(session(place).move(commit(8, "bills"), seen()))
    assert codes_of(8, body) == {"bills": NOT_COORDINATOR}
    for version in range(1, 10):
        found = by_kio(OFFSET_FETCH, version, told(session(place).move(fetch(version, "orders"), seen())))
        group = found.groups[0] if version >= 8 else found
        code = group.error_code if version >= 2 else group.topics[0].partitions[0].error_code
        assert int(code) == NOT_COORDINATOR


def fetch(version: int, *topics: str, every: bool = False) -> Any:
    several = version >= 8
    names = ["groups", "topics"] if several else ["topics"]
    kind = asked_part(OFFSET_FETCH, version, *names)
    named = None if every else tuple(build_message(kind, name=topic, partition_indexes=(0,)) for topic in topics)
    if not several:
        return asked(OFFSET_FETCH, version, group_id="g", topics=named)
    group = build_message(asked_part(OFFSET_FETCH, version, "groups"), group_id="g", topics=named)
    return asked(OFFSET_FETCH, version, groups=(group,))


def places_of(version: int, body: memoryview) -> dict[str, int]:
    found = by_kio(OFFSET_FETCH, version, body)
    group = found.groups[0] if version >= 8 else found
    return {str(one.name): one.partitions[0].committed_offset for one in group.topics}


@pytest.mark.parametrize("version", range(1, 10))
def test_a_place_comes_without_the_leader_epoch_of_its_cluster(version: int) -> None:
    def epochs(body: memoryview) -> set[int]:
        found = by_kio(OFFSET_FETCH, version, body)
        topics = (found.groups[0] if version >= 8 else found).topics
        return {getattr(one.partitions[0], "committed_leader_epoch", -1) for one in topics}

    move = session().move(fetch(version, "orders"), seen())
    assert isinstance(move, ForwardRequest)
    asks = fetch(version, "orders")
    where = Brokers(version)(BrokerRequest(EAST, OFFSET_FETCH, version, [asks.view[asks.position :]]))
    assert where is not None
    body = where if move.rewrite is None else view(move.rewrite(where, 0) or b"")
    assert epochs(body) == {-1}
    assert (move.rewrite is None) == (version < 5)
    body, _ = carried(session().move(fetch(version, "orders", "bills"), seen()), Brokers(version))
    assert epochs(body) == {-1}


@pytest.mark.parametrize("version", range(1, 10))
def test_each_place_comes_from_where_it_lives(version: int) -> None:
    assert isinstance(session().move(fetch(version, "orders", "shared"), seen()), ForwardRequest)
    body, _ = carried(session().move(fetch(version, "orders", "bills"), seen()), Brokers(version))
    assert places_of(version, body) == {"orders": 10, "bills": 20}
    if version >= 2:
        body, asks = carried(session().move(fetch(version, every=True), seen()), Brokers(version))
        assert places_of(version, body) == {"orders": 10, "bills": 20}, "not what both sides hold, but what counts"
        assert {one.place for one in asks if one.key == OFFSET_FETCH} == {EAST, WEST_KEEPS}


@pytest.mark.parametrize("version", [2, 7, 8])
def test_a_place_that_cannot_be_had_is_no_place_that_is_missing(version: int) -> None:
    """Else the client would begin anew. After this error it asks again; after most others Java gives up."""
    for brokers, away in ((Brokers(version, west=AWAY), ()), (Brokers(version), ("west",)), (lambda _: None, ())):
        body, _ = carried(session().move(fetch(version, "orders", "bills"), seen(away=away)), brokers)
        found = by_kio(OFFSET_FETCH, version, body)
        group = found.groups[0] if version >= 8 else found
        assert (int(group.error_code), group.topics) == (AGAIN, ()), "as brokers say it"


@pytest.mark.claim(
    "proxy",
    "offsets-stay-found",
    "A group's committed offsets are found where they were committed, also once its cluster gets a twin of the topic",
)
@pytest.mark.parametrize("version", range(1, 10))
def test_places_from_before_a_twin_was_made_are_found(version: int) -> None:
    after = seen(homes={"bills": "west"}, more_on_east=frozenset({"bills"}))
    brokers = Brokers(version)
    brokers.lacks = (("east", "bills"),)
    body, _ = carried(session().move(fetch(version, "orders", "bills"), after), brokers)
    assert places_of(version, body) == {"orders": 10, "bills": 20}
    if version >= 2:
        body, _ = carried(session().move(fetch(version, every=True), after), brokers)
        assert places_of(version, body) == {"orders": 10, "bills": 20}
    brokers.lacks = ()
    body, asks = carried(session().move(fetch(version, "bills"), after), brokers)
    assert (places_of(version, body), [one.place for one in asks]) == ({"bills": 10}, [EAST])


ABOUT = [(LIST_OFFSETS, version) for version in range(1, 11)] + [(OFFSET_FOR_LEADER_EPOCH, n) for n in (2, 3, 4)]


@pytest.mark.parametrize(("key", "version"), ABOUT)
def test_questions_about_partitions_go_to_the_broker_that_has_them(key: int, version: int) -> None:
    name, number = ("name", "partition_index") if key == LIST_OFFSETS else ("topic", "partition")
    kind, part = asked_part(key, version, "topics"), asked_part(key, version, "topics", "partitions")

    def about(*topics: str) -> Any:
        named = tuple(
            build_message(kind, **{name: one, "partitions": (build_message(part, **{number: 3}),)}) for one in topics
        )
        return asked(key, version, topics=named)

    def codes(body: memoryview) -> dict[str, tuple[int, int]]:
        topics = by_kio(key, version, body).topics
        parts = {str(getattr(one, name)): one.partitions[0] for one in topics}
        return {topic: (getattr(one, number), int(one.error_code)) for topic, one in parts.items()}

    assert isinstance(session().move(about("orders", "shared"), seen()), ForwardRequest)
    assert codes(told(session(None).move(about("orders"), seen()))) == {"orders": (3, NOT_HERE)}
    assert codes(told(session().move(about("bills"), seen()))) == {"bills": (3, NOT_HERE)}

    def broker(ask: BrokerRequest) -> memoryview:
        topics = decode_request(request(ask.key, ask.version, ask.body)).topics
        assert [str(getattr(one, name)) for one in topics] == ["orders"]
        there, here = said_part(key, version, "topics"), said_part(key, version, "topics", "partitions")
        one = build_message(there, **{name: "orders", "partitions": (build_message(here, **{number: 3}),)})
        return answer(key, version, topics=(one,))

    body, asks = carried(session().move(about("orders", "bills"), seen()), broker)
    assert (codes(body), [one.place for one in asks]) == ({"orders": (3, 0), "bills": (3, NOT_HERE)}, [EAST])
    body, _ = carried(session().move(about("orders", "bills"), seen()), lambda _: None)
    assert codes(body) == {"orders": (3, NOT_HERE), "bills": (3, NOT_HERE)}
