"""A store that comes back, on real clusters: what a switch said while it was away counts before anything is carried."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from testkit.clients import forget_links, topic_id
from testkit.errors import mentions
from testkit.log_lines import LogLines
from twinshore.config.errors import KafkaError
from twinshore.config.model import Cluster, Link, TwinNaming
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.cluster import LabCluster
from twinshore.replication import ownership_sync
from twinshore.replication.ownership_sync import HomeRecordSync
from twinshore.routing.core.home_records import HomeRecord
from twinshore.routing.homes_topic import HomesTopic
from twinshore.state.core.values import HomeRow, TwinRow
from twinshore.state.store import Store, open_store

THERE, PAIR = Link("east", "west"), "east<>west"
TOPIC, SWITCH = "yield-orders", "5" * 32


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as opened:
        yield opened


@pytest.fixture
def both(east: LabCluster, west: LabCluster) -> Iterator[tuple[KafkaCluster, KafkaCluster]]:
    with closing(KafkaCluster(east.cluster)) as source, closing(KafkaCluster(west.cluster)) as target:
        yield source, target
    for lab in (east, west):
        forget_links(lab.cluster)


def about_topic(lines: LogLines) -> list[str]:
    """Without those of topics that earlier tests left on the clusters."""
    return [line for line in lines if TOPIC in line]


def test_a_store_that_comes_back_yields_to_the_higher_term(
    both: tuple[KafkaCluster, KafkaCluster],
    east: LabCluster,
    west: LabCluster,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    log_lines: LogLines,
) -> None:
    monkeypatch.setattr(ownership_sync, "POLL_INTERVAL_S", 0.0)
    for lab in (east, west):
        lab.create_topic(TOPIC, partitions=2)
    on_east, on_west = (topic_id(lab.cluster, TOPIC).hex() for lab in (east, west))
    store.homes.settle([HomeRow(PAIR, TOPIC, "east", 1, 1, "link east->west")])
    store.twins.save([TwinRow(THERE.name, TOPIC, number, on_east, on_west, 0, 0, 1) for number in range(2)])
    # Lines of other topics may stand there as well, of earlier tests.
    ours = HomeRecordSync(lambda: THERE, store, *both)
    assert TOPIC not in ours.look()
    assert (about_topic(log_lines), store.homes.of(PAIR)[TOPIC].term) == ([], 1)

    line = HomeRecord(
        topic=TOPIC,
        home="west",
        cluster_id=both[1].cluster_id(),
        term=2,
        switch=SWITCH,
        since_ms=5,
        set_by="ann",
        back="west->east",
        source_topic_id=on_west,
        target_topic_id=on_east,
        points=(7, 0),
    )
    notes = HomesTopic(both[1])
    notes.make()
    notes.say([line], 5)  # The old home is dead, as far as whoever switches can tell.
    assert TOPIC not in ours.look()
    assert store.homes.of(PAIR)[TOPIC] == HomeRow(PAIR, TOPIC, "west", 2, 5, "ann")
    assert store.twins.of(THERE.name) == ()
    rows = [(row.partition, row.base_offset, row.inherited_end) for row in store.twins.of("west->east")]
    assert rows == [(0, 7, 7), (1, 0, 0)]
    assert mentions(about_topic(log_lines)[0], TOPIC, "west", "term 2")
    assert TOPIC not in ours.look()
    assert len(about_topic(log_lines)) == 1

    rival = HomeRecord(topic=TOPIC, home="east", cluster_id=both[0].cluster_id(), term=2, switch="6" * 32)
    (there := HomesTopic(both[0])).make()
    there.say([rival], 6)
    time.sleep(0.01)
    assert mentions(ours.look()[TOPIC], "term 2")
    assert store.homes.of(PAIR)[TOPIC].home == "west", "nobody decides that by itself"


def test_a_cluster_that_never_answered_may_say_what_counts(store: Store) -> None:
    away = [KafkaCluster(Cluster(name, ("127.0.0.1:1",)), patience_s=0.1) for name in ("east", "west")]
    with closing(away[0]), closing(away[1]), pytest.raises(KafkaError):
        HomeRecordSync(lambda: THERE, store, away[0], away[1]).look()


def test_by_prefix_nothing_is_asked(store: Store) -> None:
    away = [KafkaCluster(Cluster(name, ("127.0.0.1:1",)), patience_s=0.1) for name in ("east", "west")]
    mapped = Link("east", "west", naming=TwinNaming.PREFIX)
    with closing(away[0]), closing(away[1]):
        assert HomeRecordSync(lambda: mapped, store, away[0], away[1]).look() == {}
