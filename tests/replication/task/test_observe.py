"""One look, one verdict: each row changes one reading of a sound twin."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testkit.errors import mentions
from twinshore.config.incident_policy import IncidentKind
from twinshore.replication.task.core.batches import SequenceMap
from twinshore.replication.task.core.markers import marker_producer_id
from twinshore.replication.task.core.position import (
    InspectAgain,
    LastBatch,
    ResumeAt,
    StopAt,
    TargetState,
    judge_position,
)

STAMP = SequenceMap(producer_id=9, producer_epoch=0, base_offset=100, base_sequence=0)
TAIL = LastBatch(base_offset=195, last_offset=199, producer_id=9, base_sequence=95)
SOUND = TargetState(
    log_start=0,
    high_watermark=200,
    log_end=200,
    last_batch=TAIL,
    producer=(99, 1_000),
    source_start=0,
    source_end=250,
)
EMPTY = TargetState(0, 0, 0, None, None, 0, 0)


def test_a_sound_twin_goes_on_where_it_ends() -> None:
    assert judge_position(SOUND, STAMP) == ResumeAt(200, 1_000, 100)


def test_a_broker_that_has_forgotten_us_is_told_apart() -> None:
    assert judge_position(replace(SOUND, producer=None), STAMP) == ResumeAt(200, -1, 100)


def test_an_empty_twin_is_begun() -> None:
    assert judge_position(EMPTY, SequenceMap(9, 0, 0, 0)) == ResumeAt(0, -1)


def test_a_twin_cut_to_its_end_is_gone_on_with() -> None:
    seen = replace(SOUND, log_start=200, last_batch=None)
    assert judge_position(seen, STAMP) == ResumeAt(200, 1_000, 100)
    assert judge_position(replace(seen, producer=(3, 1_000)), STAMP) == ResumeAt(200, 1_000, 4), (
        "96 of its offsets were markers"
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"high_watermark": 190, "last_batch": None},
        {"high_watermark": 190},
        {"last_batch": None},
        {"last_batch": replace(TAIL, last_offset=198)},
        {"last_batch": replace(TAIL, last_offset=205)},
        {"producer": (98, 1_000)},
        {"producer": (104, 1_000)},
    ],
    ids=str,
)
def test_readings_that_do_not_fit_are_waited_out(changed: dict[str, object]) -> None:
    assert isinstance(judge_position(replace(SOUND, **changed), STAMP), InspectAgain)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changed", "kind", "offset", "end"),
    [
        ({"source_end": 150}, "truncation", 150, 200),
        ({"source_end": 0}, "truncation", 0, 200),
        ({"last_batch": replace(TAIL, producer_id=8)}, "foreign write", 195, 200),
        ({"last_batch": replace(TAIL, producer_id=-1, base_sequence=-1)}, "foreign write", 195, 200),
        ({"last_batch": replace(TAIL, base_sequence=96)}, "position disagreement", 195, 200),
        ({"log_start": 200, "last_batch": None, "producer": (100, 1_000)}, "position disagreement", 200, 200),
        ({"last_batch": replace(TAIL, base_sequence=96), "producer": None}, "position disagreement", 195, 200),
    ],
    ids=str,
)
def test_what_must_stop_the_partition(changed: dict[str, object], kind: str, offset: int, end: int) -> None:
    verdict = judge_position(replace(SOUND, **changed), STAMP)  # type: ignore[arg-type]
    assert isinstance(verdict, StopAt)
    assert (verdict.kind, verdict.offset, verdict.end) == (kind, offset, end)
    assert any(str(named) in verdict.sentence for named in (offset, end, end - 1))


@pytest.mark.parametrize("end", [2**31 - 1, 2**31, 2**31 + 7, 2**40])
def test_sequences_follow_the_offsets_round_the_corner(end: int) -> None:
    stamp = SequenceMap(9, 0, 0, 0)
    tail = LastBatch(end - 5, end - 1, 9, (end - 5) % 2**31)
    seen = TargetState(0, end, end, tail, ((end - 1) % 2**31, 77), 0, end)
    assert judge_position(seen, stamp) == ResumeAt(end, 77, end % 2**31)
    moved = replace(seen, last_batch=replace(tail, base_sequence=(end + 1) % 2**31))
    assert not isinstance(judge_position(moved, stamp), ResumeAt)


def test_a_source_that_ends_where_the_twin_does_is_no_truncation() -> None:
    assert judge_position(replace(SOUND, source_end=200), STAMP) == ResumeAt(200, 1_000, 100)
    assert judge_position(replace(SOUND, source_start=200), STAMP) == ResumeAt(200, 1_000, 100)


def test_offsets_that_the_source_has_forgotten_are_a_gap() -> None:
    assert judge_position(replace(SOUND, source_start=210), STAMP) == ResumeAt(200, 1_000, 100, gap_to=210)


def test_markers_take_offsets_that_no_sequence_counts() -> None:
    after = replace(SOUND, last_batch=LastBatch(199, 199, marker_producer_id(9), -1), producer=(59, 1_000))
    assert judge_position(after, STAMP) == ResumeAt(200, 1_000, 60)
    data = replace(SOUND, last_batch=replace(TAIL, base_sequence=55), producer=(59, 1_000))
    assert judge_position(data, STAMP) == ResumeAt(200, 1_000, 60)
    assert judge_position(replace(data, producer=None), STAMP) == ResumeAt(200, -1, 60), "the log itself remembers"


def test_a_forgotten_writer_behind_markers_may_take_any_sequence_so_all_take_the_same() -> None:
    after = replace(SOUND, last_batch=LastBatch(199, 199, marker_producer_id(9), -1), producer=None)
    assert judge_position(after, STAMP) == ResumeAt(200, -1, 100)


def test_markers_of_another_link_are_foreign() -> None:
    verdict = judge_position(replace(SOUND, last_batch=LastBatch(199, 199, marker_producer_id(8), -1)), STAMP)
    assert isinstance(verdict, StopAt)
    assert verdict.kind == "foreign write"


def test_markers_of_closed_units_go_on_as_ours_do() -> None:
    after = replace(SOUND, last_batch=LastBatch(199, 199, 8, -1, unit=True), producer=(59, 1_000))
    assert judge_position(after, STAMP) == ResumeAt(200, 1_000, 60)
    verdict = judge_position(replace(after, last_batch=LastBatch(199, 199, 8, -1)), STAMP)
    assert isinstance(verdict, StopAt)
    assert verdict.kind == "foreign write"


def test_a_last_record_that_is_not_the_sources_stops_it_though_all_numbers_fit() -> None:
    verdict = judge_position(replace(SOUND, unlike=True), STAMP)
    assert isinstance(verdict, StopAt)
    assert (verdict.kind, verdict.offset, verdict.end) == ("truncation", 199, 200)


def test_all_that_differs_is_named_where_it_was_looked_for() -> None:
    verdict = judge_position(replace(SOUND, unlike=True, unlike_from=150), STAMP)
    assert isinstance(verdict, StopAt)
    assert (verdict.kind, verdict.offset, verdict.end) == ("truncation", 150, 200)
    assert mentions(verdict.sentence, "offsets 150 to 199")


def test_a_source_that_does_not_show_so_much_yet_is_waited_for() -> None:
    assert isinstance(judge_position(replace(SOUND, unlike=None), STAMP), InspectAgain)


def test_ours_behind_what_somebody_else_wrote_is_no_marker() -> None:
    below = replace(SOUND, last_batch=replace(TAIL, base_sequence=92), producer=(96, 1_000))
    assert isinstance(judge_position(below, STAMP), ResumeAt), "as many markers would explain it"
    verdict = judge_position(replace(below, unlike=True), STAMP)
    assert isinstance(verdict, StopAt)
    assert verdict.kind == "position disagreement"


# A topic that was at home on the twin's cluster until offset 200: the link has written nothing there in its epoch.
TURNED = SequenceMap(producer_id=9, producer_epoch=3, base_offset=200, base_sequence=0)
THEIRS = LastBatch(base_offset=195, last_offset=199, producer_id=77, base_sequence=4)
DEMOTED = replace(SOUND, last_batch=THEIRS, producer=None)


@pytest.mark.parametrize(
    ("changed", "go"),
    [
        ({}, ResumeAt(200, -1, 0)),
        ({"producer": (95, 1_000), "producer_epoch": 2}, ResumeAt(200, -1, 0)),  # what is remembered is of before
        ({"last_batch": replace(THEIRS, producer_id=9)}, ResumeAt(200, -1, 0)),  # our own, of when it was a twin before
        (
            {"last_batch": replace(THEIRS, producer_id=9, base_sequence=-1, control=True)},
            ResumeAt(200, -1, 0),
        ),  # the old fence
        ({"last_batch": None, "log_start": 200}, ResumeAt(200, -1, 0)),
        # The old home lost its tail, and we have written 40 records behind what is left of it.
        (
            {
                "last_batch": LastBatch(150, 189, 9, 0),
                "log_end": 190,
                "high_watermark": 190,
                "producer": (39, 1_000),
                "producer_epoch": 3,
            },
            ResumeAt(190, 1_000, 40),
        ),
        (
            {
                "last_batch": LastBatch(200, 209, 9, 0),
                "log_end": 210,
                "high_watermark": 210,
                "producer": (9, 1_000),
                "producer_epoch": 3,
            },
            ResumeAt(210, 1_000, 10),
        ),
    ],
    ids=str,
)
def test_what_is_inherited_is_gone_on_with_whoever_wrote_it(changed: dict[str, object], go: ResumeAt) -> None:
    assert judge_position(replace(DEMOTED, **changed), TURNED, 200) == go  # type: ignore[arg-type]


def test_without_what_is_inherited_the_same_log_is_anothers() -> None:
    assert isinstance(judge_position(DEMOTED, TURNED), StopAt)


def test_what_never_crossed_stops_a_demoted_twin() -> None:
    beyond = replace(DEMOTED, last_batch=replace(THEIRS, last_offset=204), log_end=205, high_watermark=205)
    found = judge_position(beyond, TURNED, 200)
    assert isinstance(found, StopAt)
    assert (found.kind, found.offset, found.end) == (IncidentKind.FOREIGN_WRITE, 200, 205)
    assert found.sentence == (
        "offsets 200 to 204 were written here, at last by producer id 77, and never replicated: "
        "the topic changed homes at 200"
    )
    late = replace(
        beyond, last_batch=replace(THEIRS, base_offset=204, last_offset=204), producer=(3, 1), producer_epoch=3
    )
    found = judge_position(late, TURNED, 200)
    assert isinstance(found, StopAt)
    assert found.offset == 204, "somebody wrote behind us"


def test_what_never_crossed_and_is_deleted_by_now_stops_a_demoted_twin_as_well() -> None:
    """The old home was away for longer than its retention: where its tail was there is nothing, and a hole."""
    gone = replace(DEMOTED, last_batch=None, log_start=205, log_end=205, high_watermark=205)
    found = judge_position(gone, TURNED, 200, carried=False)
    assert isinstance(found, StopAt)
    assert (found.kind, found.offset, found.end) == (IncidentKind.FOREIGN_WRITE, 200, 205)
    assert mentions(found.sentence, "deleted since", "200")
    assert isinstance(judge_position(gone, TURNED, 200), ResumeAt), "retention took what the link wrote"
    assert isinstance(
        judge_position(replace(gone, producer=(3, 1), producer_epoch=3), TURNED, 200, carried=False), ResumeAt
    )
    level = replace(DEMOTED, last_batch=None, log_start=200)
    assert isinstance(judge_position(level, TURNED, 200, carried=False), ResumeAt)


def test_a_demoted_twin_with_another_history_stops() -> None:
    found = judge_position(replace(DEMOTED, unlike=True, unlike_from=190), TURNED, 200)
    assert isinstance(found, StopAt)
    assert (found.kind, found.offset) == (IncidentKind.TRUNCATION, 190)


def test_a_transaction_of_before_is_waited_for() -> None:
    assert isinstance(judge_position(replace(DEMOTED, open_from=190), TURNED, 200), InspectAgain)


def test_a_link_that_a_switch_shut_out_stops() -> None:
    fence = LastBatch(base_offset=199, last_offset=199, producer_id=9, base_sequence=-1, control=True)
    found = judge_position(replace(SOUND, last_batch=fence), STAMP)
    assert isinstance(found, StopAt)
    assert "excludes this link" in found.sentence
