"""How old what a fresh queue reads can be: by when its source was last seen to end before it, beside its stamp."""

from __future__ import annotations

import pytest

from tests.mirror.lane.test_fresh import AGED, KEEP, LIMITS, later, rows, table
from tests.mirror.lane.test_lane_bounds import NOW_MS, SOURCE_ID, TARGET_ID
from tests.mirror.lane.test_seat import LINE, NAMED, Table, answer
from twinshore.fleet import QueueRules
from twinshore.fleet.incidents import IncidentKind
from twinshore.mirror.lane.dropped import row_of
from twinshore.mirror.lane.fresh import note_found
from twinshore.mirror.lane.history import Stand
from twinshore.mirror.lane.joining import Hold
from twinshore.mirror.lane.lane import Lane
from twinshore.mirror.lane.level import Level
from twinshore.mirror.lane.observe import Go, Observation
from twinshore.mirror.lane.orders import LaneLimits, TrackOrder
from twinshore.mirror.lane.phase import Phase
from twinshore.mirror.lane.reach import Reach
from twinshore.mirror.lane.reading import Reading
from twinshore.mirror.lane.route import Route
from twinshore.mirror.lane.track import Track
from twinshore.wire.batch import CONTROL, TIMESTAMP_APPEND
from twinshore.wire.fetch import FetchAnswer
from twinshore.wire.produce import ProducedPartition
from twinshore.wire.records import Record, encode_batch


def comes(made: Table, at_s: float, base: int, count: int, late_ms: int, some: FetchAnswer | None = None) -> None:
    """To the first lane, written `late_ms` before by its time stamps; without records: a long poll that found none."""
    for lane in made.lanes:
        lane.fetches.refill(at_s)
    assert 0 in made.asking()
    some = some or (answer(base, count) if count else FetchAnswer(0, 0, 5, []))
    made.lanes[0].fetched(LINE, some, Hold(bytearray()), at_s, NOW_MS + late_ms)
    for lane in made.lanes:
        lane.go_on(at_s, NOW_MS + late_ms)
        while sent := lane.produce_order(2, at_s, NOW_MS + late_ms):
            key = bytes.fromhex(TARGET_ID)
            parts = [ProducedPartition(key, 0, 0, entry.parcel.base, -1, 0, None, None) for entry in sent]
            lane.produced(sent, parts, at_s)


