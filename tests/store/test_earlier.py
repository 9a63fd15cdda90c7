"""Settings and a store that an earlier version left behind are read by this one, and nothing that they say is lost.

Each pair in the folder `earlier` was made by a real mirror of that commit between two real clusters: what it carried,
refused and proved, and what an operator had said. The store is SQLite's own dump of its file.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tests.store.older import open_upgraded
from twinshore.fleet.settings import Settings, load_settings
from twinshore.store import Store

EARLIER = Path(__file__).parent / "earlier"
LINK = "east->west"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    with sqlite3.connect(tmp_path / "twinshore.db") as connection:
        connection.executescript((EARLIER / "a6ed841.sql").read_text())
    connection.close()
    return open_upgraded(f"sqlite:///{tmp_path}/twinshore.db")


def test_settings_of_then_say_what_they_said() -> None:
    settings: Settings = load_settings(EARLIER / "a6ed841.toml", {})
    (link,) = settings.links
    assert link.name == LINK
    assert (settings.mirror.lanes, settings.mirror.tide_s, settings.mirror.refresh_s) == (2, 30, 1)


def test_twins_and_where_they_stand_are_as_they_were(store: Store) -> None:
    with store:
        twins = [(one.topic, one.partition) for one in store.twins.of(LINK)]
        assert {one.ledger_before for one in store.twins.of(LINK)} == {-1}, "clocks say what is of them"
        assert sorted(twins) == [("orders", 0), ("orders", 1), ("payments", 0), ("twinshore.heartbeats", 0)]
        stands = {(one.topic, one.partition): one.to_offset for one in store.receipts.positions(LINK)}
        assert stands == {("orders", 0): 150, ("orders", 1): 150, ("twinshore.heartbeats", 0): 85}


def test_what_was_refused_said_done_and_proven_still_holds(store: Store) -> None:
    with store:
        (row,) = store.ledger.rows(LINK)
        assert row.incident.topic == "few"
        assert "has 1 partitions on the target, 2 on the source" in row.incident.sentence
        said = {one.name: (one.value, one.changed_by) for one in store.controls.of(LINK)}
        assert said == {"paused_topics": ('["payments"]', "anna"), "throttle_bytes_s": ("5000000", "anna")}
        assert {(one.topic, one.partition) for one in store.proofs.of(LINK)} == {
            ("orders", 1),
            ("twinshore.heartbeats", 0),
        }
        assert {one.subject for one in store.audit.rows(LINK)} == {"paused_topics", "throttle_bytes_s"}


def test_the_link_is_not_taken_for_one_that_the_store_lacks(store: Store) -> None:
    """As whom it writes, and between which clusters: without it every twin would be refused as another's."""
    with store:
        identity = store.links.identity(LINK)
        assert identity is not None
        assert identity.source_cluster_id == "cRUZ-7dkSO-SLyZaI4j_cg"
