"""The examples as they stand, on two real clusters: killed again and again, moved with their topic."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from sqlalchemy import create_engine, inspect, text

from testkit.databases import MariaDbServer, PostgresServer
from tests.scenarios.test_client_homes import Both, sites
from tests.scenarios.test_following_writers import Hand, both, until
from twinshore.lab.clients import client_settings, read_group_offsets
from twinshore.lab.cluster import LabCluster
from twinshore.routing.core.home_records import HomeState

__all__ = ["both"]
ROOT = Path(__file__).resolve().parents[2]
PARTITIONS = 2
Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def topic(request: pytest.FixtureRequest, east: LabCluster, west: LabCluster) -> str:
    name = "".join(one if one.isalnum() else "-" for one in request.node.name)[-60:]
    for lab in (east, west):
        lab.create_topic(name, partitions=PARTITIONS)
    return name


@pytest.fixture
def start(tmp_path: Path, east: LabCluster, west: LabCluster) -> Iterator[Start]:
    """`examples/NAME.py` with clusters.json, the first word, where it takes one."""
    clusters = tmp_path / "clusters.json"
    # One that was killed is missed after six seconds, not after a minute.
    quick = {"session.timeout.ms": 6_000}
    clusters.write_text(json.dumps({name: settings | quick for name, settings in sites(east, west).items()}))
    running: list[subprocess.Popen[bytes]] = []

    def started(name: str, *words: str) -> subprocess.Popen[bytes]:
        told = words if name == "worker" else (str(clusters), *words)
        command = [sys.executable, str(ROOT / "examples" / f"{name}.py"), *told]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        with (tmp_path / f"{name}.log").open("ab") as log:
            running.append(subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT))
        return running[-1]

    yield started
    for process in running:
        process.kill()
        process.wait(30)


def write(lab: LabCluster, topic: str, numbers: range, word: bytes = b"") -> None:
    """Number n to partition n % 2, so that two clusters that are given the same hold the same at each offset."""
    producer = Producer({**client_settings(lab.cluster), "linger.ms": 20, "enable.idempotence": True})
    for number in numbers:
        producer.produce(topic, word or b"%d" % number, partition=number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(60) == 0


@pytest.fixture(params=["sqlite", *(pytest.param(one, marks=pytest.mark.long) for one in ("postgres", "mariadb"))])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/inbox.db"
    server: PostgresServer | MariaDbServer = request.getfixturevalue(request.param)
    return server.new_database()


def test_what_is_read_is_in_the_database_once_whoever_is_killed_and_wherever_the_topic_moves(
    both: Both, east: LabCluster, west: LabCluster, topic: str, start: Start, database: str
) -> None:
    hand, engine = Hand(topic, *both), create_engine(database)

    def asked(query: str) -> list[tuple[object, ...]]:
        with engine.connect() as connection:
            return [tuple(row) for row in connection.execute(text(query))]

    def inbox() -> int:
        return int(str(asked("SELECT count(*) FROM inbox")[0][0]))

    def done() -> Counter[str]:
        return Counter({str(word): int(str(times)) for word, times in asked("SELECT word, times FROM words")})

    for lab in (east, west):
        write(lab, topic, range(2_000))
    reader, worker = start("exactly_once", topic, "billing", database), start("worker", database)
    until(lambda: inspect(engine).has_table("inbox") and inbox() > 0, 60, "it reads")
    for more in range(4):
        (reader, worker)[more % 2].kill()
        write(east, topic, range(2_000 + more * 100, 2_100 + more * 100))
        write(west, topic, range(2_000 + more * 100, 2_100 + more * 100))
        if more % 2:
            worker = start("worker", database)
        else:
            reader = start("exactly_once", topic, "billing", database)
        time.sleep(0.5)
    until(lambda: inbox() == 2_400, 90, "all is read")

    held = hand.say("east", 1, 1, HomeState.HELD)
    hand.wait(held, 60)
    hand.say("west", 2, 0, HomeState.SETTLED, points=(1_200, 1_200))
    write(west, topic, range(2_400, 2_500))
    until(lambda: inbox() == 2_500, 90, "it goes on at the other cluster")
    until(lambda: sum(done().values()) == 2_500, 90, "all is done")
    assert done() == Counter(str(number) for number in range(2_500))

    # By force: ten records of each partition never crossed. The reader is not there when the topic moves.
    write(west, topic, range(20), b"tail")
    until(lambda: sum(done().values()) == 2_520, 90, "the tail is done")
    reader.kill()
    reader.wait(30)
    write(east, topic, range(2_400, 2_500))
    hand.say("east", 3, 0, HomeState.SETTLED, points=(1_250, 1_250))
    write(east, topic, range(2_500, 2_540))
    start("exactly_once", topic, "billing", database)
    until(lambda: sum(done().values()) == 2_560, 90, "what the new home has at the tail's offsets is read as well")
    assert done() == Counter([*(str(number) for number in range(2_540)), *["tail"] * 20])
    assert asked("SELECT min(next), max(next), min(term), max(term) FROM places") == [(1_270, 1_270, 3, 3)]
    engine.dispose()


@pytest.mark.parametrize("habit", ["auto_commit", "commit_after"])
def test_the_other_two_habits_leave_a_place_behind_and_go_on_from_it(
    both: Both, east: LabCluster, topic: str, start: Start, tmp_path: Path, habit: str
) -> None:
    def read() -> list[str]:
        file = tmp_path / f"{habit}.log"
        return file.read_text().split("\n")[:-1] if file.exists() else []

    Hand(topic, *both)
    write(east, topic, range(100))
    reader = start(habit, topic, f"{topic}-readers")
    until(lambda: len(read()) == 100, 60, "all is read")
    until(
        lambda: read_group_offsets(east.cluster, f"{topic}-readers", topic, [0, 1]) == [50, 50], 60, "it has committed"
    )
    reader.kill()
    reader.wait(30)
    write(east, topic, range(100, 120))
    start(habit, topic, f"{topic}-readers")
    until(lambda: len(read()) >= 120, 90, "the rest is read")
    assert sorted(read()) == sorted(f"{number % 2} {number // 2}" for number in range(120))
