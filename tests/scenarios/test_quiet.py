"""What starts Spark says its own words alone: the JVM and Spark's loggers write nothing between them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.scenarios.mirror_rig import foreign_lines, settings_text
from twinshore.lab.cluster import LabCluster

SOURCES = Path(__file__).resolve().parents[2] / "src"
WITHIN_S = 240.0


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("verb", "wanted"), [("prove", "could be compared"), ("delay watch", "windows")], ids=("prove", "delay-watch")
)
def test_it_writes_no_line_of_spark(east: LabCluster, west: LabCluster, tmp_path: Path, verb: str, wanted: str) -> None:
    east.create_topic(f"quiet-{verb.replace(' ', '-')}")
    text = settings_text(tmp_path, [east.cluster, west.cluster], {"east->west": f"quiet-{verb.replace(' ', '-')}"})
    (tmp_path / "twinshore.toml").write_text(text + '[delay]\nengine = "spark"\n')
    log = tmp_path / "said"
    with log.open("w") as out:
        command = [sys.executable, "-m", "twinshore.cli", *verb.split()]
        env = {**os.environ, "PYTHONPATH": str(SOURCES), "PYTHONUNBUFFERED": "1"}
        child = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=out, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + WITHIN_S
        while child.poll() is None and wanted not in log.read_text():
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        time.sleep(10)  # Its query begins, and Spark says most of what it says at an end.
    finally:
        child.send_signal(signal.SIGINT)
        child.wait(120)
    assert log.read_text()
    assert foreign_lines(log.read_text()) == []
