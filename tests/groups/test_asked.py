"""What is asked of groups as a program asks: values come back, and their sentences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from testkit.errors import raises
from twinshore.config.errors import ConfigError, KafkaError
from twinshore.config.settings import parse_settings
from twinshore.groups.core.commit_rules import GroupSyncStatus
from twinshore.groups.operations import (
    MoveGroupOffsets,
    TranslationRequest,
    plan_move,
    read_group_views,
    translate_offsets,
    view_as_values,
    view_remarks,
)
from twinshore.groups.view import GroupView, PartitionView
from twinshore.lab.cluster import LabCluster
from twinshore.lab.ports import free_port
from twinshore.state.core.values import ProgressRecord, TwinRow
from twinshore.state.store import Store, open_store

LINK = "east->west"
CLUSTERS = '[clusters.east]\nbootstrap = ["127.0.0.1:1"]\n[clusters.west]\nbootstrap = ["127.0.0.1:2"]\n'
SETTINGS = parse_settings(f'{CLUSTERS}[links."{LINK}"]\nnaming = "prefix"\n', name="settings", env={})
PART = PartitionView("orders", 0, 70, "east.orders", 70, 10, GroupSyncStatus.OWN.value, 100)
VIEW = GroupView(LINK, "g", "classic", "Empty", "Empty", GroupSyncStatus.OWN.value, 60, 0, 3.0, (PART,))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as found:
        found.twins.save([TwinRow(LINK, "orders", 0, "a", "b", 0, 0, 1)])
        yield found


def test_an_offset_is_a_value_with_its_sentence(store: Store) -> None:
    store.progress.record(
        [
            ProgressRecord(
                link=LINK,
                topic="orders",
                partition=0,
                from_offset=0,
                to_offset=6500,
                records=6500,
                bytes=100,
                batches=1,
                source_end=6560,
                first_ms=0,
                last_ms=1,
            )
        ]
    )
    (found,) = translate_offsets(TranslationRequest("6561", topic="orders"), SETTINGS, store)
    assert (found.to_topic, found.to, found.end) == ("east.orders", 6561, 6560)
    assert found.sentence().endswith("offset 6561; when last seen, the log of orders-0 ended at 6560")
    (found,) = translate_offsets(TranslationRequest("9000", topic="east.orders", back=True), SETTINGS, store)
    assert (found.to_topic, found.to, found.sentence().endswith("6500 only")) == ("orders", 9000, True)
    assert "back" not in found.as_values()
    with raises(ConfigError, "groups.not-an-offset"):
        translate_offsets(TranslationRequest("seven", topic="orders"), SETTINGS, store)


def test_a_group_is_a_value_with_what_is_worth_knowing() -> None:
    said, again = view_remarks([VIEW])
    assert "60 records" in again and "east" in again
    assert (
        said.startswith(f"{LINK}: g ") and "1 of 1 partitions, for 3 s" in said and "`twinshore groups move g`" in said
    )
    silent = [replace(VIEW, group=name, why="its coordinator does not answer", parts=()) for name in ("a", "b")]
    assert [line.split(": ")[:2] for line in view_remarks(silent)] == [[LINK, "a, b"]]
    values = view_as_values(VIEW, partitions=True)
    assert (values["partitions"], values["offsets"][0]["behind"]) == (1, 60)


def test_what_is_no_expression_is_refused_before_any_cluster_is_asked(store: Store) -> None:
    with raises(ConfigError, "config.invalid-pattern", option="--group"):
        read_group_views("[", (), SETTINGS, store)
    with raises(ConfigError, "config.invalid-pattern", option="GROUP"):
        plan_move(MoveGroupOffsets("("), SETTINGS, store)


@pytest.mark.claim(
    "groups", "groups-dead-source", "`twinshore groups` shows what is known also while a cluster is dead, and names it"
)
def test_groups_are_shown_while_a_cluster_is_dead(store: Store, west: LabCluster) -> None:
    clusters = "".join(
        f'[clusters.{name}]\nbootstrap = ["{address}"]\n'
        for name, address in (("east", f"127.0.0.1:{free_port()}"), ("west", west.bootstrap[0]))
    )
    both = parse_settings(f'{clusters}[links."east->west"]\n[links."west->east"]\n', name="settings", env={})
    views, silent = read_group_views(".*", (), both, store)
    assert views == []
    (said,) = silent
    assert said.startswith("west->east is not shown, ")
    with pytest.raises(KafkaError):
        read_group_views(".*", ["west->east"], both, store)
