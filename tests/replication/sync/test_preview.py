"""What a plan says of topics that end or begin anew is what the follower then does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from testkit.errors import mentions
from testkit.log_lines import LogLines
from tests.replication.sync.test_deletions import LINK, TOPICS, Stage
from twinshore.config.model import RecreatedTopicPolicy
from twinshore.config.settings import load_settings
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.replication.sync import topic_lifecycle
from twinshore.replication.sync.core.lifecycle import DELETE_APPROVAL, KEEP_TWIN, Approval, ObservedTopic, Presence
from twinshore.replication.sync.deletion_guard import SafetyPolicy
from twinshore.replication.sync.syncer import judge_topics, preview_topic
from twinshore.replication.sync.topic_lifecycle import TopicJudge


class Planned(Stage):
    """The same place, of which a plan is asked; `anew`: topics that were made again on the source."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, said: LogLines) -> None:
        self.anew: set[str] = set()
        self.delay_s = 3600.0
        super().__init__(folder, monkeypatch, said)
        monkeypatch.setattr(topic_lifecycle, "observe_topics", self._sides)

    def policies(self) -> TopicJudge:
        source, target = self.clusters
        safety = SafetyPolicy(load_settings(self.file, {}), LINK)
        follow = replace(self.link.follow, delete_after_s=self.delay_s, recreated=RecreatedTopicPolicy.RECREATE)
        link = replace(self.link, follow=follow)
        return TopicJudge(link, source, target, self.store, links=[self.link], safety=safety)

    def plan(self) -> dict[str, str]:
        judging = self.policies()
        lines = {topic: preview_topic(judging, one) for topic, one in judge_topics(judging).items() if not one.is_plain}
        assert all(lines.values()), f"a topic of which a plan says nothing: {lines}"
        return {topic: " / ".join(map(str, found)) for topic, found in lines.items()}

    def follows(self, count: int = 2) -> None:
        now, ours = self.policies(), self.endings.judging
        ours._link, ours.guard = now._link, replace(now.guard, holds_lease=ours.guard.holds_lease)
        for _ in range(count):
            self.endings.look()

    def _sides(self, cluster: KafkaCluster, names: Iterable[str]) -> dict[str, ObservedTopic]:
        found = super()._sides(cluster, names)
        there = self.anew if cluster.name == "east" else set()
        return {name: ObservedTopic(Presence.THERE, "cc", 1) if name in there else side for name, side in found.items()}


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_lines: LogLines) -> Iterator[Planned]:
    with closing(Planned(tmp_path, monkeypatch, log_lines)) as made:
        yield made


def test_a_plan_says_what_the_follower_then_tells(stage: Planned) -> None:
    stage.gone, stage.anew = {"a"}, {"b"}
    said = stage.plan()
    assert said.keys() == {"a", "b"}
    assert not stage.store.incidents.rows(LINK), "a plan tells nothing"
    stage.follows()
    for topic, kind in (("a", "deleted topic"), ("b", "recreated topic")):
        (row,) = stage.open(kind)
        told = row.incident.sentence.partition("; the twin is deleted on ")
        assert told[0] in said[topic]
        assert "; the twin is deleted on " in said[topic], said
        assert f"({row.incident.policy.words})" in said[topic]
    waits = stage.plan()
    assert all("the twin is deleted on " in words for words in waits.values()), waits
    stage.delay_s = 0.0
    now = stage.plan()
    assert all("the twin is deleted on " in words for words in now.values()), "another delay is announced anew"
    stage.follows(1)
    assert all("its twin" in words and "is deleted: its source topic" in words for words in stage.plan().values())
    assert not stage.controller.deleted
    stage.follows(1)
    assert set(stage.controller.deleted) == {"a", "b"}


@pytest.mark.parametrize(
    ("no", "words"),
    [
        ("never", "[safety] never_delete is set"),
        ("kept", "an operator said `twinshore mirror keep`"),
        ("paused", "the link is paused"),
    ],
)
@pytest.mark.parametrize("announced", [False, True])
def test_a_plan_deletes_nothing_that_the_follower_would_keep(
    stage: Planned, no: str, words: str, announced: bool
) -> None:
    stage.gone, stage.anew = {"a"}, {"b"}
    if announced:
        stage.follows()
    if no == "never":
        stage.set_safety("never_delete = true")
    elif no == "kept":
        stage.say(KEEP_TWIN, "a")
        stage.say(KEEP_TWIN, "b")
    else:
        stage.pause()
    for _ in range(2):
        for said in stage.plan().values():
            assert f"the twin is kept: {words}" in said
            assert "deleted on 2" not in said
            assert "delete the twin" not in said
        stage.follows()


def test_a_plan_names_what_waits_for_a_word_and_what_may_go_by_one(stage: Planned) -> None:
    stage.gone, stage.delay_s = set(TOPICS[:6]), 0.0
    stage.follows(2)
    said = stage.plan()
    assert all(mentions(words, "6 twins") for words in said.values()), said
    stage.follows(1)
    waits = "the twin is kept: an operator must decide"
    assert {words.partition("; ")[2] for words in stage.plan().values()} == {waits}
    stage.say(DELETE_APPROVAL, "b", Approval(wall_ms()).to_json())
    assert "and an operator agreed" in stage.plan()["b"]


def test_a_topic_that_one_look_missed_is_not_called_gone(stage: Planned) -> None:
    looks: list[str] = []
    stage.when_asked = lambda: looks.append("asked")
    stage.gone = {"a"}
    judging = stage.policies()
    assert preview_topic(judging, judging.look()["a"]), "it is not plain, and so not passed over"
    assert not looks, "after one look nothing is decided"
    assert judge_topics(stage.policies())["a"].observation.missed == 2
