"""Whether a deletion may be done is asked to the last: what others write, what operators say, who has the lease."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from testkit.errors import mentions
from testkit.log_lines import LogLines
from twinshore.config.errors import KafkaError
from twinshore.config.incident_policy import POLICY_KEEP_TWIN
from twinshore.config.model import Link
from twinshore.config.settings import load_settings
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.error_codes import kafka_error
from twinshore.replication.sync import topic_lifecycle
from twinshore.replication.sync.core.lifecycle import (
    ALL_TOPICS,
    DELETE_APPROVAL,
    KEEP_TWIN,
    Approval,
    ObservedTopic,
    Presence,
    TwinRange,
)
from twinshore.replication.sync.deletion_guard import SafetyPolicy
from twinshore.replication.sync.target_admin import TargetAdmin
from twinshore.replication.sync.topic_lifecycle import DeletedTopics
from twinshore.state.core.values import ControlRow, IncidentRow, LinkStateRow, TwinRow
from twinshore.state.store import Store, open_store

LINK = "east->west"
SETTINGS = """
[clusters.east]
bootstrap = ["127.0.0.1:1"]
[clusters.west]
bootstrap = ["127.0.0.1:2"]
[links."east->west"]
[links."east->west".follow]
deleted = "delete"
delete_after_s = 0
"""
TOPICS = tuple("abcdefgh")


@dataclass(slots=True)
class Deleting:
    """Stands for the target's controller: `answer` is its error code for a topic, and `deleted` what it has deleted."""

    answer: Callable[[str], int] = lambda _: 0
    deleted: tuple[str, ...] = ()

    def delete_topic(self, name: str, *, topic_id: bytes, allow: Callable[[], None]) -> None:
        allow()
        assert topic_id.hex() == "bb"
        if code := self.answer(name):
            raise kafka_error(code, f"west: delete topic {name}")
        self.deleted += (name,)


