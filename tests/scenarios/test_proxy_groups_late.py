"""What is late as groups move: a proxy that was paused, a member at work, and places that no link would take along."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from testkit.clients import delete_topic
from testkit.errors import raises
from tests.proxy.test_groups_home import words_of
from tests.scenarios.plain_clients import PlainReader
from tests.scenarios.switch_rig import carried
from tests.scenarios.test_following_writers import until
from tests.scenarios.test_mirror_basic import fill
from tests.scenarios.test_proxy_groups_home import move_groups
from tests.scenarios.test_proxy_switch import loaded, proxies
from twinshore.config.errors import RefusedError
from twinshore.lab.clients import read_group_offsets
from twinshore.lab.cluster import LabCluster
from twinshore.proxy.operations.groups_move import GroupsMoveStage

pytestmark = pytest.mark.usefixtures("no_topics_before")


@pytest.mark.long
def test_a_proxy_that_was_paused_commits_nothing_at_the_old_home(
    east: LabCluster, west: LabCluster, tmp_path: Path
) -> None:
    """Nobody waited for it: its lease was over. What its member had not committed by then is read again."""
    with (
        carried(east, west, "proxy-paused-groups", tmp_path) as rig,
        proxies(rig, 1) as some,
        loaded(rig, some) as load,
    ):
        time.sleep(3)
        os.kill(some[0].process.pid, signal.SIGSTOP)
        try:
            time.sleep(6)
            before = read_group_offsets(east.cluster, load.topic, load.topic, range(3))
            move_groups(rig, "west")
        finally:
            os.kill(some[0].process.pid, signal.SIGCONT)
        time.sleep(0.7)
        assert read_group_offsets(east.cluster, load.topic, load.topic, range(3)) == before
        load.reads(2000)
        load.end()
        assert load.reader.errors == []
        assert read_group_offsets(east.cluster, load.topic, load.topic, range(3)) == before
        print(f"told: {load.reader.again()} read again")


@pytest.mark.long
def test_places_in_topics_that_both_have_without_a_link_are_named_and_nothing_is_done(
    east: LabCluster, west: LabCluster, tmp_path: Path
) -> None:
    topic = "proxy-local"
    east.create_topic(topic)
    west.create_topic(topic)
    fill(east, topic, 30)
    with carried(east, west, "proxy-linked", tmp_path) as rig, proxies(rig, 1) as some:
        reader = PlainReader(some[0].bootstrap, "local", [topic, rig.topic])
        try:
            until(lambda: len(reader.read) == 60, 60, "it reads")
            until(lambda: read_group_offsets(east.cluster, "local", topic, [0]) == [30], 20, "it commits")
            with raises(RefusedError, "proxy.offsets-not-synced") as refused:
                move_groups(rig, "west")
            assert "local in proxy-local" in refused.value.message
        finally:
            reader.stop()
        delete_topic(west.cluster, topic)
        assert move_groups(rig, "west")[-1] is GroupsMoveStage.MOVE


@pytest.mark.long
def test_a_member_at_work_is_waited_for_and_reads_nothing_again(
    east: LabCluster, west: LabCluster, tmp_path: Path
) -> None:
    """Through the one of two proxies; a member through the other one has gathered long before."""
    with carried(east, west, "proxy-at-work", tmp_path) as rig, proxies(rig, 2) as some:
        quick = PlainReader(some[1].bootstrap, "quick", [rig.topic])
        slow = Consumer(settings_of(some[0].bootstrap, "slow"))
        slow.subscribe([rig.topic])
        try:
            first = consumed(slow, 60)
            assert len(first) == 30
            with pytest.raises(RefusedError, match=r"members are at work .* within 9 s: of slow"):
                move_groups(rig, "west", gather_s=9)
            slow.commit(asynchronous=False)
            fill(east, rig.topic, 10)
            second = consumed(slow, 60, 10)
            with ThreadPoolExecutor(1) as threads:
                moving = threads.submit(move_groups, rig, "west")
                time.sleep(13)
                assert not moving.done(), "it is at work on ten records"
                slow.commit(asynchronous=False)
                fill(east, rig.topic, 10, partition=1)
                third = consumed(slow, 60, 10)
                assert moving.result(60)[-1] is GroupsMoveStage.MOVE
            slow.commit(asynchronous=False)
            assert consumed(slow, 5) == []
            assert len({*first, *second, *third}) == len(first) + len(second) + len(third) == 50
            until(lambda: len(quick.read) == 50, 30, "the other one reads all")
            time.sleep(1)
            assert (quick.errors, quick.again()) == ([], 0)
            assert read_group_offsets(west.cluster, "slow", rig.topic, range(3)) == [20, 20, 10]
        finally:
            slow.close()
            quick.stop()


@pytest.mark.long
def test_a_member_that_groups_left_behind_is_told_that_it_is_none(
    east: LabCluster, west: LabCluster, tmp_path: Path
) -> None:
    """As where a proxy is not waited for: there is no such group at the new home."""
    with carried(east, west, "proxy-left", tmp_path) as rig, proxies(rig, 1) as some:
        late = Consumer(settings_of(some[0].bootstrap, "left"))
        late.subscribe([rig.topic])
        try:
            assert len(consumed(late, 60)) == 30
            with ExitStack() as stack:
                words = words_of(stack, east, west)
                words.move(words.moved(words.told()[0], "west", "6" * 32, "test"), "west", ["east", "west"])
            time.sleep(5)
            with pytest.raises(KafkaException) as told:
                late.commit(asynchronous=False)
            assert told.value.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID
            assert len(consumed(late, 60)) == 30, "it joins anew"
        finally:
            late.close()


def settings_of(bootstrap: str, group: str) -> dict[str, str | int | bool]:
    known: dict[str, str | int | bool] = {"bootstrap.servers": bootstrap, "group.id": group, "log_level": 2}
    return known | {"auto.offset.reset": "earliest", "enable.auto.commit": False}


def consumed(consumer: Consumer, within_s: float, count: int = 30) -> list[tuple[int, int]]:
    """Partitions and offsets of so many records, or of those that come in time."""
    found: list[tuple[int, int]] = []
    until_s = time.monotonic() + within_s
    while len(found) < count and time.monotonic() < until_s:
        found += [
            (one.partition() or 0, one.offset() or 0) for one in consumer.consume(count, 0.5) if one.error() is None
        ]
    return found
