"""Each story is one that the model allows, and ends as it says; told in sentences, and as values."""

from __future__ import annotations

import json

import pytest

from testkit.errors import raises
from twinshore.advisor.core.simulator import explore
from twinshore.advisor.core.simulator.model import Anomaly, ModelAction, ModelConfig, ModelEvent, find_anomalies
from twinshore.advisor.core.simulator.search import STORIES, Story, play_story
from twinshore.config.errors import ConfigError

# Of each story: the records in each broker's log, those acknowledged, and how often the group has handled each.
ENDS: dict[str, tuple[list[str], list[int], list[int] | None]] = {
    "two-rounds": (["1", "1", "1"], [1], None),
    "acks-0": (["", "", ""], [1], None),
    "acks-1": (["", "", ""], [1], None),
    "acks-1-cut": (["", "", ""], [1], None),
    "one-replica": ([""], [1], None),
    "refused": (["1", "1"], [1], None),
    "min-insync-1": (["", "", ""], [1], None),
    "last-in-sync": (["", "1", "1"], [1], None),
    "eligible": (["", "1", "1"], [1], None),
    "unclean": (["", ""], [1], None),
    "truncation-high-watermark": (["1", "", "1"], [1], None),
    "truncation-epoch": (["1", "1", "1"], [1], None),
    "retry-new-leader": (["1", "11", "11"], [1], None),
    "retry-twice": (["11"], [1], None),
    "retry-once": (["1"], [1], None),
    "auto-commit": (["1"], [1], [0]),
    "commit-after": (["1"], [1], [2]),
    "together": (["1"], [1], [1]),
    "newest": (["12"], [1, 2], [0, 0]),
    "oldest": (["12"], [1, 2], [0, 0]),
    "offsets-retention": (["12"], [1, 2], [1, 0]),
    "offsets-retention-earliest": (["1"], [1], [2]),
}


@pytest.mark.claim(
    "advisor",
    "stories",
    "each story is asserted message by message: every log, what was acknowledged, what was handled",
)
def test_each_ends_message_by_message() -> None:
    assert list(ENDS) == [story.name for story in STORIES]
    for story in STORIES:
        end = play_story(story)[-1].after
        logs = ["".join(str(entry.record) for entry in replica.log) for replica in end.replicas]
        handled = list(end.reader.handled) if end.reader else None
        assert (logs, list(end.acknowledged), handled) == ENDS[story.name], story.name
    print(f"told: {len(ENDS)} stories, {sum(len(story.script) for story in STORIES)} steps")


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_it_ends_as_it_says(story: Story) -> None:
    end = play_story(story)[-1].after
    assert {damage.harm for damage in find_anomalies(end)} == ({story.ends} if story.ends else set())


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_it_is_told(story: Story) -> None:
    lines = list(explore.describe_story(story))
    steps = [line for line in lines if line[:1].isdigit()]
    assert len(steps) == len(story.script)
    assert all(line.endswith(".") for line in steps)
    assert lines[-1] == story.moral
    values = json.loads(json.dumps(explore.story_as_values(story)))
    assert len(values["steps"]) == len(steps)
    assert all(step["says"] in line for step, line in zip(values["steps"], steps, strict=True))
    assert {one["harm"] for one in values["harm"]} == ({story.ends} if story.ends else set())


def test_a_step_that_cannot_happen_is_an_error() -> None:
    wrong = Story("wrong", "", ModelConfig(), (ModelEvent(ModelAction.ELECT, 2),), None, "")
    with pytest.raises(ValueError, match=r"wrong: .* cannot happen"):
        play_story(wrong)


def test_each_has_a_name_of_its_own_and_is_listed() -> None:
    assert len({story.name for story in STORIES}) == len(STORIES)
    assert len(list(explore.list_stories())) == len(explore.list_story_values()) == len(STORIES)


def test_one_that_nobody_knows_is_refused() -> None:
    with raises(ConfigError, "advisor.unknown-story", story="unclena", near="; did you mean unclean?"):
        explore.find_story("unclena")


def test_the_sentences_of_a_leader_that_dies() -> None:
    lines = [line for line in explore.describe_story(explore.find_story("acks-1")) if line[:1].isdigit()]
    assert lines == [
        "1. The producer sends record 1 to broker 1; it is appended at offset 0; record 1 is acknowledged.",
        "2. Fault: The process of broker 1 dies.",
        "3. The controller misses broker 1 and makes broker 2 the leader; in sync: 2, 3.",
        "4. Broker 1 starts again.",
        "5. Broker 1 fetches from broker 2; it cuts record 1; in sync: 1, 2, 3.",
    ]


def test_what_never_arrives_is_not_called_acknowledged() -> None:
    lines = list(explore.describe_story(explore.find_story("acks-0")))
    assert any("and it never arrives; record 1 counts as sent." in line for line in lines)


def test_the_sentences_of_a_group_whose_place_is_forgotten() -> None:
    lines = list(explore.describe_story(explore.find_story("offsets-retention")))
    assert [line for line in lines if line[:1].isdigit()][3:] == [
        "4. The consumer commits offset 1.",
        "5. Fault: The group has no member for offsets.retention.minutes, so its committed offset expires.",
        "6. The producer sends record 2 to broker 1; it is appended at offset 1; the high watermark is 2; record 2 is"
        " acknowledged.",
        "7. The consumer has no valid offset there, and goes to offset 2 (auto.offset.reset=latest).",
    ]
    assert "     consumer | reads next offset 2 | committed nothing | handled 1" in lines


def test_what_retention_has_deleted_is_not_there() -> None:
    lines = list(explore.describe_story(explore.find_story("oldest")))
    assert "3. Fault: Retention deletes record 1." in lines
    assert "     broker 1 | records 2 | high watermark 2 | leads, in sync" in lines


def test_each_loss_and_trap_that_was_promised_has_a_story() -> None:
    promised = {
        *("two-rounds", "truncation-high-watermark", "truncation-epoch", "acks-1", "acks-0", "retry-new-leader"),
        *("unclean", "refused", "auto-commit", "commit-after", "newest", "oldest", "together", "offsets-retention"),
    }
    assert promised <= {story.name for story in STORIES}


def test_a_picture_shows_who_has_what() -> None:
    lines = list(explore.describe_story(explore.find_story("acks-1-cut")))
    assert any(line.startswith("     broker 1 | records 1 | high watermark 0 | ") for line in lines)
    assert any(Anomaly.LOST in one["harm"] for one in explore.story_as_values(explore.find_story("unclean"))["harm"])
