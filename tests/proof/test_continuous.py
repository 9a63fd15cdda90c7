"""Rounds without an end: one that fails is told and the next may succeed, and nothing is begun once stopped."""

from __future__ import annotations

import threading

from testkit.errors import raises
from testkit.log_lines import LogLines
from tests.proof.test_telling import BAD, GOOD, report
from twinshore.config.errors import ConfigError, KafkaError
from twinshore.config.sections.proof import ProofSettings
from twinshore.config.settings import parse_settings
from twinshore.proof.core.planning import ProofOptions
from twinshore.proof.operations import ProofRequest, resolve_proof_options
from twinshore.proof.rounds import ProofReport
from twinshore.proof.service import proof_options, run_proof_rounds


def test_rounds_go_on_until_stopped_whatever_one_of_them_says(log_lines: LogLines) -> None:
    stop, told = threading.Event(), list[ProofReport]()
    coming: list[ProofReport | KafkaError] = [
        report(GOOD),
        KafkaError("west: away", hint="start it"),
        report(BAD),
        report(GOOD),
    ]

    def one_round() -> ProofReport:
        found = coming.pop(0)
        if isinstance(found, KafkaError):
            raise found
        return found

    def tell(found: ProofReport) -> None:
        told.append(found)
        if found.differs:
            stop.set()

    assert run_proof_rounds(one_round, tell, 0.01, stop.is_set) == 1
    assert told == [report(GOOD), report(BAD)]
    assert log_lines == ["not proven: west: away (start it)"]
    assert len(coming) == 1, "nothing is begun once stopped"


def test_the_settings_are_what_is_wished_for() -> None:
    settings = ProofSettings(range_records=5_000, throttle_mb_s=2.5, digest=False)
    assert proof_options(settings) == ProofOptions(5_000, 2_500_000, False)


def test_what_is_read_again_is_a_part_of_the_flags_throttle_too() -> None:
    settings = parse_settings("[proof]\nthrottle_mb_s = 9\nreread_mb_s = 2", name="t", env={}).proof
    beside = resolve_proof_options(ProofRequest(throttle_mb_s=5.0, continuous=True), settings)
    assert beside.bytes_s == 3_000_000, "both together read 5 MB/s"
    assert resolve_proof_options(ProofRequest(throttle_mb_s=5.0), settings).bytes_s == 5_000_000
    assert resolve_proof_options(ProofRequest(continuous=True), settings).bytes_s == 7_000_000
    assert resolve_proof_options(ProofRequest(throttle_mb_s=0.0, continuous=True), settings).bytes_s == 0, "no bound"
    with raises(ConfigError, "proof.throttle-too-low"):
        resolve_proof_options(ProofRequest(throttle_mb_s=1.0, continuous=True), settings)
    assert beside.per_task(4).bytes_s == 750_000
