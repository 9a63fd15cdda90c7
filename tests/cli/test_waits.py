"""A verb that waits for a cluster says for whom, within three seconds."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest

from twinshore.kafka.pool import ClusterWait
from twinshore.lab.ports import free_port
from twinshore.runtime.wait_report import (
    BATCH_WAIT_S,
    INTERACTIVE_WAIT_S,
    REPORT_WAIT_AGAIN_S,
    WAIT_POLL_INTERVAL_S,
    WaitReporter,
)

WEST = ClusterWait("west", "west:9092", 100.0)


def test_a_wait_is_told_once_and_again_while_it_lasts() -> None:
    said: list[str] = []
    teller = WaitReporter(said.append, INTERACTIVE_WAIT_S)
    assert INTERACTIVE_WAIT_S + WAIT_POLL_INTERVAL_S < 3 < BATCH_WAIT_S
    teller.look([WEST], 100 + INTERACTIVE_WAIT_S - 0.1)
    assert said == []
    for _ in range(3):
        teller.look([WEST, WEST, ClusterWait("west", "west:9092", 101.0)], 110)
    assert said == ["waiting for west at west:9092 ..."]
    teller.look([WEST], 110 + REPORT_WAIT_AGAIN_S)
    assert said[1:] == [f"waiting for {10 + REPORT_WAIT_AGAIN_S:.0f} s for west at west:9092 ..."]
    teller.look([], 200)
    assert len(said) == 2


@pytest.fixture
def settings_file(tmp_path: Path) -> Path:
    file = tmp_path / "twinshore.toml"
    clusters = "".join(f'[clusters.{name}]\nbootstrap = ["127.0.0.1:{free_port()}"]\n' for name in ("london", "west"))
    file.write_text(f'{clusters}[links."london->west"]\n', encoding="utf-8")
    return file


def test_who_sits_at_a_terminal_reads_it_in_the_third_second(settings_file: Path) -> None:
    ours, theirs = pty.openpty()
    began_s = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-m", "twinshore.cli", "mirror", "plan", "--settings", str(settings_file)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=theirs,
    ) as verb:
        os.close(theirs)
        said = b""
        while b"..." not in said:
            said += os.read(ours, 1000)
        took_s = time.monotonic() - began_s
        verb.kill()
    os.close(ours)
    assert b"waiting for london at 127.0.0.1:" in said
    assert took_s < 10, "far less than the wait itself, whatever the machine does besides"
