"""Nothing outlives us: not after an interrupt, not after kill -9; and nothing of others' is touched."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from twinshore.lab.processes import (
    ProcessIdentity,
    get_own_identity,
    get_process_identity,
    scratch_folder,
    start_child,
    sweep_scratch_folders,
)

# Started from a thread that ends, as a test's worker or a fixture may: the servers must not end with that thread.
_PARENT = """
import json, sys, threading, time
from testkit.cluster import RigCluster
from testkit.databases import PostgresServer
from twinshore.lab.jars import ONE_COMPILER_FLAG

servers = [RigCluster("tied", heap_mb=256, via_proxy=True, jvm_flags=(ONE_COMPILER_FLAG,)), PostgresServer()]
for server in servers:
    starter = threading.Thread(target=server.start)
    starter.start()
    starter.join()
cluster, postgres = servers
pids = [cluster.brokers[0].pid, cluster.proxies[0].pid, postgres.pid]
print(json.dumps({"pids": pids, "folders": [str(server.folder) for server in servers]}), flush=True)
time.sleep(300)
"""


def gone(marks: list[ProcessIdentity], within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while any(mark.alive() for mark in marks):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def hear_ctrl_c() -> None:
    """A shell starts what it puts into the background deaf to Ctrl-C, and so all that it starts."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, *(pytest.param(one, marks=pytest.mark.long) for one in (signal.SIGINT, signal.SIGTERM))]
)
def test_servers_end_with_whoever_started_them(number: signal.Signals, tmp_path: Path) -> None:
    log = tmp_path / "parent.log"
    environment = {**os.environ, "TMPDIR": "/tmp", "PYTHONPATH": os.pathsep.join(sys.path)}
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            [sys.executable, "-c", _PARENT],
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            preexec_fn=hear_ctrl_c,
        ) as parent,
    ):
        try:
            assert parent.stdout is not None
            line = parent.stdout.readline()
            assert line, log.read_text()
            said = json.loads(line)
            processes = [psutil.Process(pid) for pid in said["pids"]]
            marks = [get_process_identity(process.pid) for process in processes]
            for one in processes[2].children():
                with suppress(psutil.NoSuchProcess):  # some of a database's own come and go
                    marks.append(get_process_identity(one.pid))
            assert len(marks) > 3
            parent.send_signal(number)
            assert parent.wait(60) != 0
            assert gone(marks, within_s=20)
        finally:
            parent.kill()
    sweep_scratch_folders(Path("/tmp"))
    assert [folder for folder in said["folders"] if Path(folder).exists()] == []


def test_a_mark_is_not_taken_for_a_later_process_of_the_same_number() -> None:
    mark = get_own_identity()
    boot, _, ticks = mark.start.partition(":")
    assert mark.alive()
    for start in (f"{boot}:{int(ticks) - 1}", f"another-boot:{ticks}", repr(psutil.Process().create_time() - 100)):
        earlier = ProcessIdentity(mark.pid, start)
        assert not earlier.alive()
        assert not earlier.send(signal.SIGKILL)


def test_a_mark_holds_when_the_clock_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    mark, folder = get_own_identity(), scratch_folder("kept")
    by_the_clock = psutil.Process().create_time()
    boot_s = psutil.boot_time()
    monkeypatch.setattr("psutil._pslinux.boot_time", lambda: boot_s + 1)
    assert psutil.Process().create_time() > by_the_clock, "the clock was set for nothing"
    assert mark.alive()
    assert ProcessIdentity.from_json(json.loads(json.dumps(mark.as_json()))) == mark
    assert sweep_scratch_folders(tmp_path) == []
    assert folder.exists()


def test_marks_of_the_clock_are_read_still(tmp_path: Path) -> None:
    child = start_child(["sleep", "300"], folder=tmp_path, tied=False)
    try:
        mark = ProcessIdentity.from_json([child.pid, psutil.Process(child.pid).create_time()])
        assert mark.alive()
        mark.end()
        assert not mark.alive(), "a zombie is taken for a process"
        assert not child.identity.alive(), "a zombie is taken for a process"
    finally:
        child.end()
    with pytest.raises(psutil.NoSuchProcess):
        get_process_identity(child.pid)


def test_a_detached_process_is_not_ended_with_us_but_by_its_mark(tmp_path: Path) -> None:
    child = start_child(["sleep", "300"], folder=tmp_path, tied=False)
    try:
        assert child.identity.alive()
        child.identity.end(patience_s=5)
        assert not child.identity.alive()
    finally:
        child.end()


def test_a_sweep_takes_only_folders_whose_owner_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    mine, left, unknown = scratch_folder("mine"), scratch_folder("left"), tmp_path / "twinshore-unknown"
    unknown.mkdir()
    pid, start, numbering = json.loads((left / ".owner").read_text())
    (left / ".owner").write_text(json.dumps([pid, f"{start}0", numbering]))
    assert sweep_scratch_folders(tmp_path) == [left]
    assert (mine.exists(), left.exists(), unknown.exists()) == (True, False, True)
