"""`python -m bench.show.client`: an application of the client library goes along with a switch, under load.

LONG=1 plays it for longer; `--only NAME` tries one, and the page of evidence is not written then.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence

from bench.kit.claims import Claim, Finding, Once
from bench.kit.showing import run_show, to_stderr
from bench.measure.client_rate import idle_ratio
from testkit.switch_under_load import Outcome, planned

HEAD = """\
# The client library, shown

Written by `make show-client`, which moves topics under applications that nobody restarts, between real clusters, and
fails when a claim falls short; no figure is typed by hand.
"""
# What tests are marked with, in the order of the page.
KEYS = (
    "there-and-back",
    "hold-ends",
    "forced",
    "forged-words",
    "recognised",
    "pair",
    "spool-cut",
    "spool-killed",
    "spool-sent",
    "pushed",
    "centres",
    "apollo",
    "java",
    "cpp",
    "private-files",
    "first-words",
    "first-home",
    "lease-by-home",
    "spool-home",
    "refused-early",
    "refused-orphaned",
    "given-up-late",
    "silent-follower",
    "own-secrets",
    "pushed-in-clear",
    "exactly-once",
    "cancelled-poll",
    "java-told",
    "never-given-up",
)
PRODUCERS, RECORDS_PER_S, GROUPS = 4, 5_000, 3
SECONDS, SECONDS_LONG = 20.0, 120.0
PAUSE_S_MAX = 3.0
IDLE_MIN, IDLE_RECORDS, IDLE_TURNS = 0.9, 100_000, 3


def claims(_seed: int, _only: Collection[str] = ()) -> list[Claim]:
    """All that are measured, in the order of the promise."""
    moved = Once(_planned)
    load = f"{RECORDS_PER_S:,} records/s by {PRODUCERS} FailoverProducers, {GROUPS} groups of FailoverConsumers"
    return [
        Claim("planned", f"planned under {load}: 0 lost, doubled, reordered, read again; no error", _exact(moved)),
        Claim("planned-pause", f"the same: the longest pause is below {PAUSE_S_MAX:g} s", _pause(moved)),
        Claim("idle-rate", f"with an idle spool at least {IDLE_MIN:g} of confluent-kafka's rate alone", _idle_rate),
    ]


def _planned(long: bool) -> Outcome:
    return planned(
        writers=PRODUCERS,
        records_per_s=RECORDS_PER_S,
        groups=GROUPS,
        seconds=SECONDS_LONG if long else SECONDS,
        say=to_stderr,
        command="twinshore.cli",
    )


def _exact(moved: Once[Outcome]) -> Callable[[bool], Finding]:
    def run(long: bool) -> Finding:
        one = moved(long)
        wrong = one.lost + one.doubled + one.reordered + one.unequal + one.read_again + one.left_out + one.failed
        figure = (
            f"{one.records} records, {one.behind} of them behind the switch: {one.lost} lost, {one.doubled} doubled,"
            f" {one.reordered} reordered, {one.unequal} not the same on both; groups: {one.read_again} read again,"
            f" {one.left_out} left out; {one.failed} errors told"
        )
        numbers = (("planned_records", one.records), ("planned_behind", one.behind), ("planned_wrong", wrong))
        return Finding(figure, wrong == 0 and one.behind > 0, numbers)

    return run


def _pause(moved: Once[Outcome]) -> Callable[[bool], Finding]:
    def run(long: bool) -> Finding:
        one = moved(long)
        figure = f"longest between two acknowledgements of a producer {one.pause_s:.2f} s; held for {one.hold_s:.2f} s"
        numbers = (("planned_pause_s", round(one.pause_s, 3)), ("planned_hold_s", round(one.hold_s, 3)))
        return Finding(figure, one.pause_s < PAUSE_S_MAX, numbers)

    return run


def _idle_rate(long: bool) -> Finding:
    ratio = idle_ratio(IDLE_RECORDS, IDLE_TURNS * (3 if long else 1), to_stderr)
    figure = f"{ratio:.2f} of it, side by side; each answer is heard of in Python, to send again what has none"
    return Finding(figure, ratio >= IDLE_MIN, (("idle_ratio", round(ratio, 3)),))


def main(arguments: Sequence[str] | None = None) -> int:
    """Progress to standard error; the table and, last, one line of JSON to standard output."""
    return run_show("client", HEAD, claims, arguments, keys=KEYS)


if __name__ == "__main__":
    sys.exit(main())
