"""What the sampler makes of clusters that answer some of its questions and refuse others; the store is a real one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.groups.model_sides import ModelSide
from twinshore.config.errors import KafkaError
from twinshore.config.frozen import HEARTBEATS
from twinshore.config.incident_policy import POLICY_TOPIC, IncidentKind
from twinshore.config.model import Cluster, Link, OffsetRun, SourceOffset, TargetOffset, TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from twinshore.kafka.protocol.offsets import GroupOffsets, TopicPartitionTuple
from twinshore.monitoring.core.partition_lag import (
    GROUPS_PART,
    HEARTBEATS_PART,
    OffsetRelation,
    UnreplicatedEnds,
    shorten_group_id,
    update_lag,
)
from twinshore.monitoring.sampler import ExpectedNames, Sampler
from twinshore.state.core.values import HomeRow, Incident, ProgressRecord, TwinRow
from twinshore.state.store import Store, open_store

LINK = Link("east", "west")


class Side(KafkaCluster):
    """A cluster without brokers: topics of one partition with these ends. `refuses`: what it will not answer."""

    def __init__(self, name: str, ends: Mapping[str, int]) -> None:
        super().__init__(Cluster(name, (f"{name}:1",)))
        self.ends = dict(ends)
        self.refuses: set[str] = set()
        self.away = False
        self.hidden: set[str] = set()
        self.counts: dict[str, int] = {}
        self.asked: list[str] = []

    def metadata(self, topics: Sequence[str] | None = None, *, refresh: bool = True) -> ClusterMetadata:  # noqa: ARG002
        # Listing groups asks for brokers alone.
        self._ask("groups" if topics == [] else "topics")
        if not topics:
            return ClusterMetadata(
                self.name, 1, {}, {name: self._topic(name) for name in self.ends.keys() - self.hidden}
            )
        return ClusterMetadata(self.name, 1, {}, {name: self._topic(name) for name in topics})

    def _topic(self, name: str) -> TopicMetadata:
        """As a broker answers to a name."""
        error = 29 if name in self.hidden else 0 if name in self.ends else 3
        parts = tuple(PartitionMetadata(number, 1, 1, (1,), (1,), 0) for number in range(self.counts.get(name, 1)))
        return TopicMetadata(name, bytes(16) if error else name.encode().ljust(16)[:16], False, error, parts)

    def list_offsets(self, parts: Iterable[TopicPartition], which: OffsetKind) -> dict[TopicPartition, int]:
        found, failed = self.offsets_of_each(parts, which)
        for error in failed.values():
            raise error
        return found

    def offsets_of_each(
        self, parts: Iterable[TopicPartition], which: OffsetKind
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, KafkaError]]:
        found, failed = {}, {}
        for one in parts:
            try:
                self._ask(one.topic)
                found[one] = 0 if which is OffsetKind.EARLIEST else self.ends[one.topic]
            except KafkaError as error:
                if not error.code:
                    raise
                failed[one] = error
        return found, failed

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if self.away:
            raise KafkaError(f"{self.name} is away", retriable=True)
        if what in self.refuses:
            raise KafkaError(f"{self.name}: {what}: not allowed", code=29)


class Mute(ModelSide):
    """Answers for some groups with an error."""

    mute: frozenset[str] | set[str] = frozenset()

    def places(
        self,
        wanted: Mapping[int, Mapping[str, Iterable[TopicPartitionTuple] | None]],
        known: Mapping[str, GroupOffsets],
    ) -> tuple[dict[str, GroupOffsets], dict[int, KafkaError]]:
        found, away = super().places(wanted, known)
        return {
            name: GroupOffsets(name, 30, {}, {}, b"") if name in self.mute else one for name, one in found.items()
        }, away


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as found:
        yield found


def adopt(store: Store, offset_run: OffsetRun) -> None:
    store.offset_runs.adopt(
        [(TwinRow(LINK.name, "orders", 0, "aa", "bb", offset_run.source, offset_run.sequence, 5), offset_run)]
    )


def test_a_mapped_twin_that_ends_with_a_transaction_is_not_behind(store: Store) -> None:
    # Ten records from 40 on lie from 1000 on; the source's offset 50 is the commit marker, which is in no offset run.
    begun = OffsetRun(SourceOffset(40), TargetOffset(1_000), 0, 0)
    carried = begun._replace(length=10)
    adopt(store, begun)
    store.progress.record(
        [
            ProgressRecord(
                link=LINK.name,
                topic="orders",
                partition=0,
                from_offset=40,
                to_offset=51,
                records=10,
                bytes=10,
                batches=1,
                source_end=51,
                first_ms=0,
                last_ms=1,
                lag_records=0,
                offset_runs=(carried,),
            )
        ]
    )
    east, west = Side("east", {"orders": 51}), Side("west", {"orders": 1_010})
    (reading,) = Sampler(LINK, east, west, store, groups=False).sample(lambda: 5_000, -1).readings
    assert (reading.axis, reading.carried) == (OffsetRelation.MAPPED, 51)
    assert update_lag(UnreplicatedEnds(), reading)[1].lag_records == 0
    # A target that lost its end has not all that was told of it.
    west.ends["orders"] = 1_007
    (reading,) = Sampler(LINK, east, west, store, groups=False).sample(lambda: 5_000, -1).readings
    assert reading.carried == 47
    # Records behind the marker that are not there yet are a lag.
    east.ends["orders"], west.ends["orders"] = 60, 1_010
    (reading,) = Sampler(LINK, east, west, store, groups=False).sample(lambda: 5_000, -1).readings
    assert update_lag(UnreplicatedEnds(), reading)[1].lag_records == 9


def test_whether_a_cluster_is_away_is_asked_of_each_whatever_the_other_says(store: Store) -> None:
    east, west = Side("east", {"orders": 51}), Side("west", {"orders": 51})
    sampler = Sampler(LINK, east, west, store, groups=False)

    def away(*sides: Side) -> set[str]:
        for side in (east, west):
            side.away = side in sides
        sampler._refresh_again_s = 0.0
        sample = sampler.sample(lambda: 5_000, -1)
        assert ("" in sample.failures) is bool(sides)
        return set(sample.away)

    assert away(east) == {"east"}
    assert away(east, west) == {"east", "west"}
    assert away(west) == {"west"}
    assert away(west, east) == {"east", "west"}
    assert away() == set()


def test_a_topic_that_lists_leave_out_is_asked_for_by_name(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinshore.monitoring.sampler.METADATA_REFRESH_S", 0.0)
    ends = {"orders": 51, "bills": 5}
    east, west = Side("east", ends), Side("west", ends)
    known = ExpectedNames(frozenset({"orders"}))
    sampler = Sampler(LINK, east, west, store, groups=False, expected=lambda: known)

    def told() -> tuple[str, str]:
        sample = sampler.sample(lambda: 5_000, -1)
        assert "bills" in {one.place.topic for one in sample.readings}
        return sample.failures.get("orders", ""), sample.over.get("orders", "")

    assert told() == ("", "")
    west.hidden = {"orders"}
    assert "describe orders" in told()[0] and "west" in told()[0] and "Describe" in told()[0]
    west.hidden = set()
    del west.ends["orders"]
    assert "orders is not on west" in told()[0]
    del east.ends["orders"]
    assert (told()[0], "east" in told()[1]) == ("", True)
    east.ends["orders"] = west.ends["orders"] = 1
    assert told() == ("", "")
    east.counts["orders"] = 3
    assert "fewer partitions" in told()[0]
    east.hidden = {"orders"}
    assert "describe orders" in told()[0] and "east" in told()[0]


def test_a_topic_that_the_store_knows_a_twin_of_is_expected_and_an_excluded_one_is_not(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinshore.monitoring.sampler.METADATA_REFRESH_S", 0.0)
    east, west = Side("east", {"orders": 51}), Side("west", {})
    store.twins.save([TwinRow(LINK.name, "orders", 0, "aa", "bb", 0, 0, 5)])
    # A mirror's heartbeats have a twin too, and are no topic that can be late.
    store.twins.save([TwinRow(LINK.name, HEARTBEATS, 0, "aa", "bb", 0, 0, 5)])
    sampler = Sampler(LINK, east, west, store, groups=False)
    sample = sampler.sample(lambda: 5_000, -1)
    assert sample.failures.keys() == {"orders"}
    assert "still is on east" in sample.failures["orders"]
    without = Sampler(replace(LINK, exclude=("ord.*",)), east, west, store, groups=False)
    sample = without.sample(lambda: 5_000, -1)
    assert sample.failures == {}
    assert "orders" in sample.over


def test_a_topic_that_is_at_home_on_the_target_is_no_delay_of_this_link(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinshore.monitoring.sampler.METADATA_REFRESH_S", 0.0)
    east, west = Side("east", {"orders": 5, "bills": 3}), Side("west", {"orders": 9, "bills": 3})
    known = ExpectedNames(frozenset({"orders"}))
    sampler = Sampler(LINK, east, west, store, groups=False, expected=lambda: known)
    assert {one.place.topic for one in sampler.sample(lambda: 5_000, -1).readings} == {"orders", "bills"}
    store.homes.settle([HomeRow("east<>west", "orders", "west", 1, 1, "me")])
    sample = sampler.sample(lambda: 6_000, -1)
    assert {one.place.topic for one in sample.readings} == {"bills"}
    assert sample.failures == {}
    assert "west" in sample.over["orders"]
    # What stopped it while this link carried it is past: whoever carries it now tells what stops it.
    before = Incident(LINK.name, "orders", -1, IncidentKind.RECREATED_TOPIC, -1, -1, POLICY_TOPIC, "of before")
    store.incidents.add(before, now_ms=1)
    sample = sampler.sample(lambda: 6_500, -1)
    assert ({one.place.topic for one in sample.readings}, sample.stopped) == ({"bills"}, {})
    # Made again away from its home it is carried by nobody, and no other link would show it.
    why = Incident(LINK.name, "orders", -1, IncidentKind.HOME_UNDECIDED, -1, -1, POLICY_TOPIC, "made again")
    row = store.incidents.add(why, now_ms=1)
    sample = sampler.sample(lambda: 7_000, -1)
    assert {one.place.topic for one in sample.readings} == {"orders", "bills"}
    assert (list(sample.stopped), sample.over) == (["orders"], {})
    store.incidents.close(row.id, now_ms=2)
    assert {one.place.topic for one in sampler.sample(lambda: 8_000, -1).readings} == {"bills"}


def test_a_late_group_that_a_list_leaves_out_is_asked_for_by_name(store: Store) -> None:
    east, west = Side("east", {"orders": 51}), Side("west", {"orders": 51})
    known = ExpectedNames(groups=frozenset({"billing"}))
    sampler = Sampler(LINK, east, west, store, groups=True, expected=lambda: known)
    sides = Mute("east"), Mute("west")
    sampler._groups = sides  # type: ignore[assignment]
    assert sampler.sample(lambda: 5_000, 1).failures == {}
    sides[0].forbidden = {"billing"}
    assert "coordinator of group billing" in sampler.sample(lambda: 6_000, 2).failures[GROUPS_PART]


def test_groups_and_heartbeats_that_are_refused_hold_nothing_else_up(store: Store) -> None:
    beats = f"east.{HEARTBEATS}"
    east, west = Side("east", {"orders": 51}), Side("west", {"orders": 51, beats: 0})
    sampler = Sampler(LINK, east, west, store, groups=True)
    east.refuses = {"groups"}
    sample = sampler.sample(lambda: 5_000, 1)
    assert [reading.place.topic for reading in sample.readings] == ["orders"]
    assert sample.failures == {GROUPS_PART: "east: groups: not allowed"}
    assert beats in west.asked, "heartbeats are looked at all the same"
    east.refuses, west.refuses = set(), {beats}
    sample = sampler.sample(lambda: 6_000, 2)
    assert len(sample.readings) == 1
    assert sample.failures == {HEARTBEATS_PART: f"west: {beats}: not allowed"}
    assert sampler.sample(lambda: 7_000, -1).failures == {}, "only a tick asks for them"
    west.refuses = set()
    assert sampler.sample(lambda: 8_000, 3).failures == {}


def test_a_group_whose_place_is_not_told_is_named(store: Store) -> None:
    east, west = Side("east", {"orders": 51}), Side("west", {"orders": 51})
    sampler = Sampler(LINK, east, west, store, groups=True)
    sides = Mute("east"), Mute("west")
    for side in sides:
        side.ends["orders", 0] = 51
    for number, group in enumerate(("billing", "audit", "search")):
        sides[0].consume(group, ("orders", 0), 10 + number)
        sides[1].consume(group, ("orders", 0), 10)
    sampler._groups = sides  # type: ignore[assignment]
    whole = sampler.sample(lambda: 5_000, 1)
    assert whole.failures == {}
    assert len(whole.readings) == 4
    sides[1].forbidden = {"search"}
    part = sampler.sample(lambda: 6_000, 2)
    assert {one.place.group for one in part.readings} == {"", "billing", "audit"}
    assert "coordinator of group search" in part.failures[GROUPS_PART]
    sides[1].away = True
    assert sampler.sample(lambda: 7_000, 3).failures == {GROUPS_PART: "west is away"}
    sides[0].mute = {"audit", "search"}
    sides[1].away, sides[1].forbidden = False, set()
    part = sampler.sample(lambda: 8_000, 4)
    assert {one.place.group for one in part.readings} == {"", "billing"}
    assert part.failures.keys() == {GROUPS_PART} and "audit and 1 more" in part.failures[GROUPS_PART]


def test_a_group_with_an_id_that_no_store_keeps_is_watched_under_a_name_of_its_own(store: Store) -> None:
    east, west = Side("east", {"orders": 51}), Side("west", {"orders": 51})
    ids = ["g" * 255, "g" * 256, "g" * 257, "with\0nul"]
    named = {shorten_group_id(group): group for group in ids}
    assert len(named) == 4 and ids[0] in named and max(map(len, named)) == 255 and not any("\0" in one for one in named)
    sampler = Sampler(LINK, east, west, store, groups=True, expected=lambda: ExpectedNames(groups=frozenset(named)))
    sides = Mute("east"), Mute("west")
    for side in sides:
        side.ends["orders", 0] = 51
        for group in ids:
            side.consume(group, ("orders", 0), 10)
    sampler._groups = sides  # type: ignore[assignment]
    sides[0].forbidden = set(named) - set(ids)  # Nobody may be asked for a name that is no id.
    sample = sampler.sample(lambda: 5_000, 1)
    assert sample.failures == {}
    assert {one.place.group for one in sample.readings} == {"", *named}


def spoil(tmp_path: Path, *names: tuple[str, str]) -> None:
    with closing(sqlite3.connect(tmp_path / "store.db")) as raw:
        for old, new in names:
            raw.execute(f"ALTER TABLE {old} RENAME TO {new}")


def test_a_store_that_is_away_leaves_its_last_word(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinshore.monitoring.sampler.METADATA_REFRESH_S", 0.0)
    east, west = Side("east", {"orders": 51, "exact": 9}), Side("west", {"orders": 1_010, "exact": 7})
    twin_id = west.metadata().topics["exact"].topic_id.hex()
    store.twins.save([TwinRow(LINK.name, "exact", 0, "aa", twin_id, 0, 0, 5)])
    adopt(store, OffsetRun(SourceOffset(40), TargetOffset(1_000), 0, 0))
    sampler = Sampler(LINK, east, west, store, groups=False)

    def axes() -> dict[str, OffsetRelation]:
        return {one.place.topic: one.axis for one in sampler.sample(lambda: 5_000, -1).readings}

    assert axes() == {"orders": OffsetRelation.MAPPED, "exact": OffsetRelation.EXACT}
    spoil(tmp_path, ("offset_runs", "gone"))
    east.ends["late"] = west.ends["late"] = 1
    # The clusters are looked at as ever; of a mapped twin nobody knows what has crossed since.
    assert axes() == {"orders": OffsetRelation.FOREIGN, "exact": OffsetRelation.EXACT, "late": OffsetRelation.FOREIGN}
    spoil(tmp_path, ("gone", "offset_runs"))
    assert axes()["orders"] is OffsetRelation.FOREIGN, "it is not asked again at once"
    sampler._store_again_s = 0.0
    assert axes()["orders"] is OffsetRelation.MAPPED


def test_a_store_that_was_never_heard_is_a_failure_of_the_link(store: Store, tmp_path: Path) -> None:
    spoil(tmp_path, ("offset_runs", "gone"))
    sides = Side("east", {"orders": 51}), Side("west", {"orders": 51})
    sampler = Sampler(LINK, *sides, store, groups=False)
    sample = sampler.sample(lambda: 5_000, -1)
    assert sample.readings == ()
    assert "offset_runs" in sample.failures[""]
