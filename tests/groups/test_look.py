"""What `twinshore groups` shows of places: the same as the mirror's rounds say, whose memory it has not."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from tests.groups.model_sides import ModelSide
from tests.groups.test_direction import PARTS, SCOPE, TWINS
from twinshore.config.frozen import COMMIT_MARK
from twinshore.groups.core.rules import PLAIN, Rules, State
from twinshore.groups.view import ONLY_THERE, PARTLY_THERE, GroupView, Sight, _parts, _view, sight_of
from twinshore.kafka.groups import Listed
from twinshore.kafka.protocol.offsets import Place, Where


def shown(there: Place, rules: Rules = PLAIN, *, own: bool = False) -> str:
    where, ends = PARTS[0], dict.fromkeys(TWINS.values(), 100)
    places = {where: Place(99, "AgB")}, {TWINS[where]: there}
    (part,) = _parts(*places, SCOPE, ends, rules, {where} if own else ())
    return part.state


def test_a_place_that_the_mirror_leaves_alone_is_shown_so() -> None:
    assert shown(Place(60, "AgA")) == State.MOVES
    assert shown(Place(60, "AgA"), own=True) == State.OWN
    assert shown(Place(60, COMMIT_MARK), own=True) == State.MOVES, "it was asked for since"
    assert shown(Place(99, "AgB"), own=True) == State.SAME


def test_what_the_settings_and_the_store_say_of_places_holds_here_too() -> None:
    assert shown(Place(60)) == State.OWN
    for rules in (Rules(marks=False), Rules(notes=True), Rules(trusts=True)):
        assert shown(Place(60), rules) == State.MOVES


def seen(
    here: Sight, there: Sight, *, ends: Collection[Where] = tuple(TWINS.values()), word: object = None
) -> GroupView:
    told = {"differ": {"g": word}} if word else {}
    return _view("east->west", "g", (here, there), SCOPE, dict.fromkeys(ends, 100), told, PLAIN)


def state_of(here: dict[Where, Place], there: dict[Where, Place]) -> str:
    return seen(*(Sight(Listed({}, {}), {"g": places}, {}) for places in (here, there))).state


def test_a_group_of_which_a_partition_is_read_on_the_target_only_is_not_called_the_same() -> None:
    first, second = PARTS[:2]
    both = {TWINS[first]: Place(50, COMMIT_MARK), TWINS[second]: Place(7)}
    assert state_of({first: Place(50), second: Place(7)}, both) == State.SAME
    assert state_of({first: Place(50)}, both) == PARTLY_THERE
    assert state_of({first: Place(60)}, both) == State.MOVES, "what the mirror does comes first"
    assert state_of({}, both) == ONLY_THERE


@pytest.mark.parametrize("word", [{}, {"waits": ["other"]}, {"waits": ["g"]}])
def test_a_group_waits_only_where_the_mirror_holds_its_places_back(word: dict[str, object]) -> None:
    """Also of those that are named in `outputs`: all may have crossed, and without a mirror nothing is held back."""
    where = PARTS[0]

    def states(at: int) -> tuple[str, str]:
        here, there = (
            Sight(Listed({}, {}), {"g": one}, {})
            for one in ({where: Place(60)}, {TWINS[where]: Place(at, COMMIT_MARK)})
        )
        view = _view("east->west", "g", (here, there), SCOPE, dict.fromkeys(TWINS.values(), 100), word, PLAIN)
        return view.state, view.parts[0].state

    waits = word.get("waits") == ["g"]
    assert states(50) == ((State.WAITS, State.WAITS) if waits else (State.MOVES, State.MOVES))
    assert states(60) == (State.SAME, State.SAME)


def sight(side: ModelSide) -> Sight:
    return sight_of(side, side.listed(), ["g"])


@pytest.fixture
def sides() -> tuple[ModelSide, ModelSide]:
    """A group that stands at 50 of the first partition, on both."""
    east, west = ModelSide("east"), ModelSide("west")
    east.groups["g"], west.groups["g"] = {PARTS[0]: Place(50)}, {TWINS[PARTS[0]]: Place(50, COMMIT_MARK)}
    return east, west


@pytest.mark.parametrize("lost", ["unlisted", "listed"])
def test_a_lost_coordinator_makes_no_place_of_a_group_vanish(sides: tuple[ModelSide, ModelSide], lost: str) -> None:
    """A broker that was killed is named for a while, and then no more; its groups are not known in either case."""
    east, west = sides
    listed = west.listed()
    west.lost.add("g")
    there = sight_of(west, listed if lost == "listed" else west.listed(), ["g"])
    view = seen(sight(east), there)
    assert (view.state, view.missing, view.behind, view.parts[0].state) == ("away", None, None, "away")
    assert view.target_state == ("Empty" if lost == "listed" else "away")
    assert "coordinator on west does not answer" in view.why
    west.lost.clear()
    east.lost.add("g")
    view = seen(sight(east), sight(west))
    assert (view.source_state, view.state, view.parts[0].target) == ("away", "away", 50)
    assert "coordinator on east does not answer" in view.why


def test_a_group_that_the_target_hides_is_refused_and_does_not_move(sides: tuple[ModelSide, ModelSide]) -> None:
    east, west = sides
    west.hidden.add("g")
    west.forbidden.add("g")
    view = seen(sight(east), sight(west))
    assert (view.state, view.target_state, view.missing) == ("refused", "refused", None)
    assert "grant Describe on g" in view.why


def test_places_that_the_target_did_not_take_from_the_mirror_do_not_move(sides: tuple[ModelSide, ModelSide]) -> None:
    east, west = sides
    east.groups["g"][PARTS[0]] = Place(60)
    assert seen(sight(east), sight(west)).state == State.MOVES
    word = [State.REFUSED, 10, 1, [], [list(PARTS[0])]]
    assert seen(sight(east), sight(west), word=word).state == State.REFUSED
    east.groups["g"][PARTS[0]] = Place(50)
    assert seen(sight(east), sight(west), word=word).state == State.SAME


def test_a_twin_without_a_leader_does_not_end_at_0(sides: tuple[ModelSide, ModelSide]) -> None:
    view = seen(*(sight(side) for side in sides), ends=())
    assert (view.state, view.parts[0].end) == ("away", None)
