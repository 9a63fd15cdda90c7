"""`python -m bench.show.groups`: groups move exactly, delay is seen, both sides are proven the same, on real parts.

LONG=1 tries all at full size; `--only NAME` tries one, and the page of evidence is not written then.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence

from bench.kit.claims import Claim
from bench.kit.playing import by_test
from bench.kit.showing import run_show
from bench.show import delay as show_delay
from bench.show import groups_moves as show_groups_moves
from bench.show import proof as show_proof

HEAD = """\
# Groups, delay, proof, shown

Written by `make show-groups`, which tries each claim on real clusters and fails when one falls short; no figure is
typed by hand.
"""

# Each by the test that plays it, on real brokers.
SCENARIOS = (
    (
        "true-status",
        "status, /metrics and /health say the true lag, or how old it is, beside a mirror that is paused, cut off from "
        "either side, killed or stopped; a side that is down is waited for within 10 s",
        "tests/scenarios/test_status_says_so.py",
    ),
    (
        "one-after-the-other",
        "whatever two processes do to a store at once, one parked at each of its statements, ends as if one had come "
        "after the other, on SQLite, PostgreSQL and MariaDB: no extent, receipt, row or lease is lost",
        "tests/store/test_parked_sides.py",
    ),
    (
        "status-words",
        "status names what is paused, says no lag that nobody has seen, and of a mirror that was killed where it ran",
        "tests/cli/test_status.py",
    ),
    (
        "word-of-links",
        "the log says of a link what status says; a look that fails makes no link flow that is paused or has no pump, "
        "and none wait of which lanes carry",
        "tests/mirror/driver/test_link_driver.py",
    ),
    (
        "word-of-groups",
        "a group whose commit nobody answered, or that was not sent, is not called the same, also once the source is"
        " lost",
        "tests/groups/test_direction.py::test_a_commit_that_nobody_answered_does_not_count_as_the_same",
    ),
    (
        "compacted-while-written",
        "each round of a proof finds a compacted topic's lost latest record while other keys are written, until its "
        "key is written anew",
        "tests/scenarios/test_proof_of_compacted.py::test_a_lost_latest_record_is_found_while_its_compacted_topic_is_written",
    ),
    (
        "compacted-once",
        "what cleaners took is no difference after a topic was turned from compact to delete; it is compared offset by "
        "offset again once retention has taken that part",
        "tests/scenarios/test_proof_of_compacted.py::test_what_a_cleaner_took_is_no_difference_once_the_topic_is_compacted_no_more",
    ),
    (
        "plan-as-run",
        "mirror plan refuses what mirror run refuses, in the same words, and carries nothing that is paused or stopped",
        "tests/cli/test_plan.py",
    ),
)
PARTS = (show_groups_moves, show_delay, show_proof)


def claims(seed: int, only: Collection[str] = ()) -> list[Claim]:
    """All of them; what those in `only` rest on is measured, nothing else."""
    found = [claim for part in PARTS for claim in part.claims(seed, only)]
    return found + [Claim(name, says, by_test(name, test, tells="told:")) for name, says, test in SCENARIOS]


def main(arguments: Sequence[str] | None = None) -> int:
    """Progress to standard error; the table and, last, one line of JSON to standard output."""
    return run_show("groups", HEAD, claims, arguments)


if __name__ == "__main__":
    sys.exit(main())
