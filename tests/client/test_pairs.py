"""Records of a prefix pair go out in the order of each key, whatever is fetched, asked and answered when."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twinshore.client.core.pairs import (
    UNKNOWN_POSITION,
    BufferedRecord,
    PartitionPair,
    explain_unequal_assignment,
    local_topic_name,
)

HOMES = ("east", "west")
AT = "east"  # where it is read
KEYS = 3
MANY = 1_000_000


def held(
    offset: int, time_ms: int, key: bytes | None = b"k", fetched_s: float = 0.0, size: int = 1
) -> BufferedRecord[str]:
    return BufferedRecord(offset, time_ms, key, size, fetched_s, f"{key!r}@{time_ms}")


def drained(pair: PartitionPair[str]) -> list[str]:
    found = []
    while (one := pair.take()) is not None:
        found.append(one.item)
    return found


def test_a_record_waits_until_the_other_log_is_read_to_where_its_home_ended_since() -> None:
    pair: PartitionPair[str] = PartitionPair(HOMES)
    pair.ended("west", 0, 0.5)
    pair.reached("west", 0)
    pair.fetched("east", held(0, 10, fetched_s=1.0))
    assert pair.take() is None, "west was asked before the record was fetched"
    assert pair.wanted() == ["west"]
    pair.ended("west", 1, 1.0)
    assert (pair.wanted(), pair.take(), pair.awaited()) == ([], None, {"west": (0, 1)})
    pair.fetched("west", held(0, 9, fetched_s=2.0))
    assert pair.take() is None, "it is not known yet whether east has an older one"
    pair.ended("east", 1, 2.0)
    assert drained(pair) == ["b'k'@9", "b'k'@10"]
    assert (pair.place("east"), pair.place("west")) == (1, 1)


def test_markers_at_the_end_of_a_log_are_passed_over() -> None:
    pair: PartitionPair[str] = PartitionPair(HOMES)
    pair.fetched("east", held(0, 10, fetched_s=1.0))
    pair.ended("west", 7, 1.0)
    pair.reached("west", 6)
    assert (pair.take(), pair.place("east"), pair.place("west")) == (None, 0, 6)
    pair.reached("west", 7)
    assert drained(pair) == ["b'k'@10"]


def test_an_older_record_is_found_behind_one_of_a_clock_that_runs_ahead() -> None:
    """By first records alone the key's newer record would go first."""
    pair: PartitionPair[str] = PartitionPair(HOMES)
    pair.fetched("east", held(0, 10, b"moved", 1.0))
    pair.fetched("west", held(0, 99, b"ahead", 1.0))
    pair.fetched("west", held(1, 9, b"moved", 1.0))
    pair.ended("east", 1, 2.0)
    pair.ended("west", 2, 2.0)
    assert drained(pair) == ["b'ahead'@99", "b'moved'@9", "b'moved'@10"]


def test_clocks_that_contradict_what_was_written_when_stop_nothing() -> None:
    pair: PartitionPair[str] = PartitionPair(HOMES)
    pair.fetched("east", held(0, 10, b"a", 1.0))
    pair.fetched("east", held(1, 1, b"b", 1.0))
    pair.fetched("west", held(0, 11, b"b", 1.0))
    pair.fetched("west", held(1, 2, b"a", 1.0))
    pair.ended("east", 2, 2.0)
    pair.ended("west", 2, 2.0)
    assert drained(pair) == ["b'a'@10", "b'b'@1", "b'b'@11", "b'a'@2"]


@pytest.mark.parametrize("first", HOMES)
def test_of_one_time_stamp_the_home_named_first_goes_first(first: str) -> None:
    pair: PartitionPair[str] = PartitionPair(sorted(HOMES, key=lambda home: home != first))
    for home in HOMES:
        pair.fetched(home, BufferedRecord(0, 5, b"k", 1, 1.0, home))
        pair.ended(home, 1, 2.0)
    found = pair.take()
    assert found is not None and found.item == first


