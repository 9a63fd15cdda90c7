"""Spark: its JVM as a child process, the session, and single-task jobs.

The JVM starts silently, has no secret among its arguments, and can be ended at any moment. `make setup` runs this
module, which starts a JVM once and keeps an archive of its classes in the user's cache, for one Spark and Java: later
JVMs start faster. Without a usable archive a JVM starts as usual.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, TypeVar

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

import twinshore
from twinshore.config.errors import CodedError
from twinshore.config.sections.mirror import MirrorSettings
from twinshore.runtime import forked_workers
from twinshore.runtime.process import user_cache_folder
from twinshore.runtime.scheduler import DaemonExecutor

T = TypeVar("T")
LOG4J_CONFIG = Path(__file__).with_name("log4j2.xml")
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
POLL_INTERVAL_S = 0.05
EXIT_TIMEOUT_S = 3.0


def start_gateway(options: Mapping[str, str]) -> None:
    """Starts the JVM, unless there is one. Secrets are left to the session, which uses a socket."""
    _stopping.clear()
    if SparkContext._gateway is not None:
        return
    conf = SparkConf(loadDefaults=False)
    for key, value in options.items():
        if not _SECRET.search(key):
            conf.set(key, value)
    quiet = f'"-Dlog4j2.configurationFile={LOG4J_CONFIG.as_uri()}"'
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
    """Copies Spark's output to our standard error, except of its start and stop."""
    with open(says, "rb") as lines, contextlib.suppress(OSError, ValueError):
        for line in lines:
            if not line.startswith(_STARTING) and not _stopping.is_set():
                # Spark must be able to continue writing, also without a reader.
                with contextlib.suppress(OSError, ValueError):
                    sys.stderr.write(line.decode(errors="replace"))
                    sys.stderr.flush()


def stop_quietly(stop: Callable[[], object]) -> None:
    """Ends a session and hides what Spark prints and raises."""
    _stopping.set()
    with contextlib.suppress(Exception):
        stop()


def end_gateway() -> None:
    """Ends the JVM at once, also during its start."""
    # Waiting calls would each write a trace, some to the root logger, whose level Twinshore's loggers do not take.
    logging.getLogger().setLevel(logging.CRITICAL + 1)
    until_s = time.monotonic() + EXIT_TIMEOUT_S
    while (found := _below()) and time.monotonic() < until_s:
        for child in found:
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
        time.sleep(POLL_INTERVAL_S)


def _below() -> list[int]:
    """Returns this process's Spark processes, also of scripts that have ended. Empty where the system does not tell:
    Spark then ends with its input.
    """
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


def start_unless_stopped(begin: Callable[[], T], stop: threading.Event) -> T | None:
    """Returns what `begin` makes; None when `stop` came first, with nothing left running.

    `begin` runs in a separate thread: in the main thread Spark would take the signals for itself.
    """
    executor = DaemonExecutor[T]("spark-start")
    begun = executor.submit(begin)
    executor.close()
    while not begun.done():
        if stop.wait(POLL_INTERVAL_S):
            until_s = time.monotonic() + EXIT_TIMEOUT_S
            while not begun.done() and time.monotonic() < until_s:
                end_gateway()
                time.sleep(POLL_INTERVAL_S)
            end_gateway()
            return None
    return begun.result()


SPARE_SLOTS = 4  # Standby attempts and other jobs (delay, proof) must never wait for a slot.


_QUIET = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.driver.memory": "512m"}
_RUNS = {
    "spark.scheduler.mode": "FAIR",
    "spark.speculation": "false",
    "spark.task.maxFailures": "1",
    "spark.python.worker.reuse": "true",
}


def open_session(
    settings: MirrorSettings, tasks: int, stop: threading.Event, load: Iterable[str] = ()
) -> SparkSession | None:
    """Opens a session with a slot for every task and some to spare; None when `stop` came first. `load`: modules for
    workers.
    """
    master = settings.spark.master
    if master == "local":
        master = f"local[{tasks + SPARE_SLOTS}]"
    # Elsewhere the package is not there yet when the workers' daemon starts.
    forked = forked_workers.worker_options(load) if master.startswith("local") else {}
    conf = {**_RUNS, **forked, **dict(settings.spark.conf)}
    if master.startswith("local"):
        conf[JAVA_OPTIONS] = jvm_options(conf.get(JAVA_OPTIONS, ""))
    return start_session("twinshore mirror", master, conf, "[mirror.spark]", stop)


def start_session(
    name: str, master: str, conf: Mapping[str, str], section: str, stop: threading.Event
) -> SparkSession | None:
    """Starts a session with this package on the workers; None when `stop` came first, with nothing left running. `conf`
    overrides our options. `section`: the master's settings section.
    """
    if find_java() is None:
        home = os.environ.get("JAVA_HOME")
        lacks = f"JAVA_HOME is {home}, and there is no bin/java" if home else "there is no java on PATH"
        raise CodedError("runtime.no-java", cause=lacks)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    own = dict(_QUIET)
    if master.startswith("local"):
        own |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    options = {"spark.master": master, "spark.app.name": name, **own, **conf}
    try:
        session = start_unless_stopped(lambda: _begin(options), stop)
    except Exception as error:
        # Spark raises a different one for every reason, with a page of Java's calls in it.
        lines = [line.strip(" :") for line in str(error).splitlines() if line.strip(" :")]
        reason = next((line for line in lines if "Exception" in line), (lines or [type(error).__name__])[0])
        where = "on this machine" if master.startswith("local") else f"on {master}"
        raise CodedError("runtime.no-spark", place=where, cause=reason, section=section) from error
    if session is not None and not master.startswith("local"):
        session.sparkContext.addPyFile(str(package_zip()))
    return session


