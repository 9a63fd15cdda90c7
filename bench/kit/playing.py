"""Tests as proof of a claim: each is marked with what it shows, and a run of pytest leaves what became of each.

`tests/recording.py` writes both: the marks of all tests, and the lines of a run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.kit.claims import Claim, Finding, NotPlayed
from testkit.figures import StageError

ROOT = Path(__file__).resolve().parents[2]
TEST_S_MAX = 600
PLAY_S_MAX = 4 * 3600
NOT_PLAYED = "not played: "  # how it begins what a test tells that could not be
_PYTEST = (sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "tests.recording")
# Evidence of one run is written page by page: those pages make no other state of the code.
_WRITTEN = (":(exclude)docs/evidence", ":(exclude)docs/benchmarks.md", ":(exclude)docs/compatibility.md")


class RunRefused(Exception):
    """What a run left says nothing of the code that is here."""


@dataclass(frozen=True, slots=True)
class Marked:
    """A claim and the tests that are marked with it; those of `full` show it at full size, in place of the others."""

    key: str
    says: str
    tests: tuple[str, ...]
    full: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Played:
    """A test that ran: what it told, and why it fell short, if it did."""

    test: str
    passed: bool
    took_s: float
    told: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """What one run of pytest left."""

    commit: str
    changed: bool
    played: tuple[Played, ...]


def all_marks() -> list[dict[str, Any]]:
    """What tests claim, a mark of a test each."""
    files = [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if ".claim(" in path.read_text("utf-8")]
    with tempfile.TemporaryDirectory(prefix="twinshore-show-") as folder:
        listed = Path(folder) / "claims"
        command = [*_PYTEST, f"--list-claims={listed}", *(str(path.relative_to(ROOT)) for path in files)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TEST_S_MAX, check=False)
        if done.returncode:
            raise StageError(f"the claims of tests cannot be listed: {(done.stderr or done.stdout).strip()[-300:]}")
        return [json.loads(line) for line in listed.read_text("utf-8").splitlines()]


def claimed_for(show: str, marks: Iterable[Mapping[str, Any]]) -> dict[str, Marked]:
    """The marks of one show, those of one key together."""
    found: dict[str, Marked] = {}
    for mark in marks:
        if mark["show"] != show:
            continue
        old = found.get(mark["key"], Marked(mark["key"], mark["says"], ()))
        more = (mark["test"],)
        tests, full = (old.tests, old.full + more) if mark["full_size"] else (old.tests + more, old.full)
        found[old.key] = Marked(old.key, old.says, tests, full)
    return found


def in_order(tests: Collection[str], marks: Iterable[Mapping[str, Any]]) -> list[str]:
    """As they stand in their files, each once: tests of a file share what they run on, which is set up once."""
    return [test for test in dict.fromkeys(mark["test"] for mark in marks) if test in tests]


def play(tests: Sequence[str], seed: int) -> tuple[Played, ...]:
    """Runs these tests, each by its own limit, in one process; its words go to standard error. Whatever it did not come
    to is not there."""
    with tempfile.TemporaryDirectory(prefix="twinshore-show-") as folder:
        left = Path(folder) / "run"
        command = [*_PYTEST, f"--timeout={TEST_S_MAX}", f"--record={left}", *tests]
        # Of what tasks survive one whole round is shown, which is more than the tests of each day play.
        environment = {**os.environ, "TWINSHORE_SEED": str(seed), "TWINSHORE_DEATHS": "whole"}
        subprocess.run(command, cwd=ROOT, stdout=2, timeout=PLAY_S_MAX, check=False, env=environment)
        return read_run(left).played if left.exists() else ()


def read_run(path: Path) -> Run:
    """What a run left in this file; a line that was cut off with the run is not there."""
    played = []
    head, *lines = path.read_text("utf-8").splitlines() or ["{}"]
    for line in lines:
        try:
            one = json.loads(line)
        except ValueError:
            continue
        played.append(Played(one["test"], one["passed"], one["took_s"], tuple(one["told"]), one["why"]))
    of = json.loads(head)
    return Run(of.get("commit", ""), of.get("changed", True), tuple(played))


def of_runs(paths: Sequence[Path], differs: Callable[[str], bool]) -> tuple[Played, ...]:
    """What these runs played; RunRefused where one of them was of other code than what is here."""
    played: list[Played] = []
    for path in paths:
        run = read_run(path)
        if not run.commit or run.changed:
            raise RunRefused(f"{path.name} is of no commit: files had changed beside it")
        if differs(run.commit):
            raise RunRefused(f"{path.name} is of {run.commit[:12]}, which is not what is here")
        played += run.played
    return tuple(played)


def differs_from(commit: str) -> bool:
    """Whether the files here are others than this commit's, but for the pages that shows write."""
    here = ("--", ".", *_WRITTEN)
    changed = subprocess.run(["git", "diff", "--quiet", commit, *here], cwd=ROOT, check=False, capture_output=True)
    listed = ["git", "ls-files", "--others", "--exclude-standard", *here]
    new = subprocess.run(listed, cwd=ROOT, check=False, capture_output=True)
    return changed.returncode != 0 or new.returncode != 0 or bool(new.stdout.strip())


def claims_of(
    marked: Mapping[str, Marked], keys: Collection[str], played: Callable[[bool], Sequence[Played]]
) -> list[Claim]:
    """A claim for each of these keys. One that no test is marked with was not played."""

    def claim(key: str) -> Claim:
        of = marked.get(key, Marked(key, f"{key}: no test shows it", ()))
        return Claim(key, of.says, lambda long: finding(of, played(long), full_size=long))

    return [claim(key) for key in keys]


def finding(of: Marked, played: Sequence[Played], *, full_size: bool) -> Finding:
    """A claim holds when each of its tests was played and passed. NotPlayed where one was not, or says so itself, as
    it needs what is not on every machine."""
    by_test: dict[str, Played] = {}
    for one in played:
        before = by_test.get(one.test)
        # Played twice, by two runs: it passes where it passed both times.
        by_test[one.test] = one if before is None or before.passed else before
    wanted = of.full if of.full and (full_size or all(test in by_test for test in of.full)) else of.tests
    if not wanted or any(test not in by_test for test in wanted):
        raise NotPlayed(of.key)
    found = [by_test[test] for test in wanted]
    for one in found:
        if not one.passed:
            raise StageError(f"{one.test}: {one.why}")
        if any(line.startswith(NOT_PLAYED) for line in one.told):
            raise NotPlayed(of.key)
    took_s = sum(one.took_s for one in found)
    name = of.key.replace("-", "_")
    numbers: tuple[tuple[str, float], ...] = ((f"{name}_s", round(took_s, 1)),)
    if len(found) == 1:
        passes = f"`{wanted[0]}` passes in {took_s:.0f} s"
    else:
        passes = f"{len(found)} of {len(found)} tests of `{_shared(wanted)}` pass in {took_s:.0f} s"
        numbers += ((f"{name}_trials", len(found)),)
    return Finding("; ".join([passes, *(line for one in found for line in one.told)]), True, numbers)


def _shared(tests: Sequence[str]) -> str:
    """The test whose trials these are, or else the file."""
    names = {test.partition("[")[0] for test in tests}
    return names.pop() if len(names) == 1 else tests[0].partition("::")[0]
