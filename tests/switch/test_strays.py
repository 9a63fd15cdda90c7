"""What others wrote behind the point is read to its end, however much it is and however often the reader is killed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.switch.test_decision import record
from twinshore.config.model import TopicPartition
from twinshore.kafka.protocol.record_batch import CONTROL_FLAG, BatchHeader
from twinshore.switch.core.steps import ForeignWrites, SwitchKind, SwitchState
from twinshore.switch.core.unreplicated import PastPointContent, next_scan_range, scan_past_point

NAMED = TopicPartition("orders", 0)
POINT, LINK, OTHER = 100, 5, 777


def header(base: int, count: int = 1, producer_id: int = OTHER, attributes: int = 0) -> BatchHeader:
    whole = dict.fromkeys(BatchHeader._fields, 0) | {
        "base_offset": base,
        "last_offset_delta": count - 1,
        "producer_id": producer_id,
        "attributes": attributes,
    }
    return BatchHeader(**whole)


def is_fence(one: BatchHeader) -> bool:
    return bool(one.attributes & CONTROL_FLAG) and one.producer_id == LINK


@dataclass
class Log:
    """A partition of the test's own, in batches of so many offsets; `reads` counts pages."""

    batch: int = 500
    end: int = POINT
    others: dict[int, BatchHeader] = field(default_factory=dict)
    reads: int = 0

    def grow(self, offsets: int) -> None:
        self.end += offsets

    def put(self, producer_id: int, attributes: int = 0) -> int:
        self.others[self.end] = header(self.end, 1, producer_id, attributes)
        self.end += 1
        return self.end - 1

    def page(self, at: int) -> Iterable[BatchHeader]:
        self.reads += 1
        if at >= self.end:
            return []
        if at in self.others:
            return [self.others[at]]
        ends = min([self.end, at + self.batch, *(one for one in self.others if one > at)])
        return [header(at, ends - at)]


def look(
    log: Log, known: ForeignWrites | None, pages: int = 10, start: int = 0
) -> tuple[PastPointContent, ForeignWrites]:
    left = [pages]

    def may_go_on() -> bool:
        left[0] -= 1
        return left[0] > 0

    seen = next_scan_range(known, NAMED, POINT, start, log.end)
    return scan_past_point(seen, POINT, (LINK, LINK + 1), is_fence, log.page, may_go_on)[:2]


def test_more_than_any_bound_is_read_on_at_the_next_try() -> None:
    log, known, tries = Log(), None, 0
    log.grow(5_000_000)
    what = PastPointContent.UNREAD
    while what is PastPointContent.UNREAD:
        what, known = look(log, known, pages=1_000)
        tries += 1
    assert (what, tries, log.reads) == (PastPointContent.FOREIGN_WRITES, 10, 10_000)
    assert known == ForeignWrites("orders", 0, log.end, log.end)


@pytest.mark.parametrize("a_try", [400, 5_000, 50_000])
def test_a_writer_who_is_faster_than_the_reader_keeps_the_fence_down_no_longer(a_try: int) -> None:
    """Each try reads 5,000 offsets, and others write so many meanwhile."""
    log, known, fence = Log(), None, -1
    log.grow(60_000)
    for _ in range(5_000):
        what, known = look(log, known)
        log.grow(a_try)
        if what is PastPointContent.FOREIGN_WRITES:
            assert fence < 0, "one fence is enough"
            fence = log.put(LINK, CONTROL_FLAG)
            log.grow(a_try)
        if what is PastPointContent.FENCED:
            break
    assert (what, known.read if known else -1) == (PastPointContent.FENCED, fence)
    reads = log.reads
    assert look(log, known)[0] is PastPointContent.FENCED
    assert log.reads == reads + 1, "done twice as done once"


def test_what_the_link_wrote_is_passed_over_by_no_try() -> None:
    log = Log()
    log.grow(12_000)
    log.put(LINK)
    log.grow(12_000)
    what, known = look(log, None)
    assert what is PastPointContent.UNREAD
    for _ in range(5):
        what, known = look(log, known)
    assert what is PastPointContent.LINK_WRITES
    log.put(LINK, CONTROL_FLAG)
    assert look(log, known)[0] is PastPointContent.LINK_WRITES
    astride = scan_past_point(
        ForeignWrites("orders", 0, POINT, 110), POINT, (LINK,), is_fence, lambda _: [header(90, 20)], lambda: True
    )
    assert astride[0] is PastPointContent.LINK_WRITES, "a batch that begins before the point"


