"""Finds Java, and fetches jars from Maven Central by PySpark's Ivy, each once.

They are kept in the user's cache, with locks between processes.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from twinshore.config.errors import ConfigError
from twinshore.lab.processes import LabError
from twinshore.runtime.process import user_cache_folder


def cache_folder() -> Path:
    """The user's cache folder, created if missing."""
    folder = user_cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


@contextlib.contextmanager
def hold_cache_lock(name: str) -> Iterator[None]:
    """Holds the cache's lock `name`; other processes wait. The kernel frees the lock if the holder dies."""
    with (cache_folder() / f".{name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def make_once(folder: Path, lock: str, make: Callable[[Path], None]) -> Path:
    """Returns the folder. The first call on this machine creates it atomically: `make` fills an empty one."""
    if not folder.is_dir():
        with hold_cache_lock(lock):
            if not folder.is_dir():
                folder.parent.mkdir(parents=True, exist_ok=True)
                making = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
                try:
                    make(making)
                    making.chmod(0o755)
                    making.rename(folder)
                finally:
                    shutil.rmtree(making, ignore_errors=True)
    return folder


def print_notice(sentence: str) -> None:
    """Tells the user why the caller waits, on stderr."""
    print(sentence, file=sys.stderr, flush=True)


JAVA_VERSION_MIN = 17
# For JVMs that live for seconds or minutes: the second compiler would cost more than it saves.
ONE_COMPILER_FLAG = "-XX:TieredStopAtLevel=1"
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')


def find_java() -> str:
    """Path of a java of version 17 or newer: JAVA_HOME's if new enough, else the first on PATH."""
    return _find(os.environ.get("JAVA_HOME", ""), os.environ.get("PATH", ""))


@functools.cache
def _find(java_home: str, path: str) -> str:
    candidates = [str(Path(java_home, "bin", "java"))] if java_home else []
    on_path = shutil.which("java", path=path)
    if on_path:
        candidates.append(on_path)
    seen = []
    for candidate in candidates:
        version = _java_version(candidate)
        if version >= JAVA_VERSION_MIN:
            return candidate
        seen.append(f"{candidate} is Java {version}" if version else f"{candidate} does not run")
    raise ConfigError("lab.no-java", version=JAVA_VERSION_MIN, found=" and ".join(seen) or "there is no java on PATH")


def _java_version(binary: str) -> int:
    try:
        said = subprocess.run([binary, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = _VERSION.search(said.stderr + said.stdout)
    if not found:
        return 0
    major, minor = int(found[1]), int(found[2] or 0)
    return minor if major == 1 else major


KAFKA_NEWEST = "4.3.1"
KAFKA_3 = "3.9.2"
# 2.8 starts on Java 17 too, but fails to restart on its own data: KRaft was a preview there.
KAFKA_OLDEST = "3.0.2"
# The oldest for a link: a target needs both bounds of record timestamps.
KAFKA_OLDEST_SOURCE, KAFKA_OLDEST_TARGET = "3.1.0", "3.6.0"

_TRIES = 3
_TELL_EVERY_S = 5.0
_PATTERN = "[artifact]-[revision](-[classifier]).[ext]"


class MavenModule(NamedTuple):
    group: str
    artifact: str
    version: str


class IvyProgress(NamedTuple):
    modules: int = 0
    files: int = 0

    def after(self, line: str) -> IvyProgress:
        found, fetched_it = line.startswith("\tfound "), "[SUCCESSFUL ]" in line and ".jar" in line
        return IvyProgress(self.modules + found, self.files + fetched_it)

    def __str__(self) -> str:
        if not self.files:
            return f"finding out what belongs to it, {self.modules} modules so far"
        return f"{self.files} of {self.modules} files"


# Kafka's jars have only the logging facade; this binding logs every Kafka from 3.0 to 4.x to standard error.
_LOGGING = MavenModule("org.slf4j", "slf4j-simple", "1.7.36")


def fetch_kafka_classpath(version: str = KAFKA_NEWEST) -> str:
    """The class path of a broker of this version; fetched by the first call on this machine."""
    return classpath_of(fetch_jars(f"Kafka {version}", MavenModule("org.apache.kafka", "kafka_2.13", version)))


def classpath_of(*folders: Path) -> str:
    """The class path of these folders' jars, each jar once, and of the logger."""
    jars: dict[str, Path] = {}
    for folder in (*folders, fetch_jars("the brokers' logger", _LOGGING)):
        for jar in sorted(folder.glob("*.jar")):
            jars.setdefault(jar.name, jar)
    return os.pathsep.join(str(jar) for jar in jars.values())


def fetch_jars(what: str, module: MavenModule, *, with_dependencies: bool = True) -> Path:
    """The folder of the module's jars; complete if existing. `what`: its name in progress lines."""
    folder = cache_folder() / "jars" / f"{module.artifact}-{module.version}"
    return make_once(folder, "ivy", lambda target: _fetch(what, module, target, with_dependencies=with_dependencies))


def find_ivy_jar() -> Path:
    """The Ivy jar of the installed PySpark, found without an import."""
    spec = importlib.util.find_spec("pyspark")
    places = spec.submodule_search_locations if spec else None
    for place in places or ():
        for jar in sorted(Path(place, "jars").glob("ivy-*.jar"), reverse=True):
            return jar
    raise ConfigError("lab.no-pyspark")


def _fetch(what: str, module: MavenModule, target: Path, *, with_dependencies: bool) -> None:
    print_notice(f"fetching {what} (once; kept in {target.parent})")
    started_s = time.monotonic()
    said = ""
    for attempt in range(1, _TRIES + 1):
        code, said = _ivy(what, module, target, with_dependencies=with_dependencies)
        jars = list(target.iterdir())
        if code == 0 and jars:
            print_notice(f"fetched {what}: {len(jars)} jars in {time.monotonic() - started_s:.0f} s")
            return
        for jar in jars:
            jar.unlink()
        if attempt < _TRIES:
            print_notice(f"fetching {what} failed, trying again ({attempt} of {_TRIES})")
            # A half-written entry of Ivy's own cache would fail every time.
            shutil.rmtree(cache_folder() / "ivy", ignore_errors=True)
            time.sleep(attempt)
    raise LabError("lab.cannot-fetch", what=what, cause=_reason(said))


def _ivy(what: str, module: MavenModule, target: Path, *, with_dependencies: bool) -> tuple[int, str]:
    settings = os.environ.get("TWINSHORE_IVY_SETTINGS") or str(Path(__file__).with_name("ivysettings.xml"))
    command = [find_java(), ONE_COMPILER_FLAG, "-jar", str(find_ivy_jar()), "-settings", settings]
    command += ["-cache", str(cache_folder() / "ivy"), "-dependency", *module, "-confs", "default"]
    command += ["-types", "jar", "bundle", "-retrieve", str(target / _PATTERN)]
    if not with_dependencies:
        command.append("-notransitive")
    lines = []
    seen = IvyProgress()
    told_s = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            seen = seen.after(line)
            if time.monotonic() - told_s > _TELL_EVERY_S:
                told_s = time.monotonic()
                print_notice(f"  {what}: {seen}")
    return process.returncode, "".join(lines[-400:])


def _reason(said: str) -> str:
    for mark in ("SERVER ERROR", "Exception", "[FAILED", ": not found", "UNRESOLVED"):
        for line in said.splitlines():
            if mark in line:
                return line.strip(" \t:")
    return said.strip().splitlines()[-1] if said.strip() else "Ivy said nothing"
