"""What a link's driver says while the store fails it at each look, and what it leaves unsaid once its lease is lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.log_lines import LogLines
from tests.replication.test_link_driver import LINK, Place, answering_clusters
from twinshore.config.errors import StoreError
from twinshore.replication.controller import LinkController
from twinshore.replication.core.model import SCAN_STALLED_S
from twinshore.replication.operator_control import EFFECTIVE_FILTERS_KIND
from twinshore.replication.task.core.messages import PartitionConfig


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_lines: LogLines) -> Iterator[Place]:
    answering_clusters(monkeypatch)
    made = Place(tmp_path, log_lines)
    yield made
    made.close()


def test_a_link_waits_where_the_store_refuses_each_look_for_a_minute(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is on its tasks goes on; topics on no task wait for as long as the store will not have what they need."""

    def stands() -> tuple[str, str]:
        word = place.recorder.words()[LINK]
        return word["state"], word["says"]

    def fails(_: LinkController) -> None:
        raise StoreError("the store will not have it")

    place.turned(lambda sentence: "flowing" in sentence)
    place.coordinator.assign((LINK, 0), [PartitionConfig("orders", 0, "00", "00")])
    monkeypatch.setattr(place.coordinator, "unmanned", lambda _: frozenset())
    monkeypatch.setattr(LinkController, "_survey", fails)
    monkeypatch.setattr(place.driver, "_surveyed_at_s", 0.0)
    for hindered_s, state in ((0.0, "flowing"), (SCAN_STALLED_S, "waiting")):
        monkeypatch.setattr(place.driver, "_hindered_at_s", time.monotonic() - hindered_s)
        with pytest.raises(StoreError):
            place.driver.turn()
        assert stands()[0] == state
        assert "the store will not have it" in stands()[1]
    monkeypatch.setattr(LinkController, "_survey", lambda _: None)
    place.turned(lambda sentence: "flowing" in sentence)
    assert stands() == ("flowing", "1 partition on 1 task")


def test_who_has_lost_the_lease_in_the_middle_of_a_turn_says_no_more_which_filters_hold(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process may have slept there for long: another one carries the link by now, perhaps by wider filters."""
    place.turned(lambda sentence: "flowing" in sentence)
    place.store.link_states.forget(place.store.link_states.of(LINK, EFFECTIVE_FILTERS_KIND))
    place.driver._overrides.anew()
    with monkeypatch.context() as lost:
        lost.setattr(place.driver.lease, "left_s", lambda: 0.0)
        place.driver._apply_overrides()
        assert not place.store.link_states.of(LINK, EFFECTIVE_FILTERS_KIND)
    place.driver._apply_overrides()
    assert len(place.store.link_states.of(LINK, EFFECTIVE_FILTERS_KIND)) == 1
