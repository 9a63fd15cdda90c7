"""What real clients do through a real proxy is counted as it is, and who uses a cluster badly is found; no other."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from typer.testing import CliRunner

from tests.conftest import ClusterFactory
from tests.proxy.served import ProxyProcess, proxy_before
from twinshore.advisor.core.client_rules import ClientFinding
from twinshore.advisor.operations.client_audits import ClientAuditRequest, audit_clients
from twinshore.cli.app import app, register_verbs
from twinshore.config.settings import load_settings
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.state_topic import StateTopic
from twinshore.lab.cluster import LabCluster
from twinshore.state.core.proxy_values import TrafficCounter, TrafficKey, TrafficKind
from twinshore.state.store import open_store

WINDOW_S = 1
PHASE_S = 30.0
GOOD = {"enable.idempotence": True, "compression.type": "lz4", "linger.ms": 20}
# A machine that is busy with other work as well lets bad clients do less, and groups begin late.
SLOW_MACHINE = """\
[rules.single-records]
batches_s = 5
[rules.commit-storm]
commits_s = 1
seconds = 10
[rules.busy-polling]
empty_s = 3
seconds = 10
[rules.reconnects]
connections_s = 0.2
"""
TEXT = json.dumps({"customer": "somebody", "street": "a street", "lines": list(range(150))}).encode()


@contextlib.contextmanager
def proxy_that_tells(folder: Path, *clusters: LabCluster, topic: str = "") -> Iterator[ProxyProcess]:
    open_store(f"sqlite:///{folder}/store.db").close()
    more = f'traffic_every_s = {WINDOW_S}\ntraffic_topic = "{topic}"\n'
    with proxy_before(folder, *(one.cluster for one in clusters), more=more) as made:
        yield made


def sums(proxy: ProxyProcess) -> dict[TrafficKey, TrafficCounter]:
    found: dict[TrafficKey, TrafficCounter] = {}
    with open_store(proxy.url) as store:
        for row in store.traffic.rows(0, wall_ms() + 1):
            found.setdefault(row.key, TrafficCounter()).add(row.flow)
    return found


def test_what_a_client_sends_and_reads_is_counted_as_it_is(east: LabCluster, tmp_path: Path) -> None:
    east.create_topic("counted")
    with proxy_that_tells(tmp_path, east, topic="what-goes-through") as proxy:
        common = {"bootstrap.servers": proxy.bootstrap, "log_level": 2}
        lone = Producer({**common, "client.id": "lone", "acks": 1, "linger.ms": 0})
        for number in range(30):
            lone.produce("counted", b"%d" % number)
            assert lone.flush(30) == 0
        many = Producer({**common, **GOOD, "client.id": "many", "linger.ms": 200})
        for _ in range(1_000):
            many.produce("counted", TEXT)
        assert many.flush(30) == 0
        reader = Consumer({**common, "client.id": "reader", "group.id": "counted", "auto.offset.reset": "earliest"})
        reader.subscribe(["counted"])
        count, until_s = 0, time.monotonic() + 60
        while count < 1_030 and time.monotonic() < until_s:
            count += sum(one.error() is None for one in reader.consume(500, 0.2))
        reader.commit(asynchronous=False)
        time.sleep(1.2)
        reader.close()
        metrics = proxy.metrics()
        assert proxy.end() == 0
    assert count == 1_030
    found = sums(proxy)
    ours, better = (found[TrafficKey(name, "counted", "east", TrafficKind.PRODUCE)] for name in ("lone", "many"))
    assert (ours.requests, ours.records, ours.batches, ours.answered, ours.errors) == (30, 30, 30, 30, 0)
    assert (ours.single_record_batches, ours.uncompressed_batches, ours.non_idempotent_batches) == (30, 30, 30)
    assert (ours.acks_leader, ours.acks_none, better.acks_leader) == (30, 0, 0)
    assert (better.records, better.uncompressed_batches, better.non_idempotent_batches) == (1_000, 0, 0)
    assert better.batches < 100
    assert better.bytes < 1_000 * len(TEXT) / 2, "as it was sent"
    read = found[TrafficKey("reader", "counted", "east", TrafficKind.FETCH)]
    assert read.bytes >= ours.bytes + better.bytes
    assert read.empty < read.requests
    assert found[TrafficKey("reader", "counted", "east", TrafficKind.COMMIT)].requests >= 1
    client = found[TrafficKey("lone", "", "", TrafficKind.CLIENT)]
    assert client.software.startswith(("librdkafka", "confluent-kafka"))
    assert client.connections >= 2
    assert client.requests > 30
    assert metrics['twinshore_proxy_topic_records_total{cluster="east",kind="produce",topic="counted"}'] >= 30
    assert shown(proxy, "traffic", "--by", "client")["lines"][0]["subject"] in ("reader", "many")
    with closing(KafkaCluster(east.cluster)) as kafka:
        written = [
            json.loads(one.value or b"")
            for notes, _ in StateTopic(kafka, "what-goes-through").pages(0)
            for one in notes
        ]
    of_lone = [one for one in written if (one["client"], one["kind"]) == ("lone", "produce")]
    assert sum(one["records"] for one in of_lone) == 30
    assert {one["topic"] for one in of_lone} == {"counted"}


def shown(proxy: ProxyProcess, *words: str) -> Any:
    register_verbs()
    done = CliRunner().invoke(app, ["proxy", *words, "--json", "--settings", str(proxy.settings)])
    return json.loads(done.stdout)


class Crowd:
    """Clients in threads, each as badly or as well as it is told."""

    def __init__(self, proxy: ProxyProcess, mended: bool) -> None:
        self._proxy, self._mended = proxy, mended
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self.errors: list[str] = []

    def settings(self, client: str, bad: Mapping[str, Any], good: Mapping[str, Any]) -> dict[str, Any]:
        ours = good if self._mended else bad
        return {"bootstrap.servers": self._proxy.bootstrap, "client.id": client, "log_level": 1, **ours}

    def begin(self, work: Callable[[], None], end: Callable[[], object] = lambda: None) -> None:
        def watched() -> None:
            try:
                while not self._stopping.is_set():
                    work()
                end()
            except (KafkaException, AssertionError) as error:
                self.errors.append(f"{work}: {error}")

        self._threads.append(threading.Thread(target=watched))
        self._threads[-1].start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()
        assert self.errors == []

    def writes(self, client: str, topic: str, bad: Mapping[str, Any], *, per_s: int, value: bytes = TEXT) -> None:
        producer = Producer(self.settings(client, bad, GOOD))

        def work() -> None:
            for _ in range(max(1, per_s // 20)):
                producer.produce(topic, value)
            producer.poll(0)
            time.sleep(0.05)

        self.begin(work, lambda: producer.flush(30))

    def writes_singly(self, client: str, topic: str) -> None:
        """Waits for each record before it sends the next, in some threads; mended it sends without waiting."""
        for _ in range(1 if self._mended else 8):
            self._writes_singly(client, topic)

    def _writes_singly(self, client: str, topic: str) -> None:
        bad = {"enable.idempotence": False, "acks": 1, "linger.ms": 0, "compression.type": "lz4"}
        producer = Producer(self.settings(client, bad, GOOD))

        def work() -> None:
            producer.produce(topic, b"small")
            if self._mended:
                for _ in range(9):
                    producer.produce(topic, b"small")
                producer.poll(0.02)
            else:
                assert producer.flush(30) == 0

        self.begin(work, lambda: producer.flush(30))

    def reads(self, client: str, topic: str, bad: Mapping[str, Any], *, commits: bool = False) -> None:
        usual = {"group.id": client, "auto.offset.reset": "earliest"}
        reader = Consumer(self.settings(client, {**usual, **bad}, usual))
        reader.subscribe([topic])

        def work() -> None:
            one = reader.poll(0.1)
            if one is not None and one.error() is None and commits and not self._mended:
                reader.commit(message=one, asynchronous=False)

        self.begin(work, reader.close)

    def connects_anew(self, client: str, topic: str) -> None:
        kept = Producer(self.settings(client, GOOD, GOOD))

        def work() -> None:
            producer = kept if self._mended else Producer(self.settings(client, GOOD, GOOD))
            producer.produce(topic, TEXT)
            assert producer.flush(30) == 0
            time.sleep(0.25)

        self.begin(work)

    def asks_for_nothing(self, client: str, topic: str) -> None:
        asker = Producer(self.settings(client, GOOD, GOOD))

        def work() -> None:
            if self._mended:
                asker.list_topics("good", 10)
                time.sleep(2)
            else:
                asker.list_topics(topic, 10)
                time.sleep(0.1)

        self.begin(work)


def play(proxy: ProxyProcess, *, mended: bool) -> list[ClientFinding]:
    """Findings found behind a while of it."""
    crowd = Crowd(proxy, mended)
    began_ms = wall_ms()
    crowd.writes("good", "good", GOOD, per_s=400)
    crowd.reads("good-reader", "good", {})
    crowd.writes("plain", "plain", {**GOOD, "compression.type": "none"}, per_s=400)
    crowd.writes_singly("single", "single")
    crowd.writes("weak", "strict", {**GOOD, "enable.idempotence": False, "acks": 1}, per_s=100)
    crowd.writes("twice", "twice", {**GOOD, "enable.idempotence": False}, per_s=100)
    crowd.reads("hasty", "quiet", {"fetch.wait.max.ms": 2})
    crowd.reads("clerk", "single", {"enable.auto.commit": False}, commits=True)
    crowd.connects_anew("anew", "good")
    crowd.asks_for_nothing("lost", "no-such-topic")
    time.sleep(PHASE_S)
    crowd.stop()
    time.sleep(2 * WINDOW_S)
    last_s = (wall_ms() - began_ms) // 1000
    settings = load_settings(proxy.settings, {})
    policy = proxy.settings.parent / "policy.toml"
    policy.write_text(SLOW_MACHINE)
    look = ClientAuditRequest(last_s, policy, here=mended)
    answer = audit_clients(look, settings, clock=wall_ms, stop=threading.Event(), tell=lambda _: None)
    assert answer is not None
    assert answer.audit.unseen == ()
    return list(answer.audit.findings)


@pytest.mark.long
@pytest.mark.claim(
    "proxy",
    "client-audit",
    "whoever sends plainly, record by record, with too few acks, twice, asks in vain, commits each record or connects"
    " anew is found with figures, by a job of Spark; mended it is found no more, and good clients never are",
)
def test_bad_findings_are_found_with_figures_and_mended_ones_are_found_no_more(
    cluster_factory: ClusterFactory, tmp_path: Path
) -> None:
    lab = cluster_factory("audit", brokers=3)
    for topic in ("good", "plain", "single", "twice", "quiet"):
        lab.create_topic(topic)
    lab.create_topic("strict", copies=3, settings={"min.insync.replicas": "2"})
    with proxy_that_tells(tmp_path, lab) as proxy:
        bad = play(proxy, mended=False)
        mended = play(proxy, mended=True)
    for one in bad:
        print(f"told: {one.rule}, {one.client}: {one.evidence}")
    found = {(one.client, one.rule) for one in bad}
    expected = {
        ("plain", "no-compression"),
        ("single", "single-records"),
        ("weak", "weak-acks"),
        ("twice", "no-idempotence"),
        ("hasty", "busy-polling"),
        ("clerk", "commit-storm"),
        ("anew", "reconnects"),
        ("lost", "unknown-topics"),
    }
    assert expected <= found, sorted(found)
    assert not {one for one in found if one[0].startswith("good")}, sorted(found)
    assert [(one.client, one.rule) for one in mended] == []
