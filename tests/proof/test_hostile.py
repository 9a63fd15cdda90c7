"""Bytes that lie: the compiled loops check no bounds, so what they are given must keep them within theirs."""

from __future__ import annotations

import random

import pytest

from tests.proof import plain
from tests.proof.logs import batched, records
from twinshore.config.errors import WireError
from twinshore.kafka.log_reader import end_of_last_batch
from twinshore.kafka.protocol.record_batch import HEADER_BYTES, Codec, encode_header, seal, split_batches
from twinshore.proof.core import record_rows as rows
from twinshore.proof.core.record_rows import Chunker

ROUNDS = 300


def spoilt(chance: random.Random, data: bytes) -> bytes:
    """Some bytes changed, taken away or added, most of them where lengths stand."""
    out = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        if not out:
            break
        at = chance.randrange(len(out)) if chance.random() < 0.6 else chance.randrange(min(8, len(out)))
        match chance.randrange(4):
            case 0:
                out[at] ^= 1 << chance.randrange(8)
            case 1:
                out[at : at + 1] = bytes(chance.choice([0x80, 0xFF]) for _ in range(chance.randint(1, 10)))
            case 2:
                del out[at : at + chance.randint(1, 20)]
            case _:
                out[at] = chance.choice([0, 1, 0x7F, 0x80, 0xFF])
    return bytes(out)


@pytest.mark.parametrize("seed", range(6))
def test_what_the_compiled_loop_takes_is_what_plain_python_takes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    taken = refused = 0
    for _ in range(ROUNDS):
        whole = batched(chance, records(chance, 8), 8, codecs=[Codec.NONE], most=8)
        view, header = split_batches(memoryview(whole))[0]
        body = spoilt(chance, bytes(view[HEADER_BYTES:]))
        if header.count * 7 > len(body):
            continue
        found: list[object] = []
        for compiled in (rows.compiled(), plain):
            with monkeypatch.context() as patch:
                patch.setattr("twinshore.proof.core.record_rows.compiled", lambda compiled=compiled: compiled)
                try:
                    found.append(rows.index_batch(body, header).tolist())
                except WireError:
                    found.append(None)
        taken, refused = taken + (found[1] is not None), refused + (found[1] is None)
        assert found[1] is None or found[0] == found[1], f"seed {seed}"
    assert taken > 10 and refused > 10


@pytest.mark.parametrize("seed", range(6))
def test_a_fetch_that_lies_is_refused_or_read_never_followed_out_of_its_bounds(seed: int) -> None:
    chance = random.Random(f"fetch {seed}")
    refused = 0
    for _ in range(ROUNDS):
        whole = batched(chance, records(chance, 20), 20, most=6)
        if chance.random() < 0.5:
            lying = spoilt(chance, whole)
        else:  # Its checksum is right, whatever else is wrong.
            (view, header), *_ = split_batches(memoryview(whole))
            lie = {"count": chance.choice([0, 1, 2**31 - 1]), "last_offset_delta": chance.choice([0, 5, 2**31 - 1])}
            body = spoilt(chance, bytes(view[HEADER_BYTES:]))
            lying = encode_header(seal(header._replace(**lie), body)) + body
        try:
            end_of_last_batch(memoryview(lying))
            for chunk in Chunker().chunks(memoryview(lying), ()):
                data, indexed = chunk.opened()
                rows.RunningDigest().add(data, indexed, 0, len(indexed))
                assert all(0 <= start <= end <= len(data) for _, _, start, end in indexed.tolist())
        except WireError:
            refused += 1
    assert refused > ROUNDS // 10, f"seed {seed}"
