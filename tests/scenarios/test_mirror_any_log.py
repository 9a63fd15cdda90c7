"""Logs of every kind have exact twins: same offsets, same start and end, same records for every consumer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest
from _pytest.mark import ParameterSet
from confluent_kafka import Producer

from testkit import log_kinds
from testkit.clients import delete_records
from testkit.log_kinds import HOLDS, KINDS, SOURCE_SETTINGS, seen
from tests.scenarios.incident_stage import QUICK
from tests.scenarios.mirror_rig import Rig, settings_text, spans, until
from twinshore.config.incident_policy import IncidentKind
from twinshore.config.model import TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.record_batch import BatchHeader, split_batches
from twinshore.lab.clients import client_settings
from twinshore.lab.cluster import LabCluster
from twinshore.lab.jars import KAFKA_3, KAFKA_NEWEST

LINK = "here->there"
# Longer than any transaction of the other topics stays open on a busy machine: those are no incident.
HANGING_S = 10
MIRROR = {"task_run_s": 4, "refresh_s": 1, "hanging_transaction_s": HANGING_S}


# What is shown of each kind. Where the source's files are looked into as well, both tests show it.
EQUAL = "offsets, log start, log end and what consumers are given are equal"
SHOWN = {
    "transactional": "transactions of three producers, interleaved, committed and aborted, among plain records",
    "idle": "transactional topics that are long idle, one wholly aborted",
    "compacted": "compacted, with holes and tombstones",
    "compacted-transactional": "compacted, with control records and holes of aborted transactions",
    "delete-horizon": "compacted, with tombstones under a delete horizon",
    "late": "a log that begins inside a batch beyond offset 1 000 000",
    "late-compacted": "a compacted log that begins above 0",
    "append-time": "LogAppendTime, compressed",
    "codecs": "all five codecs in one partition",
    "bare": "null keys, tombstones, zero-byte keys and values, headers with and without values",
    "at-the-limit": "batches of exactly max.message.bytes",
    "future": "time stamps a month ahead and of 1970",
    "empty": "empty partitions",
}


class Pair(NamedTuple):
    source: LabCluster
    target: LabCluster
    rig: Rig


# From the newest to an older Kafka quickly; the other way with the long ones.
BOTH_WAYS = ((KAFKA_NEWEST, KAFKA_3), pytest.param((KAFKA_3, KAFKA_NEWEST), marks=pytest.mark.long))


@pytest.fixture(scope="module", params=BOTH_WAYS, ids=lambda pair: pair[0])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two clusters of different versions, topics of all kinds, and a mirror that starts when they are there."""
    older, newer = request.param
    with (
        LabCluster("here", version=older, jvm_flags=QUICK, heap_mb=384, settings=SOURCE_SETTINGS) as source,
        LabCluster("there", version=newer, jvm_flags=QUICK, heap_mb=384) as target,
    ):
        for name, kind in KINDS.items():
            source.create_topic(f"any-{name}", partitions=2, settings=kind.settings)
        # Side by side: those that wait for the cleaner do nothing else.
        with ThreadPoolExecutor(len(KINDS)) as pool:
            for done in [pool.submit(kind.fill, source, f"any-{name}") for name, kind in KINDS.items()]:
                done.result()
        folder = tmp_path_factory.mktemp("any")
        made = Rig(folder, settings_text(folder, [source.cluster, target.cluster], {LINK: "any-.*"}, mirror=MIRROR))
        made.process.start()
        try:
            made.until_said("partitions on", within_s=90)
            yield Pair(source, target, made)
        finally:
            made.process.end()


def claimed(kinds: Iterable[str]) -> list[ParameterSet]:
    def mark(kind: str) -> pytest.MarkDecorator:
        return pytest.mark.claim("topics", f"log-{kind}", f"{SHOWN[kind]}: {EQUAL}")

    return [pytest.param(kind, marks=mark(kind)) for kind in kinds]


def same_spans(pair: Pair, topic: str) -> bool:
    ours = spans(pair.source.cluster, topic, 2)
    return ours == spans(pair.target.cluster, topic, 2) and ours[0] != (-1, -1)


def headers_on_disk(cluster: LabCluster, topic: str) -> list[BatchHeader]:
    """Of all batches that the source's only broker has in its files; read when nothing writes."""
    (broker,) = cluster.brokers
    found: list[BatchHeader] = []
    for path in sorted((broker.log_dir / f"{topic}-0").glob("*.log")):
        found += [header for _, header in split_batches(memoryview(path.read_bytes()))]
    return found


