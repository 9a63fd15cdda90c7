"""The example of exactly once, killed fifty times at moments of chance while its topic is written to."""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest
from sqlalchemy import create_engine, inspect, text

from testkit.databases import PostgresServer
from tests.scenarios.test_client_examples import Start, start, topic, write
from tests.scenarios.test_client_homes import Both
from tests.scenarios.test_following_writers import Hand, both, until
from twinshore.lab.cluster import LabCluster

__all__ = ["both", "start", "topic"]
KILLS, RECORDS_AT_ONCE = 50, 20


class Writing:
    """Twenty records ten times a second, until it is stopped."""

    def __init__(self, lab: LabCluster, topic: str) -> None:
        self.count, self._ended = 0, Event()
        self._thread = Thread(target=self._run, args=(lab, topic))
        self._thread.start()

    def _run(self, lab: LabCluster, topic: str) -> None:
        while not self._ended.wait(0.1):
            write(lab, topic, range(self.count, self.count + RECORDS_AT_ONCE))
            self.count += RECORDS_AT_ONCE

    def stop(self) -> int:
        self._ended.set()
        self._thread.join(90)
        return self.count


@pytest.fixture
def writing(east: LabCluster, topic: str) -> Iterator[Writing]:
    made = Writing(east, topic)
    yield made
    made.stop()


@pytest.mark.long
@pytest.mark.claim("client", "exactly-once", "exactly once by one transaction, killed 50 times at random: table = log")
def test_the_table_is_the_log_however_often_it_is_killed(
    both: Both, topic: str, start: Start, postgres: PostgresServer, writing: Writing, tmp_path: Path
) -> None:
    seed = random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}")
    chance, database = random.Random(seed), postgres.new_database()
    Hand(topic, *both)
    known_again(tmp_path / "clusters.json")
    engine = create_engine(database)

    def done() -> Counter[str]:
        with engine.connect() as connection:
            return Counter({row.word: row.times for row in connection.execute(text("SELECT word, times FROM words"))})

    def begin(name: str) -> subprocess.Popen[bytes]:
        return start(name, database) if name == "worker" else start(name, topic, "billing", database)

    running = {name: begin(name) for name in ("exactly_once", "worker")}
    until(lambda: inspect(engine).has_table("words") and bool(done()), 60, "work is done")
    killed: Counter[str] = Counter()
    for _ in range(KILLS):
        time.sleep(chance.uniform(0.0, 4.0))
        name = chance.choice(sorted(running))
        running[name].kill()
        running[name].wait(30)
        running[name] = begin(name)
        killed[name] += 1
    meanwhile = done().total()
    count = writing.stop()
    until(lambda: done().total() >= count, 120, "all is done")
    print(f"told: killed {dict(killed)}, seed {seed}: {count} records, {meanwhile} done meanwhile, each once")
    assert meanwhile > 0
    assert done() == Counter(str(number) for number in range(count)), "each once, and none left out"
    engine.dispose()


def known_again(clusters: Path) -> None:
    """Whoever starts anew is the same member of the group: nobody waits until the killed one is missed."""
    found = json.loads(clusters.read_text())
    clusters.write_text(json.dumps({name: {**one, "group.instance.id": "billing-1"} for name, one in found.items()}))
