"""What the store keeps of delays: who watches, what they saw last, what is late. Times are milliseconds since 1970."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AlarmRow:
    """Something late, of a link or a topic of it: open while `cleared_ms` is None. `told_ms` is None where it rose in a
    quiet time and nobody has been told."""

    link: str
    kind: str
    topic: str
    group: str
    sentence: str
    raised_ms: int
    told_ms: int | None = None
    times_told: int = 0
    cleared_ms: int | None = None
    id: int = 0


@dataclass(frozen=True, slots=True)
class DelayPlace:
    """How a partition, or a group's place in it, stood last. `waiting`: when which end of the source was first seen, as
    JSON, so that a monitor that starts again knows how old things are."""

    link: str
    topic: str
    partition: int
    group: str
    at_ms: int
    source_end: int
    target_end: int
    lag_records: int
    recovery_point_ms: int
    axis: str
    state: str
    waiting: str = "[]"


@dataclass(frozen=True, slots=True)
class WatchRow:
    """One that watches: `kind` is what it watches, and `links` which ones, of a monitor. While it lives, `beat` changes
    at least every `every_ms`."""

    name: str
    kind: str
    owner: str
    beat: int
    every_ms: int
    beaten_ms: int
    sampled_ms: int
    sentence: str
    links: tuple[str, ...] = ()