@pytest.mark.parametrize("kind", claimed(HOLDS))
def test_the_source_has_the_case(pair: Pair, kind: str) -> None:
    found = headers_on_disk(pair.source, f"any-{kind}")
    assert any(HOLDS[kind](batch) for batch in found), found


@pytest.mark.parametrize("kind", claimed(KINDS))
def test_a_twin_is_exact(pair: Pair, kind: str) -> None:
    topic = f"any-{kind}"
    took_s = until(lambda: same_spans(pair, topic), 60, f"{topic}: same start and end", pair.rig)
    for partition, (committed, every) in enumerate(views(pair, topic)):
        if KINDS[kind].settings.get("cleanup.policy", "delete") == "delete":
            assert committed[0] == committed[1]
            assert [one for one in every[0] if one in committed[0]] == every[1], "all but the aborted ones"
        else:
            # Both sides go on compacting by themselves: the latest of each key, and what both still have.
            assert latest(committed[0]) == latest(committed[1])
            theirs = {one[0]: one for one in committed[1]}
            assert all(theirs.get(one[0], one) == one for one in committed[0]), partition
    assert not [row for row in pair.rig.ledger(LINK) if row.incident.topic == topic], "nothing happened to it"
    print(f"{topic}: {took_s:.1f} s after the others")


def views(pair: Pair, topic: str) -> list[list[list[list[log_kinds.Seen]]]]:
    """For each partition what readers of committed data see and what all do, on the source and on the target. Read side
    by side, since each reader waits for its cluster most of the time."""
    asked = [(p, c, side) for p in range(2) for c in (True, False) for side in (pair.source, pair.target)]
    with ThreadPoolExecutor(len(asked)) as pool:
        flat = list(pool.map(lambda one: seen(one[2], topic, one[0], committed=one[1]), asked))
    return [[flat[4 * p : 4 * p + 2], flat[4 * p + 2 : 4 * p + 4]] for p in range(2)]


def latest(records: list[log_kinds.Seen]) -> dict[object, object]:
    values = {key: value for _, key, value, _, _ in records}
    return {key: value for key, value in values.items() if value is not None}


@pytest.mark.claim(
    "topics",
    "transactions-go-on",
    "transactions written while the mirror carries them, over the borders of its task runs: equal",
)
def test_transactions_go_on_crossing(pair: Pair) -> None:
    """Written while the mirror carries them, over the borders of its task runs."""
    began_s = time.monotonic()
    for seed in range(2, 5):
        log_kinds.transactional(pair.source, "any-transactional", seed, steps=60)
    until(lambda: same_spans(pair, "any-transactional"), 60, "all crossed", pair.rig)
    print(f"{time.monotonic() - began_s:.1f} s")
    for partition in range(2):
        ours, theirs = (
            seen(side, "any-transactional", partition, committed=True) for side in (pair.source, pair.target)
        )
        assert ours == theirs
    assert not [row for row in pair.rig.ledger(LINK) if row.incident.topic == "any-transactional"]


@pytest.mark.claim(
    "topics",
    "open-transaction",
    "an open transaction holds its twin, not its neighbours; hanging, it is named by producer id and first offset",
)
def test_an_open_transaction_holds_its_twin_at_its_first_record(pair: Pair) -> None:
    topic = "any-open"
    pair.source.create_topic(topic, partitions=2)
    settings = {**client_settings(pair.source.cluster), "linger.ms": 0}
    writers = [Producer({**settings, "transactional.id": f"open-{number}"}) for number in range(2)]
    plain = Producer(settings)
    for number in range(5):
        plain.produce(topic, b"before %d" % number, b"key", partition=0)
    plain.flush(30)
    for writer in writers:
        writer.init_transactions(60)
        writer.begin_transaction()
        writer.produce(topic, b"open", b"key", partition=0)
        writer.flush(30)
        plain.produce(topic, b"between", b"key", partition=0)
        plain.flush(30)
    assert spans(pair.source.cluster, topic, 2)[0] == (0, 9), "what is open counts here"
    until(lambda: spans(pair.target.cluster, topic, 2)[0] == (0, 5), 60, "up to the first one", pair.rig)
    time.sleep(1)
    assert spans(pair.target.cluster, topic, 2)[0] == (0, 5), "its fate is not known"
    log_kinds.close(writers[1], commit=True)
    until(lambda: bool(pair.rig.ledger(LINK)), HANGING_S + 5, "the one that holds is named", pair.rig)
    (row,) = pair.rig.ledger(LINK)
    assert (row.incident.topic, row.incident.partition, row.incident.from_offset) == (topic, 0, 5)
    assert row.incident.kind == IncidentKind.HANGING_TRANSACTION
    assert f"producer id {opener(pair, topic)} " in row.incident.sentence
    log_kinds.plain(pair.source, "any-bare", 10)
    until(lambda: same_spans(pair, "any-bare"), 10, "its neighbours go on", pair.rig)
    assert spans(pair.target.cluster, topic, 2)[0] == (0, 5), "the later one's fate is known, but order counts"
    log_kinds.close(writers[0], commit=False)
    until(lambda: same_spans(pair, topic), 60, "both closed", pair.rig)
    ours, theirs = (seen(side, topic, 0, committed=True) for side in (pair.source, pair.target))
    assert ours == theirs
    assert [one[2] for one in theirs].count(b"open") == 1
    until(lambda: pair.rig.ledger(LINK)[0].closed_ms is not None, 10, "its row is closed", pair.rig)


