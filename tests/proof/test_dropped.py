"""What a fresh queue did not send is in the ledger, and no difference; anything else that is missing is one."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.proof.logs import batched, chunks, records
from tests.proof.small_broker import TOPIC, SmallBroker
from tests.proof.test_planning import LOOK, cut
from twinshore.config.incident_policy import POLICY_DROP, IncidentKind
from twinshore.config.model import TopicPartition
from twinshore.proof.core.compare import CompareProgress, compare_by_offset
from twinshore.proof.core.model import CompareMode, CompareRange, DifferenceKind
from twinshore.proof.core.record_rows import exclude_ranges
from twinshore.proof.link_scan import find_dropped_ranges
from twinshore.proof.prover import prove_all
from twinshore.state.core.values import Incident, IncidentRow, TwinRow

MADE_MS = 1_000
TWIN = TwinRow("a->b", "orders", 3, "aa", "bb", 0, 0, MADE_MS, last_incident_id=6)


def row(
    begin: int,
    end: int,
    kind: IncidentKind = IncidentKind.STALE_DROPPED,
    *,
    opened_ms: int = MADE_MS - 1,
    number: int = 7,
) -> IncidentRow:
    what = Incident("a->b", "orders", 3, kind, begin, end, POLICY_DROP, "so")
    return IncidentRow(number, what, opened_ms, opened_ms + 1)


def ranges(chance: random.Random, first: int, end: int, most: int) -> tuple[tuple[int, int], ...]:
    cuts = sorted(chance.sample(range(first, end), 2 * chance.randint(1, most)))
    return tuple(zip(cuts[::2], cuts[1::2], strict=True))


def left(dropped: tuple[tuple[int, int], ...], offset: int) -> bool:
    return not any(begin <= offset < end for begin, end in dropped)


@pytest.mark.parametrize("seed", range(40))
def test_what_was_dropped_is_no_difference_however_both_are_batched(seed: int) -> None:
    chance = random.Random(f"dropped {seed}")
    log = records(chance, 150, start=40, holes=0.1)
    end = log[-1].offset + 1
    dropped = ranges(chance, 40, end, 5)
    twin = [one for one in log if left(dropped, one.offset)]
    ours, theirs = batched(chance, log, end), batched(chance, twin, end)
    tally = CompareProgress(40)
    assert compare_by_offset(exclude_ranges(chunks(ours), dropped), chunks(theirs), tally, end), f"seed {seed}"
    assert (tally.at, tally.records) == (end, len(twin))
    if not twin:
        return
    gone = chance.choice(twin)
    lacks = CompareProgress(40)
    broken = batched(chance, [one for one in twin if one is not gone], end) if len(twin) > 1 else b""
    if broken:
        assert not compare_by_offset(exclude_ranges(chunks(ours), dropped), chunks(broken), lacks, end), f"seed {seed}"
        assert lacks.at == gone.offset


@pytest.mark.parametrize("seed", range(3))
def test_over_sockets_a_record_that_no_row_names_is_missing_still(seed: int) -> None:
    chance = random.Random(f"sockets {seed}")
    log = records(chance, 300)
    end = log[-1].offset + 1
    dropped = ((50, 120), (200, 203))
    twin = [one for one in log if left(dropped, one.offset)]
    lacking = [one for one in twin if one.offset != 150]
    for held, difference in ((twin, None), (lacking, (DifferenceKind.MISSING, 150))):
        east = SmallBroker("east", batched(chance, log, end, first=0))
        west = SmallBroker("west", batched(chance, held, end, first=0))
        with east.serving() as source, west.serving() as target:
            whole = CompareRange(
                source, target, TopicPartition(TOPIC, 0), TOPIC, CompareMode.EXACT, 0, end, dropped=dropped
            )
            whole = CompareRange.from_json(whole.to_json())
            (found,) = prove_all([whole])
        told = (found.difference.kind, found.difference.offset) if found.difference else None
        assert (told, found.trouble) == (difference, ""), f"seed {seed}"


def test_rows_of_the_ledger_count_that_are_of_this_twin_and_say_that_it_was_dropped() -> None:
    rows = [
        row(200, 300),
        row(10, 20),
        row(20, 30),
        row(400, 500, IncidentKind.RETENTION_GAP),
        row(600, 700, opened_ms=MADE_MS + 1, number=6),
    ]
    assert find_dropped_ranges(rows, TWIN) == ((10, 30), (200, 300)), "whatever the clocks of two hosts say"
    assert find_dropped_ranges([], TWIN) == ()
    assert find_dropped_ranges(rows, None) == ((10, 30), (200, 300), (600, 700))


def test_of_a_row_that_many_were_joined_to_its_parts_count() -> None:
    whole = replace(row(10, 90), joined_ranges=((10, 20), (80, 90)))
    assert find_dropped_ranges([whole, row(20, 30)], TWIN) == ((10, 30), (80, 90)), "what lies between was sent"


def test_of_a_twin_of_an_older_version_clocks_say_which_rows_count() -> None:
    older = replace(TWIN, last_incident_id=-1)
    rows = [row(10, 20), row(20, 30, opened_ms=MADE_MS, number=8), row(600, 700, opened_ms=MADE_MS + 1, number=6)]
    assert find_dropped_ranges(rows, older) == ((20, 30), (600, 700))


def test_each_part_of_a_proof_has_what_was_dropped_of_it() -> None:
    parts = cut(replace(LOOK, target_end=1_000, dropped=((5, 20), (300, 400))))
    assert {one for part in parts for one in part.dropped} == {(5, 20), (300, 400)}
    assert all(begin < part.end and end > part.start for part in parts for begin, end in part.dropped)