def test_who_is_far_behind_goes_by_time_stamps_and_holds_no_more_than_it_may() -> None:
    """Millions of records lie before the end of west, and are not waited for."""
    pair: PartitionPair[str] = PartitionPair(HOMES, records_max=8)
    pair.fetched("east", held(0, 500, b"a", 1.0))
    pair.ended("west", MANY, 2.0)
    handed, offset = list[str](), 0
    while "b'a'@500" not in handed:
        pair.fetched("west", held(offset, 480 + offset, b"%d" % offset, 3.0))
        assert not pair.is_full("west"), "what it holds is handed out in time"
        offset += 1
        pair.ended("east", 1, 3.0 + offset)
        handed += drained(pair)
    assert handed[:21] == [*(f"b'{number}'@{480 + number}" for number in range(20)), "b'a'@500"]
    assert offset == 20 + 2, "a quarter of what it may hold is seen, all of it later"


def test_a_log_is_full_by_its_bytes_too() -> None:
    pair: PartitionPair[str] = PartitionPair(HOMES, bytes_max=100)
    pair.fetched("east", held(0, 1, size=70))
    assert not pair.is_full("east")
    pair.fetched("east", held(1, 2, size=45))
    assert pair.is_full("east") and not pair.has_room("east")
    pair.fetched("west", held(0, 0, b"other"))
    assert drained(pair) == ["b'other'@0"], "it is read no further, so nobody waits for it"
    pair.ended("west", 1, 1.0)
    assert pair.take() is not None
    assert pair.has_room("east")


def test_a_record_comes_once_though_it_is_fetched_again() -> None:
    pair: PartitionPair[str] = PartitionPair(HOMES)
    assert pair.place("east") == UNKNOWN_POSITION
    pair.reached("east", 5)
    pair.fetched("east", held(4, 1))
    pair.fetched("east", held(5, 2))
    pair.fetched("east", held(5, 2))
    pair.ended("west", 0, 1.0)
    pair.reached("west", 0)
    assert drained(pair) == ["b'k'@2"]


def test_an_end_that_moved_back_is_the_one_that_counts() -> None:
    """As where the twin's own end counts for a home that is away, or a home lost records."""
    pair: PartitionPair[str] = PartitionPair(HOMES)
    pair.fetched("east", held(0, 10, fetched_s=1.0))
    pair.ended("west", 8, 2.0)
    pair.reached("west", 5)
    assert pair.take() is None
    pair.ended("west", 5, 3.0)
    assert drained(pair) == ["b'k'@10"]
    pair.ended("west", 9, 2.5)
    assert pair.awaited() == {}, "an answer that comes late is of an earlier moment"


def test_names_are_those_of_the_cluster_where_it_is_read() -> None:
    assert [local_topic_name("orders", home, "east") for home in HOMES] == ["orders", "west.orders"]
    assert [local_topic_name("orders", home, "west") for home in HOMES] == ["east.orders", "orders"]


