"""Breakers of the proxy before unmodified clients: a topic's traffic stops, clients get no error, and all continues."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from testkit.cluster import RigCluster
from testkit.jars import fetch_tools_classpath
from tests.kafka.protocol.serving.java_clients import java_clients
from tests.proxy.served import ProxyProcess, proxy_before
from tests.scenarios.mirror_rig import spans
from tests.scenarios.plain_clients import JavaWriter, PlainReader, PlainWriter, written
from tests.scenarios.test_following_writers import until
from twinshore.cli.app import app, register_verbs
from twinshore.lab.jars import KAFKA_OLDEST, ONE_COMPILER_FLAG, find_java
from twinshore.state.store import open_store

STILL_S = 3.0
IN_FORCE_MS_MAX = 2_000


@pytest.fixture(scope="module")
def proxy(east: RigCluster, west: RigCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    folder = tmp_path_factory.mktemp("breakers")
    open_store(f"sqlite:///{folder}/store.db").close()
    with proxy_before(folder, east.cluster, west.cluster) as made:
        yield made


def breaker(proxy: ProxyProcess, *words: str) -> str:
    register_verbs()
    done = CliRunner().invoke(app, ["proxy", "breaker", *words, "--settings", str(proxy.settings)])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


def listed(proxy: ProxyProcess, verb: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(breaker(proxy, verb, "--json"))
    return found


def cut(proxy: ProxyProcess, topic: str, *words: str) -> None:
    said = breaker(proxy, "open", topic, "--reason", "a test", *words)
    assert "in force at 1 of 1 proxies" in said, said


def mended(proxy: ProxyProcess, topic: str, *words: str) -> None:
    assert "in force at 1 of 1 proxies" in breaker(proxy, "close", topic, *words)


def count_of(lab: RigCluster, topic: str) -> int:
    ((first, end),) = spans(lab.cluster, topic, 1)
    return end - first


class JavaReader:
    """Kafka's verifiable consumer, a member of a group."""

    def __init__(self, folder: Path, bootstrap: str, topic: str) -> None:
        self._said, self._log = folder / "java-reader.said", folder / "java-reader.log"
        words = ["--bootstrap-server", bootstrap, "--topic", topic, "--group-id", f"java-{topic}"]
        words += ["--reset-policy", "earliest"]
        command = [
            find_java(),
            ONE_COMPILER_FLAG,
            "-cp",
            fetch_tools_classpath(),
            "org.apache.kafka.tools.VerifiableConsumer",
            *words,
        ]
        with self._said.open("wb") as said, self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=said, stderr=log)

    def lines(self, name: str) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self._said.read_text().split("\n")[:-1] if line.startswith("{")]
        return [one for one in found if one["name"] == name]

    def count(self) -> int:
        return sum(int(one["count"]) for one in self.lines("records_consumed"))

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)

    def said(self) -> str:
        return self._log.read_text()[-3000:]


