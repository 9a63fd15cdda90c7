"""Where pushes come from. Each source hands out the text that stands there whenever it has changed.

`PushFile` is a file that somebody, or an orchestrator, replaces. `PushQuery` asks a database by connections of the
application's own. Apollo's source is in `apollo`, that of Twinshore's own server in `served`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

FILE_S = 0.5
QUERY_S = 2.0


class Source(Protocol):
    """One place that pushes come from. Whatever it raises may pass: it is asked again. `in_clear`: anybody on the way
    may change what it answers, so no settings are taken from it."""

    name: str
    in_clear: bool

    def news(self, stop: threading.Event) -> str | None:
        """The text that stands there, once it may be another one than it handed out last; None where it is the same
        after a while, or `stop` is set."""
        ...


class PushQuery:
    """The text is what `ask` returns: one value of one row, as an application reads it from its database, by
    connections of its own. It is asked every `every_s`."""

    in_clear = False

    def __init__(self, ask: Callable[[], str], *, name: str = "database", every_s: float = QUERY_S) -> None:
        self._ask, self.name, self._every_s = ask, name, every_s
        self._seen: str | None = None

    def news(self, stop: threading.Event) -> str | None:
        text = self._ask()
        if text == self._seen:
            stop.wait(self._every_s)
            return None
        self._seen = text
        return text


class PushFile(PushQuery):
    """The text is the file's. It is looked at twice a second, and is best replaced as a whole, by a rename."""

    def __init__(self, path: Path | str) -> None:
        super().__init__(partial(Path(path).read_text, encoding="utf-8"), name=f"file {path}", every_s=FILE_S)
