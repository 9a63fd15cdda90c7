"""Whoever follows switches takes a moved home from the clusters' own words: the store's comes a moment too early."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proxy.talks import LAYOUT
from twinshore.fleet import Cluster
from twinshore.fleet.settings import load_settings
from twinshore.proxy import lookout as module
from twinshore.proxy.core.leads import Lead
from twinshore.proxy.core.seen import ClusterSeen
from twinshore.proxy.follows import Led
from twinshore.proxy.late_store import LateStore
from twinshore.proxy.lookout import HEARD_S, Lookout

TOPICS = frozenset({"orders"})
FOUND = {name: ClusterSeen(name, f"{name}-id", 1, {}, TOPICS, {}) for name in ("east", "west")}


@pytest.fixture
def lookout(tmp_path: Path) -> Lookout:
    (tmp_path / "t.toml").write_text(f'[store]\nurl = "sqlite:///{tmp_path}/store.db"\n')
    store = LateStore(load_settings(tmp_path / "t.toml", {}), print)
    made = Lookout([Cluster("east", ("e:1",)), Cluster("west", ("w:1",))], LAYOUT, store, print)
    made._knows, made._stored = True, {"orders": "east"}
    made._take(FOUND)
    assert made.seen.route("orders") == "east"
    return made


def test_a_topic_stays_where_it_was_until_the_clusters_say_that_it_moved(
    lookout: Lookout, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(module, "steady_s", lambda: now[0])
    lookout.led(Led(until_s=1e9))
    lookout._stored = {"orders": "west"}
    lookout._take(FOUND)
    now[0] += HEARD_S - 0.1
    lookout._take(FOUND)
    assert lookout.seen.route("orders") == "east"
    lookout.led(Led({"orders": Lead("west", 2)}, until_s=1e9))
    assert lookout.seen.route("orders") == "west"


def test_where_they_say_nothing_the_store_is_believed_in_the_end(
    lookout: Lookout, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(module, "steady_s", lambda: now[0])
    lookout.led(Led(until_s=1e9))
    lookout._stored = {"orders": "west"}
    lookout._take(FOUND)
    now[0] += HEARD_S
    lookout._take(FOUND)
    assert lookout.seen.route("orders") == "west"


def test_who_follows_no_switches_goes_by_the_store_at_once(lookout: Lookout) -> None:
    lookout._stored = {"orders": "west"}
    lookout._take(FOUND)
    assert lookout.seen.route("orders") == "west"
