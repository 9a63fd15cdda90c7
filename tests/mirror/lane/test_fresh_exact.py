"""A fresh queue of a twin that keeps its source's offsets: markers take those of what is dropped."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.mirror.lane.test_fresh import AGED, FRESH, KEEP, LIMITS, flows, later, offsets, rows, table
from tests.mirror.lane.test_lane_bounds import NOW_MS, SOURCE_ID, TARGET_ID
from tests.mirror.lane.test_seat import LINE, NAMED, OLD_S, Table, answer
from twinshore.fleet.incidents import IncidentKind
from twinshore.mirror.lane.dropped import cut_at, row_of
from twinshore.mirror.lane.joining import Hold
from twinshore.mirror.lane.lane import Lane
from twinshore.mirror.lane.marking import Marked, marker_id
from twinshore.mirror.lane.observe import Go, Observation, Tail
from twinshore.mirror.lane.orders import TrackOrder
from twinshore.mirror.lane.phase import Phase
from twinshore.mirror.lane.reach import Reach
from twinshore.mirror.lane.reading import Reading
from twinshore.mirror.lane.recent import acknowledged
from twinshore.mirror.lane.route import Route
from twinshore.wire.fetch import FetchAnswer, FetchedPartition
from twinshore.wire.records import Record, encode_batch

EXACT, AGED_EXACT = replace(FRESH, exact=True), replace(AGED, exact=True)
EACH = 8


def marks(made: Table, lane: int, *, each: int = EACH) -> tuple[int, int]:
    """Its markers go, and land; which offsets they took."""
    (run,) = made.lanes[lane].marker_order(2, OLD_S, each)
    answered = Marked("orders", 0, 0, run.blank.end)
    made.lanes[lane].marked([run], [answered], OLD_S)
    return run.blank.base, run.blank.end


def ended_amid_markers() -> Lane:
    """Of twenty dropped offsets eight have their markers."""
    made = table(KEEP, AGED_EXACT)
    flows(made, 2, size=100)
    later(made, 1.2)
    lane = made.lanes[1]
    marks(made, 1)
    lane.finish()
    return lane


def test_nothing_more_comes_before_markers_have_taken_what_was_dropped() -> None:
    made = table(KEEP, AGED_EXACT)
    flows(made, 2, size=100)
    later(made, 1.2)
    lane, track = made.lanes[1], made.tracks[1]
    assert offsets(track) == [(0, 20, "Blank")]
    made.asking()
    made.brings(0, 20, 10, size=100)
    later(made, 1.3)
    assert offsets(track) == [(0, 20, "Blank")], "what is young would be old behind the markers"
    assert rows(lane) == [], "and nothing is told before it is passed"
    assert marks(made, 1) == (0, 8)
    later(made, 1.3)
    assert offsets(track) == [(8, 20, "Blank")]
    marks(made, 1)
    marks(made, 1)
    assert track.acked == 20
    later(made, 1.4)
    assert offsets(track) == [(20, 30, "Parcel")]
    assert [(row.from_offset, row.to_offset) for row in rows(lane)] == [(0, 20)]


def test_what_got_old_meanwhile_goes_too() -> None:
    made = table(KEEP, AGED_EXACT)
    flows(made, 2, size=100)
    later(made, 1.2)
    made.asking()
    made.brings(0, 20, 10, size=100)
    marks(made, 1, each=20)
    later(made, 4.0)
    assert offsets(made.tracks[1]) == [(20, 30, "Blank")]


def test_what_was_not_taken_by_markers_yet_is_not_dropped_yet() -> None:
    lane = ended_amid_markers()
    assert [(row.from_offset, row.to_offset) for row in rows(lane)] == [(0, 8)]


def test_over_the_high_watermark_the_oldest_go_here_too() -> None:
    made = table(KEEP, EXACT)
    flows(made, 12)
    later(made, 1.0)
    ((base, end, kind),) = offsets(made.tracks[1])
    assert (base, kind) == (0, "Blank")
    assert 70 <= end <= 100


def test_a_look_tells_from_where_on_records_are_young_and_what_a_pump_dropped_that_is_gone() -> None:
    lane = Lane(7, 0, state_expiry_ms=86_400_000, limits=LIMITS, reading=Reading(LIMITS, 4 << 20), queue=AGED_EXACT)
    lane.assign([TrackOrder("orders", 0, SOURCE_ID, TARGET_ID, receipt_to=100)])
    lane.routed(NAMED, Route(1, 0, 2))
    assert lane.to_look_at(0.0, {2})
    tail = Tail(139, 139, marker_id(7), 0, control=True)
    found = Observation(0, 140, 140, tail, (109, NOW_MS), 0, 900, young_from=600, dropped=((110, 140),))
    lane.observed(NAMED, found, 0.0, NOW_MS)
    track = lane.tracks[NAMED]
    assert (track.phase, track.write_from) == (Phase.RUNNING, 140)
    assert [(row.from_offset, row.to_offset) for row in track.dropped] == [(110, 140)]


def test_what_fills_a_gap_of_the_source_goes_before_what_is_too_old() -> None:
    """Filler takes a million offsets while markers take some thousands."""
    lane = Lane(7, 0, state_expiry_ms=86_400_000, limits=LIMITS, reading=Reading(LIMITS, 4 << 20), queue=AGED_EXACT)
    lane.assign([TrackOrder("orders", 0, SOURCE_ID, TARGET_ID, anchor_offset=50_000)])
    lane.routed(NAMED, Route(1, 0, 2))
    assert lane.to_look_at(0.0, {2})
    lane.observed(NAMED, Observation(0, 0, 0, None, None, 50_000, 90_000, young_from=60_000), 0.0, NOW_MS)
    found = offsets(lane.tracks[NAMED])
    assert found[-1] == (50_000, 60_000, "Blank")
    assert {kind for _, end, kind in found if end <= 50_000} == {"Parcel"}
    assert [(row.from_offset, row.to_offset) for row in lane.tracks[NAMED].dropped] == [(50_000, 60_000)]


def test_whoever_goes_on_amid_markers_looks_first_from_where_on_records_are_young() -> None:
    lane = ended_amid_markers()
    assert lane.handovers(0.0) == []


@pytest.mark.parametrize("mapped", [False, True])
def test_behind_what_a_killed_pump_had_not_told_nothing_old_is_sent(mapped: bool) -> None:
    """What the twin has is read to be told; what lies behind it is an hour old."""
    old_ms, rules = NOW_MS - 3_600_000, AGED if mapped else AGED_EXACT
    reading = Reading(LIMITS, 4 << 20)
    reading.tick(-10.0)
    lane = Lane(7, 0, state_expiry_ms=86_400_000, limits=LIMITS, reading=reading, queue=rules)
    reached = Reach(100, 100, 100) if mapped else None
    lane.assign([TrackOrder("orders", 0, SOURCE_ID, TARGET_ID, receipt_to=100, reached=reached)])
    lane.routed(NAMED, Route(1, 0, 2))
    lane.fetches.refill(OLD_S)
    assert lane.to_look_at(0.0, {2})
    asked = (0, 140, 140, None if mapped else Tail(130, 139, 7, 130), (139, old_ms), 0, 9_000)
    told = {"young_from": 8_000, "young_epoch": 4, "source_epoch": 5, "wrote_epoch": 5, "dropped": ((110, 130),)}
    verdict = Go(140, old_ms, 140) if mapped else None
    lane.observed(NAMED, Observation(*asked, **told, verdict=verdict), 0.0, NOW_MS)  # type: ignore[arg-type]
    track = lane.tracks[NAMED]
    order = lane.fetch_order(LINE)
    assert order is not None
    assert order.partitions[0].position == 100
    batches = [
        encode_batch([Record(at, old_ms, None, b"x", ())], base_offset=at, leader_epoch=5) for at in range(100, 400)
    ]
    data = memoryview(b"".join(map(bytes, batches)))
    part = FetchedPartition(bytes.fromhex(SOURCE_ID), 0, 0, 9_000, 9_000, 0, None, None, [], data.toreadonly())
    lane.fetched(LINE, FetchAnswer(0, 0, 5, [part]), Hold(bytearray()), OLD_S, NOW_MS)
    assert not any(kind == "Parcel" for _, _, kind in offsets(track))
    assert (track.fetched, track.source.epoch) == (8_000, 4), "its history is known as far as it was dropped"
    assert [(row.from_offset, row.to_offset) for row in track.dropped] == [(110, 130), (140, 8_000)]
    told_of = acknowledged(track.told.noted, 140)
    assert (told_of.end, told_of.batches, told_of.unseen) == (140, 20, 20), "no receipt counts what is not there"


@pytest.mark.parametrize("mapped", [False, True])
def test_what_was_dropped_and_is_gone_from_the_source_is_in_no_receipt(mapped: bool) -> None:
    rules, reached = (AGED, Reach(100, 100, 100)) if mapped else (AGED_EXACT, None)
    lane = Lane(7, 0, state_expiry_ms=86_400_000, limits=LIMITS, reading=Reading(LIMITS, 4 << 20), queue=rules)
    lane.assign([TrackOrder("orders", 0, SOURCE_ID, TARGET_ID, receipt_to=100, reached=reached)])
    lane.routed(NAMED, Route(1, 0, 2))
    assert lane.to_look_at(0.0, {2})
    tail = None if mapped else Tail(139, 139, 7, 139)
    verdict = Go(140, NOW_MS, 140) if mapped else None
    seen = Observation(0, 140, 140, tail, (139, NOW_MS), 140, 900, dropped=((90, 130),), verdict=verdict)
    lane.observed(NAMED, seen, 0.0, NOW_MS)
    (carried,) = lane.accounts(0.0)
    assert (carried.from_offset, carried.to_offset, carried.records) == (100, 140, 10)


def test_what_was_on_its_way_when_all_was_dropped_is_read_again() -> None:
    made = table(AGED_EXACT, KEEP)
    lane, track = made.lanes[0], made.tracks[0]
    assert made.asking() == [0]
    made.brings(0, 0, 20)
    lane.fetch_order(LINE)
    later(made, 1.2)
    assert offsets(track) == [(0, 20, "Blank")]
    lane.fetched(LINE, answer(20, 10), Hold(bytearray()), OLD_S + 1.3, NOW_MS + 1_300)
    assert offsets(track) == [(0, 20, "Blank")], "behind the markers it would be old"


def test_its_own_reading_waits_for_the_markers_too() -> None:
    made = table(AGED_EXACT)
    made.asking()
    lane, track = made.lanes[0], made.tracks[0]
    lane.fetched(LINE, answer(0, 30), Hold(bytearray()), OLD_S, NOW_MS + 6_000)
    assert offsets(track) == [(0, 30, "Blank")]
    assert lane.fetch_order(LINE) is None or not any(
        part.position >= 30
        for part in lane.fetch_order(LINE).partitions  # type: ignore[union-attr]
    )
    marks(made, 0, each=30)
    order = lane.fetch_order(LINE)
    assert order is not None
    assert order.partitions[0].position == 30
    ((row),) = rows(lane)
    assert (row.kind, row.from_offset, row.to_offset) == (IncidentKind.STALE_DROPPED, 0, 30)


def test_a_twin_that_is_exact_loses_nothing_where_that_was_not_asked_for() -> None:
    """A link whose settings were changed keeps what it has until its topics are refused."""
    made = table(KEEP, KEEP)
    seat = made.lanes[1].fetches.seat
    assert seat is not None
    seat.rules = AGED
    assert not seat.drops(made.tracks[1])
    seat.rules = AGED_EXACT
    assert seat.drops(made.tracks[1])


def test_rows_are_cut_where_the_dropping_ended() -> None:
    found = cut_at([row_of(NAMED, 0, 10, "old"), row_of(NAMED, 20, 30, "old"), row_of(NAMED, 40, 50, "old")], 25)
    assert [(row.from_offset, row.to_offset, row.sentence[:10], row.why) for row in found] == [
        (0, 10, "10 offsets", "old"),
        (20, 25, "5 offsets ", "old"),
    ]
    assert row_of(NAMED, 4, 5, "old").sentence == "1 offset was dropped, old"
