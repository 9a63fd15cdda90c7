"""A process that keeps calls is killed at any moment: none that returned is lost. TWINSHORE_SEED replays one."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testkit.errors import raises
from tests.client.spool.spooling import numbers, taken
from twinshore.client.spool import Spool
from twinshore.client.spool_admin import inspect_spool
from twinshore.config.errors import RefusedError

ROOT = Path(__file__).resolve().parents[3]
BEGINS_S_MAX = 60.0


@contextmanager
def running(folder: Path, seed: str, said: Path, lines: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process that keeps calls in this folder, and has said so many lines; it is killed in the end."""
    with said.open("wb") as out, (said.parent / "troubles").open("w+b") as troubles:
        words = [sys.executable, "-m", "tests.client.spool.appender", str(folder), seed]
        child = subprocess.Popen(words, cwd=ROOT, stdout=out, stderr=troubles)
        try:
            until_s = time.monotonic() + BEGINS_S_MAX
            while said.read_bytes().count(b"\n") < lines:
                assert child.poll() is None, (said.parent / "troubles").read_text()
                assert time.monotonic() < until_s, "it keeps nothing"
                time.sleep(0.001)
            yield child
        finally:
            child.kill()
            assert child.wait() == -signal.SIGKILL


def killed_after(folder: Path, seed: str, said: Path, lines: int, more_s: float) -> tuple[dict[str, set[int]], str]:
    """What a process said that kept calls in this folder, until it was killed."""
    with running(folder, seed, said, lines):
        time.sleep(more_s)
    found: dict[str, set[int]] = {"begun": set(), "kept": set(), "acked": set()}
    for line in said.read_text().splitlines():
        word, number = line.split()
        found[word].add(int(number))
    return found, (said.parent / "troubles").read_text()


def play(folder: Path, kills: int) -> None:
    """Each process goes on in the folder that the one before left."""
    seed = int(os.environ.get("TWINSHORE_SEED") or random.SystemRandom().randrange(1_000_000))
    print(f"TWINSHORE_SEED={seed}")
    dice = random.Random(seed)
    kept: set[int] = set()
    begun: set[int] = set()
    acked: set[int] = set()
    again = unreturned = 0
    for turn in range(kills):
        lines, more_s = dice.choice([1, 10, 300]), dice.random() * 0.2
        said, troubles = killed_after(folder / "spool", f"{seed}-{turn}", folder / "said", lines, more_s)
        assert "cannot be read" not in troubles
        kept, begun, acked = kept | said["kept"], begun | said["begun"], acked | said["acked"]
        spool = Spool(folder / "spool")
        found = numbers(taken(spool))
        assert found == sorted(found), "in order"
        assert kept - acked <= set(found), f"kill {turn}: lost {sorted(kept - acked - set(found))[:9]}"
        assert set(found) <= begun, f"kill {turn}: made up {sorted(set(found) - begun)[:9]}"
        again += len(set(found) & acked)
        unreturned += len(set(found) - kept)
        spool.close(mark=False)
    assert acked
    print(
        f"told: {kills} kills: {len(kept)} calls returned, {len(acked)} of them acknowledged, 0 lost; {again} would"
        f" have been sent again; {unreturned} that had not returned were there"
    )


def test_a_second_process_is_told_which_one_has_the_folder(tmp_path: Path) -> None:
    with running(tmp_path / "spool", "two", tmp_path / "said", 1) as child:
        with raises(RefusedError, "client.spool-in-use", process=str(child.pid)):
            Spool(tmp_path / "spool")
        assert inspect_spool(tmp_path / "spool").holder == str(child.pid)
    Spool(tmp_path / "spool").close()


@pytest.mark.timeout(240)
def test_killed_ten_times_it_loses_nothing(tmp_path: Path) -> None:
    play(tmp_path, 10)


@pytest.mark.claim(
    "client", "spool-killed", "spool: its process killed a hundred times: 0 accepted records lost, 0 reordered"
)
@pytest.mark.long
@pytest.mark.timeout(900)
def test_killed_a_hundred_times_it_loses_nothing(tmp_path: Path) -> None:
    play(tmp_path, 100)
