"""A mirror between lab clusters for the scenarios: settings with any security, its process, what to wait for."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from typer.testing import CliRunner

from testkit.watermarks import read_watermarks
from tests.scenarios.warm_mirrors import IN_THREADS, start_warm
from twinshore.cli.app import app, register_verbs
from twinshore.config.model import Cluster, Secret, Security
from twinshore.lab.clients import client_settings
from twinshore.lab.mirror_process import MirrorProcess
from twinshore.lab.processes import ChildProcess
from twinshore.state.core.values import IncidentRow
from twinshore.state.store import open_store

SPARK_S_MAX = 240.0

Seen = tuple[int, bytes | str | None, bytes | str | None, object, int]


def security_lines(name: str, security: Security) -> list[str]:
    """The section of a cluster's security, empty where it has none."""
    values: dict[str, object] = {
        "tls": security.tls,
        "ca_file": security.ca_file,
        "cert_file": security.cert_file,
        "key_file": security.key_file,
        "sasl": security.sasl.value if security.sasl else "",
        "username": security.username,
        "password_file": security.password.file,
        "token_file": security.token_file,
    }
    lines = [f"{key} = {'true' if value is True else repr(value)}" for key, value in values.items() if value]
    return [f"[clusters.{name}.security]", *lines] if lines else []


def url_in(folder: Path) -> str:
    """The store of a rig that has no other."""
    return f"sqlite:///{folder / 'store.db'}"


def settings_text(
    folder: Path,
    clusters: Iterable[Cluster],
    links: Mapping[str, str],
    *,
    mirror: Mapping[str, object] | None = None,
    spark: Mapping[str, str] | None = None,
    store: str = "",
) -> str:
    """A settings file: links map names to the expression of their topics. `store`: its URL, else a file there."""
    lines = ["[store]", f'url = "{store or url_in(folder)}"']
    for cluster in clusters:
        lines += [f"[clusters.{cluster.name}]", f"bootstrap = {list(cluster.bootstrap)}"]
        lines += security_lines(cluster.name, cluster.security)
    for link, topics in links.items():
        lines += [f'[links."{link}"]', f"topics = ['{topics}']"]
    # How full this machine's disk is shall be no test's affair unless it says so.
    # Two tasks, as on larger machines: partitions change between them, and one goes on when the other is killed.
    settings = {"disk_warn_percent": 0, "tasks_per_link": 2, **(mirror or {})}
    lines += ["[mirror]", *(f"{key} = {value}" for key, value in settings.items())]
    lines += ["[mirror.spark]", *(f'"{key}" = "{value}"' for key, value in (spark or {}).items())]
    return "\n".join(lines) + "\n"


