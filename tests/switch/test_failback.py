"""A fail-back is killed at each deed, in each of its moments, and goes on: nothing goes that was not saved before."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest

from tests.switch.world import KilledError
from twinshore.switch.core.steps import (
    DEEDS,
    Cannot,
    Deed,
    Done,
    Kind,
    Moved,
    Outcome,
    State,
    SwitchState,
    Wait,
    after,
    begin,
    to_undo,
    turn_back,
)
from twinshore.switch.core.unreplicated import Tail, clamped, from_json, to_json

NOW_MS = 1_000_000
POINT = 5
OF_FAILBACK = DEEDS[Kind.FAILBACK]


def record() -> SwitchState:
    moved = Moved(topic="orders", old_id="a" * 32, new_id="b" * 32, term=2, partitions=1, points=(POINT,))
    made = SwitchState(
        id="f" * 32,
        kind=Kind.FAILBACK,
        old="east",
        new="west",
        link="east->west",
        back="west->east",
        topics=(moved,),
        by="anna",
        begun_ms=NOW_MS,
        hold_s_max=0.0,
        deed=OF_FAILBACK[0],
    )
    return begin(made, NOW_MS)


@dataclass
class Returned:
    """East's log below and behind the point, what is saved of it, and where a group stands there. `anew`: the topic
    has been deleted, and the mirror makes it again."""

    rng: random.Random
    late: int
    east: list[str] = field(default_factory=list)
    west: list[str] = field(default_factory=list)
    saved: list[str] | None = None
    place: int | None = 0
    anew: bool = False
    claimed: bool = False
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        below = [f"record {number}" for number in range(POINT)]
        self.east = below + [f"late {number}" for number in range(self.late)]
        self.west = [*below, "fence", "new"]
        self.place = POINT + self.late - 1

    def breathe(self) -> None:
        """The mirror fills what it made, and nothing else where the old home has diverged."""
        if self.anew or not self.late:
            upto = self.rng.randint(len(self.east), len(self.west)) if len(self.east) < len(self.west) else 0
            self.east += self.west[len(self.east) : upto]


@dataclass
class Hands:
    world: Returned
    kill: tuple[int, int]
    trouble: Deed | None = None
    calls: int = 0

    def once(self, now: SwitchState) -> Outcome:
        self.calls += 1
        self._moment(0)
        self.world.breathe()
        if now.state is State.TURNING_BACK:
            self.world.claimed = False
            outcome: Outcome = Done(now)
        else:
            outcome = self._do(now)
        self._moment(2)
        return outcome

    def _moment(self, which: int) -> None:
        if self.kill == (self.calls, which):
            raise KilledError

    def _do(self, now: SwitchState) -> Outcome:
        world, deed, found = self.world, now.deed, from_json(now.tails)
        if deed is self.trouble:
            return Cannot("the test wants it so")
        if deed is Deed.CLAIM:
            world.claimed = True
        elif deed is Deed.LOOK and world.late:
            return Done(replace(now, tails=to_json([Tail("orders", 0, POINT, len(world.east))])))
        elif deed is Deed.RESCUE and found:
            self._moment(1)  # a file that was written in part has another name
            world.saved = world.east[POINT:]
            done = [replace(one, records=len(world.saved), file="a file") for one in found]
            assert world.place is not None
            return Done(replace(now, tails=to_json(done), places=str(world.place)))
        elif deed is Deed.REBUILD and found and not world.anew:
            if world.saved != world.east[POINT:]:
                world.wrong.append("deleted before it was saved")
            world.east, world.place, world.anew = [], None, True
            self._moment(1)
            return Wait("the mirror makes it anew")
        elif deed is Deed.REFILL and len(world.east) < POINT:
            return Wait("still to be filled")
        elif deed is Deed.PUT_BACK and found:
            at = clamped({("orders", 0): int(now.places)}, {("orders", 0): found[0].first})["orders", 0]
            world.place = at if world.place is None else world.place
        elif deed is Deed.RELEASE:
            world.claimed = False
        return Done(now)


def play(hands: Hands) -> SwitchState:
    kept, now_ms = record().to_json(), NOW_MS
    for _ in range(200):
        current, now_ms = SwitchState.from_json(kept), now_ms + 10
        if current.ended:
            return current
        try:
            kept = after(current, hands.once(current), now_ms).to_json()
        except KilledError:
            continue
    raise AssertionError(f"no end: {SwitchState.from_json(kept).deed}")


@pytest.mark.claim(
    "switch", "killed-at-each-deed", "killed at each deed and gone on with: nothing lost, nobody left held"
)
@pytest.mark.parametrize("late", [0, 4])
@pytest.mark.parametrize("moment", [0, 1, 2])
@pytest.mark.parametrize("trouble", [None, *OF_FAILBACK[: OF_FAILBACK.index(Deed.COMMIT) + 1]])
def test_a_failback_that_is_killed_at_any_deed_ends_whole(trouble: Deed | None, moment: int, late: int) -> None:
    for kill in range(40):
        world = Returned(random.Random(kill), late)
        before = list(world.east)
        hands = Hands(world, (kill, moment), trouble)
        ended = play(hands)
        assert not world.wrong
        assert not world.claimed
        assert (ended.state is State.DONE) is (trouble is None)
        if trouble is not None:
            assert (world.anew, world.east[: len(before)]) == (False, before), "nothing was deleted"
        elif late:
            assert world.saved == [f"late {number}" for number in range(late)]
            assert world.east == world.west[: len(world.east)]
            assert world.place == POINT, "never in the tail that is no more"
        else:
            assert (world.saved, world.anew) == (None, False)
        if hands.calls < kill:
            break
    else:
        pytest.fail("more than 40 calls: the kills did not reach the end")


def test_once_it_deletes_it_goes_on() -> None:
    behind = OF_FAILBACK[OF_FAILBACK.index(Deed.COMMIT) + 1 :]
    for deed in behind:
        going = replace(record(), deed=deed, deed_ms=NOW_MS)
        for outcome in (Cannot("no"), Wait("later")):
            later = after(going, outcome, NOW_MS + 10**9)
            assert (later.state, later.deed) == (State.GOING, deed)
        assert turn_back(going, "an operator says so", NOW_MS) == going


def test_no_writer_waits_for_it() -> None:
    one = record()
    while not one.ended:
        one = after(one, Done(one), NOW_MS)
    assert (one.state, one.held_ms) == (State.DONE, 0)


def test_mapped_it_deletes_nothing_and_the_mirror_carries_again_where_it_turns_back() -> None:
    deeds = DEEDS[Kind.MAPPED]
    assert Deed.REBUILD not in deeds
    assert deeds.index(Deed.RESCUE) < deeds.index(Deed.LET_GO) < deeds.index(Deed.COMMIT) < deeds.index(Deed.GO_ON)
    assert to_undo(Kind.MAPPED, Deed.COMMIT) is Deed.CLAIM, "the mirror carries what is in no switch"
    going = replace(record(), kind=Kind.MAPPED, deed=Deed.GO_ON, deed_ms=NOW_MS)
    assert after(going, Cannot("no"), NOW_MS + 10**9).state is State.GOING
    one = begin(replace(record(), kind=Kind.MAPPED), NOW_MS)
    while not one.ended:
        one = after(one, Done(one), NOW_MS)
    assert (one.state, one.held_ms) == (State.DONE, 0)
