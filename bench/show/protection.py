"""`python -m bench.show.protection`: a write is acknowledged once both sides have it, whatever fails.

LONG=1 measures for longer; `--only NAME` tries one, and the page of evidence is not written then.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence

from bench.kit.claims import Claim, Finding, Once
from bench.kit.showing import run_show, to_stderr
from testkit.protected_cost import LevelCost, measure_levels

HEAD = """\
# Protection, shown

Written by `make show-protection`, which writes through proxies on real clusters while parts of them fail, and fails
when a claim falls short; no figure is typed by hand.
"""
# What tests are marked with, in the order of the page.
KEYS = (
    *("home-lost", "kills", "mirror-dies", "commits", "reads", "library", "alone-and-back", "away"),
    *("elections", "stranger", "in-flight", "seeds", "mutants"),
)
RATES = (100.0, 2_000.0)
SECONDS, SECONDS_LONG, TURNS = 8.0, 20.0, 3
MORE_MS_MAX = 10.0

Measured = dict[tuple[str, float], LevelCost]


def claims(_seed: int, _only: Collection[str] = ()) -> list[Claim]:
    """All that are measured, in the order of the promise."""
    measured = Once(_measured)
    return [
        *(
            Claim(
                f"delay-{rate:g}",
                f"at {rate:,.0f}/s the median `sync` acknowledgement takes at most {MORE_MS_MAX:g} ms more than an"
                " `async` one, with both clusters on one machine",
                _delay(measured, rate),
            )
            for rate in RATES
        ),
        Claim("cpu", "the proxy's CPU at 2,000/s, `sync` by `async`", _cpu(measured)),
    ]


def _measured(long: bool) -> Measured:
    seconds = SECONDS_LONG if long else SECONDS
    return measure_levels(RATES, seconds, turns=TURNS, say=to_stderr, command="twinshore.cli")


def _delay(measured: Once[Measured], rate: float) -> Callable[[bool], Finding]:
    def run(long: bool) -> Finding:
        both, alone = (measured(long)[level, rate] for level in ("sync", "async"))
        more_ms = both.p50_ms - alone.p50_ms
        figure = (
            f"{more_ms:.1f} ms more: p50 {both.p50_ms:.1f} by {alone.p50_ms:.1f} ms, p99 {both.p99_ms:.1f} by"
            f" {alone.p99_ms:.1f} ms"
        )
        numbers = ((f"sync_{rate:g}_p50_ms", round(both.p50_ms, 2)), (f"async_{rate:g}_p50_ms", round(alone.p50_ms, 2)))
        return Finding(figure, more_ms <= MORE_MS_MAX, numbers)

    return run


def _cpu(measured: Once[Measured]) -> Callable[[bool], Finding]:
    def run(long: bool) -> Finding:
        both, alone = (measured(long)[level, RATES[-1]] for level in ("sync", "async"))
        figure = f"{both.cpu / alone.cpu:.2f}: {both.cpu:.3f} by {alone.cpu:.3f} cores"
        return Finding(figure, True, (("sync_cpu_ratio", round(both.cpu / alone.cpu, 3)),))

    return run


def main(arguments: Sequence[str] | None = None) -> int:
    """Progress to standard error; the table and, last, one line of JSON to standard output."""
    return run_show("protection", HEAD, claims, arguments, keys=KEYS)


if __name__ == "__main__":
    sys.exit(main())
