"""Steps in which a client's topic and its group move to the other cluster while it writes and reads."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from bench.clients.client import (
    ADDRESS,
    EAGER,
    POLL_S,
    QUIET_S,
    RECORDS,
    WITHIN_S,
    Client,
    Job,
    Lacks,
    WentWrong,
    Writer,
    closing,
)

_BATCH, _WORDS_MAX, _TRIES = 5, 300, 3


class _Moves(threading.Thread):
    """Runs the job's moves, one after another. One that turns back is asked again."""

    def __init__(self, job: Job) -> None:
        super().__init__(daemon=True)
        self._moves, self.failed = job.moves, ""

    def run(self) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        for words in self._moves:
            for _ in range(_TRIES):
                done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
                if not done.returncode:
                    break
            else:
                self.failed = " ".join((done.stdout + done.stderr).split())[-_WORDS_MAX:] or f"code {done.returncode}"
                return


@dataclass
class _Load:
    """What a client does meanwhile. Its application, once told of an error, asks the same client again."""

    name: str
    acked: set[str] = field(default_factory=set)
    told: list[Exception] = field(default_factory=list)
    turns: int = 0

    def write(self, writer: Writer) -> None:
        values = [f"{self.name}-{self.turns}-{number}" for number in range(_BATCH)]
        self.turns += 1
        if self.asked(lambda: writer.write(values)):
            self.acked.update(values)

    def asked(self, ask: Callable[[], None]) -> bool:
        try:
            ask()
        except Lacks:
            raise
        except Exception as error:
            self.told.append(error)
            time.sleep(POLL_S)
            return False
        return True

    def until(self, holds: Callable[[], bool], turn: Callable[[], None], otherwise: str) -> None:
        until_s = time.monotonic() + WITHIN_S
        while not holds():
            if time.monotonic() > until_s:
                last = f": {type(self.told[-1]).__name__}: {self.told[-1]}" if self.told else ""
                raise WentWrong(f"{otherwise}{last}")
            turn()

    def run(self, job: Job, turn: Callable[[], None]) -> None:
        """Some before the topic and the groups move, all the while, and some at their new home."""
        moves = _Moves(job)
        self.until(lambda: len(self.acked) >= RECORDS, turn, "it does not write before its topic moves")
        moves.start()
        while moves.is_alive():
            turn()
        if moves.failed:
            raise WentWrong(f"its topic or its group does not move: {moves.failed}")
        count = len(self.acked) + RECORDS
        self.until(lambda: len(self.acked) >= count, turn, "it does not write at the new home")

    def in_words(self) -> str | None:
        """None where its application heard of nothing."""
        told = [f"{type(error).__name__}: {ADDRESS.sub('ADDRESS', str(error))}" for error in self.told]
        names = sorted({sentence.splitlines()[0] for sentence in told})
        return f"told of {', '.join(names)}; the same client went on" if names else None


def group_moves(client: Client, job: Job) -> str | None:
    """What is acknowledged is read, by a member that stays."""
    load, read = _Load("moves"), set[str]()
    with contextlib.ExitStack() as stack:
        writer = closing(stack, client.writer(job.first, ""))
        try:
            member = closing(stack, client.member(f"{job.name}-moves", [job.first], EAGER, ""))
        except Lacks:
            member = closing(stack, client.member("", [job.first], EAGER, ""))

        def reads() -> None:
            if load.asked(lambda: read.update(member.poll(POLL_S))):
                load.asked(member.commit)

        def both() -> None:
            load.write(writer)
            reads()

        load.until(lambda: bool(read), both, "it reads nothing before its topic moves")
        load.run(job, both)
        load.until(lambda: load.acked <= read, reads, "acknowledged records are not read at the new home")
    return load.in_words()


def transactions_move(client: Client, job: Job) -> str | None:
    """What is committed is read once; an application may have to begin a transaction again."""
    load, read = _Load("transactions"), Counter[str]()
    with contextlib.ExitStack() as stack:
        writer = closing(stack, client.writer(job.first, f"{job.name}-moves"))
        load.run(job, lambda: load.write(writer))
        reader = closing(stack, client.member(f"{job.name}-reads", [job.first], EAGER, ""))
        load.until(lambda: load.acked <= set(read), lambda: read.update(reader.poll(POLL_S)), "not all is read")
        read.update(reader.poll(QUIET_S))
    if again := read.total() - len(read):
        raise WentWrong(f"{again} of {len(load.acked)} committed records are read twice")
    return load.in_words()
