"""One link's part in where topics are at home, with a store and without a cluster that answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from twinshore.config.model import Cluster, Link, TwinNaming
from twinshore.kafka.cluster import KafkaCluster
from twinshore.replication.core.model import CarryTopic
from twinshore.replication.ownership_sync import TopicHomes
from twinshore.replication.topic_lineage import TopicLineage
from twinshore.state.core.values import HomeRow, TwinRow
from twinshore.state.store import Store, open_store

THERE, BACK = Link("east", "west"), Link("west", "east")
PAIR = "east<>west"
STEP = CarryTopic("orders", 1, "aa" * 16, "bb" * 16)
TWIN = TwinRow(THERE.name, "orders", 0, "aa" * 16, "bb" * 16, 0, 0, 1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as opened:
        yield opened


def homing(store: Store, said: list[str], link: Link = THERE) -> TopicHomes:
    source, target = (
        KafkaCluster(Cluster(name, ("127.0.0.1:1",)), patience_s=0.1) for name in (link.source, link.target)
    )
    links = [THERE, BACK]
    descents = TopicLineage(lambda: link, store, source, target, said.append)
    return TopicHomes(lambda: link, links, store, source, target, descents, said.append)


def test_a_topic_whose_home_moved_while_its_twin_was_made_is_let_go(store: Store) -> None:
    said: list[str] = []
    store.homes.settle([HomeRow(PAIR, "orders", "west", 1, 1, "me")])
    store.twins.save([TWIN])
    assert homing(store, said).kept([STEP], known=()) == []
    assert store.twins.of(THERE.name) == (), "what was begun is taken back"
    assert "orders is at home on west" in said[0]


def test_a_twin_of_before_is_not_forgotten_when_its_home_moves(store: Store) -> None:
    store.homes.settle([HomeRow(PAIR, "orders", "west", 1, 1, "me")])
    store.twins.save([TWIN])
    assert homing(store, []).kept([STEP], known={"orders"}) == []
    assert store.twins.of(THERE.name) == (TWIN,)


@pytest.mark.parametrize("home", ["east", ""])
def test_what_is_at_home_here_or_needs_no_home_is_kept(store: Store, home: str) -> None:
    if home:
        store.homes.settle([HomeRow(PAIR, "orders", home, 1, 1, "me")])
    assert homing(store, []).kept([STEP], known=()) == [STEP]


def test_by_prefix_no_topic_has_a_home(store: Store) -> None:
    store.homes.settle([HomeRow(PAIR, "orders", "west", 1, 1, "me")])
    assert homing(store, [], replace(THERE, naming=TwinNaming.PREFIX)).kept([STEP], known=()) == [STEP]
