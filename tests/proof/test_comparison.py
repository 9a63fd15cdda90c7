"""Two logs with the same records are the same however they are batched; any one change is found where it is."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.proof import plain
from tests.proof.logs import batched, chunks, records
from twinshore.kafka.protocol.primitives import varint
from twinshore.kafka.protocol.record_batch import (
    HEADER_BYTES,
    Codec,
    Record,
    encode_batch,
    encode_header,
    encode_record_rest,
    seal,
    split_batches,
)
from twinshore.proof.core import record_rows as rows
from twinshore.proof.core.compare import CompareProgress, compare_by_offset, compare_content
from twinshore.proof.core.record_rows import MappedAlignment, MappedRun


@pytest.fixture(params=["compiled", "plain"])
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """With the compiled loops, and with plain ones."""
    if request.param == "plain":
        monkeypatch.setattr("twinshore.proof.core.record_rows.compiled", lambda: plain)
    yield request.param


def digest_of(log: list[Record]) -> int:
    """By the definition: the sum over single records."""
    sums = rows.RunningDigest()
    for record in log:
        data = encode_batch([record])
        ((view, header),) = split_batches(memoryview(data))
        plain = bytes(view[HEADER_BYTES:])
        sums.add(rows.as_byte_array(plain), rows.index_batch(plain, header), 0, 1)
    return sums.value


@pytest.mark.usefixtures("loops")
@pytest.mark.parametrize("seed", range(25))
def test_the_same_records_are_the_same_however_they_are_batched(seed: int) -> None:
    chance = random.Random(seed)
    log = records(chance, 120, start=chance.randrange(10**12), holes=0.1)
    end = log[-1].offset + chance.randint(1, 9)
    tally = CompareProgress(log[0].offset)
    one, other = (batched(chance, log, end) for _ in range(2))
    assert compare_by_offset(chunks(one), chunks(other), tally, end), f"seed {seed}"
    assert (tally.at, tally.records) == (end, 120)
    assert tally.sums.value == digest_of(log), f"seed {seed}"


@pytest.mark.usefixtures("loops")
@pytest.mark.parametrize("seed", range(25))
def test_any_single_change_is_found_at_its_offset(seed: int) -> None:
    chance = random.Random(f"change {seed}")
    log = records(chance, 120, start=500, holes=0.1)
    end, at = log[-1].offset + 1, chance.randrange(120)
    was = log[at]
    change = chance.choice(["value", "key", "timestamp", "headers", "gone", "bit"])
    changed = list(log)
    if change == "gone":
        del changed[at]
    elif change == "bit":
        content = bytearray(was.value or b"was none")
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        changed[at] = was._replace(value=bytes(content))
    else:
        content_of = {"value": b"other", "key": b"other", "timestamp": 5, "headers": ((b"new", None),)}
        changed[at] = was._replace(**{change: content_of[change]})  # type: ignore[arg-type]
    first = batched(chance, log, end, first=500), batched(chance, changed, end, first=500)
    for one, other in (first, first[::-1]):
        tally = CompareProgress(500)
        assert not compare_by_offset(chunks(one), chunks(other), tally, end), f"seed {seed}: {change}"
        assert tally.at == was.offset, f"seed {seed}: {change}"
        assert tally.records == at


def test_equal_compressed_batches_need_no_looking_into(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows.UnpackBuffer, "unpacked", lambda *_: pytest.fail("a batch is unpacked"))
    chance = random.Random(5)
    log = records(chance, 100)
    data = batched(chance, log, 100, codecs=[Codec.LZ4, Codec.ZSTD])
    tally = CompareProgress(0)
    assert compare_by_offset(chunks(data), chunks(data), tally, 100, digest=False)
    assert tally.records == 100 and tally.sums.value == 0


@pytest.mark.parametrize("seed", range(10))
def test_stretches_add_up_to_the_whole(seed: int) -> None:
    chance = random.Random(f"stretches {seed}")
    log = records(chance, 200, holes=0.05)
    end = log[-1].offset + 1
    borders = sorted({0, end, *(chance.randrange(end) for _ in range(4))})
    digests = []
    for start, stop in pairwise(borders):
        tally = CompareProgress(start)
        one, other = (chunks(batched(chance, log, end)) for _ in range(2))
        assert compare_by_offset(one, other, tally, stop), f"seed {seed}"
        digests.append(tally.sums.value)
    assert rows.combine_digests(*digests) == digest_of(log)


def test_append_time_is_what_consumers_see() -> None:
    log = [Record(n, 1_000 + n, None, b"v") for n in range(4)]
    data = encode_batch(log, attributes=8)
    seen = [record._replace(timestamp=1_003) for record in log]
    tally = CompareProgress(0)
    assert compare_by_offset(chunks(data), chunks(encode_batch(seen)), tally, 4)
    assert tally.sums.value == digest_of(seen)


def test_a_length_written_longer_than_it_need_be_is_no_difference() -> None:
    record = Record(0, 9, b"k", b"v")
    data = encode_batch([record])
    ((_, header),) = split_batches(memoryview(data))
    rest = encode_record_rest(b"k", b"v").replace(varint(1), b"\x82\x00", 1)
    body = varint(3 + len(rest)) + b"\0\0\0" + rest
    longer = encode_header(seal(header, body)) + body
    tally = CompareProgress(0)
    assert compare_by_offset(chunks(data), chunks(longer), tally, 1)
    assert tally.records == 1


@pytest.mark.usefixtures("loops")
@pytest.mark.parametrize("seed", range(15))
def test_by_content_only_order_counts(seed: int) -> None:
    chance = random.Random(f"content {seed}")
    log = records(chance, 100, holes=0.2)
    closed = [record._replace(offset=place + 7) for place, record in enumerate(log)]
    end = log[-1].offset + 3
    one, other = batched(chance, log, end), batched(chance, closed, 107)
    tally = CompareProgress(0, 7)
    assert compare_content(chunks(one), chunks(other), tally, (end, 107), last=True), f"seed {seed}"
    assert (tally.at, tally.target_at, tally.records) == (end, 107, 100)
    assert tally.sums.value == digest_of(log)

    shorter = CompareProgress(0, 7)
    assert compare_content(chunks(one), chunks(batched(chance, closed[:60], 67)), shorter, (end, 67), last=True)
    assert (shorter.at, shorter.target_at) == (log[60].offset, 67), "proven through the lower of both ends"
    later = CompareProgress(shorter.at, 67)
    assert compare_content(chunks(one), chunks(other), later, (end, 107), last=True), "goes on in the midst of batches"
    assert (later.at, later.records) == (end, 40)
    assert rows.combine_digests(shorter.sums.value, later.sums.value) == tally.sums.value

    longer = CompareProgress(0, 7)
    assert not compare_content(chunks(one), chunks(other), longer, (log[60].offset, 107), last=True)
    assert (longer.target_at, longer.records) == (67, 60)
    bounded = CompareProgress(0, 7)
    assert compare_content(chunks(one), chunks(other), bounded, (log[60].offset, 107), last=False)
    assert (bounded.at, bounded.target_at) == (log[60].offset, 67)
    lacks = CompareProgress(0, 7)
    broken = chunks(batched(chance, closed[:30] + closed[31:], 107))
    assert not compare_content(chunks(one), broken, lacks, (end, 107), last=True)
    assert lacks.at == log[30].offset


@pytest.mark.parametrize("seed", range(15))
def test_a_mapped_twin_is_compared_through_its_runs(seed: int) -> None:
    chance = random.Random(f"runs {seed}")
    log = records(chance, 150, start=40, holes=0.1)
    foreign = [Record(n, 5, b"before", b"the link") for n in range(30)]
    twin, at = list(foreign), 30
    offset_runs: list[MappedRun] = []
    for record in log:
        if chance.random() < 0.05:
            at += chance.randint(1, 5)
        twin.append(record._replace(offset=at))
        if offset_runs and (
            offset_runs[-1].source + offset_runs[-1].length,
            offset_runs[-1].target + offset_runs[-1].length,
        ) == (
            record.offset,
            at,
        ):
            offset_runs[-1] = offset_runs[-1]._replace(length=offset_runs[-1].length + 1)
        else:
            offset_runs.append(MappedRun(record.offset, at, 1))
        at += 1
    end = log[-1].offset + 1
    placement = MappedAlignment(offset_runs, end)
    one, other = batched(chance, log, end), batched(chance, twin, at)
    tally = CompareProgress(40)
    assert compare_by_offset(chunks(one), placement.placed(chunks(other)), tally, end), f"seed {seed}"
    assert tally.records == 150
    assert placement.target_of(log[70].offset) == twin[100].offset
    del twin[100]
    lacks = CompareProgress(40)
    broken = chunks(batched(chance, twin, at))
    assert not compare_by_offset(chunks(one), MappedAlignment(offset_runs, end).placed(broken), lacks, end)
    assert lacks.at == log[70].offset
