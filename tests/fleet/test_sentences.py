"""What a strange name makes of a line of a log: nothing but a longer line."""

from __future__ import annotations

import pytest

from twinshore.cli import prove
from twinshore.fleet.sentences import one_line
from twinshore.service.log_lines import LogLines


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("topic orders crosses: 3 MB", "topic orders crosses: 3 MB"),
        ("größer, 大きい", "größer, 大きい"),
        ("user a\n09:00:00 all is well", "user a\\n09:00:00 all is well"),
        ("a\r\x1b[2Kb", "a\\r\\x1b[2Kb"),
        ("a\u2028b\x85c\u202ed", "a\\u2028b\\x85c\\u202ed"),
        ("a\udcffb", "a\\udcffb"),
    ],
)
def test_what_does_not_print_is_escaped(said: str, line: str) -> None:
    assert one_line(said) == line
    assert len(one_line(said).splitlines()) == 1


def test_no_log_takes_two_lines_for_one(capsys: pytest.CaptureFixture[str]) -> None:
    lines = LogLines()
    for log in (lines, prove.log):
        log("quota of user a\n09:00:00 east->west: all is well")
    lines.close()
    said = capsys.readouterr()
    assert (said.out.count("\n"), said.err.count("\n")) == (1, 1)
