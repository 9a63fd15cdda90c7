"""The claims about incidents name tests that are there, and take verdict and figure from what was played."""

from __future__ import annotations

import pytest

from bench.kit.playing import ROOT, Played
from bench.show.incidents import PROVOKED, Provoked, claims, finding


@pytest.mark.parametrize("provoked", PROVOKED, ids=lambda one: one.name)
def test_each_claim_names_a_test(provoked: Provoked) -> None:
    assert f"def {provoked.test}(" in (ROOT / provoked.file).read_text(encoding="utf-8")


def test_every_claim_is_there_whatever_is_asked_for() -> None:
    names = [claim.name for claim in claims(1)]
    assert names == [claim.name for claim in claims(1, ["disk"])]
    assert len(set(names)) == len(PROVOKED)


def test_the_figure_is_what_the_test_printed_of_times() -> None:
    played = Played("test_good", "", 3.25, ("--- Captured ---", "a neighbour's record took 0.02 s"), "")
    assert finding(played).passed
    assert finding(played).figure == "a neighbour's record took 0.02 s"
    assert finding(played).numbers == (("good_s", 3.2),)


def test_without_one_it_is_how_long_the_test_took_or_why_it_fell_short() -> None:
    assert finding(Played("test_quiet", "", 2.0, (), "")).figure == "played in 2 s"
    bad = finding(Played("test_bad", "", 1.0, (), "no such row"))
    assert (bad.passed, bad.figure) == (False, "no such row")
