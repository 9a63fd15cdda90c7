"""What is compared next, and what the answers come to."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from twinshore.config.model import Cluster, TopicPartition
from twinshore.proof.core.model import (
    CompareMode,
    CompareRange,
    CompareResult,
    DifferenceKind,
    ProofDifference,
    RecordPreview,
)
from twinshore.proof.core.partition_scan import PartitionScan
from twinshore.proof.core.planning import (
    PROOF_REFRESH_INTERVAL_MS,
    ProofOptions,
    apply_results,
    apply_sample_results,
    bundle_ranges,
    plan_ranges,
    refresh_idle_proof,
)
from twinshore.proof.core.record_rows import combine_digests
from twinshore.state.core.values import ProofState

EAST, WEST = Cluster("east", ("one:1",)), Cluster("west", ("two:1",))
LOOK = PartitionScan(
    link="east->west",
    partition=TopicPartition("orders", 3),
    twin="orders",
    mode=CompareMode.EXACT,
    source_start=10,
    source_end=1_000,
    target_end=900,
    source_topic_id="aa",
    target_topic_id="bb",
)
SMALL = ProofOptions(range_records=200)
DIFFERENCE = ProofDifference(
    DifferenceKind.CHANGED_VALUE, 450, "it is another", RecordPreview(450, 1, None, "v", (("h", None),)), None
)


def cut(look: PartitionScan, wishes: ProofOptions = SMALL) -> list[CompareRange]:
    """As a round numbers them."""
    return [replace(one, number=number) for number, one in enumerate(plan_ranges(look, EAST, WEST, wishes))]


def answer(stretch: CompareRange, **what: object) -> CompareResult:
    whole = CompareResult(
        stretch.number, stretch.start, stretch.end, records=stretch.end - stretch.start, digest=stretch.end
    )
    return replace(whole, **what)  # type: ignore[arg-type]


def test_a_partition_is_cut_without_gap_or_overlap_through_the_lower_end() -> None:
    spans = [(one.start, one.end) for one in cut(LOOK)]
    assert spans == [(10, 210), (210, 410), (410, 610), (610, 810), (810, 900)]
    assert {one.target_end for one in cut(LOOK)} == {-1}


def test_what_lies_beyond_the_sources_end_is_looked_at_too() -> None:
    assert cut(replace(LOOK, target_end=1_003))[-1].target_end == 1_003
    (only,) = cut(replace(LOOK, source_start=1_000, target_end=1_003))
    assert (only.start, only.end, only.target_end) == (1_000, 1_000, 1_003)
    assert cut(replace(LOOK, source_start=1_000, target_end=1_000)) == []


def test_answers_in_any_order_prove_only_what_has_no_gap() -> None:
    asked = cut(LOOK)
    answers = [answer(one) for one in asked]
    random.Random(4).shuffle(answers)
    for count in range(len(answers) + 1):
        some = answers[:count]
        there = {one.number for one in some}
        whole = next((number for number in range(len(asked)) if number not in there), len(asked))
        row = apply_results(LOOK, asked, some, 5)
        assert row.to_offset == (asked[whole - 1].end if whole else 10)
        assert row.records == row.to_offset - 10
        if whole:
            assert int(row.digest, 16) == combine_digests(*(one.end for one in asked[:whole]))


def test_the_next_round_goes_on_where_this_one_ended() -> None:
    asked = cut(LOOK)
    row = apply_results(LOOK, asked, [answer(one) for one in asked], 5)
    later = replace(LOOK, source_start=30, source_end=1_200, target_end=1_100, stored=row)
    more = cut(later)
    assert [(one.start, one.end) for one in more] == [(900, 1_100)]
    after = apply_results(later, more, [answer(more[0])], 9)
    assert (after.from_offset, after.to_offset, after.records, after.proven_ms) == (30, 1_100, 1_070, 9)
    assert after.digest == "", "nobody knows the digest of what is left"
    kept = apply_results(replace(later, source_start=10), more, [answer(more[0])], 9)
    assert (kept.from_offset, kept.records) == (10, 1_090)
    assert int(kept.digest, 16) == combine_digests(int(row.digest, 16), 1_100)
    level = replace(later, source_start=10, target_end=900)
    assert apply_results(level, [], [], 9) == replace(row, source_end=1_200), "nothing new"
    unrated = replace(more[0], digest=False)
    assert apply_results(later, [unrated], [answer(unrated, digest=0)], 9).digest == "", "a part without one has none"


def test_the_proof_of_a_quiet_partition_does_not_grow_old() -> None:
    level = replace(LOOK, target_end=1_000)
    asked = cut(level)
    row = apply_results(level, asked, [answer(one) for one in asked], 5)
    quiet, late = replace(level, stored=row), 5 + PROOF_REFRESH_INTERVAL_MS
    assert refresh_idle_proof(quiet, late) == replace(row, proven_ms=late)
    assert refresh_idle_proof(quiet, late - 1) is None, "not written at each round"
    assert refresh_idle_proof(level, late) is None, "nothing was proven"
    assert refresh_idle_proof(replace(quiet, source_end=1_001), late) is None, "the target lacks something"
    assert refresh_idle_proof(replace(quiet, target_end=999), late) is None, "the target lost something"
    assert refresh_idle_proof(replace(quiet, stored=replace(row, state=ProofState.DIFFERS)), late) is None


@pytest.mark.parametrize(
    "change", [{"source_topic_id": "cc"}, {"target_topic_id": "cc"}, {"mode": CompareMode.COMPACTED}]
)
def test_a_topic_made_again_or_compared_otherwise_begins_again(change: dict[str, str]) -> None:
    asked = cut(LOOK)
    row = apply_results(LOOK, asked, [answer(one) for one in asked], 5)
    assert cut(replace(LOOK, stored=row, **change))[0].start == 10  # type: ignore[arg-type]


def test_a_difference_ends_what_is_proven_and_is_kept_whole() -> None:
    asked = cut(LOOK)
    answers = [answer(one) for one in asked]
    answers[2] = answer(asked[2], to=450, records=40, difference=DIFFERENCE)
    row = apply_results(LOOK, asked, answers, 5)
    assert (row.state, row.to_offset, row.records) == ("differs", 450, 440)
    again = cut(replace(LOOK, stored=row))
    assert again[0].start == 450, "looked at again, in case it was mended"
    mended = apply_results(replace(LOOK, stored=row), again, [answer(one) for one in again], 6)
    assert (mended.state, mended.to_offset, mended.sentence) == ("identical", 900, "")


def test_trouble_ends_what_is_proven_too() -> None:
    asked = cut(LOOK)
    row = apply_results(LOOK, asked, [answer(asked[0]), answer(asked[1], to=300, records=90, trouble="away")], 5)
    assert (row.state, row.to_offset, row.records) == ("identical", 300, 290)


def test_what_retention_took_uncompared_is_not_said_to_be_proven() -> None:
    asked = cut(LOOK)
    row = apply_results(
        LOOK, asked[:3], [answer(asked[0]), answer(asked[1]), answer(asked[2], to=450, difference=DIFFERENCE)], 5
    )
    assert (row.state, row.to_offset) == ("differs", 450)
    assert replace(LOOK, stored=row, source_start=450).resumable_proof is not None, "all that is gone was compared"
    look = replace(LOOK, stored=row, source_start=700)
    assert look.resumable_proof is None
    more = cut(look)
    after = apply_results(look, more, [answer(one) for one in more], 6)
    assert (after.state, after.from_offset, after.to_offset, after.records) == ("identical", 700, 900, 200)
    assert int(after.digest, 16) == combine_digests(*(one.end for one in more))
    assert apply_results(look, [], [], 6).to_offset == 700


def test_what_retention_takes_meanwhile_is_not_said_to_be_proven_either() -> None:
    asked = cut(LOOK)
    answers = [answer(one) for one in asked]
    answers[2] = answer(asked[2], start=500, records=110)
    row = apply_results(LOOK, asked, answers, 5)
    assert (row.from_offset, row.to_offset, row.records) == (500, 900, 110 + 200 + 90)
    assert int(row.digest, 16) == combine_digests(610, 810, 900)
    passed = apply_results(LOOK, asked[:2], [answers[0], answer(asked[1], start=410, records=0, digest=0)], 5)
    assert (passed.from_offset, passed.to_offset, passed.records, passed.digest) == (410, 410, 0, "")
    later = replace(LOOK, stored=replace(row, to_offset=810))
    (rest,) = cut(later)
    jumped = apply_results(later, [rest], [answer(rest, start=850, records=50)], 6)
    assert (jumped.from_offset, jumped.records, int(jumped.digest, 16)) == (850, 50, 900)


def test_what_is_gone_from_a_mapped_pair_is_on_neither_side() -> None:
    assert replace(LOOK, source_start=700).gone_below == 700
    look = replace(LOOK, mode=CompareMode.OFFSET_MAP, source_start=700, offset_runs=((10, 100, 300), (310, 900, 400)))
    assert replace(look, target_start=50).gone_below == 10, "what lay before the first one is none of the link's"
    assert replace(look, target_start=150).gone_below == 60
    assert replace(look, target_start=400).gone_below == 310, "the twin holds all of the second one"
    assert replace(look, target_start=1_299).gone_below == 700
    assert replace(look, target_start=1_300).gone_below == 700
    assert replace(look, offset_runs=()).gone_below == 0


def test_by_content_one_stretch_follows_the_other_on_both_sides() -> None:
    look = replace(LOOK, mode=CompareMode.CONTENT, target_end=80)
    (first,) = cut(look, ProofOptions(range_records=600))
    assert (first.start, first.end, first.target_start, first.target_end) == (10, 610, -1, -1)
    row = apply_results(look, [first], [answer(first, target_to=55)], 5)
    (last,) = cut(replace(look, stored=row), ProofOptions(range_records=600))
    assert (last.start, last.end, last.target_start, last.target_end) == (610, 1_000, 55, 80)
    whole = apply_results(replace(look, stored=row), [last], [answer(last, target_to=80)], 6)
    assert cut(replace(look, stored=whole)) == []
    assert cut(replace(look, stored=whole, target_end=81))[0].target_end == 81, "more on the target than on the source"
    cut_off = replace(look, stored=whole, source_start=1_200, source_end=1_300)
    assert cut(cut_off)[0].target_start == -1, "both are laid beside each other anew"


def test_a_mapped_partition_ends_where_its_offset_runs_do() -> None:
    look = replace(LOOK, mode=CompareMode.OFFSET_MAP, offset_runs=((10, 100, 300), (350, 400, 50)))
    assert [(one.start, one.end) for one in cut(look)] == [(10, 210), (210, 400)]
    adopted = replace(look, offset_runs=((350, 400, 50),))
    assert [(one.start, one.end) for one in cut(adopted)] == [(350, 400)], "what came before is none of the link's"
    long = replace(look, source_start=0, source_end=250_000, target_end=250_000, offset_runs=((0, 0, 250_000),))
    assert [one.end for one in cut(long, ProofOptions())] == [100_000, 200_000, 250_000], (
        "each may be of many offset runs"
    )


@pytest.mark.parametrize("seed", range(5))
def test_a_sample_is_the_same_for_the_same_seed(seed: int) -> None:
    look = replace(LOOK, source_start=0, source_end=10**7, target_end=10**7)
    wishes = ProofOptions(sample=0.1, seed=seed)
    drawn = [(one.start, one.end) for one in cut(look, wishes)]
    assert drawn == [(one.start, one.end) for one in cut(look, wishes)] == sorted(set(drawn))
    assert sum(end - start for start, end in drawn) == 10**6
    assert drawn != [(one.start, one.end) for one in cut(look, replace(wishes, seed=99))]


def test_a_sample_changes_what_is_known_only_by_a_difference() -> None:
    asked = cut(LOOK)
    row = apply_results(LOOK, asked, [answer(one) for one in asked], 5)
    look = replace(LOOK, stored=row)
    assert apply_sample_results(look, [answer(asked[0])], 9) is None
    found = apply_sample_results(look, [answer(asked[2], to=450, difference=DIFFERENCE)], 9)
    assert found is not None
    assert (found.state, found.to_offset, found.digest) == ("differs", 450, ""), "what was proven once is so no more"


def test_short_stretches_share_a_task_and_none_is_lost() -> None:
    chance = random.Random(3)
    wanted = [
        CompareRange(EAST, WEST, LOOK.partition, "orders", CompareMode.EXACT, 0, chance.randrange(300))
        for _ in range(500)
    ]
    bundles = list(bundle_ranges(wanted, 1_000))
    assert [one for bundle in bundles for one in bundle] == wanted
    assert all(sum(one.end for one in bundle) <= 1_000 for bundle in bundles)
    assert len(bundles) < 120


def test_orders_and_answers_travel_as_text() -> None:
    mapped = replace(LOOK, mode=CompareMode.OFFSET_MAP, offset_runs=((10, 100, 300),), cluster_ids=("e", "w"))
    stretch = replace(cut(mapped)[0], bytes_s=2.5, offset_runs=((10, 100, 300),))
    assert (stretch.cluster_ids, stretch.topic_ids) == (("e", "w"), ("aa", "bb"))
    assert CompareRange.from_json(stretch.to_json()) == stretch
    proven = answer(stretch, difference=DIFFERENCE, digest=2**127 + 1, trouble="é")
    assert CompareResult.from_json(proven.to_json()) == proven
