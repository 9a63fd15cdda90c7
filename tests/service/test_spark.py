"""Rides on a real Spark: one whose worker hangs is ended from outside."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from twinshore.service.spark import SparkEngine, start_session

WITHIN_S = 120.0


def hanging(folder: Path) -> SparkEngine:
    """An engine whose ride of the order "hang" never ends by itself; each leaves its process's number in the folder."""

    def work(orders: Iterable[str]) -> Iterator[str]:
        for order in orders:
            (folder / order).write_text(str(os.getpid()))
            while order == "hang":
                time.sleep(0.01)
            yield "finished"

    session = start_session("twinshore test", "local[2]", {}, "[mirror.spark]", threading.Event())
    assert session is not None
    return SparkEngine(session, work)


def test_a_ride_whose_worker_hangs_is_ended_from_outside_and_no_other(tmp_path: Path) -> None:
    engine = hanging(tmp_path)
    try:
        ridden = ThreadPoolExecutor(1).submit(engine.ride, "hang", "raft 0 tide 0")
        deadline = time.monotonic() + WITHIN_S
        while not (tmp_path / "hang").exists() or not (tmp_path / "hang").read_text():
            assert time.monotonic() < deadline, "the ride begins"
            time.sleep(0.05)
        engine.end("raft 0 tide 1")
        assert engine.ride("go", "raft 0 tide 2") == "finished"
        assert not ridden.done(), "another name is another ride"
        engine.end("raft 0 tide 0")
        with pytest.raises(Exception, match="cancelled"):
            ridden.result(WITHIN_S)
        hung = Path("/proc") / (tmp_path / "hang").read_text()
        while (hung / "cmdline").exists() and (hung / "cmdline").read_bytes():
            assert time.monotonic() < deadline + WITHIN_S, "its process is killed"
            time.sleep(0.05)
    finally:
        engine.close()
