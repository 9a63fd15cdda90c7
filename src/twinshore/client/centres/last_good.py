"""What a client keeps in files for its next start: the last push that was understood, for an application that starts
while its centre is away, and where topics were at home when it last heard of it.

It may hold passwords: only the user of the application can read it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from crc32c import crc32c

from twinshore.fleet.private import opener
from twinshore.homes.home_lines import Clash, HomeLine, HomeLog, HomeState

HEAD = "twinshore push 1"


def keep(path: Path, text: str) -> None:
    """Whole, or as it was before. OSError where it cannot be written."""
    part = path.with_name(f"{path.name}.part")
    data = text.encode()
    try:
        with open(part, "wb", opener=opener) as file:
            file.write(f"{HEAD} {crc32c(data):08x}\n".encode() + data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError:
        with suppress(OSError):
            part.unlink()
        raise


def kept(path: Path) -> str | None:
    """None where there is none, or where it is damaged."""
    try:
        head, _, data = path.read_bytes().partition(b"\n")
    except OSError:
        return None
    return data.decode("utf-8", "replace") if head == f"{HEAD} {crc32c(data):08x}".encode() else None


class RememberedHomes:
    """Where topics were at home: a file beside the spool, or beside the last good push. A client that starts while its
    topics' home is silent would else believe an old home, back from a forced switch.

    `path`: the file, empty for none. Threads may share it. `warn` is told where it cannot be written."""

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
