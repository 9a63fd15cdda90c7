"""`make simulate SEED=n` replays one seed with its step log; `make simulate SEEDS=n` runs the first n and counts."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from multiprocessing import Pool

from tests.simulation.mutants import MUTANTS, caught_at
from tests.simulation.world import World, run_seed

SEEDS = 1000


def attempt(seed: int) -> tuple[int, str, int]:
    """A seed, why it failed, and how many steps it took."""
    try:
        return seed, "", run_seed(seed).schedule.steps
    except Exception as error:
        return seed, str(error), 0


def replay(seed: int) -> int:
    """Every step of one seed, to read."""
    world = World(str(seed), listener=lambda sentence: print(sentence, flush=False))
    try:
        world.run()
    except Exception as error:
        print(world.standing())
        print("".join(traceback.format_exception(error)))
        print(f"seed {seed} fails at step {world.schedule.steps}: {error}")
        return 1
    print(world.standing())
    print(f"seed {seed} passes in {world.schedule.steps} steps")
    return 0


def many(first: int, count: int, processes: int) -> int:
    began_s = time.monotonic()
    failed: list[tuple[int, str]] = []
    steps = done = 0
    with Pool(processes) as pool:
        for seed, error, took in pool.imap_unordered(attempt, range(first, first + count), chunksize=20):
            done, steps = done + 1, steps + took
            if error:
                failed.append((seed, error))
                print(error, flush=True)
            if done % 1000 == 0:
                print(f"{done} seeds, {len(failed)} failed", flush=True)
    took_s = time.monotonic() - began_s
    print(f"{count} seeds, {len(failed)} failed, {steps} steps in {took_s:.1f} s: {count / took_s:.1f} seeds/s")
    return 1 if failed else 0


def catch(name: str, seeds: int) -> int:
    """Whether some seed tells the mutant from the shipped code."""
    mutant = MUTANTS[name]
    tried = range(seeds) if seeds else (mutant.known, *range(mutant.seeds))
    found = caught_at(name, tried, lambda seed: attempt(seed)[1])
    if found is None:
        print(f"{name} ({mutant.says}): not caught within {seeds or mutant.seeds} seeds")
        return 1
    print(f"{name} ({mutant.says}): caught by seed {found[0]}: {found[1].splitlines()[0][:200]}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this one with its step log")
    parser.add_argument("--seeds", type=int, default=0, help=f"how many to run, else {SEEDS}")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="make this mistake, and be caught")
    given = parser.parse_args()
    if given.mutant:
        return catch(given.mutant, given.seeds)
    if given.seed is not None:
        return replay(given.seed)
    return many(given.first, given.seeds or SEEDS, given.processes)


if __name__ == "__main__":
    sys.exit(main())
