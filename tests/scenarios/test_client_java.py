"""The producer in Java goes along with its topics by home lines alone, as that in Python does."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenarios.test_client_homes import Both
from tests.scenarios.test_following_writers import Hand, both, records, until
from twinshore.homes.home_lines import HomeState
from twinshore.lab import LabCluster
from twinshore.lab.jars import compiled, kafka_classpath
from twinshore.lab.jvm import java

__all__ = ["both"]
SOURCES = Path(__file__).resolve().parents[2] / "clients" / "java" / "src" / "main" / "java"
TOPIC, PARTITIONS, RECORDS_S = "java-writes", 2, 500


class Load:
    """The example of the client's own, as a process."""

    def __init__(self, classpath: str, folder: Path, east: LabCluster, west: LabCluster) -> None:
        self._said = folder / "said"
        servers = [",".join(lab.cluster.bootstrap) for lab in (east, west)]
        words = ["-XX:TieredStopAtLevel=1", "-cp", classpath, "io.twinshore.client.Load"]
        with self._said.open("wb") as said, (folder / "log").open("wb") as log:
            command = [java(), *words, TOPIC, *servers, str(RECORDS_S)]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=said, stderr=log)

    def lines(self) -> list[str]:
        return self._said.read_text().splitlines()

    def acked(self) -> int:
        return sum(line.startswith("acked ") for line in self.lines())

    def end(self) -> int:
        """How many records are left."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        until(lambda: self.lines()[-1].startswith("left "), 90, "it ends")
        assert self._process.wait(60) == 0
        return int(self.lines()[-1].split()[1])

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=30)


@pytest.fixture
def load(tmp_path: Path, east: LabCluster, west: LabCluster) -> Iterator[Load]:
    for lab in (east, west):
        lab.create_topic(TOPIC, partitions=PARTITIONS)
    (tmp_path / "classes").mkdir()
    found = Load(compiled(SOURCES, kafka_classpath(), tmp_path / "classes"), tmp_path, east, west)
    yield found
    found.kill()


def numbers(lab: LabCluster) -> dict[bytes, list[int]]:
    """Of each key, as they lie there."""
    found: dict[bytes, list[int]] = defaultdict(list)
    for partition in range(PARTITIONS):
        for _, key, value in records(lab, TOPIC, partition):
            found[key].append(int(value))
    return found


@pytest.mark.long
def test_nothing_is_lost_or_out_of_order_and_a_planned_switch_doubles_nothing(
    both: Both, east: LabCluster, west: LabCluster, load: Load
) -> None:
    hand = Hand(TOPIC, *both)
    until(lambda: load.acked() > 1_000, 60, "it writes")
    hand.say("east", 1, 1, HomeState.ANNOUNCED)
    line = hand.say("east", 1, 2, HomeState.HELD)
    assert hand.living() == ["java-load"]
    hand.wait(line, 30)
    held = {key: list(some) for key, some in numbers(east).items()}
    hand.say("west", 2, 0, HomeState.SETTLED, points=(0, 0))
    until(lambda: sum(map(len, numbers(west).values())) > 1_000, 60, "it writes at the new home")
    assert numbers(east) == held, "nothing was on its way any more"

    # By force, without a word before.
    hand.say("east", 3, 0, HomeState.SETTLED, points=(0, 0))
    before = sum(map(len, held.values()))
    until(lambda: sum(map(len, numbers(east).values())) > before + 1_000, 60, "it writes at the old home again")
    assert load.end() == 0
    until(lambda: hand.living() == [], 60, "it says goodbye")

    said = load.lines()
    assert not [one for one in said if one.startswith("refused")]
    acked = {int(one.split()[-1]) for one in said if re.match(r"acked \d+ \d+ key-\d \d+$", one)}
    assert acked == set(range(len(acked)))
    first, second = numbers(east), numbers(west)
    for key in first:
        for some in (first[key], second[key]):
            assert some == sorted(set(some)), "in order, and once on each"
        planned = held[key] + second[key]
        assert planned == sorted(set(planned)), "the planned switch doubles nothing"
    found = {number for some in (first, second) for one in some.values() for number in one}
    assert found == acked
