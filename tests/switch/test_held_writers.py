"""A switch that holds writers is told of, and ended once its process is gone; on a store of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.switch.test_companion import settings, store
from tests.switch.test_decision import NOW_MS, record
from twinshore.config.incident_policy import IncidentKind
from twinshore.config.settings import Settings
from twinshore.runtime import lease_keeper as alone_module
from twinshore.runtime.endpoints import LinkContext
from twinshore.runtime.lease_keeper import exclusive
from twinshore.runtime.logging import OutageLog
from twinshore.state.core.values import MirrorRequest, TopicInSwitch
from twinshore.state.store import Store
from twinshore.switch import old_home
from twinshore.switch.core.steps import SwitchState, SwitchStep
from twinshore.switch.old_home import HeldWriters

__all__ = ["settings", "store"]
LEASE_S = 0.6


class Noted(HeldWriters):
    """Notes which switches are to be ended, as there is no cluster."""

    def __init__(self, beside: LinkContext) -> None:
        self.ended: list[SwitchState] = []
        super().__init__(beside)

    def _end(self, record: SwitchState) -> None:
        self.ended.append(record)


@pytest.fixture
def beside(settings: Settings, store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Noted]:
    for module, name, value in (
        (alone_module, "LEASE_S", LEASE_S),
        (alone_module, "GRACE_S", 0.1),
        (old_home, "OPERATOR_GRACE_S", 0.1),
        (old_home, "REPORT_AFTER_S", 0.2),
        (old_home, "HOLD_CHECK_INTERVAL_S", 0.05),
    ):
        monkeypatch.setattr(module, name, value)
    link = next(one for one in settings.links if one.name == "east->west")
    made = Noted(LinkContext(link, settings, store, lambda: True, OutageLog()))
    yield made
    made.close()


def told(store: Store) -> list[str]:
    rows = [row.incident for row in store.incidents.rows("east->west", open_only=True)]
    return [one.sentence for one in rows if one.kind is IncidentKind.WRITERS_HELD]


def until(holds: object, within_s: float = 10.0) -> None:
    assert callable(holds)
    over_s = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < over_s, "it does not come to it"
        time.sleep(0.02)


def at(step: SwitchStep, held_ms: int) -> SwitchState:
    return replace(record(), step=step, held_ms=held_ms)


@pytest.mark.claim(
    "switch",
    "orphaned-hold",
    "a switch holds writers and its process dies: an incident names it, and the mirror ends it",
)
def test_a_hold_is_told_of_and_ended_once_its_process_is_gone(store: Store, beside: Noted) -> None:
    one = at(SwitchStep.DRAIN, NOW_MS)
    store.topics_in_switch.begin(
        [TopicInSwitch("east<>west", "orders", one.id, "east->west", MirrorRequest.ANNOUNCED, 1)]
    )
    with exclusive(f"switch {one.id}", store, "anna") as lease:
        held = lease.row()
        assert held is not None and store.switches.save(at(SwitchStep.ANNOUNCE, 0).row(NOW_MS), held)
        time.sleep(4 * LEASE_S)
        assert told(store) == [], "nobody waits yet"
        assert store.switches.save(one.row(NOW_MS), held)
        until(lambda: told(store))
        assert "orders" in told(store)[0]
        time.sleep(3 * LEASE_S)
        assert beside.ended == [], "its process is alive"
    until(lambda: beside.ended)
    assert beside.ended[0].id == one.id
    with exclusive(f"switch {one.id}", store, "the mirror") as lease:
        held = lease.row()
        assert held is not None and store.switches.save(replace(one, let_write_ms=NOW_MS + 1).row(NOW_MS), held)
        until(lambda: told(store) == [])


def test_a_switch_that_cannot_end_keeps_no_other_from_being_ended(store: Store, beside: Noted) -> None:
    begun = threading.Event()

    def hangs(record: SwitchState) -> None:
        beside.ended.append(record)
        begun.wait(30)

    beside._end = hangs  # type: ignore[method-assign]
    try:
        for topic, switch in (("orders", "a" * 32), ("bills", "b" * 32)):
            one = replace(at(SwitchStep.DRAIN, NOW_MS), id=switch)
            asked = TopicInSwitch("east<>west", topic, switch, "east->west", MirrorRequest.ANNOUNCED, 1)
            store.topics_in_switch.begin([asked])
            with exclusive(f"switch {switch}", store, "anna") as lease:
                held = lease.row()
                assert held is not None and store.switches.save(one.row(NOW_MS), held)
        until(lambda: {one.id for one in beside.ended} == {"a" * 32, "b" * 32})
        beside.close()
    finally:
        begun.set()


def test_a_switch_that_holds_nobody_is_left_to_its_operator(store: Store, beside: Noted) -> None:
    one = at(SwitchStep.ANNOUNCE, 0)
    store.topics_in_switch.begin(
        [TopicInSwitch("east<>west", "orders", one.id, "east->west", MirrorRequest.ANNOUNCED, 1)]
    )
    with exclusive(f"switch {one.id}", store, "anna") as lease:
        held = lease.row()
        assert held is not None and store.switches.save(one.row(NOW_MS), held)
    time.sleep(3 * LEASE_S)
    assert (beside.ended, told(store)) == ([], [])
