"""What holds for a link: settings first, then what operators said; what makes no sense does not count."""

from __future__ import annotations

from typing import Any

import pytest

from testkit.errors import raises
from twinshore.config.errors import ConfigError
from twinshore.config.model import Link, LinkControl
from twinshore.replication.core import link_config
from twinshore.replication.core.link_config import EffectiveLink, as_json, effective_link
from twinshore.state.core.values import ControlRow

LINK = Link("east", "west", ("orders.*",), control=LinkControl(throttle_bytes_s=7, paused_topics=("old",)))


def rows(**values: Any) -> list[ControlRow]:
    return [ControlRow(LINK.name, name, as_json(value), 1, "me") for name, value in values.items()]


def now(**values: Any) -> EffectiveLink:
    return effective_link(LINK, rows(**values))


def test_the_store_wins_and_says_so() -> None:
    found = now(topics=("a",), throttle_bytes_s=0, priorities=(("a", 50),))
    assert (found.link.topics, found.link.control.throttle_bytes_s) == (("a",), 0)
    assert found.link.control.priorities == (("a", 50),)
    assert found.link.control.paused_topics == ("old",), "nobody has said anything of these"
    origins = dict(found.origins)
    assert (origins["topics"], origins["exclude"], origins["throttle_bytes_s"]) == ("store", "settings", "store")
    assert now().link == LINK


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("topics", "[]", "at least one"),
        ("topics", '["("]', "not a regular expression"),
        ("paused", '"yes"', "must be true or false"),
        ("throttle_bytes_s", "-1", "is -1, the least is 0"),
        ("priorities", '[["a", 101]]', "is 101, must be 1 to 100"),
        ("priorities", '{"a": 1}', "must be a list of pairs"),
        ("paused", "{", "does not count"),
        ("colour", "1", "which this version does not know"),
    ],
)
def test_a_row_that_makes_no_sense_does_not_count(name: str, value: str, words: str) -> None:
    found = effective_link(LINK, [ControlRow(LINK.name, name, value, 1, "me")])
    assert found.link == LINK
    assert words in found.troubles[0]
    assert name in found.troubles[0]


def test_pausing_and_resuming_topics_and_links() -> None:
    assert link_config.pause_override(now(), []) == {"paused": True}
    assert link_config.pause_override(now(), ["a", "old"]) == {"paused_topics": ("old", "a")}
    assert link_config.resume_override(now(paused_topics=("a", "b")), ["a"]) == {"paused_topics": ("b",)}
    assert link_config.resume_override(now(paused=True), []) == {"paused": False}
    assert link_config.resume_override(now(paused=True), [], every=True) == {"paused": False, "paused_topics": ()}
    with raises(ConfigError, "replication.topic-not-paused", topic="olt", link=LINK.name, near="; did you mean old?"):
        link_config.resume_override(now(), ["olt"])


def test_throttles_and_priorities_by_pattern_the_newest_first() -> None:
    assert link_config.throttle_override(now(), 5, None) == {"throttle_bytes_s": 5}
    assert link_config.throttle_override(now(topic_throttles=(("a.*", 1), ("b", 2))), 9, "b") == {
        "topic_throttles": (("b", 9), ("a.*", 1))
    }
    assert link_config.throttle_override(now(topic_throttles=(("a", 1),)), 0, "a") == {"topic_throttles": ()}
    assert link_config.priority_override(now(), "a", 100) == {"priorities": (("a", 100),)}


def test_steps_name_only_what_changes() -> None:
    standing = now(throttle_bytes_s=9)
    assert link_config.diff_override(standing, {"throttle_bytes_s": 9}, now()) == []
    assert link_config.diff_override(standing, {"paused": True}, now()) == [("paused", "false", "true")]
    assert link_config.diff_override(standing, link_config.reset_override([]), now()) == [
        ("throttle_bytes_s", "9", "7")
    ]
    with raises(ConfigError, "replication.no-such-override", name="prioritys", near="; did you mean priorities?"):
        link_config.reset_override(["prioritys"])


def test_a_wish_that_cannot_be_is_refused_with_its_place() -> None:
    with raises(ConfigError, "replication.bad-override", link=LINK.name, name="paused_topics"):
        link_config.check_override(link_config.pause_override(now(), ["["]), LINK.name)
    with raises(ConfigError, "replication.no-filter-given"):
        link_config.filters_override([], [], [], [])
