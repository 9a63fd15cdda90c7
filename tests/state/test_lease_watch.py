"""Leases in a world of lying clocks: seeded simulations in which two must never hold at once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from twinshore.state.core.lease_watch import HeldLease, LeaseWatch
from twinshore.state.core.values import LeaseRow

TTL_MS = 1000
TTL_S = TTL_MS / 1000


def row(beat: int, owner: str = "a", generation: int = 1, *, released: bool = False) -> LeaseRow:
    return LeaseRow("task", owner, generation, beat, TTL_MS, released)


def test_a_lease_nobody_has_may_be_taken_at_once() -> None:
    assert LeaseWatch(TTL_S).observe(None, 5.0)
    assert LeaseWatch(TTL_S).observe(row(7, released=True), 5.0)


def test_a_held_one_only_after_its_beat_stood_still_for_ttl_and_grace() -> None:
    watch = LeaseWatch(TTL_S, grace_s=0.5)
    assert not watch.observe(row(1), 100.0)
    assert watch.wait_s(100.5) == pytest.approx(1.0)
    assert not watch.observe(row(1), 101.49)
    assert watch.observe(row(1), 101.51)


@pytest.mark.parametrize("changed", [row(2), row(1, generation=2), row(1, owner="b")])
def test_any_change_starts_the_count_anew(changed: LeaseRow) -> None:
    watch = LeaseWatch(TTL_S)
    assert not watch.observe(row(1), 100.0)
    assert not watch.observe(changed, 102.0)
    assert not watch.observe(changed, 102.9)
    assert watch.observe(changed, 103.1)


def test_the_longer_of_both_ttls_counts() -> None:
    watch = LeaseWatch(0.1)
    watch.observe(row(1), 0.0)
    assert not watch.observe(row(1), 0.9)
    assert watch.observe(row(1), 1.1)


def test_a_holder_counts_from_before_he_sent_and_keeps_a_margin() -> None:
    held = HeldLease(row(1), sent_s=50.0, ttl_s=TTL_S)
    assert held.holds(50.89)
    assert not held.holds(50.91)
    assert not held.renewal_due(50.24)
    assert held.renewal_due(50.26)
    assert held.renewed(row(2), 51.0) == HeldLease(row(2), 51.0, TTL_S)


def test_others_wait_for_what_a_holder_had_sent_and_he_trusts_no_longer() -> None:
    """His ttl stands in the row for others alone."""
    longer = LeaseRow("link", "a", 1, 1, int(20 * TTL_S * 1000))
    watch = LeaseWatch(TTL_S)
    watch.observe(longer, 0.0)
    assert not watch.observe(longer, 19.9 * TTL_S)
    assert watch.observe(longer, 20.1 * TTL_S)
    held = HeldLease(longer, sent_s=50.0, ttl_s=TTL_S)
    assert held.valid_until_s <= 50.0 + TTL_S
    assert held.renewal_due(50.0 + TTL_S / 2)


@dataclass(slots=True)
class World:
    """True time, which nobody sees, and the one lease row, changed by compare-and-swap only."""

    now_s: float
    lease: LeaseRow | None


class Owner:
    """A process: its clock starts anywhere and runs a little wrong; it may be paused between any two of its steps."""

    def __init__(self, name: str, world: World, chance: random.Random) -> None:
        self.name = name
        self.world = world
        self.offset_s = chance.uniform(-1e6, 1e6)
        self.rate = chance.uniform(0.98, 1.02)
        self.watch = LeaseWatch(TTL_S)
        self.held: HeldLease | None = None
        self.life = self.live(chance)

    def clock_s(self) -> float:
        return self.offset_s + self.world.now_s * self.rate

    def holds(self) -> bool:
        return self.held is not None and self.held.holds(self.clock_s())

    def live(self, chance: random.Random) -> Iterator[None]:
        """Each `yield` is a place where any time may pass: a pause, a slow network, another owner's turn."""
        while True:
            if self.held is None:
                seen = self.world.lease
                yield
                if self.watch.observe(seen, self.clock_s()):
                    yield
                    sent_s = self.clock_s()
                    yield
                    taken = self.swap(seen, LeaseRow("task", self.name, seen.epoch + 1 if seen else 1, 0, TTL_MS))
                    yield
                    self.held = HeldLease(taken, sent_s, TTL_S) if taken else None
            else:
                yield from self.keep(chance)
            yield

    def keep(self, chance: random.Random) -> Iterator[None]:
        assert self.held is not None
        mine = self.held.row
        if chance.random() < 0.05:
            self.held = None
            yield
            self.swap(mine, replace(mine, released=True))
            return
        sent_s = self.clock_s()
        yield
        beaten = self.swap(mine, replace(mine, renewals=mine.renewals + 1))
        yield
        self.held = self.held.renewed(beaten, sent_s) if beaten else None

    def swap(self, seen: LeaseRow | None, new: LeaseRow) -> LeaseRow | None:
        if self.world.lease != seen:
            return None
        self.world.lease = new
        return new


def play(seed: int, owners: int) -> tuple[int, int]:
    """How often somebody held, and how many different generations there were; never two at once."""
    chance = random.Random(seed)
    world = World(0.0, None)
    crowd = [Owner(name, world, chance) for name in "abc"[:owners]]
    held = 0
    for step in range(3000):
        world.now_s += chance.choice((0.001, 0.01, 0.05, 0.3, 1.5 if chance.random() < 0.2 else 0.01))
        holding = [owner.name for owner in crowd if owner.holds()]
        assert len(holding) <= 1, f"seed {seed}, step {step}: {holding} hold at once"
        held += len(holding)
        next(chance.choice(crowd).life)
    return held, world.lease.epoch if world.lease else 0


@pytest.mark.parametrize("owners", [2, 3])
def test_two_owners_never_hold_at_once(owners: int) -> None:
    played = [play(seed, owners) for seed in range(60)]
    assert sum(held for held, _ in played) > 5000, "the lease was hardly ever held: the simulation shows nothing"
    assert sum(generations for _, generations in played) > 500, "it hardly ever changed hands"


def test_the_simulation_can_catch_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeaseWatch, "waits_s", lambda _watch, _row: TTL_S * 0.7)
    with pytest.raises(AssertionError, match="hold at once"):
        for seed in range(60):
            play(seed, 3)
