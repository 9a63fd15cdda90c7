"""A mirror whose log cannot be written goes on whole: the reader is gone, or reads nothing, or the disk is full."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from testkit.clients import alter_topic
from testkit.raw_writer import RawWriter
from tests.scenarios.mirror_rig import settings_text, spans
from tests.scenarios.warm_mirrors import IN_THREADS
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.cluster import LabCluster
from twinshore.lab.ports import free_port

pytestmark = pytest.mark.claim(
    "topics",
    "unwritable-log",
    "a mirror whose log has no reader, a reader that reads nothing, or a full disk goes on whole: "
    "topics begin, settings follow, /health is ok, and it stops in good order",
)

LINK = "east->west"
PIPE_BYTES = 4_096
WITHIN_S = 120.0


class Log:
    """What the mirror has for its standard output; `spoil` makes it unwritable."""

    def __init__(self, kind: str) -> None:
        self.kind, self._read = kind, -1
        if kind == "full disk":
            self.write = os.open("/dev/full", os.O_WRONLY)
            return
        self._read, self.write = os.pipe()
        fcntl.fcntl(self.write, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def spoil(self) -> None:
        if self.kind == "no reader":
            os.close(self._read)
            self._read = -1
        elif self.kind == "reader that reads nothing":
            with contextlib.suppress(BlockingIOError):
                os.set_blocking(self.write, False)  # For a moment, as the mirror has the same.
                while True:
                    os.write(self.write, b"x")
            os.set_blocking(self.write, True)

    def close(self) -> None:
        for end in (self._read, self.write):
            if end >= 0:
                os.close(end)


class Mirror:
    """A mirror of one topic expression, run with a log of this kind."""

    def __init__(self, folder: Path, east: LabCluster, west: LabCluster, topics: str, kind: str) -> None:
        self.port, self.log = free_port(), Log(kind)
        mirror: dict[str, object] = {"metrics_port": self.port, "tasks_per_link": 1}
        text = settings_text(folder, [east.cluster, west.cluster], {LINK: topics}, mirror=mirror)
        text = text.replace("[mirror]\n", f'[links."{LINK}".follow]\nevery_s = 1\n[mirror]\n', 1)
        (folder / "twinshore.toml").write_text(text)
        self.errors = folder / "stderr.txt"
        command = [sys.executable, "-m", IN_THREADS, "mirror", "run", "--settings", str(folder / "twinshore.toml")]
        root = Path(__file__).resolve().parent.parent.parent
        environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(command, stdout=self.log.write, stderr=errors, cwd=folder, env=environment)

    def until(self, holds: Callable[[], bool], what: str) -> None:
        began_s = time.monotonic()
        while not holds():
            state = f"{what}; health {self.health()}; stderr: {self.errors.read_text()[-2000:]}"
            assert self.process.poll() is None, f"the mirror has ended: {state}"
            assert time.monotonic() - began_s < WITHIN_S, state
            time.sleep(0.1)

    def health(self) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=10) as answer:
                return answer.status, json.load(answer)["says"]
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)["says"]
        except OSError as error:
            return 0, str(error)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.log.close()


@pytest.fixture
def mirror(
    request: pytest.FixtureRequest, tmp_path: Path, east: LabCluster, west: LabCluster
) -> Iterator[tuple[Mirror, str]]:
    prefix = f"log-{request.param.replace(' ', '-')}"
    east.create_topic(f"{prefix}-orders")
    made = Mirror(tmp_path, east, west, f"{prefix}-.*", request.param)
    yield made, prefix
    made.close()


@pytest.mark.parametrize(
    "mirror",
    [
        pytest.param("no reader", marks=pytest.mark.long),
        pytest.param("reader that reads nothing", marks=pytest.mark.long),
        "full disk",
    ],
    indirect=True,
)
def test_a_mirror_whose_log_cannot_be_written_goes_on_whole(
    mirror: tuple[Mirror, str], east: LabCluster, west: LabCluster
) -> None:
    run, prefix = mirror
    orders, fresh = f"{prefix}-orders", f"{prefix}-fresh"
    with (
        contextlib.closing(KafkaCluster(east.cluster)) as source,
        contextlib.closing(KafkaCluster(west.cluster)) as twin,
    ):

        def crosses(topic: str) -> None:
            assert RawWriter(source, topic).send([RawWriter.batch(50)]).error == 0
            run.until(lambda: spans(west.cluster, topic, 1) == spans(east.cluster, topic, 1), f"{topic} crosses")

        crosses(orders)
        run.log.spoil()
        # Each part of the mirror has something to do, and to say: the planner, the tasks, what follows.
        east.create_topic(fresh)
        crosses(fresh)
        crosses(orders)
        for size in ("20000000", "30000000"):
            alter_topic(east.cluster, orders, {"segment.bytes": size})
            run.until(partial(_has, twin, orders, size), f"segment.bytes = {size} follows")
        crosses(orders)
        run.until(lambda: run.health() == (200, "ok"), "/health says ok")
    run.process.terminate()
    assert run.process.wait(timeout=WITHIN_S) == 0, run.errors.read_text()[-2000:]
    assert "Traceback" not in run.errors.read_text()


def _has(kafka: KafkaCluster, topic: str, size: str) -> bool:
    found = kafka.admin.topic_settings([topic])[topic].get("segment.bytes")
    return found is not None and found.value == size
