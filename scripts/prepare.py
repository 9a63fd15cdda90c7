"""Builds .venv from requirements.lock; standard library only, because nothing else is installed yet.

Called by setup.sh, which has checked Python and Java. Returns at once when .venv already is what the lock says.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).resolve().parent.parent
BUILD_TOOLS = ("pip", "setuptools", "wheel", "packaging")
LOOPS_BUILDER = "twinshore.runtime.compile"
CLASSES_KEEPER = "twinshore.runtime.spark"
SAY_EVERY_S = 10.0
# Each of these, set for the user's own habits, would send packages elsewhere or start another Python's files.
FOREIGN = ("PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")


def main() -> int:
    """Exit code 0 when .venv is ready."""
    cache = ROOT / ".cache"
    cache.mkdir(exist_ok=True)
    with (cache / "setup.lock").open("w") as lock:
        # Two makes at once: the second waits, then finds the work done.
        fcntl.flock(lock, fcntl.LOCK_EX)
        code = 0 if ready(ROOT) else build(ROOT)
        return code or compile_loops(ROOT) or keep_classes(ROOT)


def stamp(root: Path) -> str:
    """What a finished .venv was made of; another value means that it has to be made again."""
    digest = hashlib.sha256()
    for name in ("requirements.lock", "pyproject.toml", "scripts/prepare.py"):
        digest.update((root / name).read_bytes())
    return f"{digest.hexdigest()} {root}\n"


def ready(root: Path) -> bool:
    """Whether .venv was finished from today's lock, at this very place, and its Python still runs."""
    mark = root / ".venv" / "twinshore.stamp"
    return mark.is_file() and mark.read_text() == stamp(root) and usable(root)


def usable(root: Path) -> bool:
    """Whether .venv holds a Python of this very version; one left by a removed or older Python does not."""
    python = root / ".venv" / "bin" / "python"
    if not python.is_file():
        return False
    probe = "import sys, pip; print(sys.version_info[:2], sys.prefix)"
    found = subprocess.run([python, "-I", "-c", probe], capture_output=True, text=True, check=False)
    here = (root / ".venv").resolve()
    return found.returncode == 0 and found.stdout == f"{sys.version_info[:2]} {here}\n"


def build(root: Path) -> int:
    """Makes .venv and installs the lock into it, with a sentence for each step."""
    started_s = time.monotonic()
    say("setting up, once: virtual environment, pinned packages (about 600 MB, most of it Spark), a few minutes")
    (root / ".venv" / "twinshore.stamp").unlink(missing_ok=True)
    pip = [
        str(root / ".venv" / "bin" / "python"),
        "-I",
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "--progress-bar",
        "off",
    ]
    tools = root / ".cache" / "build-tools.lock"
    lock = (root / "requirements.lock").read_text()
    tools.write_text(entries(lock, BUILD_TOOLS))
    steps: list[tuple[str, list[str]]] = []
    if not usable(root):
        steps.append(("virtual environment", [sys.executable, "-I", "-m", "venv", "--clear", str(root / ".venv")]))
    # The build tools come first, from the same lock: a package that ships no wheel (Spark) is then built with them,
    # and nothing is fetched that the lock does not name.
    steps += [
        ("build tools", [*pip, "--require-hashes", "-r", str(tools)]),
        ("packages", [*pip, "--no-build-isolation", "--require-hashes", "-r", str(root / "requirements.lock")]),
        ("twinshore itself", [*pip, "--no-build-isolation", "--no-deps", "-e", str(root)]),
    ]
    for number, (name, command) in enumerate(steps, 1):
        say(f"  {number}/{len(steps)} {name}")
        packages = len(re.findall(r"^[a-z0-9][^ =]*==", lock, re.MULTILINE)) if name == "packages" else 0
        if run(command, root / ".cache" / "setup.log", packages):
            print(
                f"setup: '{name}' failed; all it said is in .cache/setup.log. Mend that and run make again.",
                file=sys.stderr,
            )
            return 1
    (root / ".venv" / "twinshore.stamp").write_text(stamp(root))
    say(f"set up in {time.monotonic() - started_s:.0f} s; the next run starts at once")
    return 0


