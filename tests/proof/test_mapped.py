"""A mapped twin is compared through all of its offset runs, however many there are, and read again as it was
compared.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.proof.small_broker import TOPIC
from tests.proof.test_planning import EAST, LOOK, WEST
from tests.proof.test_proving import Rig, rig
from twinshore.config.settings import load_settings
from twinshore.kafka.protocol.record_batch import Record
from twinshore.proof.core.model import CompareMode, CompareRange
from twinshore.proof.core.planning import ProofOptions, plan_rereads
from twinshore.proof.core.report import describe_report, exit_code
from twinshore.proof.jobs import run_bundle_in_process
from twinshore.proof.link_scan import add_offset_runs
from twinshore.proof.rounds import ProofRounds
from twinshore.state.core.values import ProofRow, ProofState
from twinshore.state.sql import upsert
from twinshore.state.store import Store, open_store
from twinshore.state.tables import offset_runs

LINK = "east->west"
MANY, AT = 100_020, 10


def lies(store: Store, *rows: tuple[int, int, int]) -> None:
    """These are offset runs of the twin."""
    names = ("source", "target", "length")
    place = {"link": LINK, "topic": TOPIC, "partition": 0, "sequence": 0}
    values = [place | dict(zip(names, row, strict=True)) for row in rows]
    store._database.write(lambda connection: upsert(connection, offset_runs, values))


def proven(two: Rig) -> ProofRounds:
    loaded = load_settings(two.settings, {})
    return ProofRounds(
        loaded,
        two.store,
        run_bundle_in_process,
        options=ProofOptions(),
        tasks=1,
        mode=CompareMode.OFFSET_MAP,
        settle_s=0.0,
    )


@pytest.mark.claim(
    "groups",
    "proof-many-extents",
    "a mapped twin of more than 100 000 offset runs is compared from its first record to its last one",
)
def test_each_offset_run_is_compared_however_many_there_are(tmp_path: Path) -> None:
    theirs = [Record(n, n, b"k", b"else" if n == AT else b"v") for n in range(MANY)]
    ours = [record._replace(offset=2 * record.offset, value=b"v") for record in theirs]
    with rig(tmp_path, ours, theirs, 1_000) as two:
        lies(two.store, *((2 * n, n, 1) for n in range(MANY)))
        proving = proven(two)
        for _ in range(2):
            report = proving.round(load_settings(two.settings, {}).links, [TOPIC])
            assert exit_code(report) == 1, "\n".join(describe_report(report))
            (row,) = two.store.proofs.of()
            assert (row.state, row.from_offset, row.to_offset) == (ProofState.DIFFERS, 0, 2 * AT)


def test_what_the_twins_retention_has_taken_since_the_look_is_not_asked_for(tmp_path: Path) -> None:
    stretch = CompareRange(
        EAST, WEST, replace(LOOK.partition, topic=TOPIC, partition=0), TOPIC, CompareMode.OFFSET_MAP, 100, 200
    )
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        lies(store, (0, 50, 30), (90, 80, 20), (120, 100, 10), (150, 110, 100), (250, 210, 9))
        whole = add_offset_runs(store, LINK, stretch)
        assert (whole.start, whole.offset_runs) == (100, ((90, 80, 20), (120, 100, 10), (150, 110, 100)))
        store.offset_runs.trim(LINK, {(TOPIC, 0): 110})
        cut = add_offset_runs(store, LINK, stretch)
        assert (cut.start, cut.end, cut.offset_runs) == (150, 200, ((150, 110, 100),))
        store.offset_runs.trim(LINK, {(TOPIC, 0): 210})
        gone = add_offset_runs(store, LINK, stretch)
        assert (gone.start, gone.end, gone.offset_runs) == (200, 200, ())
        assert add_offset_runs(store, LINK, replace(stretch, mode=CompareMode.EXACT)) == replace(
            stretch, mode=CompareMode.EXACT
        )


def test_a_look_knows_the_borders_of_a_map_by_a_few_offset_runs(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        lies(store, *((10 * n, 100 + 9 * n, 9) for n in range(1_000)))
        for start, end in [(0, 9_100), (500, 700), (109, 109), (9_100, 9_100), (20_000, 30_000)]:
            found = store.offset_runs.borders(LINK, TOPIC, 0, start, end)
            some = tuple((one.source, one.target, one.length) for one in found)
            every = tuple((10 * n, 100 + 9 * n, 9) for n in range(1_000))
            few, all_of_them = (
                replace(
                    LOOK,
                    mode=CompareMode.OFFSET_MAP,
                    source_start=0,
                    target_start=start,
                    target_end=end,
                    offset_runs=each,
                )
                for each in (some, every)
            )
            assert len(some) <= 6
            for name in ("first", "reach", "gone_below", "uncarried"):
                assert getattr(few, name) == getattr(all_of_them, name), (name, start, end)


def test_what_a_fresh_queue_dropped_is_left_out_when_its_twin_is_read_again() -> None:
    row = ProofRow(
        LINK, "orders", 3, "offset-map", ProofState.IDENTICAL, 0, 1_000, -1, 1_000, 900, "", "", "aa", "bb", 1
    )
    look = replace(
        LOOK,
        mode=CompareMode.OFFSET_MAP,
        source_start=0,
        target_end=900,
        offset_runs=((0, 0, 400), (500, 400, 500)),
        stored=row,
        dropped=((400, 500),),
    )
    (errand,) = plan_rereads([look], (EAST, WEST), ProofOptions(), size_max=1e9, before_ms=10)
    assert errand.offset_range.dropped == ((400, 500),)
