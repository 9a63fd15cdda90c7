"""A log whose reader is gone, reads nothing, or comes back: whoever writes to it never waits and is never told."""

from __future__ import annotations

import fcntl
import logging as stdlib_logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from twinshore.runtime import logging
from twinshore.runtime.logging import LogWriter

SIZE = 4_096


def say(log: LogWriter, text: str) -> None:
    log.handle(stdlib_logging.makeLogRecord({"msg": text}))


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "WRITE_RETRY_DELAY_S", 0.02)
    monkeypatch.setattr(logging, "QUEUED_LINES_MAX", 50)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, SIZE)
    yield read, write
    for end in (read, write):
        try:
            os.close(end)
        except OSError:
            continue  # The test has closed it.


def until(holds: Callable[[], bool], what: object) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def test_lines_come_in_order_with_the_time_of_day(pipe: tuple[int, int]) -> None:
    log = LogWriter(pipe[1])
    for number in range(3):
        say(log, f"line {number}")
    log.close()
    said = os.read(pipe[0], SIZE).decode().splitlines()
    assert [line[9:] for line in said] == ["line 0", "line 1", "line 2"]
    assert all(line[2] == line[5] == ":" for line in said)


def test_nobody_waits_for_a_reader_that_reads_nothing_and_what_is_lost_is_counted(pipe: tuple[int, int]) -> None:
    log = LogWriter(pipe[1])
    began_s = time.monotonic()
    for number in range(400):
        say(log, f"line {number} " + "x" * 60)
    assert time.monotonic() - began_s < 10, "400 lines of which some tens fit"
    said = b""
    while b"line 399" not in said:
        said += os.read(pipe[0], SIZE)
    lines = said.decode().splitlines()
    # A slow machine loses some, writes some, and loses some more.
    lost = [line for line in lines if "the log could not be written" in line]
    numbers = [int(line.split()[2]) for line in lines if "line " in line and line not in lost]
    assert numbers == sorted(set(numbers)) and numbers[-1] == 399
    counted = sum(int(count) for line in lost for count in re.findall(r"(\d+) lines? (?:is|are) lost", line))
    assert lost and counted == 400 - len(numbers), lost


def test_a_full_disk_and_a_reader_that_is_gone_raise_nothing_and_end_nothing(pipe: tuple[int, int]) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    os.close(pipe[0])
    try:
        for descriptor in (full, pipe[1]):
            log = LogWriter(descriptor)
            for number in range(100):
                say(log, f"line {number}")
            began_s = time.monotonic()
            log.close()
            assert time.monotonic() - began_s < logging.CLOSE_TIMEOUT_S + 5
            assert log._thread is not None and log._thread.is_alive()
            read, write = os.pipe()
            os.dup2(write, descriptor)  # Now it can be written.
            os.close(write)
            said = b""
            while b"line 99" not in said:
                said += os.read(read, SIZE)
            assert b"50 lines are lost" in said
            os.close(read)
    finally:
        os.close(full)


def test_what_python_keeps_in_memory_is_written_there(capsys: pytest.CaptureFixture[str]) -> None:
    log = LogWriter()
    say(log, "a line")
    log.close()
    until(lambda: "a line" in capsys.readouterr().out, "it was never written")


def test_a_log_whose_thread_could_not_start_writes_with_the_next_line(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    start, tries = threading.Thread.start, list[str]()

    def no_thread_left(self: threading.Thread) -> None:
        tries.append(self.name)
        if len(tries) < 3:
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", no_thread_left)
    log = LogWriter(pipe[1])
    for number in range(4):
        say(log, f"line {number}")
    log.close()
    said = os.read(pipe[0], SIZE).decode().splitlines()
    assert [line[9:] for line in said] == [f"line {number}" for number in range(4)]
    assert tries == ["log"] * 3
