"""Claims about proofs: what is found among millions of records, how fast, and what is proven beside full tasks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection

from bench.kit.claims import Claim, Finding, Once
from bench.kit.showing import run_show, to_stderr
from bench.measure.beside import PERIOD_S, Beside, run_beside
from bench.measure.proof import Found, Speed, run_find, run_speed

HEAD = """\
# Proofs, shown

Written by `python -m bench.show.proof`, which tries each claim on real clusters and fails when one falls short; no
figure is typed by hand. The proof is `twinshore prove --here` as it is shipped; the plain comparison is one process
with two confluent-kafka consumers, their records compared in Python. Both are told by the clock and by second of CPU.
"""
TIMES_LEAST = 5.0
# All three share the machine's cores with the brokers: none may starve, and the monitor may miss none of its
# judgements. A proof need not keep up with a backlog, so a tenth of what crosses is enough for it.
TASKS_KEEP, PROOF_KEEPS, SILENT_S = 0.4, 0.1, 2 * PERIOD_S


def claims(_seed: int, _only: Collection[str] = ()) -> list[Claim]:
    """All that are measured; each run makes what it needs."""
    speeds = Once(lambda long: dict(zip(("lz4", "plain"), run_speed(long, to_stderr), strict=True)))
    found = [
        Claim(
            "proof-finds",
            "a flipped bit, a missing record, a swapped pair, a foreign record and a changed timestamp among 10"
            " million records are found at their offsets and named",
            lambda _: _found(run_find(to_stderr)),
        )
    ]
    for name, what in (("lz4", "JSON records in lz4"), ("plain", "1 KB plain records")):
        says = f"{what}: at least {TIMES_LEAST:g} times the records/s of a plain consumer comparison"
        found.append(Claim(f"proof-speed-{name}", says, _speed(name, speeds)))
    found.append(
        Claim(
            "proof-and-delay-beside",
            f"proof and delay run beside tasks that empty a backlog: the tasks keep at least {TASKS_KEEP:.0%} of their"
            f" rate, the proof at least {PROOF_KEEPS:.0%} of theirs, the monitor is never silent for {SILENT_S:g} s",
            lambda _: _beside(run_beside(to_stderr)),
        )
    )
    return found


def _found(found: Found) -> Finding:
    kinds = ", ".join(found.kinds)
    figure = f"{kinds}: all {len(found.kinds)} among {found.records:,} records, in {found.seconds:.1f} s"
    if found.missed:
        figure = f"missed among {found.records:,} records: {'; '.join(found.missed)}"
    numbers = (("proof_records", found.records), ("proof_kinds_found", len(found.kinds) - len(found.missed)))
    return Finding(figure, not found.missed, numbers)


def _beside(found: Beside) -> Finding:
    well = found.kept >= TASKS_KEEP and found.proven_s >= PROOF_KEEPS * found.tasks_s and found.silent_s < SILENT_S
    numbers = (
        ("beside_tasks_kept", round(found.kept, 3)),
        ("beside_proven_s", round(found.proven_s)),
        ("beside_silent_s", round(found.silent_s, 1)),
    )
    return Finding(found.sentence(), well, numbers)


def _speed(name: str, speeds: Once[dict[str, Speed]]) -> Callable[[bool], Finding]:
    def run(long: bool) -> Finding:
        speed = speeds(long)[name]
        numbers = (
            (f"proof_{name}_times", speed.times),
            (f"proof_{name}_times_core", speed.times_core),
            (f"proof_{name}_mb_s_core", round(speed.mb_core)),
            (f"proof_{name}_records", speed.records),
        )
        return Finding(f"{speed.records:,} records, {speed.sentence()}", speed.times >= TIMES_LEAST, numbers)

    return run


def main() -> int:
    """Progress to standard error; the table and, last, one line of JSON to standard output."""
    return run_show("proof", HEAD, claims)


if __name__ == "__main__":
    sys.exit(main())
