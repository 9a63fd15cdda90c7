"""The row of a refused topic closes when the topic is carried or gone, whoever wrote it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testkit.log_lines import LogLines
from twinshore.config.errors import StoreError
from twinshore.config.incident_policy import POLICY_KEEP_TWIN, POLICY_TOPIC, IncidentKind
from twinshore.replication import stopped_partitions
from twinshore.replication.core.model import Refuse
from twinshore.replication.recorder import ProgressRecorder
from twinshore.replication.stopped_partitions import RefusedTopics
from twinshore.replication.task.core.messages import PartitionIncident
from twinshore.state.core.values import TwinRow
from twinshore.state.store import Store, open_store

LINK = "east->west"
FOREIGN = Refuse(
    "orders", IncidentKind.FOREIGN_WRITE, "topic orders holds data that this link did not write", "delete it"
)
RIGHTS = Refuse("bills", IncidentKind.RIGHTS_LOST, "the right to make topics is missing", "grant it")
AGAIN = Refuse("again", IncidentKind.RECREATED_TOPIC, "its offsets begin anew", "delete its twin")


class Place:
    """A store, and whoever begins a term."""

    def __init__(self, folder: Path, said: LogLines) -> None:
        self.said = said
        self.doubted: list[str] = []
        self.store: Store = open_store(f"sqlite:///{folder}/store.db")
        self.recorder = ProgressRecorder(self.store, "first", 60)
        self.refusals = self.begun()

    def begun(self) -> RefusedTopics:
        made = RefusedTopics(LINK, self.store, self.recorder, doubt=self.doubted.extend)
        made.begin()
        return made

    def open(self) -> list[str]:
        return [row.incident.topic for row in self.store.incidents.rows(LINK, open_only=True)]

    def close(self) -> None:
        self.recorder.close()
        self.store.close()


@pytest.fixture
def place(tmp_path: Path, log_lines: LogLines) -> Iterator[Place]:
    made = Place(tmp_path, log_lines)
    yield made
    made.close()


def test_a_refusal_is_told_once_and_over_when_the_topic_is_carried(place: Place) -> None:
    for _ in range(3):
        place.refusals.add(FOREIGN)
        place.refusals.add(AGAIN)
    assert place.open() == ["orders"]
    assert (place.doubted, len(place.refusals), "orders" in place.refusals) == (["again"], 2, True)
    place.refusals.over("orders")
    place.refusals.over("bills")
    assert (place.open(), len(place.refusals), "orders" in place.refusals) == ([], 1, False)
    assert len(place.said) == 2


def test_what_an_earlier_process_told_closes_when_the_topic_is_carried(place: Place) -> None:
    place.refusals.add(FOREIGN)
    place.refusals.add(RIGHTS)
    again = place.begun()
    assert len(again) == 0, "nobody knows yet whether it still holds"
    again.over("orders")
    assert place.open() == ["bills"]
    again.add(RIGHTS)
    assert (len(again), len(place.store.incidents.rows(LINK))) == (1, 2)


def test_it_closes_when_the_topic_is_gone_or_no_longer_admitted(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.refusals.add(FOREIGN)
    place.refusals.add(RIGHTS)
    again = place.begun()
    again.add(FOREIGN)
    again.keep({"bills"})
    assert place.open() == ["orders", "bills"], "one survey may miss a topic"
    monkeypatch.setattr(stopped_partitions, "TOPIC_GONE_AFTER_S", 0.0)
    again.keep({"bills"})
    assert (place.open(), len(again)) == (["bills"], 0)
    again.keep(set())
    assert place.open() == []
    assert all("; the topic is gone" in row.incident.sentence for row in place.store.incidents.rows(LINK))


def test_what_became_of_a_twin_is_not_over_because_its_topic_is_gone(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopped_partitions, "TOPIC_GONE_AFTER_S", 0.0)
    place.store.twins.save([TwinRow(LINK, "hidden", 0, "aa", "bb", 0, 0, 1)])
    for topic, kind, policy in (
        ("kept", IncidentKind.DELETED_TOPIC, POLICY_KEEP_TWIN),
        ("foreign", IncidentKind.FOREIGN_WRITE, POLICY_KEEP_TWIN),
        ("again", IncidentKind.RECREATED_TOPIC, POLICY_TOPIC),
        ("hidden", IncidentKind.RIGHTS_LOST, POLICY_TOPIC),
    ):
        place.recorder.stopped(LINK, PartitionIncident(topic, -1, kind, -1, -1, "told by the follower", policy))
    place.recorder.stopped(LINK, PartitionIncident("orders", 3, IncidentKind.CORRUPT_BATCH, 5, 7, "its CRC is wrong"))
    before = place.open()
    again = place.begun()
    again.keep(set())
    assert place.open() == before


def test_a_store_that_fails_once_hides_no_refusal_and_leaves_none_open(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    acts: dict[str, Callable[[], None]] = {
        "add": lambda: place.refusals.add(FOREIGN),
        "close": lambda: place.refusals.over("orders"),
    }
    for name, act in acts.items():
        with monkeypatch.context() as failing:
            failing.setattr(place.store.incidents, name, _fails)
            with pytest.raises(StoreError):
                act()
        act()
        assert place.open() == (["orders"] if name == "add" else [])


def _fails(*_: object, **__: object) -> None:
    raise StoreError("the store does not answer")


def test_a_twin_that_was_just_made_and_is_led_by_nobody_yet_is_no_incident(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each new topic had a row for a second or two, and whoever scraped then was alarmed."""
    away = Refuse("lists", IncidentKind.TARGET_AWAY, "the partition's leader has moved", "it goes on by itself")
    place.refusals.made(["lists"])
    place.refusals.add(away)
    assert (place.open(), place.said, len(place.refusals)) == ([], [], 0)
    assert place.refusals.pause_s(2.0) == stopped_partitions.EARLY_SCAN_S, "it is looked at again soon"
    place.refusals.keep(["lists"])
    assert place.refusals.pause_s(2.0) == 2.0
    rights = Refuse("lists", IncidentKind.RIGHTS_LOST, "the right to look is missing", "grant it")
    place.refusals.add(rights)
    assert place.open() == ["lists"], "nothing else is put off"
    place.refusals.over("lists")
    place.refusals.add(away)
    monkeypatch.setattr(stopped_partitions, "NEW_TWIN_GRACE_S", 0.0)
    place.refusals.add(away)
    assert place.open() == ["lists"], "it lasts"


def test_a_twin_that_was_there_before_is_told_at_once(place: Place) -> None:
    place.refusals.made(["others"])
    place.refusals.add(Refuse("lists", IncidentKind.TARGET_AWAY, "its leader does not answer", "start it"))
    assert place.open() == ["lists"]
