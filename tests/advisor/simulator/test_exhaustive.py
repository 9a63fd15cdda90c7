"""Every order in which things can happen to three replicas and four records, with two faults at most."""

from __future__ import annotations

import time

import pytest

from twinshore.advisor.core.simulator.model import Anomaly, FaultKind, ModelConfig, ProducerAcks, TruncationMode
from twinshore.advisor.core.simulator.search import Exploration, explore

RECORDS, FAULTS, WITHIN_S = 4, 2, 180.0
KEPT = frozenset(FaultKind) - {FaultKind.POWER}
# CP with whatever may happen to it. Logs that are cut are compared where disks keep what was written.
RUNS = {
    "CP": ModelConfig(records=RECORDS, min_insync=2, elr=True),
    "AP": ModelConfig(records=RECORDS, acks=ProducerAcks.LEADER, idempotent=False),
    "high watermark": ModelConfig(records=RECORDS, min_insync=2, truncation=TruncationMode.HIGH_WATERMARK, faults=KEPT),
    "leader epochs": ModelConfig(records=RECORDS, min_insync=2, faults=KEPT),
}
LOSES = {"CP": None, "AP": 1, "high watermark": 2, "leader epochs": None}


def verdict(found: Exploration) -> str:
    lost = found.found.get(Anomaly.LOST)
    said = f"loses by {lost.faults} of {len(lost.steps)} steps" if lost else "loses none"
    return f"{said} ({found.states:,} states)"


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.claim(
    "advisor",
    "exhaustive",
    f"of 3 replicas, {RECORDS} messages, {FAULTS} faults each order is looked at: CP loses none, AP does, cutting by"
    f" the high watermark does, leader epochs do not; the four within {WITHIN_S:g} s of one core",
)
def test_each_order_of_four_records_and_two_faults() -> None:
    begun_s = time.process_time()
    found = {
        name: explore(setup, faults_max=FAULTS, sought=(Anomaly.LOST,), states_max=2_000_000)
        for name, setup in RUNS.items()
    }
    took_s = time.process_time() - begun_s
    for name, one in found.items():
        lost = one.found.get(Anomaly.LOST)
        assert (lost.faults if lost else None) == LOSES[name], name
        assert one.whole or lost, "nothing was left out"
    assert took_s < WITHIN_S
    print(f"told: {'; '.join(f'{name} {verdict(one)}' for name, one in found.items())}; {took_s:.0f} s of one core")
