"""`python -m bench.show.groups_moves`: groups at any lag move across and read on; the same by MirrorMaker 2."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence

from bench.kit.claims import Claim, Finding, Once
from bench.kit.showing import run_show, to_stderr
from bench.measure.groups import run_groups_bench
from testkit.groups import KINDS, Moved, TwoMoves, run_moves

HEAD = """\
# Groups move across, shown

Written by `python -m bench.show.groups_moves`, which moves groups between real clusters by this mirror and by
MirrorMaker 2 with its checkpoints on; no figure is typed by hand.
"""
RECORDS, RECORDS_LONG = 100_000, 1_000_000
ROUNDS, ROUNDS_LONG = 10, 60


def claims(seed: int, _only: Collection[str] = ()) -> list[Claim]:
    """All that are measured, in the order of the promise."""
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
