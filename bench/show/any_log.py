"""`python -m bench.show.any_log`: claims about logs of every kind, about deaths and speed while they cross."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from bench.kit.claims import Claim, Finding, Once
from bench.kit.playing import TEST_S_MAX, Played, by_test, play
from bench.kit.showing import run_show, to_stderr
from bench.measure.closed_units import MARKERS as UNITS
from bench.measure.closed_units import run_closed_units_bench
from bench.measure.markers import (
    COMMITS_PER_S,
    HOLES,
    HOLES_KEPT_OF,
    LATE_START,
    MARKERS,
    PARTITIONS,
    Figures,
    run_markers_bench,
)
from twinshore.lab.stages.figures import StageError

HEAD = """\
# Logs of every kind, shown

Written by `python -m bench.show.any_log`, which tries each claim on real clusters.
"""
SCENARIOS = "tests/scenarios/test_mirror_any_log.py"
KILLS = "tests/scenarios/test_marker_kills.py"
TESTS_S_MAX = 900
# The tests' own limit.
KILLS_LONG_S_MAX = 1200
DEATHS = {"markers": 20, "closed_units": 10}
UNITS_S_MIN = 3_000

# What is shown of each kind, by the test's name for it.
KINDS = {
    "transactional": "transactions of three producers, interleaved, committed and aborted, among plain records",
    "idle": "transactional topics that are long idle, one wholly aborted",
    "compacted": "compacted, with holes and tombstones",
    "compacted-transactional": "compacted, with control records and holes of aborted transactions",
    "delete-horizon": "compacted, with tombstones under a delete horizon",
    "late": "a log that begins inside a batch beyond offset 1 000 000",
    "late-compacted": "a compacted log that begins above 0",
    "append-time": "LogAppendTime, compressed",
    "codecs": "all five codecs in one partition",
    "bare": "null keys, tombstones, zero-byte keys and values, headers with and without values",
    "at-the-limit": "batches of exactly max.message.bytes",
    "future": "time stamps a month ahead and of 1970",
    "empty": "empty partitions",
}
# Of these the scenario also looks into the source's files: a log without the case would show nothing.
LOOKED_AT = frozenset(
    (
        "transactional",
        "compacted",
        "compacted-transactional",
        "delete-horizon",
        "append-time",
        "idle",
        "codecs",
        "at-the-limit",
        "future",
    )
)
LOOK = "test_the_source_has_the_case"
EQUAL = "offsets, log start, log end and what consumers are given are equal"
# Other tests of the same scenario.
EVENTS = {
    "transactions-go-on": (
        "test_transactions_go_on_crossing",
        "transactions written while the mirror carries them, over the borders of its tides: equal",
    ),
    "open-transaction": (
        "test_an_open_transaction_holds_its_twin_at_its_first_record",
        "an open transaction holds its twin, not its neighbours; hanging, it is named by producer id and first offset",
    ),
    "retention-while-running": (
        "test_retention_that_was_faster_leaves_the_same_log_and_a_row",
        "retention gaps while running, short and long: same log, and a row with the range",
    ),
    "driver-killed": (
        "test_the_driver_is_killed_while_transactions_cross",
        "the driver is killed with kill -9 while transactions cross: equal",
    ),
}


@dataclass(frozen=True, slots=True)
class Bound:
    """A figure of a part of the bench and what it must reach."""

    name: str
    part: str
    figure: str
    says: str
    unit: str
    least: float = 0.0
    most: float = float("inf")


BOUNDS = (
    Bound(
        "markers",
        "markers",
        "markers_per_s",
        f"a backlog of {MARKERS:,} markers on {PARTITIONS} partitions: at least 20 000/s, direct",
        "per second",
        least=20_000,
    ),
    Bound(
        "markers-one",
        "run",
        "run_per_s",
        f"a backlog of {MARKERS:,} markers on one partition: at least 20 000/s, direct",
        "per second",
        least=20_000,
    ),
    Bound(
        "holes",
        "holes",
        "holes_per_s",
        f"{HOLES:,} holes of a compacted topic of {PARTITIONS} partitions, one record of {HOLES_KEPT_OF} left: at "
        "least 20 000/s",
        "per second",
        least=20_000,
    ),
    Bound("late-start", "late", "late_s", f"alignment to offset {LATE_START:,}: under 60 s", "s", most=60),
    Bound(
        "commits-behind",
        "commits",
        "behind_max_s",
        f"{COMMITS_PER_S} commits/s on each of {PARTITIONS} partitions: never more than 2 s behind",
        "s",
        most=2,
    ),
    Bound(
        "commits-made",
        "commits",
        "commits_per_s",
        "and so many commits/s were made meanwhile: at least 9.5",
        "per second",
        least=9.5,
    ),
    Bound("commits-level", "commits", "after_s", "and level within 2 s after the last one", "s", most=2),
)


def claims(seed: int, only: Collection[str] = ()) -> list[Claim]:
    """All of them. What several rest on is run once."""
    tests = Once(lambda _long: _run_scenarios())
    parts = [bound.part for bound in BOUNDS if bound.name in only]
    figures = Once(lambda _long: run_markers_bench(only=parts, say=to_stderr))
    found = [
        Claim(f"log-{kind}", f"{says}: {EQUAL}", _played(f"log-{kind}", "test_a_twin_is_exact", kind, tests))
        for kind, says in KINDS.items()
    ]
    found += [Claim(name, says, _played(name, test, "", tests)) for name, (test, says) in EVENTS.items()]
    found.append(
        Claim(
            "pumps-die",
            "pumps killed, or paused beyond their lease, at random points of transactions, holes, marker runs: equal",
            _pumps_die(seed, "pumps-die", "markers"),
        )
    )
    found.append(
        Claim(
            "units-die",
            "pumps killed, or paused beyond their lease, at random points of closed units: equal",
            _pumps_die(seed, "units-die", "closed_units"),
        )
    )
    found.append(
        Claim(
            "closed-units",
            f"a backlog of {UNITS:,} markers on {PARTITIONS} partitions, to a target that takes none directly: "
            f"at least {UNITS_S_MIN:,}/s by closed units",
            _by_closed_units,
        )
    )
    found += [Claim(bound.name, bound.says, _reaches(bound, figures)) for bound in BOUNDS]
    return found


def _by_closed_units(_long: bool) -> Finding:
    per_s = run_closed_units_bench(say=to_stderr)
    return Finding(f"{per_s:,.0f} per second", per_s >= UNITS_S_MIN, (("units_per_s", round(per_s)),))


def _pumps_die(seed: int, name: str, what: str) -> Callable[[bool], Finding]:
    def run(long: bool) -> Finding:
        test = f"test_pumps_die_{'a_hundred_times_' if long else ''}while_{what}_cross"
        # One whole round of those that the long test plays several of.
        os.environ |= {"TWINSHORE_SEED": str(seed), "TWINSHORE_DEATHS": str(DEATHS[what])}
        limit_s = (KILLS_LONG_S_MAX if long else TEST_S_MAX) + 60
        found = by_test(name, f"{KILLS}::{test}", run_s_max=limit_s, tells="deaths: ")(long)
        return replace(found, figure=f"{found.figure}, seed {seed}")

    return run


def _run_scenarios() -> list[Played]:
    to_stderr(f"running {SCENARIOS}")
    return play([SCENARIOS], run_s_max=TESTS_S_MAX)


def _played(name: str, test: str, kind: str, tests: Once[list[Played]]) -> Callable[[bool], Finding]:
    def run(long: bool) -> Finding:
        found = _of(tests(long), test, kind)
        looks = _of(tests(long), LOOK, kind) if kind in LOOKED_AT else []
        for look in looks:
            if not look.passed:
                raise StageError(f"the source has no such log: {look.failure}")
        passed = sum(one.passed for one in found)
        figure = f"{passed} of {len(found)} trials between Kafka 4 and 3.9, either way round"
        figure = "; ".join([figure, *(one.failure for one in found if not one.passed)])
        return Finding(figure, passed == len(found), ((f"{name.replace('-', '_')}_trials", passed),))

    return run


def _of(played: list[Played], test: str, kind: str) -> list[Played]:
    """The trials of one test; StageError where they are not of both pairs of versions."""
    # A pair of versions comes first in the brackets, then the kind, if there is one.
    found = [one for one in played if one.test == test and (not kind or one.parameters.partition("-")[2] == kind)]
    if len(found) < 2:
        raise StageError(f"{test} {kind} was not played between both versions")
    return found


def _reaches(bound: Bound, figures: Once[Figures]) -> Callable[[bool], Finding]:
    def run(long: bool) -> Finding:
        value = getattr(figures(long), bound.figure)
        if value is None:
            raise StageError(f"{bound.figure} was not measured")
        words = f"{value:,.0f} {bound.unit}" if value >= 100 else f"{value:.2f} {bound.unit}"
        return Finding(words, bound.least <= value <= bound.most, ((bound.figure, round(value, 3)),))

    return run


def main(arguments: Sequence[str] | None = None) -> int:
    """Progress to standard error; the table and, last, one line of JSON to standard output."""
    return run_show("any_log", HEAD, claims, arguments)


if __name__ == "__main__":
    sys.exit(main())
