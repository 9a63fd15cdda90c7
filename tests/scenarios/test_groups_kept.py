"""A target that forgets idle groups after a minute, and a source that does not: what is committed again stays."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.conftest import ClusterFactory
from tests.scenarios.test_groups import commit, committed
from tests.scenarios.test_mirror_basic import fill
from twinshore.fleet.settings import parse_settings
from twinshore.groups.rounds import Rounds
from twinshore.lab import LabCluster
from twinshore.store import TwinRow, open_store

FORGETS = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"}
WATCHED_S = 80.0


@pytest.mark.long
def test_an_idle_group_is_kept_for_as_long_as_the_source_knows_it(
    tmp_path: Path, cluster_factory: ClusterFactory, east: LabCluster, unique_topic: str
) -> None:
    west = cluster_factory("west", settings=FORGETS)
    for lab in (east, west):
        lab.create_topic(unique_topic)
        fill(lab, unique_topic, 10)
    text = f'[store]\nurl = "sqlite:///{tmp_path}/store.db"\n'
    text += "".join(f"[clusters.{lab.name}]\nbootstrap = {list(lab.bootstrap)}\n" for lab in (east, west))
    settings = parse_settings(text + '[links."east->west"]\n', name="test", env={})
    with open_store(settings.store.url) as store:
        rounds = Rounds(settings.links[0], settings, store)
        try:
            here, there = (
                one.metadata([unique_topic]).topics[unique_topic].topic_id.hex()
                for one in (rounds.source, rounds.target)
            )
            store.save_twins([TwinRow("east->west", unique_topic, 0, here, there, 0, 0, 1)])
            commit(east, "idle", {(unique_topic, 0): 7})
            commit(west, "alone", {(unique_topic, 0): 3})
            missing = 0
            began_s = time.monotonic()
            while time.monotonic() - began_s < WATCHED_S:
                rounds.run(time.monotonic())
                time.sleep(1.0)
                # The first round may find no coordinator yet.
                if time.monotonic() - began_s > 10:
                    missing += committed(west, "idle", unique_topic) != 7
        finally:
            rounds.close()
    assert missing == 0
    assert committed(west, "alone", unique_topic) < 0, "the target forgets nothing, so nothing was shown"
