"""Log lines as text and as JSON, by level."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

import pytest

from testkit.log_lines import LogLines
from twinshore.config.repeat_filter import RepeatFilter
from twinshore.config.sections.log import LogSettings
from twinshore.runtime.logging import LinkLogger, write_log

log = logging.getLogger("twinshore.some.module")


def test_a_line_of_text_has_the_time_of_day_and_the_message(capsys: pytest.CaptureFixture[str]) -> None:
    with write_log(LogSettings()):
        log.info("a\nline, %d of 5%%", 2)
    assert capsys.readouterr().out[8:] == " a\\nline, 2 of 5%\n"


def test_a_line_of_json_has_the_fields_that_the_line_is_about(capsys: pytest.CaptureFixture[str]) -> None:
    with write_log(LogSettings(format="json")):
        LinkLogger(log, "east->west").warning("ä\nline, 5%", extra={"topic": "orders", "unknown": 1})
        log.error("another")
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    written = datetime.fromisoformat(first.pop("time"))
    assert abs((datetime.now(UTC) - written).total_seconds()) < 60
    assert first == {
        "level": "warning",
        "logger": "twinshore.some.module",
        "message": "east->west: ä\nline, 5%",
        "link": "east->west",
        "topic": "orders",
    }
    assert second.keys() == {"time", "level", "logger", "message"}


def test_lines_below_the_level_are_not_written(capsys: pytest.CaptureFixture[str]) -> None:
    with write_log(LogSettings(level="warning")):
        log.info("a course")
        once = RepeatFilter(log)
        once.say("a failure")
        once.well("well again")
        RepeatFilter(log, logging.ERROR).say("an end")
    log.error("afterwards")
    assert [line[9:] for line in capsys.readouterr().out.splitlines()] == ["a failure", "an end"]


def test_a_line_that_cannot_be_formatted_raises_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with write_log(LogSettings()):
        log.info("%d", "no number")
        log.info("the next")
    assert capsys.readouterr().out[9:] == "the next\n"


def test_the_kept_lines_tell_loggers_and_fields_apart(log_lines: LogLines) -> None:
    LinkLogger(log, "east->west").info("a course")
    log.warning("a failure")
    log.debug("a detail")
    assert log_lines == ["east->west: a course", "a failure"]
    assert log_lines.of(link="east->west") == log_lines.of("twinshore.some", link="east->west") == log_lines[:1]
    assert log_lines.of("twinshore.other") == []
    assert [record.levelno for record in log_lines.records] == [logging.INFO, logging.WARNING]
