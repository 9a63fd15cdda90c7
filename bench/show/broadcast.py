"""`python -m bench.show.broadcast`: a source that is read once for many targets, some of them in trouble.

LONG=1 measures with more records; `--only NAME` tries one, and the page of evidence is not written then.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence

from bench.kit.claims import Claim, Finding
from bench.kit.showing import run_show, to_stderr
from bench.measure.broadcast import RECORDS, RECORDS_SHORT, stage
from twinshore.lab.stages.workloads import plain

HEAD = """\
# Broadcasts, shown

Written by `make show-broadcast`, which tries each claim on real clusters and fails when one falls short; no figure is
typed by hand.
"""
# What tests are marked with, in the order of the page.
KEYS = ("read-once", "in-trouble", "fresh")
TARGETS, COPIES_MAX, CPU_PART_MAX = 4, 1.05, 0.6


def claims(_seed: int, _only: Collection[str] = ()) -> list[Claim]:
    """What is measured here; the others are tests."""
    says = (
        f"of {TARGETS} targets the source gives at most {COPIES_MAX:g} copies, and a record and a target cost at most "
        f"{CPU_PART_MAX:g} of the CPU that as many links take"
    )
    return [Claim("many-targets", says, _many)]


def _many(long: bool) -> Finding:
    records = RECORDS if long else RECORDS_SHORT
    with stage(TARGETS, plain()) as place:
        broadcast, links = (place.carried(TARGETS, records, 0.0, together=together) for together in (True, False))
    for one in (broadcast, links):
        to_stderr(str(one))
    part = broadcast.tasks_us / links.tasks_us
    figure = (
        f"{records:,} records to each of {TARGETS}: {broadcast.copies:.3f} copies left the source, and"
        f" {links.copies:.3f} by links; {broadcast.tasks_us:.2f} and {links.tasks_us:.2f} us of CPU in tasks,"
        f" {part:.2f} of it"
    )
    numbers = (("broadcast_copies", round(broadcast.copies, 3)), ("broadcast_cpu_part", round(part, 3)))
    return Finding(figure, broadcast.copies <= COPIES_MAX and part <= CPU_PART_MAX, numbers)


def main(arguments: Sequence[str] | None = None) -> int:
    """Progress to standard error; the table and, last, one line of JSON to standard output."""
    return run_show("broadcast", HEAD, claims, arguments, keys=KEYS)


if __name__ == "__main__":
    sys.exit(main())
