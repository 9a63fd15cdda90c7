"""One link's part in where topics are at home, with a store and without a cluster that answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from testkit.errors import mentions
from testkit.log_lines import LogLines
from twinshore.config.incident_policy import IncidentKind
from twinshore.config.model import Cluster, Link, TwinNaming
from twinshore.kafka.cluster import KafkaCluster
from twinshore.replication.core.model import CarryTopic
from twinshore.replication.ownership_sync import TopicHomes
from twinshore.replication.topic_lineage import TopicLineage
from twinshore.state.core.values import HomeRow, LinkIdentity, TwinRow
from twinshore.state.store import Store, open_store

THERE, BACK = Link("east", "west"), Link("west", "east")
PAIR = "east<>west"
STEP = CarryTopic("orders", 1, "aa" * 16, "bb" * 16)
TWIN = TwinRow(THERE.name, "orders", 0, "aa" * 16, "bb" * 16, 0, 0, 1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as opened:
        yield opened


def homing(store: Store, link: Link = THERE) -> TopicHomes:
    source, target = (
        KafkaCluster(Cluster(name, ("127.0.0.1:1",)), patience_s=0.1) for name in (link.source, link.target)
    )
    links = [THERE, BACK]
    descents = TopicLineage(lambda: link, store, source, target)
    return TopicHomes(lambda: link, links, store, source, target, descents)


def test_a_topic_whose_home_moved_while_its_twin_was_made_is_let_go(store: Store, log_lines: LogLines) -> None:
    store.homes.settle([HomeRow(PAIR, "orders", "west", 1, 1, "me")])
    store.twins.save([TWIN])
    assert homing(store).kept([STEP], known=()) == []
    assert store.twins.of(THERE.name) == (), "what was begun is taken back"
    assert mentions(log_lines[0], "orders", "west")


def test_a_twin_of_before_is_not_forgotten_when_its_home_moves(store: Store) -> None:
    store.homes.settle([HomeRow(PAIR, "orders", "west", 1, 1, "me")])
    store.twins.save([TWIN])
    assert homing(store).kept([STEP], known={"orders"}) == []
    assert store.twins.of(THERE.name) == (TWIN,)


@pytest.mark.parametrize("home", ["east", ""])
def test_what_is_at_home_here_or_needs_no_home_is_kept(store: Store, home: str) -> None:
    if home:
        store.homes.settle([HomeRow(PAIR, "orders", home, 1, 1, "me")])
    assert homing(store).kept([STEP], known=()) == [STEP]


def test_by_prefix_no_topic_has_a_home(store: Store) -> None:
    store.homes.settle([HomeRow(PAIR, "orders", "west", 1, 1, "me")])
    assert homing(store, replace(THERE, naming=TwinNaming.PREFIX)).kept([STEP], known=()) == [STEP]


def test_a_topic_of_which_a_newer_version_says_the_home_is_refused_as_such(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = homing(store)
    doubts = {"orders": "a newer version says it", "bills": "clusters say different things"}
    monkeypatch.setattr(ours.records, "look", lambda: doubts)
    monkeypatch.setattr(ours.records, "unread", frozenset(["orders"]))
    monkeypatch.setattr(ours._descents, "admitted", lambda names, _=(): names)
    monkeypatch.setattr(ours._descents, "unread", {"east.audit": "whether it is a twin cannot be read here"})
    assert ours.admitted({"orders": ("aa", 1), "bills": ("bb", 1)}) == {}
    assert {name: one.kind for name, one in ours.refused.items()} == {
        "orders": IncidentKind.NEWER_LINE,
        "bills": IncidentKind.HOME_UNDECIDED,
        "east.audit": IncidentKind.NEWER_LINE,
    }
    assert ours.doubted == doubts, "what runs of them is let go"


@pytest.mark.parametrize("known", [False, True])
def test_a_topic_of_which_a_newer_version_says_whether_it_is_a_twin_stays(
    store: Store, monkeypatch: pytest.MonkeyPatch, known: bool, log_lines: LogLines
) -> None:
    ours = homing(store)._descents
    for cluster, cluster_id in ((ours._source, "id-e"), (ours._target, "id-w")):
        monkeypatch.setattr(cluster, "cluster_id", lambda cluster_id=cluster_id: cluster_id)
    monkeypatch.setattr(ours, "_read", lambda _: None)
    ours._told["source"].take(b"orders", b'{"v":2}')
    if known:  # the store has carried it here itself
        store.links.save_identity(LinkIdentity("north->east", 1, 0, "id-n", "id-e"))
        store.twins.save([replace(TWIN, link="north->east", topic="orders", target_topic_id="aa")])
    names = {"orders": ("aa", 1), "bills": ("bb", 1)}
    assert ours.admitted(names) == {"bills": ("bb", 1)}
    assert list(ours.unread) == ([] if known else ["orders"])
    assert any("newer version (v 2)" in line for line in log_lines) is not known
    ours._told["source"].take(b"orders", None)
    assert list(ours.admitted(names)) == (["bills"] if known else ["orders", "bills"])
    assert ours.unread == {}, "the line was taken away"
