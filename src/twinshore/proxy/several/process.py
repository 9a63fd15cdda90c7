"""A part as its keeper has it: started, heard, ended, and started again."""

from __future__ import annotations

import contextlib
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Final

from twinshore.kafka.clock import steady_s
from twinshore.proxy.several.part import Task, Word, read_word

# A part says each second that its loop goes round. While it is loaded and looks at the clusters for the first time it
# says nothing.
BEGINS_S: Final = 120.0
STANDS_STILL_S: Final = 15.0
# How soon one that has ended is started again: each time later, until one has lasted.
AGAIN_S: Final = 1.0
AGAIN_S_MAX: Final = 30.0
LASTED_S: Final = 60.0
# What it is given to answer what clients have asked, and to say goodbye to clusters and store.
END_S: Final = 30.0


class PartProcess:
    """`log` gets what it says. `port` is where it answers for itself, 0 while it does not; `starts` counts."""

    def __init__(self, task: Task, log: Callable[[str], None]) -> None:
        self.number, self.starts, self.port, self.serves = task.number, 0, 0, False
        self._task, self._log = pickle.dumps(task), log
        self._child: subprocess.Popen[bytes] | None = None
        self._since_s = self._heard_s = self._due_s = 0.0
        self._again_s = AGAIN_S

    @property
    def pid(self) -> int:
        """0 while there is none."""
        return self._child.pid if self._child is not None else 0

    def start(self) -> None:
        """Begins it. In a session of its own, since Ctrl-C is its keeper's to hear."""
        command = [sys.executable, "-m", "twinshore.proxy.several"]
        pipe = subprocess.PIPE
        self._since_s = steady_s()
        try:
            child = self._child = subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True)
        except OSError as error:  # the machine has no room for it now
            again = self._comes_again(self._since_s)
            self._log(f"process {self.number} cannot be started: {error.strerror}; it is tried again in {again:g} s")
            return
        self.starts += 1
        self._heard_s = self._since_s + BEGINS_S - STANDS_STILL_S
        threading.Thread(target=self._hear, args=(child,), name=f"part {self.number}", daemon=True).start()
        assert child.stdin is not None
        with contextlib.suppress(OSError):  # it has ended already
            child.stdin.write(self._task)
            child.stdin.flush()

    def look(self) -> None:
        """Now and then: ends it where it stands still, and starts it where it has ended."""
        now_s = steady_s()
        if self._child is None:
            if now_s >= self._due_s:
                self.start()
        elif (code := self._child.poll()) is not None:
            self._is_gone(code, now_s)
        elif now_s > self._heard_s + STANDS_STILL_S:
            self._log(f"process {self.number} stands still, and keeps its clients waiting: it is killed")
            self._child.kill()

    def _is_gone(self, code: int, now_s: float) -> None:
        self._let_go()
        if now_s - self._since_s >= LASTED_S:
            self._again_s = AGAIN_S
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        again = self._comes_again(now_s)
        self._log(f"process {self.number} has ended unasked, {how}: it is started again in {again:g} s")

    def _comes_again(self, now_s: float) -> float:
        """In so many seconds."""
        again_s = self._again_s
        self._due_s = now_s + again_s
        self._again_s = min(2 * again_s, AGAIN_S_MAX)
        return again_s

    def _let_go(self) -> None:
        child, self._child, self.port, self.serves = self._child, None, 0, False
        if child is not None:
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()

    def _hear(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stdout is not None
        with contextlib.suppress(OSError, ValueError):  # the pipe is closed under it
            for line in child.stdout:
                if child is not self._child:
                    return
                word, text = read_word(line.decode(errors="replace"))
                self._heard_s = max(self._heard_s, steady_s())
                match word:
                    case Word.SAID:
                        self._log(f"process {self.number}: {text}")
                    case Word.HEALTH:
                        self.port = int(text)
                    case Word.SERVES:
                        self.serves = True
                    case Word.BEAT:
                        self._heard_s = steady_s()

    def ask_to_end(self) -> None:
        """It answers what was asked, and ends."""
        if self._child is not None and self._child.stdin is not None:
            with contextlib.suppress(OSError):
                self._child.stdin.close()

    def end(self) -> None:
        """Waits until it has ended, and ends it by force where that takes too long."""
        if self._child is None:
            return
        try:
            self._child.wait(END_S)
        except subprocess.TimeoutExpired:
            self._log(f"process {self.number} has not ended within {END_S:g} s: it is killed")
            self._child.kill()
            self._child.wait()
        self._let_go()
