"""One stretch over real sockets: brokers that move, break off and lose their beginning, and what is told of it."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.proof.logs import batched, chunks, records
from tests.proof.small_broker import TOPIC, TOPIC_ID, SmallBroker
from twinshore.config.model import TopicPartition
from twinshore.kafka import log_reader as log_reader
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.record_batch import Record
from twinshore.proof.core.model import CompareMode, CompareRange, CompareResult, DifferenceKind
from twinshore.proof.core.partition_scan import PartitionScan
from twinshore.proof.core.planning import ProofOptions, apply_results, plan_ranges
from twinshore.proof.core.record_rows import record_at
from twinshore.proof.jobs import run_bundle_in_process, run_bundles
from twinshore.proof.prover import prove_all

COUNT = 400


@pytest.fixture(autouse=True)
def small_fetches(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a short log takes many."""
    monkeypatch.setattr(log_reader, "FETCH_BYTES", 6_000)


def log(seed: int) -> list[Record]:
    return records(random.Random(seed), COUNT, holes=0.02)


@pytest.fixture
def sides(request: pytest.FixtureRequest) -> Iterator[tuple[SmallBroker, SmallBroker, CompareRange]]:
    """The same records on both, in other batches."""
    log_of = log(len(request.node.name))
    end = log_of[-1].offset + 1
    pair = [SmallBroker(name, batched(random.Random(name), log_of, end, first=0)) for name in ("east", "west")]
    with pair[0].serving() as source, pair[1].serving() as target:
        yield *pair, CompareRange(source, target, TopicPartition(TOPIC, 0), TOPIC, CompareMode.EXACT, 0, end)  # type: ignore[misc]


Sides = tuple[SmallBroker, SmallBroker, CompareRange]


def logged(broker: SmallBroker) -> list[Record]:
    """All that it ever held."""
    opened = (chunk.opened() for chunk in chunks(b"".join(view for view, _ in broker.log)))
    return [record_at(data, row) for data, rows in opened for row in rows]


def look_of(named: TopicPartition, way: CompareMode, source_end: int, target_end: int) -> PartitionScan:
    return PartitionScan(
        link="east->west",
        partition=named,
        twin=TOPIC,
        mode=way,
        source_start=0,
        source_end=source_end,
        target_end=target_end,
        source_topic_id=TOPIC_ID.hex(),
        target_topic_id=TOPIC_ID.hex(),
    )


def prove(stretch: CompareRange) -> CompareResult:
    (found,) = prove_all([stretch])
    return found


def test_many_fetches_one_behind_the_other_prove_the_whole(sides: Sides) -> None:
    east, west, stretch = sides
    found = prove(stretch)
    assert (found.difference, found.trouble, found.to, found.records) == (None, "", stretch.end, COUNT)
    for broker in (east, west):
        assert len(broker.fetched) > 5
        assert broker.fetched == sorted(set(broker.fetched)), "each is asked for once"
    assert found.bytes > sum(len(view) for view, _ in east.log)


@pytest.mark.parametrize("fault", [Code.not_leader_or_follower, Code.unknown_leader_epoch, "close", "cut"])
def test_a_leader_that_moves_or_breaks_off_is_asked_again(sides: Sides, fault: int | str) -> None:
    east, west, stretch = sides
    want = prove(stretch)
    for broker in (east, west):
        broker.faults.extend(
            [0, fault, 0, 0, fault, fault] if isinstance(fault, str) else [0, int(fault), 0, int(fault)]
        )
    found = prove(stretch)
    assert (found.difference, found.trouble) == (None, "")
    assert (found.to, found.records, found.digest) == (want.to, want.records, want.digest)


def test_a_refusal_is_trouble_with_what_was_proven_until_then(sides: Sides) -> None:
    _, west, stretch = sides
    west.faults.extend([0, 0, int(Code.topic_authorization_failed)])
    found = prove(stretch)
    assert found.difference is None
    assert "west" in found.trouble and "TOPIC_AUTHORIZATION_FAILED" in found.trouble and found.hint
    assert 0 < found.to < stretch.end


