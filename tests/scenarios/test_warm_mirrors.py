"""A mirror that was forked is a process as any other: its parent's, whose words it heeds and whose end it shares."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.scenarios.mirror_rig import Rig
from tests.scenarios.warm_mirrors import ROOT
from twinshore.lab.ports import free_port

WITHIN_S = 60.0
# As a worker of the tests that dies while its mirror waits for a cluster.
DIES = """
import os, pathlib, sys
from tests.scenarios.mirror_rig import Rig

folder = pathlib.Path(sys.argv[1])
rig = Rig(folder, (folder / "settings").read_text())
rig.process.start()
rig.until_said("starting Spark")
print(rig.process.child.pid, flush=True)
os._exit(0)
"""


def settings(folder: Path) -> str:
    east, west = (f'bootstrap = ["127.0.0.1:{free_port()}"]' for _ in range(2))
    clusters = f'[clusters.east]\n{east}\n[clusters.west]\n{west}\n[links."east->west"]\n'
    return f'[store]\nurl = "sqlite:///{folder / "store.db"}"\n{clusters}'


def test_it_is_told_to_end_or_killed_and_says_how_it_ended(tmp_path: Path) -> None:
    rig = Rig(tmp_path, settings(tmp_path))
    rig.process.start()
    rig.until_said("starting Spark")
    process = psutil.Process(rig.process.child.pid)
    assert (process.ppid(), process.cwd()) == (psutil.Process().pid, str(tmp_path))
    assert rig.process.end() == 0
    assert "stopped in good order" in rig.process.said
    rig.process.start()
    rig.process.kill()
    assert rig.process.child.exit_code == -9
    rig.process.settings.write_text("[mirrors]\n")
    rig.process.start()
    assert rig.until_ended() == 2
    assert "did you mean mirror?" in rig.process.said


@pytest.mark.long
def test_it_ends_with_whoever_started_it(tmp_path: Path) -> None:
    (tmp_path / "settings").write_text(settings(tmp_path))
    command = [sys.executable, "-c", DIES, str(tmp_path)]
    died = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    until_s = time.monotonic() + WITHIN_S
    while psutil.pid_exists(int(died.stdout)):
        assert time.monotonic() < until_s, "it outlives its parent"
        time.sleep(0.02)
