"""What an operator is told: once, and by a logging handler that may fail."""

from __future__ import annotations

import logging

import pytest

from testkit.log_lines import LogLines
from twinshore.client.sites import WARN_AGAIN_AFTER_S, WARNINGS_KEPT_MAX, WarningQueue

log = logging.getLogger("twinshore.client.any")


def test_a_trouble_that_goes_on_is_told_once_and_one_that_comes_back_again(log_lines: LogLines) -> None:
    now_s = [100.0]
    warned = WarningQueue(log, lambda: now_s[0])
    for _ in range(5):
        for topic in ("orders", "payments"):
            warned(f"{topic} waits", topic=topic)
        now_s[0] += WARN_AGAIN_AFTER_S / 2
    assert log_lines == [], "nobody is told before it is asked for"
    warned.tell()
    assert log_lines == ["orders waits", "payments waits"]
    assert log_lines.of(topic="orders") == ["orders waits"]
    now_s[0] += WARN_AGAIN_AFTER_S
    warned("orders waits")
    warned.tell()
    assert log_lines[2:] == ["orders waits"]
    for number in range(2 * WARNINGS_KEPT_MAX):
        warned(str(number))
    assert len(warned._heard_s) == WARNINGS_KEPT_MAX


def test_who_holds_no_lock_tells_at_once_and_once(log_lines: LogLines) -> None:
    warned = WarningQueue(log, lambda: 100.0)
    warned("orders waits")
    for _ in range(3):
        warned.now("payments waits")
    assert log_lines == ["orders waits", "payments waits"]


@pytest.mark.usefixtures("raising_handler")
def test_what_a_handler_raises_keeps_nobody_from_the_rest(log_lines: LogLines) -> None:
    warned = WarningQueue(log)
    warned("one")
    warned("two")
    warned.tell()
    assert log_lines == ["one", "two"]
