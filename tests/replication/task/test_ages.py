"""How old what a fresh queue reads is: by its time stamps."""

from __future__ import annotations

import pytest

from tests.replication.task.test_fresh import AGED, KEEP, LIMITS, later, rows, stamped, table
from tests.replication.task.test_lane_bounds import NOW_MS, SOURCE_ID, TARGET_ID
from tests.replication.task.test_seat import LINE, NAMED, OLD_S, Table, answer
from twinshore.config.incident_policy import IncidentKind
from twinshore.config.model import QueueRules
from twinshore.kafka.protocol.fetch import FetchResponseById
from twinshore.kafka.protocol.produce import ProducedPartition
from twinshore.kafka.protocol.record_batch import (
    CONTROL_FLAG,
    LOG_APPEND_TIME_FLAG,
    Record,
    encode_batch,
    split_batches,
)
from twinshore.replication.task.core.batches import PooledBuffer
from twinshore.replication.task.core.messages import EpochOffset, PartitionConfig, TaskLimits, dropped_incident
from twinshore.replication.task.core.partition import PartitionReplicator, Phase
from twinshore.replication.task.core.position import ResumeAt, TargetState
from twinshore.replication.task.core.shared_read import note_missing_ranges, with_young_offset


def comes(made: Table, at_s: float, base: int, count: int, late_ms: int, some: FetchResponseById | None = None) -> None:
    """To the first task, written `late_ms` before by its time stamps; without records: a long poll that found none."""
    for task in made.tasks:
        task.scheduler.refill(at_s)
    assert 0 in made.asking()
    some = some or (answer(base, count) if count else FetchResponseById(0, 0, 5, []))
    made.tasks[0].fetched(LINE, some, PooledBuffer(bytearray()), at_s, NOW_MS + late_ms)
    for task in made.tasks:
        task.go_on(at_s, NOW_MS + late_ms)
        while sent := task.produce_order(2, at_s, NOW_MS + late_ms):
            key = bytes.fromhex(TARGET_ID)
            parts = [ProducedPartition(key, 0, 0, entry.batch.base, -1, 0, None, None) for entry in sent]
            task.produced(sent, parts, at_s)


def test_a_record_is_as_old_as_its_time_stamp_says() -> None:
    """It came a moment ago. That its source was seen to end before it changes nothing."""
    for rules in ((KEEP, AGED), (AGED,)):
        made = table(*rules)
        comes(made, 0.1, 0, 10, late_ms=0)
        comes(made, 9.5, 10, 0, late_ms=9_400)
        comes(made, 10.0, 10, 10, late_ms=9_500)
        (row,) = rows(made.tasks[-1])
        assert (row.kind, row.from_offset, row.to_offset) == (IncidentKind.STALE_DROPPED, 10, 20)
        comes(made, 10.1, 20, 10, late_ms=900)
        assert made.tracks[-1].acked == 30
        assert [(one.from_offset, one.to_offset) for one in rows(made.tasks[-1])] == [(10, 20)]


@pytest.mark.parametrize("stamp", [None, NOW_MS + 3_600_000], ids=["none", "future"])
def test_without_a_time_stamp_or_with_one_from_the_future_it_counts_as_written_when_it_is_read(
    stamp: int | None,
) -> None:
    for rules in ((KEEP, AGED), (AGED,)):
        made = table(*rules)
        comes(made, 10.0, 0, 10, late_ms=10_000, some=stamped(0, -1 if stamp is None else stamp))
        assert made.tracks[-1].acked == 10
        assert rows(made.tasks[-1]) == []


def test_what_is_read_and_waits_grows_old_whatever_it_bears() -> None:
    for stamp in (-1, NOW_MS + 3_600_000):
        made = table(KEEP, AGED)
        assert made.asking() == [0]
        made.tasks[0].fetched(LINE, stamped(0, stamp), PooledBuffer(bytearray()), OLD_S, NOW_MS)
        later(made, 1.2)
        assert [(row.from_offset, row.to_offset) for row in rows(made.tasks[1])] == [(0, 10)]


