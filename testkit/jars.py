"""Class paths of Kafka's tools, Java sources compiled for tests, and Python packages for benches, fetched once."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from twinshore.lab.jars import (
    KAFKA_NEWEST,
    ONE_COMPILER_FLAG,
    MavenModule,
    cache_folder,
    classpath_of,
    fetch_jars,
    find_java,
    make_once,
    print_notice,
)
from twinshore.lab.processes import LabError

# The compiler needs only a Java runtime, `javac` a whole JDK.
_COMPILER = MavenModule("org.eclipse.jdt", "ecj", "3.38.0")
_WITHIN_S = 600.0


def fetch_mirrormaker_classpath() -> str:
    return _classpath_of_artifact("MirrorMaker", "connect-mirror")


def fetch_streams_classpath() -> str:
    return _classpath_of_artifact("Kafka Streams", "kafka-streams")


def _classpath_of_artifact(what: str, artifact: str) -> str:
    return classpath_of(fetch_jars(f"{what} {KAFKA_NEWEST}", MavenModule("org.apache.kafka", artifact, KAFKA_NEWEST)))


def fetch_tools_classpath(version: str = KAFKA_NEWEST) -> str:
    """The class path of Kafka's command-line tools, such as `kafka-acls.sh`."""
    tools = fetch_jars(f"Kafka's tools {version}", MavenModule("org.apache.kafka", "kafka-tools", version))
    core = fetch_jars(f"Kafka {version}", MavenModule("org.apache.kafka", "kafka_2.13", version))
    return classpath_of(tools, core)


def compile_java(source: Path, classpath: str, folder: Path) -> str:
    """Compiles a Java source into the folder; returns the class path with the result."""
    jars = fetch_jars("a compiler of Java", _COMPILER, with_dependencies=False)
    words = ["-source", "17", "-target", "17", "-classpath", classpath, "-d", str(folder), str(source)]
    command = [find_java(), ONE_COMPILER_FLAG, "-jar", os.pathsep.join(map(str, sorted(jars.glob("*.jar")))), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise LabError(f"{source.name} cannot be compiled: {(done.stderr or done.stdout).strip()[-2000:]}")
    return os.pathsep.join([str(folder), classpath])


def fetch_python_packages(*pinned: str) -> Path:
    """The folder for a Python's path with these packages (as `name==version`) and their dependencies.

    Wheels only, nothing is built. Raises LabError if a package is unavailable.
    """
    digest = hashlib.sha256(" ".join((sys.implementation.cache_tag or "", *pinned)).encode()).hexdigest()[:8]
    folder = cache_folder() / "wheels" / f"{'+'.join(pinned).replace('==', '-')}-{digest}"
    return make_once(folder, "wheels", lambda target: _pip(pinned, target))


def _pip(pinned: tuple[str, ...], target: Path) -> None:
    print_notice(f"fetching {', '.join(pinned)} (once; kept in {target.parent})")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--only-binary", ":all:", "--target", str(target), *pinned]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_WITHIN_S, check=False)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if "ERROR" in line] or ["pip said nothing"]
        raise LabError(f"{', '.join(pinned)} cannot be installed: {said[-1].removeprefix('ERROR: ')}", packages=pinned)