@pytest.mark.claim(
    "proxy",
    "breakers",
    "breakers stop produce and fetch traffic before the broker and release it; dropped records are in the incident log",
)
def test_producers_of_a_topic_wait_at_a_breaker_and_those_of_others_go_on(
    proxy: ProxyProcess, east: RigCluster, tmp_path: Path
) -> None:
    """Idempotent ones in Java and of librdkafka, one that is not, and one that writes to another topic as well."""
    topics = ["breaker-cut", "breaker-java", "breaker-plain"]
    for topic in [*topics, "breaker-free"]:
        east.create_topic(topic)
    with ExitStack() as stack:
        plain_words: dict[str, Any] = {"enable.idempotence": False, "acks": 1}
        cut_one = PlainWriter(proxy.bootstrap, "breaker-cut", per_s=300)
        plain = PlainWriter(proxy.bootstrap, "breaker-plain", per_s=300, **plain_words)
        free = PlainWriter(proxy.bootstrap, "breaker-free", per_s=300)
        for writer in (cut_one, plain, free):
            stack.callback(writer.stop)
        in_java = JavaWriter(tmp_path, proxy.bootstrap, "breaker-java")
        stack.callback(in_java.kill)
        in_java.writes(300)
        until(lambda: min(len(one.acked) for one in (cut_one, plain, free)) > 300, 30, "all write")
        for topic in topics:
            cut(proxy, topic, "--produce")
        time.sleep(0.5)  # what had been passed on before is written
        stood = [count_of(east, topic) for topic in topics]
        went_on = len(free.acked)
        time.sleep(STILL_S)
        assert [count_of(east, topic) for topic in topics] == stood, "the broker sees nothing"
        assert len(free.acked) > went_on + 100 * STILL_S
        for topic in topics:
            mended(proxy, topic)
        in_java.writes(300)
        acked = {"breaker-java": in_java.stop()}
        assert in_java.failed() == [], in_java.said()
        for topic, writer in (("breaker-cut", cut_one), ("breaker-plain", plain), ("breaker-free", free)):
            acked[topic] = writer.stop()
            assert (writer.failed, len(writer.acked)) == ([], writer.sent)
    for topic, ours in acked.items():
        found = written(east, topic, ours, 1)
        assert (found.lost, found.doubled) == (0, 0), (topic, found)
        # One that is not idempotent and has several requests under way is reordered by any retry.
        assert found.reordered == 0 or topic == "breaker-plain", (topic, found)
    told = {one["topic"]: one for one in listed(proxy, "list") if one["kind"] == "produce"}
    assert all(told[topic]["records"] > 0 and not told[topic]["open"] for topic in topics)
    assert [one for one in listed(proxy, "drops") if one["topic"] in topics] == []


@pytest.mark.long
@pytest.mark.claim(
    "proxy",
    "breakers",
    "breakers stop produce and fetch traffic before the broker and release it; dropped records are in the incident log",
)
def test_what_a_breaker_drops_is_told_as_written_and_stands_on_the_ledger(
    proxy: ProxyProcess, east: RigCluster, tmp_path: Path
) -> None:
    topics = ["drop-rd", "drop-java", "drop-unheard"]
    for topic in topics:
        east.create_topic(topic)
    with ExitStack() as stack:
        plain_words: dict[str, Any] = {"enable.idempotence": False, "acks": 0}
        writer = PlainWriter(proxy.bootstrap, "drop-rd", per_s=300)
        unheard = PlainWriter(proxy.bootstrap, "drop-unheard", per_s=300, **plain_words)
        for one in (writer, unheard):
            stack.callback(one.stop)
        in_java = JavaWriter(tmp_path, proxy.bootstrap, "drop-java")
        stack.callback(in_java.kill)
        in_java.writes(300)
        until(lambda: min(len(writer.acked), len(unheard.acked)) > 300, 30, "they write")
        cut(proxy, "drop-*", "--produce", "--policy", "drop")
        time.sleep(0.5)
        stood = [count_of(east, topic) for topic in topics]
        count = len(writer.acked)
        in_java.writes(500)
        until(lambda: len(writer.acked) > count + 500, 30, "it takes them for written")
        assert [count_of(east, topic) for topic in topics] == stood
        mended(proxy, "drop-*", "--produce")
        until(lambda: min(count_of(east, one) - was for one, was in zip(topics, stood, strict=True)) > 300, 30, "on")
        in_java.writes(300)
        acked = {"drop-rd": writer.stop(), "drop-unheard": unheard.stop(), "drop-java": in_java.stop()}
        assert (writer.failed, unheard.failed, in_java.failed()) == ([], [], []), in_java.said()
    time.sleep(1)
    ledger = {one["topic"]: one for one in listed(proxy, "drops")}
    for topic, ours in acked.items():
        found = written(east, topic, ours, 1)
        assert ledger[topic]["records"] + found.records == len(ours), (topic, ledger[topic], found)
        assert (found.doubled, found.reordered) == (0, 0), (topic, found)
        assert (ledger[topic]["partitions"], ledger[topic]["breaker"]) == ("0", "drop-*")


