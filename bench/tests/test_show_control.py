"""The verdicts about live control, on figures of the test's own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.show import control as show_control
from bench.show.control import Trial, claims
from testkit.control import Latency, Throttled

GOOD = Trial(
    link=Throttled(5_100_000, 5_000_000, 1.0),
    topic=Throttled(4_900_000, 5_000_000, 1.0),
    alone=Latency(100, 4.0, 9.0),
    beside_paused=Latency(100, 4.5, 10.0),
    paused_bytes_s=0.0,
    beside_throttled=Latency(99, 5.0, 12.0),
    beside=Throttled(190_000, 200_000, 1.0),
    resumed_s=1.5,
    rate_of_priority=3.9,
)
BAD = {
    "throttle-link": replace(GOOD, link=Throttled(5_600_000, 5_000_000, 1.0)),
    "throttle-topic": replace(GOOD, topic=Throttled(5_000_000, 5_000_000, 6.0)),
    "paused-neighbour": replace(GOOD, resumed_s=9.0),
    "throttled-neighbour": replace(GOOD, beside_throttled=Latency(60, 4.0, 9.0)),
    "priority": replace(GOOD, rate_of_priority=1.1),
}


def test_all_hold_when_the_figures_are_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show_control, "run_trial", lambda _long: GOOD)
    found = [claim.run(False) for claim in claims()]
    assert all(one.passed for one in found)
    names = [name for one in found for name, _ in one.numbers]
    assert len(set(names)) == len(names)


WITHOUT_EFFECT = {
    "paused-neighbour": replace(GOOD, paused_bytes_s=300_000.0),
    "throttled-neighbour": replace(GOOD, beside=Throttled(300_000, 200_000, 1.0)),
}


@pytest.mark.parametrize(("name", "trial"), [*BAD.items(), *WITHOUT_EFFECT.items()])
def test_each_claim_falls_short_alone(name: str, trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show_control, "run_trial", lambda _long: trial)
    assert [claim.name for claim in claims() if not claim.run(False).passed] == [name]
