"""What the wire tests are fed with: records as producers make them, and batches built field by field."""

from __future__ import annotations

import struct

from crc32c import crc32c
from hypothesis import strategies as st

from twinshore.kafka.protocol.record_batch import BatchHeader, Codec, Record, split_batches
from twinshore.kafka.protocol.rewrite import REWRITE_BYTES_MAX, slice_runs

CODECS = st.sampled_from(list(Codec))
BLOBS = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.binary(max_size=8), st.none() | st.binary(max_size=70)), max_size=3).map(tuple)
TIMESTAMPS = st.integers(-1, 2**41) | st.just(1_700_000_000_000)


@st.composite
def record_runs(draw: st.DrawFn, holes: bool = False, max_size: int = 12) -> list[Record]:
    """Records at rising offsets; without `holes` each offset follows the one before."""
    offset = draw(st.integers(0, 2**40) | st.just(2**31 - 3))
    records = []
    for _ in range(draw(st.integers(1, max_size))):
        key, value, headers = draw(st.tuples(BLOBS, BLOBS, HEADERS))
        records.append(Record(offset, draw(TIMESTAMPS), key, value, headers))
        offset += 1 + (draw(st.integers(0, 100)) if holes else 0)
    return records


def one(data: bytes | memoryview) -> tuple[memoryview, BatchHeader]:
    """The only batch in `data`."""
    (batch,) = split_batches(memoryview(data))
    return batch


def slice_batch(
    view: memoryview, header: BatchHeader, first_offset: int, end_offset: int, *, limit_bytes: int = REWRITE_BYTES_MAX
) -> tuple[bytes, BatchHeader]:
    """The records in one range of offsets as a batch."""
    ((body, sliced, _),) = slice_runs(view, header, [(first_offset, end_offset)], limit_bytes=limit_bytes)
    return body, sliced


def raw_batch(base_offset: int, count: int, body: bytes = b"body", attributes: int = 0, magic: int = 2) -> bytes:
    """A batch made without the code under test."""
    covered = struct.pack(">hiqqqhii", attributes, count - 1, 1000, 2000, 77, 3, 500, count) + body
    return struct.pack(">qiibI", base_offset, 9 + len(covered), 4, magic, crc32c(covered)) + covered
