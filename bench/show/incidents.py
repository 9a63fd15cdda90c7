"""`python -m bench.show.incidents`: each incident of the list provoked on real brokers, its row, its neighbours.

The tests play them, all on two clusters of one run; a claim's figure is what its test printed of the neighbours.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass

from bench.kit.claims import Claim, Finding, Once
from bench.kit.playing import Played, play
from bench.kit.showing import run_show

HEAD = """\
# Incidents, shown

Written by `python -m bench.show.incidents`, which provokes each on real brokers; no figure is typed by hand.
"""
MAIN, TARGETS = "tests/scenarios/test_incidents.py", "tests/scenarios/test_incidents_of_targets.py"
SILENT = "tests/scenarios/test_silent_brokers.py"
RUN_S_MAX = 900


@dataclass(frozen=True, slots=True)
class Provoked:
    """An incident, what is claimed of it, and the test that plays it."""

    name: str
    says: str
    file: str
    test: str


PROVOKED = (
    Provoked(
        "corrupt-and-old",
        "corrupt batch, format below v2: told apart with their range; what came before crosses, neighbours flow",
        MAIN,
        "test_damaged_and_old_batches_stop_their_partitions_alone",
    ),
    Provoked(
        "truncation",
        "truncation on the source names the range; source away opens and closes; what was mended is resumed",
        MAIN,
        "test_what_the_source_lost_is_named_and_what_was_mended_goes_on",
    ),
    Provoked(
        "retention-gap", "retention gap: told with its range, crossed", MAIN, "test_a_retention_gap_is_told_and_crossed"
    ),
    Provoked(
        "foreign-write",
        "foreign write on a twin: stops that partition, its neighbours flow, resuming is refused",
        MAIN,
        "test_a_foreign_write_stops_the_twin_it_was_made_on",
    ),
    Provoked(
        "oversize",
        "oversize batch: rests until the twin takes it, goes on by itself",
        MAIN,
        "test_an_oversize_batch_rests_until_the_twin_takes_it",
    ),
    Provoked(
        "lost-by-target",
        "a target that lost acknowledged data heals by itself and says so; target away opens and closes",
        MAIN,
        "test_what_the_target_lost_is_carried_again",
    ),
    Provoked(
        "partition-added",
        "added partitions: carried, and a row",
        MAIN,
        "test_added_partitions_are_told_and_carried",
    ),
    Provoked(
        "rights",
        "a right taken back is told apart from a target that is away; given back, it goes on by itself",
        TARGETS,
        "test_a_right_that_is_taken_back_and_given_again",
    ),
    Provoked(
        "position-disagreement",
        "position disagreement: a write in the link's own name is found out, resuming is refused",
        TARGETS,
        "test_who_writes_in_the_links_own_name_is_found_out",
    ),
    Provoked(
        "disk",
        "a disk that fills up: told, then spared; goes on by itself when there is room",
        TARGETS,
        "test_a_disk_that_fills_up_is_told_then_spared",
    ),
    Provoked(
        "silent",
        "a leader that hangs, of the target or of the source: told of its partition, one row, closed when it answers",
        SILENT,
        "test_a_leader_that_hangs_is_told_of_its_partition_until_it_answers",
    ),
)


def claims(_seed: int, only: Collection[str] = ()) -> list[Claim]:
    """One for each; the tests of one file are run together, those of `only` alone."""
    wanted = [one for one in PROVOKED if not only or one.name in only]
    runs = {
        file: Once(_runner(file, [one.test for one in wanted if one.file == file])) for file in (MAIN, TARGETS, SILENT)
    }
    return [Claim(one.name, one.says, _of(one, runs[one.file])) for one in PROVOKED]


def _of(provoked: Provoked, run: Once[dict[str, Finding]]) -> Callable[[bool], Finding]:
    return lambda long: run(long)[provoked.test]


def _runner(file: str, tests: list[str]) -> Callable[[bool], dict[str, Finding]]:
    def run(_long: bool) -> dict[str, Finding]:
        return {one.test: finding(one) for one in play([f"{file}::{test}" for test in tests], run_s_max=RUN_S_MAX)}

    return run


def finding(played: Played) -> Finding:
    """A test's verdict, and what it printed of times as the figure."""
    printed = [line for line in played.printed if line.endswith(" s")]
    figure = "; ".join([*printed, *([played.failure] if played.failure else [])]) or f"played in {played.took_s:.0f} s"
    number = (played.test.removeprefix("test_")[:40] + "_s", round(played.took_s, 1))
    return Finding(figure, played.passed, (number,))


def main() -> int:
    return run_show("incidents", HEAD, claims)


if __name__ == "__main__":
    sys.exit(main())
