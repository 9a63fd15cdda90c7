"""A rebuild is killed at each deed, in each of its moments, and goes on: nothing is deleted that was not saved."""

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
    turn_back,
)
from twinshore.switch.core.unreplicated import Tail, from_json, to_json

NOW_MS = 1_000_000
CARRIED = 5
DEEDS_OF = DEEDS[Kind.REBUILD]
TURNS = DEEDS_OF[: DEEDS_OF.index(Deed.COMMIT) + 1]


def record() -> SwitchState:
    moved = Moved(topic="orders", old_id="a" * 32, new_id="b" * 32, term=0, partitions=1, points=(0,))
    made = SwitchState(
        id="f" * 32,
        kind=Kind.REBUILD,
        old="west",
        new="east",
        link="west->east",
        back="east->west",
        topics=(moved,),
        by="anna",
        begun_ms=NOW_MS,
        hold_s_max=0.0,
        deed=DEEDS_OF[0],
    )
    return begin(made, NOW_MS)


@dataclass
class World:
    """The home grows all the while; the twin holds a foreign tail, and grows only if the mirror carries it."""

    rng: random.Random
    home: list[str] = field(default_factory=lambda: [f"record {number}" for number in range(CARRIED)])
    twin: list[str] = field(default_factory=list)
    saved: list[str] | None = None
    claimed: bool = False
    let_go: bool = False
    spoilt: bool = True
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.twin = [*self.home, "foreign 1", "foreign 2"]

    def breathe(self) -> None:
        self.home += [f"record {len(self.home)}"] * self.rng.randint(0, 1)
        if not self.spoilt and not self.let_go:
            self.twin += self.home[len(self.twin) : len(self.twin) + self.rng.randint(0, 3)]


@dataclass
class Hands:
    world: World
    kill: tuple[int, int]
    trouble: Deed | None = None
    calls: int = 0

    def once(self, now: SwitchState) -> Outcome:
        self.calls += 1
        self._moment(0)
        self.world.breathe()
        outcome = self._undo(now) if now.state is State.TURNING_BACK else self._do(now)
        self._moment(2)
        return outcome

    def _moment(self, which: int) -> None:
        if self.kill == (self.calls, which):
            raise KilledError

    def _undo(self, now: SwitchState) -> Outcome:
        if now.deed is Deed.CLAIM:
            self.world.claimed = self.world.let_go = False
        return Done(now)

    def _do(self, now: SwitchState) -> Outcome:
        world, found = self.world, from_json(now.tails)
        if now.deed is self.trouble:
            return Cannot("the test wants it so")
        match now.deed:
            case Deed.CLAIM:
                world.claimed = True
            case Deed.LET_GO:
                world.let_go = True
            case Deed.LOOK:
                return Done(replace(now, tails=to_json([Tail("orders", 0, CARRIED, len(world.twin), beside=True)])))
            case Deed.RESCUE:
                self._moment(1)
                world.saved = world.twin[CARRIED:]
                return Done(replace(now, tails=to_json([replace(one, records=2) for one in found])))
            case Deed.COMMIT:
                topics = tuple(replace(one, points=(len(world.home),)) for one in now.topics)
                return Done(replace(now, topics=topics))
            case Deed.REBUILD if world.spoilt:
                if world.saved != world.twin[CARRIED:]:
                    world.wrong.append("deleted before it was saved")
                world.twin, world.spoilt = [], False
                self._moment(1)
                world.let_go = False
                return Wait("the mirror makes it anew")
            case Deed.REBUILD:
                world.let_go = False
            case Deed.REFILL if len(world.twin) < now.topics[0].points[0]:
                return Wait("still to be filled")
            case Deed.RELEASE:
                world.claimed = False
        return Done(now)


def play(hands: Hands) -> SwitchState:
    kept, now_ms = record().to_json(), NOW_MS
    for _ in range(300):
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
@pytest.mark.parametrize("moment", [0, 1, 2])
@pytest.mark.parametrize("trouble", [None, *TURNS])
def test_a_rebuild_that_is_killed_at_any_deed_ends_whole(trouble: Deed | None, moment: int) -> None:
    for kill in range(60):
        world = World(random.Random(kill))
        before = list(world.twin)
        hands = Hands(world, (kill, moment), trouble)
        ended = play(hands)
        assert (world.wrong, world.claimed, world.let_go) == ([], False, False)
        assert (ended.state is State.DONE) is (trouble is None)
        if trouble is not None:
            assert world.twin == before, "nothing was deleted"
        else:
            assert world.saved == ["foreign 1", "foreign 2"]
            assert world.twin == world.home[: len(world.twin)]
            assert len(world.twin) >= ended.topics[0].points[0]
        if hands.calls < kill:
            break
    else:
        pytest.fail("more than 60 calls: the kills did not reach the end")


def test_once_it_deletes_it_goes_on_and_no_writer_waits() -> None:
    for deed in DEEDS_OF[DEEDS_OF.index(Deed.COMMIT) + 1 :]:
        going = replace(record(), deed=deed, deed_ms=NOW_MS)
        later = after(going, Cannot("no"), NOW_MS + 10**9)
        assert (later.state, later.deed) == (State.GOING, deed)
        assert turn_back(going, "an operator says so", NOW_MS) == going
    one = record()
    while not one.ended:
        one = after(one, Done(one), NOW_MS)
    assert (one.state, one.held_ms) == (State.DONE, 0)
