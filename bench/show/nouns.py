"""`python -m bench.show.nouns`: how code and pages are written, and how many files a record, a request, a switch enter.

`--only NAME` tries one, and the page of evidence is not written then.
"""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from bench.kit.claims import Claim, Finding
from bench.kit.playing import ROOT
from bench.kit.showing import run_show
from testkit.figures import StageError
from testkit.telling import FIGURES, FormFigure, SourceTree, read_tree

HEAD = """\
# Kafka's nouns, shown

Written by `make show-nouns`, which measures the form of the code and its pages, follows a record, a request and a
switch on real brokers, and fails when a claim falls short; no figure is typed by hand.
"""
# What tests are marked with, in the order of the page.
KEYS = ("record", "produce", "switch", "frozen", "formats")
CONTRACTS_S_MAX = 300


def claims(_seed: int, _only: Collection[str] = ()) -> list[Claim]:
    """All that are measured here; the others are tests."""
    tree = functools.cache(lambda: read_tree(ROOT))
    return [
        *(Claim(one.key, one.says(), functools.partial(_measured, one, tree)) for one in FIGURES),
        Claim("contracts", "the import contracts hold: packages in order, `core/` pure", _contracts),
    ]


def _measured(figure: FormFigure, tree: Callable[[], SourceTree], _long: bool) -> Finding:
    value = figure.measure(tree())
    words = f"{value:,.2f}".removesuffix(".00")
    return Finding(words, figure.holds(value), ((figure.key.replace("-", "_"), round(value, 2)),))


def _contracts(_long: bool) -> Finding:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=CONTRACTS_S_MAX, check=False)
    found = re.search(r"Contracts: (\d+) kept, (\d+) broken", done.stdout)
    if found is None:
        raise StageError(f"the contracts were not tried: {(done.stderr or done.stdout).strip()[-300:]}")
    kept, broken = int(found[1]), int(found[2])
    numbers = (("contracts_kept", kept), ("contracts_broken", broken))
    return Finding(f"{kept} kept, {broken} broken", done.returncode == 0 and not broken, numbers)


def main(arguments: Sequence[str] | None = None) -> int:
    """Progress to standard error; the table and, last, one line of JSON to standard output."""
    return run_show("nouns", HEAD, claims, arguments, keys=KEYS)


if __name__ == "__main__":
    sys.exit(main())