class Rig:
    """One mirror process and its store. What Spark does is the promise of few scenarios; else tasks run in threads."""

    def __init__(
        self,
        folder: Path,
        settings: str,
        *,
        spark: bool = False,
        store: str = "",
        start: Callable[..., ChildProcess] = start_warm,
    ) -> None:
        self.folder, self._store = folder, store or url_in(folder)
        self._spark = spark
        if spark:
            self.process = MirrorProcess(folder, settings)
        else:
            self.process = MirrorProcess(folder, settings, command=IN_THREADS, start=start)

    def until_spark_has_started(self) -> None:
        """Where tasks run on Spark: on a machine that is busy it takes minutes, which no other wait is to count."""
        deadline = time.monotonic() + SPARK_S_MAX
        while self._spark and "replicated by this process" not in self.process.said.rpartition("starting Spark")[2]:
            said = self.process.said[-3000:]
            assert self.process.child.alive(), f"it ended while Spark started:\n{said}"
            assert time.monotonic() < deadline, f"Spark had not started in {SPARK_S_MAX:.0f} s:\n{said}"
            time.sleep(0.05)

    def until_said(self, words: str, within_s: float = 60.0) -> str:
        """The first line of its log that holds these words."""
        self.until_spark_has_started()
        deadline = time.monotonic() + within_s
        while True:
            alive = self.process.child.alive()
            for line in self.process.said.splitlines():
                if words in line:
                    return line
            assert alive, f"it ended and never said {words!r}:\n{self.process.said[-3000:]}"
            assert time.monotonic() < deadline, f"never said {words!r}:\n{self.process.said[-3000:]}"
            time.sleep(0.05)

    def until_ended(self, within_s: float = 60.0) -> int:
        """Its exit code, once it has ended by itself."""
        deadline = time.monotonic() + within_s
        while self.process.child.alive():
            assert time.monotonic() < deadline, f"it goes on:\n{self.process.said[-3000:]}"
            time.sleep(0.05)
        return self.process.child.exit_code or 0

    def verb(self, *words: str) -> str:
        """What `twinshore` says to these words."""
        register_verbs()
        asked = [*words, "--settings", str(self.process.settings)]
        result = CliRunner().invoke(app, asked, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    def ledger(self, link: str) -> tuple[IncidentRow, ...]:
        store = open_store(self._store, Secret())
        try:
            return tuple(store.incidents.rows(link))
        finally:
            store.close()

    def told(self, link: str) -> dict[tuple[str, int], int]:
        """How far each partition is receipted."""
        store = open_store(self._store, Secret())
        try:
            return {(at.topic, at.partition): at.to_offset for at in store.progress.positions(link)}
        finally:
            store.close()

    def stored(self) -> str:
        """Each link's status and progress, for the message of a test that falls."""
        store = open_store(self._store, Secret())
        try:
            statuses = store.links.statuses()
            positions = [at for status in statuses for at in store.progress.positions(status.link)]
            return "\n".join([str(each) for each in (*statuses, *positions)])
        finally:
            store.close()


def until(holds: Callable[[], bool], within_s: float, what: str, rig: Rig | None = None) -> float:
    """Returns how long it took to come true."""
    if rig:
        rig.until_spark_has_started()
    began_s = time.monotonic()
    while not holds():
        said = rig.process.said[-3000:] if rig else ""
        assert not rig or rig.process.child.alive(), f"the mirror has ended: {said}"
        if time.monotonic() - began_s >= within_s:
            pytest.fail(f"not within {within_s} s: {what}\n{said}\n{rig.stored() if rig else ''}")
        time.sleep(0.05)
    return time.monotonic() - began_s


# Log start and end of each partition.
spans = read_watermarks


def same_ends(source: Cluster, target: Cluster, topic: str, partitions: int) -> bool:
    ours = spans(source, topic, partitions)
    return [end for _, end in ours] == [end for _, end in spans(target, topic, partitions)]


def read_all(cluster: Cluster, topic: str, partition: int) -> list[Seen]:
    """Offset, key, value, headers and milliseconds of every record; the kind of time stamp is the topic's, not ours."""
    ((start, end),) = spans_of(cluster, topic, partition)
    consumer = Consumer({**client_settings(cluster), "group.id": "read", "auto.offset.reset": "error"})
    found: list[Message] = []
    try:
        consumer.assign([TopicPartition(topic, partition, start)])
        deadline = time.monotonic() + 60.0
        while start < end and (not found or (found[-1].offset() or 0) + 1 < end):
            assert time.monotonic() < deadline, f"{topic}-{partition} cannot be read to {end}"
            found += consumer.consume(1_000, timeout=0.2)
    finally:
        consumer.close()
    return [(one.offset() or 0, one.key(), one.value(), one.headers(), one.timestamp()[1]) for one in found]


def spans_of(cluster: Cluster, topic: str, partition: int) -> list[tuple[int, int]]:
    return [spans(cluster, topic, partition + 1)[partition]]


# What the JVM, Spark and their loggers write of themselves.
_FOREIGN = re.compile(
    r"WARN|log4j|py4j|SLF4J|[Ii]vy|Setting .*log level|incubator|^\d\d/\d\d/\d\d |^\s+at \S+\(", re.MULTILINE
)


def foreign_lines(said: str) -> list[str]:
    """Lines of a product's output that are none of its own words."""
    return [line for line in said.splitlines() if _FOREIGN.search(line)]
