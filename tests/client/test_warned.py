"""What an operator is told: once, and by a function that may fail."""

from __future__ import annotations

from twinshore.client.sites import WARN_AGAIN_AFTER_S, WARNINGS_KEPT_MAX, WarningQueue


def test_a_trouble_that_goes_on_is_told_once_and_one_that_comes_back_again() -> None:
    said: list[str] = []
    now_s = [100.0]
    warned = WarningQueue(said.append, lambda: now_s[0])
    for _ in range(5):
        for topic in ("orders", "payments"):
            warned(f"{topic} waits")
        now_s[0] += WARN_AGAIN_AFTER_S / 2
    assert said == [], "nobody is told before it is asked for"
    warned.tell()
    assert said == ["orders waits", "payments waits"]
    now_s[0] += WARN_AGAIN_AFTER_S
    warned("orders waits")
    warned.tell()
    assert said[2:] == ["orders waits"]
    for number in range(2 * WARNINGS_KEPT_MAX):
        warned(str(number))
    assert len(warned._heard_s) == WARNINGS_KEPT_MAX


def test_who_holds_no_lock_tells_at_once_and_once() -> None:
    said: list[str] = []
    warned = WarningQueue(said.append, lambda: 100.0)
    warned("orders waits")
    for _ in range(3):
        warned.now("payments waits")
    assert said == ["orders waits", "payments waits"]


def test_what_the_function_raises_keeps_nobody_from_the_rest() -> None:
    said: list[str] = []

    def warn(sentence: str) -> None:
        said.append(sentence)
        raise BrokenPipeError

    warned = WarningQueue(warn)
    warned("one")
    warned("two")
    warned.tell()
    warned.at_once("two")
    assert said == ["one", "two", "two"]
