"""What was proven is read again for ever, the oldest first, within its budget; over real sockets."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from testkit.log_lines import LogLines
from tests.proof.small_broker import TOPIC
from tests.proof.test_proving import AT, COUNT, Rig, log, rig, spoilt
from twinshore.config.sections import proof
from twinshore.config.settings import load_settings
from twinshore.kafka.protocol.record_batch import Record
from twinshore.proof.core.model import CompareMode
from twinshore.proof.core.planning import (
    ProofOptions,
    describe_reread_pass,
    explain_unreachable_age,
    format_duration,
    measure_reread_pass,
)
from twinshore.proof.core.report import exit_code
from twinshore.proof.jobs import run_bundle_in_process
from twinshore.proof.rounds import ProofRounds
from twinshore.proof.service import Rereader
from twinshore.state.core.values import ProofRow

HOUR_MS = 3_600_000


@dataclass
class Again:
    """Rounds, and what reads again between them, over a rig's two brokers."""

    two: Rig
    said: LogLines
    way: CompareMode = CompareMode.EXACT
    mb_s: float = 100.0
    read_again_h: float = 0.0

    def __post_init__(self) -> None:
        loaded = load_settings(self.two.settings, {})
        self.links = loaded.links
        section = replace(loaded.proof, reread_mb_s=self.mb_s, read_again_h=self.read_again_h)
        wishes = ProofOptions(range_records=30)
        self.proving = ProofRounds(
            loaded, self.two.store, run_bundle_in_process, options=wishes, tasks=1, mode=self.way, settle_s=0.0
        )
        self.hands = Rereader(
            loaded.having(proof.SECTION, section),
            self.two.store,
            run_bundle_in_process,
            wishes,
            looks=self.proving.seen,
            keep=self.proving.keep,
            rest_s=0.0,
        )

    def round(self) -> int:
        return exit_code(self.proving.round(self.links, [TOPIC]))

    def until(self, holds: Callable[[], bool], within_s: float = 20.0) -> None:
        deadline = time.monotonic() + within_s
        while not holds():
            assert time.monotonic() < deadline, (self.said, self.row)
            self.hands.turn()
            time.sleep(0.01)

    @property
    def row(self) -> ProofRow:
        (row,) = self.two.store.proofs.of()
        return row

    def aged(self) -> None:
        """All that was read was read long ago."""
        self.two.store.proofs.save([replace(self.row, oldest_ms=self.row.oldest_ms - HOUR_MS)])


def fresh(folder: Path) -> Path:
    found = folder / "another"
    found.mkdir()
    return found


@pytest.mark.parametrize("way", [CompareMode.EXACT, CompareMode.COMPACTED, CompareMode.CONTENT])
def test_what_changes_below_a_proof_is_found_by_the_next_pass(
    tmp_path: Path, way: CompareMode, log_lines: LogLines
) -> None:
    with rig(tmp_path, log(), log()) as two:
        again = Again(two, log_lines, way)
        assert again.round() == 0
        clean = two.target.log
        with rig(fresh(tmp_path), log(), spoilt()) as other:
            two.target.log = other.target.log
        assert again.round() == 0, "no border tells it"
        again.until(lambda: bool(two.store.incidents.rows(open_only=True)))
        (opened,) = two.store.incidents.rows(open_only=True)
        assert (opened.incident.kind, opened.incident.from_offset) == ("content differs", AT)
        assert (again.row.state, again.row.to_offset) == ("differs", AT)
        assert any("read again" in line and f"offset {AT}" in line for line in again.said)
        assert again.round() == 1
        two.target.log = clean
        assert again.round() == 0
        assert two.store.incidents.rows(open_only=True) == ()
        assert (again.row.to_offset, again.row.records) == (COUNT, COUNT)
        again.hands.close()


