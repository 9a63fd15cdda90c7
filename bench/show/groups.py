"""`python -m bench.show.groups`: groups move exactly, delay is seen, both sides are proven the same, on real parts.

LONG=1 tries all at full size; `--only NAME` tries one, and the page of evidence is not written then.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence

from bench.kit.claims import Claim
from bench.kit.showing import run_show
from bench.show import delay as show_delay
from bench.show import groups_moves as show_groups_moves
from bench.show import proof as show_proof

HEAD = """\
# Groups, delay, proof, shown

Written by `make show-groups`, which tries each claim on real clusters and fails when one falls short; no figure is
typed by hand.
"""

# What tests are marked with, in the order of the page.
KEYS = (
    "live-group",
    "resets",
    "reads-on-its-own",
    "new-protocol",
    "both-ways",
    "wide-groups",
    "kept-together",
    "outputs-moved",
    "deleted-groups",
    "delay-windows",
    "delay-traps",
    "delay-streaming",
    "delay-stall",
    "delay-cut",
    "delay-old-timestamps",
    "delay-lost-ends",
    "delay-restless-windows",
    "delay-long-ids",
    "delay-sight",
    "delay-deleted",
    "delay-pause",
    "delay-causes",
    "delay-one-message",
    "delay-mirrormaker",
    "proof-beside-lanes",
    "proof-while-mirroring",
    "proof-mapped",
    "proof-compacted",
    "proof-transactions",
    "proof-mirror-maker",
    "proof-borders",
    "proof-never-rests",
    "proof-budget",
    "proof-two-at-once",
    "proof-overtaken",
    "proof-by-its-own-way",
    "proof-many-extents",
    "proof-which-clusters",
    "proof-names-unseen",
    "proof-names-refused",
    "proof-of-nothing",
    "proof-wrong-clusters",
    "spark-stopped",
    "proof-verdict-first",
    "proof-resumes",
    "true-status",
    "one-after-the-other",
    "status-words",
    "status-recovery-point",
    "word-of-links",
    "word-of-groups",
    "compacted-while-written",
    "compacted-once",
    "plan-as-run",
    "groups-dead-source",
    "alerts",
    "alerts-quiet",
)
PARTS = (show_groups_moves, show_delay, show_proof)


def claims(seed: int, only: Collection[str] = ()) -> list[Claim]:
    """All that are measured; what those in `only` rest on is measured, nothing else."""
    return [claim for part in PARTS for claim in part.claims(seed, only)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Progress to standard error; the table and, last, one line of JSON to standard output."""
    return run_show("groups", HEAD, claims, arguments, keys=KEYS)


if __name__ == "__main__":
    sys.exit(main())
