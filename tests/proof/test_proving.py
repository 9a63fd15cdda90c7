"""Whole rounds over real sockets: what the store and the ledger know after retention, and when nothing is there."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.proof.logs import batched
from tests.proof.small_broker import TOPIC, SmallBroker
from twinshore.cli.app import app, register_verbs
from twinshore.config.errors import ConfigError
from twinshore.config.incident_policy import POLICY_HEAL, POLICY_STOP, IncidentKind
from twinshore.config.settings import load_settings
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.record_batch import (
    CONTROL_FLAG,
    HEADER_BYTES,
    TRANSACTIONAL_FLAG,
    Record,
    encode_header,
    seal,
)
from twinshore.proof.core.model import CompareMode
from twinshore.proof.core.partition_scan import DELETED_BY_RETENTION
from twinshore.proof.core.planning import PROOF_REFRESH_INTERVAL_MS, ProofOptions
from twinshore.proof.core.report import describe_report, exit_code
from twinshore.proof.jobs import run_bundle_in_process
from twinshore.proof.operations import ProofRequest, check_topics, prepare
from twinshore.proof.rounds import ProofReport, ProofRounds
from twinshore.state.core.values import Incident, LinkIdentity, TwinRow
from twinshore.state.store import Store, open_store

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

    def round(
        self,
        way: CompareMode | None = CompareMode.EXACT,
        sample: float = 0.0,
        stopped: Callable[[], bool] = lambda: False,
        again: bool = False,
    ) -> ProofReport:
        loaded = load_settings(self.settings, {})
        wishes = ProofOptions(range_records=30, sample=sample)
        proving = ProofRounds(
            loaded, self.store, run_bundle_in_process, options=wishes, tasks=1, mode=way, settle_s=0.0, stopped=stopped
        )
        return proving.round(loaded.links, [TOPIC], again=again)

    def keep_from(self, offset: int) -> None:
        self.source.start = self.target.start = offset


@contextlib.contextmanager
def rig(folder: Path, source: list[Record], target: list[Record], most: int = 5) -> Iterator[Rig]:
    chance = random.Random(1)
    east, west = (
        SmallBroker(name, batched(chance, side, side[-1].offset + 1 if side else 0, first=0, most=most))
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
        (opened,) = two.store.incidents.rows(open_only=True)
        assert opened.incident.from_offset == AT
        two.keep_from(AT + 20)
        report = two.round()
        (row,) = two.store.proofs.of()
        assert (row.state, row.from_offset, row.to_offset, row.records) == (
            "identical",
            AT + 20,
            COUNT,
            COUNT - AT - 20,
        )
        assert not report.differs and not report.incomplete
        (closed,) = two.store.incidents.rows()
        assert closed.closed_ms is not None and closed.incident.sentence.endswith(DELETED_BY_RETENTION)


def test_a_difference_ends_when_retention_has_taken_all_there_was(tmp_path: Path) -> None:
    with rig(tmp_path, log(), spoilt()) as two:
        assert two.round().differs
        two.keep_from(COUNT)
        report = two.round()
        assert not report.differs and not report.incomplete
        (row,) = two.store.proofs.of()
        assert (row.state, row.from_offset, row.to_offset, row.digest) == ("identical", COUNT, COUNT, "")
        assert two.store.incidents.rows(open_only=True) == ()


def test_a_difference_that_was_mended_is_closed_as_such(tmp_path: Path) -> None:
    with rig(tmp_path, log(), spoilt()) as two:
        assert two.round().differs
        two.target.log = two.source.log
        assert not two.round().differs
        (closed,) = two.store.incidents.rows()
        assert closed.closed_ms is not None and DELETED_BY_RETENTION not in closed.incident.sentence


@pytest.mark.parametrize("way", [CompareMode.EXACT, CompareMode.COMPACTED, CompareMode.CONTENT])
def test_a_target_that_holds_nothing_yet_is_not_said_to_be_identical(tmp_path: Path, way: CompareMode) -> None:
    with rig(tmp_path, log(), []) as two:
        for _ in range(2):
            report = two.round(way)
            assert exit_code(report) == 2
            (verdict, line) = describe_report(report)
            assert verdict.startswith("cannot tell: 0 of 1 partitions identical, 1 cannot be told")
            assert "small-0: nothing was compared" in line and "offsets 0 to 99" in line
        two.target.log = two.source.log
        for _ in range(2):
            report = two.round(way)
            assert exit_code(report) == 0, "nor when all was compared in an earlier round"
            (verdict,) = describe_report(report)
            assert verdict.startswith("identical: 1 of 1 partitions identical")
            (_, line) = describe_report(report, everything=True)
            assert "identical from 0 through offset 99, 100 records" in line


def test_a_proof_that_is_stopped_says_so_and_asks_nobody_whether_the_target_is_filled(tmp_path: Path) -> None:
    with rig(tmp_path, log(), log()) as two:
        seen = [0]

        def stopped() -> bool:  # Once both sides were looked at, and before anything is compared.
            seen[0] += 1
            return seen[0] > 1

        report = two.round(stopped=stopped)
        assert exit_code(report) == 2
        verdict, line, trouble, advice = describe_report(report)
        assert verdict.startswith("cannot tell: 0 of 1 partitions identical, 1 cannot be told")
        assert line.startswith("east->west: small-0: ") and line.endswith("offsets 0 to 99")
        assert [one.troubles[0][0] in trouble for one in report.partitions] == [True]
        assert advice == "    try: `twinshore prove` goes on from here, without --again"
        (told,) = describe_report(two.round(stopped=lambda: True))
        assert told.startswith("cannot tell: east->west: ")
        assert exit_code(two.round()) == 0


@pytest.mark.claim(
    "groups",
    "proof-verdict-first",
    "a proof that was stopped, or of a cluster that is away, says so in its verdict and waits for nobody",
)
def test_a_cluster_that_is_away_is_the_verdict_and_is_not_waited_for_once_it_is_stopped(tmp_path: Path) -> None:
    with rig(tmp_path, log(), log()) as two:
        text = two.settings.read_text()
        (west,) = [line for line in text.splitlines() if "bootstrap" in line][1:]
        two.settings.write_text(text.replace(west, 'bootstrap = ["127.0.0.1:1"]'))
        began_s = time.monotonic()
        report = two.round(stopped=lambda: time.monotonic() - began_s > 2)
        assert time.monotonic() - began_s < 25, "the patience with a cluster is longer"
        assert exit_code(report) == 2
        (verdict,) = describe_report(report)
        assert verdict.startswith("cannot tell: east->west: it was stopped"), verdict


def test_a_sample_of_a_target_that_holds_nothing_is_not_said_to_be_identical(tmp_path: Path) -> None:
    with rig(tmp_path, log(), []) as two:
        report = two.round(sample=0.5)
        assert exit_code(report) == 2
        (verdict, line) = describe_report(report)
        assert verdict.startswith("cannot tell") and "nothing was compared" in line and "offsets 0 to 99" in line
        two.target.log = two.source.log
        assert exit_code(two.round(sample=0.5)) == 0


@pytest.mark.parametrize("way", [CompareMode.EXACT, CompareMode.CONTENT])
def test_a_round_that_finds_nothing_new_keeps_the_proof_young(tmp_path: Path, way: CompareMode) -> None:
    with rig(tmp_path, log(), log()) as two:
        two.round(way)
        (row,) = two.store.proofs.of()
        two.store.proofs.save([replace(row, proven_ms=row.proven_ms - PROOF_REFRESH_INTERVAL_MS)])
        report = two.round(way)
        (renewed,) = two.store.proofs.of()
        assert renewed.proven_ms >= row.proven_ms
        assert replace(renewed, proven_ms=0, revision=0) == replace(row, proven_ms=0, revision=0)
        assert not report.incomplete and report.partitions[0].compared == 0


@pytest.mark.parametrize("way", [CompareMode.EXACT, CompareMode.CONTENT])
def test_where_nobody_has_anything_both_sides_are_the_same(tmp_path: Path, way: CompareMode) -> None:
    with rig(tmp_path, [], []) as two:
        assert exit_code(two.round(way)) == 0


def test_offsets_that_nobody_sees_need_no_record_on_the_target(tmp_path: Path) -> None:
    with rig(tmp_path, log(1), []) as two:
        view, header = two.source.log[0]
        ending = seal(
            header._replace(attributes=header.attributes | CONTROL_FLAG | TRANSACTIONAL_FLAG), view[HEADER_BYTES:]
        )
        two.source.log = [(encode_header(ending) + view[HEADER_BYTES:], ending)]
        assert exit_code(two.round(CompareMode.CONTENT)) == 0


def test_a_twin_that_lost_its_beginning_lacks_it_until_the_source_has_lost_it_too(tmp_path: Path) -> None:
    with rig(tmp_path, log(), log()) as two:
        assert exit_code(two.round()) == 0
        two.target.start = AT
        for _ in range(2):
            assert exit_code(two.round()) == 1
            (row,) = two.store.proofs.of()
            assert (row.state, row.from_offset, row.to_offset) == ("differs", AT, COUNT)
            (opened,) = two.store.incidents.rows(open_only=True)
            assert f"it lacks offsets 0 to {AT - 1}" in opened.incident.sentence
        two.source.start = AT
        assert exit_code(two.round()) == 0
        (row,) = two.store.proofs.of()
        assert (row.state, row.from_offset, row.to_offset, row.records) == ("identical", AT, COUNT, COUNT - AT)
        assert two.store.incidents.rows(open_only=True) == ()


def test_a_twin_that_lost_its_end_differs_until_it_has_it_again(tmp_path: Path) -> None:
    with rig(tmp_path, log(), log()) as two:
        two.round()
        whole, (before,) = two.target.log, two.store.proofs.of()
        two.target.log = [one for one in whole if one[1].last_offset < AT]
        end = two.target.end
        for _ in range(2):
            assert exit_code(two.round()) == 1
            (row,) = two.store.proofs.of()
            assert (row.state, row.to_offset, row.records) == ("differs", end, end)
            assert row.proven_ms == before.proven_ms, "nothing was proven since"
        (opened,) = two.store.incidents.rows(open_only=True)
        assert opened.incident.from_offset == end and "the target ends there" in opened.incident.sentence
        two.target.log = whole
        assert exit_code(two.round()) == 0
        (row,) = two.store.proofs.of()
        assert (row.state, row.to_offset, row.records) == ("identical", COUNT, COUNT)
        assert two.store.incidents.rows(open_only=True) == ()


def test_what_the_source_lost_of_its_end_is_foreign_on_the_target(tmp_path: Path) -> None:
    with rig(tmp_path, log(), log()) as two:
        two.round()
        two.source.log = [one for one in two.source.log if one[1].last_offset < AT]
        assert exit_code(two.round()) == 1
        (row,) = two.store.proofs.of()
        assert row.to_offset == two.source.end
        (opened,) = two.store.incidents.rows(open_only=True)
        assert "foreign record" in opened.incident.sentence


def test_what_both_sides_lost_leaves_the_books(tmp_path: Path) -> None:
    with rig(tmp_path, log(), log()) as two:
        two.round()
        two.keep_from(AT)
        assert exit_code(two.round()) == 0
        (row,) = two.store.proofs.of()
        assert (row.from_offset, row.to_offset, row.records) == (AT, COUNT, COUNT - AT)


@pytest.mark.parametrize(("kind", "code"), [(IncidentKind.TRUNCATION, 1), (IncidentKind.LOST_BY_TARGET, 2)])
def test_what_is_open_in_the_ledger_is_never_called_identical(tmp_path: Path, kind: IncidentKind, code: int) -> None:
    with rig(tmp_path, log(), log()) as two:
        assert exit_code(two.round()) == 0
        told = Incident("east->west", TOPIC, 0, kind, AT, AT + 10, POLICY_STOP, "what the ledger says")
        number = two.store.incidents.add(told, now_ms=1).id
        for _ in range(2):
            report = two.round()
            assert exit_code(report) == code
            text = "\n".join(describe_report(report))
            assert f"from offset {AT} on, by open incident {number}" in text
            assert "what the ledger says" in text
            (row,) = two.store.proofs.of()
            assert row.to_offset == AT, "from there on it is to be proven anew"
        two.store.incidents.close(number, now_ms=2)
        report = two.round()
        assert (exit_code(report), report.partitions[0].compared) == (0, COUNT - AT)


def test_a_row_of_the_ledger_elsewhere_changes_nothing(tmp_path: Path) -> None:
    with rig(tmp_path, log(), log()) as two:
        two.round()
        for topic, partition, offset in ((TOPIC, 1, AT), ("other", 0, AT), (TOPIC, -1, -1), (TOPIC, 0, COUNT)):
            told = Incident(
                "east->west", topic, partition, IncidentKind.REFUSED, offset, offset, POLICY_STOP, "elsewhere"
            )
            two.store.incidents.add(told, now_ms=1)
        assert exit_code(two.round()) == 0


def test_an_emptied_target_does_not_keep_its_proof_young(tmp_path: Path) -> None:
    with rig(tmp_path, log(), log()) as two:
        two.round()
        (row,) = two.store.proofs.of()
        two.store.proofs.save([replace(row, proven_ms=row.proven_ms - PROOF_REFRESH_INTERVAL_MS)])
        two.target.start = COUNT
        assert exit_code(two.round()) == 1
        two.target.log, two.target.start = [], 0
        assert exit_code(two.round()) == 1


def owing() -> tuple[list[Record], list[Record]]:
    """A source that has deleted k3 and cleaned all of it away, and a twin that shows it still."""
    return [record for record in log() if record.offset != 3], log()


def test_a_compacted_twin_that_owes_deletions_is_never_said_to_be_identical(tmp_path: Path) -> None:
    source, target = owing()
    with rig(tmp_path, source, target) as two:
        for turn in range(2):
            report = two.round(CompareMode.COMPACTED)
            assert report.differs and exit_code(report) == 1
            words = list(describe_report(report))
            assert words[0].startswith("NOT identical: 0 of 1 partitions identical, 1 differ")
            assert words[1].startswith("east->west: small-0: ") and "from 0 through offset 99" in words[1]
            assert "DELETIONS OWED" in words[2]
            assert ("offset 3, key k3" in words[3]) is (turn == 0), "its keys are looked at once"
        (opened,) = two.store.incidents.rows(open_only=True)
        told = opened.incident
        assert (told.kind, told.from_offset, told.to_offset) == (IncidentKind.DELETIONS_OWED, 3, 4)
        assert "k3" not in told.sentence
        (row,) = two.store.proofs.of()
        assert (row.state, row.to_offset) == ("identical", COUNT), "the proof itself is not held up"


def test_deletions_that_were_paid_close_their_row(tmp_path: Path) -> None:
    source, target = owing()
    with rig(tmp_path, source, target) as two:
        assert two.round(CompareMode.COMPACTED).differs
        two.target.log = two.source.log
        loaded = load_settings(two.settings, {})
        proving = ProofRounds(
            loaded, two.store, run_bundle_in_process, options=ProofOptions(), tasks=1, mode=CompareMode.COMPACTED
        )
        assert exit_code(proving.round(loaded.links, [TOPIC], again=True)) == 0
        (closed,) = two.store.incidents.rows()
        assert closed.closed_ms is not None


def test_keys_that_could_not_be_compared_are_told(tmp_path: Path) -> None:
    with rig(tmp_path, log(), log()) as two:
        assert exit_code(two.round(CompareMode.COMPACTED)) == 0
        (row,) = two.store.key_checks.of()
        two.store.key_checks.save([replace(row, may_lack_tombstones=1, checked_end=0)])
        two.source.faults.extend([int(Code.topic_authorization_failed)] * 3)
        report = two.round(CompareMode.COMPACTED)
        assert report.incomplete
        assert [one.row.topic for one in report.partitions if one.troubles] == [TOPIC]
        assert two.store.key_checks.of()[0].may_lack_tombstones == 1


def test_what_was_carried_again_after_a_loss_is_proven_anew(tmp_path: Path) -> None:
    with rig(tmp_path, log(), log()) as two:
        two.round()
        told = Incident(
            "east->west", TOPIC, 0, IncidentKind.LOST_BY_TARGET, AT, AT + 10, POLICY_HEAL, "lost and carried again"
        )
        two.store.incidents.close(two.store.incidents.add(told, now_ms=1).id, now_ms=2)
        report = two.round()
        assert (exit_code(report), report.partitions[0].compared) == (0, COUNT - AT), "the row came and went between"
        assert two.round().partitions[0].compared == 0, "once is enough"
        (row,) = two.store.proofs.of()
        assert (row.from_offset, row.to_offset, row.records) == (0, COUNT, COUNT)


@pytest.mark.parametrize(("asked", "meant"), [("smal", "; did you mean small?"), ("payments", ""), (".*", "")], ids=str)
def test_a_topic_that_no_source_has_is_refused_before_spark_is_started(tmp_path: Path, asked: str, meant: str) -> None:
    register_verbs()
    with rig(tmp_path, log(), log()) as two:
        words = ["prove", "--settings", str(two.settings), "--topic", TOPIC, "--topic", asked]
        result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, ConfigError), result.output
    assert (result.exception.code, result.output) == ("kafka.unknown-topic", "")
    assert result.exception.values == {"topic": asked, "clusters": "east", "near": meant}


def test_a_topic_that_is_there_or_may_be_made_later_is_not_refused(tmp_path: Path) -> None:
    with rig(tmp_path, log(), log()) as two:
        loaded = load_settings(two.settings, {})
        two.store.twins.save([TwinRow("east->west", "gone", 0, "aa", "bb", 0, 0, 1)])
        named = (
            ProofRequest(topics=[TOPIC]),
            ProofRequest(topics=["gone"]),
            ProofRequest(topics=["late"], continuous=True),
        )
        for asked in (*named, ProofRequest()):
            check_topics(prepare(asked, loaded), loaded, two.store)
        two.store.links.save_identity(LinkIdentity("east->west", 7, 0, "another", "west"))
        check_topics(prepare(ProofRequest(topics=["late"]), loaded), loaded, two.store)
