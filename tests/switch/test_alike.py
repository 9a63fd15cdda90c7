"""What lies right below the point of a switch tells whether an old home has the history that crossed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinshore.kafka.protocol.record_batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, Record, encode_batch, split_batches
from twinshore.replication.task.core.markers import marker_producer_id
from twinshore.switch.core.unreplicated import LOOKBACK_OFFSETS, BatchBytes, LogMatch, compare_logs_below

LINK, PAYER = 5, 9
COMMIT, ABORT = (bytes([0, 0, 0, which]) for which in (1, 0))


@dataclass
class Log:
    """A partition of the test's own; `asked` are the offsets from which it was read."""

    start: int = 0
    end: int = 0
    data: list[bytes] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    unreadable: bool = False

    def __post_init__(self) -> None:
        self.end = self.start

    def _add(self, key: bytes, value: bytes, attributes: int, producer_id: int) -> Log:
        record = Record(self.end, 1_700_000_000_000, key, value)
        self.data.append(encode_batch([record], attributes=attributes, producer_id=producer_id, producer_epoch=0))
        self.end += 1
        return self

    def record(self, text: str, *, bound: bool = False) -> Log:
        return self._add(b"key", text.encode(), TRANSACTIONAL_FLAG if bound else 0, PAYER)

    def marker(self, *, commit: bool = False, by: int = PAYER) -> Log:
        return self._add(COMMIT if commit else ABORT, b"\0\0\0\0\0\0", CONTROL_FLAG | TRANSACTIONAL_FLAG, by)

    def filler(self) -> Log:
        return self.marker(by=marker_producer_id(LINK))

    def hole(self) -> Log:
        self.end += 1
        return self

    def read(self, first: int) -> Iterable[BatchBytes] | None:
        self.asked.append(first)
        batches = split_batches(memoryview(b"".join(self.data)))
        return None if self.unreadable else [batch for batch in batches if batch[1].last_offset >= first]


def level(records: int, start: int = 0) -> tuple[Log, Log]:
    """The old home and the new one, which hold the same so far."""
    old, new = Log(start), Log(start)
    for number in range(records):
        old.record(f"record {number}")
        new.record(f"record {number}")
    return old, new


def told(old: Log, new: Log) -> LogMatch:
    assert old.end == new.end, "the test's own mistake"
    return compare_logs_below(new.end, old.start, new.start, old.read, new.read)


def test_the_fence_of_the_switch_before_is_no_other_history() -> None:
    """It lies right below the point on the cluster that was the new home then, and crossed as a filler."""
    old, new = level(10)
    assert told(old.marker(by=LINK), new.filler()) is LogMatch.SAME


def test_below_markers_another_history_is_found() -> None:
    old, new = level(10)
    old.record("another").marker(commit=True).marker(by=LINK)
    new.record("record 10").filler().filler()
    assert told(old, new) is LogMatch.DIFFERENT


def test_what_was_aborted_holds_nothing_that_could_be_lost() -> None:
    old, new = level(10)
    for number in range(3):
        old.record(f"aborted {number}", bound=True)
        new.filler()
    assert told(old.marker(), new.filler()) is LogMatch.SAME
    old, new = level(10)
    assert told(old.record("paid", bound=True).marker(commit=True), new.record("paid").filler()) is LogMatch.SAME


@pytest.mark.parametrize("ends", ["committed", "of nobody's transaction", "open"])
def test_a_record_that_one_of_them_alone_holds_is_never_taken_for_nothing(ends: str) -> None:
    for swapped in (False, True):
        old, new = level(10)
        old.record("one alone", bound=ends != "of nobody's transaction")
        new.filler()
        if ends != "open":
            old.marker(commit=ends == "committed")
            new.filler()
        assert told(*((new, old) if swapped else (old, new))) is LogMatch.UNKNOWN


def test_a_hole_on_one_side_alone_is_not_looked_below() -> None:
    old, new = level(10)
    assert told(old.record("cleaned there"), new.hole()) is LogMatch.UNKNOWN
    old, new = level(10)
    assert told(old.hole(), new.filler()) is LogMatch.SAME


def test_it_looks_no_further_than_the_last_record_and_never_for_ever() -> None:
    old, new = level(10)
    told(old, new)
    assert (old.asked, new.asked) == ([9], [9])
    for fillers, alike in ((1_000, LogMatch.SAME), (LOOKBACK_OFFSETS[-1] + 1, LogMatch.UNKNOWN)):
        old, new = level(10)
        for _ in range(fillers):
            old.filler()
            new.filler()
        assert told(old, new) is alike
        assert len(old.asked) <= len(LOOKBACK_OFFSETS)


def test_where_nothing_can_be_compared_nobody_knows() -> None:
    old, new = level(3, start=7)
    new.start = new.end
    assert told(old, new) is LogMatch.UNKNOWN, "the new home has deleted it"
    old, new = level(1)
    new.start = 1
    assert told(old.filler(), new.filler()) is LogMatch.UNKNOWN, "it has deleted what lies below the marker"
    old, new = level(3)
    old.unreadable = True
    assert told(old, new) is LogMatch.UNKNOWN
    old, new = level(0, start=7)
    assert told(old.marker(by=LINK), new.filler()) is LogMatch.SAME, "the old home holds no record at all"


LIVES = st.lists(st.sampled_from(["record", "marker", "filler", "aborted"]), max_size=12)


@given(st.integers(0, 5), LIVES, LIVES)
def test_an_old_home_that_lost_its_end_and_grew_again_is_found(below: int, ours: list[str], others: list[str]) -> None:
    """Whatever both took behind the place where they part: where it is told that they are alike, the old home holds no
    committed record that the new one lacks."""
    old, new = level(below)
    for log, life, name in ((old, ours, "other"), (new, others, "crossed")):
        for number in range(max(len(ours), len(others))):
            kind = life[number] if number < len(life) else "filler"
            if kind == "record":
                log.record(f"{name} {number}")
            elif kind == "aborted":
                log.record(f"{name} {number}", bound=True)
            else:
                log.marker() if kind == "marker" else log.filler()
    lost = any(kind == "record" for kind in ours)
    assert not lost or told(old, new) is not LogMatch.SAME
