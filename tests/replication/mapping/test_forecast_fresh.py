"""What the plan says of a topic whose queue is fresh, before its twin is there."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from twinshore.config.model import Link, QueuePolicy, QueueRules
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.cluster import LabCluster
from twinshore.replication.core.model import Create
from twinshore.replication.operations.run_plan import estimate_costs
from twinshore.state.store import open_store

KEEP = Link("east", "west")
FRESH = replace(KEEP, queue=QueueRules(QueuePolicy.DROP_OLDEST))


@pytest.mark.parametrize(("link", "mode"), [(KEEP, "exact"), (FRESH, "mapped")], ids=["keep", "fresh"])
def test_a_new_twin_is_what_its_queue_makes_it(
    east: LabCluster, tmp_path: Path, unique_topic: str, link: Link, mode: str
) -> None:
    east.create_topic(unique_topic)
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store, closing(KafkaCluster(east.cluster)) as source:
        (cost,) = estimate_costs(link, [Create(unique_topic, 1, 1, (), "")], {}, source, store)
    assert cost.mode == mode
