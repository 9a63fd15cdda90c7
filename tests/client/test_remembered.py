"""A client that starts while its topics' home is silent: an old home, back from a forced switch, gets nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.client.turning import ByHand, Stage, stage
from twinshore.client.core.spool_format import SpoolRecord
from twinshore.client.spool import Spool

__all__ = ["stage"]


@pytest.mark.claim("client", "spool-home", "a spool is not sent to an old home that is back from a forced switch")
def test_a_spool_waits_for_clusters_that_have_not_said_where_its_topics_are(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = Spool(tmp_path / "spool")
    batch = left.keep([SpoolRecord(one, "orders", b"%d" % one, b"k", -1, 1, (), 1) for one in range(50)])
    assert batch is not None
    left.commit(batch)
    left.close()
    monkeypatch.setattr(ByHand, "silent", frozenset({"west"}))
    stage.opens("orders", spool=tmp_path / "spool")
    stage.turn(4)
    assert stage.log("east") == [], "west may have had a forced switch"
    monkeypatch.setattr(ByHand, "silent", frozenset())
    stage.hears("west", 2, "orders")
    stage.turn(3)
    assert (len(stage.log("west")), stage.log("east")) == (51, [])


@pytest.mark.claim("client", "spool-home", "a spool is not sent to an old home that is back from a forced switch")
def test_where_topics_are_at_home_is_remembered_beside_a_spool(stage: Stage, tmp_path: Path) -> None:
    stage.opens("orders", spool=tmp_path / "spool")
    stage.hears("west", 2, "orders")
    stage.producer._router._discovery._heard()
    stage.hears("west", 2, "orders", step=2, held=True)
    stage.producer._router._discovery._heard()
    stage.producer.kill()
    stage.made.clear()
    stage.opens("orders", spool=tmp_path / "spool")
    assert stage.log("east") == [], "west has said nothing of it yet"
    assert ("orders", b"first") in stage.log("west")
    (tmp_path / "spool" / "homes").write_bytes(b"torn")
    stage.producer.kill()
    stage.made.clear()
    stage.opens("orders", spool=tmp_path / "spool")
    assert ("orders", b"first") in stage.log("east")
