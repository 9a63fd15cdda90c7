"""The producer and the consumer in C++ go along with their topics, by home lines alone and with a switch. They need a
compiler and librdkafka, which a user need not have: without, these tests are left out."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import Producer

from testkit.switch_under_load import records_of
from tests.conftest import ClusterFactory
from tests.scenarios.mirror_rig import spans, until
from tests.scenarios.switch_rig import carried
from tests.scenarios.test_client_homes import Both
from tests.scenarios.test_following_writers import Hand, both, records
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.clients import client_settings, read_group_offsets
from twinshore.lab.cluster import LabCluster
from twinshore.routing.core.home_records import HomeState

__all__ = ["both"]
ROOT = Path(__file__).resolve().parents[2] / "clients" / "cpp"
HEADERS = "#include <librdkafka/rdkafka.h>\n#include <nlohmann/json.hpp>\n"
PARTITIONS, RECORDS_S = 2, 500


class Example:
    """One of the client's own, as a process."""

    def __init__(self, program: Path, folder: Path, *words: str) -> None:
        self._said = folder / f"{program.name}.said"
        with self._said.open("wb") as said, (folder / f"{program.name}.log").open("wb") as log:
            self._process = subprocess.Popen([program, *words], stdin=subprocess.PIPE, stdout=said, stderr=log)

    def lines(self, kind: str) -> list[list[str]]:
        """The words of those that begin so."""
        assert self._process.poll() in (None, 0), "it has ended badly"
        whole = self._said.read_text().rpartition("\n")[0]
        return [words[1:] for words in map(str.split, whole.splitlines()) if words[0] == kind]

    def end(self) -> str:
        """The last line that it says."""
        self._process.communicate(b"\n", timeout=120)
        assert self._process.returncode == 0
        return self._said.read_text().splitlines()[-1]

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=30)


Start = Callable[..., Example]


def lacking() -> str:
    """What it takes to build them and is not here."""
    if missing := [needed for needed in ("make", "g++") if shutil.which(needed) is None]:
        return missing[0]
    asked = subprocess.run(["g++", "-E", "-x", "c++", "-"], input=HEADERS, capture_output=True, text=True, check=False)
    return "librdkafka-dev or nlohmann-json3-dev, as Debian calls them" if asked.returncode else ""


def not_played(missing: str) -> str:
    return f"not played: here is no {missing}, so the clients in C++ are not built"


def make(out: Path) -> list[str]:
    return ["make", "-C", str(ROOT), f"OUT={out}", "CXXFLAGS=-O1 -Werror"]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """Where they are built; None where that cannot be."""
    if missing := lacking():
        print(f"told: {not_played(missing)}")
        return None
    out = tmp_path_factory.mktemp("cpp")
    subprocess.run([*make(out), "all"], check=True, stdout=subprocess.DEVNULL)
    return out


@pytest.fixture
def start(programs: Path | None, tmp_path: Path) -> Iterator[Start | None]:
    if programs is None:
        yield None
        return
    folder, started = programs, list[Example]()

    def begin(name: str, words: Sequence[str], labs: Sequence[LabCluster], more: Sequence[str] = ()) -> Example:
        servers = [",".join(lab.cluster.bootstrap) for lab in labs]
        started.append(Example(folder / name, tmp_path, *words, *servers, *more))
        return started[-1]

    yield begin
    for one in started:
        one.kill()


names = count(1)


@pytest.fixture
def topic(east: LabCluster, west: LabCluster) -> str:
    name = f"cpp-{next(names)}"
    for lab in (east, west):
        lab.create_topic(name, partitions=PARTITIONS)
    return name


def numbers(lab: LabCluster, topic: str) -> dict[bytes, list[int]]:
    """Of each key, as they lie there."""
    found: dict[bytes, list[int]] = defaultdict(list)
    for partition in range(PARTITIONS):
        for _, key, value in records(lab, topic, partition):
            found[key].append(int(value))
    return found


def size(lab: LabCluster, topic: str) -> int:
    """Also while it grows."""
    return sum(end for _, end in spans(lab.cluster, topic, PARTITIONS))


