"""Spark's JVM as a child of ours: it starts without a word, no secret stands among its arguments, and it can be ended
at any moment of its start."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

T = TypeVar("T")
OWN_LOG4J = Path(__file__).with_name("log4j2.xml")
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# What Spark itself shows nowhere: spark.redaction.regex.
_SECRET = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)
# The JVM's own, before any logging is set up.
_STARTING = (b"WARNING: Using incubator modules",)
_MARK = b"_PYSPARK_DRIVER_CONN_INFO_PATH="
# By which what Spark started for us is known: each start has a path of its own.
_marks: set[bytes] = set()
# Set while we stop Spark: tasks that end with it fail somewhere in Java, and Spark writes pages of calls about it.
_stopping = threading.Event()
POLL_S = 0.05
ENDED_S_MAX = 3.0


def start_gateway(options: Mapping[str, str]) -> None:
    """Starts the JVM, unless this process has one. What is secret is left to the session, which says it by a socket."""
    _stopping.clear()
    if SparkContext._gateway is not None:
        return
    conf = SparkConf(loadDefaults=False)
    for key, value in options.items():
        if not _SECRET.search(key):
            conf.set(key, value)
    quiet = f'"-Dlog4j2.configurationFile={OWN_LOG4J.as_uri()}"'
    conf.set(JAVA_OPTIONS, f"{quiet} {options.get(JAVA_OPTIONS, '')}".rstrip())
    says, write = os.pipe()
    # A terminal that is closed tells the whole group; the JVM would end before what runs on it.
    ways = {"stderr": write, "process_group": 0}
    threading.Thread(target=_pass_on, args=(says,), name="spark-says", daemon=True).start()
    try:
        gateway = launch_gateway(conf, popen_kwargs=ways)  # type: ignore[no-untyped-call]
    finally:
        os.close(write)
    SparkContext._ensure_initialized(gateway=gateway)


def _pass_on(says: int) -> None:
    """What Spark says goes on to our standard error, but for how it starts and how we stop it."""
    with open(says, "rb") as lines, contextlib.suppress(OSError, ValueError):
        for line in lines:
            if not line.startswith(_STARTING) and not _stopping.is_set():
                # Spark must be able to write on, whether or not anybody reads.
                with contextlib.suppress(OSError, ValueError):
                    sys.stderr.write(line.decode(errors="replace"))
                    sys.stderr.flush()


def stop_quietly(stop: Callable[[], object]) -> None:
    """Ends a session. What Spark says and raises meanwhile tells an operator nothing: all of ours is closed by then."""
    _stopping.set()
    with contextlib.suppress(Exception):
        stop()


def end_gateway() -> None:
    """Ends the JVM at once, wherever its start is."""
    # What was waiting for its answers would each write a trace, some to the logger of all. Nothing of ours logs there.
    logging.disable(logging.CRITICAL)
    until_s = time.monotonic() + ENDED_S_MAX
    while (found := _below()) and time.monotonic() < until_s:
        for child in found:
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
        time.sleep(POLL_S)


def _below() -> list[int]:
    """Processes that were started for this one's Spark, also by a script of Spark's that has ended since. Where the
    system does not say, Spark ends as its input does."""
    found: dict[int, bytes] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            marks = [one for one in (entry / "environ").read_bytes().split(b"\0") if one.startswith(_MARK)]
            if marks and state != "Z":
                found[int(entry.name)] = marks[0]
            if marks and int(parent) == os.getpid():
                _marks.add(marks[0])
    return [number for number, mark in found.items() if mark in _marks]


def started(begin: Callable[[], T], stop: threading.Event) -> T | None:
    """What `begin` makes; None when `stop` came first, and then nothing of it is left.

    It runs in a separate thread, so that whoever waits hears the signals, which Spark takes for itself where it is
    begun by the main thread.
    """
    found: list[T] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            found.append(begin())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work, name="spark-start", daemon=True)
    thread.start()
    while thread.is_alive():
        if stop.wait(POLL_S):
            until_s = time.monotonic() + ENDED_S_MAX
            while thread.is_alive() and time.monotonic() < until_s:
                end_gateway()
                thread.join(POLL_S)
            end_gateway()
            return None
    if failed:
        raise failed[0]
    return found[0]
