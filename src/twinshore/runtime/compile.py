"""Builds the compiled loops ahead of use, in a separate process: seconds, once on each machine.

`make setup` runs this. Otherwise, as after `pip install`, a starting mirror builds them after Spark's start, and tasks
run uncompiled until then. A stamp file tells whether numba's cache is valid, without loading numba, which takes a
second.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Final

import twinshore
from twinshore.kafka.protocol.batch_join import LOOPS_MODULE, load_loops, loops_build

COMPILED_MODULES: Final = (LOOPS_MODULE, "twinshore.proof.core.compiled")
STAMP_FILE: Final = "compiled.built"
_PATIENCE: Final = 5  # niceness of a build
# A starting mirror needs both cores of a small machine, until it replicates: so long after Spark is up.
_BEGIN_AFTER_S: Final = 5.0
_ROOT: Final = Path(twinshore.__file__).parent

_begun = threading.Lock()


def is_built() -> bool:
    """Whether the loops load without compiling; also true without a compiler. Checks the files as well as the stamp:
    otherwise a task could compile before replicating.
    """
    try:
        wanted = _stamp()
        stamp, *files = (_folder() / STAMP_FILE).read_text().splitlines()
        return stamp == wanted and all(_size_and(line.split(" ", 1)[1]) == line for line in files)
    except PackageNotFoundError:
        return True
    except (OSError, ValueError, IndexError):  # no mark, an empty one, or a damaged one
        return False


def build_loops() -> None:
    """Builds what is missing. Of several processes one builds, the others wait."""
    with _alone():
        if is_built():
            return
        found = [module for name in COMPILED_MODULES if (module := load_loops(name))]
        if len(found) == len(COMPILED_MODULES) and not found[0].UNKEPT:
            with contextlib.suppress(OSError):  # nothing may be written: each process compiles for itself
                _mark(sorted({file for module in found for file in _files_of(module)}))


def build_in_background() -> None:
    """Builds a little later, for tasks that this process will start. Returns at once."""
    if not is_built():
        _builder()


def build_while_running() -> None:
    """Builds for this process, which runs uncompiled until then. Returns at once."""
    if LOOPS_MODULE in sys.modules or is_built() or not _begun.acquire(blocking=False):
        return
    loops_build.runs = True
    threading.Thread(target=_take_up_once_built, name="compiling", daemon=True).start()


def _take_up_once_built() -> None:
    try:
        # Spark ships an archive to other machines, where numba finds no cache.
        if (_ROOT / "kafka" / "protocol" / "compiled.py").is_file():
            _builder().wait()
        load_loops(LOOPS_MODULE)
    finally:
        loops_build.runs = False


def _builder() -> subprocess.Popen[bytes]:
    """Starts a building process, which ends with this one: by end of input."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, "--beside"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    atexit.register(process.kill)
    return process


def _folder() -> Path:
    """Returns the stamp's folder: beside numba's index, or in the user's cache where that is not writable."""
    there = _ROOT / "kafka" / "protocol" / "__pycache__"
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if not chosen and os.access(there if there.exists() else there.parent, os.W_OK):
        return there
    kept = Path(chosen or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return kept / f"twinshore-{hashlib.sha256(str(_ROOT).encode()).hexdigest()[:16]}"


def _stamp() -> str:
    """Hashes what numba judges its cache by: sources, numba, Python, processor."""
    said = [sys.version, platform.machine(), version("numba"), version("llvmlite")]
    for module in COMPILED_MODULES:
        found = (_ROOT.parent / module.replace(".", "/")).with_suffix(".py").stat()
        said.append(f"{module} {found.st_mtime_ns} {found.st_size}")
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        said += sorted({line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))})
    return hashlib.sha256("\n".join(said).encode()).hexdigest()


def _files_of(module: ModuleType) -> Iterator[str]:
    for function in vars(module).values():
        if (stats := getattr(function, "stats", None)) and (kept := getattr(stats, "cache_path", None)):
            stem = Path(function.py_func.__code__.co_filename).stem
            yield from map(_size_and, Path(kept).glob(f"{stem}.{function.py_func.__name__}-*.nb[ic]"))


def _size_and(file: str | Path) -> str:
    return f"{Path(file).stat().st_size} {file}"


def _mark(files: list[str]) -> None:
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / f"{STAMP_FILE}.{os.getpid()}"
    new.write_text("\n".join([_stamp(), *files]))
    new.replace(folder / STAMP_FILE)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):
            folder = _folder()
            folder.mkdir(parents=True, exist_ok=True)
            lock = held.enter_context((folder / f"{STAMP_FILE}.lock").open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _end_with_its_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def main() -> None:
    if "--beside" in sys.argv[1:]:
        os.nice(_PATIENCE)
        threading.Thread(target=_end_with_its_parent, daemon=True).start()
        time.sleep(_BEGIN_AFTER_S)
    build_loops()


if __name__ == "__main__":
    main()
