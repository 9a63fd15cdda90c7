"""A broadcast between real clusters: two targets get all, at the source's offsets, and the source gives it once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.scenarios.mirror_rig import Rig, read_all, same_ends, settings_text, until
from twinshore.lab import LabCluster
from twinshore.lab.clients import client_settings, forget_links

FLAGS = ("-XX:TieredStopAtLevel=1",)
TOPIC, PARTITIONS = "prices", 3
VALUE = bytes(range(250)) * 4
BROADCAST = """
[broadcasts.prices]
source = "london"
targets = ["tokyo", "paris"]
topics = ["prices"]
"""
WITHIN_S = 60.0


class Place(Rig):
    """One mirror, a source behind a counting proxy, and two targets."""

    def __init__(self, folder: Path, london: LabCluster, *targets: LabCluster, tide_s: float = 60) -> None:
        self.london, self.targets = london, targets
        # The mirror alone comes by the proxy: what that gives is what was read.
        clusters = [london.wan_cluster, *(one.cluster for one in targets)]
        mirror = {"lanes": 1, "refresh_s": 1, "heartbeat_s": 0, "tide_s": tide_s}
        super().__init__(folder, settings_text(folder, clusters, {}, mirror=mirror) + BROADCAST)

    def begin(self) -> None:
        self.process.start()
        for target in self.targets:
            self.until_said(f"london->{target.name}: carried by this process")
        self.produce(PARTITIONS)
        self.until_same()
        time.sleep(1.0)

    def produce(self, records: int) -> int:
        """How many bytes of values these have."""
        producer = Producer({**client_settings(self.london.cluster), "linger.ms": 5})
        for number in range(records):
            producer.produce(TOPIC, VALUE, b"key %d" % number, partition=number % PARTITIONS)
            producer.poll(0)
        assert producer.flush(60) == 0
        return records * len(VALUE)

    def until_same(self, *targets: LabCluster) -> None:
        for target in targets or self.targets:
            what = f"all of the topic on {target.name}"
            until(lambda: same_ends(self.london.cluster, target.cluster, TOPIC, PARTITIONS), WITHIN_S, what, self)  # noqa: B023

    def given(self) -> int:
        """Bytes that the source has sent to the mirror."""
        return sum(proxy.counters().bytes_to_source for proxy in self.london.proxies)

    def identical(self) -> None:
        for partition in range(PARTITIONS):
            theirs = read_all(self.london.cluster, TOPIC, partition)
            for target in self.targets:
                assert read_all(target.cluster, TOPIC, partition) == theirs, (target.name, partition)


@pytest.fixture(scope="module")
def three() -> Iterator[tuple[LabCluster, LabCluster, LabCluster]]:
    with (
        LabCluster("london", jvm_flags=FLAGS, via_proxy=True) as london,
        LabCluster("tokyo", jvm_flags=FLAGS) as tokyo,
        LabCluster("paris", jvm_flags=FLAGS) as paris,
    ):
        yield london, tokyo, paris


@pytest.fixture
def place(three: tuple[LabCluster, LabCluster, LabCluster], tmp_path: Path) -> Iterator[Place]:
    london, tokyo, paris = three
    for lab in three:
        forget_links(lab.cluster)
    made = Place(tmp_path, london, tokyo, paris)
    made.begin()
    try:
        yield made
    finally:
        made.process.end()


def test_each_target_gets_all_and_the_source_gives_it_once(place: Place) -> None:
    before = place.given()
    size = place.produce(30_000)
    place.until_same()
    copies = (place.given() - before) / size
    print(f"told: {copies:.3f} copies left the source for two targets")
    assert copies <= 1.1
    place.identical()
