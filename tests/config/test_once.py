"""The same trouble is said once."""

from __future__ import annotations

import logging

from testkit.log_lines import LogLines
from twinshore.config.repeat_filter import RepeatFilter


def test_the_same_trouble_is_said_once_whatever_objects_a_broker_names(log_lines: LogLines) -> None:
    once = RepeatFilter(logging.getLogger("twinshore"))
    for session in ("Session@45e1b9e2", "Session@34072926"):
        once.say(f"ACLs: Request {session} not authorized")
    assert log_lines == ["ACLs: Request Session not authorized"]
    once.well("ACLs follow again")
    once.say("mail@example.org, port 9092@beef")
    assert log_lines[1:] == ["ACLs follow again", "mail@example.org, port 9092@beef"]


def test_of_trouble_that_has_several_faces_one_is_said_until_it_ends(log_lines: LogLines) -> None:
    once = RepeatFilter(logging.getLogger("twinshore"), once=True)
    for sentence in ("watermarks", "leaders", "watermarks"):
        once.say(sentence)
    once.well("again")
    once.say("leaders")
    assert log_lines == ["watermarks", "again", "leaders"]
