"""The Java that runs brokers and Ivy: found once, refused clearly when it is missing or too old."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

from twinshore.fleet import ConfigError

JAVA_OLDEST = 17
# For what lives for seconds or minutes: the JVM's second compiler would cost more than it saves.
ONE_COMPILER = "-XX:TieredStopAtLevel=1"
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')


def java() -> str:
    """Path of a java of at least Java 17: JAVA_HOME's if it fits, else the first on PATH."""
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
        if version >= JAVA_OLDEST:
            return candidate
        seen.append(f"{candidate} is Java {version}" if version else f"{candidate} does not run")
    raise ConfigError(
        f"Java {JAVA_OLDEST} or newer is needed, but {' and '.join(seen) or 'there is no java on PATH'}",
        hint=f"install a Java {JAVA_OLDEST}+ runtime, or point JAVA_HOME at one",
    )


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