class Stage:
    """Topics of `gone` are not on the source any more; whichever are in `mute` have a twin without a leader."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, said: LogLines) -> None:
        self.said = said
        self.gone: set[str] = set()
        self.mute: set[str] = set()
        self.held = [TwinRange(0, 0, 0, 0, 0)]
        self.ours = True
        self.when_asked: Callable[[], None] = lambda: None
        self.others: list[Link] = []
        self.store: Store = open_store(f"sqlite:///{folder}/store.db")
        self.store.twins.save([TwinRow(LINK, topic, 0, "aa", "bb", 0, 0, 1) for topic in TOPICS])
        self.file = folder / "twinshore.toml"
        self.file.write_text(SETTINGS)
        settings = load_settings(self.file, {})
        self.link = settings.links[0]
        self.clusters = [KafkaCluster(settings.cluster(name)) for name in ("east", "west")]
        self.controller = Deleting()
        vars(self.clusters[1])["admin"] = self.controller
        self.hands = TargetAdmin(LINK, self.clusters[1], self.store)
        monkeypatch.setattr(topic_lifecycle, "observe_topics", self._sides)
        monkeypatch.setattr(topic_lifecycle, "read_twin_ranges", self._spans)
        self.endings = self.begun()

    def begun(self) -> DeletedTopics:
        source, target = self.clusters
        safety = SafetyPolicy(load_settings(self.file, {}), LINK)
        ends = (self.link, source, target, self.store, self.hands)
        return DeletedTopics(*ends, links=[self.link, *self.others], safety=safety, active=lambda: self.ours)

    def close(self) -> None:
        for cluster in self.clusters:
            cluster.close()
        self.store.close()

    def looks(self, count: int = 6) -> tuple[str, ...]:
        """Which twins are deleted after so many looks."""
        for _ in range(count):
            self.endings.look()
        return self.controller.deleted

    def pause(self, *, paused: bool = True) -> None:
        row = ControlRow(LINK, "paused", "true" if paused else "false", 1, "test")
        self.store.controls.change(LINK, {"paused": row}, seen=self.store.controls.version(LINK), told=[])

    def set_safety(self, line: str) -> None:
        """While the mirror runs."""
        self.file.write_text(f"{SETTINGS}[safety]\n{line}\n")

    def say(self, kind: str, topic: str, value: str = "") -> None:
        self.store.link_states.remember([LinkStateRow(LINK, kind, topic, value, "said", wall_ms())])

    def open(self, kind: str) -> list[IncidentRow]:
        return [row for row in self.store.incidents.rows(LINK, open_only=True) if row.incident.kind == kind]

    def _sides(self, cluster: KafkaCluster, names: Iterable[str]) -> dict[str, ObservedTopic]:
        there = ObservedTopic(Presence.THERE, "aa" if cluster.name == "east" else "bb", 1)
        left = self.gone if cluster.name == "east" else set(self.controller.deleted)
        return {name: ObservedTopic(Presence.GONE) if name in left else there for name in names}

    def _spans(self, _cluster: KafkaCluster, topic: str, *_: object) -> list[TwinRange]:
        self.when_asked()
        if topic in self.mute:
            raise KafkaError(f"west: offset earliest of {topic}-0: it has no leader", retriable=True)
        return self.held


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_lines: LogLines) -> Iterator[Stage]:
    with closing(Stage(tmp_path, monkeypatch, log_lines)) as made:
        yield made


def test_one_topic_that_cannot_be_looked_at_hides_no_other(stage: Stage) -> None:
    stage.gone, stage.mute = {"a", "c"}, {"a"}
    assert stage.looks() == ("c",)
    assert [row.incident.topic for row in stage.store.incidents.rows(LINK)] == ["c"]
    assert sum("cannot decide about topic" in line for line in stage.said) == 1, "told once"


def test_nothing_is_deleted_once_the_lease_is_lost_in_the_middle_of_a_look(stage: Stage) -> None:
    stage.gone = {"a"}
    assert stage.looks(2) == ()
    stage.when_asked = lambda: setattr(stage, "ours", False)
    assert stage.looks() == ()
    stage.ours, stage.when_asked = True, lambda: None
    assert stage.looks() == ("a",)


@pytest.mark.parametrize("word", ["paused", "kept", "all kept", "never", "half written"])
def test_an_operators_no_is_heard_at_the_last_moment(stage: Stage, word: str) -> None:
    """It is said after the look has begun, when all is decided but the request itself."""
    stage.gone = {"a"}
    say = {
        "paused": stage.pause,
        "kept": lambda: stage.say(KEEP_TWIN, "a"),
        "all kept": lambda: stage.say(KEEP_TWIN, ALL_TOPICS),
        "never": lambda: stage.set_safety("never_delete = true"),
        "half written": lambda: stage.set_safety("never_del"),
    }[word]
    assert stage.looks(2) == ()
    stage.when_asked = say
    assert stage.looks() == ()
    stage.when_asked = lambda: None
    (row,) = stage.open("deleted topic")
    assert "the twin is kept: " in row.incident.sentence
    assert row.incident.policy == POLICY_KEEP_TWIN


def test_a_settings_file_forbids_at_once_and_allows_nothing_before_a_restart(stage: Stage) -> None:
    stage.gone = {"a"}
    stage.set_safety("never_delete = true")
    assert stage.looks() == ()
    stage.set_safety("")
    assert stage.looks() == (), "what was heard holds until the mirror ends"
    now_set = f"{LINK}: [safety] never_delete is set from now on: no twin is deleted, no record cut off"
    assert stage.said.count(now_set) == 1
    stage.endings = stage.begun()
    assert stage.looks() == ("a",)


def test_nothing_is_deleted_while_nobody_understands_the_settings_file(stage: Stage) -> None:
    stage.gone = {"a"}
    stage.file.write_text("[saf")
    assert stage.looks() == ()
    assert sum("nothing is deleted or cut off now: " in line for line in stage.said) == 1, stage.said
    stage.file.unlink()
    assert stage.looks() == (), "nobody has understood it since"
    stage.set_safety("")
    assert stage.looks() == ("a",)


def test_fewer_deletions_at_once_are_heard_too(stage: Stage) -> None:
    stage.gone = {"a", "b", "c"}
    stage.set_safety("deletions_at_once_max = 2")
    assert stage.looks() == ()
    waiting = [row.incident.topic for row in stage.open("deletion held") if "_max is 2" in row.incident.sentence]
    assert sorted(waiting) == ["a", "b", "c"]


def test_nothing_is_deleted_while_what_operators_said_clashes_with_another_link(stage: Stage) -> None:
    stage.link = replace(stage.link, topics=("a",))
    row = ControlRow(LINK, "topics", '["a", "b"]', 1, "test")
    stage.store.controls.change(LINK, {"topics": row}, seen=stage.store.controls.version(LINK), told=[])
    stage.others = [Link("north", "west", ("b",))]
    stage.endings = stage.begun()
    stage.gone = {"a"}
    assert stage.looks() == ()
    stage.others = []
    stage.endings = stage.begun()
    assert stage.looks() == ("a",)


def test_what_was_paused_has_its_whole_delay_again(stage: Stage) -> None:
    stage.endings.judging._link = replace(stage.link, follow=replace(stage.link.follow, delete_after_s=3600))
    stage.gone = {"a"}
    stage.looks(3)
    (first,) = stage.open("deleted topic")
    stage.pause()
    stage.looks(1)
    (kept,) = stage.open("deleted topic")
    stage.pause(paused=False)
    stage.looks(1)
    (again,) = stage.open("deleted topic")
    assert first.id < kept.id < again.id
    assert "unless `twinshore mirror keep a` forbids it" in again.incident.sentence
    assert "the twin is kept: the link is paused" in kept.incident.sentence


def test_a_deletion_that_the_target_refuses_is_told_once_and_tried_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.gone = {"a"}
    stage.controller.answer = lambda _: 73
    stage.looks(20)
    (row,) = stage.open("deletion held")
    assert "TOPIC_DELETION_DISABLED" in row.incident.sentence
    asked: list[str] = []
    stage.controller.answer = lambda twin: asked.append(twin) or 73  # type: ignore[func-returns-value]
    stage.looks(3)
    assert asked == [], "not at each look"
    monkeypatch.setattr(topic_lifecycle, "DELETE_RETRY_S", 0.0)
    stage.looks(1)
    assert asked == ["a"]
    stage.controller.answer = lambda _: 0
    assert stage.looks(3) == ("a",)
    assert stage.store.incidents.rows(LINK, open_only=True) == ()


@pytest.mark.parametrize("count", [6, len(TOPICS)], ids=["more than five", "all of them"])
def test_many_topics_that_go_at_once_wait_for_a_word_each(stage: Stage, count: int) -> None:
    stage.gone = set(TOPICS[:count])
    assert stage.looks() == ()
    rows = stage.open("deletion held")
    assert {row.incident.topic for row in rows} == stage.gone
    assert stage.looks(20) == ()
    assert [row.id for row in stage.open("deletion held")] == [row.id for row in rows], "told once"
    stage.say(DELETE_APPROVAL, "b", Approval(wall_ms()).to_json())
    assert stage.looks() == ("b",)
    assert stage.looks(20) == ("b",), "fewer are left, but each waits for its word"
    stage.gone = {"a"}
    stage.looks()
    assert {row.incident.topic for row in stage.open("deletion held")} == {"a"}


def test_a_few_of_many_go_as_the_settings_say(stage: Stage) -> None:
    stage.gone = set(TOPICS[:5])
    assert stage.looks() == TOPICS[:5]
    assert stage.store.incidents.rows(LINK, open_only=True) == ()
    assert {row.topic for row in stage.store.twins.of(LINK)} == set(TOPICS[5:])


def test_what_somebody_wrote_since_is_seen_at_the_moment_itself(stage: Stage) -> None:
    stage.gone = {"a"}
    stage.looks(2)
    stage.held = [TwinRange(0, 0, 51_000, 1_000, 1_000)]
    assert stage.looks() == ()
    (row,) = stage.open("deletion held")
    assert mentions(row.incident.sentence, "a", "a-0", "offsets 1000 to 50999")


def test_what_another_version_remembered_begins_anew(stage: Stage) -> None:
    for topic, state in (("a", "deleting"), ("b", "gone")):
        stage.store.link_states.remember([LinkStateRow(LINK, "topic", topic, "", state, 1)])
    stage.gone = {"a"}
    stage.looks(2)
    (row,) = stage.open("deleted topic")
    assert "unless `twinshore mirror keep a` forbids it" in row.incident.sentence
