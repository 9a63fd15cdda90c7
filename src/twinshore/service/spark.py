"""The Spark session of a process, embedded or a cluster's, and single-task jobs on it."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import threading
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from tempfile import mkdtemp

from pyspark.sql import SparkSession

import twinshore
from twinshore.fleet import TwinshoreError
from twinshore.fleet.settings import MirrorSettings
from twinshore.service import forked_workers, quick_start
from twinshore.service.gateway import JAVA_OPTIONS, start_gateway, started, stop_quietly

SPARE_SLOTS = 4  # Heirs of lanes and other jobs (delay, proof) must never wait behind full lanes.


_QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "512m",
}
JAVA_HINT = "install a Java runtime of version 17 or newer, or point JAVA_HOME at one"
_TIDES = {
    "spark.scheduler.mode": "FAIR",
    "spark.speculation": "false",
    "spark.task.maxFailures": "1",
    "spark.python.worker.reuse": "true",
}


def open_session(
    settings: MirrorSettings, lanes: int, stop: threading.Event, load: Iterable[str] = ()
) -> SparkSession | None:
    """A session with a free slot for every lane and some to spare; None when `stop` came first. `load`: the modules
    that its workers need."""
    master = settings.spark.master
    if master == "local":
        master = f"local[{lanes + SPARE_SLOTS}]"
    # Elsewhere the package is not there yet when the workers' daemon starts.
    forked = forked_workers.options(load) if master.startswith("local") else {}
    conf = {**_TIDES, **forked, **dict(settings.spark.conf)}
    if master.startswith("local"):
        conf[JAVA_OPTIONS] = quick_start.options(conf.get(JAVA_OPTIONS, ""))
    return start_session("twinshore mirror", master, conf, "[mirror.spark]", stop)


def start_session(
    name: str, master: str, conf: Mapping[str, str], section: str, stop: threading.Event
) -> SparkSession | None:
    """A session with this package on its workers; `conf` is above our own. `section` is where the master is set. None
    when `stop` came first: whoever starts Spark can be stopped while it starts, and nothing of it is left."""
    if quick_start.the_java() is None:
        home = os.environ.get("JAVA_HOME")
        lacks = f"JAVA_HOME is {home}, and there is no bin/java" if home else "there is no java on PATH"
        raise TwinshoreError(f"Spark needs Java: {lacks}", hint=JAVA_HINT)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    own = dict(_QUIET)
    if master.startswith("local"):
        own |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    options = {"spark.master": master, "spark.app.name": name, **own, **conf}
    try:
        session = started(lambda: _begin(options), stop)
    except Exception as error:
        # Spark raises a different one for every reason, with a page of Java's calls in it.
        lines = [line.strip(" :") for line in str(error).splitlines() if line.strip(" :")]
        reason = next((line for line in lines if "Exception" in line), (lines or [type(error).__name__])[0])
        hint = f"is Java 17 or newer there, and is {section} right, its master up, its workers able to run Python?"
        where = "on this machine" if master.startswith("local") else f"on {master}"
        raise TwinshoreError(f"Spark does not start {where}: {reason}", hint=hint) from error
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
    """Twinshore's own package as a file that Spark ships to executors; it goes with this process."""
    root = Path(twinshore.__file__).parent
    folder = mkdtemp(prefix="twinshore-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    found = Path(folder) / "twinshore.zip"
    with zipfile.ZipFile(found, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(root.rglob("*.py")):
            archive.write(path, path.relative_to(root.parent))
    return found


class SparkEngine:
    """Each ride is one single-task job of the session: `work` with the one order."""

    def __init__(self, session: SparkSession, work: Callable[[Iterable[str]], Iterable[str]]) -> None:
        self._session, self._context, self._work = session, session.sparkContext, work
        self.host = str(self._context.getConf().get("spark.driver.host") or "127.0.0.1")

    def ride(self, order: str, name: str) -> str:
        """Returns when the work has ended, raises when its task died."""
        self._context.setLocalProperty("spark.scheduler.pool", "tides")
        self._context.setJobGroup(name, name, interruptOnCancel=False)
        ended = self._context.parallelize([order], 1).mapPartitions(self._work).collect()
        return str(ended[0]) if ended else "nothing"

    def end(self, name: str) -> None:
        """Spark kills the worker that carries a ride of this name, a few seconds later: it may be frozen."""
        self._context.cancelJobGroup(name)

    def alive(self) -> bool:
        """Whether the session's JVM runs."""
        process = getattr(getattr(self._context, "_gateway", None), "proc", None)
        return process is None or process.poll() is None

    def close(self) -> None:
        """Spark's own end after a lost JVM raises what it likes."""
        stop_quietly(self._session.stop)
