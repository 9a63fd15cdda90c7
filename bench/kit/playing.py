"""Tests as proof of a claim: they are run by pytest, and its report says what became of each."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.kit.claims import Finding
from twinshore.lab.stages.figures import StageError

ROOT = Path(__file__).resolve().parents[2]
TEST_S_MAX = 600
FAILURES = ("failure", "error", "skipped")
_NAME = re.compile(r"(\w+)(?:\[(.*)\])?")


@dataclass(frozen=True, slots=True)
class Played:
    """A test that ran: `parameters` is what stands in its brackets, `failure` why it fell short, if it did."""

    test: str
    parameters: str
    took_s: float
    printed: tuple[str, ...]
    failure: str

    @property
    def passed(self) -> bool:
        return not self.failure


def play(tests: Sequence[str], *, run_s_max: float) -> list[Played]:
    """Runs these tests, each by its own limit, in one process."""
    with tempfile.TemporaryDirectory(prefix="twinshore-show-") as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "--no-header", f"--timeout={TEST_S_MAX}"]
        command += [f"--junitxml={report}", "-o", "junit_logging=system-out", *tests]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=run_s_max, check=False)
        found = read_report(report) if report.exists() else []
        if not found:
            said = (done.stdout.strip() or done.stderr.strip() or "pytest said nothing").splitlines()
            raise StageError(f"{', '.join(tests)}: {said[-1]}")
    return found


def read_report(report: Path) -> list[Played]:
    """What pytest's report in JUnit's format tells."""
    found = []
    for case in ElementTree.parse(report).iter("testcase"):
        name = _NAME.match(case.attrib["name"])
        fell = [one for kind in FAILURES for one in case.findall(kind)]
        why = " ".join((fell[0].get("message") or fell[0].tag).split())[:300] if fell else ""
        printed = tuple((case.findtext("system-out") or "").splitlines())
        test, parameters = (name[1], name[2] or "") if name else (case.attrib["name"], "")
        found.append(Played(test, parameters, float(case.attrib["time"]), printed, why))
    return found


def by_test(name: str, test: str, *, run_s_max: float = TEST_S_MAX + 60, tells: str = "") -> Callable[[bool], Finding]:
    """A claim that holds when this test passes, or all of this file. What it prints on lines that begin with `tells`
    belongs to the figure."""

    def run(_long: bool) -> Finding:
        begun_s = time.monotonic()
        played = play([test], run_s_max=run_s_max)
        for one in played:
            if not one.passed:
                raise StageError(f"{test}: {one.test}: {one.failure}")
        took_s = time.monotonic() - begun_s
        number = (f"{name.replace('-', '_')}_s", round(took_s, 1))
        told = [line for one in played for line in one.printed if tells and line.startswith(tells)]
        return Finding("; ".join([f"`{test}` passes in {took_s:.0f} s", *told]), True, (number,))

    return run