def _begin(options: Mapping[str, str]) -> SparkSession:
    start_gateway(options)
    builder = SparkSession.builder
    for key, value in options.items():
        if key != JAVA_OPTIONS:  # the JVM runs, with ours beside them
            builder = builder.config(key, value)
    return builder.getOrCreate()


def package_zip() -> Path:
    """Returns the package as a file that Spark ships to executors; deleted at exit."""
    root = Path(twinshore.__file__).parent
    folder = mkdtemp(prefix="twinshore-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    found = Path(folder) / "twinshore.zip"
    with zipfile.ZipFile(found, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted([*root.rglob("*.py"), *root.rglob("*.json")]):
            archive.write(path, path.relative_to(root.parent))
    return found


class SparkEngine:
    """Runs single-task jobs in the session: `work` with one order each."""

    def __init__(self, session: SparkSession, work: Callable[[Iterable[str]], Iterable[str]]) -> None:
        self._session, self._context, self._work = session, session.sparkContext, work
        self.host = str(self._context.getConf().get("spark.driver.host") or "127.0.0.1")

    def ride(self, order: str, name: str) -> str:
        """Runs a job until the work ends; raises if the Spark task died."""
        self._context.setLocalProperty("spark.scheduler.pool", "runs")
        self._context.setJobGroup(name, name, interruptOnCancel=False)
        ended = self._context.parallelize([order], 1).mapPartitions(self._work).collect()
        return str(ended[0]) if ended else "nothing"

    def end(self, name: str) -> None:
        """Cancels the job. Spark kills its worker a few seconds later, even a frozen one."""
        self._context.cancelJobGroup(name)

    def alive(self) -> bool:
        process = getattr(getattr(self._context, "_gateway", None), "proc", None)
        return process is None or process.poll() is None

    def close(self) -> None:
        """Stops the session, ignoring what Spark raises after losing the JVM."""
        stop_quietly(self._session.stop)


# The JVM's second compiler and its parallel collector cost a small machine more than they save here.
LIGHT_JVM_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_SILENT = "-Xlog:cds*=off"
_JVM_OPTION = "-XX:"
JVM_EXIT_TIMEOUT_S = 120.0


def jvm_options(own: str = "") -> str:
    """Returns the JVM's options. `own`: the user's. If these concern the JVM itself, ours are left out: two collectors
    would conflict.
    """
    if _JVM_OPTION in own:
        return own
    options = [*LIGHT_JVM_OPTIONS]
    with contextlib.suppress(OSError):
        archive = class_archive()
        if archive is not None and archive.stat().st_size:
            options += [f"-XX:SharedArchiveFile={archive}", _SILENT]
    return " ".join([*options, own]).rstrip()


def class_archive() -> Path | None:
    """Returns the path of the archive; None without Java, or with a blank in the path, which would split an option."""
    java = find_java()
    if java is None:
        return None
    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    said = [pyspark.__version__, str(home), str((home / "jars").stat().st_mtime_ns)]
    for file in (java, java.parent.parent / "lib" / "modules"):
        found = file.stat()
        said.append(f"{file} {found.st_mtime_ns} {found.st_size}")
    name = f"spark-{pyspark.__version__}-{hashlib.sha256(' '.join(said).encode()).hexdigest()[:12]}.jsa"
    kept = user_cache_folder().resolve() / "classes" / name
    return None if any(one.isspace() for one in str(kept)) else kept


def find_java() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    found = f"{home}/bin/java" if home else shutil.which("java")
    return Path(found).resolve() if found and Path(found).is_file() else None


def make_class_archive() -> None:
    """Makes the archive if missing. An empty file records a failure, so there is no second try."""
    kept = class_archive()
    if kept is None or kept.exists():
        return
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".making-", dir=kept.parent) as folder:
        made = Path(folder) / "made.jsa"
        with contextlib.suppress(Exception):
            _play(f"{' '.join(LIGHT_JVM_OPTIONS)} -XX:ArchiveClassesAtExit={made} {_SILENT}")
        if not made.exists():
            made.touch()
        made.replace(kept)


def _play(told: str) -> None:
    """Runs a session with one job, as a mirror does."""
    from twinshore.config.sections.mirror import MirrorSettings, SparkSettings
    from twinshore.runtime.spark import JAVA_OPTIONS, SparkEngine, open_session

    settings = MirrorSettings(spark=SparkSettings(conf=((JAVA_OPTIONS, told),)))
    session = open_session(settings, 1, threading.Event())
    if session is None:
        return
    jvm: Any = session.sparkContext._gateway
    engine = SparkEngine(session, list)
    engine.ride("one", "one")
    engine.close()
    jvm.shutdown()
    jvm.proc.stdin.close()
    jvm.proc.wait(JVM_EXIT_TIMEOUT_S)


if __name__ == "__main__":
    make_class_archive()
    sys.exit(0)
