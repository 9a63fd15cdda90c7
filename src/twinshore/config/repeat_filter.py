"""What a thread that goes on whatever fails says of its troubles: the same trouble once, and once that it is over."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from twinshore.config.errors import TwinshoreError

# Where a Java broker names an object, as in Session@45e1b9e2: another one in each answer.
_OBJECT = re.compile(r"@[0-9a-f]{5,8}\b")


class RepeatFilter:
    """Hands sentences on to `log`, but not the one that it handed on last."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._said = ""

    def say(self, sentence: str) -> None:
        sentence = _OBJECT.sub("", sentence)
        if sentence != self._said:
            self._said = sentence
            self._log(sentence)

    def well(self, says: str = "") -> None:
        """Whatever was said is past: it would be news again. `says` is for those who read that it was so."""
        if self._said and says:
            self._log(says)
        self._said = ""


def run_all(parts: Iterable[Callable[[], None]]) -> None:
    """Does them all, whatever becomes of one; then raises what came first."""
    failed: list[Exception] = []
    for part in parts:
        try:
            part()
        except Exception as error:
            failed.append(error)
    if failed:
        raise failed[0]


def describe_error(error: Exception) -> str:
    """One that was raised on purpose speaks for itself."""
    return str(error) if isinstance(error, TwinshoreError) else f"{type(error).__name__}: {error}"