def acked_by(load: Example) -> set[int]:
    return {int(words[-1]) for words in load.lines("acked")}


def write(lab: LabCluster, topic: str, values: Sequence[int], partition: int = 0) -> None:
    producer = Producer(client_settings(lab.cluster))
    for one in values:
        producer.produce(topic, b"%d" % one, b"key", partition)
    assert producer.flush(60) == 0


def copy(source: LabCluster, target: LabCluster, topic: str) -> tuple[int, ...]:
    """As a mirror does it, once nobody writes; where each partition ends."""
    producer, ends = Producer(client_settings(target.cluster)), []
    for partition in range(PARTITIONS):
        found = list(records(source, topic, partition))
        for _, key, value in found:
            producer.produce(topic, value, key, partition)
        ends.append(len(found))
    assert producer.flush(60) == 0
    return tuple(ends)


@pytest.mark.long
def test_its_consumer_holds_what_takes_no_broker(programs: Path | None) -> None:
    if programs is None:
        return  # Not every system has a compiler and librdkafka.
    subprocess.run([*make(programs), "check"], check=True, timeout=300)


@pytest.mark.long
def test_a_producer_s_records_are_neither_lost_nor_out_of_order(
    both: Both, east: LabCluster, west: LabCluster, topic: str, start: Start | None
) -> None:
    """A planned switch, which doubles nothing, and one by force without a word before."""
    if start is None:
        return  # Not every system has a compiler and librdkafka.
    hand, load = Hand(topic, *both), start("load", [topic], (east, west), [str(RECORDS_S)])
    until(lambda: len(load.lines("acked")) > 1_000, 60, "it writes")
    hand.say("east", 1, 1, HomeState.ANNOUNCED)
    line = hand.say("east", 1, 2, HomeState.HELD)
    print(f"told: it parked within {hand.wait(line, 30):.2f} s")
    assert hand.living() == ["cpp-load"]
    held = {key: list(some) for key, some in numbers(east, topic).items()}
    hand.say("west", 2, 0, HomeState.SETTLED, points=(0, 0))
    until(lambda: size(west, topic) > 1_000, 60, "it writes at the new home")
    assert numbers(east, topic) == held, "nothing was on its way any more"

    hand.say("east", 3, 0, HomeState.SETTLED, points=(0, 0))
    before = sum(map(len, held.values()))
    until(lambda: size(east, topic) > before + 1_000, 60, "it writes at the old home again")
    assert load.end() == "left 0"
    until(lambda: hand.living() == [], 60, "it says goodbye")

    assert not load.lines("refused")
    assert all(re.fullmatch(r"\d+ \d+ key-\d \d+", " ".join(words)) for words in load.lines("acked"))
    acked = acked_by(load)
    assert acked == set(range(len(acked)))
    first, second = numbers(east, topic), numbers(west, topic)
    for key in first:
        for some in (first[key], second[key]):
            assert some == sorted(set(some)), "in order, and once on each"
        planned = held[key] + second[key]
        assert planned == sorted(set(planned)), "the planned switch doubles nothing"
    assert {number for some in (first, second) for one in some.values() for number in one} == acked
    print(f"told: {len(acked)} records; {size(east, topic) + size(west, topic) - len(acked)} are on both clusters")


@pytest.mark.long
def test_a_consumer_reads_each_record_once_through_a_planned_switch(
    both: Both, east: LabCluster, west: LabCluster, topic: str, start: Start | None
) -> None:
    """The group's place is not carried, so that its own position is what counts; what it has committed is told."""
    if start is None:
        return  # Not every system has a compiler and librdkafka.
    hand, group = Hand(topic, *both), f"{topic}-readers"
    load = start("load", [topic], (east, west), [str(RECORDS_S)])
    reader = start("read", [topic, group], (east, west))
    until(lambda: len(reader.lines("read")) > 1_000, 60, "it reads")
    hand.say("east", 1, 1, HomeState.ANNOUNCED)
    line = hand.say("east", 1, 2, HomeState.HELD)
    print(f"told: both parked within {hand.wait(line, 30):.2f} s")
    assert hand.living() == ["cpp-load", "cpp-read"]
    assert reader.lines("leaves") == [["east"]]
    read = Counter(int(words[1]) for words in reader.lines("read"))
    assert read_group_offsets(east.cluster, group, topic, range(PARTITIONS)) == [read[one] for one in range(PARTITIONS)]
    hand.say("west", 2, 0, HomeState.SETTLED, points=copy(east, west, topic))
    until(lambda: len(reader.lines("moved")) == 1, 60, "it joins at the new home")
    behind = len(reader.lines("read"))
    until(lambda: len(reader.lines("read")) > behind + 1_000, 60, "it reads on")
    assert load.end() == "left 0"
    until(lambda: len(reader.lines("read")) >= len(load.lines("acked")), 60, "it reads to the end")
    assert reader.end() == "done"
    until(lambda: hand.living() == [], 60, "they say goodbye")
    assert reader.lines("moved") == [["east", "west"]]
    each_once(reader, [(one, *record) for one in range(PARTITIONS) for record in records(west, topic, one)])


