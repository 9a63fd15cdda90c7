"""Several processes at the same ports, under real clients: connections are dealt out, and a death is not noticed."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.proxy.served import ProxyProcess
from tests.scenarios.mirror_rig import url_in
from tests.scenarios.plain_clients import Acked, JavaWriter, PlainReader, PlainWriter, written
from tests.scenarios.switch_rig import carried
from tests.scenarios.test_following_writers import until
from twinshore.lab.cluster import LabCluster

PROCESSES, PARTITIONS = 2, 3
WRITERS = 6


@contextmanager
def processes(folder: Path, *labs: LabCluster, store: str = "") -> Iterator[ProxyProcess]:
    """Returns once all of them serve."""
    clusters = [one.cluster for one in labs]
    made = ProxyProcess(folder, clusters, more=f"processes = {PROCESSES}\n", store=store)
    try:
        made.launch()
        all_serve(made)
        yield made
    finally:
        made.close()


def all_serve(proxy: ProxyProcess) -> None:
    def serve() -> bool:
        stands = proxy.health()[1]["processes"].values() if proxy.has_said("process 1") else []
        return len(stands) == PROCESSES and all(one["serves"] and one["ok"] for one in stands)

    until(serve, 90, "all processes serve")


def is_another(proxy: ProxyProcess, number: str, pid: int) -> bool:
    return proxy.health()[1]["processes"][number]["pid"] not in (0, pid)


def clients_of_each(proxy: ProxyProcess) -> list[float]:
    found = proxy.metrics()
    return [found[f'twinshore_proxy_connections{{process="{number + 1}"}}'] for number in range(PROCESSES)]


class Load:
    """Several writers, so that each process has some of their connections, and a group."""

    def __init__(self, proxy: ProxyProcess, topic: str) -> None:
        self.writers = [PlainWriter(proxy.bootstrap, topic, per_s=100, name=f"w{one}") for one in range(WRITERS)]
        self.reader = PlainReader(proxy.bootstrap, topic, [topic])
        self.topic = topic

    def reads(self, more: int) -> None:
        count = len(self.reader.read) + more
        until(lambda: len(self.reader.read) >= count, 60, "the group reads")

    def end(self) -> list[Acked]:
        acked = [one for writer in self.writers for one in writer.stop()]
        until(lambda: len(self.reader.read) >= len(acked), 60, "the group reads all")
        self.reader.stop()
        return acked

    def close(self) -> None:
        for writer in self.writers:
            writer.stop()
        self.reader.stop()

    def longest_pause_s(self) -> float:
        return max(one.longest_pause_s() for one in self.writers)


@contextmanager
def loaded(proxy: ProxyProcess, topic: str) -> Iterator[Load]:
    made = Load(proxy, topic)
    try:
        made.reads(300)
        yield made
    finally:
        made.close()


@pytest.mark.claim(
    "proxy", "processes", "one of several processes is killed under load: clients go on, and see no error"
)
def test_a_process_that_is_killed_is_not_noticed_and_comes_back(
    east: LabCluster, west: LabCluster, unique_topic: str, tmp_path: Path
) -> None:
    east.create_topic(unique_topic, partitions=PARTITIONS)
    with processes(tmp_path, east, west) as proxy, loaded(proxy, unique_topic) as load:
        java = JavaWriter(tmp_path, proxy.bootstrap, unique_topic, per_s=200)
        java.writes(100)
        assert min(clients_of_each(proxy)) > 0, "or nothing is dealt out"
        stands = proxy.health()[1]["processes"]
        for number in ("1", "2"):
            os.kill(stands[number]["pid"], signal.SIGKILL)
            assert proxy.health()[0] == 200, "the other one serves"
            java.writes(200)
            load.reads(600)
            all_serve(proxy)
        acked = load.end() + java.stop()
        assert [writer.failed for writer in load.writers] == [[]] * WRITERS
        assert (java.failed(), load.reader.errors) == ([], [])
        found = written(east, unique_topic, acked, PARTITIONS)
        assert (found.records, found.wrong) == (len(acked), 0), found
        counts = proxy.metrics()
        assert [counts[f'twinshore_proxy_restarts_total{{process="{one}"}}'] for one in ("1", "2")] == [1, 1]
        print(
            f"told: {found.records} records by {WRITERS} producers of librdkafka and one of Java while both processes"
            f" were killed in turn: 0 lost, doubled or reordered; longest between two acknowledgements of a producer"
            f" {load.longest_pause_s():.2f} s"
        )


def test_processes_end_in_good_order_under_load(
    east: LabCluster, west: LabCluster, unique_topic: str, tmp_path: Path
) -> None:
    """One after the other, by hand, and then all: what was asked is answered."""
    east.create_topic(unique_topic, partitions=PARTITIONS)
    with processes(tmp_path, east, west) as proxy, loaded(proxy, unique_topic) as load:
        first = proxy.health()[1]["processes"]
        for number in ("1", "2"):
            os.kill(first[number]["pid"], signal.SIGTERM)
            until(partial(is_another, proxy, number, first[number]["pid"]), 60, "it is started again")
            all_serve(proxy)
            load.reads(300)
        acked = load.end()
        assert [writer.failed for writer in load.writers] == [[]] * WRITERS
        found = written(east, unique_topic, acked, PARTITIONS)
        assert (found.records, found.wrong) == (len(acked), 0), found
        assert proxy.end() == 0
        assert "were not answered within" not in proxy.said()
        assert proxy.said().count("has ended unasked, with exit code 0") == PROCESSES
        said = proxy.said()
        assert "Traceback" not in said, said[said.index("Traceback") :][:3000]


@pytest.mark.long
def test_a_process_that_stands_still_is_replaced_and_the_keeper_s_death_ends_all(
    east: LabCluster, west: LabCluster, unique_topic: str, tmp_path: Path
) -> None:
    east.create_topic(unique_topic, partitions=PARTITIONS)
    with processes(tmp_path, east, west) as proxy, loaded(proxy, unique_topic) as load:
        stands = proxy.health()[1]["processes"]
        os.kill(stands["1"]["pid"], signal.SIGSTOP)
        until(lambda: proxy.has_said("process 1 stands still"), 40, "it is killed")
        load.reads(300)
        all_serve(proxy)
        acked = load.end()
        assert [writer.failed for writer in load.writers] == [[]] * WRITERS
        found = written(east, unique_topic, acked, PARTITIONS)
        assert (found.records, found.wrong) == (len(acked), 0), found
        parts = proxy.process.children()
        assert len(parts) == PROCESSES
        proxy.close()
        assert psutil.wait_procs(parts, timeout=30)[1] == []


@pytest.mark.long
def test_a_topic_moves_under_clients_of_several_processes(east: LabCluster, west: LabCluster, tmp_path: Path) -> None:
    """A switch waits for each process, as for proxies on several machines."""
    with carried(east, west, "processes-along", tmp_path) as rig:
        folder = tmp_path / "proxy"
        folder.mkdir()
        with processes(folder, east, west, store=url_in(rig.rig.folder)) as proxy, loaded(proxy, rig.topic) as load:
            for to in ("west", "east"):
                said = rig.move(to)
                assert said.code == 0, said.text + proxy.said()
                load.reads(600)
            acked = load.end()
            assert [writer.failed for writer in load.writers] == [[]] * WRITERS
            rig.same()
            found = written(rig.sides()[0], rig.topic, acked, rig.partitions)
            assert (found.records, found.wrong) == (len(acked), 0), found
            metric = "twinshore_proxy_paused_requests_total"
            held = [value for name, value in proxy.metrics().items() if re.match(metric, name)]
            assert len(held) == PROCESSES and min(held) > 0, held