@pytest.mark.parametrize("way", [CompareMode.EXACT, CompareMode.COMPACTED, CompareMode.CONTENT])
def test_a_pass_makes_all_of_a_proof_young_and_changes_nothing_else(
    tmp_path: Path, way: CompareMode, log_lines: LogLines
) -> None:
    with rig(tmp_path, log(), log()) as two:
        again = Again(two, log_lines, way)
        again.round()
        again.aged()
        before = again.row
        again.until(lambda: again.row.read_ms > before.read_ms + HOUR_MS // 2)
        after = again.row
        assert (
            replace(after, oldest_ms=before.oldest_ms, bytes_read=before.bytes_read, revision=before.revision) == before
        )
        assert after.bytes_read > 0
        again.hands.close()


def test_what_was_read_is_kept_and_another_process_goes_on_there(tmp_path: Path, log_lines: LogLines) -> None:
    with rig(tmp_path, log(), log()) as two:
        again = Again(two, log_lines, mb_s=0.0005)
        again.round()
        again.aged()
        began_ms = again.row.read_ms
        again.until(lambda: again.row.reread_offset > 0)
        at = again.row.reread_offset
        assert at < again.row.reread_end == COUNT and again.row.read_ms == began_ms
        again.hands.close()
        two.source.fetched.clear()
        later = Again(two, log_lines)
        later.round()
        later.until(lambda: later.row.read_ms > began_ms)
        assert two.source.fetched[0] == at
        later.hands.close()


@pytest.mark.claim(
    "groups",
    "proof-budget",
    "what is proven is read again, the oldest first, within its budget of bytes per second",
)
def test_the_budget_is_kept(tmp_path: Path, log_lines: LogLines) -> None:
    many = [Record(n, n, b"k%d" % n, b"%d" % n * 200) for n in range(3_000)]
    with rig(tmp_path, many, many) as two:
        again = Again(two, log_lines, mb_s=0.4)
        again.round()
        again.aged()
        began_s = time.monotonic()
        again.until(lambda: time.monotonic() - began_s > 6.0)
        assert 0 < again.hands.read_bytes / (time.monotonic() - began_s) < 1.1 * 0.4e6
        again.hands.close()


def test_an_age_that_the_budget_cannot_keep_is_refused_with_the_figure(tmp_path: Path, log_lines: LogLines) -> None:
    with rig(tmp_path, log(), log()) as two:
        again = Again(two, log_lines, mb_s=0.000001, read_again_h=0.5)
        again.round()
        again.hands.turn()
        (said,) = again.said
        found = measure_reread_pass([again.row], 1.0)
        assert found is not None and found.seconds == found.size > 1_800
        assert said == explain_unreachable_age(found, 1.0, 0.5)
        assert said.startswith("read_again_h = 0.5 cannot be kept: a pass takes ") and "at least" in said
        enough = measure_reread_pass([again.row], found.size / 1_800)
        assert enough is not None and explain_unreachable_age(enough, found.size / 1_800, 0.5) == ""
        assert said in list(describe_reread_pass([again.row], 1.0, 0.5, again.row.read_ms))
        again.hands.close()


def test_words_say_since_when_and_how_long(tmp_path: Path, log_lines: LogLines) -> None:
    with rig(tmp_path, log(), log()) as two:
        again = Again(two, log_lines)
        again.round()
        row = again.row
        (said,) = describe_reread_pass([row], 1_000.0, 0.0, row.read_ms + 3 * HOUR_MS)
        assert "about 0 MB" in said, said
        assert f": {TOPIC}-0 " in said and said.endswith(" 3.0 h ago"), said
        (would,) = describe_reread_pass([row], 1_000.0, 9.0, row.read_ms, going=False)
        assert would.startswith("a continuous proof ") and "about 0 MB" in would, would
        assert not list(describe_reread_pass([row], 1_000.0, 0.0, row.read_ms, going=False)), "nobody asked for one"
        (unread,) = describe_reread_pass([replace(row, oldest_ms=0)], 0.0, 0.0, 5)
        assert "(reread_mb_s = 0): " in unread, unread
        assert f"; {TOPIC}-0 " in unread, unread
        assert list(describe_reread_pass([replace(row, to_offset=0)], 1.0, 0.0, 5)) == []
        assert [format_duration(one) for one in (5, 300, 7_200, 864_000)] == ["5 s", "5.0 min", "2.0 h", "10.0 days"]