def test_of_one_read_what_is_too_old_goes_batch_by_batch() -> None:
    """Behind an outage one fetch brings more than a second of it."""
    for rules in ((KEEP, AGED), (AGED,)):
        made = table(*rules)
        comes(made, 0.1, 0, 10, late_ms=0)
        stamps = [NOW_MS - 5_000, NOW_MS - 1_500, NOW_MS - 500, NOW_MS]
        data = b"".join(
            bytes(
                encode_batch(
                    [Record(at + one, stamp, None, b"x" * 20_000, ()) for one in range(10)],
                    base_offset=at,
                    leader_epoch=5,
                )
            )
            for at, stamp in zip(range(10, 50, 10), stamps, strict=True)
        )
        part = answer(10, 40).partitions[0]._replace(records=memoryview(data))
        comes(made, 10.0, 10, 40, late_ms=0, some=FetchResponseById(0, 0, 5, [part]))
        later(made, 10.0)
        (row,) = rows(made.tasks[-1])
        assert (row.from_offset, row.to_offset) == (10, 30)
        assert made.tracks[-1].acked == 30, "what is young is fetched by itself: it may be joined then"
        young = part._replace(records=memoryview(data)[2 * len(data) // 4 :])
        comes(made, 10.1, 30, 20, late_ms=100, some=FetchResponseById(0, 0, 5, [young]))
        assert made.tracks[-1].acked == 50


def test_what_a_broker_stamped_and_nobody_sees_has_no_age() -> None:
    made = table(KEEP, AGED)
    comes(made, 0.1, 0, 10, late_ms=0)
    records = [Record(10, NOW_MS, b"\0\0\0\1", b"", ())]
    data = bytes(encode_batch(records, base_offset=10, leader_epoch=5, attributes=LOG_APPEND_TIME_FLAG | CONTROL_FLAG))
    part = answer(10, 1).partitions[0]._replace(records=memoryview(data))
    comes(made, 0.2, 10, 1, late_ms=0, some=FetchResponseById(0, 0, 5, [part]))
    assert [track.fetched for track in made.tracks] == [11, 11]


@pytest.mark.parametrize("rules", [(KEEP, AGED), (AGED,)], ids=["fed", "alone"])
@pytest.mark.parametrize("limits", [TaskLimits(), LIMITS], ids=["joined", "apart"])
def test_small_batches_are_joined_with_those_of_their_age(
    rules: tuple[QueueRules, ...], limits: TaskLimits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten a second, for a minute in which the source could not be reached: all of them would make one batch, as young
    as its last record."""
    monkeypatch.setattr("tests.replication.task.test_fresh.LIMITS", limits)
    made = table(*rules)
    comes(made, 0.1, 0, 10, late_ms=0)
    stamps = [NOW_MS + 60_000 - (599 - number) * 100 for number in range(600)]
    data = b"".join(
        bytes(encode_batch([Record(10 + at, stamp, None, b"x" * 200, ())], base_offset=10 + at, leader_epoch=5))
        for at, stamp in enumerate(stamps)
    )
    part = answer(10, 600).partitions[0]._replace(records=memoryview(data))
    comes(made, 60.1, 10, 600, late_ms=60_000, some=FetchResponseById(0, 0, 5, [part]))
    later(made, 60.2)
    (row,) = rows(made.tasks[-1])
    assert row.from_offset == 10
    assert 595 <= row.to_offset <= 601
    assert made.tracks[-1].fetched == row.to_offset, "what is young is fetched next"


def test_what_a_look_finds_dropped_is_told_once() -> None:
    track = table(KEEP, AGED).tracks[1]
    track.progress_log.to = 15
    track.dropped = [
        dropped_incident(track.named, 20, 30, "older than 1 s"),
        dropped_incident(track.named, 60, 70, "older than 1 s"),
    ]
    note_missing_ranges(track, [(0, 10), (12, 40), (50, 65), (80, 90)])
    assert [(row.from_offset, row.to_offset) for row in track.dropped] == [
        (15, 20),
        (20, 30),
        (30, 40),
        (50, 60),
        (60, 70),
        (80, 90),
    ]
    assert "ended" in track.dropped[0].sentence
    note_missing_ranges(track, [(12, 40), (50, 70), (80, 90)])
    assert len(track.dropped) == 6


def test_of_heartbeats_whose_twin_is_exact_nothing_is_dropped() -> None:
    """They are as old as they are, and their offsets are the source's."""
    made = table(KEEP, AGED)
    track = PartitionReplicator.of(PartitionConfig("orders", 0, SOURCE_ID, TARGET_ID), (7, 0), 0, 1 << 20)
    session = made.tasks[1].scheduler.member
    assert session is not None
    assert not session.drops(track)
    assert session.drops(made.tasks[1].replicators[NAMED])
    track.phase, track.old = Phase.RUNNING, EpochOffset(-1, 900)
    made.tasks[1].drop_too_old(track, NOW_MS)
    assert (track.fetched, track.dropped) == (0, [])


def test_a_look_drops_nothing_where_producers_give_no_time_stamps() -> None:
    """A source that is asked for the first record since a time passes by those that bear none."""
    seen = TargetState(0, 0, 0, None, None, 0, 900, verdict=ResumeAt(0, 0, 0, -1))
    for stamp, young_from in ((-1, -1), (NOW_MS - 5_000, 900)):
        data = encode_batch([Record(899, stamp, None, b"x", ())], base_offset=899, leader_epoch=4)
        ((_, header),) = split_batches(memoryview(bytes(data)))
        assert with_young_offset(seen, 900, header).young_from == young_from