def test_what_a_source_took_while_it_could_not_be_reached_is_as_old_as_it_says() -> None:
    """It came a moment ago, and nobody saw its source meanwhile."""
    for rules in ((KEEP, AGED), (AGED,)):
        made = table(*rules)
        comes(made, 0.1, 0, 10, late_ms=0)
        comes(made, 10.0, 10, 10, late_ms=9_500)
        later(made, 10.0)
        (row,) = rows(made.lanes[-1])
        assert (row.kind, row.from_offset, row.to_offset) == (IncidentKind.STALE_DROPPED, 10, 20)
        comes(made, 10.1, 20, 10, late_ms=9_600)
        later(made, 10.1)
        assert [(one.from_offset, one.to_offset) for one in rows(made.lanes[-1])] == [(10, 20)], "its end was seen"


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
        comes(made, 10.0, 10, 40, late_ms=0, some=FetchAnswer(0, 0, 5, [part]))
        later(made, 10.0)
        (row,) = rows(made.lanes[-1])
        assert (row.from_offset, row.to_offset) == (10, 30)
        assert made.tracks[-1].acked == 30, "what is young is fetched by itself: it may be joined then"
        young = part._replace(records=memoryview(data)[2 * len(data) // 4 :])
        comes(made, 10.1, 30, 20, late_ms=100, some=FetchAnswer(0, 0, 5, [young]))
        assert made.tracks[-1].acked == 50


def test_what_a_broker_stamped_and_nobody_sees_has_no_age() -> None:
    made = table(KEEP, AGED)
    comes(made, 0.1, 0, 10, late_ms=0)
    records = [Record(10, NOW_MS, b"\0\0\0\1", b"", ())]
    data = bytes(encode_batch(records, base_offset=10, leader_epoch=5, attributes=TIMESTAMP_APPEND | CONTROL))
    part = answer(10, 1).partitions[0]._replace(records=memoryview(data))
    comes(made, 0.2, 10, 1, late_ms=0, some=FetchAnswer(0, 0, 5, [part]))
    assert [track.fetched for track in made.tracks] == [11, 11]


@pytest.mark.parametrize("rules", [(KEEP, AGED), (AGED,)], ids=["fed", "alone"])
@pytest.mark.parametrize("limits", [LaneLimits(), LIMITS], ids=["joined", "apart"])
def test_small_batches_are_joined_with_those_of_their_age(
    rules: tuple[QueueRules, ...], limits: LaneLimits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten a second, for a minute in which the source could not be reached: all of them would make one batch, as young
    as its last record."""
    monkeypatch.setattr("tests.mirror.lane.test_fresh.LIMITS", limits)
    made = table(*rules)
    comes(made, 0.1, 0, 10, late_ms=0)
    stamps = [NOW_MS + 60_000 - (599 - number) * 100 for number in range(600)]
    data = b"".join(
        bytes(encode_batch([Record(10 + at, stamp, None, b"x" * 200, ())], base_offset=10 + at, leader_epoch=5))
        for at, stamp in enumerate(stamps)
    )
    part = answer(10, 600).partitions[0]._replace(records=memoryview(data))
    comes(made, 60.1, 10, 600, late_ms=60_000, some=FetchAnswer(0, 0, 5, [part]))
    later(made, 60.2)
    (row,) = rows(made.lanes[-1])
    assert row.from_offset == 10
    assert 595 <= row.to_offset <= 601
    assert made.tracks[-1].fetched == row.to_offset, "what is young is fetched next"


def test_what_a_broker_stamped_is_as_old_as_that_whatever_was_seen_of_its_end() -> None:
    """Where followers stand still, a source is seen to end before what it has had for long."""
    for rules in ((KEEP, AGED), (AGED,)):
        made = table(*rules)
        comes(made, 0.1, 0, 10, late_ms=0)
        comes(made, 25.0, 10, 0, late_ms=25_000)
        records = [Record(10 + one, NOW_MS, None, b"x", ()) for one in range(10)]
        data = bytes(encode_batch(records, base_offset=10, leader_epoch=5, attributes=TIMESTAMP_APPEND))
        part = answer(10, 10).partitions[0]._replace(records=memoryview(data))
        comes(made, 25.2, 10, 10, late_ms=25_200, some=FetchAnswer(0, 0, 5, [part]))
        later(made, 25.2)
        assert [(row.from_offset, row.to_offset) for row in rows(made.lanes[-1])] == [(10, 20)]


def test_a_clock_that_is_wrong_drops_nothing_while_the_source_is_seen_to_end() -> None:
    for rules in ((KEEP, AGED), (AGED,)):
        made = table(*rules)
        comes(made, 0.1, 0, 10, late_ms=0)
        for at_s in (9.0, 9.5):
            comes(made, at_s, 10, 0, late_ms=3_600_000)
        comes(made, 9.7, 10, 10, late_ms=3_600_000)
        later(made, 9.7)
        assert rows(made.lanes[-1]) == []
        assert made.tracks[-1].fetched == 20


def test_an_answer_that_may_have_left_something_out_proves_no_end() -> None:
    made = table(AGED)
    comes(made, 0.1, 0, 10, late_ms=0)
    for lane in made.lanes:
        lane.fetches.refill(9.5)
    made.asking()
    made.lanes[0].fetched(LINE, FetchAnswer(300, 0, 5, []), Hold(bytearray()), 9.5, NOW_MS)
    comes(made, 9.7, 10, 10, late_ms=9_500)
    assert [(one.from_offset, one.to_offset) for one in rows(made.lanes[0])] == [(10, 20)]


def test_a_look_drops_nothing_that_was_written_since_the_source_was_seen_to_end() -> None:
    for seen_s, dropped in ((9.5, (0, 300)), (2.0, (0, 600))):
        lane = Lane(7, 0, state_expiry_ms=86_400_000, limits=LIMITS, reading=Reading(LIMITS, 4 << 20), queue=AGED)
        lane.assign([TrackOrder("orders", 0, SOURCE_ID, TARGET_ID, reached=Reach(0, 0, 0))])
        lane.routed(NAMED, Route(1, 0, 2))
        lane.fetches.refill(10.0)
        lane.tracks[NAMED].level = Level(300, seen_s)
        assert lane.to_look_at(0.0, {2})
        found = Observation(0, 0, 0, None, None, 0, 900, verdict=Go(0, 0, 0, -1), young_from=600)
        lane.observed(NAMED, found, 0.0, NOW_MS)
        (row,) = rows(lane)
        assert (row.from_offset, row.to_offset) == dropped


def test_what_a_look_finds_dropped_is_told_once() -> None:
    track = table(KEEP, AGED).tracks[1]
    track.told.to = 15
    track.dropped = [row_of(track.named, 20, 30, "older than 1 s"), row_of(track.named, 60, 70, "older than 1 s")]
    note_found(track, [(0, 10), (12, 40), (50, 65), (80, 90)])
    assert [(row.from_offset, row.to_offset) for row in track.dropped] == [
        (15, 20),
        (20, 30),
        (30, 40),
        (50, 60),
        (60, 70),
        (80, 90),
    ]
    assert "dropped, by a pump that has ended" in track.dropped[0].sentence
    note_found(track, [(12, 40), (50, 70), (80, 90)])
    assert len(track.dropped) == 6


def test_of_heartbeats_whose_twin_is_exact_nothing_is_dropped() -> None:
    """They are as old as they are, and their offsets are the source's."""
    made = table(KEEP, AGED)
    track = Track.of(TrackOrder("orders", 0, SOURCE_ID, TARGET_ID), (7, 0), 0, 1 << 20)
    seat = made.lanes[1].fetches.seat
    assert seat is not None
    assert not seat.drops(track)
    assert seat.drops(made.lanes[1].tracks[NAMED])
    track.phase, track.old = Phase.RUNNING, Stand(-1, 900)
    made.lanes[1].too_old(track, NOW_MS)
    assert (track.fetched, track.dropped) == (0, [])


def test_born_is_between_the_moment_when_the_source_ended_there_and_the_read() -> None:
    level = Level(10, 5.0)
    assert level.born_s(10, 3.0, 8.0) == 5.0, "its clock is behind"
    assert level.born_s(10, 6.0, 8.0) == 6.0
    assert level.born_s(10, 99.0, 8.0) == 8.0, "its clock is ahead"
    assert level.born_s(9, 3.0, 8.0) == 3.0, "it may have been there before"
    assert Level().born_s(10, 3.0, 8.0) == 3.0
