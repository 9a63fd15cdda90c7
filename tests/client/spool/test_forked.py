"""A process that was forked leaves the spool alone: what it wrote there would lie over what the parent wrote."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_a_process_that_was_forked_writes_nothing_and_holds_no_lock(tmp_path: Path) -> None:
    words = [sys.executable, "-W", "ignore", "-m", "tests.client.spool.forker", str(tmp_path / "spool")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert not done.returncode, done.stderr
    said = done.stdout.splitlines()
    forked = "producer belongs to the process that was forked: make one after the fork"
    spool = f"not written to the spool {tmp_path / 'spool'}: it belongs to the process that was forked"
    assert sorted(said) == sorted(
        [
            *(f"RuntimeError: {forked}", f"RuntimeError: {forked}"),
            *(f"BufferError: {spool}", f"BufferError: {spool}"),
            *("0", "None", "the child has tried"),
            *("left 3", "there are {'orders': 3}"),
        ]
    )
