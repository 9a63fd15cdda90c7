"""Each configuration centre sends running clients elsewhere; one that lies, is empty or away changes nothing."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from testkit.log_lines import LogLines
from tests.client.test_clients import settings
from tests.scenarios.mirror_rig import spans
from tests.scenarios.test_client_pushed import Reading, Writing, push, until
from tests.switch.config_service.served import PushProcess
from twinshore.client import FailoverConsumer, FailoverProducer
from twinshore.client.discovery.config_service import RETRY_DELAY_S, Pushes, PushFile, PushQuery, PushSource
from twinshore.client.discovery.http import PushServer
from twinshore.lab.cluster import LabCluster

WITHIN_S = 2.0


@dataclass
class Centre:
    """`source`: one for each client; `say` puts a text there; `away` takes the centre away, `back` brings it again."""

    source: Callable[[], PushSource]
    say: Callable[[str], None]
    away: Callable[[], None]
    back: Callable[[], None]


@contextmanager
def by_file(folder: Path) -> Iterator[Centre]:
    file = folder / "push.json"
    gone = file.with_suffix(".gone")
    yield Centre(
        lambda: PushFile(file), lambda text: push(file, text), lambda: away(file, gone), lambda: away(gone, file)
    )


def away(file: Path, to: Path) -> None:
    file.rename(to)


@contextmanager
def by_database(folder: Path) -> Iterator[Centre]:
    """A row of the application's own database, asked once a second."""
    file = folder / "shop.db"

    def run(statement: str, *values: str) -> list[tuple[str]]:
        with closing(sqlite3.connect(file)) as connection, connection:
            return connection.execute(statement, values).fetchall()

    def ask() -> str:
        return run("SELECT text FROM told")[0][0]

    run("CREATE TABLE told (text TEXT)")
    run("INSERT INTO told VALUES ('')")
    yield Centre(
        lambda: PushQuery(ask, every_s=1.0),
        lambda text: void(run("UPDATE told SET text = ?", text)),
        lambda: void(run("ALTER TABLE told RENAME TO gone")),
        lambda: void(run("ALTER TABLE gone RENAME TO told")),
    )


def void(_: object) -> None:
    """For what is done for its effect."""


@contextmanager
def by_server(folder: Path) -> Iterator[Centre]:
    """`twinshore push serve`, killed where it goes away. What no client would take it refuses before it is told."""
    served = PushProcess(folder, f"sqlite:///{folder}/store.db")
    token = served.command("token", "shop").stdout.strip()

    def say(text: str) -> None:
        file = folder / "said.json"
        file.write_text(text)
        assert served.command("set", "shop", str(file)).returncode in (0, 2)

    try:
        served.start()
        yield Centre(lambda: PushServer(served.address, "shop", token=token), say, served.close, served.start)
    finally:
        served.close()


def pushed(home: str, east: LabCluster, west: LabCluster, expected: str = "") -> str:
    clusters = {"east": settings(east), "west": settings(west)}
    if expected:
        clusters[home] = {**clusters[home], "twinshore.cluster.id": expected}
    return json.dumps({"clusters": clusters, "home": home})


@pytest.mark.long
@pytest.mark.claim(
    "client", "centres", "each centre switches running clients within 2 s; lying, empty or away: no change"
)
@pytest.mark.parametrize("centre", [by_file, by_database, by_server])
def test_running_clients_go_where_a_centre_sends_them(
    centre: Callable[[Path], AbstractContextManager[Centre]],
    east: LabCluster,
    west: LabCluster,
    unique_topic: str,
    tmp_path: Path,
    log_lines: LogLines,
) -> None:
    for lab in (east, west):
        lab.create_topic(unique_topic, partitions=2)
    config = {"group.id": f"{unique_topic}-readers", "auto.offset.reset": "earliest"}
    with centre(tmp_path) as found:
        found.say(pushed("east", east, west))
        first, second = (Pushes(found.source(), last_good=tmp_path / f"{name}.last") for name in ("writes", "reads"))
        with (
            FailoverProducer({}, clusters=first, topics=[unique_topic]) as producer,
            FailoverConsumer(config, clusters=second) as consumer,
        ):
            consumer.subscribe([unique_topic])
            writing, reading = Writing(producer, unique_topic), Reading(consumer)
            until("read on east", lambda: reading.has(10))
            # It lies, says nothing, or is away: nobody goes anywhere, and writing goes on.
            for wrong in ("", "{}", pushed("west", east, west)[:-20], pushed("north", east, west)):
                found.say(wrong)
            found.say(pushed("east", east, west))
            found.away()
            seen = len(writing.answers)
            until("it is told that the centre is away", lambda: any("cannot be asked" in one for one in log_lines))
            until("it is written meanwhile", lambda: len(writing.answers) > seen + 500)
            assert set(writing.answers.values()) == {"east"}
            found.back()
            time.sleep(2 * RETRY_DELAY_S)  # what was away is asked again by then

            found.say(pushed("west", east, west))
            began = time.monotonic()
            until("written on west", lambda: "west" in writing.answers.values())
            written_s = time.monotonic() - began
            until("consumed on west", lambda: reading.has(1) and consumer.where(unique_topic) == "west")
            consumed_s = time.monotonic() - began
            calls = writing.end()
            late = {number for number, where in writing.answers.items() if where == "west"}
            until("what was written there is read", lambda: reading.has(1) and late <= reading.numbers())
            name = centre.__name__.replace("_", " ")
            print(
                f"told: {name}: written at the new cluster after {written_s:.2f} s, consumed after {consumed_s:.2f} s"
            )
            assert max(written_s, consumed_s) < WITHIN_S
    assert sum(end for lab in (east, west) for _, end in spans(lab.cluster, unique_topic, 2)) == calls
    for key, numbers in reading.found.items():
        assert numbers == sorted(set(numbers)), f"{key!r} out of order, or twice"


@pytest.mark.long
def test_a_push_that_names_another_cluster_sends_nothing_there(
    east: LabCluster, west: LabCluster, unique_topic: str, tmp_path: Path, log_lines: LogLines
) -> None:
    for lab in (east, west):
        lab.create_topic(unique_topic)
    with by_server(tmp_path) as found:
        found.say(pushed("east", east, west))
        with FailoverProducer({}, clusters=Pushes(found.source()), topics=[unique_topic]) as producer:
            producer.produce(unique_topic, b"1")
            assert producer.flush(30) == 0
            found.say(pushed("west", east, west, expected="another"))
            until("it is told", lambda: any("not another" in one for one in log_lines))
            producer.produce(unique_topic, b"2")
            assert producer.flush(2) == 1, "kept back"
            assert spans(west.cluster, unique_topic, 1) == [(0, 0)]
            found.say(pushed("west", east, west))
            assert producer.flush(30) == 0
    assert spans(west.cluster, unique_topic, 1) == [(0, 1)]
