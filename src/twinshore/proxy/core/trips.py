"""When a fuse trips by itself, and when it closes again. Pure.

It trips where a limit was passed without a break for some time, and closes once all stayed below half of the limits for
longer: a rate that wavers about its limit does not have it flutter.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from twinshore.store.proxy_values import Limits

# Of a limit: above it nothing that had tripped is quiet.
QUIET_PART: Final = 0.5


class Rate(NamedTuple):
    """What clients wanted within the last moment, whether they got it or not. `latency_ms`: of the broker's slowest
    answer then, 0 where it gave none."""

    records_s: float = 0.0
    bytes_s: float = 0.0
    latency_ms: float = 0.0


class Gauge(NamedTuple):
    """`since_s`: since when what would change it has lasted, None where it does not."""

    tripped: bool = False
    since_s: float | None = None


def step(gauge: Gauge, limits: Limits, rate: Rate, now_s: float) -> Gauge:
    """The gauge behind one more look. While it is tripped the broker answers nothing, so by latency it closes once the
    time of quiet is over, and trips again where the broker is as slow as before."""
    turns = most_of(limits, rate) < QUIET_PART if gauge.tripped else most_of(limits, rate) > 1
    return turned(gauge, limits, now_s, turns=turns)


def turned(gauge: Gauge, limits: Limits, now_s: float, *, turns: bool) -> Gauge:
    """The gauge behind one more look, at which it seemed to turn, or not: it does once that has lasted."""
    if not turns:
        return Gauge(gauge.tripped)
    since_s = now_s if gauge.since_s is None else gauge.since_s
    lasts_s = limits.quiet_s if gauge.tripped else limits.above_s
    return Gauge(not gauge.tripped) if now_s - since_s >= lasts_s else Gauge(gauge.tripped, since_s)


def most_of(limits: Limits, rate: Rate) -> float:
    """How much of the limit that is nearest."""
    both = (
        (limits.records_s, rate.records_s),
        (limits.bytes_s, rate.bytes_s),
        (limits.latency_ms, rate.latency_ms),
    )
    return max((found / limit for limit, found in both if limit), default=0.0)
