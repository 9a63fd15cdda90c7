"""Groups moved at a word: what came of each place is told and written down, group by group."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from testkit.errors import raises
from tests.groups.model_sides import ModelSide
from twinshore.config.errors import ConfigError, KafkaError
from twinshore.config.model import Link
from twinshore.groups.core.goals import OffsetGoal, build_goals
from twinshore.groups.offset_move import OffsetStep, WantedOffsets, commit_offsets
from twinshore.groups.operations import describe_nothing_moved, reasons_not_moved
from twinshore.groups.view import GroupView, PartitionView
from twinshore.kafka.consumer_groups import always_allowed
from twinshore.kafka.protocol.offsets import CommittedOffset, TopicPartitionTuple
from twinshore.state.store import Store, open_store

TWIN = ("east.orders", 0)
LINK = Link("east", "west")
WISHES: WantedOffsets = {TWIN: (None, CommittedOffset(40))}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    found = open_store(f"sqlite:///{tmp_path / 'store.db'}")
    yield found
    found.close()


def view(source: int | None, target: int | None, end: int = 100, *, back: bool = False) -> GroupView:
    part = PartitionView("orders", 0, source, TWIN[0], target if back else source, target, "behind", end)
    return GroupView("east->west", "g", "classic", "Empty", "Empty", "behind", 0, 0, None, (part,))


def moved(
    store: Store, west: ModelSide, link: str, group: str, wishes: WantedOffsets, *, by: str, lower: bool = False
) -> list[OffsetStep]:
    return commit_offsets(store, west, link, {group: wishes}, by=by, lower=lower)[group]


def test_what_is_refused_is_told_and_written_down(store: Store) -> None:
    west = ModelSide("west")
    west.members.add("live")
    west.forbidden.add("forbidden")
    found = commit_offsets(store, west, "east->west", dict.fromkeys(("a", "live", "forbidden"), WISHES), by="anna")
    steps = [found[name][0] for name in ("a", "live", "forbidden")]
    assert west.asked["OffsetCommit"] == 2, "all at one coordinator in one go"
    assert [step.refused for step in steps] == [False, True, True]
    assert west.groups == {"a": {TWIN: CommittedOffset(40)}}
    told = [(row.subject, row.after, row.outcome) for row in store.audit.rows("east->west")]
    assert sorted(told) == sorted((f"{step.group} east.orders-0 on west", "40", step.outcome) for step in steps)


class Breaking(ModelSide):
    """Its connection is refused for good at the second group."""

    def commit(
        self,
        places: Mapping[int, Mapping[str, Mapping[TopicPartitionTuple, CommittedOffset]]],
        still: Callable[[], bool] = always_allowed,
    ) -> dict[str, dict[TopicPartitionTuple, int]]:
        if any("b" in groups for groups in places.values()):
            raise KafkaError("west turns us away")
        return super().commit(places, still)


def test_a_failure_at_one_group_leaves_no_other_unaudited(store: Store) -> None:
    west = Breaking("west")
    for name in ("a", "b", "c"):
        moved(store, west, "east->west", name, WISHES, by="anna")
    outcomes = {row.subject.split()[0]: row.outcome for row in store.audit.rows("east->west")}
    assert outcomes == {"a": "done", "b": "refused: west turns us away", "c": "done"}


def test_a_group_that_has_gone_on_since_it_was_seen_is_not_set_back(store: Store) -> None:
    west = ModelSide("west")
    west.groups["a"] = {TWIN: CommittedOffset(50)}
    (step,) = moved(store, west, "east->west", "a", WISHES, by="anna")
    assert (step.outcome, step.refused) == ("not done: it stands at 50 by now", False)
    (step,) = moved(store, west, "east->west", "a", {TWIN: (70, CommittedOffset(40))}, by="anna", lower=True)
    assert (step.outcome, step.refused) == ("refused: it stands at 50 by now", True)
    assert west.groups == {"a": {TWIN: CommittedOffset(50)}}
    (step,) = moved(store, west, "east->west", "a", {TWIN: (50, CommittedOffset(40))}, by="anna", lower=True)
    assert step.sentence(done=True) == "east->west: group a: east.orders-0 on west: 50 -> 40 (done)"
    assert step.sentence(done=False).endswith("50 -> 40 (not done)")
    west.groups["b"] = {TWIN: CommittedOffset(30)}
    (step,) = moved(store, west, "east->west", "b", WISHES, by="anna")
    assert (step.outcome, west.groups["b"]) == ("done", {TWIN: CommittedOffset(40)}), "it is still onwards"


class Deaf(ModelSide):
    """Its first commit is done, and the answer is lost."""

    def commit(
        self,
        places: Mapping[int, Mapping[str, Mapping[TopicPartitionTuple, CommittedOffset]]],
        still: Callable[[], bool] = always_allowed,
    ) -> dict[str, dict[TopicPartitionTuple, int]]:
        first = not self.heard
        self.heard = True
        found = super().commit(places, still)
        return {} if first else found

    heard = False


def test_a_commit_that_was_done_and_not_answered_is_told_as_done(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinshore.groups.offset_move.RETRY_DELAY_S", 0.0)
    for lower in (False, True):
        west = Deaf("west")
        west.groups["a"] = {TWIN: CommittedOffset(10)}
        (step,) = moved(store, west, "east->west", "a", {TWIN: (10, CommittedOffset(40))}, by="anna", lower=lower)
        assert (step.outcome, west.groups["a"]) == ("done", {TWIN: CommittedOffset(40)})


def goals(seen: GroupView, *, back: bool = False) -> list[OffsetGoal]:
    return [one for one in build_goals(LINK, seen, back=back)[0] if one.moves]


@pytest.mark.parametrize(
    ("source", "target", "end", "back", "moves"),
    [
        (70, 10, 40, False, [("east.orders", 10, 40)]),
        (10, 70, 40, True, [("orders", 10, 40)]),
        (10, 70, 90, True, [("orders", 10, 70)]),
        (40, 70, 40, True, []),
        (10, None, 40, True, []),
    ],
)
def test_no_place_lies_beyond_the_end_of_the_log_that_it_is_for(
    source: int, target: int | None, end: int, back: bool, moves: list[tuple[str, int, int]]
) -> None:
    found = goals(view(source, target, end, back=back), back=back)
    assert [(one.topic, one.has, one.within) for one in found] == moves


def left(seen: GroupView, *, back: bool = False, lower: bool = False, named: bool = False) -> str:
    return "; ".join(reasons_not_moved(LINK, seen, goals(seen, back=back), back=back, lower=lower, named=named))


def test_a_group_that_is_not_moved_is_told_with_the_option_that_moves_it() -> None:
    ahead = view(source=10, target=90)
    assert "80 offsets (1 place)" in left(ahead) and left(ahead).endswith(": `--backwards` moves it")
    assert (left(ahead, lower=True), left(view(source=10, target=90, back=True), back=True)) == ("", "")
    back = view(source=90, target=10, back=True)
    assert "80 offsets" in left(back, back=True) and "on east than on west" in left(back, back=True)
    assert left(replace(ahead, target_state="Stable"), lower=True).startswith("has members on west (Stable)")
    assert left(replace(view(source=10, target=10), target_state="Stable")) == "", "it stands where it should"
    lone = view(source=None, target=90)
    assert (left(lone), left(lone, named=True)) == ("", "stands on west alone (1 place): `--back` moves it to east")
    unknown = replace(ahead, parts=(replace(ahead.parts[0], expected=None, state="unknown"),))
    assert "(1 place, as in orders-0)" in left(unknown)


def test_a_name_that_no_side_has_is_an_error_and_the_nearest_one_is_named() -> None:
    known = ["billing", "orders-reader"]
    for name, hint in (
        ("billin", "did you mean billing?"),
        ("x", "`twinshore groups` lists those that have"),
        ("bill+in", "did you mean billing?"),
    ):
        with raises(ConfigError, "groups.no-offsets", group=name) as caught:
            describe_nothing_moved(name, known)
        assert caught.value.hint == hint
    with raises(ConfigError, "groups.no-offsets", group="billing"):
        describe_nothing_moved("billing", [])
    assert "stands where it should" in describe_nothing_moved("bill.*", known)
    assert describe_nothing_moved(".*", [])


def test_no_place_is_moved_on_a_twin_whose_end_is_not_known() -> None:
    seen = view(source=10, target=90)
    endless = replace(seen, parts=(replace(seen.parts[0], end=None, state="away"),))
    assert build_goals(LINK, endless, back=False) == ([], ["orders-0"])
    assert " west " in left(endless, lower=True)
