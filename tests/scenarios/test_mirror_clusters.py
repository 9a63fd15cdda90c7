"""Other Kafkas, secured ones, and a Spark cluster of its own processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyspark
import pytest

from testkit.access import LabSecurity
from testkit.cluster import RigCluster
from tests.scenarios.mirror_rig import Rig, same_ends, settings_text, until
from twinshore.lab.jars import KAFKA_3, ONE_COMPILER_FLAG, find_java
from twinshore.lab.ports import free_port
from twinshore.lab.processes import ChildProcess, start_child
from twinshore.lab.produce import Workload
from twinshore.lab.topic_comparison import compare_topic


@pytest.fixture(scope="module")
def new() -> Iterator[RigCluster]:
    with RigCluster("new", security=LabSecurity.SASL_SCRAM_512, tls=True, jvm_flags=(ONE_COMPILER_FLAG,)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def old() -> Iterator[RigCluster]:
    with RigCluster("old", version=KAFKA_3, security=LabSecurity.MTLS, jvm_flags=(ONE_COMPILER_FLAG,)) as cluster:
        yield cluster


def test_an_old_and_a_new_kafka_with_tls_mirror_each_other(new: RigCluster, old: RigCluster, tmp_path: Path) -> None:
    """SCRAM over TLS on one side, mutual TLS on the other; one process carries both ways."""
    pairs = {"from-old": (old, new), "from-new": (new, old)}
    for topic, (source, _) in pairs.items():
        source.create_topic(topic, partitions=3)
    links = {"old->new": "from-old", "new->old": "from-new"}
    rig = Rig(tmp_path, settings_text(tmp_path, [old.cluster, new.cluster], links, mirror={"task_run_s": 3}))
    rig.process.start()
    try:
        for topic, (source, _) in pairs.items():
            with Workload(source.cluster, topic, records_per_s=1_000) as load:
                until(lambda load=load: load.sent > 4_000, 60, "records are written", rig)  # type: ignore[misc]
                acked = load.stop()
            assert acked > 4_000
        for topic, (source, target) in pairs.items():
            crossed = partial(same_ends, source.cluster, target.cluster, topic, 3)
            until(crossed, 180, f"{topic} crossed", rig)
            found = compare_topic(source.cluster, target.cluster, topic)
            assert found.identical, str(found)
            assert found.records > 4_000
        assert rig.process.end() == 0
    finally:
        rig.process.end()
    for link in links:
        assert not rig.ledger(link)
    assert "password" not in rig.process.said.lower()


class SparkCluster:
    """A master and two workers, real processes of pyspark's own jars."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.children: list[ChildProcess] = []
        self._classpath = str(Path(pyspark.__file__).parent / "jars" / "*")

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def start(self) -> None:
        place = "org.apache.spark.deploy"
        self._launch(f"{place}.master.Master", "--host", "127.0.0.1", "--port", str(self.port), "--webui-port", "0")
        until(lambda: "New state: ALIVE" in self.said(0), 60, "the master is there")
        for number in (1, 2):
            resources = ("--host", "127.0.0.1", "--cores", "4", "--memory", "1g", "--webui-port", "0")
            work = self.folder / f"work-{number}"
            self._launch(f"{place}.worker.Worker", *resources, "--work-dir", str(work), self.master)
        until(lambda: self.said(0).count("Registering worker") == 2, 60, "both workers are there")

    def said(self, number: int) -> str:
        return (self.folder / f"spark-{number}.log").read_text(encoding="utf-8", errors="replace")

    def _launch(self, *command: str) -> None:
        number = len(self.children)
        # Workers know nothing of this checkout: what they run must have been shipped to them.
        environment = {
            "PYTHONPATH": "",
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_SCALA_VERSION": "2.13",
        }
        words = [find_java(), "-Xmx256m", "-cp", self._classpath, *ADD_OPENS, *command]
        log = self.folder / f"spark-{number}.log"
        self.children.append(start_child(words, folder=self.folder, log=log, environment=environment))

    def stop(self) -> None:
        for child in reversed(self.children):
            child.end(patience_s=10)


ADD_OPENS = [
    word
    for package in ("java.lang", "java.lang.invoke", "java.nio", "java.util", "java.util.concurrent", "sun.nio.ch")
    for word in ("--add-opens", f"java.base/{package}=ALL-UNNAMED")
]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_spark_cluster_carries_the_tasks(east: RigCluster, west: RigCluster, tmp_path: Path) -> None:
    spark = SparkCluster(tmp_path)
    settings = {"master": spark.master, "spark.executor.memory": "512m", "spark.executor.cores": "4"}
    settings |= {"spark.driver.host": "127.0.0.1", "spark.pyspark.python": sys.executable}
    folder = tmp_path / "mirror"
    folder.mkdir()
    link = {"east->west": "clustered"}
    rig = Rig(
        folder,
        settings_text(folder, [east.cluster, west.cluster], link, mirror={"task_run_s": 3}, spark=settings),
        spark=True,
    )
    east.create_topic("clustered", partitions=4)
    spark.start()
    try:
        rig.process.start()
        with Workload(east.cluster, "clustered", records_per_s=1_000) as load:
            until(lambda: load.sent > 8_000, 60, "records are written", rig)
            load.stop()
        until(lambda: same_ends(east.cluster, west.cluster, "clustered", 4), 120, "all crossed", rig)
        found = compare_topic(east.cluster, west.cluster, "clustered")
        assert found.identical, str(found)
        shipped = {path.relative_to(tmp_path).parts[0] for path in tmp_path.glob("work-*/app-*/*/twinshore.zip")}
        assert shipped, "the package came with the job, by no other way"
        assert rig.process.end() == 0
    finally:
        rig.process.end()
        spark.stop()
