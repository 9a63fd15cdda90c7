"""A source log's batches become what a consumer may see and offsets that nobody sees, whatever the transactions did."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from twinshore.config.errors import WireError
from twinshore.kafka.protocol.fetch import AbortedTransactions
from twinshore.kafka.protocol.record_batch import (
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    LOG_APPEND_TIME_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Codec,
    Record,
    decode_batch,
    encode_batch,
    encode_header,
    split_batches,
)
from twinshore.replication.task.core.batches import OffsetGap, SplitBatch, clip_gaps, split_batch, subtract_gaps


@dataclass(slots=True)
class Log:
    """A source's log with what read_committed consumers see of it; open transactions keep their first offset."""

    data: list[bytes] = field(default_factory=list)
    seen: list[Record] = field(default_factory=list)
    aborted: list[tuple[int, int]] = field(default_factory=list)
    opened: dict[int, tuple[int, list[Record]]] = field(default_factory=dict)
    end: int = 0

    def records(self, count: int, chance: random.Random) -> list[Record]:
        found = [
            Record(self.end + number, chance.randrange(1, 9_000), chance.choice((None, b"k", b"")), b"v" * number)
            for number in range(count)
        ]
        self.end += count
        return found

    def plain(self, chance: random.Random) -> None:
        """Perhaps with holes, perhaps emptied, perhaps with the broker's own time."""
        base, ours = self.end, self.records(chance.randint(1, 6), chance)
        last = self.end - 1
        if chance.random() < 0.4:
            ours = [record for record in ours if chance.random() < 0.6]
        bits = chance.choice((0, 0, LOG_APPEND_TIME_FLAG, DELETE_HORIZON_FLAG))
        batch = encode_batch(
            ours, codec=chance.choice(list(Codec)), attributes=bits, base_offset=base, last_offset=last, producer_id=5
        )
        self.data.append(batch)
        self.seen += decode_batch(memoryview(batch), header_of(batch))

    def write(self, producer_id: int, chance: random.Random) -> None:
        base, ours = self.end, self.records(chance.randint(1, 4), chance)
        first, before = self.opened.get(producer_id, (base, []))
        self.opened[producer_id] = (first, before + ours)
        self.data.append(encode_batch(ours, attributes=TRANSACTIONAL_FLAG, producer_id=producer_id))

    def close(self, producer_id: int, *, commit: bool, emptied: bool = False) -> None:
        first, ours = self.opened.pop(producer_id, (-1, []))
        if commit:
            self.seen = sorted(self.seen + ours)
        elif first >= 0:
            self.aborted.append((producer_id, first))
        key = b"\0\0" + (b"\0\1" if commit else b"\0\0")
        control = [] if emptied else [Record(self.end, 9, key, b"\0\0\0\0\0\0")]
        bits = TRANSACTIONAL_FLAG | CONTROL_FLAG
        batch = encode_batch(
            control, attributes=bits, producer_id=producer_id, base_offset=self.end, last_offset=self.end
        )
        self.data.append(batch)
        self.end += 1

    def vanish(self, count: int) -> None:
        """Compaction took these offsets, batches and all."""
        self.end += count


def header_of(batch: bytes) -> BatchHeader:
    return split_batches(memoryview(batch))[0][1]


def random_log(chance: random.Random) -> Log:
    log = Log()
    for _ in range(chance.randint(5, 40)):
        producer_id = chance.choice((11, 12, 13))
        action = chance.random()
        if action < 0.3:
            log.plain(chance)
        elif action < 0.6:
            log.write(producer_id, chance)
        elif action < 0.9:
            log.close(producer_id, commit=chance.random() < 0.5)
        else:
            log.vanish(chance.randint(1, 5))
    for producer_id in list(log.opened):
        log.close(producer_id, commit=chance.random() < 0.5)
    log.plain(chance)
    return log


