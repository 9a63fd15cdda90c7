"""Keys that one side alone has, found in bounded memory."""

from __future__ import annotations

import random

import pytest

from tests.proof import plain
from tests.proof.logs import batched, chunks, records
from twinshore.kafka.protocol.record_batch import Record
from twinshore.proof.core import keys as keys_module
from twinshore.proof.core.keys import HashPass, HashSlice, KeyFinder, KeyHashSet, LiveKeys, hash_chunk_keys
from twinshore.proof.core.record_rows import hash_key


def of(chance: random.Random, log: list[Record]) -> bytes:
    return batched(chance, log, log[-1].offset + 1)


@pytest.mark.parametrize("seed", range(5))
def test_compiled_and_plain_hashes_are_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    log = records(chance, 300, holes=0.02)
    log = [one._replace(key=one.key and chance.randbytes(chance.randrange(40))) for one in log]
    data = of(chance, log)
    compiled = [tuple(found.tolist() for found in hash_chunk_keys(chunk)) for chunk in chunks(data)]
    monkeypatch.setattr(keys_module, "compiled", lambda: plain)
    by_hand = [tuple(found.tolist() for found in hash_chunk_keys(chunk)) for chunk in chunks(data)]
    assert compiled == by_hand
    seen = [one for hashes, kinds in by_hand for one in zip(hashes, kinds, strict=True)]
    assert seen == [
        (0, keys_module.NO_KEY) if one.key is None else (hash_key(one.key), int(one.value is None)) for one in log
    ]


def alive(log: list[Record]) -> dict[bytes, int]:
    """The latest value of each key, where it is no tombstone."""
    latest = {record.key: record for record in log}
    return {key: one.offset for key, one in latest.items() if key is not None and one.value is not None}


@pytest.mark.parametrize("most", [(10_000, 10_000), (40, 10_000), (10_000, 15), (3, 2)])
@pytest.mark.parametrize("seed", range(6))
def test_the_keys_that_one_side_lacks_are_found_however_little_memory_there_is(
    seed: int, most: tuple[int, int]
) -> None:
    chance = random.Random(f"{seed} {most}")
    source = [Record(n, n, b"k%d" % chance.randrange(0, 300, 2), b"v") for n in range(400)]
    target = [Record(n, n, b"k%d" % chance.randrange(300), None if chance.random() < 0.2 else b"v") for n in range(400)]
    held = {record.key for record in source}
    todo, found = [HashSlice()], dict[bytes, int]()
    readings = 0
    while todo:
        work = HashPass(todo.pop())
        readings += 1
        known, live = KeyHashSet(work, most[0]), LiveKeys(work, most[1])
        for chunk in chunks(of(chance, source)):
            known.add(hash_chunk_keys(chunk)[0])
        for chunk in chunks(of(chance, target)):
            live.take(chunk, known)
        assert len(live.at) <= most[1]
        assert not found.keys() & live.at.keys()
        found |= live.at
        todo += work.left
    assert found == {key: at for key, at in alive(target).items() if key not in held}
    assert (readings == 1) == (most == (10_000, 10_000))


def test_suspects_are_found_by_their_bytes() -> None:
    chance = random.Random(3)
    log = [Record(n, n, b"k%d" % (n % 7), None if n % 3 == 0 else b"v") for n in range(50)]
    some = KeyFinder({b"k2": 0, b"k5": 0, b"nowhere": 0})
    found = [one for chunk in chunks(of(chance, log)) for one in some.find_in(chunk)]
    assert found == [(one.key, one.offset, one.value is None) for one in log if one.key in (b"k2", b"k5")]
    assert [one for chunk in chunks(of(chance, log)) for one in KeyFinder({}).find_in(chunk)] == []
