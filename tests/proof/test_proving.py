"""Whole rounds over real sockets: what the store and the ledger know after retention, and when nothing is there."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.proof.logs import batched
from tests.proof.small_broker import TOPIC, SmallBroker
from twinshore.fleet.settings import load_settings
from twinshore.proof.incidents import GONE
from twinshore.proof.job import in_this_process
from twinshore.proof.planning import RENEWED_MS, Wishes
from twinshore.proof.proving import Proving, Report
from twinshore.proof.telling import exit_code, in_words
from twinshore.proof.values import Way
from twinshore.store import Store, open_store
from twinshore.wire.batch import CONTROL, HEADER_BYTES, TRANSACTIONAL, head_bytes, seal
from twinshore.wire.records import Record

COUNT, AT = 100, 40


def log(count: int = COUNT) -> list[Record]:
    return [Record(n, n, b"k%d" % n, b"v%d" % n) for n in range(count)]


@dataclass
class Rig:
    """Two brokers and a store, proven as often as one likes."""

    source: SmallBroker
    target: SmallBroker
    store: Store
    settings: Path

    def round(self, way: Way = Way.EXACT) -> Report:
        loaded = load_settings(self.settings, {})
        proving = Proving(loaded, self.store, in_this_process, wishes=Wishes(stretch_records=30), tasks=1, way=way)
        return proving.round(loaded.links, [TOPIC])

    def keep_from(self, offset: int) -> None:
        self.source.start = self.target.start = offset


@contextlib.contextmanager
def rig(folder: Path, source: list[Record], target: list[Record]) -> Iterator[Rig]:
    chance = random.Random(1)
    east, west = (
        SmallBroker(name, batched(chance, side, len(side), first=0, most=5))
        for name, side in (("east", source), ("west", target))
    )
    url = f"sqlite:///{folder}/store.db"
    with east.serving() as one, west.serving() as other, open_store(url) as store:
        text = ["[store]", f'url = "{url}"', '[links."east->west"]', f"topics = ['{TOPIC}']"]
        for cluster in (one, other):
            text += [f"[clusters.{cluster.name}]", f"bootstrap = {list(cluster.bootstrap)}"]
        settings = folder / "twinshore.toml"
        settings.write_text("\n".join(text) + "\n")
        yield Rig(east, west, store, settings)


def spoilt() -> list[Record]:
    return [record._replace(value=b"else") if record.offset == AT else record for record in log()]


def test_what_retention_took_is_neither_proven_nor_mended(tmp_path: Path) -> None:
    with rig(tmp_path, log(), spoilt()) as two:
        assert two.round().differs
        (opened,) = two.store.incidents(open_only=True)
        assert opened.incident.from_offset == AT
        two.keep_from(AT + 20)
        report = two.round()
        (row,) = two.store.proofs()
        assert (row.state, row.from_offset, row.to_offset, row.records) == (
            "identical",
            AT + 20,
            COUNT,
            COUNT - AT - 20,
        )
        assert not report.differs and not report.incomplete
        (closed,) = two.store.incidents()
        assert closed.closed_ms is not None and closed.incident.sentence.endswith(GONE)


def test_a_difference_ends_when_retention_has_taken_all_there_was(tmp_path: Path) -> None:
    with rig(tmp_path, log(), spoilt()) as two:
        assert two.round().differs
        two.keep_from(COUNT)
        report = two.round()
        assert not report.differs and not report.incomplete
        (row,) = two.store.proofs()
        assert (row.state, row.from_offset, row.to_offset, row.digest) == ("identical", COUNT, COUNT, "")
        assert two.store.incidents(open_only=True) == ()


def test_a_difference_that_was_mended_is_closed_as_such(tmp_path: Path) -> None:
    with rig(tmp_path, log(), spoilt()) as two:
        assert two.round().differs
        two.target.log = two.source.log
        assert not two.round().differs
        (closed,) = two.store.incidents()
        assert closed.closed_ms is not None and GONE not in closed.incident.sentence


@pytest.mark.parametrize("way", [Way.EXACT, Way.COMPACTED, Way.CONTENT])
def test_a_target_that_holds_nothing_yet_is_not_said_to_be_identical(tmp_path: Path, way: Way) -> None:
    with rig(tmp_path, log(), []) as two:
        for _ in range(2):
            report = two.round(way)
            assert exit_code(report) == 2
            (line, last) = in_words(report)
            assert "small-0: nothing was compared" in line and "offsets 0 to 100" in line
            assert last.startswith("not all could be compared")
        two.target.log = two.source.log
        for _ in range(2):
            report = two.round(way)
            assert exit_code(report) == 0, "nor when all was compared in an earlier round"
            assert "identical from 0 through offset 100, 100 records" in next(in_words(report))


@pytest.mark.parametrize("way", [Way.EXACT, Way.CONTENT])
def test_a_round_that_finds_nothing_new_keeps_the_proof_young(tmp_path: Path, way: Way) -> None:
    with rig(tmp_path, log(), log()) as two:
        two.round(way)
        (row,) = two.store.proofs()
        two.store.save_proofs([replace(row, proven_ms=row.proven_ms - RENEWED_MS)])
        report = two.round(way)
        (renewed,) = two.store.proofs()
        assert renewed.proven_ms >= row.proven_ms
        assert replace(renewed, proven_ms=0) == replace(row, proven_ms=0)
        assert not report.incomplete and report.partitions[0].compared == 0


@pytest.mark.parametrize("way", [Way.EXACT, Way.CONTENT])
def test_where_nobody_has_anything_both_sides_are_the_same(tmp_path: Path, way: Way) -> None:
    with rig(tmp_path, [], []) as two:
        assert exit_code(two.round(way)) == 0


def test_offsets_that_nobody_sees_need_no_record_on_the_target(tmp_path: Path) -> None:
    with rig(tmp_path, log(1), []) as two:
        view, header = two.source.log[0]
        ending = seal(header._replace(attributes=header.attributes | CONTROL | TRANSACTIONAL), view[HEADER_BYTES:])
        two.source.log = [(head_bytes(ending) + view[HEADER_BYTES:], ending)]
        assert exit_code(two.round(Way.CONTENT)) == 0
