"""A cluster that does not answer is told once, whoever asks it and however many links wait for it."""

from __future__ import annotations

import logging

from testkit.log_lines import LogLines
from twinshore.config.errors import KafkaError
from twinshore.runtime.logging import (
    LATE_FAILURE_S,
    OUTAGE_GATHER_S,
    OUTAGE_LOG_AGAIN_S,
    FailureLog,
    OutageLog,
)

LINKS = [f"east->west{number}" for number in range(8)]
ERRANDS = ("ACLs", "groups", "topics")
CAUSE = "west 127.0.0.1:1: cannot connect"


class Stage:
    def __init__(self, said: LogLines) -> None:
        self.said = said
        self.now_s = 100.0
        self.log = OutageLog(lambda: self.now_s)

    def all_fail(self) -> None:
        for link in LINKS:
            for what in ERRANDS:
                self.log.silent("west", link, what, CAUSE)

    def all_answer(self) -> list[bool]:
        return [self.log.answers(link, what) for link in LINKS for what in ERRANDS]


def test_one_cause_is_one_line_and_what_waits_for_it_is_counted_in_another(log_lines: LogLines) -> None:
    stage = Stage(log_lines)
    for _ in range(5):
        stage.all_fail()
        stage.now_s += 2
    assert stage.said == [f"west does not answer: {CAUSE}"]
    stage.now_s = 100 + OUTAGE_GATHER_S
    stage.all_fail()
    links = ", ".join(LINKS[:5])
    waits = (
        f"west has not answered for {OUTAGE_GATHER_S:.0f} s: 8 links wait ({links} and 3 more), with ACLs, "
        "groups, topics"
    )
    assert stage.said[1:] == [waits]
    stage.now_s += OUTAGE_LOG_AGAIN_S - 1
    stage.all_fail()
    assert len(stage.said) == 2, "nothing has changed"
    stage.now_s += 1
    stage.all_fail()
    assert len(stage.said) == 3, "it is told again after a while"


def test_an_outage_counts_from_when_the_cluster_fell_silent_and_not_from_when_an_errand_gave_up(
    log_lines: LogLines,
) -> None:
    stage = Stage(log_lines)
    stage.log.silent("west", LINKS[0], "groups", CAUSE)
    stage.log.silent("west", LINKS[0], "records", CAUSE, since_s=95.0)
    stage.log.silent("west", LINKS[1], "records", CAUSE, since_s=96.0)
    stage.now_s += 7
    assert stage.log.answers(LINKS[0], "records")
    stage.log.silent("west", LINKS[1], "records", CAUSE, since_s=1.0)
    assert stage.said == [f"west does not answer: {CAUSE}", "west answers again, after 12 s"]


def test_what_waits_is_told_again_when_it_has_grown_but_not_at_each_errand(log_lines: LogLines) -> None:
    stage = Stage(log_lines)
    stage.all_fail()
    stage.now_s += OUTAGE_GATHER_S
    stage.all_fail()
    for number in range(10):
        stage.log.silent("west", "north->west", f"errand {number}", CAUSE)
    assert len(stage.said) == 2
    stage.now_s += OUTAGE_GATHER_S
    stage.all_fail()
    assert len(stage.said) == 3 and "9 links wait" in stage.said[2]


def test_that_it_answers_again_is_said_once_and_late_failures_are_no_news(log_lines: LogLines) -> None:
    stage = Stage(log_lines)
    stage.all_fail()
    stage.now_s += 7
    assert stage.log.has_reported("west")
    assert all(stage.all_answer())
    assert stage.said[1:] == ["west answers again, after 7 s"]
    stage.now_s += LATE_FAILURE_S / 2
    stage.all_fail()
    assert all(stage.all_answer()) and len(stage.said) == 2
    assert not any(stage.all_answer()), "nothing waited"
    stage.now_s += LATE_FAILURE_S
    assert not stage.log.has_reported("west")
    stage.all_fail()
    assert stage.said[2:] == [f"west does not answer: {CAUSE}"], "it is away again"


def test_clusters_are_told_apart_and_a_link_that_is_carried_no_more_waits_for_none(log_lines: LogLines) -> None:
    stage = Stage(log_lines)
    stage.log.silent("west", "east->west", "records", CAUSE)
    stage.log.silent("east", "east->west", "records", "refused")
    assert not stage.log.answers("east->west", "records", "north")
    assert stage.log.answers("east->west", "records", "west")
    assert [line.split()[0:2] for line in stage.said] == [["west", "does"], ["east", "does"], ["west", "answers"]]
    stage.log.forget("east->west")
    assert not stage.log.has_reported("east")
    assert not stage.log.answers("east->west", "records"), "nobody says that it answers who has not heard it"


def test_other_troubles_are_told_as_ever(log_lines: LogLines) -> None:
    stage = Stage(log_lines)
    trouble = FailureLog("east->west", "ACLs", logging.getLogger("twinshore"), stage.log)
    silent = KafkaError("west: no answer", retriable=True)
    silent.silent, silent.cause = "west", CAUSE
    for _ in range(3):
        trouble.say("ACLs do not follow now", silent)
    trouble.well("ACLs follow again")
    assert stage.said == [f"west does not answer: {CAUSE}", "west answers again, after 0 s"]
    for _ in range(3):
        trouble.say("ACLs do not follow now", KafkaError("not authorized", code=31))
    trouble.well("ACLs follow again")
    assert stage.said[2:] == [
        "east->west: ACLs do not follow now: not authorized",
        "east->west: ACLs follow again",
    ]