@pytest.mark.long
@pytest.mark.claim(
    "proxy",
    "breakers",
    "breakers stop produce and fetch traffic before the broker and release it; dropped records are in the incident log",
)
def test_consumers_of_a_topic_stay_in_their_group_and_read_on_where_they_were(
    proxy: ProxyProcess, east: RigCluster, tmp_path: Path
) -> None:
    for topic in ("still", "flows"):
        east.create_topic(topic)
    with ExitStack() as stack:
        writers = [PlainWriter(proxy.bootstrap, topic, per_s=200) for topic in ("still", "flows")]
        readers = [
            PlainReader(proxy.bootstrap, "of-one", ["still"], **{"session.timeout.ms": 6_000}),
            PlainReader(proxy.bootstrap, "of-both", ["still", "flows"]),
        ]
        for end in [writer.stop for writer in writers] + [reader.stop for reader in readers]:
            stack.callback(end)
        in_java = JavaReader(tmp_path, proxy.bootstrap, "still")
        stack.callback(in_java.stop)
        until(lambda: min(len(readers[0].read), len(readers[1].read), in_java.count()) > 300, 60, "all read")
        cut(proxy, "still", "--fetch")
        time.sleep(1)
        stood = len(readers[0].read), in_java.count()
        flowed = len(readers[1].read)
        asked = proxy.metrics()['twinshore_proxy_requests_total{api="Fetch"}']
        time.sleep(8)  # longer than the session of a member that says nothing
        assert (len(readers[0].read), in_java.count()) == stood
        assert len(readers[1].read) > flowed + 800, "the other topic of the same consumer goes on"
        assert proxy.metrics()['twinshore_proxy_requests_total{api="Fetch"}'] - asked < 8 * 200, "nobody spins"
        mended(proxy, "still", "--fetch")
        until(lambda: len(readers[0].read) > stood[0] + 1_500, 30, "it reads on")
        until(lambda: in_java.count() > stood[1] + 1_500, 30, "it reads on")
        count = sum(len(writer.stop()) for writer in writers)
        until(lambda: len(readers[1].read) >= count, 30, "it reads all")
        for reader in readers:
            reader.stop()
            assert (reader.errors, reader.assigned) == ([], 1)
        assert [place for place, _, _ in readers[0].read] == [(0, number) for number in range(len(readers[0].read))]
        assert readers[0].again() == 0
        assert len(in_java.lines("partitions_assigned")) == 1, in_java.said()
        assert len(in_java.lines("partitions_revoked")) <= 1


@pytest.mark.long
def test_a_breaker_is_in_force_at_every_proxy_soon_and_one_that_was_killed_is_named(
    east: RigCluster, west: RigCluster, tmp_path: Path
) -> None:
    east.create_topic("breaker-two")
    url = f"sqlite:///{tmp_path}/store.db"
    open_store(url).close()
    with ExitStack() as stack:
        some = []
        for name in ("one", "other"):
            (tmp_path / name).mkdir()
            made = ProxyProcess(tmp_path / name, [east.cluster, west.cluster], store=url)
            stack.callback(made.close)
            made.start()
            some.append(made)
        writers = [PlainWriter(one.bootstrap, "breaker-two", per_s=200, name=one.settings.parent.name) for one in some]
        for writer in writers:
            stack.callback(writer.stop)
        until(lambda: all(len(one.acked) > 100 for one in writers), 30, "they write")
        assert "in force at 2 of 2 proxies" in breaker(
            some[0], "open", "breaker-two", "--produce", "--reason", "a test"
        )
        with open_store(url) as store:
            took_up_ms = max(one.seen_ms for one in store.proxies.instances())
            assert took_up_ms - store.breakers.all()[1][0].since_ms < IN_FORCE_MS_MAX
        time.sleep(0.5)
        stood = count_of(east, "breaker-two")
        time.sleep(1)
        assert count_of(east, "breaker-two") == stood
        clients = [one.metrics()["twinshore_proxy_clients_total"] for one in some]
        assert "in force at 2 of 2 proxies" in breaker(some[0], "close", "breaker-two")
        until(lambda: count_of(east, "breaker-two") > stood + 300, 30, "they go on")
        assert [one.metrics()["twinshore_proxy_clients_total"] for one in some] == clients, "no connection ended"
        acked = [one for writer in writers for one in writer.stop()]
        assert [writer.failed for writer in writers] == [[], []]
        found = written(east, "breaker-two", acked, 1)
        assert (found.records, found.wrong) == (len(acked), 0), found
        some[1].close()
        until(lambda: "gone" in stands(some[0]), 30, "it is missed")
        assert stands(some[0]) == ["gone", "serves"]
        assert "in force at 1 of 1 proxies" in breaker(some[0], "open", "breaker-two", "--reason", "a test")
        assert some[0].end() == 0
        assert stands(some[0]) == ["gone"], "one that ended in good order is no longer there"


