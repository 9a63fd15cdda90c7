"""`python -m bench.show.groups_moves`: groups at any lag move across and read on; the same by MirrorMaker 2."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence

from bench.kit.claims import Claim, Finding, Once
from bench.kit.playing import by_test
from bench.kit.showing import run_show, to_stderr
from bench.measure.groups import run_groups_bench
from twinshore.lab.stages.groups import KINDS, Moved, TwoMoves, run_moves

HEAD = """\
# Groups move across, shown

Written by `python -m bench.show.groups_moves`, which moves groups between real clusters by this mirror and by
MirrorMaker 2 with its checkpoints on; no figure is typed by hand.
"""
RECORDS, RECORDS_LONG = 100_000, 1_000_000
ROUNDS, ROUNDS_LONG = 10, 60
SCENARIO = "tests/scenarios/test_groups.py"
# Each by the test that plays it, on real brokers.
SCENARIOS = (
    (
        "live-group",
        "a group with members on the target is left alone, and so is where they have read on, until asked for",
        "test_a_group_with_members_on_the_target_is_left_alone_and_so_is_where_they_have_read_on",
    ),
    (
        "resets",
        "a reset on the source is followed; who has read on at the target is not set back",
        "test_a_reset_on_the_source_is_followed_and_one_that_read_on_at_the_target_is_not_set_back",
    ),
    (
        "reads-on-its-own",
        "a reader without membership on the target (as Flink and Spark) is left alone, by a restarted mirror too, until"
        " an operator asks for it",
        "test_a_reader_without_membership_on_the_target_is_left_alone_until_it_is_asked_for",
    ),
    (
        "new-protocol",
        "a group of the new protocol (KIP-848) moves, and its consumers take over on the target",
        "test_groups_of_the_new_protocol_move_and_take_over",
    ),
    (
        "both-ways",
        "with prefixed names a group finds its place on the other side, both ways",
        "test_with_prefixed_names_a_group_finds_its_place_both_ways",
    ),
)


# Each by all of a file.
FILES = (
    (
        "wide-groups",
        "a group too large for one commit (300 places with long texts, to a broker of batches of 100 KB) follows, to"
        " Kafka 3 and 4; what is refused again and again is told on the ledger, until it is taken",
        "tests/scenarios/test_wide_groups.py",
    ),
    (
        "kept-together",
        "with `outputs`, the place of a group that reads, writes and commits in transactions never passes on the target"
        " what it wrote: not while the outputs' twin stands still, nor while it catches up;"
        " `groups` says that it waits",
        "tests/scenarios/test_kept_together.py",
    ),
    (
        "deleted-groups",
        "a group deleted on the source, of Kafka 3 and 4, is not brought back by `back = true`, nor is one made that"
        " the target alone knows; begun again lower it is followed, by the next process too",
        "tests/scenarios/test_deleted_groups.py",
    ),
)


def claims(seed: int, _only: Collection[str] = ()) -> list[Claim]:
    """All of them, in the order of the promise."""
    moves = Once(lambda long: run_moves(RECORDS_LONG if long else RECORDS, to_stderr))
    found = [
        Claim(
            f"moves-{kind}",
            f"groups at 5 lags, {kind} log: 0 records read again, 0 left out",
            verdict_of(kind, moves),
        )
        for kind in KINDS
    ]
    found.append(
        Claim("rounds", "2 000 groups x 50 partitions, 1 % changed: under 1 s, under half a core", _rounds(seed))
    )
    found += [Claim(name, says, by_test(name, f"{SCENARIO}::{test}")) for name, says, test in SCENARIOS]
    found += [Claim(name, says, by_test(name, test)) for name, says, test in FILES]
    return found


def verdict_of(kind: str, moves: Once[TwoMoves]) -> Callable[[bool], Finding]:
    """The claim of one kind of log: nothing again, nothing left out; the other mirror beside it."""

    def run(long: bool) -> Finding:
        both = moves(long)
        ours, theirs = ([one for one in some if one.kind == kind] for some in (both.ours, both.theirs))
        exact = all(one.placed and one.again == one.skipped == 0 for one in ours)
        name = f"moves_{kind}"
        numbers = (
            (f"{name}_again", _sum(ours, "again")),
            (f"{name}_skipped", _sum(ours, "skipped")),
            (f"{name}_mm2_again", _sum(theirs, "again")),
            (f"{name}_mm2_skipped", _sum(theirs, "skipped")),
        )
        return Finding(f"{_words(ours)}; MirrorMaker 2: {_words(theirs)}", exact, numbers)

    return run


def _sum(moved: Sequence[Moved], what: str) -> int:
    return sum(getattr(one, what) for one in moved)


def _words(moved: Sequence[Moved]) -> str:
    lost = [one for one in moved if not one.placed]
    worst = max(moved, key=lambda one: one.again)
    said = f"{_sum(moved, 'again')} read again, {_sum(moved, 'skipped')} left out"
    if worst.again:
        said += f" (worst {worst.lag}: {worst.again} again)"
    if lost:
        said += f"; no place for {', '.join(one.lag for one in lost)}"
    return said


def _rounds(seed: int) -> Callable[[bool], Finding]:
    def run(long: bool) -> Finding:
        found = run_groups_bench(rounds=ROUNDS_LONG if long else ROUNDS, seed=seed, say=to_stderr)
        numbers = (
            ("groups_round_s", found.round_s),
            ("groups_cores", found.cores),
            ("groups_requests", found.requests),
            ("groups_wrong", found.wrong),
        )
        return Finding(found.sentence(), found.bounded, numbers)

    return run


def main(arguments: Sequence[str] | None = None) -> int:
    """Progress to standard error; the table and, last, one line of JSON to standard output."""
    return run_show("groups_moves", HEAD, claims, arguments)


if __name__ == "__main__":
    sys.exit(main())
