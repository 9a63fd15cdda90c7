"""One of several processes that serve at the same ports: what it is told by its keeper, and what it tells him.

`python -m twinshore.proxy.several` reads its task from standard input, which stays open as long as it has a
keeper: without one it ends in good order. What it tells are lines on standard output.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from twinshore.fleet import TwinshoreError
from twinshore.fleet.settings import Settings
from twinshore.service.loading import without_test_tools
from twinshore.service.log_lines import LogLines

FAILED: Final = 2


class Word(StrEnum):
    """How each line begins: a sentence for the log, the port at which it answers for itself, that it lets clients in,
    that its loop goes round."""

    SAID = "said"
    HEALTH = "health"
    SERVES = "serves"
    BEAT = "beat"


@dataclass(frozen=True, slots=True)
class Task:
    """What a part is to do: it is one of so many, and the settings are those that its keeper read."""

    settings: Settings
    number: int
    count: int


@dataclass(frozen=True, slots=True)
class Part:
    """Which one this process is; `tell` tells its keeper."""

    number: int
    count: int
    tell: Callable[[Word, str], None]

    @property
    def name(self) -> str:
        """As operators and other processes are to know it."""
        return f"process {self.number} of {self.count}"


def read_word(line: str) -> tuple[Word, str]:
    """What a line says. One that no part wrote, such as a trace, is a sentence."""
    first, _, rest = line.rstrip("\n").partition(" ")
    try:
        return Word(first), rest
    except ValueError:
        return Word.SAID, line.rstrip("\n")


def main() -> None:
    """Until its keeper ends it, or is gone."""
    without_test_tools()
    from twinshore.proxy.operations.run import serve_part

    task = pickle.load(sys.stdin.buffer)  # of the process that started this one
    assert isinstance(task, Task)
    threading.Thread(target=_end_with_keeper, name="keeper", daemon=True).start()
    lines = LogLines(sys.stdout.fileno(), dated=False)

    def tell(word: Word, text: str = "") -> None:
        lines(f"{word} {text}")

    code = 0
    try:
        serve_part(task.settings, Part(task.number, task.count, tell))
    except TwinshoreError as error:
        tell(Word.SAID, str(error))
        code = FAILED
    finally:
        lines.close()
    sys.exit(code)


def _end_with_keeper() -> None:
    # Past Python's own buffer, whose lock would be held as the process ends.
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
