"""Tests as proof: real runs of pytest over small files of our own."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.kit.playing import by_test, play
from twinshore.lab.stages.figures import StageError

FILE = """
import pytest

@pytest.mark.parametrize("version", ["new", "old"])
def test_good(version):
    print(f"{version} took 0.02 s")

def test_bad():
    assert 1 == 2, "one is not two"
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    found = tmp_path / "test_small.py"
    found.write_text(FILE, encoding="utf-8")
    return str(found)


def test_each_test_has_its_verdict_its_reason_and_what_it_printed(file: str) -> None:
    new, old, bad = play([file], run_s_max=60)
    assert (new.test, new.parameters, new.passed) == ("test_good", "new", True)
    assert "old took 0.02 s" in old.printed
    assert (bad.test, bad.parameters, bad.passed) == ("test_bad", "", False)
    assert "one is not two" in bad.failure


def test_a_claim_holds_when_its_test_passes_and_says_why_it_does_not(file: str) -> None:
    found = by_test("is-good", f"{file}::test_good", tells="old ")(False)
    assert found.passed
    assert found.figure.endswith("; old took 0.02 s")
    assert found.numbers[0][0] == "is_good_s"
    with pytest.raises(StageError, match=r"test_bad: .*one is not two"):
        by_test("is-bad", file)(False)


def test_a_test_that_is_not_there_is_no_proof(file: str) -> None:
    with pytest.raises(StageError, match="test_gone"):
        play([f"{file}::test_gone"], run_s_max=60)
