"""What `twinshore groups` shows of places: the same as the mirror's rounds say, whose memory it has not."""

from __future__ import annotations

from tests.groups.test_direction import PARTS, SCOPE, TWINS
from twinshore.groups.look import _parts
from twinshore.groups.place import MARK, PLAIN, Rules, State
from twinshore.wire.group_places import Place


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
