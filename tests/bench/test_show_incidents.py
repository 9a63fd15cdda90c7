"""The claims about incidents name tests that are there, and take verdict and figure from what pytest reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.show_incidents import PLAYED, Played, claims, findings
from bench.showing import ROOT

REPORT = """<?xml version="1.0"?><testsuites><testsuite name="pytest">
<testcase classname="a" name="test_good" time="3.25"><system-out>--- Captured ---
a neighbour's record took 0.02 s
</system-out></testcase>
<testcase classname="a" name="test_quiet" time="2.0"></testcase>
<testcase classname="a" name="test_bad" time="1.0"><failure message="no">x</failure></testcase>
</testsuite></testsuites>"""


@pytest.mark.parametrize("played", PLAYED, ids=lambda one: one.name)
def test_each_claim_names_a_test(played: Played) -> None:
    assert f"def {played.test}(" in (ROOT / played.file).read_text(encoding="utf-8")


def test_every_claim_is_there_whatever_is_asked_for() -> None:
    names = [claim.name for claim in claims(1)]
    assert names == [claim.name for claim in claims(1, ["disk"])]
    assert len(set(names)) == len(PLAYED)


def test_verdict_and_figure_are_the_reports(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT, encoding="utf-8")
    found = findings(report)
    assert found["test_good"].passed
    assert found["test_good"].figure == "a neighbour's record took 0.02 s"
    assert found["test_good"].numbers == (("good_s", 3.2),)
    assert found["test_quiet"].figure == "played in 2 s"
    assert not found["test_bad"].passed
