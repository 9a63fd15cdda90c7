"""What the figures were taken on."""

from __future__ import annotations

import datetime
import os
import platform
import re
import subprocess
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import psutil

from twinshore.lab.jars import KAFKA_NEWEST, find_java


@dataclass(frozen=True, slots=True)
class Machine:
    """Hardware and versions, no name and no place; `day` and `commit` say when it was and of what."""

    processor: str
    cores: int
    memory_gb: int
    system: str
    python: str
    java: str
    kafka: str
    spark: str
    day: str = ""
    commit: str = ""

    def dated(self) -> str:
        """The same with the day and the commit."""
        of = f", at commit {self.commit}" if self.commit else ""
        return f"{self.day}{of}, on {self.sentence()}"

    def sentence(self) -> str:
        """As the page says it."""
        return (
            f"{self.cores} cores ({self.processor}), {self.memory_gb} GB, {self.system}; Python {self.python}, "
            f"Java {self.java}, Spark {self.spark}, Kafka and MirrorMaker {self.kafka}"
        )


def this_machine() -> Machine:
    """The machine that runs this."""
    return Machine(
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_gb=round(psutil.virtual_memory().total / 2**30),
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        java=_java_version(),
        kafka=KAFKA_NEWEST,
        spark=version("pyspark"),
        day=datetime.datetime.now(datetime.UTC).date().isoformat(),
        commit=_commit(),
    )


def _commit() -> str:
    """Empty where this is no clone."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=8", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def _processor() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


def _java_version() -> str:
    said = subprocess.run([find_java(), "-version"], capture_output=True, text=True, timeout=60, check=True).stderr
    found = re.search(r'version "([^"]+)"', said)
    return found[1] if found else "unknown"
