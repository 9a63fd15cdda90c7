"""An application of Kafka Streams with exactly-once-v2 whose topics move: planned, and by force."""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer

from testkit.switch_under_load import Acked
from tests.conftest import ClusterFactory
from tests.scenarios.following_writer import FollowingWriter, Writing
from tests.scenarios.mirror_rig import Rig, settings_text, spans, until
from tests.scenarios.streams_stage import (
    APPLICATION,
    CHANGELOG,
    INPUT,
    OUTPUT,
    REPARTITION,
    TOPICS,
    Counting,
    FollowingApplication,
    counts,
    fed,
)
from tests.scenarios.switch_rig import QUICK, SwitchRig
from twinshore.lab.clients import client_settings, read_group_offsets
from twinshore.lab.cluster import LabCluster

PATIENCE_S = 240.0
# As for any group that writes: its places wait until what it wrote has crossed.
OUTPUTS = """
[links."{link}".groups.outputs]
"{group}" = ["{group}-.*", "{output}"]
"""
PARTITIONS = 3
FEED = Writing(records_per_s=100, keys=12, transaction_s=0.25, aborts_every=5, lease_s=30.0)


@dataclass
class Stage:
    """A mirror both ways, and the application, which runs nowhere yet."""

    switch: SwitchRig
    counting: Counting

    @property
    def sides(self) -> tuple[LabCluster, LabCluster]:
        return self.switch.east, self.switch.west

    def feed(self, begin: str, *, follows: bool = True) -> FollowingWriter:
        """Transactions, of which each fifth is aborted."""
        how = Writing(**{**{name: getattr(FEED, name) for name in FEED.__slots__}, "follows": follows})
        return FollowingWriter("feed", INPUT, {lab.name: lab.cluster for lab in self.sides}, begin, how)

    def until_counted(self, lab: LabCluster, acked: list[Acked]) -> None:
        """Each record once, and none of those that were aborted: of each key 1, 2, 3 and so on."""
        truth = Counter(one.key.decode() for one in acked)
        assert fed(lab.cluster) == truth
        wanted = {key: list(range(1, count + 1)) for key, count in truth.items()}

        def counted() -> bool:
            assert self.counting.runs, self.counting.said()
            return sum(map(len, counts(lab.cluster).values())) >= truth.total()

        until(counted, PATIENCE_S, f"all are counted on {lab.name}", self.switch.rig)
        assert counts(lab.cluster) == wanted

    def until_level(self) -> None:
        """Both homes of each topic end alike, and the group stands alike."""

        def alike() -> bool:
            one, other = ([self._stands(lab, topic) for topic in TOPICS] for lab in self.sides)
            return one == other

        until(alike, PATIENCE_S, "both sides are level", self.switch.rig)

    def _stands(self, lab: LabCluster, topic: str) -> object:
        ends = [end for _, end in spans(lab.cluster, topic, PARTITIONS)]
        return ends, stands(lab, topic)


@pytest.fixture
def stage(cluster_factory: ClusterFactory, tmp_path: Path) -> Iterator[Stage]:
    east, west = (cluster_factory(name, heap_mb=256) for name in ("east", "west"))
    for topic in (INPUT, OUTPUT):
        east.create_topic(topic, partitions=PARTITIONS)
    links = dict.fromkeys(("east->west", "west->east"), f"{INPUT}|{OUTPUT}|{APPLICATION}-.*")
    text = settings_text(tmp_path, [east.cluster, west.cluster], links, mirror=QUICK)
    text += "".join(OUTPUTS.format(link=link, group=APPLICATION, output=OUTPUT) for link in links)
    rig = Rig(tmp_path, text)
    rig.process.start()
    counting = Counting(tmp_path)
    yield Stage(SwitchRig(rig, INPUT, east, west), counting)
    counting.kill()
    rig.process.end()


def crosses(stage: Stage) -> None:
    """Each of its topics is carried, the internal ones too, and the group follows."""
    west = stage.switch.west.cluster
    for topic in TOPICS:
        until(
            lambda topic=topic: sum(end for _, end in spans(west, topic, PARTITIONS)) > 20,  # type: ignore[misc]
            PATIENCE_S,
            f"{topic} is carried",
            stage.switch.rig,
        )
    until(
        lambda: max(stands(stage.switch.west, INPUT)) > 0,
        PATIENCE_S,
        "the group follows",
        stage.switch.rig,
    )


