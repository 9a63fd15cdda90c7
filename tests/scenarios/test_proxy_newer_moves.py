"""Topics and groups move under members of the newer protocol (KIP-848): real switches, by clients of two libraries."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from testkit.errors import raises
from tests.conftest import ClusterFactory
from tests.kafka.protocol.serving.java_clients import java_clients
from tests.scenarios.mirror_rig import Rig, settings_text, spans
from tests.scenarios.plain_clients import PlainWriter
from tests.scenarios.switch_rig import QUICK, SwitchRig, carried
from tests.scenarios.test_following_writers import until
from tests.scenarios.test_mirror_basic import fill
from tests.scenarios.test_proxy_groups_home import move_groups
from tests.scenarios.test_proxy_newer_groups import NEWER, Makes, Member, Rdkafka, ids
from tests.scenarios.test_proxy_switch import moved, proxies
from twinshore.config.errors import RefusedError
from twinshore.config.model import Cluster
from twinshore.lab.clients import read_group_offsets
from twinshore.lab.cluster import LabCluster
from twinshore.lab.jars import KAFKA_NEWEST
from twinshore.proxy.operations.groups_move import GroupsMoveStage

pytestmark = pytest.mark.usefixtures("no_topics_before")


class Reads:
    """A member that goes on reading, in a thread. It commits `by_hand` what it has read, or its library does so twice a
    second."""

    def __init__(self, makes: Makes, bootstrap: str, group: str, topic: str, *, by_hand: bool) -> None:
        self.group, self.failed, self._by_hand = group, list[str](), by_hand
        itself = {"enable.auto.commit": str(not by_hand).lower(), "auto.commit.interval.ms": "500"}
        self._member: Member = makes(bootstrap, group, [topic], NEWER | itself)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                if self._member.poll() and self._by_hand:
                    self._member.commit()
        except Exception as error:
            self.failed.append(str(error))
        finally:
            self._member.close()

    @property
    def read(self) -> list[tuple[int, int]]:
        """Partitions and offsets."""
        return [(partition, offset) for _, partition, offset, _ in list(self._member.read)]

    def reads(self, more: int) -> None:
        count = len(self.read) + more
        until(lambda: len(self.read) >= count or bool(self.failed), 90, f"{self.group} reads")
        assert self.failed == []

    def reads_in_all(self, count: int, before: list[tuple[int, int]]) -> None:
        until(lambda: len({*before, *self.read}) >= count, 60, f"{self.group} reads all")

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "it cannot end"


@contextmanager
def reading(bootstrap: str, topic: str, *, by_hand: bool = True) -> Iterator[list[Reads]]:
    """A group of each library."""
    with ExitStack() as stack:
        java = stack.enter_context(java_clients(KAFKA_NEWEST))
        made = []
        for makes, group in ((Rdkafka, f"{topic}-rdkafka"), (java.member, f"{topic}-java")):
            one = Reads(makes, bootstrap, group, topic, by_hand=by_hand)
            stack.callback(one.stop)
            made.append(one)
        yield made


def crossed(cluster: LabCluster, group: str, topic: str) -> bool:
    """Whether the mirror has taken some places of the group there."""
    return sum(read_group_offsets(cluster.cluster, group, topic, range(3))) > 60


def told_ids(bootstrap: str) -> dict[str, bytes]:
    return ids(Cluster("proxy", (bootstrap,)))


@pytest.mark.long
@pytest.mark.claim(
    "proxy", "newer-groups", "groups of the new protocol read on as their topic moves, and as groups do once they rest"
)
def test_a_topic_and_then_groups_move_under_groups_of_the_newer_protocol(
    east: LabCluster, west: LabCluster, tmp_path: Path
) -> None:
    topic = "proxy-newer"
    with carried(east, west, topic, tmp_path) as rig, proxies(rig, 1) as some, ExitStack() as stack:
        address = some[0].bootstrap
        writer = PlainWriter(address, topic, per_s=60)
        stack.callback(writer.stop)
        with reading(address, topic) as groups:
            for one in groups:
                one.reads(100)
            before = told_ids(address)[topic]
            for to in ("west", "east", "west"):
                moved(rig, to, some)
                for one in groups:
                    one.reads(100)
            assert told_ids(address)[topic] == before == ids(east.cluster)[topic], "ids stay while a topic moves"
            with raises(RefusedError, "proxy.move-needs-empty-groups", groups=f"{topic}-java, {topic}-rdkafka"):
                move_groups(rig, "west")
            for one in groups:
                one.reads(50)
        reads = {one.group: one.read for one in groups}
        until(partial(crossed, west, f"{topic}-java", topic), 60, "places cross")
        assert move_groups(rig, "west")[-1] is GroupsMoveStage.MOVE
        with reading(address, topic) as groups:
            for one in groups:
                one.reads(100)
            assert told_ids(address)[topic] == ids(west.cluster)[topic], "they are the groups' new home's"
            acked = writer.stop()
            assert writer.failed == []
            for one in groups:
                one.reads_in_all(len(acked) + 30, reads[one.group])  # with what was there before
        for one in groups:
            whole = [*reads[one.group], *one.read]
            assert len(whole) == len(set(whole)) == len(acked) + 30, f"{one.group} reads each once"
        print(f"told: {len(acked)} records, each read once by a group of librdkafka and one of Java")


@pytest.mark.long
def test_members_go_on_elsewhere_when_the_home_of_groups_is_gone(
    cluster_factory: ClusterFactory, tmp_path: Path
) -> None:
    """Their coordinator is dead: they hear at the new one that they are no members, and join anew, by other ids."""
    topic = "newer-forced"
    east, west = (cluster_factory(name, heap_mb=256) for name in ("east", "west"))
    east.create_topic(topic, partitions=3)
    for number in range(3):
        fill(east, topic, 10, partition=number)
    links = {"east->west": topic, "west->east": topic}
    made = Rig(tmp_path, settings_text(tmp_path, [east.cluster, west.cluster], links, mirror=QUICK))
    made.process.start()
    try:
        until(lambda: spans(west.cluster, topic, 3) == [(0, 10)] * 3, 120, "carried")
        rig = SwitchRig(made, topic, east, west)
        with proxies(rig, 1) as some, ExitStack() as stack:
            writer = PlainWriter(some[0].bootstrap, topic, per_s=60)
            stack.callback(writer.stop)
            groups = stack.enter_context(reading(some[0].bootstrap, topic, by_hand=False))
            moved(rig, "west", some)
            for one in groups:
                one.reads(100)
                until(partial(crossed, west, one.group, topic), 60, "places cross")
            for broker in east.brokers:
                broker.kill()
            assert move_groups(rig, "west", force=True) == [GroupsMoveStage.MOVE]
            for one in groups:
                one.reads(200)
            acked = writer.stop()
            assert writer.failed == []
            for one in groups:
                one.reads_in_all(len(acked) + 30, [])
                again = len(one.read) - len(set(one.read))
                print(f"told: {one.group} read {len(set(one.read))} records, {again} of them again")
                assert min(read_group_offsets(west.cluster, one.group, topic, range(3))) > 0
    finally:
        made.process.end()
