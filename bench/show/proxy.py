"""`python -m bench.show.proxy`: topics move under clients of the proxy that know nothing of it.

LONG=1 plays what is longer; `--only NAME` tries one, and the page of evidence is not written then.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence

from bench.kit.claims import Claim
from bench.kit.showing import run_show

HEAD = """\
# The proxy, shown

Written by `make show-proxy`, which moves topics under clients of the proxy, between real clusters, and fails when a
claim falls short; no figure is typed by hand.
"""
# What tests are marked with, in the order of the page.
KEYS = (
    "planned",
    "two-proxies",
    "new-home-dies",
    "orphaned-hold",
    "java",
    "groups-move",
    "newer-groups",
    "offsets",
    "forced",
    "forced-known",
    "forced-counted",
    "forced-cut",
    "carried-first",
    "without-data",
    "transactions",
    "again",
    "paused",
    "no-twin",
    "client-audit",
    "near",
    "breakers",
    "runaway",
    "no-acks",
    "crowd",
    "processes",
    "names",
    "upgrade",
    "dead",
    "users-hidden",
    "guarded-topics",
    "lease",
    "replicas",
    "principals",
    "names-hidden",
    "request-bounds",
    "hostile",
    "outside-commits",
    "offsets-stay-found",
    "groups-pending",
    "groups-home-known",
    "groups-right-behind",
    "unheard",
    "torn",
    "silent-topics",
    "words-first",
    "breakers-remembered",
    "groups-along",
    "groups-again",
    "kafkas-own",
    "ids-first",
    "joins-apart",
    "old-metadata",
    "between",
    "ids-elsewhere",
    "marks",
    "fetch-waits",
    "begins-asked",
    "alerts",
)


def claims(_seed: int, _only: Collection[str] = ()) -> list[Claim]:
    """All that are measured here; the others are tests."""
    return []


def main(arguments: Sequence[str] | None = None) -> int:
    """Progress to standard error; the table and, last, one line of JSON to standard output."""
    return run_show("proxy", HEAD, claims, arguments, keys=KEYS)


if __name__ == "__main__":
    sys.exit(main())