def compile_loops(root: Path) -> int:
    """Has the compiled loops built, once for their sources: else the first records would wait for them."""
    sources = [path.stat() for path in sorted((root / "src" / "twinshore").glob("*/compiled.py"))]
    now = " ".join(f"{found.st_mtime_ns} {found.st_size}" for found in sources)
    return once(root, "loops", now, LOOPS_BUILDER, "building compiled loops, once for this code, up to a minute")


def keep_classes(root: Path) -> int:
    """Has Spark's classes kept in the user's cache as Java had them in memory, once for a Java: else each mirror starts
    with four times the work."""
    where = [os.environ.get(name, "") for name in ("JAVA_HOME", "HOME", "XDG_CACHE_HOME", "TWINSHORE_CACHE")]
    now = " ".join([*where, shutil.which("java") or ""])
    return once(
        root, "classes", now, CLASSES_KEEPER, "preparing Spark for quick starts, once for this Java, up to a minute"
    )


def once(root: Path, what: str, now: str, module: str, sentence: str) -> int:
    """Runs a module of ours, unless it was run for just this: `now`, as the mark of `what` has it."""
    mark, now = root / ".venv" / f"{what}.stamp", f"{now}\n"
    if mark.is_file() and mark.read_text() == now:
        return 0
    say(f"  {sentence}")
    code = run([str(root / ".venv" / "bin" / "python"), "-I", "-m", module], root / ".cache" / "setup.log")
    if code == 0:
        mark.write_text(now)
    return code


def entries(lock: str, names: Iterable[str]) -> str:
    """The lock's entries for these packages, hashes included."""
    wanted = tuple(f"{name}==" for name in names)
    kept: list[str] = []
    inside = False
    for line in lock.splitlines():
        if line[:1].isalnum():
            inside = line.startswith(wanted)
        if inside and line.strip() and not line.lstrip().startswith("#"):
            kept.append(line)
    return "\n".join(kept) + "\n"


def run(command: list[str], log: Path, packages: int = 0) -> int:
    """Runs one step; its words go to the log, and every ten seconds its newest line to the screen. Where it installs so
    many packages, how far it is."""
    environment = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    started_s = time.monotonic()
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=ROOT, env=environment)
        try:
            while True:
                try:
                    code = process.wait(timeout=SAY_EVERY_S)
                    break
                except subprocess.TimeoutExpired:
                    far = how_far(log, packages, installed(ROOT)) if packages else newest_line(log)
                    say(f"      {time.monotonic() - started_s:.0f} s: {far}")
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if code:
        say("\n".join(log.read_text(errors="replace").splitlines()[-15:]), sys.stderr)
    return code


def how_far(log: Path, packages: int, there: int) -> str:
    """What pip does now with so many packages. While it installs them it says nothing: those that are `there` are
    counted."""
    newest = newest_line(log)
    if newest.startswith("Installing "):
        return f"all fetched, {min(there, packages)} of {packages} installed"
    if building := re.match(r"Building wheel for (\S+)", newest):
        return f"all fetched, building {building[1]}, which comes as source code; then all are installed"
    words = log.read_text(errors="replace")
    fetched = len(re.findall(r"^(?:Collecting|Requirement already satisfied:) ", words, re.MULTILINE))
    return f"fetching {fetched} of {packages}, {newest}"


def installed(root: Path) -> int:
    """How many packages are in .venv."""
    return len(list((root / ".venv").glob("lib/python*/site-packages/*.dist-info")))


def newest_line(log: Path) -> str:
    """The last line of the log, short enough for one line of a terminal."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:90] if lines else "working"


def say(sentence: str, out: TextIO | None = None) -> None:
    print(sentence, file=out or sys.stdout, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\nsetup: stopped; the next run goes on from here", file=sys.stderr)
        sys.exit(130)
