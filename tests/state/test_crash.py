"""A process killed with -9 while it records: what it was told is recorded is there, and all of it adds up."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from twinshore.state.core.progress_rules import last_offset
from twinshore.state.store import open_store

RECORD = """
import sys
from twinshore.state.core.values import ProgressRecord, SourceBatch, SourceProducer
from twinshore.state.store import open_store
store = open_store(sys.argv[1])
ends = {(p.topic, p.partition): p.to_offset for p in store.progress.positions('l')}
turn = ends.get(('t', 0), 0) // 10
while True:
    low, now = turn * 10, turn * 7000
    producers = tuple(SourceProducer(n, 0, (SourceBatch(low, low + 9, low, now),)) for n in (turn % 3, 10))
    told = dict(link='l', topic='t', from_offset=low, to_offset=low + 10, records=10, bytes=100, batches=1)
    told |= dict(source_end=low + 10, first_ms=now, last_ms=now, source_producers=producers)
    store.progress.record([ProgressRecord(partition=part, **told) for part in range(30)])
    turn += 1
    print(turn, flush=True)
"""


def record_until_killed(url: str, after_s: float) -> int:
    """How many rounds the process said were recorded, before it was killed."""
    process = subprocess.Popen([sys.executable, "-c", RECORD, url], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    first = process.stdout.readline()
    time.sleep(after_s)
    process.send_signal(signal.SIGKILL)
    rest, _ = process.communicate()
    return int((first + rest).split("\n")[-2])


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_again_and_again_the_store_stays_whole(tmp_path: Path, seed: int) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    chance = random.Random(seed)
    for _ in range(4):
        told = record_until_killed(url, chance.uniform(0, 0.25))
        with open_store(url) as store:
            positions = store.progress.positions("l")
            assert len(positions) == 30
            assert len({one.to_offset for one in positions}) == 1, "a call was recorded in part"
            assert positions[0].to_offset in (told * 10, told * 10 + 10)
            for one in positions:
                assert one.records == one.to_offset
                known = store.replicated_prefixes.of("l", {"t": 1})["t", one.partition].producers
                assert max(map(last_offset, known)) == one.to_offset - 1
