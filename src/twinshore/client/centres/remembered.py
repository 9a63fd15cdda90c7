"""Where topics were at home when a client last heard of it: a file beside its spool, or beside its last good push.

One that starts while its topics' home is silent would else believe an old home, back from a forced switch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from twinshore.client.centres.last_good import keep, kept
from twinshore.homes.home_lines import Clash, HomeLine, HomeLog, HomeState


class Remembered:
    """`path`: the file, empty for none. Threads may share it. `warn` is told where it cannot be written."""

    def __init__(self, path: Path | None, warn: Callable[[str], None]) -> None:
        self._path, self._warn, self._guard = path, warn, threading.Lock()
        self._lines = _read(path) if path else {}

    def lines(self) -> dict[str, HomeLine]:
        return dict(self._lines)

    def keep(self, told: Mapping[str, HomeLine | Clash]) -> None:
        """Those that are settled. Of a topic that a switch has just now the line before stays."""
        if self._path is None:
            return
        with self._guard:
            news = {
                topic: line
                for topic, line in told.items()
                if isinstance(line, HomeLine) and line.state is HomeState.SETTLED and line is not self._lines.get(topic)
            }
            if not news:
                return
            self._lines |= news
            try:
                keep(self._path, "".join(_text(line) for line in self._lines.values()))
            except OSError as error:
                self._warn(f"{self._path} cannot be written, so a restart does not know where topics are: {error}")


def _text(line: HomeLine) -> str:
    key, value = line.line()
    return f"{key.decode()}\t{(value or b'').decode()}\n"


def _read(path: Path) -> dict[str, HomeLine]:
    log = HomeLog()
    for line in (kept(path) or "").splitlines():
        key, _, value = line.partition("\t")
        log.take(key.encode(), value.encode())
    return log.homes
