"""Topics that no link carries are switched under the proxy's clients: with all their records, or without them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from testkit.clients import commit_group_offsets
from testkit.errors import mentions
from tests.proxy.served import ProxyProcess
from tests.scenarios.mirror_rig import Rig, settings_text, spans, url_in
from tests.scenarios.plain_clients import PlainReader, PlainWriter, records_there
from tests.scenarios.switch_rig import SwitchRig, carried
from tests.scenarios.test_mirror_basic import fill
from tests.scenarios.test_proxy_switch import Load, nothing_happened, paused, proxies
from tests.scenarios.test_switch import PATIENT
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.cluster import LabCluster
from twinshore.state.store import open_store

PARTITIONS = 3
BEFORE = 10 * PARTITIONS


def made(lab: LabCluster, topic: str) -> None:
    lab.create_topic(topic, partitions=PARTITIONS)
    for number in range(PARTITIONS):
        fill(lab, topic, 10, partition=number)


@contextmanager
def loaded(topic: str, some: Sequence[ProxyProcess]) -> Iterator[Load]:
    addresses = ",".join(one.bootstrap for one in some)
    writers = [PlainWriter(addresses, topic, name=name) for name in ("one", "other")]
    load = Load(topic, writers, PlainReader(addresses, topic, [topic]), BEFORE)
    try:
        load.reads(BEFORE + 200)
        yield load
    finally:
        for writer in load.writers:
            writer.stop()
        load.reader.stop()


def has(lab: LabCluster, topic: str) -> bool:
    with closing(KafkaCluster(lab.cluster)) as kafka:
        return topic in kafka.metadata().topics


@pytest.mark.long
@pytest.mark.claim(
    "proxy", "carried-first", "a topic without a link gets link and twin first, and its clients do not know"
)
def test_a_topic_without_a_link_goes_along_with_its_data(east: LabCluster, west: LabCluster, tmp_path: Path) -> None:
    topic = "proxy-first"
    made(east, topic)
    with carried(east, west, "proxy-first-other", tmp_path) as other, proxies(other, 1) as some:
        rig = SwitchRig(other.rig, topic, east, west, PARTITIONS)
        with loaded(topic, some) as load:
            said = rig.move("west", *PATIENT)
            assert said.code == 0, said.text
            assert mentions(said.text, topic, "no link")
            load.reads(500)
            nothing_happened(rig, load, load.end())


@pytest.mark.long
@pytest.mark.claim(
    "proxy", "without-data", "a topic moves at once without its data: what stays unread is listed, writers go on"
)
def test_a_topic_moves_without_its_data(east: LabCluster, west: LabCluster, tmp_path: Path) -> None:
    """No mirror runs. Who has read all reads on at the same offsets; what a group had not read stays."""
    topic = "proxy-bare"
    made(east, topic)
    commit_group_offsets(east.cluster, "behind", *(TopicPartition(topic, number, 4) for number in range(PARTITIONS)))
    rig = SwitchRig(Rig(tmp_path, settings_text(tmp_path, [east.cluster, west.cluster], {})), topic, east, west)
    open_store(url_in(tmp_path)).close()
    with proxies(rig, 1) as some, loaded(topic, some) as load:
        planned = rig.switch("plan", topic, "--to", "west", "--without-data")
        assert planned.code == 0 and "by group behind" in planned.text, planned.text
        assert not has(west, topic), "a plan changes nothing"
        said = rig.move("west", "--without-data")
        assert said.code == 0, said.text + some[0].said()
        assert said.last.startswith("done: ") and mentions(said.last, topic, "west"), said.text
        load.reads(500)
        acked = load.end()
        assert [writer.failed for writer in load.writers] == [[], []]
        assert (load.reader.errors, load.reader.again(), load.reader.assigned) == ([], 0, 1)
        points = rig.record()["topics"][0]["points"]
        begins = [begin for begin, _ in spans(west.cluster, topic, PARTITIONS)]
        assert (begins, rig.ends(east)) == (points, points), "the one goes on where the other ends"
        there = [*records_there(east, topic, PARTITIONS), *records_there(west, topic, PARTITIONS)]
        count = Counter((key, number) for _, key, number in there)
        assert (len(acked), set(count.values())) == (len(count), {1}), "each is there once"
        read = [(key, int(text)) for _, key, text in load.reader.read if text.isdigit()]
        assert Counter(read) == count, "each is read once"
        print(f"told: {len(acked)} records, 0 lost, doubled or read again; {paused(load)}")
    again = rig.move("west", "--without-data")
    assert again.code == 1 and mentions(again.text, topic, "at home on east"), again.text