@dataclass
class World:
    """Two homes, what has crossed to where it is read, and a pair that reads it. A record is (key, number, time)."""

    pair: PartitionPair[tuple[int, int]]
    clocks: tuple[int, ...]
    now: int = 0
    logs: dict[str, list[tuple[int, int, int] | None]] = field(default_factory=lambda: {home: [] for home in HOMES})
    crossed: int = 0
    read: dict[str, int] = field(default_factory=lambda: dict.fromkeys(HOMES, 0))
    written: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    open_asks: list[tuple[str, int, float]] = field(default_factory=list)
    handed: list[tuple[int, int]] = field(default_factory=list)

    def here(self, home: str) -> int:
        return len(self.logs[home]) if home == AT else self.crossed

    def write(self, key: int, home: str) -> None:
        self.logs[home].append((key, self.written[key], self.now + self.clocks[key]))
        self.written[key] += 1

    def fetch(self, home: str, count: int) -> None:
        for offset in range(self.read[home], min(self.read[home] + count, self.here(home))):
            if self.pair.is_full(home):
                return
            record = self.logs[home][offset]
            if record is not None:
                key, number, time_ms = record
                self.pair.fetched(home, BufferedRecord(offset, time_ms, b"%d" % key, 1, self.now, (key, number)))
            self.read[home] = offset + 1
        if self.read[home] == self.here(home):
            self.pair.reached(home, self.read[home])

    def ask(self) -> None:
        for home in self.pair.wanted():
            self.open_asks.append((home, len(self.logs[home]), self.now))

    def answer(self, which: int) -> None:
        if self.open_asks:
            self.pair.ended(*self.open_asks.pop(which % len(self.open_asks)))

    def take(self) -> None:
        found = self.pair.take()
        if found is not None:
            self.handed.append(found.item)

    def finish(self) -> None:
        self.crossed = len(self.logs["west"])
        before = -1
        while before != len(self.handed):
            before = len(self.handed)
            for _ in range(MANY):
                self.now += 1
                taken = len(self.handed)
                for home in HOMES:
                    self.fetch(home, 3)
                self.ask()
                while self.open_asks:
                    self.answer(0)
                self.take()
                if taken == len(self.handed) and all(self.read[home] == len(self.logs[home]) for home in HOMES):
                    break

    def check(self) -> None:
        by_key = defaultdict(list)
        for key, number in self.handed:
            by_key[key].append(number)
        for key, numbers in by_key.items():
            assert numbers == list(range(len(numbers))), f"key {key} came as {numbers}"


def play(world: World, chance: Random, steps: int) -> None:
    """Writers go from home to home; what is fetched, crosses, is asked and answered when is chance."""
    at = [chance.choice(HOMES) for _ in world.clocks]
    paces = [chance.choice((1, 4, 16)) for _ in range(5)]
    for _ in range(steps):
        world.now += 1
        key, home = chance.randrange(KEYS), chance.choice(HOMES)
        match chance.choices(range(6), [12, *paces])[0]:
            case 0:
                if chance.random() < 0.2:
                    at[key] = home
                if chance.random() < 0.1:
                    world.logs[home].append(None)  # as a marker
                world.write(key, at[key])
            case 1:
                world.crossed = min(world.crossed + chance.randint(1, 5), len(world.logs["west"]))
            case 2:
                world.fetch(home, chance.randint(1, 5))
            case 3:
                world.ask()
            case 4:
                world.answer(chance.randrange(4))
            case _:
                world.take()
                world.take()
        world.check()
    world.finish()
    world.check()
    assert len(world.handed) == sum(world.written.values()), "all of them, each once"
    assert len(set(world.handed)) == len(world.handed)


@given(st.integers(0, 2**32))
@settings(max_examples=300)
def test_no_key_s_order_is_ever_broken_though_each_writer_has_a_clock_of_its_own(seed: int) -> None:
    chance = Random(seed)
    play(World(PartitionPair(HOMES), tuple(chance.randint(-30, 30) for _ in range(KEYS))), chance, 150)


@given(st.integers(0, 2**32), st.integers(2, 8))
@settings(max_examples=300)
def test_with_one_clock_it_is_so_though_a_log_may_hold_next_to_nothing(seed: int, records_max: int) -> None:
    play(World(PartitionPair(HOMES, records_max=records_max), (0,) * KEYS), Random(seed), 150)


@pytest.mark.parametrize(
    ("dealt", "says"),
    [
        ([("orders", 1), ("orders", 0), ("west.orders", 0), ("west.orders", 1)], ""),
        ([], ""),
        ([("orders", 0)], "partitions 0 of orders, and no partition of west.orders on east: a pair is read in order"),
        ([("orders", 0), ("west.orders", 1)], "partitions 0 of orders, and partitions 1 of west.orders on east"),
    ],
)
def test_what_is_dealt_out_is_alike_under_both_names(dealt: list[tuple[str, int]], says: str) -> None:
    found = explain_unequal_assignment(["bills", "orders"], ["east", "west"], "east", dealt)
    assert found.startswith(says) and bool(found) == bool(says)
