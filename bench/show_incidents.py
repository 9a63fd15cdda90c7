"""`python -m bench.show_incidents`: each incident of the list provoked on real brokers, its row, its neighbours.

The tests play them, all on two clusters of one run; a claim's figure is what its test printed of the neighbours.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from bench.claims import Claim, Finding, Once
from bench.figures import BenchError
from bench.showing import ROOT, run_show

HEAD = """\
# Incidents, shown

Written by `python -m bench.show_incidents`, which provokes each on real brokers; no figure is typed by hand.
"""
MAIN, TARGETS = "tests/scenarios/test_incidents.py", "tests/scenarios/test_incidents_of_targets.py"
RUN_S_MAX = 900


@dataclass(frozen=True, slots=True)
class Played:
    """An incident, what is claimed of it, and the test that plays it."""

    name: str
    says: str
    file: str
    test: str


PLAYED = (
    Played(
        "corrupt-and-old",
        "corrupt batch, format below v2: told apart with their range; what came before crosses, neighbours flow",
        MAIN,
        "test_damaged_and_old_batches_stop_their_partitions_alone",
    ),
    Played(
        "truncation",
        "truncation on the source names the range; source away opens and closes; what was mended is resumed",
        MAIN,
        "test_what_the_source_lost_is_named_and_what_was_mended_goes_on",
    ),
    Played(
        "retention-gap", "retention gap: told with its range, crossed", MAIN, "test_a_retention_gap_is_told_and_crossed"
    ),
    Played(
        "foreign-write",
        "foreign write on a twin: stops that partition, its neighbours flow, resuming is refused",
        MAIN,
        "test_a_foreign_write_stops_the_twin_it_was_made_on",
    ),
    Played(
        "oversize",
        "oversize batch: rests until the twin takes it, goes on by itself",
        MAIN,
        "test_an_oversize_batch_rests_until_the_twin_takes_it",
    ),
    Played(
        "lost-by-target",
        "a target that lost acknowledged data heals by itself and says so; target away opens and closes",
        MAIN,
        "test_what_the_target_lost_is_carried_again",
    ),
    Played(
        "partition-added",
        "added partitions: carried, and a row",
        MAIN,
        "test_added_partitions_are_told_and_carried",
    ),
    Played(
        "rights",
        "a right taken back is told apart from a target that is away; given back, it goes on by itself",
        TARGETS,
        "test_a_right_that_is_taken_back_and_given_again",
    ),
    Played(
        "position-disagreement",
        "position disagreement: a write in the link's own name is found out, resuming is refused",
        TARGETS,
        "test_who_writes_in_the_links_own_name_is_found_out",
    ),
    Played(
        "disk",
        "a disk that fills up: told, then spared; goes on by itself when there is room",
        TARGETS,
        "test_a_disk_that_fills_up_is_told_then_spared",
    ),
)


def claims(_seed: int, only: Collection[str] = ()) -> list[Claim]:
    """One for each; the tests of one file are run together, those of `only` alone."""
    wanted = [one for one in PLAYED if not only or one.name in only]
    runs = {file: Once(_runner(file, [one.test for one in wanted if one.file == file])) for file in (MAIN, TARGETS)}
    return [Claim(one.name, one.says, _of(one, runs[one.file])) for one in PLAYED]


def _of(played: Played, run: Once[dict[str, Finding]]) -> Callable[[bool], Finding]:
    return lambda long: run(long)[played.test]


def _runner(file: str, tests: list[str]) -> Callable[[bool], dict[str, Finding]]:
    def run(_long: bool) -> dict[str, Finding]:
        with tempfile.TemporaryDirectory(prefix="twinshore-show-") as folder:
            report = Path(folder) / "report.xml"
            command = [sys.executable, "-m", "pytest", "-q", "--no-header", f"--junitxml={report}"]
            command += ["-o", "junit_logging=system-out", *(f"{file}::{test}" for test in tests)]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=RUN_S_MAX, check=False)
            if not report.exists():
                raise BenchError(f"{file}: {done.stdout.strip().splitlines()[-1:]}")
            return findings(report)

    return run


def findings(report: Path) -> dict[str, Finding]:
    """Each test's verdict, and what it printed as the figure."""
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name, took_s = case.attrib["name"], float(case.attrib["time"])
        passed = not any(case.findall(kind) for kind in ("failure", "error", "skipped"))
        out = case.findtext("system-out") or ""
        printed = [line for line in out.splitlines() if line.endswith(" s")]
        number = (name.removeprefix("test_")[:40] + "_s", round(took_s, 1))
        found[name] = Finding("; ".join(printed) or f"played in {took_s:.0f} s", passed, (number,))
    return found


def main() -> int:
    return run_show("incidents", HEAD, claims)


if __name__ == "__main__":
    sys.exit(main())
