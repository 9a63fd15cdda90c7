"""Tests as proof: real runs of pytest over small files of our own, and what they leave."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.kit.claims import Claim, NotPlayed, try_claims
from bench.kit.playing import (
    ROOT,
    Marked,
    Played,
    RunRefused,
    claimed_for,
    claims_of,
    finding,
    in_order,
    of_runs,
    play,
    read_run,
)
from testkit.figures import StageError

FILE = """
import pytest

@pytest.mark.claim("topics", "good", "it is good")
@pytest.mark.parametrize("version", ["new", "old"])
def test_good(version):
    print(f"told: {version} took 0.02 s")
    print("nobody is told this")

@pytest.mark.claim("groups", "bad", "it is bad")
def test_bad():
    assert 1 == 2, "one is not two"

@pytest.fixture
def broken():
    yield
    raise RuntimeError("not cleared away")

@pytest.mark.claim("topics", "unclean", "it is clean")
def test_unclean(broken):
    pass

@pytest.mark.claim("topics", "left-out", "it was tried")
def test_left_out():
    pytest.skip("no time")

@pytest.mark.claim("topics", "many", "few")
def test_few():
    pass

@pytest.mark.claim("topics", "many", "few", full_size=True)
def test_many():
    pass
"""
COMMIT = "c0" * 20


@pytest.fixture
def file(tmp_path: Path) -> str:
    found = tmp_path / "test_small.py"
    found.write_text(FILE, encoding="utf-8")
    return str(found)


def run_pytest(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.recording", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def names(played: Sequence[Played]) -> dict[str, Played]:
    return {one.test.rpartition("::")[2]: one for one in played}


def test_each_test_has_its_verdict_its_reason_and_what_it_told(file: str) -> None:
    found = names(play([file], 1))
    assert found["test_good[old]"].passed
    assert found["test_good[old]"].told == ("old took 0.02 s",)
    assert not found["test_bad"].passed
    assert "one is not two" in found["test_bad"].why
    assert "not cleared away" in found["test_unclean"].why
    assert not found["test_left_out"].passed, "what is skipped shows nothing"


@pytest.mark.long
def test_two_workers_leave_what_one_leaves(file: str, tmp_path: Path) -> None:
    run_pytest(file, f"--record={tmp_path / 'two'}", "-n", "2")
    run_pytest(file, f"--record={tmp_path / 'one'}")
    two, one = read_run(tmp_path / "two"), read_run(tmp_path / "one")
    assert (two.commit, two.changed) == (one.commit, one.changed)
    assert {(test.test, test.passed, test.told) for test in two.played} == {
        (test.test, test.passed, test.told) for test in one.played
    }
    assert len(two.played) == 7


def test_marks_are_listed_and_nothing_is_played(file: str, tmp_path: Path) -> None:
    assert run_pytest(file, f"--list-claims={tmp_path / 'claims'}").returncode == 0
    marks = [json.loads(line) for line in (tmp_path / "claims").read_text().splitlines()]
    found = claimed_for("topics", marks)
    assert set(found) == {"good", "unclean", "left-out", "many"}
    assert [test.rpartition("::")[2] for test in found["good"].tests] == ["test_good[new]", "test_good[old]"]
    assert found["good"].says == "it is good"
    assert [len(found["many"].tests), len(found["many"].full)] == [1, 1]


@pytest.mark.parametrize(
    ("marks", "said"),
    [
        ('@pytest.mark.claim("tropics", "a", "b")', "claim of 'tropics': the shows are "),
        ('@pytest.mark.claim("topics", "a")', "says"),
        ('@pytest.mark.claim("topics", "a", "b")\n@pytest.mark.claim("topics", "a", "c")', "two claims of topics"),
    ],
)
def test_a_wrong_mark_stops_every_run(tmp_path: Path, marks: str, said: str) -> None:
    (tmp_path / "test_wrong.py").write_text(f"import pytest\n{marks}\ndef test_it(): pass\n")
    done = run_pytest(str(tmp_path / "test_wrong.py"))
    assert done.returncode == 4
    assert said in done.stdout + done.stderr


def claim(*tests: str, full: tuple[str, ...] = ()) -> Marked:
    return Marked("is-good", "it is good", tests, full)


GOOD = Played("f.py::a[1]", True, 2.0, ("1 s",))
ALSO = Played("f.py::a[2]", True, 3.0, ("2 s",))
BAD = Played("f.py::b", False, 1.0, (), "one is not two")
FULL = Played("f.py::c", True, 9.0)


def test_a_claim_holds_when_all_its_tests_passed() -> None:
    both = finding(claim(GOOD.test, ALSO.test), [GOOD, ALSO, BAD], full_size=False)
    assert both.figure == "2 of 2 tests of `f.py::a` pass in 5 s; 1 s; 2 s"
    assert both.numbers == (("is_good_s", 5.0), ("is_good_trials", 2))
    one = finding(claim(GOOD.test), [GOOD], full_size=False)
    assert one.figure == "`f.py::a[1]` passes in 2 s; 1 s"
    with pytest.raises(StageError, match=r"f\.py::b: one is not two"):
        finding(claim(GOOD.test, BAD.test), [GOOD, BAD], full_size=False)
    with pytest.raises(StageError, match="twice"):
        finding(claim(GOOD.test), [GOOD, Played(GOOD.test, False, 1.0, (), "not twice"), GOOD], full_size=False)


def test_a_claim_of_which_something_was_not_played_is_not_run(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(NotPlayed):
        finding(claim(GOOD.test, ALSO.test), [GOOD], full_size=False)
    with pytest.raises(NotPlayed):
        finding(claim(), [GOOD], full_size=False)
    with pytest.raises(NotPlayed):
        finding(claim(GOOD.test, full=(FULL.test,)), [GOOD], full_size=True)
    with pytest.raises(NotPlayed):
        finding(claim(GOOD.test), [Played(GOOD.test, True, 1.0, ("not played: here is no g++",))], full_size=False)
    shown = claims_of({"is-good": claim(GOOD.test)}, ["is-good", "unmarked"], lambda _long: [GOOD])
    measured = Claim("m", "m", lambda _long: finding(claim(), [], full_size=False))
    words = [verdict.word for verdict in try_claims([*shown, measured], [], long=False, say=print)]
    assert words == ["holds", "not run", "not run"]
    assert "unmarked: not run" in capsys.readouterr().out


def test_what_was_played_at_full_size_says_more_than_what_was_not() -> None:
    both = claim(GOOD.test, full=(FULL.test,))
    assert "f.py::a" in finding(both, [GOOD], full_size=False).figure
    assert "f.py::c" in finding(both, [GOOD, FULL], full_size=False).figure


def left_by(folder: Path, name: str, *, commit: str = COMMIT, changed: bool = False) -> Path:
    head = json.dumps({"commit": commit, "changed": changed})
    line = json.dumps({"test": name, "passed": True, "took_s": 1.0, "told": [], "why": ""})
    (folder / name).write_text(f"{head}\n{line}\n{line[:20]}")
    return folder / name


def test_runs_of_this_commit_are_taken_together_and_no_others(tmp_path: Path) -> None:
    def differs(commit: str) -> bool:
        return commit != COMMIT

    short, long = left_by(tmp_path, "short"), left_by(tmp_path, "long")
    assert [one.test for one in of_runs([short, long], differs)] == ["short", "long"]
    with pytest.raises(RunRefused, match="other is of dddddddddddd,"):
        of_runs([short, left_by(tmp_path, "other", commit="d" * 40)], differs)
    with pytest.raises(RunRefused, match="mended is "):
        of_runs([left_by(tmp_path, "mended", changed=True)], differs)
    (tmp_path / "empty").write_text("")
    with pytest.raises(RunRefused, match="empty is "):
        of_runs([tmp_path / "empty"], differs)


def test_tests_of_several_rooms_are_played_in_one_run() -> None:
    """As shows do; each room may have hooks of its own."""
    files = [f"{room}/{name}" for room, name in (("tests", "test_tidy.py"), ("bench/tests", "test_tree.py"))]
    wanted = [
        f"{files[0]}::test_a_kind_in_quotes_is_seen",
        f"{files[1]}::test_the_machine_works_at_least_as_much_as_we_do",
    ]
    assert [one.test for one in play(wanted, 1) if one.passed] == wanted


def test_tests_of_a_file_are_played_together_as_they_stand_in_it() -> None:
    marks = [{"test": test} for test in ("a.py::one", "a.py::two", "a.py::one", "b.py::three")]
    assert in_order(["b.py::three", "a.py::two", "a.py::one"], marks) == ["a.py::one", "a.py::two", "b.py::three"]
    assert in_order(["a.py::two"], marks) == ["a.py::two"]
