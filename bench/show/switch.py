"""`python -m bench.show.switch`: topics move to another home on real clusters, under load, and nothing is lost.

LONG=1 plays it for longer; `--only NAME` tries one, and the page of evidence is not written then.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence

from bench.kit.claims import Claim, Finding, Once
from bench.kit.showing import run_show, to_stderr
from testkit.switch_under_load import Outcome, planned, returned

HEAD = """\
# The switch, shown

Written by `make show-switch`, which moves topics between real clusters and fails when a claim falls short; no figure is
typed by hand.
"""
# What tests are marked with, in the order of the page.
KEYS = (
    "whole-business",
    *("there-and-back", "held-by-acl", "super-user", "forged-words"),
    *("hold-runs-out", "store-away-in-the-hold", "orphaned-hold", "home-of-the-topic"),
    *("filled-once", "rescued-at-once"),
    *("forced-under-load", "store-killed", "failback-unclean", "rebuild"),
    *("late-produce", "transactions", "hanging", "streams", "streams-in-flight", "one-group", "waves"),
    *("killed-at-each-deed", "killed-on-brokers", "killed-forced", "killed-failback", "two-operators", "drill"),
    *("delete-looks-again", "reinjected", "alerts"),
)
WRITERS, RECORDS_PER_S, GROUPS = 4, 5_000, 3
SECONDS, SECONDS_LONG = 20.0, 120.0
HOLD_S_MAX = 3.0
DIVERGED = (0, 10_000)


def claims(_seed: int, _only: Collection[str] = ()) -> list[Claim]:
    """All that are measured, in the order of the promise."""
    moved = Once(_planned)
    load = f"{RECORDS_PER_S:,} records/s by {WRITERS} writers, {GROUPS} groups"
    return [
        Claim("planned", f"planned under {load}: 0 lost, doubled, reordered, read again or left out", _exact(moved)),
        Claim("planned-hold", f"the same: writers wait for less than {HOLD_S_MAX:g} s", _hold(moved)),
        *(
            Claim(
                f"failback-{diverged}",
                f"fail-back with {diverged:,} diverged records: all of them rescued and listed, and no other; east"
                " identical to west afterwards; groups stand where they stood",
                _back(diverged),
            )
            for diverged in DIVERGED
        ),
    ]


def _planned(long: bool) -> Outcome:
    return planned(
        writers=WRITERS,
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
            f" {one.left_out} left out; {one.failed} errors told to writers"
        )
        numbers = (("planned_records", one.records), ("planned_behind", one.behind), ("planned_wrong", wrong))
        return Finding(figure, wrong == 0 and one.behind > 0, numbers)

    return run


def _hold(moved: Once[Outcome]) -> Callable[[bool], Finding]:
    def run(long: bool) -> Finding:
        one = moved(long)
        figure = f"held for {one.hold_s:.2f} s; longest between two acknowledgements of a writer {one.pause_s:.2f} s"
        numbers = (("planned_hold_s", round(one.hold_s, 3)), ("planned_pause_s", round(one.pause_s, 3)))
        return Finding(figure, max(one.hold_s, one.pause_s) < HOLD_S_MAX, numbers)

    return run


def _back(diverged: int) -> Callable[[bool], Finding]:
    def run(_long: bool) -> Finding:
        one = returned(diverged, say=to_stderr, command="twinshore.cli")
        figure = (
            f"{one.diverged} diverged: {one.listed} listed, {one.missing} missing, {one.more} saved besides;"
            f" {one.unequal} records not the same on both afterwards; {one.misplaced} places of groups elsewhere"
        )
        numbers = ((f"failback_{diverged}_rescued", one.listed), (f"failback_{diverged}_wrong", one.wrong))
        return Finding(figure, one.wrong == 0 and one.diverged == diverged, numbers)

    return run


def main(arguments: Sequence[str] | None = None) -> int:
    """Progress to standard error; the table and, last, one line of JSON to standard output."""
    return run_show("switch", HEAD, claims, arguments, keys=KEYS)


if __name__ == "__main__":
    sys.exit(main())
