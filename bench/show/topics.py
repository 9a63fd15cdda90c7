"""`python -m bench.show.topics`: any topic has an exact twin and every incident a row, tried on real parts.

LONG=1 tries all at full size; `--only NAME` tries one, and the page of evidence is not written then.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence

from bench.kit.claims import Claim
from bench.kit.showing import run_show
from bench.show import any_log as show_any_log
from bench.show import control as show_control
from bench.show import mapped as show_mapped
from bench.show import simulation as show_simulation

HEAD = """\
# Every topic, every incident, shown

Written by `make show-topics`, which tries each claim on real clusters and fails when one falls short; no figure is
typed by hand.
"""

# What tests are marked with, in the order of the page.
KEYS = (
    "log-transactional",
    "log-idle",
    "log-compacted",
    "log-compacted-transactional",
    "log-delete-horizon",
    "log-late",
    "log-late-compacted",
    "log-append-time",
    "log-codecs",
    "log-bare",
    "log-at-the-limit",
    "log-future",
    "log-empty",
    "transactions-go-on",
    "open-transaction",
    "retention-while-running",
    "driver-killed",
    "killed-started-again",
    "looking-makes-no-store",
    "pumps-die",
    "units-die",
    "corrupt-and-old",
    "truncation",
    "retention-gap",
    "foreign-write",
    "oversize",
    "lost-by-target",
    "partition-added",
    "rights",
    "retried-row",
    "position-disagreement",
    "disk",
    "held-is-told",
    "silent",
    "empty-topics",
    "new-topics",
    "restart",
    "ledger-has-room",
    "refused-row",
    "small-bombs",
    "deletions-owed",
    "quotas",
    "request-quotas",
    "asking-apart",
    "quotas-are-told",
    "addresses-elsewhere",
    "unwritable-log",
    "threads-kept-on",
    "errors-pass",
    "idle-histories",
    "lost-beginning",
    "topics-follow",
    "deletions",
    "served-delay",
    "forget-holds-the-lease",
    "never-cut",
    "no-filler",
    "uncut-told",
    "forged-notes",
    "topics-apart",
    "one-link-a-topic",
    "bounded-rights",
    "rights-follow",
    "rights-shut",
    "own-topics-open",
    "mapped-settings",
    "both-refuse",
    "lab-down",
    "clashing-words",
    "names-stay",
    "clashing-links",
    "descent-outlives",
    "second-store",
    "store-gone",
    "lost-store",
    "adoption-proven",
    "mapped-at-rest",
    "both-ways",
    "one-owner",
    "ring",
)
PARTS = (show_any_log, show_control, show_mapped, show_simulation)


def claims(seed: int, only: Collection[str] = ()) -> list[Claim]:
    """All that are measured; what those in `only` rest on is measured, nothing else."""
    return [claim for part in PARTS for claim in part.claims(seed, only)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Progress to standard error; the table and, last, one line of JSON to standard output."""
    return run_show("topics", HEAD, claims, arguments, keys=KEYS)


if __name__ == "__main__":
    sys.exit(main())