def crossed(log: Log, first_batch: int, position: int, write_from: int) -> tuple[list[Record], list[OffsetGap]]:
    """Records and gaps from a fetch that begins at that batch; every offset must be told once and in order."""
    begins = split_batches(memoryview(b"".join(log.data[first_batch:])))
    base = begins[0][1].base_offset
    aborted = AbortedTransactions([entry for entry in log.aborted if not ended_before(log, entry, base)])
    at = position
    records: list[Record] = []
    gaps: list[OffsetGap] = []
    told = max(position, write_from)
    early: list[OffsetGap] = []
    for view, header in begins:
        for fate in split_batch(view, header, at, write_from, aborted):
            if isinstance(fate, OffsetGap) and fate.end <= write_from:
                early.append(fate)
            elif isinstance(fate, OffsetGap):
                assert (fate.base, fate.end > fate.base) == (told, True)
                gaps.append(fate)
                told = fate.end
            else:
                assert isinstance(fate, SplitBatch)
                assert fate.header.base_offset == told
                assert fate.header.count == fate.header.last_offset_delta + 1
                sealed = encode_header(fate.header) + bytes(fate.body)
                records += decode_batch(memoryview(sealed), fate.header)
                told = fate.header.last_offset + 1
        at = max(at, header.last_offset + 1)
    known = {record.offset for record in log.seen}
    assert [at for gap in early for at in range(*gap)] == [at for at in range(position, write_from) if at not in known]
    return records, gaps


def ended_before(log: Log, entry: tuple[int, int], base: int) -> bool:
    """Whether the transaction's abort marker lies before `base`: a broker lists it no more."""
    for _, header in split_batches(memoryview(b"".join(log.data))):
        if header.attributes & CONTROL_FLAG and header.producer_id == entry[0] and header.base_offset > entry[1]:
            return header.base_offset < base
    return False


def test_what_crosses_is_what_a_consumer_of_committed_data_sees() -> None:
    for seed in range(300):
        log = random_log(random.Random(seed))
        records, gaps = crossed(log, 0, 0, 0)
        assert records == log.seen, f"seed {seed}"
        assert sum(gap.end - gap.base for gap in gaps) == log.end - len(records), f"seed {seed}"


def test_it_may_begin_anywhere_even_inside_a_transaction_or_a_batch() -> None:
    for seed in range(300):
        chance = random.Random(seed)
        log = random_log(chance)
        write_from = chance.randrange(log.end)
        headers = [header for _, header in split_batches(memoryview(b"".join(log.data)))]
        first = next(index for index, header in enumerate(headers) if header.last_offset >= write_from)
        earlier = chance.randint(0, first)
        position = min(write_from, headers[earlier].base_offset) if earlier < first else write_from
        records, gaps = crossed(log, earlier, position, write_from)
        assert records == [one for one in log.seen if one.offset >= write_from], f"seed {seed} from {write_from}"
        assert sum(gap.end - gap.base for gap in gaps) == log.end - write_from - len(records), f"seed {seed}"


def test_an_emptied_control_batch_is_an_offset_that_nobody_sees() -> None:
    log = Log()
    log.close(11, commit=False, emptied=True)
    assert crossed(log, 0, 0, 0) == ([], [OffsetGap(0, 1)])


def test_a_transaction_after_an_aborted_one_of_the_same_producer_is_told_apart() -> None:
    chance = random.Random(1)
    log = Log()
    for commit in (False, True, False, True):
        log.write(11, chance)
        log.close(11, commit=commit)
    records, _ = crossed(log, 0, 0, 0)
    assert records == log.seen
    assert records


def test_damage_is_found_before_a_control_record_is_believed() -> None:
    log = Log()
    log.write(11, random.Random(1))
    log.close(11, commit=False)
    damaged = bytearray(log.data[1])
    damaged[-7] ^= 1
    log.data[1] = bytes(damaged)
    with pytest.raises(WireError, match="corrupt batch at offset"):
        crossed(log, 0, 0, 0)


@pytest.mark.parametrize(
    ("others", "left"),
    [
        ([], [(0, 10), (20, 30)]),
        ([OffsetGap(0, 10)], [(20, 30)]),
        ([OffsetGap(5, 25)], [(0, 5), (25, 30)]),
        ([OffsetGap(2, 3), OffsetGap(4, 6), OffsetGap(28, 40)], [(0, 2), (3, 4), (6, 10), (20, 28)]),
    ],
)
def test_the_parts_of_gaps_beside_others(others: list[OffsetGap], left: list[tuple[int, int]]) -> None:
    assert subtract_gaps([OffsetGap(0, 10), OffsetGap(20, 30)], others) == [OffsetGap(*one) for one in left]
    assert clip_gaps([OffsetGap(0, 10), OffsetGap(20, 30)], 10, 25) == (OffsetGap(20, 25),)
