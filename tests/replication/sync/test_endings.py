"""What became of a topic is over when both sides are as they are known, whoever told it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from testkit.log_lines import LogLines
from twinshore.config.errors import StoreError
from twinshore.config.incident_policy import POLICY_KEEP_TWIN, POLICY_TOPIC, IncidentKind
from twinshore.config.settings import parse_settings
from twinshore.kafka.cluster import KafkaCluster
from twinshore.replication.sync import topic_lifecycle
from twinshore.replication.sync.core.decisions import DeletionState, RememberState
from twinshore.replication.sync.core.lifecycle import (
    DeletionDelays,
    LifecycleState,
    ObservedTopic,
    Presence,
    TwinRange,
    lifecycle_row,
    parse_lifecycle_states,
)
from twinshore.replication.sync.deletion_guard import SafetyPolicy
from twinshore.replication.sync.target_admin import TargetAdmin
from twinshore.replication.sync.topic_lifecycle import DeletedTopics
from twinshore.state.core.values import Incident, TwinRow
from twinshore.state.store import Store, open_store

LINK = "east->west"
SETTINGS = """
[clusters.east]
bootstrap = ["127.0.0.1:1"]
[clusters.west]
bootstrap = ["127.0.0.1:2"]
[links."east->west"]
topics = ["orders"]
"""
TWIN = TwinRow(LINK, "orders", 0, "aa", "bb", 0, 0, 1)


class Place:
    """Both clusters show the topic with the ids that a test says."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, said: LogLines, more: str = "") -> None:
        self.said = said
        self.steady_s = 0.0
        self.ids = {"east": "aa", "west": "bb"}
        self.store: Store = open_store(f"sqlite:///{folder}/store.db")
        self.store.twins.save([TWIN])
        settings = self.settings = parse_settings(SETTINGS + more, name="settings.toml", env={})
        self.link = settings.links[0]
        self.source, self.target = (KafkaCluster(settings.cluster(name)) for name in ("east", "west"))
        monkeypatch.setattr(
            topic_lifecycle, "observe_topics", lambda cluster, topics: {one: self._side(cluster.name) for one in topics}
        )
        self.endings = self.begun()

    def begun(self) -> DeletedTopics:
        hands = TargetAdmin(LINK, self.target, self.store)
        ends = (self.link, self.source, self.target, self.store, hands)
        safety = SafetyPolicy(self.settings, LINK)
        return DeletedTopics(
            *ends, links=[self.link], safety=safety, active=lambda: True, clock_s=lambda: self.steady_s
        )

    def _side(self, cluster: str) -> ObservedTopic:
        presence = Presence.THERE if self.ids[cluster] else Presence.GONE
        return ObservedTopic(presence, self.ids[cluster], 1 if self.ids[cluster] else 0)

    def open(self) -> list[str]:
        return [row.incident.kind.value for row in self.store.incidents.rows(LINK, open_only=True)]

    def close(self) -> None:
        self.source.close()
        self.target.close()
        self.store.close()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_lines: LogLines) -> Iterator[Place]:
    made = Place(tmp_path, monkeypatch, log_lines)
    yield made
    made.close()


def test_what_an_earlier_process_told_is_over_when_all_is_as_it_was(place: Place) -> None:
    place.ids["west"] = ""
    place.endings.look()
    assert place.open() == ["recreated topic"]
    again = place.begun()
    again.look()
    assert place.open() == ["recreated topic"]
    place.ids["west"] = "bb"
    place.store.incidents.add(
        Incident(LINK, "orders", -1, IncidentKind.RIGHTS_LOST, -1, -1, POLICY_TOPIC, "told by the driver"), now_ms=1
    )
    place.begun().look()
    assert place.open() == ["rights lost"], "that is the driver's to close"


def test_a_twin_that_was_kept_is_forgotten_once_nobody_has_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_lifecycle, "read_twin_ranges", lambda *_: [TwinRange(0, 0, 0, 0, 0)])
    place.ids["east"] = ""
    place.endings.look()
    place.endings.look()
    assert place.open() == ["deleted topic"]
    kept = Incident(LINK, "orders", -1, IncidentKind.FOREIGN_WRITE, -1, -1, POLICY_KEEP_TWIN, "the twin is kept")
    place.store.incidents.add(kept, now_ms=2)
    place.ids["west"] = ""
    place.endings.look()
    assert place.open() == []
    assert not place.store.twins.of(LINK)


def test_a_store_that_fails_once_leaves_no_row_open(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.ids["west"] = ""
    place.endings.look()
    place.ids["west"] = "bb"

    def fails(*_: object, **__: object) -> None:
        raise StoreError("the store does not answer")

    with monkeypatch.context() as failing:
        failing.setattr(place.store.incidents, "close", fails)
        with pytest.raises(StoreError):
            place.endings.look()
    assert place.open() == ["recreated topic"]
    place.endings.look()
    assert place.open() == []


def test_the_next_process_goes_on_with_the_delay_that_was_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_lines: LogLines
) -> None:
    place = Place(tmp_path, monkeypatch, log_lines, 'follow = { deleted = "delete", delete_after_s = 86400 }\n')
    place.store.link_states.remember(
        [lifecycle_row(LINK, RememberState("orders", DeletionState.ANNOUNCED, 86_401_000), 1_000)]
    )
    place.ids["east"] = ""
    for process in range(2):
        place.steady_s = 5_000.0 * process  # each host counts from a start of its own
        endings = place.begun()
        for _ in range(4):
            endings.look()
            place.steady_s += 1_000.0
    kept = parse_lifecycle_states(place.store.link_states.of(LINK))["orders"]
    assert (kept.served_s, kept.due_ms) == (6_000.0, 86_401_000), "each counts from its first look to its last"
    assert not any("not decided" in said for said in place.said)
    place.close()


def test_a_new_announcement_has_the_whole_delay_again() -> None:
    announced, counting = LifecycleState(DeletionState.ANNOUNCED, 1_000, 2_000, "", 30.0), DeletionDelays(LINK)
    assert counting.served("orders", announced, 100.0) == announced
    assert counting.served("orders", announced, 160.0).served_s == 90.0
    again = replace(announced, since_ms=3_000, served_s=0.0)
    assert counting.served("orders", again, 170.0).served_s == 0.0
