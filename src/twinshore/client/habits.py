"""How a consumer commits as it is set, and what a place is worth once its topic has changed homes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from twinshore.homes.home_lines import HomeLine


@dataclass(frozen=True, slots=True)
class Habits:
    """Of a consumer as it is set: whether it commits by itself, and whether partitions are dealt to it bit by bit."""

    commits: bool
    is_incremental: bool


def habits(settings: Mapping[str, Any]) -> Habits:
    """As librdkafka reads them: its words for no are these, small or large."""
    strategy = str(settings.get("partition.assignment.strategy", ""))
    return Habits(
        commits=str(settings.get("enable.auto.commit", True)).lower() not in ("false", "f", "0"),
        is_incremental="cooperative" in strategy or settings.get("group.protocol") == "consumer",
    )


def since(places: Mapping[int, int], was: int, now: int, line: HomeLine | None) -> dict[int, int]:
    """These places, by partition, kept under the term `was`, as the home of term `now` counts; `line` is the newest
    that is known of the topic. Those of which nobody knows are left out."""
    if was == now:
        return dict(places)
    points = parting(was, now, line)
    return {number: min(place, points[number]) for number, place in places.items() if number < len(points)}


def parting(was: int, now: int, line: HomeLine | None) -> tuple[int, ...]:
    """Up to where the homes of two terms hold the same records, by partition, as the newest line tells it."""
    return tuple(line.points) if line is not None and (line.term, was + 1) == (now, now) else ()
