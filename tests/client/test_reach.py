"""Which clusters count, as pushes come."""

from __future__ import annotations

import threading

import pytest

from twinshore.client.centres.homes import HomesCentre
from twinshore.client.centres.pushed import Pushed
from twinshore.client.reach import Reach
from twinshore.client.sites import sites_of

CLUSTERS = {"east": {"bootstrap.servers": "127.0.0.1:1"}, "west": {"bootstrap.servers": "127.0.0.1:2"}}


def test_a_push_is_to_be_taken_up_until_its_clusters_were_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine may have no thread left for a moment."""
    reach = Reach(CLUSTERS, {}, ("*",), warn=print, check=lambda _: None, news=threading.Event().set)
    before = reach.ask("ours", ["orders"], 5.0)
    reach.hear()
    assert not reach.is_due
    reach._push(Pushed(sites_of(CLUSTERS, {"linger.ms": 7}), "west", "d"))
    reach.hear()
    assert reach.is_due
    assert (reach.begin, reach.sites["west"].settings()["linger.ms"]) == ("west", 7)

    def no_thread(_: HomesCentre) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched, pytest.raises(RuntimeError):
        patched.setattr(HomesCentre, "start", no_thread)
        reach.ask("ours", ["orders"], 5.0)
    reach.hear()
    assert reach.is_due
    after = reach.ask("ours", ["orders"], 5.0)
    reach.hear()
    assert not reach.is_due
    for one in (before, after):
        one.stop(goodbye=False)
