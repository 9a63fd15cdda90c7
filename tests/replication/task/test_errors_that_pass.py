"""Every error code that brokers know: which of them stop a partition, and which are waited out and told."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from tests.replication.task.parcels import a_parcel
from tests.replication.task.test_lane_bounds import LINE, NAMED, NOW_MS, SOURCE_ID, answer, running_lane
from twinshore.kafka.protocol.fetch import FetchedAnswer, FetchedPartition
from twinshore.kafka.protocol.produce import ProducedPartition
from twinshore.replication.core.incident_kinds import After, known, passing
from twinshore.replication.task.core.batches import Blank, Hold
from twinshore.replication.task.core.config import LaneLimits, Stoppage
from twinshore.replication.task.core.partition import TROUBLE_S, Phase
from twinshore.replication.task.core.partitions import Lane
from twinshore.replication.task.core.position import (
    MEANINGS,
    UNREADABLE_MAX,
    Marked,
    Means,
    Observation,
    meaning,
    source_error,
    target_error,
)
from twinshore.replication.task.core.resync import refused

pytestmark = pytest.mark.claim(
    "topics",
    "errors-pass",
    "of every error code that brokers know, only what never passes by itself stops a partition; the "
    "rest is waited out, told, and over by itself",
)

CODES = [code.value for code in ErrorCode if code.value] + [140, 999]
STOPPING = {17, 21, 32, 42, 43, 44, 48, 49, 76, 87}
PARCEL = a_parcel(10, 13, 900, 0)
OFTEN = 10_000
KINDS = {Means.RIGHT: "rights lost", Means.SIZE: "oversize batch", Means.SEQUENCE: "position disagreement"}


def fetched(code: int) -> FetchedPartition:
    return FetchedPartition(bytes.fromhex(SOURCE_ID), 0, code, -1, -1, -1, None, None, [], memoryview(b""))


def produced(code: int) -> ProducedPartition:
    return ProducedPartition("orders", 0, code, -1, -1, -1, None, None)


@pytest.mark.parametrize("code", CODES)
def test_a_code_stops_a_partition_only_where_it_never_passes(code: int) -> None:
    means = meaning(code)
    assert (means is Means.NEVER) == (code in STOPPING)
    read, first = source_error(fetched(code), 10, OFTEN), source_error(fetched(code), 10, 0)
    taken = target_error(produced(code), PARCEL, OFTEN)
    marked = refused(Marked("orders", 0, code, -1), Blank(10, 13), 0)
    match means:
        case Means.PASSES | Means.ANEW:
            assert (read, taken, marked) == (None, None, None)
        case Means.DAMAGE:
            assert read and read.kind == "corrupt batch"
            assert first is None
            assert taken and taken.kind == "refused"
            assert target_error(produced(code), PARCEL, UNREADABLE_MAX - 1) is None
            assert f"{OFTEN + 1} times in a row" in read.sentence
            assert f"{OFTEN + 1} times in a row" in taken.sentence
        case Means.NEVER:
            for halt in (read, taken, marked):
                assert halt and halt.kind == "refused"
        case Means.RIGHT:
            for halt in (read, taken, marked):
                assert halt and halt.kind == "rights lost"
        case Means.SIZE | Means.SEQUENCE:
            assert taken and taken.kind == KINDS[means]


def test_only_what_a_broker_calls_damage_is_called_a_corrupt_batch() -> None:
    called = {code for code in CODES if (found := source_error(fetched(code), 10, OFTEN)) and "corrupt" in found.kind}
    assert called == {2}


def test_each_meaning_has_its_reason() -> None:
    assert all(reason for _, reason in MEANINGS.values())
    assert set(MEANINGS) <= set(CODES)


def round_of_errors(lane: Lane, answered: FetchedAnswer, now_s: float, end: int = 9) -> None:
    """One fetch is answered so, and the look that follows is well."""
    assert lane.fetch_order(LINE)
    lane.fetched(LINE, answered, Hold(bytearray()), now_s, NOW_MS)
    assert lane.tracks[NAMED].phase is not Phase.STOPPED
    assert lane.to_look_at(now_s + 2.0, {2}) == [NAMED]
    lane.observed(NAMED, Observation(0, 0, 0, None, None, source_start=0, source_end=end), now_s + 2.0, NOW_MS)


@pytest.mark.parametrize("whole", [False, True], ids=["of the partition", "of the whole fetch"])
@pytest.mark.parametrize("code", [-1, 56, 999])
def test_a_source_whose_object_store_is_away_is_waited_for_and_told(code: int, whole: bool) -> None:
    lane = running_lane(LaneLimits())
    failed = FetchedAnswer(0, code, 0, []) if whole else FetchedAnswer(0, 0, 5, [fetched(code)])
    for second in range(0, 300, 3):
        round_of_errors(lane, failed, float(second))
        assert bool(lane.incidents) == (second >= TROUBLE_S), second
        assert not lane.accounts(0.0), "it would close the row"
    told, *more = lane.incidents
    assert len(more) == 8, "again every half minute, as each pump is gone after a while"
    assert (told.kind, told.from_offset, told.to_offset) == ("source away", 0, 1)
    assert "to fetches at offset 0, for 30 s by now" in told.sentence
    assert passing(told.kind, told.policy)
    assert known(told.kind).after is After.GOES_ON
    lane.fetch_order(LINE)
    lane.fetched(LINE, answer(0, 3), Hold(bytearray()), 301.0, NOW_MS)
    lane.rested(lane.rest_order(2, 301.0, NOW_MS, idle=True), [Marked("orders", 0, 0, 0)], 301.0)
    (sent,) = lane.produce_order(2, 301.0, NOW_MS)
    assert (sent.parcel.base, sent.parcel.end) == (0, 3), "it goes on where it was"


def test_the_row_of_an_idle_partition_closes_once_it_can_be_read() -> None:
    lane = running_lane(LaneLimits())
    for second in range(0, 40, 3):
        round_of_errors(lane, FetchedAnswer(0, 0, 5, [fetched(-1)]), float(second), end=0)
    (told,) = lane.incidents
    assert (told.from_offset, told.to_offset) == (0, 0)
    assert not lane.accounts(0.0)
    lane.fetch_order(LINE)
    well = fetched(0)._replace(high_watermark=0, last_stable_offset=0, log_start=0)
    lane.fetched(LINE, FetchedAnswer(0, 0, 5, [well]), Hold(bytearray()), 60.0, NOW_MS)
    (account,) = lane.accounts(0.0)
    assert account.to_offset == 0, "that is as far as the row reaches"


def test_a_target_that_takes_nothing_for_long_is_told_and_waited_for() -> None:
    lane = running_lane(LaneLimits())
    told: list[Stoppage] = []
    for second in range(0, 120, 3):
        now_s = float(second)
        lane.fetch_order(LINE)
        lane.fetched(LINE, answer(0, 3), Hold(bytearray()), now_s, NOW_MS)
        sent = lane.produce_order(2, now_s, NOW_MS)
        assert sent, second
        lane.produced(sent, [produced(19)], now_s)
        assert lane.to_look_at(now_s + 2.5, {2}) == [NAMED]
        lane.observed(NAMED, Observation(0, 0, 0, None, None, source_start=0, source_end=9), now_s + 2.5, NOW_MS)
        lane.rested(lane.rest_order(2, now_s + 2.5, NOW_MS, idle=True), [Marked("orders", 0, 0, 0)], now_s + 3.0)
        told += lane.incidents
        lane.incidents.clear()
    row = told[0]
    assert (row.kind, row.from_offset, row.to_offset) == ("target away", 0, 3)
    assert "NOT_ENOUGH_REPLICAS to offsets 0 to 2" in row.sentence


def test_one_error_long_after_another_is_no_trouble_that_lasts() -> None:
    lane = running_lane(LaneLimits())
    round_of_errors(lane, FetchedAnswer(0, 0, 5, [fetched(-1)]), 0.0)
    lane.fetch_order(LINE)
    lane.fetched(LINE, answer(0, 1), Hold(bytearray()), 3.0, NOW_MS)
    lane.fetch_order(LINE)
    lane.fetched(LINE, FetchedAnswer(0, 0, 5, [fetched(-1)]), Hold(bytearray()), 100.0, NOW_MS)
    assert not lane.incidents
