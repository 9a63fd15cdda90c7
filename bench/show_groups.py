"""`python -m bench.show_groups`: groups move exactly, delay is seen, both sides are proven the same, on real parts.

LONG=1 tries all at full size; `--only NAME` tries one, and the page of evidence is not written then.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence

from bench import show_delay, show_groups_moves, show_proof
from bench.claims import Claim
from bench.showing import run_show

HEAD = """\
# Groups, delay, proof, shown

Written by `make show-groups`, which tries each claim on real clusters and fails when one falls short; no figure is
typed by hand.
"""

PARTS = (show_groups_moves, show_delay, show_proof)


def claims(seed: int, only: Collection[str] = ()) -> list[Claim]:
    """All of them; what those in `only` rest on is measured, nothing else."""
    return [claim for part in PARTS for claim in part.claims(seed, only)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Progress to standard error; the table and, last, one line of JSON to standard output."""
    return run_show("groups", HEAD, claims, arguments)


if __name__ == "__main__":
    sys.exit(main())
