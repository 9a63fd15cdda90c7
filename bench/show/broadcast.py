"""`python -m bench.show.broadcast`: a source that is read once for many targets, some of them in trouble.

LONG=1 measures with more records; `--only NAME` tries one, and the page of evidence is not written then.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence

from bench.kit.claims import Claim, Finding
from bench.kit.faulted import finding
from bench.kit.showing import run_show, to_stderr
from bench.measure import in_trouble, senders
from bench.measure.broadcast import RATE, RECORDS, RECORDS_SHORT, stage
from testkit.faults import run_faults
from testkit.loader import plain

HEAD = """\
# Broadcasts, shown

Written by `make show-broadcast`, which tries each claim on real clusters and fails when one falls short; no figure is
typed by hand.
"""
# What tests are marked with, in the order of the page.
KEYS = ("read-once", "in-trouble", "fresh", "source-cut", "fresh-killed")
TARGETS, COPIES_MAX, CPU_PART_MAX = 4, 1.05, 0.6
RECORDS_COSTED = 400_000
TIMES_MIN = 3.0
P99_TIMES_MAX, LAG_S_MAX = 1.5, 1.0
FAULTS, FAULTS_RATE = 20, 5_000


def claims(seed: int, _only: Collection[str] = ()) -> list[Claim]:
    """What is measured here; the others are tests."""
    says = (
        f"of {TARGETS} targets the source gives at most {COPIES_MAX:g} copies, and a record and a target cost at most "
        f"{CPU_PART_MAX:g} of the CPU that as many links take, in the tasks that carry them"
    )
    line = f"{senders.LINE_BYTES_S / 1e6:g} MB/s for each connection"
    return [
        Claim("many-targets", says, _many),
        Claim(
            "p99-in-trouble",
            f"at {in_trouble.PART:.0%} of saturation, the fourth target dead, stalled or at 1 MB/s: the others' p99 of"
            f" delay at most {P99_TIMES_MAX:g} times what it was, and none {LAG_S_MAX:g} s behind",
            _in_trouble,
        ),
        Claim(
            "senders",
            f"on a line of {line} {senders.TASKS} tasks carry at least {TIMES_MIN:g} times one lane's, keys in order",
            _senders,
        ),
        Claim(
            "random-faults",
            f"random faults under {FAULTS_RATE:,} records/s over a broadcast of {TARGETS}: nothing lost, doubled or"
            " moved, every offset equal on each target",
            lambda _long: _faults(seed),
        ),
    ]


def _many(long: bool) -> Finding:
    records = RECORDS if long else RECORDS_COSTED
    with stage(TARGETS, plain()) as place:
        broadcast, links = (place.carried(TARGETS, records, RATE, together=together) for together in (True, False))
    for one in (broadcast, links):
        to_stderr(str(one))
    tasks, part = broadcast.tasks_us / links.tasks_us, broadcast.cpu_us / links.cpu_us
    figure = (
        f"{records:,} records to each of {TARGETS} at {RATE:,.0f}/s: {broadcast.copies:.3f} copies left the source, and"
        f" {links.copies:.3f} by links; {broadcast.tasks_us:.2f} and {links.tasks_us:.2f} us of CPU in tasks for a"
        f" record and a target, {tasks:.2f} of it. Of the whole mirror {broadcast.cpu_us:.2f} and {links.cpu_us:.2f}"
        f" us above what it takes at rest, {part:.2f} of it, and {broadcast.all_us / links.all_us:.2f} with that"
    )
    numbers = (
        ("broadcast_copies", round(broadcast.copies, 3)),
        ("broadcast_cpu_part", round(tasks, 3)),
        ("broadcast_above_rest_part", round(part, 3)),
        ("broadcast_all_part", round(broadcast.all_us / links.all_us, 3)),
    )
    return Finding(figure, broadcast.copies <= COPIES_MAX and tasks <= CPU_PART_MAX, numbers)


def _in_trouble(long: bool) -> Finding:
    found = in_trouble.run_in_trouble(
        turns=in_trouble.TURNS,
        phase_s=in_trouble.PHASE_S_LONG if long else in_trouble.PHASE_S,
        records=RECORDS if long else RECORDS_SHORT,
        targets=TARGETS,
        say=to_stderr,
    )
    numbers = [(f"{one}_p99_times", round(found.times(one), 2)) for one in found.troubles]
    numbers += [(f"{one}_lag_s", round(found.lag_s(one), 2)) for one in found.troubles]
    holds = all(found.times(one) <= P99_TIMES_MAX and found.lag_s(one) < LAG_S_MAX for one in found.troubles)
    return Finding(str(found), holds, tuple(numbers))


def _senders(long: bool) -> Finding:
    records = senders.RECORDS_LONG if long else senders.RECORDS
    found = senders.run_senders(records, senders.IN_ORDER_LONG if long else senders.IN_ORDER)
    numbers = (
        ("senders_times", round(found.times, 2)),
        ("senders_ordered", found.ordered),
        ("senders_misplaced", found.misplaced),
    )
    return Finding(str(found), found.times >= TIMES_MIN and found.misplaced == 0, numbers)


def _faults(seed: int) -> Finding:
    found = run_faults(faults=FAULTS, seed=seed, rate=FAULTS_RATE, targets=TARGETS, say=to_stderr)
    return finding(found, "faults", FAULTS_RATE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Progress to standard error; the table and, last, one line of JSON to standard output."""
    return run_show("broadcast", HEAD, claims, arguments, keys=KEYS)


if __name__ == "__main__":
    sys.exit(main())
