"""What `twinshore groups` shows of places: the same as the mirror's rounds say, whose memory it has not."""

from __future__ import annotations

from tests.groups.test_direction import PARTS, SCOPE, TWINS
from twinshore.groups.look import ONLY_THERE, PARTLY_THERE, _parts, _view
from twinshore.groups.place import MARK, PLAIN, Rules, State
from twinshore.kafka.groups import Listed
from twinshore.wire.group_places import Place, Where


def shown(there: Place, rules: Rules = PLAIN, *, own: bool = False) -> str:
    where, ends = PARTS[0], dict.fromkeys(TWINS.values(), 100)
    places = {where: Place(99, "AgB")}, {TWINS[where]: there}
    (part,) = _parts(*places, SCOPE, ends, rules, {where} if own else ())
    return part.state


def test_a_place_that_the_mirror_leaves_alone_is_shown_so() -> None:
    assert shown(Place(60, "AgA")) == State.MOVES
    assert shown(Place(60, "AgA"), own=True) == State.OWN
    assert shown(Place(60, MARK), own=True) == State.MOVES, "it was asked for since"
    assert shown(Place(99, "AgB"), own=True) == State.SAME


def test_what_the_settings_and_the_store_say_of_places_holds_here_too() -> None:
    assert shown(Place(60)) == State.OWN
    for rules in (Rules(marks=False), Rules(notes=True), Rules(trusts=True)):
        assert shown(Place(60), rules) == State.MOVES


def state_of(here: dict[Where, Place], there: dict[Where, Place]) -> str:
    nobody, ends = Listed({}, {}), dict.fromkeys(TWINS.values(), 100)
    return _view("east->west", "g", (nobody, nobody), (here, there), SCOPE, ends, {}, PLAIN).state


def test_a_group_of_which_a_partition_is_read_on_the_target_only_is_not_called_the_same() -> None:
    first, second = PARTS[:2]
    both = {TWINS[first]: Place(50, MARK), TWINS[second]: Place(7)}
    assert state_of({first: Place(50), second: Place(7)}, both) == State.SAME
    assert state_of({first: Place(50)}, both) == PARTLY_THERE
    assert state_of({first: Place(60)}, both) == State.MOVES, "what the mirror does comes first"
    assert state_of({}, both) == ONLY_THERE
