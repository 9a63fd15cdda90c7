"""Addresses that are swapped, or lead to another cluster after the start: nothing of that cluster is changed."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientTopicPartition
from typer.testing import CliRunner

from testkit.clients import add_partitions, alter_topic, delete_records
from testkit.raw_writer import RawWriter
from tests.scenarios.incident_stage import QUICK
from tests.scenarios.mirror_rig import Rig, settings_text, spans, until
from twinshore.cli.app import app, register_verbs
from twinshore.config.model import Cluster, TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.clients import client_settings, read_group_offsets
from twinshore.lab.cluster import LabCluster

pytestmark = pytest.mark.claim(
    "topics",
    "addresses-elsewhere",
    "a target's address that leads to another cluster after the start, or both swapped in the "
    "settings: no record is cut, no topic, setting, partition or group's place changed there; all "
    "goes on when it leads back",
)

LINK = "east->west"
ORDERS, GROUP = "orders", "billing"
LOOKS_S = 40.0  # several surveys, looks of the follower, rounds of groups and log-start cuts


class Switch:
    """An address of its own that leads where it is told to."""

    def __init__(self, leads_to: str) -> None:
        self.leads_to, self.guests = leads_to, 0
        self._door = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._door.getsockname()[1]}"
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                guest, _ = self._door.accept()
                self.guests += 1
                host, _, port = self.leads_to.partition(":")
                try:
                    there = socket.create_connection((host, int(port)), timeout=5)
                except OSError:
                    guest.close()
                    continue
                there.settimeout(None)
                for one, other in ((guest, there), (there, guest)):
                    threading.Thread(target=_pass_on, args=(one, other), daemon=True).start()

    def close(self) -> None:
        self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(65_536):
            other.sendall(data)
    for end in (one, other):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
    one.close()  # The thread of the other direction closes the other.


@pytest.fixture
def clusters() -> Iterator[tuple[LabCluster, LabCluster, LabCluster]]:
    """A source, its target, and one that is neither."""
    with contextlib.ExitStack() as stack:
        east, west, other = (
            stack.enter_context(LabCluster(name, jvm_flags=QUICK, heap_mb=256)) for name in ("east", "west", "other")
        )
        yield east, west, other


def put(side: LabCluster, count: int, topic: str = ORDERS) -> None:
    with contextlib.closing(KafkaCluster(side.cluster)) as kafka:
        assert RawWriter(kafka, topic).send([RawWriter.batch(count)]).error == 0


@contextlib.contextmanager
def consumer(side: LabCluster) -> Iterator[Consumer]:
    made = Consumer({**client_settings(side.cluster), "group.id": GROUP, "enable.auto.commit": False})
    try:
        yield made
    finally:
        made.close()


def commit(side: LabCluster, offset: int) -> None:
    with consumer(side) as one:
        one.commit(offsets=[ClientTopicPartition(ORDERS, 0, offset)], asynchronous=False)


def place(side: LabCluster) -> int:
    (offset,) = read_group_offsets(side.cluster, GROUP, ORDERS, [0])
    return offset


def shape(side: LabCluster) -> dict[str, object]:
    """All of a cluster that a mirror could change."""
    with contextlib.closing(KafkaCluster(side.cluster)) as kafka:
        seen = kafka.metadata(None, refresh=True).topics
        topics = {name: topic for name, topic in seen.items() if not topic.internal}
        known = kafka.admin.topic_settings(sorted(topics))
        own = {name: {key: one.value for key, one in known[name].items() if one.own} for name in topics}
        return {
            "topics": {name: (topic.topic_id, len(topic.partitions)) for name, topic in topics.items()},
            "settings": own,
            "logs": {name: spans(side.cluster, name, len(topic.partitions)) for name, topic in topics.items()},
            "place": place(side),
        }


def begun(rig: Rig, east: LabCluster, west: LabCluster) -> None:
    """The link carries records and a group's place."""
    commit(east, 20)
    rig.process.start()
    until(lambda: spans(west.cluster, ORDERS, 1) == [(0, 100)], 120, "orders crosses", rig)
    until(lambda: place(west) == 20, 60, "the group follows", rig)