def stands(proxy: ProxyProcess) -> list[str]:
    register_verbs()
    done = CliRunner().invoke(app, ["proxy", "list", "--json", "--settings", str(proxy.settings)])
    return sorted(one["status"] for one in json.loads(done.output))


@pytest.mark.claim(
    "proxy", "runaway", "a client that runs away trips its breaker, and is let in again once it is quiet"
)
@pytest.mark.long
def test_a_runaway_client_trips_its_breaker_and_is_let_in_again_once_it_is_quiet(
    proxy: ProxyProcess, east: RigCluster
) -> None:
    east.create_topic("runaway")
    limits = ["--records-s", "400", "--above-s", "2", "--quiet-s", "2", "--reason", "it ran away before"]
    assert "trips at 400 records/s" in breaker(proxy, "limit", "runaway", "--client", "wild*", "--produce", *limits)
    good = PlainWriter(proxy.bootstrap, "runaway", per_s=100, name="good", **{"client.id": "tame"})
    wild = PlainWriter(proxy.bootstrap, "runaway", per_s=1_500, name="wild", **{"client.id": "wild-1"})
    try:
        until(lambda: any(one["tripped_at"] == 1 for one in listed(proxy, "list")), 30, "it trips")
        acked = len(good.acked)
        wild._stopping.set()  # it writes nothing new, and sends again what was refused
        until(lambda: len(good.acked) > acked + 300, 30, "others go on")
        wild.stop()
        assert (wild.failed, len(wild.acked)) == ([], wild.sent), "all was written once the breaker had closed"
    finally:
        for writer in (good, wild):
            writer.stop()
    found = written(east, "runaway", good.acked + wild.acked, 1)
    assert (found.records, found.wrong) == (len(good.acked) + len(wild.acked), 0), found
    assert "has tripped: a limit was passed" in proxy.said()
    breaker(proxy, "close", "runaway", "--client", "wild*", "--produce")


@pytest.mark.long
def test_a_producer_of_java_s_oldest_client_waits_too(proxy: ProxyProcess, east: RigCluster) -> None:
    east.create_topic("breaker-oldest")
    with java_clients(KAFKA_OLDEST) as in_java:
        in_java.produce(proxy.bootstrap, "breaker-oldest", ["before"], {})
        cut(proxy, "breaker-oldest")
        values = [f"value {number}" for number in range(50)]
        writing = threading.Thread(
            target=in_java.produce, args=(proxy.bootstrap, "breaker-oldest", values, {"retries": "100"})
        )
        writing.start()
        time.sleep(STILL_S)
        assert (count_of(east, "breaker-oldest"), writing.is_alive()) == (1, True)
        mended(proxy, "breaker-oldest")
        writing.join(30)
        assert not writing.is_alive()
        assert in_java.consume(east.bootstrap[0], "breaker-oldest", 51, 30) == ["before", *values]
