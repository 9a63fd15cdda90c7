"""Rescued records are cut into the same batches at each attempt, and each is written once, whoever is killed."""

from __future__ import annotations

import pytest
from hypothesis import given

from tests.switch.test_rescued import ORIGIN, SAVED
from twinshore.fleet import WireError
from twinshore.switch.reinjected import BATCH_BYTES, BATCH_RECORDS, HEADER, Pass, Progress, batches, left
from twinshore.switch.rescued import Ending, Saved
from twinshore.wire.batch import split_batches
from twinshore.wire.records import Record, decode_batch, encode_batch

COMMITTED, OTHERS = (Pass("d" * 64, "orders", committed) for committed in (True, False))


def many(records: int, size: int = 1) -> list[Saved]:
    return [Saved(Record(number, number, b"k", b"v" * size), Ending.COMMITTED) for number in range(records)]


@given(SAVED)
def test_each_record_is_in_one_pass_as_it_was(saved: list[Saved]) -> None:
    for which in (COMMITTED, OTHERS):
        some = [one for batch in batches(saved, ORIGIN, which) for one in batch]
        wanted = [one.record for one in saved if which.admits(one)]
        assert [(one.key, one.value, one.timestamp, one.headers[:-1]) for one in some] == [
            (one.key, one.value, one.timestamp, one.headers) for one in wanted
        ]
        assert [one.headers[-1] for one in some] == [(HEADER, b"east orders-3 %d" % record.offset) for record in wanted]


def test_batches_are_bounded_and_can_be_read() -> None:
    for saved in (many(3 * BATCH_RECORDS + 1), many(20, BATCH_BYTES // 3)):
        cut = list(batches(saved, ORIGIN, COMMITTED))
        assert sum(map(len, cut)) == len(saved)
        for some in cut:
            assert len(some) <= BATCH_RECORDS
            assert sum(len(one.value or b"") for one in some) <= BATCH_BYTES
            ((view, header),) = split_batches(memoryview(encode_batch(some, producer_id=7, producer_epoch=0)))
            assert decode_batch(view, header) == some


def test_whoever_is_killed_goes_on_with_the_batch_that_was_under_way() -> None:
    """A broker that takes a sequence once, and a process that dies before or behind the answer of each batch."""
    saved = many(2 * BATCH_RECORDS + 7)
    for kill in range(10):
        log: list[Record] = []
        kept, calls = Progress(7, 0).to_json(), 0
        for _ in range(3):
            progress = Progress.from_json(kept)
            for sequence, some in left(batches(saved, ORIGIN, COMMITTED), progress.written):
                assert sequence <= len(log), "out of sequence"
                if sequence == len(log):
                    log += some
                calls += 1
                if calls == kill:
                    break
                progress = progress.on(len(some))
                kept = progress.to_json()
        assert [one.timestamp for one in log] == [one.record.timestamp for one in saved]


def test_garbage_is_no_progress() -> None:
    for text in ("", "[]", '{"producer": 1}'):
        with pytest.raises(WireError):
            Progress.from_json(text)
