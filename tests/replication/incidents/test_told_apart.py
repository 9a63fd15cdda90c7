"""What looks alike is told apart: each answer and each damage has its own kind, with its range."""

from __future__ import annotations

import struct
import zlib

import pytest

from tests.replication.task.parcels import a_batch, parse_batches
from twinshore.kafka.protocol.produce import ProducedPartition
from twinshore.kafka.protocol.record_batch import Record, encode_batch
from twinshore.replication.task.core.error_actions import judge_target_error
from twinshore.replication.task.core.messages import TaskLimits
from twinshore.replication.task.core.position import stop_for_misplaced_batch

BATCH = a_batch(10, 13, 900, 0)


def batch(base: int, count: int) -> bytes:
    return encode_batch([Record(base + number, 1, b"k", b"value", ()) for number in range(count)])


def old(base: int) -> bytes:
    message = struct.pack(">bbqi3si3s", 1, 0, 1, 3, b"key", 3, b"old")
    message = struct.pack(">I", zlib.crc32(message)) + message
    return struct.pack(">qi", base, len(message)) + message


@pytest.mark.parametrize("behind", [b"", batch(4, 2)], ids=["last", "in the midst"])
def test_an_old_message_is_no_damage(behind: bytes) -> None:
    done = parse_batches(memoryview(batch(0, 3) + old(3) + behind), 0, 0, TaskLimits())
    assert done.stopped is not None
    assert (done.stopped.kind, done.stopped.offset, done.stopped.end) == ("old format", 3, 4)
    assert "message format v1" in done.stopped.sentence
    assert done.end == 3, "what came before crosses"


@pytest.mark.parametrize("joined", [0, 128 << 10])
def test_damage_names_all_offsets_of_its_batch(joined: int) -> None:
    damaged = bytearray(batch(3, 4))
    damaged[-1] ^= 1
    data = memoryview(batch(0, 3) + bytes(damaged) + batch(7, 1))
    done = parse_batches(data, 0, 0, TaskLimits(join_below_bytes=joined))
    assert done.stopped is not None
    assert (done.stopped.kind, done.stopped.offset, done.stopped.end) == ("corrupt batch", 3, 7)
    assert done.end == 3


def test_who_wrote_between_is_a_stranger_and_a_twin_that_shrank_is_a_riddle() -> None:
    stranger, riddle = stop_for_misplaced_batch(BATCH, 12), stop_for_misplaced_batch(BATCH, 8)
    assert (stranger.kind, stranger.offset, stranger.end) == ("foreign write", 10, 12)
    assert "another producer wrote offsets 10 to 11" in stranger.sentence
    assert (riddle.kind, riddle.offset, riddle.end) == ("position disagreement", 8, 13)


@pytest.mark.parametrize(
    ("code", "kind"),
    [(10, "oversize batch"), (18, "oversize batch"), (29, "rights lost"), (31, "rights lost"), (87, "refused")],
)
def test_what_the_target_refuses(code: int, kind: str) -> None:
    found = judge_target_error(ProducedPartition("orders", 0, code, -1, -1, 0, None, None), BATCH, 1)
    assert found is not None
    assert (found.kind, found.offset, found.end) == (kind, 10, 13)
