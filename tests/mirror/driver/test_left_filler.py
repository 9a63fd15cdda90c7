"""Where filler is found that nobody may cut off any more."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from twinshore.fleet import Cluster, KafkaError, Link, NamedPartition
from twinshore.fleet.incidents import POLICY_GAP
from twinshore.kafka.cluster import KafkaCluster, OffsetKind
from twinshore.mirror.driver.left_filler import LeftFiller, filled, is_left_filler
from twinshore.store import Incident, IncidentKind, TwinRow, open_store
from twinshore.wire.batch import CONTROL, BatchHeader, split_batches
from twinshore.wire.filler import filler, is_filler

Batch = tuple[bytes, BatchHeader]
DATA, FILLER, MARKERS = "data", "filler", "markers"


class Log:
    """A twin in memory: pieces of filler, markers and records, one behind the other."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.end = 0
        self.reads = 0

    def add(self, what: str, count: int) -> None:
        made = filler(min(count, 200_000))
        ((view, header),) = split_batches(memoryview(made.stamped(7, 0, 0) + made.body))
        header = header._replace(base_offset=self.end, last_offset_delta=count - 1)
        if what == DATA:
            header = header._replace(base_timestamp=5, max_timestamp=9)
        elif what == MARKERS:
            header = header._replace(attributes=CONTROL)
        self.batches.append((bytes(view), header))
        self.end += count

    def batch_at(self, at: int) -> Batch | None:
        self.reads += 1
        assert 0 <= at <= self.end, "a broker refuses it"
        return next((one for one in self.batches if one[1].base_offset <= at <= one[1].last_offset), None)

    def filler_at(self, at: int) -> int | None:
        found = self.batch_at(at)
        return found[1].base_offset if found and is_filler(*found) else None


def test_what_a_pump_had_filled_is_found_to_the_offset_whichever_pump_told_of_the_gap() -> None:
    for seed in range(300):
        chance, log = random.Random(seed), Log()
        log.add(DATA, chance.randrange(1, 9))
        begin = log.end
        for _ in range(chance.randrange(4)):
            log.add(FILLER, chance.randrange(1, 50))
        end = log.end
        for _ in range(chance.randrange(9)):
            log.add(MARKERS, 1)
        gap_to = log.end
        if chance.random() < 0.5:
            log.add(DATA, 3)
        wanted = (begin, end) if begin < end else None
        assert filled(log.filler_at, 0, begin, gap_to) == wanted, f"seed {seed}, told before it was written"
        if begin < end:
            assert filled(log.filler_at, 0, end, gap_to) == wanted, f"seed {seed}, told by the next pump"
        cut = chance.randrange(begin, end + 1)
        left = (cut, end) if cut < end else None
        assert filled(log.filler_at, cut, begin, gap_to) == left, f"seed {seed}, what is below {cut} does not count"


def test_a_long_gap_is_searched_with_few_questions() -> None:
    log = Log()
    log.add(DATA, 500)
    for _ in range(10):
        log.add(FILLER, 200_000)
    log.add(MARKERS, 1_000_000)
    assert filled(log.filler_at, 0, 500, log.end) == (500, 2_000_500)
    assert log.reads < 50


class Twin(KafkaCluster):
    """A target that answers from memory."""

    def __init__(self, log: Log) -> None:
        super().__init__(Cluster("west", ("127.0.0.1:1",)))
        self.log = log

    def offsets_of_each(
        self, parts: Iterable[NamedPartition], which: OffsetKind
    ) -> tuple[dict[NamedPartition, int], dict[NamedPartition, KafkaError]]:
        return dict.fromkeys(parts, 0 if which is OffsetKind.EARLIEST else self.log.end), {}

    def read_batch(self, named: NamedPartition, offset: int) -> Batch | None:
        del named
        return self.log.batch_at(offset)


@pytest.mark.parametrize("looks", [0, 1])
def test_a_gap_that_is_told_late_is_examined_too(tmp_path: Path, looks: int) -> None:
    """The store was away when a pump told of it, or the next pump tells what the one before had begun."""
    log, orders = Log(), NamedPartition("orders", 0)
    for what, count in ((DATA, 5), (FILLER, 40), (DATA, 3)):
        log.add(what, count)
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        store.twins.save([TwinRow("east->west", "orders", 0, "aa", "bb", 0, 0, 1)])
        eye = LeftFiller(Link("east", "west"), Twin(log), store, print)
        for _ in range(looks):
            eye.look({orders: 0}, never=True)
        gap = Incident("east->west", "orders", 0, IncidentKind.RETENTION_GAP, 5, 45, POLICY_GAP, "retention was faster")
        store.ledger.add(gap, now_ms=1)
        eye.look({orders: 0}, never=True)
        (told,) = [row.incident for row in store.ledger.rows(open_only=True) if is_left_filler(row)]
        assert (told.from_offset, told.to_offset) == (5, 45)
        reads = log.reads
        eye.look({orders: 0}, never=True)
        assert log.reads == reads, "it is examined once"
