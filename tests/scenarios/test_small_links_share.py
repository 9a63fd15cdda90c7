"""Several small links in one Spark task: each has its own lease, grants and connections, so what befalls one link stops
only its own task, and what befalls the task stops them all for a moment and none for good.

One pair of clusters has several names in the settings, so that there can be several links between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.scenarios.mirror_rig import Rig, read_all, same_ends, settings_text, spans, until, url_in
from twinshore.config.model import Cluster
from twinshore.lab.cluster import LabCluster
from twinshore.lab.mirror_process import MirrorProcess
from twinshore.lab.produce import Workload
from twinshore.state.store import open_store

COUNT = 6
TOPICS = [f"small-{number}" for number in range(COUNT)]
LINKS = [f"east-{number}->west-{number}" for number in range(COUNT)]
PAUSED, REMOVED, ROBBED = 1, 2, 3
LEASE_S = 4
TASK_RUN_S = 12
# On a machine that is busy with other things all takes several times as long.
WITHIN_S = 120.0


class Place(Rig):
    """A mirror whose links share one task; a second one stands by when tasks change over."""

    def __init__(self, folder: Path, east: LabCluster, west: LabCluster) -> None:
        clusters = [renamed(one.cluster, number) for number in range(COUNT) for one in (east, west)]
        links = dict(zip(LINKS, TOPICS, strict=True))
        mirror = {
            "refresh_s": 1,
            "tasks_per_link": 1,
            "spark_tasks": 3,
            "task_run_s": TASK_RUN_S,
            "lease_s": LEASE_S,
            "heartbeat_s": 0,
        }
        text = settings_text(folder, clusters, links, mirror=mirror)
        super().__init__(folder, text, spark=True)
        ports = [int(address.rpartition(":")[2]) for address in west.cluster.bootstrap]
        self.process = MirrorProcess(folder, text, target_ports=ports)
        self.east, self.west = east.cluster, west.cluster

    def ends(self) -> list[int]:
        return [spans(self.west, topic, 1)[0][1] for topic in TOPICS]

    def flow(self, links: Sequence[int]) -> None:
        """Returns once each of these links has carried more than it has now."""
        before = self.ends()
        what = f"more of each of {[LINKS[number] for number in links]}, which stood at {before}"
        until(lambda: all(self.ends()[number] > before[number] for number in links), WITHIN_S, what, self)

    def rob(self, link: str) -> None:
        """Somebody else takes the link's lease, for a moment."""

        def taken() -> bool:
            with open_store(url_in(self.folder)) as store:
                row = store.leases.read(f"link {link}")
                return bool(row and store.leases.take(f"link {link}", "a stranger", LEASE_S * 1000, row=row))

        until(taken, WITHIN_S, f"the lease of {link} is taken", self)

    def troubles(self, number: int) -> list[str]:
        """What the mirror says befell the tasks of this link."""
        return [line for line in self.process.said.splitlines() if f"{LINKS[number]} task" in line]


def renamed(cluster: Cluster, number: int) -> Cluster:
    return replace(cluster, name=f"{cluster.name}-{number}")


@pytest.fixture
def place(east: LabCluster, west: LabCluster, tmp_path: Path) -> Iterator[Place]:
    for topic in TOPICS:
        east.create_topic(topic)
    made = Place(tmp_path, east, west)
    made.process.start()
    try:
        yield made
    finally:
        made.process.end()


@pytest.mark.long
def test_what_befalls_one_link_of_a_task_befalls_no_other(place: Place) -> None:
    others = [number for number in range(COUNT) if number not in (PAUSED, REMOVED, ROBBED)]
    for link in LINKS:
        place.until_said(f"{link}: replicated by this process", within_s=WITHIN_S)
    with ExitStack() as stack:
        for topic in TOPICS:
            stack.enter_context(Workload(place.east, topic, records_per_s=40))
        place.flow(range(COUNT))
        # Between two task runs, or while a process's connections are listed, none or three may be seen for a moment.
        what = f"one task, and perhaps its heir, carry {COUNT} links"
        until(lambda: 1 <= len(place.process.task_processes()) <= 2, WITHIN_S, what, place)
        one_is_paused(place)
        place.flow([*others, REMOVED, ROBBED])
        place.verb("link", "remove", LINKS[REMOVED])
        place.until_said(f"{LINKS[REMOVED]}: the link was removed", within_s=WITHIN_S)
        place.flow([*others, ROBBED])
        place.rob(LINKS[ROBBED])
        place.until_said(f"{LINKS[ROBBED]}: the lease is lost", within_s=WITHIN_S)
        place.flow(others)
        assert [place.troubles(number) for number in others] == [[]] * len(others), "nothing befell the others' tasks"
        place.flow([ROBBED])
        place.verb("link", "resume", LINKS[PAUSED])
        place.flow([*others, PAUSED, ROBBED])
        the_task_is_killed(place)
        place.flow([*others, PAUSED, ROBBED])
    for number in (*others, PAUSED, ROBBED):
        same: Callable[[], bool] = partial(same_ends, place.east, place.west, TOPICS[number], 1)
        until(same, WITHIN_S, f"all of {TOPICS[number]}", place)
        assert read_all(place.west, TOPICS[number], 0) == read_all(place.east, TOPICS[number], 0)
    kept = read_all(place.west, TOPICS[REMOVED], 0)
    assert kept
    assert kept == read_all(place.east, TOPICS[REMOVED], 0)[: len(kept)]
    assert [place.ledger(link) for link in LINKS] == [()] * COUNT


def one_is_paused(place: Place) -> None:
    place.verb("link", "pause", LINKS[PAUSED])
    place.until_said(f"{LINKS[PAUSED]}: now holds", within_s=WITHIN_S)

    def stands() -> bool:
        stood = place.ends()[PAUSED]
        place.flow([0, COUNT - 1])
        return place.ends()[PAUSED] == stood

    until(stands, WITHIN_S, "the paused link's twin stands still", place)


def the_task_is_killed(place: Place) -> None:
    until(lambda: bool(place.process.task_processes()), WITHIN_S, "a task carries", place)
    for task in place.process.task_processes():
        task.kill()
    place.until_said("tasks start again", within_s=WITHIN_S)
