"""Targets that make it hard to keep a place: one forgets idle groups after a minute, one loses a coordinator."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.conftest import ClusterFactory
from tests.scenarios.test_groups import commit, committed
from tests.scenarios.test_mirror_basic import fill
from twinshore.config.settings import Settings, parse_settings
from twinshore.groups.sync import GroupSync
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.cluster import LabCluster
from twinshore.state.core.values import ProgressRecord, TwinRow
from twinshore.state.store import Store, open_store

FORGETS = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"}
WATCHED_S = 80.0


@contextmanager
def link_between(
    folder: Path, east: LabCluster, west: LabCluster, topic: str, *, partitions: int = 1, rules: str = ""
) -> Iterator[tuple[Settings, Store]]:
    """A link whose one topic is the same on both sides, without a mirror."""
    for lab in (east, west):
        lab.create_topic(topic, partitions=partitions)
        fill(lab, topic, 10)
    text = f'[store]\nurl = "sqlite:///{folder}/store.db"\n'
    text += "".join(f"[clusters.{lab.name}]\nbootstrap = {list(lab.bootstrap)}\n" for lab in (east, west))
    text += f'[links."east->west"]\n[links."east->west".groups]\n{rules}'
    settings = parse_settings(text, name="test", env={})
    with open_store(settings.store.url) as store:
        here, there = (_id_of(lab, topic) for lab in (east, west))
        rows = [TwinRow("east->west", topic, number, here, there, 0, 0, 1) for number in range(partitions)]
        store.twins.save(rows)
        store.progress.record(
            [
                ProgressRecord(
                    link="east->west",
                    topic=topic,
                    partition=0,
                    from_offset=0,
                    to_offset=10,
                    records=10,
                    bytes=100,
                    batches=1,
                    source_end=10,
                    first_ms=0,
                    last_ms=1,
                )
            ]
        )
        yield settings, store


def _id_of(lab: LabCluster, topic: str) -> str:
    with closing(KafkaCluster(lab.cluster)) as kafka:
        return kafka.metadata([topic]).topics[topic].topic_id.hex()


@contextmanager
def rounds_between(folder: Path, east: LabCluster, west: LabCluster, topic: str) -> Iterator[GroupSync]:
    """Its rounds."""
    with (
        link_between(folder, east, west, topic) as (settings, store),
        closing(GroupSync(settings.links[0], settings, store)) as rounds,
    ):
        yield rounds


def turn_until(rounds: GroupSync, done: Callable[[], bool], within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while not done():
        assert time.monotonic() < deadline
        rounds.run(time.monotonic())
        time.sleep(0.5)


@pytest.mark.long
def test_an_idle_group_is_kept_for_as_long_as_the_source_knows_it(
    tmp_path: Path, cluster_factory: ClusterFactory, east: LabCluster, unique_topic: str
) -> None:
    west = cluster_factory("west", settings=FORGETS)
    with rounds_between(tmp_path, east, west, unique_topic) as rounds:
        commit(east, "idle", {(unique_topic, 0): 7})
        commit(west, "alone", {(unique_topic, 0): 3})
        turn_until(rounds, lambda: committed(west, "idle", unique_topic) == 7, 20)
        missing = 0
        began_s = time.monotonic()
        while time.monotonic() - began_s < WATCHED_S:
            rounds.run(time.monotonic())
            time.sleep(1.0)
            missing += committed(west, "idle", unique_topic) != 7
    assert missing == 0
    assert committed(west, "alone", unique_topic) < 0, "the target forgets nothing, so nothing was shown"


@pytest.mark.long
def test_a_coordinator_that_dies_takes_no_place_with_it_and_sets_nobody_back(
    tmp_path: Path, cluster_factory: ClusterFactory, east: LabCluster, unique_topic: str
) -> None:
    west = cluster_factory("west", brokers=3)
    names = [f"of-three-{number}" for number in range(12)]
    with rounds_between(tmp_path, east, west, unique_topic) as rounds:
        for name in names:
            commit(east, name, {(unique_topic, 0): 4})
        turn_until(rounds, lambda: all(committed(west, name, unique_topic) == 4 for name in names), 40)
        coordinators = rounds.target_groups.coordinators(names)
        assert len(set(coordinators.values())) > 1, "all groups have one coordinator"
        commit(west, names[0], {(unique_topic, 0): 9})
        commit(west, names[-1], {(unique_topic, 0): 9})
        west.brokers[coordinators[names[0]] - 1].kill()
        for name in names[1:-1]:
            commit(east, name, {(unique_topic, 0): 6})
        turn_until(rounds, lambda: all(committed(west, name, unique_topic) == 6 for name in names[1:-1]), 60)
        assert committed(west, names[0], unique_topic) == 9
        assert committed(west, names[-1], unique_topic) == 9
