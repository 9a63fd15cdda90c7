"""Kinds of differences are told apart by what follows them."""

from __future__ import annotations

import random

import pytest

from twinshore.kafka.protocol.record_batch import Record
from twinshore.proof.core.compare import find_common_start, first_difference
from twinshore.proof.core.model import PREVIEW_BYTES_MAX, DifferenceKind


def log(count: int = 20, start: int = 100) -> list[Record]:
    return [Record(start + n, 1_000 + n, b"key %d" % n, b"value %d" % n, ((b"h", b"%d" % n),)) for n in range(count)]


def placed(records: list[Record], start: int = 100) -> list[Record]:
    """The same contents, at offsets that follow each other."""
    return [record._replace(offset=start + at) for at, record in enumerate(records)]


def test_what_is_the_same_has_no_difference() -> None:
    assert first_difference(log(), log()) is None
    assert first_difference([], []) is None


@pytest.mark.parametrize(
    ("field", "content", "kind"),
    [
        ("value", b"valuf 5", DifferenceKind.CHANGED_VALUE),
        ("value", None, DifferenceKind.CHANGED_VALUE),
        ("key", b"", DifferenceKind.CHANGED_KEY),
        ("timestamp", 7, DifferenceKind.CHANGED_TIMESTAMP),
        ("headers", (), DifferenceKind.CHANGED_HEADERS),
    ],
)
def test_a_changed_field_is_named_with_both_records(field: str, content: object, kind: DifferenceKind) -> None:
    twin = log()
    twin[5] = twin[5]._replace(**{field: content})  # type: ignore[arg-type]
    found = first_difference(log(), twin)
    assert found is not None and (found.kind, found.offset) == (kind, 105)
    assert found.source is not None and found.target is not None
    assert found.source.value == "value 5"
    assert found.sentence.startswith(f"the record's {field} is another")


def test_the_first_byte_that_differs_is_named() -> None:
    twin = log()
    twin[5] = twin[5]._replace(value=b"value 6 and more")
    found = first_difference(log(), twin)
    assert found is not None
    assert found.sentence.endswith("from byte 6 on, which has 16 bytes and not 7")


@pytest.mark.parametrize("moved", [True, False], ids=["those behind moved up", "a hole in its place"])
def test_a_missing_record(moved: bool) -> None:
    rest = log()[:5] + log()[6:]
    found = first_difference(log(), placed(rest) if moved else rest)
    assert found is not None and (found.kind, found.offset) == (DifferenceKind.MISSING, 105)
    assert (found.target is None) is not moved


@pytest.mark.parametrize("moved", [True, False], ids=["those behind moved down", "where the source has a hole"])
def test_a_foreign_record(moved: bool) -> None:
    foreign = Record(105, 5, b"who", b"are you")
    if moved:
        source, target = log(), placed([*log()[:5], foreign, *log()[5:]])
    else:
        source, target = log()[:5] + log()[6:], [*log()[:5], foreign, *log()[6:]]
    found = first_difference(source, target)
    assert found is not None and (found.kind, found.offset) == (DifferenceKind.FOREIGN, 105)
    assert found.target is not None and found.target.key == "who"


def test_another_record_in_its_place_is_foreign_too() -> None:
    twin = log()
    twin[5] = Record(105, 5, b"who", b"are you")
    found = first_difference(log(), twin)
    assert found is not None and found.kind is DifferenceKind.FOREIGN


@pytest.mark.parametrize("far", [1, 4])
def test_a_swapped_pair(far: int) -> None:
    contents = log()
    contents[5], contents[5 + far] = contents[5 + far], contents[5]
    found = first_difference(log(), placed(contents))
    assert found is not None and (found.kind, found.offset) == (DifferenceKind.SWAPPED, 105)
    assert f"the one {far} further on" in found.sentence


def test_the_last_records_of_a_log() -> None:
    lacks = first_difference(log(), log(19))
    assert lacks is not None and (lacks.kind, lacks.offset) == (DifferenceKind.MISSING, 119)
    more = first_difference(log(19), log())
    assert more is not None and (more.kind, more.offset) == (DifferenceKind.FOREIGN, 119)


def test_beyond_what_was_read_nothing_is_missing() -> None:
    assert first_difference(log(), log(19), end=119) is None


def test_without_offsets_only_order_counts() -> None:
    twin = [record._replace(offset=record.offset * 3) for record in log()]
    assert first_difference(log(), twin, placed=False) is None
    lacks = first_difference(log(), twin[:7] + twin[8:], placed=False)
    assert lacks is not None and (lacks.kind, lacks.offset) == (DifferenceKind.MISSING, 107)
    more = first_difference(log(3), twin[:4], placed=False)
    assert more is not None and (more.kind, more.offset) == (DifferenceKind.FOREIGN, 103)


def test_long_and_binary_content_is_cut_and_readable() -> None:
    source = [Record(0, 0, b"\xff\x00", b"x" * 5_000)]
    found = first_difference(source, [])
    assert found is not None and found.source is not None and found.source.value is not None
    assert found.source.key == "0xff00"
    assert found.source.value == "x" * PREVIEW_BYTES_MAX + "... (5000 bytes)"


@pytest.mark.parametrize("seed", range(20))
def test_the_common_beginning_is_found_whichever_side_begins_earlier(seed: int) -> None:
    chance = random.Random(seed)
    whole, skipped = log(60), chance.randrange(50)
    late = [record._replace(offset=n) for n, record in enumerate(whole[skipped:])]
    assert find_common_start(whole, late) == (skipped, 0), f"seed {seed}"
    assert find_common_start(late, whole) == (0, skipped), f"seed {seed}"


def test_strangers_have_no_common_beginning() -> None:
    assert find_common_start(log(), [Record(0, 1, None, b"else")]) is None
    assert find_common_start([], log()) is None
