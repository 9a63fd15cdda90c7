"""Groups that are deleted on real clusters of two versions: none is brought back, and who begins again is followed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import ClusterFactory
from tests.scenarios.test_groups import commit, committed
from tests.scenarios.test_groups_kept import link_between
from twinshore.config.settings import Settings
from twinshore.groups.sync import GroupSync
from twinshore.lab.clients import create_admin_client
from twinshore.lab.cluster import LabCluster
from twinshore.lab.jars import KAFKA_3, KAFKA_NEWEST
from twinshore.state.store import Store

pytestmark = pytest.mark.claim(
    "groups",
    "deleted-groups",
    "a group deleted on the source, of Kafka 3 and 4, is not brought back by `back = true`, nor is "
    "one made that the target alone knows; begun again lower it is followed, by the next process too",
)

NONE = -1001  # what a client calls no place


class Stage:
    """Rounds over one topic, both ways, without a mirror."""

    def __init__(self, east: LabCluster, west: LabCluster, topic: str, settings: Settings, store: Store) -> None:
        self.east, self.west, self.topic = east, west, topic
        self._settings, self._store = settings, store
        self.rounds = GroupSync(settings.links[0], settings, store)

    def restart(self) -> None:
        """The next process begins."""
        self.rounds.close()
        self.rounds = GroupSync(self._settings.links[0], self._settings, self._store)

    def commit(self, lab: LabCluster, group: str, offset: int, partition: int = 0) -> None:
        commit(lab, group, {(self.topic, partition): offset})

    def place(self, lab: LabCluster, group: str, partition: int = 0) -> int:
        return committed(lab, group, self.topic, partition)

    def delete(self, group: str) -> None:
        admin = create_admin_client(self.east.cluster)
        admin.delete_consumer_groups([group])[group].result(30)

    def turn(self, rounds: int) -> None:
        for _ in range(rounds):
            self.rounds.run(time.monotonic())
            time.sleep(0.2)

    def turn_until(self, holds: Callable[[], bool], saw: Callable[[], object]) -> None:
        deadline = time.monotonic() + 60
        while not holds():
            assert time.monotonic() < deadline, saw()
            self.turn(1)


@pytest.fixture(params=[KAFKA_NEWEST, pytest.param(KAFKA_3, marks=pytest.mark.long)])
def stage(
    request: pytest.FixtureRequest, tmp_path: Path, west: LabCluster, cluster_factory: ClusterFactory, unique_topic: str
) -> Iterator[Stage]:
    east = cluster_factory("east", version=request.param)
    rules = "back = true\nverify_s = 2\n"
    with link_between(tmp_path, east, west, unique_topic, partitions=2, rules=rules) as (settings, store):
        found = Stage(east, west, unique_topic, settings, store)
        yield found
        found.rounds.close()


def test_deleted_groups_stay_deleted_and_begin_again_where_the_source_says(stage: Stage) -> None:
    east, west = stage.east, stage.west
    for group in ("rests", "reads", "again", "after"):
        stage.commit(east, group, 9)
        stage.turn_until(lambda group=group: stage.place(west, group) == 9, lambda: "not on west")  # type: ignore[misc]
    for group in ("rests", "reads", "again", "after"):
        stage.delete(group)
    stage.turn(6)
    assert [stage.place(east, group) for group in ("rests", "reads", "again", "after")] == [NONE] * 4
    assert stage.place(west, "rests") == 9, "nothing of the target's is deleted"

    # One reads on at the target, and one was never known anywhere else.
    stage.commit(west, "reads", 10)
    for offset in (4, 5):
        stage.commit(west, "reports", offset)
        stage.turn(6)
    assert [stage.place(east, group) for group in ("reads", "reports")] == [NONE, NONE]

    stage.commit(east, "again", 2)
    stage.turn_until(lambda: stage.place(west, "again") == 2, lambda: stage.place(west, "again"))
    stage.restart()
    stage.commit(east, "after", 3)
    stage.turn_until(lambda: stage.place(west, "after") == 3, lambda: stage.place(west, "after"))
    # The way back is open to whom the source knows.
    stage.commit(west, "after", 8)
    stage.turn_until(lambda: stage.place(east, "after") == 8, lambda: stage.place(east, "after"))
