"""While a group is reset its members wait, and places of before are not written: requests in, moves out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.proxy.talks import (
    EAST,
    LAYOUT,
    answer,
    asked,
    asked_part,
    by_kio,
    carried,
    said_part,
    seen,
    told,
    view,
)
from tests.proxy.test_groups import Brokers
from twinshore.kafka.protocol.apis import API_VERSIONS, OFFSET_COMMIT, OFFSET_FETCH
from twinshore.kafka.protocol.requests import Request
from twinshore.proxy.core.api_versions import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from twinshore.proxy.core.message_codec import build_message, decode_request, to_error_code
from twinshore.proxy.core.model import ForwardRequest, ParkRequest, RequestDecision, RespondNow
from twinshore.proxy.core.offset_reset import OffsetResets, commits_key, late_commits_key
from twinshore.proxy.core.session import ClientSession
from twinshore.proxy.core.transaction_requests import TXN_OFFSET_COMMIT
from twinshore.proxy.store_sync import ResetSync
from twinshore.state.core.proxy_values import ResetGoal, ResetRow, ResetState, ResetStatusRow

UNKNOWN_MEMBER, LOADING, ILLEGAL_GENERATION, NO_GROUP = 25, 14, 22, 30
GOALS = ResetGoal("east", "orders", 0, 40, 10), ResetGoal("west", "bills", 0, 40, 10)
HELD = ResetRow("g", "1" * 32, ResetState.HELD, "anna", 1_000, 61_000, GOALS)
SETTING = replace(HELD, run="3" * 32, state=ResetState.SETTING)
DONE = replace(HELD, state=ResetState.DONE, members=frozenset({"me"}))


def book(*rows: ResetRow, now_ms: int = 2_000) -> OffsetResets:
    made = OffsetResets()
    made.take(rows, 1)
    made.tick(now_ms)
    return made


def client(resets: OffsetResets) -> ClientSession:
    return ClientSession(EAST, LAYOUT, lambda: None, resets=resets)


def commit(version: int, *places: tuple[str, int], member: str = "me", group: str = "g") -> Request:
    kind, part = (asked_part(OFFSET_COMMIT, version, *names) for names in (["topics"], ["topics", "partitions"]))
    topics = tuple(
        build_message(kind, name=topic, partitions=(build_message(part, partition_index=number, committed_offset=41),))
        for topic, number in places
    )
    generation = {"generation_id_or_member_epoch": 4 if member else -1, "member_id": member}
    return asked(OFFSET_COMMIT, version, group_id=group, topics=topics, **generation)


def codes(version: int, body: memoryview) -> dict[tuple[str, int], int]:
    found = by_kio(OFFSET_COMMIT, version, body).topics
    return {(str(one.name), part.partition_index): int(part.error_code) for one in found for part in one.partitions}


def said_by_broker(version: int, code: int, *places: tuple[str, int]) -> memoryview:
    kind, part = (said_part(OFFSET_COMMIT, version, *names) for names in (["topics"], ["topics", "partitions"]))
    topics = tuple(
        build_message(
            kind, name=topic, partitions=(build_message(part, partition_index=number, error_code=to_error_code(code)),)
        )
        for topic, number in places
    )
    return answer(OFFSET_COMMIT, version, topics=topics)


def passed(move: RequestDecision, version: int, code: int, *places: tuple[str, int]) -> dict[tuple[str, int], int]:
    """What the client is told where the broker says the code of each place."""
    assert isinstance(move, ForwardRequest), move
    whole = said_by_broker(version, code, *places)
    parts = move.rewrite(whole, 0) if move.rewrite else None
    return codes(version, whole if parts is None else view(parts))


def test_whoever_joins_waits_until_the_reset_is_over() -> None:
    resets = book(HELD)
    one, other = client(resets), client(resets)
    for member in (one, other):
        move = member.move(asked(JOIN_GROUP, 5, group_id="g"), seen())
        assert isinstance(move, ParkRequest)
        assert by_kio(JOIN_GROUP, 5, view(move.refusal or [])).error_code == LOADING
    assert isinstance(one.move(asked(JOIN_GROUP, 5, group_id="g"), seen()), ParkRequest), "it is judged again"
    assert resets.waiting == {"g": 2}
    assert isinstance(client(resets).move(asked(JOIN_GROUP, 5, group_id="another"), seen()), ForwardRequest)
    other.close()
    assert resets.waiting == {"g": 1}
    assert resets.take([DONE], 2), "other groups are held than before"
    assert isinstance(one.move(asked(JOIN_GROUP, 5, group_id="g"), seen()), ForwardRequest)
    assert resets.waiting == {}


def speaks(ours: ClientSession, name: str = "apache-kafka-java", version: str = "4.1.0") -> ClientSession:
    said = {"client_software_name": name, "client_software_version": version}
    ours.move(asked(API_VERSIONS, 3, **said), seen())
    return ours


def beats(ours: ClientSession, code: int, version: int = 4, member: str = "me", **more: str) -> int:
    """What a member hears where its broker says so."""
    move = ours.move(asked(HEARTBEAT, version, group_id="g", member_id=member, generation_id=4, **more), seen())
    assert isinstance(move, ForwardRequest), move
    whole = answer(HEARTBEAT, version, error_code=to_error_code(code))
    parts = move.rewrite(whole, 0) if move.rewrite else None
    return int(by_kio(HEARTBEAT, version, whole if parts is None else view(parts)).error_code)


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("row", [HELD, DONE])
def test_members_hear_that_they_are_to_join(version: int, row: ResetRow) -> None:
    """So they commit first. Its broker hears the heartbeat, since it would forget a member that says nothing."""
    ours = speaks(client(book(row)))
    assert [beats(ours, code, version) for code in (0, UNKNOWN_MEMBER, ILLEGAL_GENERATION)] == [27, 27, 22]
    assert beats(speaks(client(book(DONE))), 0, version, "new") == 0
    given_up = replace(DONE, state=ResetState.GIVEN_UP)
    assert beats(speaks(client(book(given_up))), UNKNOWN_MEMBER, version) == UNKNOWN_MEMBER


@pytest.mark.parametrize(
    ("name", "software", "hears", "named"),
    [
        ("apache-kafka-java", "2.8.1", 25, 25),
        ("apache-kafka-java", "3.0.0", 27, 27),
        ("apache-kafka-java", "unknown", 25, 25),
        ("librdkafka", "2.3.0", 27, 25),
        ("confluent-kafka-python", "2.3.0-rdkafka-2.3.0", 27, 25),
        ("kgo", "1.17.0", 25, 25),
    ],
)
def test_whoever_might_keep_positions_must_hear_with_a_heartbeat_that_it_is_no_member(
    name: str, software: str, hears: int, named: int
) -> None:
    """`named`: a member with a name that lasts."""
    ours = speaks(client(book(HELD)), name, software)
    assert beats(ours, UNKNOWN_MEMBER) == hears
    assert beats(ours, UNKNOWN_MEMBER, group_instance_id="one") == named
    logged_in = client(book(HELD))
    assert beats(logged_in, UNKNOWN_MEMBER) == UNKNOWN_MEMBER
    for one in (f"{name} {software}", ""):  # as its login knows it, which librdkafka asks for versions before alone
        logged_in.is_made_with(one)
    assert beats(logged_in, UNKNOWN_MEMBER) == hears


def test_all_else_of_members_goes_on() -> None:
    ours = client(book(HELD))
    for key in (HEARTBEAT, SYNC_GROUP, LEAVE_GROUP):
        assert isinstance(ours.move(asked(key, 3, group_id="g"), seen()), ForwardRequest)
    assert isinstance(ours.move(asked(OFFSET_FETCH, 5, group_id="g", topics=()), seen()), ForwardRequest)


def test_a_hold_ends_by_itself_where_whoever_holds_is_gone() -> None:
    resets = book(HELD)
    assert not resets.tick(HELD.until_ms - 1)
    assert resets.tick(HELD.until_ms)
    assert isinstance(client(resets).move(asked(JOIN_GROUP, 5, group_id="g"), seen()), ForwardRequest)
    assert not resets.may_be_former_member("g", "me"), "nobody knows who was"


@pytest.mark.parametrize("version", range(2, 10))
@pytest.mark.parametrize("row", [SETTING, DONE])
def test_a_member_of_before_is_told_that_its_place_is_written(version: int, row: ResetRow) -> None:
    """Its broker has forgotten it. What is not reset it is told as it is."""
    places = ("orders", 0), ("orders", 1)
    move = client(book(row)).move(commit(version, *places), seen())
    assert passed(move, version, UNKNOWN_MEMBER, *places) == {("orders", 0): 0, ("orders", 1): UNKNOWN_MEMBER}
    assert passed(move, version, ILLEGAL_GENERATION, *places) == dict.fromkeys(places, ILLEGAL_GENERATION)
    assert passed(move, version, 0, *places) == dict.fromkeys(places, 0), "until it is forgotten its places count"


def test_others_are_told_what_the_broker_says() -> None:
    done, wanted = client(book(DONE, now_ms=DONE.until_ms)), {("orders", 0): UNKNOWN_MEMBER}
    assert passed(done.move(commit(8, ("orders", 0), member="new"), seen()), 8, UNKNOWN_MEMBER, *wanted) == wanted
    assert passed(done.move(commit(8, ("orders", 0), member=""), seen()), 8, UNKNOWN_MEMBER, *wanted) == wanted
    move = client(book(HELD)).move(commit(8, ("orders", 0), group="another"), seen())
    assert passed(move, 8, UNKNOWN_MEMBER, *wanted) == wanted
    given_up = replace(DONE, state=ResetState.GIVEN_UP)
    assert passed(client(book(given_up)).move(commit(8, ("orders", 0)), seen()), 8, UNKNOWN_MEMBER, *wanted) == wanted


def test_a_commit_from_outside_is_refused_as_where_there_are_members() -> None:
    move = client(book(HELD)).move(commit(8, ("orders", 0), member=""), seen())
    assert codes(8, told(move)) == {("orders", 0): UNKNOWN_MEMBER}


def test_one_who_has_heard_that_it_is_no_member_commits_nothing_from_outside() -> None:
    """As librdkafka does: a group that is empty just then would take it. Before its places are set it may."""
    resets = book()
    ours = client(resets)
    ours.move(asked(HEARTBEAT, 3, group_id="g", member_id="me", generation_id=4), seen())
    resets.take([HELD], 2)
    assert isinstance(ours.move(commit(8, ("orders", 0), member=""), seen()), ForwardRequest)
    resets.take([SETTING], 3)
    assert isinstance(ours.move(commit(8, ("orders", 0), member=""), seen()), ParkRequest), (
        "it is judged once this is over"
    )
    resets.take([DONE], 4)
    assert codes(8, told(ours.move(commit(8, ("orders", 0), member=""), seen()))) == {("orders", 0): 0}
    both = ours.move(commit(8, ("orders", 0), ("orders", 1), member=""), seen())
    assert passed(both, 8, 0, ("orders", 1)) == {("orders", 0): 0, ("orders", 1): 0}
    ours.move(asked(SYNC_GROUP, 3, group_id="g", member_id="new", generation_id=5), seen())
    move = ours.move(commit(8, ("orders", 0), member=""), seen())
    assert passed(move, 8, UNKNOWN_MEMBER, ("orders", 0)) == {("orders", 0): UNKNOWN_MEMBER}


@pytest.mark.parametrize("version", range(2, 10))
def test_a_place_that_is_kept_with_its_topic_elsewhere_is_written_until_places_are_set(version: int) -> None:
    """Nobody knows members there. Whoever resets may give up, and what was said to be written must be."""
    resets = book(HELD)
    ours = client(resets)
    body, brokers = carried_with(ours, version, ("bills", 0), ("orders", 0))
    assert body == {("bills", 0): 0, ("orders", 0): 0}
    sent = [_places(found) for key, _, found in brokers.heard if key == OFFSET_COMMIT]
    assert sorted(sent) == [[("bills", 0)], [("orders", 0)]]
    resets.take([SETTING], 2)
    for places in ([("bills", 0)], [("bills", 0), ("orders", 1)]):
        move = ours.move(commit(version, *places), seen())
        assert isinstance(move, ParkRequest)
        assert codes(version, view(move.refusal or [])) == dict.fromkeys(places, LOADING), "it is sent again"
    body, _ = carried_with(ours, version, ("bills", 1), ("orders", 0))
    assert body == {("bills", 1): 0, ("orders", 0): 0}
    resets.take([replace(SETTING, state=ResetState.GIVEN_UP)], 3)
    _, brokers = carried_with(ours, version, ("bills", 0))
    assert [_places(found) for key, _, found in brokers.heard if key == OFFSET_COMMIT] == [[("bills", 0)]]
    resets.take([DONE], 4)
    body, brokers = carried_with(ours, version, ("bills", 0), heartbeat=UNKNOWN_MEMBER)
    assert body == {("bills", 0): 0}
    assert OFFSET_COMMIT not in [key for key, _, _ in brokers.heard], "it is written nowhere"


def _places(found: Any) -> list[tuple[str, int]]:
    return [(str(one.name), part.partition_index) for one in found.topics for part in one.partitions]


def carried_with(
    ours: ClientSession, version: int, *places: tuple[str, int], **says: int
) -> tuple[dict[tuple[str, int], int], Brokers]:
    class Exact(Brokers):
        def _topics(self, ask: Any, topics: Any, code: Any) -> tuple[Any, ...]:
            kind, part = (
                said_part(ask.key, ask.version, "topics"),
                said_part(ask.key, ask.version, "topics", "partitions"),
            )
            return tuple(
                build_message(
                    kind,
                    name=one.name,
                    partitions=tuple(
                        build_message(part, partition_index=number.partition_index, error_code=code)
                        for number in one.partitions
                    ),
                )
                for one in topics
            )

    brokers = Exact(version, **says)
    body, _ = carried(ours.move(commit(version, *places), seen()), brokers)
    return codes(version, body), brokers


def test_a_member_of_before_hears_the_same_of_places_on_several_clusters() -> None:
    found, _ = carried_with(client(book(DONE)), 8, ("bills", 0), ("bills", 1), ("orders", 0), heartbeat=UNKNOWN_MEMBER)
    assert found == {("bills", 0): 0, ("bills", 1): UNKNOWN_MEMBER, ("orders", 0): 0}


def test_one_who_comes_anew_commits_nothing_from_outside_for_some_seconds() -> None:
    """As librdkafka may, by another connection. An application that has no members may."""
    outside = commit(8, ("orders", 0), member="")
    assert codes(8, told(client(book(DONE)).move(outside, seen()))) == {("orders", 0): UNKNOWN_MEMBER}
    assert isinstance(client(book(DONE)).move(commit(8, ("orders", 1), member=""), seen()), ForwardRequest), (
        "it is not reset"
    )
    assert isinstance(client(book(DONE, now_ms=DONE.until_ms)).move(outside, seen()), ForwardRequest)
    assert isinstance(client(book(replace(DONE, members=frozenset()))).move(outside, seen()), ForwardRequest)


def test_of_one_who_is_no_member_for_another_reason_nothing_is_thrown_away() -> None:
    """As long as the reset may be given up."""
    move = client(book(HELD)).move(commit(8, ("orders", 0)), seen())
    assert passed(move, 8, UNKNOWN_MEMBER, ("orders", 0)) == {("orders", 0): UNKNOWN_MEMBER}
    again = replace(HELD, members=frozenset({"me"}))  # by the reset before this one
    move = client(book(again)).move(commit(8, ("orders", 0)), seen())
    assert passed(move, 8, UNKNOWN_MEMBER, ("orders", 0)) == {("orders", 0): 0}


def in_transaction(version: int, topic: str, number: int, member: str = "me") -> Request:
    kind, part = (asked_part(TXN_OFFSET_COMMIT, version, *names) for names in (["topics"], ["topics", "partitions"]))
    topics = (
        build_message(kind, name=topic, partitions=(build_message(part, partition_index=number, committed_offset=41),)),
    )
    more = {"member_id": member, "generation_id": 4 if member else -1} if version >= 3 else {}
    return asked(TXN_OFFSET_COMMIT, version, transactional_id="tx", group_id="g", topics=topics, **more)


@pytest.mark.parametrize("version", range(4))
def test_a_transaction_that_names_no_member_aborts(version: int) -> None:
    """Of one that does the coordinator says whether it counts."""
    ours = client(book(HELD))
    move = ours.move(in_transaction(version, "orders", 0, member=""), seen())
    (topic,) = by_kio(TXN_OFFSET_COMMIT, version, told(move)).topics
    assert int(topic.partitions[0].error_code) == (ILLEGAL_GENERATION if version >= 3 else NO_GROUP)
    assert isinstance(ours.move(in_transaction(version, "orders", 1, member=""), seen()), ForwardRequest), (
        "it is not reset"
    )
    assert version < 3 or isinstance(ours.move(in_transaction(version, "orders", 0), seen()), ForwardRequest)
    done = client(book(DONE))
    assert isinstance(done.move(in_transaction(version, "orders", 0), seen()), ForwardRequest)
    unnamed = done.move(in_transaction(version, "orders", 0, member=""), seen())
    assert isinstance(unnamed, RespondNow if version >= 3 else ForwardRequest)
    late = client(book(DONE, now_ms=DONE.since_ms + 600_000))
    assert isinstance(late.move(in_transaction(version, "orders", 0, member=""), seen()), ForwardRequest)


def test_what_commits_places_is_counted_until_the_group_is_held() -> None:
    """So a proxy knows when nothing of before is on its way."""
    requests = commit(8, ("orders", 0)), commit(8, ("bills", 1)), in_transaction(3, "orders", 1)
    for one in requests:
        before, held = (client(resets).move(one, seen()) for resets in (book(), book(HELD)))
        assert commits_key("g") in before.topics  # type: ignore[union-attr]
        assert commits_key("g") not in held.topics  # type: ignore[union-attr]
    late = client(book(HELD)).move(commit(8, ("bills", 0)), seen())
    assert late_commits_key("g") in late.topics  # type: ignore[union-attr]


def test_a_proxy_says_that_it_holds_once_nothing_of_before_is_on_its_way() -> None:
    resets, busy, changes = OffsetResets(), {commits_key("g")}, list[int]()
    hearing = ResetSync(resets, lambda way: way in busy, lambda: changes.append(1))
    hearing.tick(2_000)
    hearing.take((1, (HELD,)))
    hearing.take(None)
    assert (len(changes), hearing.words("p1", 2_000)) == (1, [])
    busy.clear()
    first = ResetStatusRow("p1", HELD.run, 0, 2_100)
    assert hearing.words("p1", 2_100) == [first] == hearing.words("p1", 2_100), "the store does not have it yet"
    hearing.told([first])
    assert hearing.words("p1", 2_200) == []
    busy.add(commits_key("g"))
    client(resets).move(asked(JOIN_GROUP, 5, group_id="g"), seen())
    assert hearing.words("p1", 2_300) == [ResetStatusRow("p1", HELD.run, 1, 2_300)]
    hearing.tick(HELD.until_ms)
    assert (len(changes), hearing.words("p1", HELD.until_ms)) == (2, [])
    again = replace(HELD, run="2" * 32, until_ms=HELD.until_ms + 9_000)
    hearing.take((2, (again,)))
    assert hearing.words("p1", HELD.until_ms) == [], "another one is asked for anew"


def test_before_places_are_set_nothing_that_came_late_may_be_on_its_way_either() -> None:
    resets, busy = book(HELD), {late_commits_key("g")}
    hearing = ResetSync(resets, lambda way: way in busy)
    assert hearing.words("p1", 2_000) == [ResetStatusRow("p1", HELD.run, 0, 2_000)], "members gather, and commit"
    resets.take([SETTING], 2)
    assert hearing.words("p1", 2_100) == []
    busy.clear()
    assert hearing.words("p1", 2_200) == [ResetStatusRow("p1", SETTING.run, 0, 2_200)]


def test_a_request_is_read_by_the_broker_as_it_was_but_for_what_is_left_out() -> None:
    ours = client(book(DONE))
    ours.move(asked(HEARTBEAT, 3, group_id="g", member_id="me", generation_id=4), seen())
    move = ours.move(commit(8, ("bills", 0), ("orders", 1), member=""), seen())
    assert isinstance(move, ForwardRequest) and move.body is not None and not isinstance(move, RespondNow)
    sent = decode_request(Request(OFFSET_COMMIT, 8, 7, "app", view(move.body), 0))
    assert (sent.group_id, sent.member_id, sent.generation_id_or_member_epoch) == ("g", "", -1)
    assert _places(sent) == [("orders", 1)]


@pytest.mark.parametrize("late", ["paused", "set", "over", "deaf"])
def test_what_home_has_said_of_a_member_is_not_gone_by_once_it_may_be_another(late: str) -> None:
    """Between its answer and the writing elsewhere a process may stand still, or hear of a reset."""
    clock, now = [100.0], [seen()]
    resets = OffsetResets(lambda: clock[0])
    ours = ClientSession(EAST, LAYOUT, lambda: None, resets=resets, now=lambda: now[0])

    def broker(ask: Any) -> Any:
        match late if ask.key == HEARTBEAT else "":
            case "paused":
                clock[0] += 11
            case "set":
                resets.take([SETTING], 2)
                resets.tick(2_000)
            case "over":
                resets.take([DONE], 2)
            case "deaf":
                now[0] = seen().without(frozenset(seen().clusters))
        return brokers(ask)

    brokers = Brokers(8)
    body, _ = carried(ours.move(commit(8, ("bills", 0)), seen()), broker)
    assert codes(8, body) == {("bills", 0): LOADING}, "it is sent again, and judged anew"
    assert OFFSET_COMMIT not in [key for key, _, _ in brokers.heard]


def test_a_place_that_is_kept_on_another_cluster_than_the_one_that_is_reset_counts() -> None:
    """As once groups, or the topic, have moved since."""
    row = replace(SETTING, goals=(GOALS[0]._replace(cluster="west"),))
    move = client(book(row)).move(commit(8, ("orders", 0)), seen())
    assert passed(move, 8, UNKNOWN_MEMBER, ("orders", 0)) == {("orders", 0): UNKNOWN_MEMBER}
