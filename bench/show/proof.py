"""Claims about proofs: what is found among millions of records, how fast, and what is proven beside full lanes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection

from bench.kit.claims import Claim, Finding, Once
from bench.kit.playing import by_test
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
LANES_KEEP, PROOF_KEEPS, SILENT_S = 0.4, 0.1, 2 * PERIOD_S
SCENARIOS = (
    (
        "proof-beside-lanes",
        "a proof runs on Spark while every lane and both heirs are at work, and they go on",
        "tests/scenarios/test_proof.py::test_a_proof_runs_on_spark_while_lanes_are_full",
    ),
    (
        "proof-while-mirroring",
        "links are proven beside the mirror while traffic flows, and their parts add up to one proof of the whole",
        "tests/scenarios/test_proof_beside.py::test_links_are_proven_beside_the_mirror_while_traffic_flows",
    ),
    (
        "proof-mapped",
        "a mapped twin is proven through its extents, behind data of others",
        "tests/scenarios/test_proof.py::test_a_mapped_twin_is_proven_through_its_extents",
    ),
    (
        "proof-compacted",
        "compacted sides are the same when the latest record of each key is, and a lost one is found",
        "tests/scenarios/test_proof.py::test_compacted_sides_are_the_same_when_the_latest_of_each_key_is",
    ),
    (
        "proof-transactions",
        "transactions, aborted ones too, are compared by what consumers see",
        "tests/scenarios/test_proof.py::test_transactions_are_compared_by_what_consumers_see",
    ),
    (
        "proof-mirror-maker",
        "what MirrorMaker 2 copied is proven by content",
        "tests/scenarios/test_proof_beside.py::test_what_mirror_maker_copied_is_proven_by_content",
    ),
    (
        "proof-borders",
        "what a twin has lost since it was proven is never called identical: the missing range is named, each round",
        "tests/scenarios/test_proof.py::test_what_a_twin_has_lost_since_it_was_proven_is_never_called_identical",
    ),
    (
        "proof-never-rests",
        "a history that parted below a proof, with equal borders, is told at its offset by the next pass over all",
        "tests/scenarios/test_proof_again.py::test_a_history_that_parted_below_a_proof_is_told_by_the_next_pass",
    ),
    (
        "proof-budget",
        "what is proven is read again, the oldest first, within its budget of bytes per second",
        "tests/proof/test_rereading.py::test_the_budget_is_kept",
    ),
    (
        "proof-names-unseen",
        "what is carried and cannot be seen is named, with exit code 2, and no proof of it is renewed",
        "tests/scenarios/test_proof.py::test_what_is_carried_and_cannot_be_seen_is_named_and_no_proof_of_it_is_renewed",
    ),
    (
        "proof-names-refused",
        "a proof names each admitted topic that the mirror refuses, with exit code 2, and calls no such link identical",
        "tests/scenarios/test_refused_topics.py::test_a_proof_names_each_admitted_topic_that_does_not_cross",
    ),
    (
        "proof-of-nothing",
        "of a mapped partition to which nothing was carried yet a proof says so, and never that it is identical",
        "tests/proof/test_nothing_compared.py::test_a_mapped_twin_to_which_nothing_was_carried_yet_is_not_said_to_be_identical",
    ),
    (
        "proof-wrong-clusters",
        "with both addresses swapped nothing is carried, compared, counted or advised, and no false difference written",
        "tests/scenarios/test_mirror_refusals.py::test_clusters_that_changed_places_are_not_mixed",
    ),
    (
        "spark-stopped",
        "whatever starts Spark can be stopped at any moment of its start: no process is left, no trace is shown",
        "tests/mirror/driver/test_start_up.py::test_whatever_starts_spark_can_be_stopped_while_it_starts_and_leaves_nothing",
    ),
    (
        "proof-verdict-first",
        "a proof that was stopped, or of a cluster that is away, says so in its verdict and waits for nobody",
        "tests/proof/test_proving.py::"
        "test_a_cluster_that_is_away_is_the_verdict_and_is_not_waited_for_once_it_is_stopped",
    ),
    (
        "proof-resumes",
        "a proof goes on from the last one, and a script learns of a difference by the exit code",
        "tests/scenarios/test_proof.py::test_the_verb_goes_on_from_the_last_proof_and_scripts_learn_by_its_exit_code",
    ),
)


def claims(_seed: int, _only: Collection[str] = ()) -> list[Claim]:
    """All of them; each run makes what it needs."""
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
            f"proof and delay run beside lanes that empty a backlog: the lanes keep at least {LANES_KEEP:.0%} of their"
            f" rate, the proof at least {PROOF_KEEPS:.0%} of theirs, the monitor is never silent for {SILENT_S:g} s",
            lambda _: _beside(run_beside(to_stderr)),
        )
    )
    return found + [Claim(name, says, by_test(name, test)) for name, says, test in SCENARIOS]


def _found(found: Found) -> Finding:
    kinds = ", ".join(found.kinds)
    figure = f"{kinds}: all {len(found.kinds)} among {found.records:,} records, in {found.seconds:.1f} s"
    if found.missed:
        figure = f"missed among {found.records:,} records: {'; '.join(found.missed)}"
    numbers = (("proof_records", found.records), ("proof_kinds_found", len(found.kinds) - len(found.missed)))
    return Finding(figure, not found.missed, numbers)


def _beside(found: Beside) -> Finding:
    well = found.kept >= LANES_KEEP and found.proven_s >= PROOF_KEEPS * found.lanes_s and found.silent_s < SILENT_S
    numbers = (
        ("beside_lanes_kept", round(found.kept, 3)),
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
