"""Topics move between clusters under clients of the proxy that know nothing of it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.proxy.served import ProxyProcess
from tests.scenarios.mirror_rig import url_in
from tests.scenarios.plain_clients import Acked, JavaWriter, PlainReader, PlainWriter, written
from tests.scenarios.switch_rig import SwitchRig, carried, ended
from tests.scenarios.test_following_writers import until
from twinshore.lab.cluster import LabCluster

# Longer than a proxy waits for a broker that it asks who is known there.
AWAY_S = 8.0


@contextmanager
def proxies(rig: SwitchRig, count: int) -> Iterator[list[ProxyProcess]]:
    """That have the store of the mirror."""
    with ExitStack() as stack:
        made = []
        for number in range(count):
            folder = rig.settings.parent / f"proxy-{number}"
            folder.mkdir()
            one = ProxyProcess(folder, [rig.east.cluster, rig.west.cluster], store=url_in(rig.rig.folder))
            stack.callback(one.close)
            one.start()
            made.append(one)
        yield made


@dataclass
class Load:
    """Two writers and a group of one member, through the proxies."""

    topic: str
    writers: list[PlainWriter]
    reader: PlainReader
    before: int

    def reads(self, more: int) -> None:
        count = len(self.reader.read) + more
        until(lambda: len(self.reader.read) >= count, 60, "the group reads")

    def end(self) -> list[Acked]:
        acked = [one for writer in self.writers for one in writer.stop()]
        until(lambda: len(self.reader.read) >= self.before + len(acked), 60, "the group reads all")
        self.reader.stop()
        return acked


@contextmanager
def loaded(rig: SwitchRig, proxies: Sequence[ProxyProcess], per_s: float = 500.0) -> Iterator[Load]:
    before = sum(rig.level())
    addresses = ",".join(one.bootstrap for one in proxies)
    writers = [PlainWriter(addresses, rig.topic, per_s, name) for name in ("one", "other")]
    made = Load(rig.topic, writers, PlainReader(addresses, rig.topic, [rig.topic]), before)
    try:
        made.reads(before + 200)
        yield made
    finally:
        for writer in made.writers:
            writer.stop()
        made.reader.stop()


def moved(rig: SwitchRig, to: str, proxies: Sequence[ProxyProcess]) -> None:
    said = rig.move(to)
    assert said.code == 0, said.text + "".join(one.said() for one in proxies)


def nothing_happened(rig: SwitchRig, load: Load, acked: list[Acked]) -> None:
    """As far as clients can tell."""
    assert [writer.failed for writer in load.writers] == [[], []]
    assert (load.reader.errors, load.reader.again(), load.reader.assigned) == ([], 0, 1)
    rig.same()
    found = written(rig.sides()[0], load.topic, acked, rig.partitions)
    assert (found.records, found.wrong) == (len(acked), 0), found
    assert len(acked) == sum(writer.sent for writer in load.writers)
    print(f"told: {found.records} records, 0 lost, doubled, reordered or read again; {paused(load)}")


def paused(load: Load) -> str:
    pause_s = max(writer.longest_pause_s() for writer in load.writers)
    return f"longest between two acknowledgements of a producer {pause_s:.2f} s"


def test_a_topic_moves_and_its_clients_do_not_know(east: LabCluster, west: LabCluster, tmp_path: Path) -> None:
    with carried(east, west, "proxy-moves-on", tmp_path) as rig, proxies(rig, 1) as some, loaded(rig, some) as load:
        moved(rig, "west", some)
        load.reads(500)
        nothing_happened(rig, load, load.end())
        assert some[0].metrics()["twinshore_proxy_paused_requests_total"] > 0, "or nothing was at stake"


@pytest.mark.long
@pytest.mark.claim(
    "proxy", "new-home-dies", "the new home dies soon behind a switch, and comes back: idempotent producers go on"
)
def test_a_producer_that_has_moved_outlives_the_death_of_its_new_home(
    east: LabCluster, west: LabCluster, tmp_path: Path
) -> None:
    """Whether the new home knows it cannot be heard while that is away, and is no reason to end a producer."""
    with carried(east, west, "proxy-outlives", tmp_path) as rig, proxies(rig, 1) as some, loaded(rig, some) as load:
        moved(rig, "west", some)
        for _ in range(2):
            load.reads(500)
            west.brokers[0].kill()
            time.sleep(AWAY_S)
            west.brokers[0].restart()
        load.reads(500)
        acked = load.end()
        assert [writer.failed for writer in load.writers] == [[], []]
        found = written(rig.sides()[0], load.topic, acked, rig.partitions)
        assert (found.records, found.wrong) == (len(acked), 0), found
        print(f"told: {found.records} records, 0 lost, doubled or reordered; {paused(load)}")


@pytest.mark.long
@pytest.mark.claim("proxy", "planned", "a topic goes along and back twice under unmodified clients, who do not know")
def test_a_topic_goes_along_and_back_and_its_clients_do_not_know(
    east: LabCluster, west: LabCluster, tmp_path: Path
) -> None:
    """Their ids and numbers are known on each cluster when the topic comes back."""
    with carried(east, west, "proxy-along", tmp_path) as rig, proxies(rig, 1) as some, loaded(rig, some) as load:
        for to in ("west", "east", "west", "east"):
            moved(rig, to, some)
            load.reads(500)
        nothing_happened(rig, load, load.end())


@pytest.mark.long
@pytest.mark.claim("proxy", "two-proxies", "the same by two proxies, of which one is killed in the middle of a switch")
def test_a_proxy_that_is_killed_in_the_middle_of_a_switch_costs_its_lease(
    east: LabCluster, west: LabCluster, tmp_path: Path
) -> None:
    """Its clients go on by the other one; their requests may have arrived unanswered, and come again."""
    with carried(east, west, "proxy-killed", tmp_path) as rig, proxies(rig, 2) as some, loaded(rig, some) as load:
        child, log = rig.begin("run", rig.topic, "--to", "west", "--yes", "--hold-s", "15")
        holding: list[ProxyProcess] = []  # clients choose either one, or both

        def holds() -> bool:
            holding[:] = [one for one in some if one.metrics()["twinshore_proxy_paused_requests_total"] > 0]
            return bool(holding)

        until(holds, 60, "one holds")
        holding[0].close()
        assert ended(child, log) == 0, log.read_text()
        load.reads(500)
        acked = load.end()
        assert [writer.failed for writer in load.writers] == [[], []]
        rig.same()
        found = written(west, load.topic, acked, rig.partitions)
        assert (found.records, found.wrong) == (len(acked), 0), found
        assert load.reader.again() == 0
        print(f"told: {found.records} records, 0 lost, doubled or reordered; {paused(load)}")


@pytest.mark.long
@pytest.mark.claim("proxy", "java", "Kafka's own verifiable producer in Java goes along and back, and does not know")
def test_a_producer_in_java_goes_along_and_back(east: LabCluster, west: LabCluster, tmp_path: Path) -> None:
    with carried(east, west, "proxy-java", tmp_path) as rig, proxies(rig, 1) as some, ExitStack() as stack:
        writer = JavaWriter(tmp_path, some[0].bootstrap, rig.topic)
        stack.callback(writer.kill)
        for to in ("west", "east"):
            writer.writes(500)
            moved(rig, to, some)
        writer.writes(500)
        acked = writer.stop()
        assert writer.failed() == [], writer.said()
        rig.same()
        found = written(east, rig.topic, acked, rig.partitions)
        assert (found.records, found.wrong) == (len(acked), 0), found
        print(f"told: {found.records} records, 0 lost, doubled or reordered")
