"""An operator's word on where a topic is at home, and what is refused: all without a cluster that answers."""

from __future__ import annotations

import pytest

from testkit.errors import mentions, raises
from tests.replication.operations.asked import BACK, LINK, settings_of
from twinshore.config.errors import ConfigError, KafkaError, RefusedError
from twinshore.config.model import Plan
from twinshore.replication.operations.homes import SetHomeStep, act, list_homes, list_link_pairs, plan
from twinshore.state.core.values import HomeRow, TwinRow
from twinshore.state.store import Store

pytestmark = pytest.mark.usefixtures("short_patience")

PAIR = "east<>west"
SETTINGS = settings_of(f'[links."{LINK}"]\n[links."{BACK}"]\ntopics = ["orders.*"]\n')
ROW = HomeRow(PAIR, "orders", "east", 1, 1, f"link {LINK}")


def test_a_pair_is_two_links_each_the_others_way_back(store: Store) -> None:
    for links in ((), (LINK,), (BACK,)):
        assert [(one.name, other.name) for one, other in list_link_pairs(SETTINGS, store, links)] == [(LINK, BACK)]
    assert list_link_pairs(settings_of(f'[links."{LINK}"]\n[links."{BACK}"]\nnaming = "prefix"\n'), store) == []


def test_what_the_store_knows_is_shown_also_where_no_cluster_answers(store: Store) -> None:
    store.homes.settle([ROW])
    found = list_homes((), SETTINGS, store)
    assert [(one.topic, one.home, one.term) for one in found.topics] == [("orders", "east", 1)]
    ((pair, why),) = found.away
    assert (pair, "east" in why) == (PAIR, True)
    assert found.as_values()["topics"] == [
        {"pair": PAIR, "topic": "orders", "home": "east", "term": 1, "sentence": f"set by link {LINK}"}
    ]


def test_what_cannot_be_a_home_is_refused_before_any_cluster_is_asked(store: Store) -> None:
    with raises(ConfigError, "replication.topic-not-in-pair", topic="bills", link=BACK, back=LINK):
        plan("bills", "west", (), SETTINGS, store)
    with raises(ConfigError, "replication.no-pair", home="west"):
        plan("orders", "west", (), settings_of(f'[links."{LINK}"]\n'), store)
    with pytest.raises(ConfigError, match="south"):
        plan("orders", "south", (), SETTINGS, store)
    with pytest.raises(KafkaError):
        plan("orders", "west", (), SETTINGS, store)


def test_a_home_is_not_moved_from_under_a_twin(store: Store) -> None:
    store.homes.settle([ROW])
    store.twins.save([TwinRow(LINK, "orders", 0, "aa" * 16, "bb" * 16, 0, 0, 1)])
    assert plan("orders", "east", (), SETTINGS, store).steps == ()
    with raises(RefusedError, "replication.home-needs-switch", topic="orders", link=LINK, home="west"):
        plan("orders", "west", (), SETTINGS, store)


def test_what_was_decided_since_the_plan_stays(store: Store) -> None:
    step = SetHomeStep(PAIR, "orders", "", "west", 0, (LINK, BACK))
    store.homes.settle([ROW])
    with raises(RefusedError, "replication.home-changed", topic="orders"):
        list(act(Plan((step,)), store, by="anna"))
    assert store.homes.of(PAIR) == {"orders": ROW}
    assert not store.audit.rows()
    (done,) = act(Plan((SetHomeStep(PAIR, "orders", "east", "west", 1, (LINK, BACK)),)), store, by="anna")
    assert mentions(done.sentence(done=True), PAIR, "orders", "west, before east")
    row = store.homes.of(PAIR)["orders"]
    assert (row.home, row.term, row.set_by) == ("west", 2, "anna")
    assert sorted((one.link, one.before, one.after, one.outcome) for one in store.audit.rows()) == [
        (LINK, "east", "west", "by anna"),
        (BACK, "east", "west", "by anna"),
    ]
    assert {(one.actor, one.topic) for one in store.audit.rows()} == {("anna", "orders")}
