"""What a link's driver says while the store fails it at each look."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mirror.driver.test_link_driver import LINK, Place, answering_clusters
from twinshore.fleet import StoreError
from twinshore.mirror.driver.link_driver import LinkDriver
from twinshore.mirror.driver.link_state import LASTING_S
from twinshore.mirror.lane.orders import TrackOrder


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    answering_clusters(monkeypatch)
    made = Place(tmp_path)
    yield made
    made.close()


def test_a_link_waits_where_the_store_refuses_each_look_for_a_minute(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is on its lanes goes on; topics on no lane wait for as long as the store will not have what they need."""

    def stands() -> tuple[str, str]:
        word = place.recorder.words()[LINK]
        return word["state"], word["says"]

    def fails(_: LinkDriver) -> None:
        raise StoreError("the store will not have it")

    place.turned(lambda sentence: "flowing" in sentence)
    place.desk.assign((LINK, 0), [TrackOrder("orders", 0, "00", "00")])
    monkeypatch.setattr(place.desk, "unmanned", lambda _: frozenset())
    monkeypatch.setattr(LinkDriver, "_survey", fails)
    monkeypatch.setattr(place.driver, "_surveyed_at_s", 0.0)
    for hindered_s, state in ((0.0, "flowing"), (LASTING_S, "waiting")):
        monkeypatch.setattr(place.driver, "_hindered_at_s", time.monotonic() - hindered_s)
        with pytest.raises(StoreError):
            place.driver.turn()
        assert stands()[0] == state
        assert "the store will not have it" in stands()[1]
    monkeypatch.setattr(LinkDriver, "_survey", lambda _: None)
    place.turned(lambda sentence: "flowing" in sentence)
    assert stands() == ("flowing", "1 partition on 1 lane")
