"""Rounds without an end: one that fails is told and the next may succeed, and nothing is begun once stopped."""

from __future__ import annotations

import threading

from tests.proof.test_telling import BAD, GOOD, report
from twinshore.fleet import KafkaError
from twinshore.fleet.settings_proof import ProofSettings
from twinshore.proof.continuous import keep_proving, wishes_of
from twinshore.proof.planning import Wishes
from twinshore.proof.proving import Report


def test_rounds_go_on_until_stopped_whatever_one_of_them_says() -> None:
    stop, told, log = threading.Event(), list[Report](), list[str]()
    coming: list[Report | KafkaError] = [
        report(GOOD),
        KafkaError("west: away", hint="start it"),
        report(BAD),
        report(GOOD),
    ]

    def one_round() -> Report:
        found = coming.pop(0)
        if isinstance(found, KafkaError):
            raise found
        return found

    def tell(found: Report) -> None:
        told.append(found)
        if found.differs:
            stop.set()

    assert keep_proving(one_round, tell, 0.01, stop.is_set, log.append) == 1
    assert told == [report(GOOD), report(BAD)]
    assert log == ["not proven: west: away (start it)"]
    assert len(coming) == 1, "nothing is begun once stopped"


def test_the_settings_are_what_is_wished_for() -> None:
    settings = ProofSettings(stretch_records=5_000, throttle_mb_s=2.5, digest=False)
    assert wishes_of(settings) == Wishes(5_000, 2_500_000, False)
