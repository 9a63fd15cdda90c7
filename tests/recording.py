"""What tests claim and what became of them, for the pages of evidence: one line of JSON each.

A test is marked `claim(show, key, says)` with what it shows. Several tests of one key show it together; one that is
marked with `full_size=True` shows it in place of the others where everything is tried at full size.

`--record=FILE` writes the commit of the run and then, as soon as a test has ended, its verdict, how long it took and
what it told: the printed lines that begin with `told: `. `--list-claims=FILE` writes the marks and runs nothing.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
SHOWS: Final = (
    *("advisor", "broadcast", "client", "crossing", "groups"),
    *("nouns", "platform", "protection", "proxy", "switch", "topics"),
)
TELLS: Final = "told: "
# Pages that a run writes: whether they are there changes no test.
WRITTEN: Final = (":(exclude)docs/evidence", ":(exclude)docs/benchmarks.md", ":(exclude)docs/compatibility.md")


@dataclass(frozen=True, slots=True)
class Claimed:
    """One mark of one test."""

    show: str
    key: str
    says: str
    full_size: bool = False


def claims_of(item: pytest.Item) -> list[Claimed]:
    """What this test is marked with; UsageError where a mark is not of the form."""
    try:
        found = [Claimed(*mark.args, **mark.kwargs) for mark in item.iter_markers("claim")]
    except TypeError as error:
        raise pytest.UsageError(f"{item.nodeid}: claim(show, key, says): {error}") from error
    for claim in found:
        if claim.show not in SHOWS:
            raise pytest.UsageError(f"{item.nodeid}: claim of {claim.show!r}: the shows are {', '.join(SHOWS)}")
    return found


def judge(claims: Iterable[Claimed]) -> None:
    """One key of one show says one thing."""
    says: dict[tuple[str, str], str] = {}
    for claim in claims:
        if says.setdefault((claim.show, claim.key), claim.says) != claim.says:
            raise pytest.UsageError(f"two claims of {claim.show} are called {claim.key!r}")


def state() -> tuple[str, bool]:
    """The commit that is checked out, none outside of git, and whether the files differ from it."""
    git = shutil.which("git")

    def said(*words: str) -> str | None:
        done = subprocess.run([git or "git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else None

    commit = said("rev-parse", "HEAD") if git else None
    return (commit, said("status", "--porcelain", "--", ".", *WRITTEN) != "") if commit else ("", True)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("claims")
    group.addoption("--record", type=Path, metavar="FILE", help="write what became of each test, a line of JSON each")
    group.addoption("--list-claims", type=Path, metavar="FILE", help="write what tests claim, and run none")


def pytest_configure(config: pytest.Config) -> None:
    record = config.getoption("--record")
    if record and not hasattr(config, "workerinput"):  # The workers' reports all come to their controller.
        config.pluginmanager.register(Recorder(record))
    if config.getoption("--list-claims"):
        config.option.collectonly = True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    judge(claim for item in items for claim in claims_of(item))


def pytest_collection_finish(session: pytest.Session) -> None:
    path: Path | None = session.config.getoption("--list-claims")
    if path:
        path.write_text("".join(_lines(session.items)), encoding="utf-8")


def _lines(items: Iterable[pytest.Item]) -> Iterator[str]:
    for item in items:
        for claim in claims_of(item):
            whole = {"show": claim.show, "key": claim.key, "says": claim.says, "full_size": claim.full_size}
            yield json.dumps({"test": item.nodeid, **whole}) + "\n"


@dataclass(slots=True, eq=False)  # pytest keeps plugins in sets
class Recorder:
    """Writes at once, so that a run that was cut off has left what it played."""

    path: Path
    _reports: dict[str, list[pytest.TestReport]] = field(default_factory=lambda: defaultdict(list))

    def pytest_sessionstart(self) -> None:
        commit, changed = state()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps({"commit": commit, "changed": changed}) + "\n", encoding="utf-8")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        reports = self._reports[report.nodeid]
        reports.append(report)
        if report.when == "teardown":
            del self._reports[report.nodeid]
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(_of(report.nodeid, reports)) + "\n")


def _of(test: str, reports: list[pytest.TestReport]) -> dict[str, Any]:
    """A test passes where it was set up, called and cleared away, and nothing of it fell short or was left out."""
    fell = [report for report in reports if report.outcome != "passed"]
    called = any(report.when == "call" for report in reports)
    told = reports[-1].capstdout.splitlines()
    return {
        "test": test,
        "passed": called and not fell,
        "why": _why(fell[0]) if fell else "",
        "took_s": round(sum(report.duration for report in reports), 2),
        "told": [line.removeprefix(TELLS) for line in told if line.startswith(TELLS)],
    }


def _why(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return " ".join(str(crash.message if crash else report.longrepr).split())[:300]
