"""Starts Spark's JVM faster: options for single-task jobs in Python, and an archive of loaded classes.

`make setup` runs this module, which starts a JVM once and keeps its classes in the user's cache, for one Spark and
Java. Without a usable archive a JVM starts as usual, silently.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pyspark

from twinshore.runtime.process import user_cache_folder

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