def opener(pair: Pair, topic: str) -> int:
    """The producer id of the one open transaction."""
    kafka, named = KafkaCluster(pair.source.cluster), TopicPartition(topic, 0)
    try:
        (found,) = [one for one in kafka.describe_producers([named])[named] if one.current_txn_start >= 0]
    finally:
        kafka.close()
    return found.producer_id


@pytest.mark.claim(
    "topics",
    "retention-while-running",
    "retention gaps while running, short and long: same log, and a row with the range",
)
@pytest.mark.parametrize(("kind", "lost"), [("short", 60), pytest.param("long", 30_000, marks=pytest.mark.long)])
def test_retention_that_was_faster_leaves_the_same_log_and_a_row(pair: Pair, kind: str, lost: int) -> None:
    """A topic paused while retention goes on: the twin's readers are right behind, so a short gap becomes markers."""
    topic = f"any-gap-{kind}"
    pair.source.create_topic(topic, partitions=2)
    log_kinds.plain(pair.source, topic, 50)
    until(lambda: same_spans(pair, topic), 60, "it flows", pair.rig)
    pair.rig.verb("link", "pause", LINK, "--topic", topic)
    pair.rig.until_said(f"topic {topic} is paused")
    time.sleep(1)
    log_kinds.plain(pair.source, topic, lost + 100)
    delete_records(pair.source.cluster, {TopicPartition(topic, 0): 50 + lost})
    pair.rig.verb("link", "resume", LINK, "--topic", topic)
    until(lambda: same_spans(pair, topic), 90, "begins and ends as the source", pair.rig)
    ours, theirs = (seen(side, topic, 0) for side in (pair.source, pair.target))
    assert ours == theirs
    assert len(ours) == 100
    until(lambda: any(row.incident.topic == topic for row in pair.rig.ledger(LINK)), 10, "a row", pair.rig)
    (row,) = [row.incident for row in pair.rig.ledger(LINK) if row.incident.topic == topic]
    assert (row.kind, row.from_offset, row.to_offset) == (IncidentKind.RETENTION_GAP, 50, 50 + lost)


@pytest.mark.claim("topics", "driver-killed", "the driver is killed with kill -9 while transactions cross: equal")
@pytest.mark.long
def test_the_driver_is_killed_while_transactions_cross(pair: Pair) -> None:
    """kill -9, and another start: its tasks must find out by themselves. The last test here."""
    topic, stop = "any-transactional", threading.Event()
    until(lambda: same_spans(pair, topic), 60, "it flows, whatever ran before", pair.rig)

    def write() -> None:
        seed = 10
        while not stop.is_set():
            seed += 1
            log_kinds.transactional(pair.source, topic, seed, steps=40)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        time.sleep(1)
        pair.rig.process.kill()
        pair.rig.process.start()
        before = pair.rig.told(LINK)[topic, 0]
        until(lambda: pair.rig.told(LINK)[topic, 0] > before, 90, "it goes on", pair.rig)
    finally:
        stop.set()
        writer.join()
    until(lambda: same_spans(pair, topic), 60, "all crossed", pair.rig)
    for partition in range(2):
        ours, theirs = (seen(side, topic, partition, committed=True) for side in (pair.source, pair.target))
        assert ours == theirs
        assert seen(pair.target, topic, partition) == theirs