@pytest.mark.long
def test_a_targets_address_that_leads_to_another_cluster_changes_nothing_there(
    clusters: tuple[LabCluster, LabCluster, LabCluster], tmp_path: Path
) -> None:
    east, west, other = clusters
    for side, count in ((east, 100), (other, 500)):
        side.create_topic(ORDERS)
        put(side, count)
    commit(other, 5)
    with contextlib.closing(Switch(west.cluster.bootstrap[0])) as switch:
        target = Cluster("west", (switch.address,))
        text = settings_text(tmp_path, [east.cluster, target], {LINK: "[^_].*"}, mirror={"tasks_per_link": 1})
        rig = Rig(tmp_path, text + f'[links."{LINK}".follow]\nevery_s = 2\n')
        try:
            begun(rig, east, west)
            before = shape(other)
            west.brokers[0].kill()
            switch.leads_to = other.cluster.bootstrap[0]
            # Each of these would be a change of the target: a cut, a setting, partitions, a topic, a place, records.
            delete_records(east.cluster, {TopicPartition(ORDERS, 0): 60})
            alter_topic(east.cluster, ORDERS, {"segment.bytes": "20000000"})
            add_partitions(east.cluster, ORDERS, 2)
            east.create_topic("fresh")
            commit(east, 90)
            put(east, 50)
            rig.until_said("another cluster", within_s=120)
            came, deadline = switch.guests, time.monotonic() + LOOKS_S
            while time.monotonic() < deadline:
                assert shape(other) == before, rig.process.said[-3000:]
                time.sleep(2)
            assert rig.process.child.alive(), rig.process.said[-3000:]
            assert switch.guests - came < 10 * LOOKS_S, "so many connections to a cluster that is not the link's"

            # When it leads back, all of it follows.
            west.brokers[0].restart()
            switch.leads_to = west.cluster.bootstrap[0]
            until(lambda: spans(west.cluster, ORDERS, 2)[0] == (60, 150), 240, "orders is cut and carried", rig)
            until(lambda: place(west) == 90, 120, "the group follows again", rig)
            assert shape(other) == before
        finally:
            rig.process.end()


@pytest.mark.long
def test_swapped_addresses_move_no_group_and_change_neither_side(
    clusters: tuple[LabCluster, LabCluster, LabCluster], tmp_path: Path
) -> None:
    east, west, _ = clusters
    east.create_topic(ORDERS)
    put(east, 100)
    text = settings_text(tmp_path, [east.cluster, west.cluster], {LINK: "[^_].*"}, mirror={"tasks_per_link": 1})
    rig = Rig(tmp_path, text)
    try:
        begun(rig, east, west)
        rig.process.end()
        commit(east, 90)
        alter_topic(east.cluster, ORDERS, {"segment.bytes": "20000000"})
        ours, theirs = east.cluster.bootstrap[0], west.cluster.bootstrap[0]
        rig.process.settings.write_text(text.replace(ours, "HERE").replace(theirs, ours).replace("HERE", theirs))
        before = shape(east), shape(west)
        for words in (
            ("groups", "move", GROUP),
            ("groups", "move", GROUP, "--backwards"),
            ("mirror", "plan"),
            ("mirror", "recreate", ORDERS),
            ("link", "recover"),
        ):
            code, told = refused(rig, *words)
            assert code != 0, (words, told)
            assert (shape(east), shape(west)) == before, (words, told)
        rig.process.start()
        rig.until_said("the addresses now lead to", within_s=120)
        rig.until_ended(within_s=120)
        assert (shape(east), shape(west)) == before, rig.process.said[-3000:]
    finally:
        rig.process.end()


def refused(rig: Rig, *words: str) -> tuple[int, str]:
    """Exit code and what `twinshore` says to these words."""
    register_verbs()
    result = CliRunner().invoke(app, [*words, "--settings", str(rig.process.settings)])
    return result.exit_code, f"{result.output} {result.exception}"