@pytest.mark.long
@pytest.mark.claim(
    "switch", "streams", "Kafka Streams with exactly-once-v2 moves, planned and by force at rest: counts are the truth"
)
def test_counts_are_the_truth_planned_and_by_force_at_rest(stage: Stage) -> None:
    east, west = stage.sides
    with (
        FollowingApplication(stage.counting, {lab.name: lab.cluster for lab in stage.sides}, "east") as application,
        stage.feed("east") as feed,
    ):
        crosses(stage)
        said = stage.switch.switch("run", *TOPICS, "--to", "west", "--yes", "--hold-s", "240")
        assert said.code == 0, said.text
        print(f"told: {said.last}")
        moved = len(feed.acked)
        until(lambda: len(feed.acked) > moved + 200, PATIENCE_S, "the feed goes on", stage.switch.rig)
        acked = feed.stop()
        assert {one.cluster for one in acked} == {"east", "west"}
        assert application.starts == ["east", "west"]
        stage.until_counted(west, acked)
        print(f"told: planned: {len(acked)} records, {len(feed.aborted)} aborted; counts on west are the truth")
    stage.until_level()

    for broker in west.brokers:
        broker.kill()
    said = stage.switch.switch("run", *TOPICS, "--to", "east", "--force", "--yes")
    assert said.code == 0, said.text
    stage.counting.start(east.cluster)
    with stage.feed("east", follows=False) as feed:
        until(lambda: len(feed.acked) > 200, PATIENCE_S, "it is fed on east", stage.switch.rig)
        more = feed.stop()
    stage.until_counted(east, [*acked, *more])
    print(f"told: by force at rest: {len(acked) + len(more)} records; counts on east are the truth")


@pytest.mark.long
@pytest.mark.claim(
    "switch",
    "streams-in-flight",
    "the same by force in full flight: the preview names what may be torn, nothing is missing",
)
def test_in_full_flight_the_preview_names_what_may_be_torn(stage: Stage) -> None:
    east, west = stage.sides
    mirror = stage.switch.rig.process.child
    stage.counting.start(east.cluster)
    with stage.feed("east", follows=False) as feed:
        crosses(stage)
        # What is taken while the mirror stands still has not crossed.
        mirror.send(signal.SIGSTOP)
        taken = len(feed.acked)
        until(lambda: len(feed.acked) > taken + 100, PATIENCE_S, "more is taken")
        feed.kill()
        for broker in east.brokers:
            broker.kill()
        stage.counting.kill()
        mirror.send(signal.SIGCONT)
    said = stage.switch.switch("run", *TOPICS, "--to", "west", "--force", "--yes")
    assert said.code == 0, said.text
    torn = re.search(rf"group {APPLICATION} may be torn: it reads up to .*", said.text)
    assert torn, said.text
    assert all(topic in torn[0] for topic in (OUTPUT, REPARTITION, CHANGELOG)), said.text
    print(f"told: {torn[0]}")

    again, truth = reads_again(west), fed(west.cluster)
    stage.counting.start(west.cluster)
    sentinels = pass_through(west)

    def passed() -> bool:
        assert stage.counting.runs, stage.counting.said()
        return counts(west.cluster).keys() >= sentinels

    until(passed, PATIENCE_S, "all that was there is counted", stage.switch.rig)
    counted = {key: numbers[-1] for key, numbers in counts(west.cluster).items() if key not in sentinels}
    assert counted.keys() == truth.keys()
    more = {key: counted[key] - truth[key] for key in truth if counted[key] != truth[key]}
    assert all(number > 0 for number in more.values()), "nothing of what crossed is left out"

    # What had been counted and never crossed is known once the old home is there again.
    stage.counting.stop()
    stage.switch.rig.process.end()
    for broker in east.brokers:
        broker.restart()
    lost = sum(fed(east.cluster).values()) - sum(truth.values())
    print(f"told: {sum(truth.values())} records on west and {lost} more on east; {again} offsets read again;")
    print(f"told: {sum(more.values())} counted too much, of {len(more)} keys; none is missing")
    assert sum(more.values()) <= again + lost


def reads_again(lab: LabCluster) -> int:
    """How many offsets lie behind the group's places, in what it reads; a partition without one is read from its
    beginning, as Kafka Streams does."""
    return sum(
        end - (at if at >= 0 else begin)
        for topic in (INPUT, REPARTITION)
        for (begin, end), at in zip(spans(lab.cluster, topic, PARTITIONS), stands(lab, topic), strict=True)
    )


def stands(lab: LabCluster, topic: str) -> list[int]:
    return read_group_offsets(lab.cluster, APPLICATION, topic, range(PARTITIONS))


def pass_through(lab: LabCluster) -> set[str]:
    """Keys of records behind all that the input holds: once each is counted, so is everything before them. From each
    partition of the input one reaches each partition behind it."""
    producer = Producer(client_settings(lab.cluster))
    keys = {f"last-{partition}-{number}": partition for partition in range(PARTITIONS) for number in range(20)}
    for key, partition in keys.items():
        producer.produce(INPUT, b"last", key.encode(), partition=partition)
    assert producer.flush(60) == 0
    return set(keys)
