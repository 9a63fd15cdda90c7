"""The log of a process that must go on: lines are written by a thread of their own, and no trouble with them is raised.

Whoever reads the log may be gone, or read nothing more; a disk may be full. A thread that carries records must neither
end for that nor wait.
"""

from __future__ import annotations

import io
import os
import sys
import threading
import time
from collections import deque
from contextlib import suppress

from twinshore.fleet.sentences import one_line

LINES_MAX = 10_000
AGAIN_S = 1.0
CLOSE_S = 2.0


class LogLines:
    """Takes lines and writes them in turn, with the time of day where they are `dated`. What cannot be written waits;
    of too many the oldest are dropped, which the log says once it can be written again."""

    def __init__(self, descriptor: int | None = None, *, dated: bool = True) -> None:
        self._descriptor, self._dated = descriptor, dated
        self._lines: deque[str] = deque()
        self._dropped = 0
        self._news = threading.Condition()
        self._thread: threading.Thread | None = None

    def __call__(self, sentence: str) -> None:
        line = f"{one_line(sentence)}\n"
        if self._dated:
            line = f"{time.strftime('%H:%M:%S')} {line}"
        with self._news:
            self._lines.append(line)
            if len(self._lines) > LINES_MAX:
                del self._lines[1]  # The first one is being written.
                self._dropped += 1
            if self._thread is None or not self._thread.is_alive():
                thread = threading.Thread(target=self._work, name="log", daemon=True)
                # Where the machine has no thread left, the lines wait and the next one tries again.
                with suppress(RuntimeError, MemoryError):
                    thread.start()
                    self._thread = thread
            self._news.notify_all()

    def __enter__(self) -> LogLines:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Waits a little for what is not written yet."""
        with self._news:
            self._news.wait_for(lambda: not self._lines, timeout=CLOSE_S)

    def _work(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: bool(self._lines))
                line, dropped = self._lines[0], self._dropped
            try:
                if dropped:
                    self._write(f"{time.strftime('%H:%M:%S')} the log could not be written: {dropped} lines are lost\n")
                self._write(line)
            except (OSError, ValueError):
                time.sleep(AGAIN_S)
                continue
            with self._news:
                self._dropped -= dropped
                self._lines.popleft()
                self._news.notify_all()

    def _write(self, text: str) -> None:
        """Past Python's own buffer, whose lock would be held at the end of the process by a write that never ends."""
        rest = text.encode(errors="replace")
        try:
            descriptor = sys.stdout.fileno() if self._descriptor is None else self._descriptor
        except io.UnsupportedOperation:
            sys.stdout.write(text)  # Somebody keeps it in memory.
            return
        while rest:
            rest = rest[os.write(descriptor, rest) :]