def each_once(reader: Example, log: Sequence[tuple[int, int, bytes, bytes]]) -> None:
    """What it has read is what lies there, each record once, in each partition in order."""
    found = [(int(words[1]), int(words[2]), " ".join(words[3:]).encode()) for words in reader.lines("read")]
    assert len(found) == len(set(found)), "something is read again"
    for partition in {one[0] for one in log}:
        mine = [one for one in found if one[0] == partition]
        there = [(at, key + b" " + value) for number, at, key, value in log if number == partition]
        assert mine == [(partition, *one) for one in there], "left out, or out of order"
    print(f"told: {len(found)} records were read, each of them once")


@pytest.mark.long
def test_a_consumer_reads_on_at_the_point_of_a_forced_switch(
    both: Both, east: LabCluster, west: LabCluster, topic: str, start: Start | None
) -> None:
    if start is None:
        return  # Not every system has a compiler and librdkafka.
    hand = Hand(topic, *both)
    write(east, topic, range(20))
    write(west, topic, [*range(10), *range(100, 105)])
    reader = start("read", [topic, f"{topic}-readers"], (east, west))
    until(lambda: len(reader.lines("read")) == 20, 60, "it reads")
    hand.say("west", 2, 0, HomeState.SETTLED, points=(10, 0))
    until(lambda: len(reader.lines("read")) >= 25, 60, "it reads on")
    write(west, topic, [105])
    until(lambda: len(reader.lines("read")) >= 26, 60, "it reads what is new")
    assert reader.end() == "done"
    assert [(words[0], int(words[2])) for words in reader.lines("read")[20:]] == [("west", at) for at in range(10, 16)]
    assert [int(words[-1]) for words in reader.lines("read")] == [*range(20), *range(100, 106)]


@pytest.mark.long
def test_a_topic_that_stays_is_read_on_while_its_neighbour_moves(
    both: Both, east: LabCluster, west: LabCluster, topic: str, start: Start | None
) -> None:
    if start is None:
        return  # Not every system has a compiler and librdkafka.
    hand, stays = Hand(topic, *both), f"{topic}-stays"
    east.create_topic(stays, partitions=PARTITIONS)
    write(east, topic, range(10))
    write(east, stays, range(1_000, 1_010))
    reader = start("read", [f"{topic},{stays}", f"{topic}-readers"], (east, west))
    until(lambda: len(reader.lines("read")) == 20, 60, "it reads")
    hand.wait(hand.say("east", 1, 1, HomeState.HELD), 30)
    write(east, stays, range(1_010, 1_020))
    until(lambda: len(reader.lines("read")) == 30, 60, "it reads on what stays while its neighbour is held")
    hand.say("west", 2, 0, HomeState.SETTLED, points=copy(east, west, topic))
    write(west, topic, range(10, 20))
    until(lambda: len(reader.lines("read")) >= 40, 60, "it reads on both")
    write(east, stays, range(1_020, 1_030))
    until(lambda: len(reader.lines("read")) >= 50, 60, "it reads on what stays")
    assert reader.end() == "done"
    found = [int(words[-1]) for words in reader.lines("read")]
    assert sorted(found) == [*range(20), *range(1_000, 1_030)]
    assert (reader.lines("leaves"), reader.lines("moved")) == ([["east"]], [["east", "west"]])


