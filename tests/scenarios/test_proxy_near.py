"""Consumers of two sites read a mirrored topic, each at its own site, through a balancer that says where they are."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.conftest import ClusterFactory
from tests.scenarios.mirror_rig import Rig, settings_text, spans
from tests.scenarios.near_rig import HOST, NearRig, balanced, before_sites
from tests.scenarios.plain_clients import PlainReader, written
from tests.scenarios.switch_rig import QUICK, SwitchRig, carried, transactional
from tests.scenarios.test_following_writers import until
from tests.scenarios.test_mirror_basic import fill
from twinshore.lab.cluster import LabCluster
from twinshore.proxy.core.follower_fetch import REDIRECT_INTERVAL_MIN_S


def all_was_read(near: NearRig, *readers: PlainReader) -> int:
    """By each of them, once, without an error; of how many records."""
    acked = near.acked()
    count = near.before + len(acked) + near.more
    for reader in readers:
        until(lambda one=reader: len(one.read) >= count, 60, f"all {count} are read")  # type: ignore[misc]
    found = written(near.rig.sides()[0], near.rig.topic, acked, near.rig.partitions)
    assert (found.records, found.wrong) == (len(acked), 0), found
    for reader in readers:
        reader.stop()
        assert (reader.errors, reader.again(), len(reader.read)) == ([], 0, count), near.proxy.said()
    assert [writer.failed for writer in near.writers] == [[] for _ in near.writers]
    return count


def test_each_reads_at_its_own_site_and_at_home_once_the_mirror_stands_still(
    east: LabCluster, west: LabCluster, tmp_path: Path
) -> None:
    folder = tmp_path / "proxy"
    folder.mkdir()
    with carried(east, west, "proxy-near", tmp_path) as rig, before_sites(rig, folder) as near:
        near.writer()
        at_home = near.reader("frankfurt")
        until(lambda: len(at_home.read) > near.before + 300, 60, "Frankfurt reads")
        assert near.near_bytes("west") == 0, "at home"
        in_paris = near.reader("paris")
        near.reads_near("west")
        with_transactions(east, rig.topic)
        near.more = 50
        count = len(in_paris.read)
        until(lambda: len(in_paris.read) > count + 600, 60, "Paris reads near")

        rig.rig.verb("link", "pause", "east->west")
        until(lambda: near.proxy.metrics()["twinshore_proxy_follower_partitions"] == 0, 30, "the twin is behind")
        count, was_read = len(in_paris.read), near.near_bytes("west")
        until(lambda: len(in_paris.read) > count + 600, 60, "Paris reads at home")
        assert near.near_bytes("west") == was_read
        rig.rig.verb("link", "resume", "east->west")
        until(lambda: near.proxy.metrics()["twinshore_proxy_follower_partitions"] == 3, 60, "the twin is fresh again")
        all_was_read(near, at_home, in_paris)
        assert near.near_bytes("east") == 0
        assert Counter(value for _, _, value in in_paris.read if value.startswith("of ")) == {"of a commit": 50}


@pytest.mark.long
def test_a_topic_that_each_site_has_for_itself_is_written_and_read_there(
    east: LabCluster, west: LabCluster, tmp_path: Path
) -> None:
    topic, counts = "near-logs", {"frankfurt": 120, "paris": 70}
    for lab in (east, west):
        lab.create_topic(topic, partitions=2)
    with ExitStack() as stack:
        proxy = balanced(stack, tmp_path, east, west)
        for site, count in counts.items():
            named = {"bootstrap.servers": f"{HOST}:{proxy.port}", "client.id": f"{site}-writer", "log_level": 2}
            producer = Producer({**named, "enable.idempotence": True})
            for number in range(count):
                producer.produce(topic, f"{site} {number}", f"{number}")
            assert producer.flush(60) == 0
        for lab, count in ((east, 120), (west, 70)):
            assert sum(end for _, end in spans(lab.cluster, topic, 2)) == count
        for site, count in counts.items():
            named = {"client.id": f"{site}-reader"}
            for times in (1, 2):  # the second time there is nothing new
                reader = PlainReader(f"{HOST}:{proxy.port}", f"logs-{site}", [topic], **named)
                stack.callback(reader.stop)
                if times == 1:
                    until(lambda one=reader, count=count: len(one.read) >= count, 60, site)  # type: ignore[misc]
                else:
                    until(lambda one=reader: one.assigned > 0, 60, site)  # type: ignore[misc]
                    time.sleep(2)
                reader.stop()
                expected = {f"{site} {number}" for number in range(count)} if times == 1 else set()
                assert {value for _, _, value in reader.read} == expected
                assert reader.errors == []


def with_transactions(lab: LabCluster, topic: str) -> None:
    """One that commits, behind one that aborts."""
    producer = transactional(lab, f"{topic}-tx")
    for word in ("an abort", "a commit"):
        producer.begin_transaction()
        for number in range(50):
            producer.produce(topic, f"of {word}", f"tx-{number}", partition=number % 3)
        producer.flush(30)
        producer.commit_transaction(30) if word == "a commit" else producer.abort_transaction(30)


@pytest.mark.long
@pytest.mark.claim(
    "proxy", "near", "consumers read at their own site while topics go along and back: 0 lost, 0 read again"
)
def test_topics_go_along_and_back_under_readers_of_two_sites(
    east: LabCluster, west: LabCluster, tmp_path: Path
) -> None:
    """Of librdkafka and of Java; each site is home for a while, and near for a while."""
    folder = tmp_path / "proxy"
    folder.mkdir()
    with carried(east, west, "proxy-near-along", tmp_path) as rig, before_sites(rig, folder) as near:
        near.writer()
        readers = [near.reader(site) for site in ("frankfurt", "paris")]
        in_java = near.java_reader(folder, "paris")
        near.reads_near("west")
        for home, twin in (("west", "east"), ("east", "west")):
            said = rig.move(home)
            assert said.code == 0, said.text + near.proxy.said()
            counts = [len(one.read) for one in readers]
            for one, count in zip(readers, counts, strict=True):
                until(lambda one=one, count=count: len(one.read) > count + 300, 60, "they read on")  # type: ignore[misc]
            near.reads_near(twin, REDIRECT_INTERVAL_MIN_S + 60)
        count = all_was_read(near, *readers)
        until(lambda: len(in_java.places()) >= count, 60, "the one in Java reads all")
        in_java.stop()
        assert set(in_java.places().values()) == {1}, in_java.said()
        read = {name: near.near_bytes(name) / 1000 for name in ("east", "west")}
        print(f"told: {count} records, 0 lost, 0 read again by 3 readers; kB read near {read}")


@pytest.mark.long
def test_a_reader_in_java_goes_near_and_home_by_itself(east: LabCluster, west: LabCluster, tmp_path: Path) -> None:
    folder = tmp_path / "proxy"
    folder.mkdir()
    with carried(east, west, "proxy-near-java", tmp_path) as rig, before_sites(rig, folder) as near:
        near.writer()
        in_java = near.java_reader(folder, "paris")
        near.reads_near("west")
        rig.rig.verb("link", "pause", "east->west")
        until(lambda: near.proxy.metrics()["twinshore_proxy_follower_partitions"] == 0, 30, "the twin is behind")
        count = len(in_java.places())
        until(lambda: len(in_java.places()) > count + 600, 60, "it reads at home")
        rig.rig.verb("link", "resume", "east->west")
        near.reads_near("west", REDIRECT_INTERVAL_MIN_S + 60)
        count = near.before + len(near.acked())
        until(lambda: len(in_java.places()) >= count, 60, "it reads all")
        in_java.stop()
        assert set(in_java.places().values()) == {1}, in_java.said()


@pytest.mark.long
def test_a_cluster_that_dies_is_read_no_more(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    """Its readers go on at home, at the same place; once it is back, and level, they come again."""
    east, west = (cluster_factory(name, heap_mb=256) for name in ("east", "west"))
    topic, folder = "proxy-near-dies", tmp_path / "proxy"
    folder.mkdir()
    east.create_topic(topic, partitions=3)
    for number in range(3):
        fill(east, topic, 10, partition=number)
    made = Rig(tmp_path, settings_text(tmp_path, [east.cluster, west.cluster], {"east->west": topic}, mirror=QUICK))
    made.process.start()
    try:
        until(lambda: spans(west.cluster, topic, 3) == [(0, 10)] * 3, 120, "carried")
        with before_sites(SwitchRig(made, topic, east, west), folder) as near:
            near.writer()
            in_paris, in_java = near.reader("paris"), near.java_reader(folder, "paris")
            near.reads_near("west")
            west.brokers[0].kill()
            time.sleep(1)
            count, of_java = len(in_paris.read), len(in_java.places())
            until(lambda: len(in_paris.read) > count + 600, 60, "it reads at home")
            until(lambda: len(in_java.places()) > of_java + 600, 60, "the one in Java reads at home")
            west.brokers[0].restart()
            near.reads_near("west", REDIRECT_INTERVAL_MIN_S + 120)
            count = near.before + len(near.acked())
            until(lambda: len(in_paris.read) >= count and len(in_java.places()) >= count, 60, "all is read")
            in_paris.stop()
            in_java.stop()
            assert (in_paris.again(), len(in_paris.read)) == (0, count)
            assert set(in_java.places().values()) == {1}, in_java.said()
            assert [writer.failed for writer in near.writers] == [[]]
    finally:
        made.process.end()
