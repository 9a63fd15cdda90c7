"""Compiled loops on a machine where nothing is built yet: tasks carry without them, and take them up."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

import twinshore
from twinshore.runtime import compile
from twinshore.runtime.compile import COMPILED_MODULES, STAMP_FILE, is_built
from twinshore.runtime.spark import package_zip

pytestmark = pytest.mark.timeout(600)
BUILDER = compile.__name__
TASK = """
import sys, time
from twinshore.replication.task.core.batches import BufferPool
from twinshore.replication.task.core.messages import TaskLimits
from twinshore.runtime.compile import build_while_running, is_built

assert not is_built()
build_while_running()
pool = BufferPool(TaskLimits(join_below_bytes=1000))
assert pool.below_bytes == 0, "it waited for the compiler"
assert "numba" not in sys.modules, "it loaded the compiler"
deadline = time.monotonic() + 500
while not pool.below_bytes:
    assert time.monotonic() < deadline, "the loops were never taken up"
    assert not pool.full()
    time.sleep(0.05)
assert pool.below_bytes == 1000
assert is_built()
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False, timeout=560
    )


@pytest.mark.long
def test_a_task_carries_while_loops_are_built_and_takes_them_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run(tmp_path, "-c", TASK)
    assert done.returncode == 0, done.stderr
    kept = sorted(path.name.split("-")[0] for path in tmp_path.rglob("*.nbi"))
    assert "compiled.join_batches" in kept
    assert "compiled.matching" in kept, "the loops of proofs are built as well"

    # Whoever is asked again, as set-up is, builds nothing twice; other sources, or a damaged mark, are built again.
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nbi")}
    assert run(tmp_path, "-m", BUILDER).returncode == 0
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nbi")} == before
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert is_built()
    (mark,) = tmp_path.rglob(STAMP_FILE)
    mark.write_text("of another machine")
    assert not is_built()
    assert run(tmp_path, "-m", BUILDER).returncode == 0
    assert is_built()
    # What somebody has taken away or cut is not there, whatever the mark says: a task would compile before it carries.
    gone = next(tmp_path.rglob("compiled.join_batches-*.nbi"))
    gone.write_bytes(gone.read_bytes()[:-1])
    assert not is_built()
    gone.unlink()
    assert not is_built()
    assert run(tmp_path, "-m", BUILDER).returncode == 0
    assert is_built()


def test_what_builds_beside_a_mirror_ends_with_it(tmp_path: Path) -> None:
    done = run(tmp_path, "-m", BUILDER, "--beside")  # nobody holds its input
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.rglob(STAMP_FILE)), "it went on"


def test_nothing_is_built_where_there_is_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(compile, "version", missing)
    assert is_built()


def test_what_is_built_is_what_is_loaded() -> None:
    root = Path(str(twinshore.__file__)).parents[1]
    found = {".".join(path.relative_to(root).with_suffix("").parts) for path in root.rglob("compiled.py")}
    assert found == {*COMPILED_MODULES}


def test_shipped_as_an_archive_the_task_is_whole_and_its_loops_are_never_taken_for_built(tmp_path: Path) -> None:
    looked = """
import twinshore
assert "twinshore.zip" in twinshore.__file__, twinshore.__file__
import twinshore.replication.task.runner, twinshore.proof.jobs, twinshore.proof.prover
from twinshore.config.errors import ConfigError
from twinshore.kafka.protocol.error_codes import error_kind
from twinshore.runtime.compile import is_built
assert not is_built()
assert ConfigError("config.no-links").code and error_kind(10).hint, "the texts are shipped as well"
"""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(package_zip())}
    done = subprocess.run(
        [sys.executable, "-c", looked], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
