"""What every `make show-NAME` shares: its arguments, its table, its page of evidence."""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from bench.kit.claims import Claim, Once, all_hold, to_json, to_page, to_text, try_claims
from bench.kit.machine import this_machine
from bench.kit.playing import (
    ROOT,
    Played,
    RunRefused,
    all_marks,
    claimed_for,
    claims_of,
    differs_from,
    in_order,
    of_runs,
    play,
)

EVIDENCE = ROOT / "docs" / "evidence"


def to_stderr(sentence: str) -> None:
    """Progress, beside the table and the line of JSON on standard output."""
    print(sentence, file=sys.stderr, flush=True)


def run_show(
    show: str,
    head: str,
    claims: Callable[[int, Collection[str]], list[Claim]],
    arguments: Sequence[str] | None = None,
    *,
    keys: Sequence[str] = (),
) -> int:
    """Tries the claims and tells of them; the exit code. `claims`, those that are measured, takes a seed and the names
    asked for (none: all). `keys` are those that tests are marked with: they are played, or taken from runs that did."""
    seed = int(os.environ.get("TWINSHORE_SEED") or random.SystemRandom().randrange(1_000_000))
    names = [*(claim.name for claim in claims(seed, ())), *keys]
    parser = argparse.ArgumentParser(prog=f"bench.show.{show}")
    parser.add_argument("--only", action="append", default=[], help=f"one of {', '.join(names)}; several times")
    parser.add_argument("--page", type=Path, help="write this page, whatever was tried")
    left = "take what tests show from a run of this commit that pytest left with --record; several times"
    parser.add_argument("--from-run", action="append", default=[], type=Path, metavar="FILE", help=left)
    asked = parser.parse_args(arguments)
    for name in asked.only:
        if name not in names:
            parser.error(f"--only {name}: there is {', '.join(names)}")
    long = os.environ.get("LONG", "") not in ("", "0")
    try:
        runs = of_runs(asked.from_run, differs_from)
    except (RunRefused, OSError) as error:
        parser.error(f"--from-run: {error}")
    marks = all_marks() if keys else []
    marked = claimed_for(show, marks)
    wanted = [marked[key] for key in keys if key in marked and (not asked.only or key in asked.only)]

    def played(long: bool) -> tuple[Played, ...]:
        tests = {test for one in wanted for test in (long and one.full) or one.tests}
        return play(in_order(tests, marks), seed)

    shown = claims_of(marked, keys, (lambda _long: runs) if asked.from_run else Once(played))
    verdicts = try_claims([*claims(seed, asked.only), *shown], asked.only, long=long, say=to_stderr)
    line = to_json(show, verdicts)
    page = asked.page or (None if asked.only else EVIDENCE / f"{show}.md")
    if page is not None:
        size = "all at full size" if long else "at the default sizes, which the figures name"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(to_page(head, this_machine().dated(), size, verdicts, line), encoding="utf-8")
    print(to_text(verdicts))
    print(line, flush=True)
    return 0 if all_hold(verdicts) else 1
