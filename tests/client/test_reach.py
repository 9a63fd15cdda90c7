"""Which clusters count, as pushes come."""

from __future__ import annotations

import threading

import pytest

from twinshore.client.core.pushes import PushedSettings
from twinshore.client.discovery.routing_topic import Discovery, HomeTracker, without_holds
from twinshore.client.sites import sites_of
from twinshore.routing.core.home_records import HomeRecord, HomeState
from twinshore.routing.core.subscribers import HomeSubscription, WriteTo

CLUSTERS = {"east": {"bootstrap.servers": "127.0.0.1:1"}, "west": {"bootstrap.servers": "127.0.0.1:2"}}


def test_a_push_is_to_be_taken_up_until_its_clusters_were_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine may have no thread left for a moment."""
    reach = Discovery(CLUSTERS, {}, ("*",), check=lambda _: None, news=threading.Event().set)
    before = reach.ask("ours", ["orders"], 5.0)
    reach.hear()
    assert not reach.is_due
    reach._push(PushedSettings(sites_of(CLUSTERS, {"linger.ms": 7}), "west", "d"))
    reach.hear()
    assert reach.is_due
    assert (reach.begin, reach.sites["west"].settings()["linger.ms"]) == ("west", 7)

    def no_thread(_: HomeTracker) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched, pytest.raises(RuntimeError):
        patched.setattr(HomeTracker, "start", no_thread)
        reach.ask("ours", ["orders"], 5.0)
    reach.hear()
    assert reach.is_due
    after = reach.ask("ours", ["orders"], 5.0)
    reach.hear()
    assert not reach.is_due
    for one in (before, after):
        one.stop(goodbye=False)


def test_a_hold_that_ran_out_clashes_with_itself_in_no_later_client() -> None:
    """A client that starts anew, or after a push of other clusters, hears the held line again."""
    held = HomeRecord(
        topic="orders",
        home="east",
        cluster_id="E",
        term=2,
        step=3,
        state=HomeState.HELD,
        switch="a" * 32,
        hold_ms=9_000,
    )

    def follow(client: HomeSubscription, begin_s: float) -> None:
        client.met("east", "E")
        for second in range(20):
            now_s = begin_s + second
            client.said("east", client.says(), now_s, now_s)
            client.read("east", {"orders": held}, now_s + 0.1, now_s + 0.1)

    first = HomeSubscription("b" * 32, "pay", ["orders"], ["east"], "east")
    follow(first, 100.0)
    assert first.order("orders", 119.2) == WriteTo("east", 2)
    assert without_holds(first.told()) == {}
    later = HomeSubscription("c" * 32, "pay", ["orders"], ["east"], "east", told=without_holds(first.told()))
    follow(later, 200.0)
    assert later.order("orders", 219.2) == WriteTo("east", 2)
