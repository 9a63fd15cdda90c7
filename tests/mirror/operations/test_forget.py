"""Forgetting a topic's twin, asked as a program asks."""

from __future__ import annotations

import time

import pytest

from tests.mirror.operations.asked import BACK, LINK, settings_of
from twinshore.fleet import ConfigError, RefusedError
from twinshore.mirror.operations.forget import Forget, act, plan
from twinshore.store import Store, TwinRow

SETTINGS = settings_of(f'[links."{LINK}"]\n[links."{BACK}"]\n')


@pytest.fixture(autouse=True)
def twins(store: Store) -> None:
    places = ((LINK, "orders"), (BACK, "orders"), (LINK, "bills"))
    store.twins.save([TwinRow(link, topic, 0, "aa", "bb", 0, 0, 1) for link, topic in places])


def test_a_plan_forgets_nothing_and_its_act_tells_who_asked(store: Store) -> None:
    planned = plan(Forget("orders", [LINK, BACK]), SETTINGS, store)
    assert [step.sentence(done=False) for step in planned.steps] == [
        "east->west: 1 partitions of orders would be forgotten",
        "west->east: 1 partitions of orders would be forgotten",
    ]
    assert len(store.twins.of(LINK)) == 2
    told: list[str] = []
    done = list(act(planned, SETTINGS, store, by="anna", tell=told.append))
    assert (done, told) == (list(planned.steps), [])
    assert [row.topic for link in (LINK, BACK) for row in store.twins.of(link)] == ["bills"]
    assert sorted((row.link, row.outcome) for row in store.audit.rows()) == [(LINK, "by anna"), (BACK, "by anna")]


def test_of_two_links_neither_is_touched_while_one_is_carried(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    held = store.leases.take(f"link {BACK}", "a mirror", 2_000, seen=None)
    assert held is not None
    # The mirror renews its lease between two looks.
    monkeypatch.setattr(time, "sleep", lambda _: store.leases.beat_each([held], {held.name: held.ttl_ms}))
    planned = plan(Forget("orders", [LINK, BACK]), SETTINGS, store)
    told: list[str] = []
    with pytest.raises(RefusedError, match="is carried by a mirror now"):
        list(act(planned, SETTINGS, store, by="anna", tell=told.append))
    assert told == ["west->east: a mirror has not given its lease up; looking whether it is alive"]
    assert len(store.twins.of(LINK)) == 2


def test_what_several_links_know_needs_the_links_name(store: Store) -> None:
    with pytest.raises(ConfigError, match="know topic orders"):
        plan(Forget("orders"), SETTINGS, store)
    with pytest.raises(ConfigError, match="no link knows topic bill"):
        plan(Forget("bill"), SETTINGS, store)
