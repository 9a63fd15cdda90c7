"""Which twins may lack records that a fresh queue dropped, also once the queue is another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from twinshore.fleet import HEARTBEATS, Link, QueuePolicy, QueueRules
from twinshore.links.thinned import may_lack, note, thinned
from twinshore.store import Store, TwinRow, open_store
from twinshore.switch.hands.carried import drops_of, filled_in_part

KEEP = Link("east", "west")
FRESH = replace(KEEP, queue=QueueRules(QueuePolicy.FRESH))
TWIN = TwinRow(KEEP.name, "prices", 0, "aa" * 16, "bb" * 16, 0, 0, 1_700_000_000_000)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as opened:
        yield opened


def test_it_is_remembered_for_as_long_as_the_twin_is_the_same_topic(store: Store) -> None:
    store.twins.save([TWIN, replace(TWIN, topic="bills")])
    note(store, KEEP.name, {"prices": TWIN.target_topic_id, HEARTBEATS: "cc" * 16})
    assert thinned(store, KEEP.name, [TWIN, replace(TWIN, topic="bills")]) == {"prices"}
    assert may_lack(store, KEEP, [TWIN]), "whatever the queue is now"
    assert not may_lack(store, KEEP, [replace(TWIN, topic="bills")])
    assert not may_lack(store, KEEP, [replace(TWIN, target_topic_id="dd" * 16)]), "it was filled anew"
    assert not may_lack(store, KEEP, [replace(TWIN, topic=HEARTBEATS, target_topic_id="cc" * 16)])
    assert may_lack(store, FRESH, [replace(TWIN, topic="bills")])
    assert not may_lack(store, FRESH, [replace(TWIN, topic=HEARTBEATS)])


def test_no_home_moves_to_a_twin_that_may_lack_records(store: Store) -> None:
    store.twins.save([TWIN, replace(TWIN, topic="bills")])
    topics = ["bills", "prices"]
    assert drops_of(KEEP, topics, store) == []
    note(store, KEEP.name, {"prices": TWIN.target_topic_id})
    assert drops_of(KEEP, topics, store) == ["prices"]
    assert drops_of(FRESH, topics, store) == topics


def test_who_has_a_twin_filled_anew_by_a_fresh_queue_is_told_that_it_gets_a_part() -> None:
    assert filled_in_part(KEEP) == ""
    assert "what is too old for it is deleted, and not filled again" in filled_in_part(FRESH)
