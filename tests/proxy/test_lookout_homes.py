"""Whoever follows switches takes a moved home from the clusters' own words: the store's comes a moment too early."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from testkit.errors import mentions
from testkit.log_lines import LogLines
from tests.proxy.talks import LAYOUT
from twinshore.config.model import Cluster
from twinshore.config.settings import load_settings
from twinshore.proxy import cluster_view as follows_module
from twinshore.proxy import cluster_view as module
from twinshore.proxy.cluster_view import (
    HOME_RECORDS_INTERVAL_S,
    TWIN_RECORD_GRACE_S,
    ClusterWatcher,
    HomesUpdate,
    HomeWatcher,
    StoredHomes,
)
from twinshore.proxy.core.model import HomeRoute, ProxiedCluster
from twinshore.proxy.lazy_store import LazyStore
from twinshore.routing.core.subscribers import SUBSCRIPTION_LEASE_S

TOPICS = frozenset({"orders"})
FOUND = {name: ProxiedCluster(name, f"{name}-id", 1, {}, TOPICS, {}) for name in ("east", "west")}


@pytest.fixture
def lookout(tmp_path: Path) -> ClusterWatcher:
    (tmp_path / "t.toml").write_text(f'[store]\nurl = "sqlite:///{tmp_path}/store.db"\n')
    store = LazyStore(load_settings(tmp_path / "t.toml", {}))
    made = ClusterWatcher([Cluster("east", ("e:1",)), Cluster("west", ("w:1",))], LAYOUT, store)
    made._stored = StoredHomes({"orders": "east"}, {"orders": 1})
    made._take(FOUND)
    assert made.table.route("orders") == "east"
    return made


def test_a_topic_stays_where_it_was_until_the_clusters_say_that_it_moved(
    lookout: ClusterWatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(module, "steady_s", lambda: now[0])
    lookout.led(HomesUpdate(until_s={"west": 1e9}))
    lookout._stored = StoredHomes({"orders": "west"}, {"orders": 2})
    lookout._take(FOUND)
    now[0] += HOME_RECORDS_INTERVAL_S - 0.1
    lookout._take(FOUND)
    assert lookout.table.route("orders") == "east"
    lookout.led(HomesUpdate({"orders": HomeRoute("west", 2)}, until_s={"west": 1e9}))
    assert lookout.table.route("orders") == "west"


def test_where_they_say_nothing_the_store_is_believed_in_the_end(
    lookout: ClusterWatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(module, "steady_s", lambda: now[0])
    lookout.led(HomesUpdate(until_s={"west": 1e9}))
    lookout._stored = StoredHomes({"orders": "west"}, {"orders": 2})
    lookout._take(FOUND)
    now[0] += HOME_RECORDS_INTERVAL_S
    lookout._take(FOUND)
    assert lookout.table.route("orders") == "west"


@pytest.mark.claim("proxy", "unheard", "a proxy that starts while a cluster is silent leads no client to a twin")
def test_a_higher_term_of_the_store_counts_more_than_the_word_of_a_home_that_is_back(
    lookout: ClusterWatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(module, "steady_s", lambda: now[0])
    lookout._stored = StoredHomes({"orders": "west"}, {"orders": 2})
    lookout.led(HomesUpdate({"orders": HomeRoute("east", 1)}, until_s={"west": 1e9}))
    assert lookout.table.route("orders") == "east", "a word of the switch may be on its way"
    now[0] += HOME_RECORDS_INTERVAL_S
    lookout._take(FOUND)
    assert (lookout.table.route("orders"), lookout.table.leads["orders"].term) == ("west", 2)
    lookout.led(HomesUpdate({"orders": HomeRoute("east", 3)}, until_s={"west": 1e9}))
    assert lookout.table.route("orders") == "east"


@pytest.mark.claim("proxy", "torn", "two processes lead a topic of two clusters to no two of them, and say so")
def test_two_processes_of_different_age_lead_a_topic_of_two_clusters_to_no_two_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_lines: LogLines
) -> None:
    now = [100.0]
    monkeypatch.setattr(module, "steady_s", lambda: now[0])
    (tmp_path / "t.toml").write_text(f'[store]\nurl = "sqlite:///{tmp_path}/store.db"\n')

    def begun() -> ClusterWatcher:
        store = LazyStore(load_settings(tmp_path / "t.toml", {}))
        made = ClusterWatcher([Cluster("east", ("e:1",)), Cluster("west", ("w:1",))], LAYOUT, store)
        made._links = ()
        return made

    old, new = begun(), begun()
    old._take({**FOUND, "east": replace(FOUND["east"], topics=frozenset())})
    assert old.table.route("orders") == "west"
    for one in (old, new):
        one._take(FOUND)
    assert [one.table.route("orders") for one in (old, new)] == ["west", None]
    now[0] += TWIN_RECORD_GRACE_S
    old._take(FOUND)
    assert old.table.route("orders") is None
    assert [mentions(one, "orders", "no known home", "east, west") for one in log_lines] == [True, True]


def test_who_follows_no_switches_goes_by_the_store_at_once(lookout: ClusterWatcher) -> None:
    lookout._stored = StoredHomes({"orders": "west"}, {"orders": 2})
    lookout._take(FOUND)
    assert lookout.table.route("orders") == "west"


@pytest.mark.claim("proxy", "words-first", "no client comes in before home words were read, or waited for")
def test_clients_come_in_once_home_words_were_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who read before would be led to old homes, and find none of its group's offsets."""
    now = [100.0]
    monkeypatch.setattr(follows_module, "steady_s", lambda: now[0])
    follows = HomeWatcher("proxy", [Cluster("east", ("e:1",)), Cluster("west", ("w:1",))])
    follows._began_s = now[0]
    now[0] += 10 * SUBSCRIPTION_LEASE_S
    assert not follows.has_read_home_records(), "no cluster was read"
    follows._tracker._unheard.discard("east")
    now[0] = 100.0 + SUBSCRIPTION_LEASE_S - 0.1
    assert not follows.has_read_home_records(), "west may say a higher word"
    now[0] = 100.0 + SUBSCRIPTION_LEASE_S
    assert follows.has_read_home_records(), "west was waited for"
    follows._tracker._unheard.clear()
    now[0] = 100.0
    assert follows.has_read_home_records()
