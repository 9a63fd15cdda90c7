"""A reset whose group, clusters or logs are others by the time that it is carried out: played, without brokers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from testkit.errors import mentions, raises
from tests.proxy.resets_stage import World, world
from twinshore.config.errors import ConfigError, KafkaError, RefusedError
from twinshore.config.settings import parse_settings
from twinshore.kafka.clock import wall_ms
from twinshore.proxy.operations import groups_move
from twinshore.proxy.operations.reset_offsets import check_no_reset_under_way, parse_reset_request
from twinshore.state.core.proxy_values import ResetGoal, ResetRow, ResetState

GOALS = (ResetGoal("east", "orders", 0, 900, 10),)
UNFINISHED = ResetRow("g", "1" * 32, ResetState.SETTING, "anna", 1, 2, GOALS)


BOTH = parse_settings(
    """
    [clusters.east]
    bootstrap = ["kafka-east-1:9092"]
    [clusters.west]
    bootstrap = ["kafka-west-1:9092"]
    """,
    name="test",
    env={},
)


class Nothing:
    """What clusters that answer say of groups that have never moved."""

    def told(self) -> tuple[None, dict[str, KafkaError]]:
        return None, {}


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with world(tmp_path, monkeypatch) as made:
        made.places = {("east", "orders", 0): 900, ("west", "bills", 0): 900}
        yield made


def test_places_are_set_where_they_are_kept(played: World) -> None:
    played.does(parse_reset_request("g", [], offset=10, gather_s=0.1))
    assert played.places == {("east", "orders", 0): 10, ("west", "bills", 0): 10}
    assert (played.row().state, played.row().members) == (ResetState.DONE, frozenset({"m1"}))


def test_where_groups_have_moved_since_it_was_planned_it_is_refused(played: World) -> None:
    looks: list[int] = []

    def moved() -> None:
        looks.append(1)
        if len(looks) == 2:
            played.home, played.term = "west", 2

    played.looked = moved
    with raises(RefusedError, "proxy.groups-moved", home="west"):
        played.does(parse_reset_request("g", ["orders"], offset=10, gather_s=0.1))
    assert (played.row().state, played.places["east", "orders", 0]) == (ResetState.GIVEN_UP, 900)


def test_where_they_move_as_it_is_carried_out_it_does_not_say_that_it_is_done(played: World) -> None:
    def moved(_: str) -> None:
        played.term = 3

    played.wrote = moved
    with raises(RefusedError, "proxy.groups-moved") as caught:
        played.does(parse_reset_request("g", ["orders"], offset=10, gather_s=0.1))
    assert caught.value.hint is not None and "--resume" in caught.value.hint
    assert played.row().state is ResetState.SETTING


def test_where_a_place_is_kept_elsewhere_by_now_it_is_refused(played: World) -> None:
    looks: list[int] = []

    def moved() -> None:
        looks.append(1)
        if len(looks) == 2:
            played.keeps["bills"] = "east"

    played.looked = moved
    with raises(RefusedError, "proxy.offsets-impossible") as refused:
        played.does(parse_reset_request("g", ["bills"], offset=10, gather_s=0.1))
    assert mentions(refused.value.message, "bills-0", "east", "west")


@pytest.mark.parametrize(("taken", "to"), [("resume", 400), ("undo", 900)])
def test_one_that_was_not_finished_is_taken_up_where_groups_are_now(played: World, taken: str, to: int) -> None:
    """And as far back as the log still reaches."""
    assert played.store.proxy_resets.change(UNFINISHED, seen=0)
    played.home, played.term, played.keeps["orders"], played.begins["orders"] = "west", 2, "west", 400
    played.members = {"east": {}, "west": {"m1": None}}
    played.places = {("west", "orders", 0): 950}
    played.does(parse_reset_request("g", [], resume=taken == "resume", undo=taken == "undo", gather_s=0.1))
    assert played.places == {("west", "orders", 0): to}
    assert {one.cluster for one in played.row().goals} == {"west"}


def test_groups_do_not_move_while_one_of_them_is_set(played: World, monkeypatch: pytest.MonkeyPatch) -> None:
    held = replace(UNFINISHED, state=ResetState.HELD, until_ms=wall_ms() + 60_000)
    check_no_reset_under_way(played.store)
    assert played.store.proxy_resets.change(held, seen=0)
    with raises(RefusedError, "proxy.reset-running", by="anna", group="g"):
        check_no_reset_under_way(played.store)
    monkeypatch.setattr(groups_move, "_records", lambda *_: Nothing())
    meant = groups_move.plan(groups_move.MoveGroups("west"), BOTH, played.store)
    assert isinstance(meant.refusal, RefusedError) and meant.refusal.code == "proxy.reset-running"
    assert played.store.proxy_resets.change(replace(held, until_ms=wall_ms() - 1), seen=1)
    check_no_reset_under_way(played.store)


@pytest.mark.parametrize("topics", [["bills"], ["orders", "bills"]])
def test_what_a_member_that_comes_in_between_commits_elsewhere_does_not_stand(played: World, topics: list[str]) -> None:
    """It came by a proxy that does not hold the group, and home says that it counts."""
    came: list[str] = []

    def late(cluster: str) -> None:
        if cluster == "west" and len(came) < 2:
            came.append(f"late-{len(came)}")
            played.members["east"][came[-1]] = None
            played.places["west", "bills", 0] = 905

    played.wrote = late
    played.does(parse_reset_request("g", topics, offset=10, gather_s=0.1))
    assert [played.places[played.keeps[topic], topic, 0] for topic in topics] == [10] * len(topics)
    assert (sorted(played.row().members), played.members["east"]) == (["late-0", "late-1", "m1"], {})


def test_where_somebody_comes_again_and_again_it_does_not_say_that_it_is_done(played: World) -> None:
    def late(cluster: str) -> None:
        if cluster == "west":
            played.members["east"]["late"] = None

    played.wrote = late
    with pytest.raises(KafkaError, match="g was joined again"):
        played.does(parse_reset_request("g", ["bills"], offset=10, gather_s=0.1))
    assert played.row().state is ResetState.SETTING


def test_with_places_elsewhere_alone_members_have_left_before(played: World) -> None:
    def written(cluster: str) -> None:
        assert (cluster, played.members["east"]) == ("west", {})

    played.wrote = written
    played.does(parse_reset_request("g", ["bills"], offset=10, gather_s=0.1))
    assert played.row().members == {"m1"}


def test_a_place_that_is_another_one_by_the_end_is_set_once_more(
    played: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a proxy that stood still, and was no member's any more."""

    def overwritten(_: object) -> int:
        played.places["west", "bills", 0] = 905
        return 0

    monkeypatch.setattr("twinshore.proxy.operations.reset_offsets.OffsetReset.gather_late", overwritten)
    played.does(parse_reset_request("g", ["bills"], offset=10, gather_s=0.1))
    assert (played.places["west", "bills", 0], played.row().state) == (10, ResetState.DONE)


