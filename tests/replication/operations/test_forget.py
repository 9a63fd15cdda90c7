"""Forgetting a topic's twin, asked as a program asks."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from testkit.errors import mentions, raises
from tests.replication.operations.asked import BACK, LINK, settings_of
from twinshore.config.errors import ConfigError, RefusedError
from twinshore.replication.operations import twins
from twinshore.replication.operations.twins import ForgetTopicStep, act_forget, plan_forget
from twinshore.state.core.values import TwinRow
from twinshore.state.store import Store

SETTINGS = settings_of(f'[links."{LINK}"]\n[links."{BACK}"]\n')


@pytest.fixture(autouse=True)
def twin_rows(store: Store) -> None:
    places = ((LINK, "orders"), (BACK, "orders"), (LINK, "bills"))
    store.twins.save([TwinRow(link, topic, 0, "aa", "bb", 0, 0, 1) for link, topic in places])


def test_a_plan_forgets_nothing_and_its_act_tells_who_asked(store: Store) -> None:
    planned = plan_forget("orders", [LINK, BACK], SETTINGS, store)
    assert planned.steps == (ForgetTopicStep(LINK, "orders", 1), ForgetTopicStep(BACK, "orders", 1))
    assert len(store.twins.of(LINK)) == 2
    told: list[str] = []
    done = list(act_forget(planned, SETTINGS, store, by="anna", tell=told.append))
    assert (done, told) == (list(planned.steps), [])
    assert [row.topic for link in (LINK, BACK) for row in store.twins.of(link)] == ["bills"]
    assert sorted((row.link, row.outcome) for row in store.audit.rows()) == [(LINK, "by anna"), (BACK, "by anna")]


def test_of_two_links_neither_is_touched_while_one_is_carried(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    held = store.leases.take(f"link {BACK}", "a mirror", 2_000, row=None)
    assert held is not None
    # The mirror renews its lease between two looks.
    monkeypatch.setattr(time, "sleep", lambda _: store.leases.renew_each([held], {held.name: held.ttl_ms}))
    planned = plan_forget("orders", [LINK, BACK], SETTINGS, store)
    told: list[str] = []
    with raises(RefusedError, "replication.link-running", link=BACK, owner="a mirror"):
        list(act_forget(planned, SETTINGS, store, by="anna", tell=told.append))
    assert [mentions(one, BACK, "a mirror") for one in told] == [True]
    assert len(store.twins.of(LINK)) == 2


@pytest.mark.claim("topics", "forget-holds-the-lease", "no mirror begins while `mirror forget` deletes")
def test_a_mirror_that_begins_meanwhile_is_met_by_no_deletion(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = plan_forget("orders", [LINK], SETTINGS, store)
    gave_up = store.leases.take(f"link {LINK}", "an earlier mirror", 2_000, row=None)
    assert gave_up is not None
    store.leases.release(gave_up)
    forget_topic, begun = store.forget_topic, []

    def begin_then_forget(*of: object) -> int:
        begun.append(store.leases.take(f"link {LINK}", "a mirror", 2_000, row=replace(gave_up, released=True)))
        return forget_topic(*of)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "forget_topic", begin_then_forget)
    assert list(act_forget(planned, SETTINGS, store, by="anna", tell=print)) == list(planned.steps)
    assert begun == [None], "the lease is held until all is forgotten"
    free = store.leases.read(f"link {LINK}")
    assert free is not None and free.released

    planned = plan_forget("bills", [LINK], SETTINGS, store)
    monkeypatch.setattr(twins, "refuse_while_mirror_runs", lambda *_: gave_up)  # a mirror has taken it since that look
    with pytest.raises(RefusedError, match=LINK):
        list(act_forget(planned, SETTINGS, store, by="anna", tell=print))
    assert [row.topic for row in store.twins.of(LINK)] == ["bills"]


def test_what_several_links_know_needs_the_links_name(store: Store) -> None:
    with raises(ConfigError, "replication.topic-on-several-links", topic="orders", links=f"{LINK}, {BACK}"):
        plan_forget("orders", (), SETTINGS, store)
    with raises(ConfigError, "replication.topic-unknown", topic="bill"):
        plan_forget("bill", (), SETTINGS, store)
