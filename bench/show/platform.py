"""`python -m bench.show.platform`: the platform on real clusters: pages, jobs, roles.

`--only NAME` tries one claim, and the page of evidence is not written then.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence

from bench.kit.claims import Claim
from bench.kit.showing import run_show

HEAD = """\
# The platform, shown

Written by `make show-platform`, which clicks through pages on real clusters while processes die, and fails when a claim
falls short; no figure is typed by hand. A browser without scripts clicks.
"""
# What tests are marked with, in the order of the page.
KEYS = (
    *("pages", "killed", "lost", "store-killed", "obeyed", "differs", "records", "browser", "store-away", "roles"),
    *("provider", "jobs", "four-eyes", "secrets", "cost", "same-answers", "described"),
)


def claims(_seed: int, _only: Collection[str] = ()) -> list[Claim]:
    """Nothing is measured but what tests print."""
    return []


def main(arguments: Sequence[str] | None = None) -> int:
    """Progress to standard error; the table and, last, one line of JSON to standard output."""
    return run_show("platform", HEAD, claims, arguments, keys=KEYS)


if __name__ == "__main__":
    sys.exit(main())