def test_who_came_past_the_proxies_has_read_on_from_the_new_place(
    played: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def came(_: object) -> int:
        played.members["east"], played.places["east", "orders", 0] = {"past": None}, 15
        return 0

    monkeypatch.setattr("twinshore.proxy.operations.reset_offsets.OffsetReset.gather_late", came)
    played.does(parse_reset_request("g", ["orders"], offset=10, gather_s=0.1))
    assert (played.places["east", "orders", 0], played.members["east"]) == (15, {"past": None})


def reads_on(played: World) -> None:
    """Between the plan and the end of its members the group commits."""
    looks: list[int] = []

    def looked() -> None:
        looks.append(1)
        if len(looks) == 2:
            played.places["east", "orders", 0] = 950

    played.looked = looked


def test_a_shift_begins_where_the_group_stands_once_its_members_have_left(played: World) -> None:
    reads_on(played)
    rows: list[ResetGoal] = []
    played.wrote = lambda _: rows.extend(played.row().goals)
    said = played.does(parse_reset_request("g", ["orders"], shift=-100, gather_s=0.1))
    assert said[2] == "1 member removed from the group, and 1 committed offset set: orders-0: 950 -> 850"
    assert played.places["east", "orders", 0] == 850
    assert rows == [ResetGoal("east", "orders", 0, 950, 850)], "whoever takes it back knows it before"
    (told,) = played.store.audit.rows("")
    assert (told.before, told.after) == ("0: 950", "0: 850")


def test_a_shift_that_leads_outside_by_then_changes_nothing(played: World) -> None:
    reads_on(played)
    with raises(RefusedError, "proxy.offsets-impossible") as refused:
        played.does(parse_reset_request("g", ["orders"], shift=80, gather_s=0.1))
    assert mentions(refused.value.message, "orders-0", 1030)
    assert (played.places["east", "orders", 0], played.row().state) == (950, ResetState.GIVEN_UP)


def test_what_takes_a_reset_back_goes_where_the_group_stood_as_its_members_left(
    played: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads_on(played)

    def killed(_: object) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("twinshore.proxy.operations.reset_offsets.OffsetReset.gather_late", killed)
        with pytest.raises(KeyboardInterrupt):
            played.does(parse_reset_request("g", ["orders"], offset=10, gather_s=0.1))
    assert played.row().state is ResetState.SETTING
    played.does(parse_reset_request("g", [], undo=True, gather_s=0.1))
    assert (played.places["east", "orders", 0], played.row().state) == (950, ResetState.ROLLED_BACK)


def test_one_that_was_killed_before_it_set_anything_is_over_with_its_time(played: World) -> None:
    """To take it back would set the places of its plan, behind which members have read on."""
    held = replace(UNFINISHED, state=ResetState.HELD)
    assert played.store.proxy_resets.change(held, seen=0)
    with raises(ConfigError, "proxy.no-unfinished-reset", group="g"):
        played.does(parse_reset_request("g", [], undo=True))
    played.does(parse_reset_request("g", ["orders"], offset=20, gather_s=0.1))
    assert (played.places["east", "orders", 0], played.row().state) == (20, ResetState.DONE)