def test_retention_at_the_source_meanwhile_is_no_difference(sides: Sides) -> None:
    east, west, stretch = sides
    kept_from = east.log[len(east.log) // 2][1].base_offset

    def cut(position: int) -> None:
        west.fetched.append(position)
        if len(west.fetched) == 2:
            east.start = west.start = kept_from
            east.faults.append(int(Code.offset_out_of_range))

    west.on_fetch = cut
    found = prove(stretch)
    assert (found.difference, found.trouble) == (None, "")
    assert (found.start, found.to) == (kept_from, stretch.end)


def test_a_corrupt_batch_is_told_with_its_side(sides: Sides) -> None:
    _, west, stretch = sides
    view, header = west.log[4]
    west.log[4] = (view[:-1] + bytes([view[-1] ^ 1]), header)
    found = prove(stretch)
    assert found.difference is not None
    assert found.difference.kind is DifferenceKind.CORRUPT
    assert "west: corrupt batch" in found.difference.sentence
    assert found.difference.offset <= header.base_offset


def test_a_batch_that_is_whole_at_the_second_look_is_no_difference(sides: Sides) -> None:
    _, west, stretch = sides
    whole, header = west.log[4]
    west.log[4] = (whole[:-1] + bytes([whole[-1] ^ 1]), header)

    def mend(position: int) -> None:
        if west.fetched and position <= west.fetched[-1]:  # It is read anew.
            west.log[4] = (whole, header)
        west.fetched.append(position)

    west.on_fetch = mend
    found = prove(stretch)
    assert (found.difference, found.trouble) == (None, "")
    assert (found.start, found.to, found.records) == (0, stretch.end, COUNT)
    assert west.log[4][0] is whole


def test_a_record_behind_the_sources_end_is_foreign_though_all_before_it_is_proven() -> None:
    logged = [Record(n, n, b"k", b"v%d" % n) for n in range(51)]
    east, west = (
        SmallBroker(name, batched(random.Random(1), part, len(part), first=0))
        for name, part in (("east", logged[:50]), ("west", logged))
    )
    with east.serving() as source, west.serving() as target:
        look = look_of(TopicPartition(TOPIC, 0), CompareMode.EXACT, 50, 50)
        (whole,) = asked = plan_ranges(look, source, target, ProofOptions())
        row = apply_results(look, asked, [prove(whole)], 1)
        assert (row.state, row.to_offset) == ("identical", 50)
        later = replace(look, target_end=51, stored=row)
        (beyond,) = asked = plan_ranges(later, source, target, ProofOptions())
        found = prove(beyond)
    assert (found.trouble, found.difference and found.difference.kind) == ("", DifferenceKind.FOREIGN)
    assert found.difference is not None and found.difference.offset == 50
    assert apply_results(later, asked, [found], 2).state == "differs"


def test_retention_that_has_passed_a_whole_stretch_leaves_nothing_to_compare(sides: Sides) -> None:
    east, west, stretch = sides
    east.start = west.start = stretch.end
    found = prove(replace(stretch, end=stretch.end - 50))
    assert (found.difference, found.trouble) == (None, "")
    assert (found.start, found.to, found.records) == (stretch.end - 50, stretch.end - 50, 0)


def test_a_source_that_lost_its_end_is_trouble(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "EMPTY_FETCH_TIMEOUT_S", 0.5)
    _, _, stretch = sides
    found = prove(replace(stretch, end=stretch.end + 500))
    assert found.difference is None
    assert " offset " in found.trouble


def test_a_bundle_is_answered_in_full_by_a_task(sides: Sides) -> None:
    _, _, stretch = sides
    middle = stretch.end // 2
    parts = [replace(stretch, end=middle), replace(stretch, start=middle, number=1)]
    (answers,) = run_bundles(run_bundle_in_process, [parts], 1, lambda: False)
    assert [one.number for one in answers] == [0, 1]
    assert sum(one.records for one in answers) == COUNT


def test_a_throttle_is_kept_over_both_sides(sides: Sides) -> None:
    _, _, stretch = sides
    found = prove(replace(stretch, bytes_s=300_000))
    assert found.records == COUNT
    assert found.bytes / found.seconds < 400_000


@contextlib.contextmanager
def cleaned(source: list[Record], target: list[Record], ends: tuple[int, int]) -> Iterator[CompareRange]:
    """Two sides of a compacted topic, to be compared through the lower end."""
    chance = random.Random(1)
    east = SmallBroker("east", batched(chance, source, ends[0], first=0))
    west = SmallBroker("west", batched(chance, target, ends[1], first=0))
    with east.serving() as one, west.serving() as other:
        yield CompareRange(
            one, other, TopicPartition(TOPIC, 0), TOPIC, CompareMode.COMPACTED, 0, min(ends), digest=False
        )


def keyed(count: int) -> list[Record]:
    return [Record(n, n, b"k%d" % (n % 10), b"v%d" % n) for n in range(count)]


def test_a_key_that_the_source_wrote_anew_beyond_the_twins_end_holds_no_proof_up() -> None:
    whole = keyed(110)
    # The source's cleaner knows of k5 at 105, the twin, which ends at 100, shows the one at 95 still.
    source = [record for record in whole if record.offset not in (5, 15, 95)]
    with cleaned(source, whole[:100], (110, 100)) as stretch:
        found = prove(stretch)
    assert (found.difference, found.trouble) == (None, "")
    assert (found.to, found.records) == (100, 97)


@pytest.mark.parametrize("gone", [[95], list(range(5, 100, 10)), list(range(1, 99))])
def test_what_the_twin_lacks_is_not_excused_by_what_it_has_not_got_yet(gone: list[int]) -> None:
    whole = keyed(110)  # each key is written anew at 100 and beyond, which the twin's cleaner cannot know
    with cleaned(whole, [record for record in whole[:100] if record.offset not in gone], (110, 100)) as stretch:
        found = prove(stretch)
    assert found.difference is not None
    assert found.difference.kind is DifferenceKind.MISSING
    whole = keyed(120)
    cut = [record for record in whole[:110] if record.offset not in gone]
    with cleaned(whole, cut, (120, 110)) as stretch:
        found = prove(replace(stretch, end=100))
    assert (found.difference, found.trouble) == (None, ""), "it holds each key's later record by now"


def test_a_key_whose_latest_value_one_side_lacks_for_good_is_a_difference() -> None:
    whole = keyed(100)
    without = [record for record in whole if record.offset != 95]
    with cleaned(whole, without, (100, 100)) as stretch:
        lacks = prove(stretch)
    assert lacks.difference is not None
    assert (lacks.difference.kind, lacks.difference.offset) == (DifferenceKind.MISSING, 95)
    with cleaned(without, whole, (100, 100)) as stretch:
        more = prove(stretch)
    assert more.difference is not None
    assert (more.difference.kind, more.difference.offset) == (DifferenceKind.FOREIGN, 95)


def deleted(first: int) -> list[Record]:
    """A key that is deleted at 50, among others; its value is at `first`."""
    others = [Record(n, n, b"k%d" % n, b"v%d" % n) for n in range(100) if n not in (first, 50)]
    return sorted([*others, Record(first, first, b"k", b"v"), Record(50, 50, b"k", None)])


@pytest.mark.parametrize("start", [0, 30])
def test_a_deleted_key_that_is_alive_where_the_tombstone_was_lost_is_a_difference(start: int) -> None:
    whole = deleted(7)
    alive = [record for record in whole if record.offset != 50]
    for source, target, kind in ((whole, alive, DifferenceKind.MISSING), (alive, whole, DifferenceKind.FOREIGN)):
        with cleaned(source, target, (100, 100)) as stretch:
            found = prove(replace(stretch, start=start))  # The value may lie before what is compared this time.
        assert found.difference is not None, found.trouble
        assert (found.difference.kind, found.difference.offset, found.to) == (kind, 50, 50)


def test_a_tombstone_that_one_side_has_dropped_with_all_that_it_deletes_is_no_difference() -> None:
    whole = deleted(7)
    dropped = [record for record in whole if record.key != b"k"]
    for source, target in ((whole, dropped), (dropped, whole)):
        with cleaned(source, target, (100, 100)) as stretch:
            found = prove(stretch)
        assert (found.difference, found.trouble, found.to) == (None, "", 100)


def test_a_key_that_was_written_anew_does_not_hide_a_difference_behind_it() -> None:
    whole = keyed(110)
    # The source knows of k5 at 105, beyond the twin's end; k7's latest record below it has another value on the twin.
    source = [record for record in whole if record.offset not in (5, 15, 95)]
    target = [record._replace(value=b"else") if record.offset == 97 else record for record in whole[:100]]
    with cleaned(source, target, (110, 100)) as stretch:
        found = prove(stretch)
    assert found.difference is not None
    assert (found.difference.offset, found.to, found.records) == (97, 97, 94)


def test_a_lost_latest_record_is_found_while_other_keys_are_written() -> None:
    whole = keyed(160)
    rare = Record(20, 20, b"rare", b"its only value")
    whole[20] = rare
    # The log goes on beyond what is compared, on both sides; nothing there is of this key.
    without = [record for record in whole if record != rare]
    for source, target, kind in ((whole, without, DifferenceKind.MISSING), (without, whole, None)):
        with cleaned(source, target, (160, 160)) as stretch:
            for _ in range(2):
                found = prove(replace(stretch, end=100))
                assert found.trouble == ""
                if kind is None:  # Whether the source has deleted it, or it is a stranger's, is for the keys to tell.
                    assert (found.difference, found.owed, found.to) == (None, 1, 100)
                else:
                    assert found.difference is not None
                    assert (found.difference.kind, found.difference.offset) == (kind, 20)
                    assert (found.to, found.records) == (20, 20), "what lies behind it is not counted"


def test_a_record_without_a_key_may_have_been_cleaned_away_on_either_side() -> None:
    whole = keyed(100)
    whole[30] = Record(30, 30, None, b"nobody's")
    without = [record for record in whole if record.key is not None]
    for source, target in ((whole, without), (without, whole)):
        with cleaned(source, target, (100, 100)) as stretch:
            found = prove(stretch)
        assert (found.difference, found.trouble, found.to, found.records) == (None, "", 100, 99)


def test_a_record_behind_the_end_of_a_compacted_source_is_foreign() -> None:
    whole = keyed(120)
    with cleaned(whole[:100], whole, (100, 120)) as stretch:
        look = look_of(stretch.partition, CompareMode.COMPACTED, 100, 120)
        for _ in range(2):
            (one,) = asked = plan_ranges(look, stretch.source, stretch.target, ProofOptions())
            found = prove(one)
            assert found.difference is not None and found.trouble == ""
            assert (found.difference.kind, found.difference.offset) == (DifferenceKind.FOREIGN, 100)
            look = replace(look, stored=apply_results(look, asked, [found], 1))
            assert look.stored and (look.stored.state, look.stored.to_offset) == ("differs", 100)
        (one,) = asked = plan_ranges(
            replace(look, target_end=100, stored=None), stretch.source, stretch.target, ProofOptions()
        )
        assert one.target_end == -1


@pytest.mark.parametrize("moved", [35, 60, 200])
def test_a_mapped_twins_own_retention_in_the_midst_of_a_proof_is_no_difference(moved: int) -> None:
    whole, chance = keyed(100), random.Random(1)
    east = SmallBroker("east", batched(chance, whole, 100, first=0, most=5))
    before = [Record(n, n, b"k", b"before the link") for n in range(30)]
    mapped = [record._replace(offset=30 + record.offset) for record in whole]
    west = SmallBroker("west", batched(chance, before + mapped, 130, first=0, most=5))

    def retention(position: int) -> None:
        west.fetched.append(position)
        west.start = min(moved, 130)

    west.on_fetch = retention
    with east.serving() as one, west.serving() as other:
        named = TopicPartition(TOPIC, 0)
        stretch = CompareRange(
            one, other, named, TOPIC, CompareMode.OFFSET_MAP, 0, 100, offset_runs=((0, 30, 50), (50, 80, 50))
        )
        found = prove(stretch)
    assert (found.difference, found.trouble) == (None, "")
    start = min(100, moved - 30)
    assert (found.start, found.to, found.records) == (start, 100, 100 - start)


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_by_content_retention_on_either_side_is_no_difference(sides: Sides, side: str, when: str) -> None:
    east, west, stretch = sides
    broker = east if side == "source" else west
    kept_from = broker.log[len(broker.log) // 2][1].base_offset
    wanted = replace(stretch, mode=CompareMode.CONTENT, target_start=0, target_end=stretch.end)

    def cut(position: int) -> None:
        broker.fetched.append(position)
        if len(broker.fetched) == 2:
            broker.start = kept_from
            broker.faults.append(int(Code.offset_out_of_range))

    if when == "before":
        broker.start = kept_from
    else:
        broker.on_fetch = cut
    found = prove(wanted)
    assert (found.difference, found.trouble) == (None, "")
    assert found.start >= kept_from and (found.to, found.target_to) == (stretch.end, stretch.end)
    assert found.records == sum(record.offset >= found.start for record in logged(east))


def test_by_content_a_stretch_that_retention_has_passed_leaves_the_next_to_find_its_beginning(sides: Sides) -> None:
    east, _, stretch = sides
    east.start = east.log[len(east.log) // 2][1].base_offset
    look = look_of(stretch.partition, CompareMode.CONTENT, stretch.end, stretch.end)
    wishes = ProofOptions(range_records=east.start // 2)
    row = apply_results(look, [], [], 1)
    look = replace(look, stored=replace(row, to_offset=3, target_offset=3, records=3))
    for _ in range(9):
        asked = plan_ranges(look, stretch.source, stretch.target, wishes)
        if not asked:
            break
        found = prove(asked[0])
        assert (found.difference, found.trouble) == (None, "")
        look = replace(look, stored=apply_results(look, asked, [found], 2))
    assert look.stored is not None
    assert (look.stored.to_offset, look.stored.target_offset) == (stretch.end, stretch.end)
    assert look.stored.from_offset >= east.start
    assert look.stored.records == sum(record.offset >= look.stored.from_offset for record in logged(east))
