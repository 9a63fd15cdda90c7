"""The bench of groups and its claims can fall short: too slow, too dear, a place wrong, a record read again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.kit.claims import Once
from bench.measure.groups import GroupRounds
from bench.show.groups_moves import claims, verdict_of
from testkit.groups import Moved, Record, TwoMoves, compared

GOOD = GroupRounds(2_000, 100_000, 1_000, 20, 2.9, 0.43, 0.8, 0.26, 0.5, 816.0, 826.0, 0)
OURS = tuple(Moved("plain", lag, 0, 0, placed=True) for lag in ("at the end", "90 % behind"))
THEIRS = (Moved("plain", "at the end", 0, 0, placed=True), Moved("plain", "90 % behind", 1_499, 0, placed=True))


@pytest.mark.parametrize("spoiled", [{"round_s": 1.1}, {"cores": 0.6}, {"wrong": 1}])
def test_each_bound_counts(spoiled: dict[str, float]) -> None:
    assert GOOD.bounded
    assert not replace(GOOD, **spoiled).bounded  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "spoiled", [Moved("plain", "x", 1, 0, True), Moved("plain", "x", 0, 1, True), Moved("plain", "x", 0, 0, False)]
)
def test_a_record_again_one_left_out_and_a_group_without_a_place_each_fail(spoiled: Moved) -> None:
    fine = verdict_of("plain", Once(lambda _: TwoMoves(OURS, THEIRS)))(False)
    assert fine.passed
    assert fine.figure == (
        "0 read again, 0 left out; MirrorMaker 2: 1499 read again, 0 left out (worst 90 % behind: 1499 again)"
    )
    assert not verdict_of("plain", Once(lambda _: TwoMoves((*OURS, spoiled), THEIRS)))(False).passed


def test_what_is_read_is_told_by_what_a_consumer_sees() -> None:
    log: dict[int, Record] = {0: (b"a", b"1", 5), 1: (b"b", None, 5), 3: (b"b", None, 5), 4: (b"c", b"2", 6)}
    unread = {log[3], log[4]}
    assert compared(log, 2, unread) == (0, 0)
    assert compared(log, 2, {*unread, log[0]}) == (1, 0)
    assert compared(log, 2, {log[3]}) == (0, 1)


def test_the_claims_have_names_of_their_own() -> None:
    names = [claim.name for claim in claims(1)]
    assert len(set(names)) == len(names)