def test_a_log_that_changes_under_the_reader_is_read_all_the_same() -> None:
    known = ForeignWrites("orders", 0, 5_000, 9_000)
    assert next_scan_range(None, NAMED, POINT, 0, 700) == ForeignWrites("orders", 0, POINT, 700)
    assert next_scan_range(known, NAMED, POINT, 0, 20_000) == known, "to its end first"
    assert next_scan_range(replace(known, read=9_000), NAMED, POINT, 0, 20_000) == replace(
        known, read=9_000, until=20_000
    )
    assert next_scan_range(known, NAMED, POINT, 8_000, 20_000) == replace(known, read=8_000), "the rest was deleted"
    assert next_scan_range(known, NAMED, POINT, 0, 6_000) == replace(known, until=6_000)
    assert next_scan_range(known, NAMED, POINT, 0, 4_000) == replace(known, read=POINT, until=4_000), (
        "cut: all is read again"
    )
    assert next_scan_range(known, NAMED, 6_000, 0, 20_000) == replace(known, read=6_000, until=20_000)
    log = Log()
    log.grow(1_000)
    assert look(log, None, start=log.end)[0] is PastPointContent.FOREIGN_WRITES, "nothing of it is there any more"
    unseen: Callable[[int], Iterable[BatchHeader]] = lambda _: []  # noqa: E731
    what, same, _ = scan_past_point(
        ForeignWrites("orders", 0, 200, 900), POINT, (LINK,), is_fence, unseen, lambda: True
    )
    assert (what, same.read) == (PastPointContent.UNREAD, 200), "no consumer may read it yet"


@given(st.lists(st.tuples(st.integers(1, 40), st.booleans()), max_size=30), st.integers(1, 5), st.integers(1, 9))
def test_in_any_order_the_first_of_the_link_or_its_fence_decides(
    parts: list[tuple[int, bool]], pages: int, batch: int
) -> None:
    log, fenced = Log(batch), False
    for count, fences in parts:
        log.grow(count)
        if fences and not fenced:
            log.put(LINK, CONTROL_FLAG)
            fenced = True
    known, what = None, PastPointContent.UNREAD
    while what is PastPointContent.UNREAD:
        what, known = look(log, known, pages)
    assert what is (PastPointContent.FENCED if fenced else PastPointContent.FOREIGN_WRITES)


@given(st.lists(st.tuples(st.integers(1, 40), st.sampled_from([OTHER, LINK]))), st.integers(1, 5), st.integers(1, 9))
def test_a_point_that_nobody_has_heard_yet_moves_behind_all_that_the_link_wrote(
    parts: list[tuple[int, int]], pages: int, batch: int
) -> None:
    log, point, known, what = Log(batch), POINT, None, PastPointContent.UNREAD
    for count, producer_id in parts:
        log.grow(count)
        log.put(producer_id)
    wanted = max([POINT, *(at + 1 for at, one in log.others.items() if one.producer_id == LINK)])
    fence = log.put(LINK, CONTROL_FLAG)
    log.put(LINK)
    while what is PastPointContent.UNREAD:
        left = iter([True] * (pages - 1))
        stray = next_scan_range(known, NAMED, point, 0, log.end)
        may = lambda left=left: next(left, False)  # noqa: E731
        what, known, point = scan_past_point(stray, point, (LINK,), is_fence, log.page, may, follows=True)
    assert (what, point, known.read if known else -1) == (PastPointContent.FENCED, wanted, fence)


def test_how_far_was_read_is_in_the_record() -> None:
    one = replace(
        record(SwitchKind.PLANNED), foreign_writes=(ForeignWrites("orders", 0, 7, 9), ForeignWrites("bills", 3, 1, 2))
    )
    assert SwitchState.from_json(one.to_json()) == one
    assert SwitchState.from_json(one.to_json().replace('"strays"', '"others"')).foreign_writes == ()
