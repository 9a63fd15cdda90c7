"""What brokers take for min.insync.replicas where it is more than there are replicas, by their version."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ClusterFactory
from tests.scenarios.loss_stage import Sent
from tests.scenarios.mirror_rig import settings_text
from twinshore.advisor.core.simulator.explore import ExplorationRequest
from twinshore.advisor.core.simulator.model import Anomaly
from twinshore.advisor.operations.settings_advice import LossResult, find_losses
from twinshore.config.settings import parse_settings
from twinshore.lab.cluster import LabCluster
from twinshore.lab.jars import KAFKA_3, KAFKA_OLDEST

POWER = ExplorationRequest(records=1, faults_max=1, kinds=("power",))


@pytest.fixture(params=["newest", *(pytest.param(one, marks=pytest.mark.long) for one in (KAFKA_3, KAFKA_OLDEST))])
def lab(request: pytest.FixtureRequest, cluster_factory: ClusterFactory) -> Iterator[tuple[LabCluster, bool]]:
    """One broker, and whether it is of 3.7 or newer."""
    if request.param == "newest":
        yield request.getfixturevalue("east"), True
    else:
        yield cluster_factory(version=request.param), request.param == KAFKA_3


def answer(cluster: LabCluster, topic: str, folder: Path) -> LossResult:
    settings = parse_settings(settings_text(folder, [cluster.cluster], {}), name="settings", env={})
    return find_losses("", topic, POWER, settings)


def test_one_replica_is_enough_for_a_minimum_of_two_since_3_7(
    lab: tuple[LabCluster, bool], unique_topic: str, tmp_path: Path
) -> None:
    """acks=all is acknowledged there, or refused; of those that Twinshore can ask `simulate topic` says the same."""
    cluster, capped = lab
    cluster.create_topic(unique_topic, copies=1, settings={"min.insync.replicas": "2"})
    sent = Sent(cluster, unique_topic, {"acks": "all", "retries": 0})
    sent.send(1)
    sent.settle()
    assert sent.acknowledged == ([1] if capped else [])
    assert sent.refused == ({} if capped else {1: "NOT_ENOUGH_REPLICAS"})
    if capped:
        found = answer(cluster, unique_topic, tmp_path)
        assert found.loss_inputs.capped and found.loss_inputs.min_insync == 2
        assert Anomaly.LOST in found.answers[0].found, "what was taken is lost with the machine's power"