@pytest.mark.long
def test_both_go_on_when_their_home_is_killed(cluster_factory: ClusterFactory, start: Start | None) -> None:
    """Nothing had crossed: what the dead home acknowledged stays there, all else arrives, in order."""
    if start is None:
        return  # Not every system has a compiler and librdkafka.
    east, west = (cluster_factory(name, heap_mb=256) for name in ("east", "west"))
    topic = "cpp-killed"
    for lab in (east, west):
        lab.create_topic(topic, partitions=PARTITIONS)
    with closing(KafkaCluster(west.cluster, patience_s=10)) as kafka:
        hand = Hand(topic, kafka)
        load = start("load", [topic], (east, west), [str(RECORDS_S)])
        reader = start("read", [topic, f"{topic}-readers"], (east, west))
        until(lambda: len(reader.lines("read")) > 1_000, 60, "it reads")
        for broker in east.brokers:
            broker.kill()
        time.sleep(1.0)  # Answers that were on their way are told.
        old = acked_by(load)
        hand.say("west", 2, 0, HomeState.SETTLED, points=(0, 0))
        took_s = until(lambda: size(west, topic) > 1_000, 60, "it writes at the new home")
        print(f"told: it had written a thousand records at the new home {took_s:.1f} s behind the kill")
        assert load.end() == "left 0"
        on_west = size(west, topic)
        until(lambda: sum(words[0] == "west" for words in reader.lines("read")) == on_west, 60, "it reads all of it")
        assert reader.end() == "done"
    assert not load.lines("refused")
    acked = acked_by(load)
    assert acked == set(range(len(acked)))
    found = numbers(west, topic)
    for some in found.values():
        assert some == sorted(set(some)), "in order, and once"
    assert {number for some in found.values() for number in some} >= acked - old, "it was acknowledged there"


@pytest.mark.long
@pytest.mark.claim(
    "client", "cpp", "clients in C++ go along with planned switches, there and back: 0 lost or doubled, 0 read again"
)
def test_both_go_along_with_a_switch_and_come_back(
    east: LabCluster, west: LabCluster, tmp_path: Path, start: Start | None
) -> None:
    """Nothing is lost, doubled or out of order, and nothing is read again or left out."""
    if start is None:
        print(f"told: {not_played(lacking())}")
        return
    topic = "cpp-orders"
    with carried(east, west, topic, tmp_path) as rig:
        load = start("load", [topic], (east, west), [str(RECORDS_S)])
        reader = start("read", [topic, f"{topic}-readers"], (east, west))
        for home in ("west", "east"):
            acked, read = len(load.lines("acked")), len(reader.lines("read"))
            until(lambda least=acked: len(load.lines("acked")) > least + 500, 60, "it writes", rig.rig)  # type: ignore[misc]
            until(lambda least=read: len(reader.lines("read")) > least + 500, 60, "it reads", rig.rig)  # type: ignore[misc]
            said = rig.move(home)
            print("told:", said.last)
            assert said.code == 0, said.text
            until(lambda at=home: reader.lines("moved")[-1][1] == at, 60, "it joins there", rig.rig)  # type: ignore[misc]
        acked = len(load.lines("acked"))
        until(lambda: len(load.lines("acked")) > acked + 500, 60, "it writes on", rig.rig)
        assert load.end() == "left 0"
        log = sorted(records_of(east.cluster, topic))
        until(lambda: len(reader.lines("read")) >= len(log), 60, "it reads to the end", rig.rig)
        assert reader.end() == "done"
        rig.same()
    assert not load.lines("refused")
    acked_ones = [(words[2].encode(), words[3].encode()) for words in load.lines("acked")]
    mine = [(key, value) for _, _, key, value in log if key.startswith(b"key-")]
    assert Counter(mine) == Counter(acked_ones), "each acknowledged record once"
    for key in {key for key, _ in mine}:
        values = [int(value) for one, value in mine if one == key]
        assert values == sorted(values), f"{key!r} in order"
    assert reader.lines("moved") == [["east", "west"], ["west", "east"]]
    each_once(reader, log)
