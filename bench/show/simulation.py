"""Claims about the simulated mirror: seeds pass, and mistakes put in on purpose do not.

`python -m bench.show.simulation` tries them alone; LONG=1 at full size.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Collection, Sequence

from bench.kit.claims import Claim, Finding
from bench.kit.playing import ROOT
from bench.kit.showing import run_show, to_stderr
from testkit.figures import StageError

HEAD = """\
# The simulation, shown

Written by `python -m bench.show.simulation`; docs/simulation.md says what is simulated and what must hold.
"""
SEEDS, SEEDS_LONG = 1_000, 10_000
MUTANTS_LEAST = 5
# Caught within seconds; the others take a minute or two of a core each.
QUICK = ("new-leader", "behind-markers", "forgetful-brokers", "receipts", "foreign-write", "lost-line")
SLOW = ("marker-answer", "diverging-epoch", "last-record", "base-offset", "lease", "strays")
RUN_S_MAX = 2400


def claims(_seed: int, _only: Collection[str] = ()) -> list[Claim]:
    """Seeds are counted from 0 on, so that whoever runs them has the same."""
    return [
        Claim("seeds", f"{SEEDS_LONG} seeds of the simulated mirror pass", _seeds),
        Claim("mutants", f"at least {MUTANTS_LEAST} mistakes put in on purpose are caught, and none is not", _mutants),
    ]


def _seeds(long: bool) -> Finding:
    count = SEEDS_LONG if long else SEEDS
    lines = _simulate("--seeds", str(count), "--processes", "2")
    last = re.fullmatch(r"(\d+) seeds, (\d+) failed, (\d+) steps in ([\d.]+) s: .*", lines[-1])
    if last is None:
        raise StageError(lines[-1])
    failed, steps, took_s = int(last[2]), int(last[3]), float(last[4])
    size = "" if long else f" (short run; {SEEDS_LONG} at full size)"
    figure = f"{count} seeds{size}, {failed} failed, {steps} steps in {took_s:.0f} s"
    numbers = (("simulated_seeds", count), ("simulated_failed", failed), ("simulated_steps", steps))
    return Finding(figure, failed == 0, numbers)


def _mutants(long: bool) -> Finding:
    tried = QUICK + SLOW if long else QUICK
    caught: list[str] = []
    missed: list[str] = []
    for name in tried:
        line = _simulate("--mutant", name)[-1]
        to_stderr(line)
        found = re.search(r"caught by seed (\d+)", line)
        if found:
            caught.append(f"{name} (seed {found[1]})")
        else:
            missed.append(name)
    figure = f"{len(caught)} caught: {', '.join(caught)}"
    if missed:
        figure += f"; not caught: {', '.join(missed)}"
    numbers = (("mutants_tried", len(tried)), ("mutants_caught", len(caught)))
    return Finding(figure, not missed and len(caught) >= MUTANTS_LEAST, numbers)


def _simulate(*arguments: str) -> list[str]:
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=RUN_S_MAX, check=False)
    lines = done.stdout.strip().splitlines()
    if not lines:
        raise StageError(f"the simulation said nothing: {done.stderr.strip()[-300:]}")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Progress to standard error; the table and, last, one line of JSON to standard output."""
    return run_show("simulation", HEAD, claims, arguments)


if __name__ == "__main__":
    sys.exit(main())
