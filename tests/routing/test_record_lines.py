"""Records of switches that stand on a cluster: whole, one at a time, and of two that follow the same one the first."""

from __future__ import annotations

import random

import pytest

from twinshore.config.errors import TooLargeError
from twinshore.routing.core.home_records import (
    PART_BYTES,
    RECORD_BYTES_MAX,
    HomeLog,
    KeyValue,
    SwitchRecordLog,
    record_digest,
)

ONE, TWO = "1" * 32, "2" * 32


def told(*lines: KeyValue) -> SwitchRecordLog:
    found = HomeLog()
    for line in lines:
        found.take(*line)
    return found.records


def take(log: SwitchRecordLog, lines: list[KeyValue]) -> SwitchRecordLog:
    found = HomeLog(records=log)
    for line in lines:
        found.take(*line)
    return log


def compacted(lines: list[KeyValue]) -> list[KeyValue]:
    """What a cleaner leaves: of each key its last line, where that was."""
    last = {key: number for number, (key, _) in enumerate(lines)}
    return [line for number, line in enumerate(lines) if last[line[0]] == number]


def test_a_record_comes_back_and_the_one_before_is_whole_until_the_new_one_is() -> None:
    small, large = {"state": "held"}, {"state": "level", "points": "x" * (2 * PART_BYTES + 5)}
    found = told(*SwitchRecordLog().lines(ONE, small))
    assert (found.record(ONE), found.record(TWO), found.switches()) == (small, None, [ONE])
    assert found.lines(ONE, small) == [], "it stands already"
    lines = found.lines(ONE, large)
    assert all(len(value or b"") <= PART_BYTES for _, value in lines)
    for number, line in enumerate(lines):
        take(found, [line])
        assert found.record(ONE) == (small if number < 3 else large)
    spent = found.spent(ONE)
    assert [value for _, value in spent] == [None]
    everything = [*SwitchRecordLog().lines(ONE, small), *lines, *spent]
    for log in (everything, compacted(everything)):
        assert (told(*log).record(ONE), told(*log).spent(ONE)) == (large, [])


def test_of_two_that_follow_the_same_record_the_first_stands() -> None:
    begun = SwitchRecordLog().lines(ONE, {"by": "anna"})
    anna, bob = told(*begun), told(*begun)
    first, second = bob.lines(ONE, {"by": "bob"}), anna.lines(ONE, {"by": "anna", "step": "flip"})
    found = told(*begun, *first, *second)
    assert (found.record(ONE), found.digest(ONE)) == ({"by": "bob"}, record_digest({"by": "bob"}))
    lost = compacted([*begun, *first, *second])
    assert told(*lost).record(ONE) != {"by": "bob"}, "which is why it is mended"
    mended = [*begun, *first, *second, *found.mending()]
    assert found.mending()
    for log in (mended, compacted(mended)):
        assert (told(*log).record(ONE), told(*log).mending()) == ({"by": "bob"}, [])


def test_what_follows_a_record_that_was_ended_does_not_stand() -> None:
    begun = SwitchRecordLog().lines(ONE, {"by": "anna"})
    late = told(*begun).lines(ONE, {"by": "anna", "step": "flip"})
    found = told(*begun, *told(*begun).tombstones(ONE), *late)
    assert (found.switches(), found.record(ONE)) == ([], None)
    assert [value for _, value in found.mending()] == [None]
    assert take(found, found.mending()).mending() == []


@pytest.mark.parametrize("seed", range(20))
def test_however_two_writers_alternate_each_record_follows_one_that_stood(seed: int) -> None:
    rng = random.Random(seed)
    log: list[KeyValue] = []
    seen = {"anna": SwitchRecordLog(), "bob": SwitchRecordLog()}
    stood: list[str] = []
    for number in range(40):
        who = rng.choice(["anna", "bob"])
        if rng.random() < 0.4:  # reads, and so may write again
            seen[who] = told(*log)
        mine = {"by": who, "number": number}
        wins = told(*log).digest(ONE) == seen[who].digest(ONE)
        log += seen[who].lines(ONE, mine)
        assert (told(*log).digest(ONE) == record_digest(mine)) == wins
        stood += [record_digest(mine)] if wins else []
    assert told(*log).digest(ONE) == stood[-1]


def test_a_switch_that_is_history_leaves_nothing() -> None:
    found = told(*SwitchRecordLog().lines(ONE, {"state": "done"}), *SwitchRecordLog().lines(TWO, {"state": "begun"}))
    take(found, found.lines(ONE, {"another": "x" * PART_BYTES})[:1])  # Whoever saved it died in the middle.
    assert found.record(ONE) == {"state": "done"}
    take(found, found.tombstones(ONE))
    assert (found.switches(), found.record(ONE), found.tombstones(ONE)) == ([TWO], None, [])
    assert found.record(TWO) == {"state": "begun"}


def test_a_record_that_nobody_could_read_is_refused_before_it_is_written() -> None:
    with pytest.raises(TooLargeError, match="record of a switch"):
        SwitchRecordLog().lines(ONE, {"x": "y" * RECORD_BYTES_MAX})


def test_a_record_that_is_not_whole_is_none() -> None:
    lines = SwitchRecordLog().lines(ONE, {"x": "y" * PART_BYTES})
    assert told(*lines[1:]).record(ONE) is None
    assert told((lines[0][0], b"something else"), *lines[1:]).record(ONE) is None
