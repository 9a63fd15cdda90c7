"""What a strange name makes of a line of a log: nothing but a longer line."""

from __future__ import annotations

import logging

import pytest

from twinshore.cli.app import PrintedLog
from twinshore.config.sentences import append_hint, escape_line
from twinshore.runtime.logging import LogWriter


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
    assert escape_line(said) == line
    assert len(escape_line(said).splitlines()) == 1


def test_no_log_takes_two_lines_for_one(capsys: pytest.CaptureFixture[str]) -> None:
    log, handlers = logging.Logger("alone"), (LogWriter(), PrintedLog())
    for handler in handlers:
        log.addHandler(handler)
    log.warning("quota of user a\n09:00:00 east->west: all is well")
    for handler in handlers:
        log.removeHandler(handler)
        handler.close()
    said = capsys.readouterr()
    assert (said.out.count("\n"), said.err.count("\n")) == (1, 1)


def test_what_can_be_done_follows_as_a_sentence_of_its_own() -> None:
    assert append_hint("it is gone", "make it anew") == "it is gone. Make it anew"
    assert append_hint("it is gone", "where it was lost: make it") == "it is gone. Where it was lost: make it"
    assert append_hint("it is gone", "acks=all helps") == "it is gone. acks=all helps", "a setting is written as it is"
    assert append_hint("it is gone", "max.bytes is low") == "it is gone. max.bytes is low"
    assert append_hint("it is gone", "`twinshore status` says why") == "it is gone. `twinshore status` says why"
    assert append_hint("it is gone", "") == "it is gone"
