"""Rides on a real Spark: workers have what they need before they begin, and one that hangs is ended from outside."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from testkit.errors import raises
from twinshore.config.errors import CodedError
from twinshore.config.sections.mirror import MirrorSettings
from twinshore.config.settings import load_settings
from twinshore.kafka.protocol.batch_join import LOOPS_MODULE
from twinshore.runtime.compile import is_built
from twinshore.runtime.spark import SparkEngine, open_session

WITHIN_S = 120.0
TASK = "twinshore.replication.task.runner"


def hanging(folder: Path) -> SparkEngine:
    """An engine whose ride of the order "hang" never ends by itself; each leaves its process's number in the folder."""

    def work(orders: Iterable[str]) -> Iterator[str]:
        for order in orders:
            (folder / order).write_text(str(os.getpid()))
            while order == "hang":
                time.sleep(0.01)
            if order == "look":
                found = {name: name in sys.modules for name in (TASK, LOOPS_MODULE)}
                threads = len(list(Path("/proc/self/task").iterdir()))
                yield json.dumps([found, threads, is_built(), sys.modules["pyspark"].__file__])
            yield "finished"

    load = ("twinshore.no_such_room", TASK)
    session = open_session(load_settings(folder / "twinshore.toml", {}).mirror, 1, threading.Event(), load)
    assert session is not None
    return SparkEngine(session, work)


def test_a_worker_has_its_modules_and_one_that_hangs_is_ended_from_outside_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "twinshore.toml").write_text("")
    engine = hanging(tmp_path)
    try:
        # What is loaded before a worker is forked is there when it begins; what cannot be loaded keeps nobody.
        found, threads, compiled, spark = json.loads(engine.ride("look", "task group 0 task run 9"))
        assert found == {TASK: True, LOOPS_MODULE: compiled}
        assert threads == 1, "a thread of the daemon's would be missing in what is forked from it"
        assert Path(spark).is_file(), "what is loaded out of an archive is compiled anew"
        ridden = ThreadPoolExecutor(1).submit(engine.ride, "hang", "task group 0 task run 0")
        deadline = time.monotonic() + WITHIN_S
        while not (tmp_path / "hang").exists() or not (tmp_path / "hang").read_text():
            assert time.monotonic() < deadline, "the ride begins"
            time.sleep(0.05)
        engine.end("task group 0 task run 1")
        assert engine.ride("go", "task group 0 task run 2") == "finished"
        assert not ridden.done(), "another name is another ride"
        engine.end("task group 0 task run 0")
        with pytest.raises(Exception, match="cancelled"):
            ridden.result(WITHIN_S)
        hung = Path("/proc") / (tmp_path / "hang").read_text()
        while (hung / "cmdline").exists() and (hung / "cmdline").read_bytes():
            assert time.monotonic() < deadline + WITHIN_S, "its process is killed"
            time.sleep(0.05)
    finally:
        engine.close()


@pytest.mark.parametrize(
    ("home", "said"),
    [("/nowhere", "JAVA_HOME is /nowhere, and there is no bin/java"), ("", "there is no java on PATH")],
)
def test_without_java_it_says_so_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: str, said: str
) -> None:
    """Two raw lines of a shell script came before a sentence that named slots nobody had written."""
    monkeypatch.setenv("JAVA_HOME", home)
    monkeypatch.setenv("PATH", str(tmp_path))
    with raises(CodedError, "runtime.no-java", cause=said):
        open_session(MirrorSettings(), 1, threading.Event())
