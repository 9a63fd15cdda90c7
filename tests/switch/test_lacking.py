"""Which records of a spoilt twin its home lacks: found in logs that a foreigner wrote to, wherever he did."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinshore.config.incident_policy import IncidentKind
from twinshore.kafka.protocol.record_batch import Record
from twinshore.switch.core.steps import TopicMove
from twinshore.switch.core.unreplicated import (
    HomeComparison,
    OldHomePartition,
    TransactionOutcome,
    TwinRecord,
    UnreplicatedRange,
    UnreplicatedRecord,
    describe_unfilled,
    find_doubtful_ranges,
    records_missing_at_home,
)

OURS, HIS = 7, 8


def at(offset: int, text: str) -> Record:
    return Record(offset, 1_000 + len(text), b"key", text.encode(), ((b"kind", b"a"),))


def written(offset: int, text: str, producer_id: int) -> TwinRecord:
    return TwinRecord(UnreplicatedRecord(at(offset, text), TransactionOutcome.COMMITTED), producer_id)


def found(twin: list[TwinRecord], home: list[Record], seen: HomeComparison) -> list[tuple[int, bytes | None]]:
    return [(one.record.offset, one.record.value) for one in records_missing_at_home(twin, home, seen)]


@given(st.integers(0, 30), st.lists(st.integers(0, 30), max_size=5), st.integers(0, 10))
def test_it_finds_just_what_a_foreigner_wrote(records: int, his: list[int], start: int) -> None:
    """Also where the link's own records landed behind his, and none is where it belongs."""
    home = [at(offset, f"record {offset}") for offset in range(records)]
    twin: list[TwinRecord] = []
    for offset in range(records):
        for _ in range(his.count(offset)):
            twin.append(written(len(twin), f"foreign {len(twin)}", HIS))
        twin.append(written(len(twin), f"record {offset}", OURS))
    foreign = [(one.saved.record.offset, one.saved.record.value) for one in twin if one.producer_id == HIS]
    assert found(twin, home, HomeComparison(0, {OURS}, 0)) == foreign
    left = [one for one in home if one.offset >= start]
    more = [one for one in found(twin, left, HomeComparison(start, {OURS}, 0)) if one not in foreign]
    assert set(foreign) <= set(found(twin, left, HomeComparison(start, {OURS}, 0)))
    assert all(b"record" in (value or b"") for _, value in more), "copies of what the home has deleted, at most"


def test_what_the_home_lost_is_found_though_the_link_carried_it() -> None:
    twin = [written(offset, f"record {offset}", OURS) for offset in range(6)]
    home = [at(offset, f"record {offset}") for offset in range(3)] + [at(3, "another"), at(4, "history")]
    assert [offset for offset, _ in found(twin, home, HomeComparison(0, {OURS}, 0))] == [3, 4, 5]


def test_what_retention_or_a_cleaner_took_from_the_home_is_no_loss() -> None:
    twin = [written(0, "of when it was at home here", HIS), *(written(at_, "ours", OURS) for at_ in (1, 2, 3))]
    assert found(twin, [], HomeComparison(9, {OURS}, 4)) == []
    assert found([*twin, written(4, "foreign", HIS)], [], HomeComparison(9, {OURS}, 4)) == [(4, b"foreign")]
    cleaned = [written(offset, f"record {offset}", OURS) for offset in range(4)]
    home = [at(3, "record 3")]
    assert found(cleaned, home, HomeComparison(0, {OURS}, 0, compacted=True)) == []
    assert [offset for offset, _ in found(cleaned, home, HomeComparison(0, {OURS}, 0))] == [0, 1, 2]


@pytest.mark.parametrize(
    ("stood", "first"),
    [
        (OldHomePartition("orders", 0, 5, 20, 0, 12), 12),
        (OldHomePartition("orders", 0, 5, 12, 0, 12), None),
        (OldHomePartition("orders", 0, 5, 20, 0, 12, IncidentKind.FOREIGN_WRITE, 14), 12),
        (OldHomePartition("orders", 0, 5, 20, 0, 12, IncidentKind.FOREIGN_WRITE, 10), 10),
        (OldHomePartition("orders", 0, 5, 20, 0, 12, IncidentKind.TRUNCATION, 14), 5),
        (OldHomePartition("orders", 0, 5, 20, 0, 12, IncidentKind.POSITION_DISAGREEMENT, 14), 5),
        (OldHomePartition("orders", 0, 5, 20, 8, -1), 8),
        (OldHomePartition("orders", 0, 5, 12, 0, 12, differs=True), 5),  # as a proof has found
    ],
)
def test_beyond_what_the_link_is_sure_of_all_is_compared(stood: OldHomePartition, first: int | None) -> None:
    assert find_doubtful_ranges([stood]) == (
        () if first is None else (UnreplicatedRange("orders", 0, first, stood.end, beside=True),)
    )


def test_it_is_filled_once_each_partition_is_as_far_as_its_home_was() -> None:
    topics = [TopicMove(topic="orders", old_id="a", new_id="b", term=1, partitions=2, points=(3, 4))]
    rng = random.Random(1)
    for _ in range(50):
        ends = {("orders", number): rng.randint(0, 6) for number in range(2)}
        lacks = [f"orders-{number}" for number, point in enumerate((3, 4)) if ends["orders", number] < point]
        assert describe_unfilled(topics, ends) == (f"still to be filled: {', '.join(lacks)}" if lacks else "")
