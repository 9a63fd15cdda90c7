"""Claims about the speed of logs of every kind; a part of `make show-topics`, whose tests show the rest."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from bench.kit.claims import Claim, Finding, Once
from bench.kit.showing import to_stderr
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
from testkit.figures import StageError

UNITS_S_MIN = 3_000


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


def claims(_seed: int, only: Collection[str] = ()) -> list[Claim]:
    """All that are measured. What several rest on is run once."""
    parts = [bound.part for bound in BOUNDS if bound.name in only]
    figures = Once(lambda _long: run_markers_bench(only=parts, say=to_stderr))
    units = Claim(
        "closed-units",
        f"a backlog of {UNITS:,} markers on {PARTITIONS} partitions, to a target that takes none directly: "
        f"at least {UNITS_S_MIN:,}/s by closed units",
        _by_closed_units,
    )
    return [units, *(Claim(bound.name, bound.says, _reaches(bound, figures)) for bound in BOUNDS)]


def _by_closed_units(_long: bool) -> Finding:
    per_s = run_closed_units_bench(say=to_stderr)
    return Finding(f"{per_s:,.0f} per second", per_s >= UNITS_S_MIN, (("units_per_s", round(per_s)),))


def _reaches(bound: Bound, figures: Once[Figures]) -> Callable[[bool], Finding]:
    def run(long: bool) -> Finding:
        value = getattr(figures(long), bound.figure)
        if value is None:
            raise StageError(f"{bound.figure} was not measured")
        words = f"{value:,.0f} {bound.unit}" if value >= 100 else f"{value:.2f} {bound.unit}"
        return Finding(words, bound.least <= value <= bound.most, ((bound.figure, round(value, 3)),))

    return run
