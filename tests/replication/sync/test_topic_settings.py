"""Which settings follow, which are the twin's own, which are only remembered."""

from __future__ import annotations

import json

import pytest

from twinshore.config.model import Link, SyncRules
from twinshore.replication.core.planner import TWIN_SETTINGS
from twinshore.replication.sync.core import decisions
from twinshore.replication.sync.core.decisions import (
    PROMOTION_SETTINGS,
    SYNCED_SETTINGS,
    UNSYNCED_SETTINGS,
    TopicSettings,
)

LINK = Link("east", "west")
Wanted = dict[str, tuple[str | None, str | None]]


def changes(
    source: dict[str, str], target: dict[str, str], link: Link = LINK, *, own: dict[str, str] | None = None
) -> Wanted:
    there = TopicSettings(target, target if own is None else own)
    return decisions.diff_settings(link, TopicSettings(source, source), there, 3)


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ({}, {}, {}),
        ({"segment.ms": "5"}, {}, {"segment.ms": (None, "5")}),
        ({"segment.ms": "5"}, {"segment.ms": "5"}, {}),
        ({"segment.ms": "5"}, {"segment.ms": "6"}, {"segment.ms": ("6", "5")}),
        ({}, {"segment.ms": "6"}, {"segment.ms": ("6", None)}),
        ({"retention.ms": "5"}, {"retention.ms": "-1"}, {}),
        ({}, {"retention.ms": "-1", "compression.type": "producer"}, {}),
        ({"leader.replication.throttled.replicas": "0:1"}, {}, {}),
        ({"some.setting.of.tomorrow": "x"}, {}, {}),
        ({"min.insync.replicas": "5"}, {}, {"min.insync.replicas": (None, "3")}),
        ({"min.insync.replicas": "2"}, {"min.insync.replicas": "2"}, {}),
        (
            {"max.message.bytes": "9000000"},
            {"max.message.bytes": "2000000"},
            {"max.message.bytes": ("2000000", "9000000")},
        ),
        ({"max.message.bytes": "1000"}, {"max.message.bytes": "2000000"}, {}),
        ({"max.message.bytes": "9000000"}, {}, {"max.message.bytes": (None, "9000000")}),
    ],
)
def test_what_changes_on_the_twin(source: dict[str, str], target: dict[str, str], expected: Wanted) -> None:
    assert changes(source, target) == expected


def test_a_mapped_twin_keeps_what_its_owner_set() -> None:
    link = Link("east", "west", topic_settings=(("segment.ms", "9"),))
    there = TopicSettings(
        {"min.insync.replicas": "2", "segment.ms": "6"}, {"min.insync.replicas": "2", "segment.ms": "6"}
    )
    here = TopicSettings({"flush.ms": "7", "max.message.bytes": "9000000"}, {})
    assert decisions.diff_settings(LINK, TopicSettings({}, {}), there, 3, mapped=True) == {}
    assert decisions.diff_settings(link, here, there, 3, mapped=True) == {
        "max.message.bytes": (None, "9000000"),
        "segment.ms": ("6", "9"),
    }


def test_what_the_targets_brokers_say_is_no_setting_of_the_twin() -> None:
    assert changes({}, {"segment.ms": "6"}, own={}) == {}
    assert changes({"segment.ms": "6"}, {"segment.ms": "6"}, own={}) == {}, "in force is in force"


def test_exclusions_and_the_links_own_wishes_win() -> None:
    link = Link("east", "west", follow=SyncRules(settings_exclude=("segment[.].*",)))
    assert changes({"segment.ms": "5", "flush.ms": "7"}, {"segment.bytes": "1"}, link) == {"flush.ms": (None, "7")}
    link = Link("east", "west", topic_settings=(("segment.ms", "9"), ("min.insync.replicas", "2")))
    wanted = {"segment.ms": ("5", "9"), "min.insync.replicas": (None, "2")}
    assert changes({"segment.ms": "5"}, {"segment.ms": "5"}, link) == wanted
    assert changes({}, {"segment.ms": "9", "min.insync.replicas": "2"}, link) == {}, "not taken back"


def test_a_setting_is_in_one_list_only_and_a_twins_own_are_never_followed() -> None:
    assert not SYNCED_SETTINGS & PROMOTION_SETTINGS
    assert not SYNCED_SETTINGS & UNSYNCED_SETTINGS
    assert not PROMOTION_SETTINGS & UNSYNCED_SETTINGS
    assert {*TWIN_SETTINGS, "max.message.bytes"} <= PROMOTION_SETTINGS


def test_a_promotion_finds_what_the_source_had() -> None:
    own = {"retention.ms": "5", "segment.ms": "6", "min.insync.replicas": "2", "remote.storage.enable": "true"}
    kept = decisions.dump_promotion_settings(TopicSettings({**own, "flush.ms": "1"}, own))
    assert json.loads(kept) == {"min.insync.replicas": "2", "retention.ms": "5", "segment.ms": "6"}
    assert decisions.restore_promotion_settings(kept, LINK, 1) == {
        "min.insync.replicas": "1",
        "retention.ms": "5",
        "segment.ms": "6",
    }


def test_changes_read_as_sentences() -> None:
    found = decisions.settings_to_changes("orders", {"segment.ms": (None, "5"), "flush.ms": ("7", None)})
    assert [str(one) for one in found] == [
        "topic setting segment.ms of orders: Kafka's default becomes 5",
        "topic setting flush.ms of orders: 7 becomes Kafka's default",
    ]
