"""Losses of the simulator's stories, done on three real brokers: the same record is lost, refused or kept there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testkit.clients import delete_records
from tests.scenarios.loss_stage import SETTINGS, Reading, Sent, Stage, ended, log_of, until
from twinshore.config.model import TopicPartition
from twinshore.lab.cluster import LabCluster

BESIDE = pytest.mark.claim(
    "advisor",
    "beside-brokers",
    "losses of the stories have the same outcome on three real brokers, record by record: acks=1, refused writers, an"
    " unclean election, commits by a timer, newest and oldest after a restart, places that are forgotten",
)
Staged = Callable[..., Stage]


@pytest.fixture(scope="module")
def lab() -> Iterator[LabCluster]:
    with LabCluster("losses", brokers=3, heap_mb=256, settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def staged(lab: LabCluster, unique_topic: str) -> Iterator[Staged]:
    made: list[Stage] = []

    def make(copies: int = 1, **settings: str) -> Stage:
        names = {name.replace("_", "."): value for name, value in settings.items()}
        made.append(Stage(lab, unique_topic, copies, names))
        return made[0]

    yield make
    for stage in made:
        stage.whole_again()


def tell(story: str, *what: object) -> None:
    print(f"told: {story}: {', '.join(map(str, what))}")


@BESIDE
@pytest.mark.long
def test_acks_1_loses_with_the_leader_what_no_follower_had_fetched(staged: Staged) -> None:
    stage, model = staged(3), ended("acks-1")
    sent = Sent(stage.cluster, stage.topic, {"acks": 1})
    with stage.standing_still(stage.followers):
        sent.send(1)
        sent.settle()
        stage.leader.kill()
    stage.led_by_another(stage.leader)
    stage.leader.restart()
    stage.in_sync(3)
    assert (sent.acknowledged, stage.log()) == (list(model.acknowledged), log_of(model)) == ([1], [])
    assert {len(replica.log) for replica in model.replicas} == {0}
    tell("acks-1", "record 1 was acknowledged, and is in no log")


@BESIDE
@pytest.mark.long
def test_an_unclean_election_cuts_what_the_new_leader_lacks(staged: Staged) -> None:
    stage, model = staged(2, unclean_leader_election_enable="true", min_insync_replicas="1"), ended("unclean")
    (follower,) = stage.followers
    follower.kill()
    stage.in_sync(1)
    sent = Sent(stage.cluster, stage.topic, {"acks": "all"})
    sent.send(1)
    sent.settle()
    stage.leader.kill()
    # Two of three have to be there for an election.
    follower.restart()
    stage.led_by(follower)
    stage.leader.restart()
    stage.in_sync(2)
    assert (sent.acknowledged, stage.log()) == (list(model.acknowledged), log_of(model)) == ([1], [])
    tell("unclean", "record 1 was acknowledged by all in sync, and was cut")


@BESIDE
@pytest.mark.long
def test_with_too_few_in_sync_writers_are_refused_and_nothing_is_lost(staged: Staged) -> None:
    stage, model = staged(2, min_insync_replicas="2"), ended("refused")
    (follower,) = stage.followers
    follower.kill()
    stage.in_sync(1)
    once = Sent(stage.cluster, stage.topic, {"acks": "all", "retries": 0})
    once.send(1)
    once.settle()
    assert (once.acknowledged, once.refused) == ([], {1: "NOT_ENOUGH_REPLICAS"})
    follower.restart()
    stage.in_sync(2)
    again = Sent(stage.cluster, stage.topic, {"acks": "all"})
    again.send(1)
    again.settle()
    stage.leader.kill()
    stage.led_by(follower)
    # Alone it shows nothing above the high watermark that it has heard of (KIP-966): a second one has to be there.
    stage.leader.restart()
    stage.in_sync(2)
    assert stage.seen().leader == follower.node_id
    assert (again.acknowledged, stage.log()) == (list(model.acknowledged), log_of(model)) == ([1], [1])
    tell("refused", "NOT_ENOUGH_REPLICAS with one of two in sync; acknowledged with two, it outlives the leader")


@BESIDE
@pytest.mark.long
def test_a_timer_commits_what_was_not_handled(staged: Staged, tmp_path: Path) -> None:
    stage, model = staged(), ended("auto-commit")
    send_all(stage, 1)
    reading = Reading(stage, **{"enable.auto.commit": True, "auto.offset.reset": "earliest"})
    assert reading.dies_at_work(tmp_path, after_s=1.5) == 1
    assert reading.committed() == 1 == (model.reader.committed if model.reader else None)
    reading.reads(1, meanwhile=lambda: send_all(stage, 2))
    assert reading.handled == [2], "record 1 is passed"
    assert (stage.log(), model.reader and model.reader.handled) == ([1, 2], (0,))
    tell("auto-commit", "record 1 is in the log, and the group has passed it unhandled")


@BESIDE
@pytest.mark.long
def test_newest_after_a_restart_is_never_read_again(staged: Staged, tmp_path: Path) -> None:
    stage, model = staged(), ended("newest")
    reading = Reading(stage, **{"enable.auto.commit": False, "auto.offset.reset": "latest"})
    # Its first consumer is there before the record is, and so gets it.
    assert reading.dies_at_work(tmp_path, once_placed=lambda: send_all(stage, 1)) == 1
    assert reading.committed() < 0
    send_all(stage, 2)
    reading.reads(1, meanwhile=lambda: send_all(stage, 3))
    assert reading.handled == [3]
    assert stage.log()[:2] == log_of(model) == [1, 2]
    assert model.reader is not None and (model.reader.place, model.reader.handled) == (2, (0, 0))
    tell("newest", "records 1 and 2 are in the log, and the group goes on with record 3")


@BESIDE
@pytest.mark.long
def test_oldest_is_what_retention_has_left(staged: Staged) -> None:
    stage, model = staged(), ended("oldest")
    send_all(stage, 1, 2)
    delete_records(stage.cluster.cluster, {TopicPartition(stage.topic, 0): 1})
    reading = Reading(stage, **{"enable.auto.commit": False, "auto.offset.reset": "earliest"})
    reading.reads(1)
    assert (reading.handled, stage.log()) == ([2], log_of(model)) == ([2], [2])
    assert model.reader is not None and model.reader.hand == 2
    tell("oldest", "record 1 was deleted before the group read it, and nobody is told")


@BESIDE
@pytest.mark.long
def test_a_group_that_rests_is_forgotten_and_latest_skips_what_came(staged: Staged) -> None:
    stage, model = staged(), ended("offsets-retention")
    send_all(stage, 1)
    reading = Reading(stage, **{"enable.auto.commit": False, "auto.offset.reset": "earliest"})
    reading.reads(1)
    assert reading.committed() == 1
    begun_s = time.monotonic()
    until(lambda: reading.committed() < 0, "the place is forgotten", 180.0)
    took_s = time.monotonic() - begun_s
    send_all(stage, 2)
    back = Reading(stage, **{"enable.auto.commit": False, "auto.offset.reset": "latest"})
    back.reads(1, meanwhile=lambda: send_all(stage, 3))
    assert (reading.handled, back.handled) == ([1], [3])
    assert stage.log()[:2] == log_of(model) == [1, 2]
    assert model.reader is not None and model.reader.handled == (1, 0)
    tell("offsets-retention", f"the place was forgotten after {took_s:.0f} s without members, and record 2 never read")


def send_all(stage: Stage, *records: int) -> None:
    sent = Sent(stage.cluster, stage.topic, {"acks": "all"})
    sent.send(*records)
    sent.settle()
    assert sent.acknowledged == list(records)
