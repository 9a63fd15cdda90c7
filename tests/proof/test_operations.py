"""Proofs asked as a program asks, over real sockets."""

from __future__ import annotations

from pathlib import Path

from testkit.errors import raises
from tests.proof.small_broker import TOPIC
from tests.proof.test_proving import AT, log, rig, spoilt
from twinshore.config.errors import ConfigError
from twinshore.config.settings import load_settings
from twinshore.proof.jobs import run_bundle_in_process
from twinshore.proof.operations import ProofRequest, prepare, prove, sentences_of, values_of
from twinshore.proof.rounds import ProofReport


def test_a_proof_tells_each_report_and_comes_back_with_its_exit_code(tmp_path: Path) -> None:
    with rig(tmp_path, log(), spoilt()) as two:
        settings, told = load_settings(two.settings, {}), list[ProofReport]()
        prepared = prepare(ProofRequest(topics=[TOPIC], way="exact"), settings)
        code = prove(
            prepared,
            settings,
            two.store,
            run_bundle_in_process,
            tell=told.append,
            stopped=lambda: False,
        )
        (report,) = told
        assert (code, report.differs) == (1, True)
        assert "seed" not in values_of(report, prepared, settings)
        first = next(sentences_of(report, prepared, settings, everything=False, now_ms=1))
        assert first.startswith("NOT identical")
        assert [row.to_offset for row in two.store.proofs.of()] == [AT]


def test_a_sample_can_be_drawn_again(tmp_path: Path) -> None:
    with rig(tmp_path, log(), log()) as two:
        settings = load_settings(two.settings, {})
        prepared = prepare(ProofRequest(sample=0.5, seed=7), settings)
        again = prepare(ProofRequest(sample=0.5, seed=prepared.seed), settings)
        assert (again.options, prepared.options.seed) == (prepared.options, 7)
        report = ProofReport((), (), 0.0)
        assert values_of(report, prepared, settings)["seed"] == 7
        *_, last = sentences_of(report, prepared, settings, everything=False, now_ms=1)
        assert last == "the same sample again: --seed 7"


def test_what_makes_no_sense_is_refused_before_anything_is_opened(tmp_path: Path) -> None:
    with rig(tmp_path, log(1), log(1)) as two:
        settings = load_settings(two.settings, {})
    with raises(ConfigError, "proof.sample-with-behind-max"):
        prepare(ProofRequest(sample=0.1, behind_max=0), settings)
    with raises(ConfigError, "config.unknown-choice", option="mode", near="; did you mean content?"):
        prepare(ProofRequest(way="contents"), settings)
    with raises(ConfigError, "config.unknown-link"):
        prepare(ProofRequest(links=["north->west"]), settings)
