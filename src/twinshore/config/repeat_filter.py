"""Error reports of threads that survive failures: each problem once, and once more when it is over."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable

from twinshore.config.errors import TwinshoreError

# A Java broker's object address, as in Session@45e1b9e2, differs in each answer.
_OBJECT = re.compile(r"@[0-9a-f]{5,8}\b")

# What a class that logs may be given.
Log = logging.Logger | logging.LoggerAdapter[logging.Logger]


class RepeatFilter:
    """Logs sentences, except repetitions of the last one. `once`: of a problem only the first, whatever else is said
    until it ends.
    """

    def __init__(self, log: Log, level: int = logging.WARNING, *, once: bool = False) -> None:
        self._log, self._level, self._once = log, level, once
        self._said = ""

    def say(self, sentence: str) -> None:
        sentence = _OBJECT.sub("", sentence)
        if sentence != self._said and not (self._once and self._said):
            self._said = sentence
            self._log.log(self._level, sentence)

    def well(self, says: str = "") -> None:
        """Ends the problem: the same sentence would be news again. `says` is logged if there was a problem."""
        if self._said and says:
            self._log.info(says)
        self._said = ""


def run_all(parts: Iterable[Callable[[], None]]) -> None:
    """Runs all parts even if some fail, then raises the first error."""
    failed: list[Exception] = []
    for part in parts:
        try:
            part()
        except Exception as error:
            failed.append(error)
    if failed:
        raise failed[0]


def describe_error(error: Exception) -> str:
    """The message alone for Twinshore's own errors, otherwise with the type."""
    return str(error) if isinstance(error, TwinshoreError) else f"{type(error).__name__}: {error}"
