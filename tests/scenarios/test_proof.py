"""Proofs on real brokers: what is the same is proven through its end, what is not is found where it is."""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark import SparkContext

from testkit import log_kinds
from testkit.clients import delete_records, delete_topic
from testkit.errors import mentions, raises
from testkit.raw_writer import RawWriter
from tests.scenarios.mirror_rig import until
from tests.scenarios.pair_of_logs import (
    AT,
    COUNT,
    FOR_EVER,
    Pair,
    both,
    in_order,
    log,
    made,
    names,
    prove,
    proven,
    said,
    stretch_of,
    write,
)
from twinshore.config.errors import ConfigError
from twinshore.config.model import TopicPartition
from twinshore.config.settings import load_settings
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.protocol.record_batch import Record, encode_batch
from twinshore.lab.cluster import LabCluster
from twinshore.proof.core.model import CompareMode, CompareRange, DifferenceKind
from twinshore.proof.core.planning import PROOF_REFRESH_INTERVAL_MS, ProofOptions
from twinshore.proof.jobs import spark_bundle_runner
from twinshore.proof.rounds import ProofRounds
from twinshore.runtime.spark import open_session
from twinshore.state.core.values import TwinRow
from twinshore.state.store import open_store


@pytest.fixture(scope="module")
def pair(east: LabCluster, west: LabCluster) -> Iterator[Pair]:
    with both(east, west) as clusters:
        yield clusters


def test_the_same_records_in_other_batches_and_codecs_are_proven_to_the_end(pair: Pair) -> None:
    topic = made(pair, log(), log())
    found = proven(pair, topic)
    assert (found.difference, found.trouble) == (None, "")
    assert (found.start, found.to, found.records) == (0, COUNT, COUNT)
    parts = [prove(stretch) for stretch in halves(stretch_of(pair, topic))]
    assert sum(part.records for part in parts) == COUNT
    assert (sum(part.digest >> 64 for part in parts) - (found.digest >> 64)) % (1 << 64) == 0


def halves(whole: CompareRange) -> list[CompareRange]:
    return [replace(whole, end=AT, target_end=-1), replace(whole, start=AT)]


def flipped(records: list[Record]) -> None:
    value = bytearray(records[AT].value or b"")
    value[3] ^= 1
    records[AT] = records[AT]._replace(value=bytes(value))


def foreign(records: list[Record]) -> None:
    records.insert(AT, Record(0, 1_700_000_000_000, b"who", b"are you"))


def swapped(records: list[Record]) -> None:
    records[AT], records[AT + 1] = records[AT + 1], records[AT]


def missing(records: list[Record]) -> None:
    del records[AT]


def later(records: list[Record]) -> None:
    records[AT] = records[AT]._replace(timestamp=records[AT].timestamp + 1)


def other_header(records: list[Record]) -> None:
    records[AT] = records[AT]._replace(headers=((b"trace", b"else"),))


@pytest.mark.parametrize("way", [CompareMode.EXACT, CompareMode.CONTENT])
@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (flipped, DifferenceKind.CHANGED_VALUE),
        (missing, DifferenceKind.MISSING),
        (swapped, DifferenceKind.SWAPPED),
        (foreign, DifferenceKind.FOREIGN),
        (later, DifferenceKind.CHANGED_TIMESTAMP),
        (other_header, DifferenceKind.CHANGED_HEADERS),
    ],
)
def test_each_kind_of_difference_is_found_where_it_is(
    pair: Pair, spoil: Callable[[list[Record]], None], kind: DifferenceKind, way: CompareMode
) -> None:
    twin = log()
    spoil(twin)
    found = proven(pair, made(pair, log(), in_order(twin)), way=way)
    assert found.difference is not None, found.trouble
    assert (found.difference.kind, found.difference.offset, found.to) == (kind, AT, AT)
    assert found.difference.source is not None and found.difference.source.key == f"key {AT}"
    assert found.difference.target is not None
    assert found.records == AT


def test_a_record_behind_the_sources_end_is_foreign(pair: Pair) -> None:
    found = proven(pair, made(pair, log(50), log(51)))
    assert found.difference is not None
    assert (found.difference.kind, found.difference.offset) == (DifferenceKind.FOREIGN, 50)


def test_a_twin_that_begins_later_than_its_source_lacks_records(pair: Pair) -> None:
    topic = made(pair, log(60), log(60))
    delete_records(pair[1].cluster, {TopicPartition(topic, 0): 20})
    found = proven(pair, topic)
    assert found.difference is not None
    assert (found.difference.kind, found.difference.offset) == (DifferenceKind.MISSING, 0)
    delete_records(pair[0].cluster, {TopicPartition(topic, 0): 25})
    after = proven(pair, topic)
    assert (after.difference, after.start, after.to, after.records) == (None, 25, 60, 35)


def test_by_content_sides_that_begin_apart_are_laid_beside_each_other(pair: Pair) -> None:
    topic = made(pair, log(), in_order(log()[40:]))
    found = proven(pair, topic, way=CompareMode.CONTENT)
    assert (found.difference, found.trouble) == (None, "")
    assert (found.start, found.to, found.target_to, found.records) == (40, COUNT, COUNT - 40, COUNT - 40)


@pytest.mark.claim("groups", "proof-mapped", "a mapped twin is proven through its offset runs, behind data of others")
def test_a_mapped_twin_is_proven_through_its_offset_runs(pair: Pair) -> None:
    before = [Record(0, 5, b"before", b"the link")] * 30
    topic = made(pair, log(), in_order([*before, *log()]))
    whole = stretch_of(pair, topic)
    mapped = replace(
        whole,
        mode=CompareMode.OFFSET_MAP,
        end=COUNT,
        target_end=-1,
        offset_runs=((0, 30, 200), (200, 230, COUNT - 200)),
    )
    found = prove(mapped)
    assert (found.difference, found.trouble, found.records, found.to) == (None, "", COUNT, COUNT)
    spoiled = log()
    flipped(spoiled)
    broken = made(pair, log(), in_order([*before, *spoiled]))
    found = prove(replace(mapped, partition=TopicPartition(broken, 0), twin=broken))
    assert found.difference is not None
    assert (found.difference.kind, found.difference.offset) == (DifferenceKind.CHANGED_VALUE, AT)


def test_a_topic_that_is_not_there_is_trouble_not_a_difference(pair: Pair) -> None:
    whole = stretch_of(pair, made(pair, log(3), log(3)))
    found = prove(replace(whole, twin="proof-nowhere"))
    assert found.difference is None
    assert "proof-nowhere" in found.trouble


def test_a_throttle_is_kept(pair: Pair) -> None:
    whole = stretch_of(pair, made(pair, log(), log()))
    found = prove(replace(whole, bytes_s=40_000))
    assert found.records == COUNT
    assert found.bytes / found.seconds < 60_000


@pytest.mark.claim("groups", "proof-transactions", "transactions, aborted ones too, are compared by what consumers see")
def test_transactions_are_compared_by_what_consumers_see(pair: Pair, east: LabCluster) -> None:
    topic = f"proof-{next(names)}"
    pair[0].admin.create_topic(topic, partitions=2, replication_factor=1, settings={})
    log_kinds.transactional(east, topic, seed=3, steps=60)
    named = TopicPartition(topic, 0)
    end = pair[0].list_offsets([named], OffsetKind.HIGH_WATERMARK)[named]
    deadline_s = time.monotonic() + 60
    while pair[0].list_offsets([named], OffsetKind.LAST_STABLE)[named] < end:
        assert time.monotonic() < deadline_s, "all are closed, and a broker writes their ends a moment later"
        time.sleep(0.05)
        end = pair[0].list_offsets([named], OffsetKind.HIGH_WATERMARK)[named]
    seen = [
        Record(offset, at_ms, key, value)  # type: ignore[arg-type]
        for offset, key, value, _, at_ms in log_kinds.seen(east, topic, 0, committed=True)
    ]
    assert len(seen) < end, "control records and aborted ones are not seen"
    pair[1].admin.create_topic(topic, partitions=1, replication_factor=1, settings={})
    write(pair[1], topic, seen, random.Random(4), end=end)
    found = proven(pair, topic)
    assert (found.difference, found.trouble) == (None, "")
    assert (found.to, found.records) == (end, len(seen))


@pytest.mark.claim(
    "groups",
    "proof-compacted",
    "compacted sides are the same when the latest record of each key is, and a lost one is found",
)
def test_compacted_sides_are_the_same_when_the_latest_of_each_key_is(pair: Pair) -> None:
    whole = [Record(n, 1_700_000_000_000 + n, b"key %d" % (n % 37), b"value %d" % n) for n in range(COUNT)]
    latest = {record.key: record.offset for record in whole}
    chance = random.Random(7)
    kept = [record for record in whole if latest[record.key] == record.offset or chance.random() < 0.5]
    found = proven(pair, made(pair, whole, kept), way=CompareMode.COMPACTED)
    assert (found.difference, found.trouble, found.to, found.records) == (None, "", COUNT, len(kept))
    lost = kept[-9]
    found = proven(pair, made(pair, whole, [record for record in kept if record != lost]), way=CompareMode.COMPACTED)
    assert found.difference is not None
    assert (found.difference.kind, found.difference.offset) == (DifferenceKind.MISSING, lost.offset)


@pytest.mark.claim(
    "groups",
    "proof-resumes",
    "a proof goes on from the last one, and a script learns of a difference by the exit code",
)
def test_the_verb_goes_on_from_the_last_proof_and_scripts_learn_by_its_exit_code(
    pair: Pair, east: LabCluster, west: LabCluster, tmp_path: Path
) -> None:
    topic = made(pair, log(), log(), f"verb-{next(names)}")
    # A link carries heartbeats too, and other tests may have left theirs on these clusters.
    how = ("--topic", topic, "--mode", "exact")
    code, text = said(tmp_path, east, west, topic, *how, "--json")  # on Spark, as it is by default
    values = json.loads(text)
    (one,) = values["partitions"]
    assert (code, values["state"], one["to_offset"], one["compared"]) == (0, "identical", COUNT, COUNT)

    more = [record._replace(offset=record.offset + COUNT) for record in log(40)]
    later = list(more)
    later[7] = later[7]._replace(value=b"else")
    for kafka, records in zip(pair, (more, later), strict=True):
        RawWriter(kafka, topic).send([encode_batch(in_order(records))])
    code, text = said(tmp_path, east, west, topic, *how, "--here", "--json")
    (one,) = json.loads(text)["partitions"]
    assert (code, one["state"], one["to_offset"], one["compared"]) == (1, "differs", COUNT + 7, 7)
    assert one["difference"]["target"]["value"] == "else"
    code, text = said(tmp_path, east, west, topic, *how, "--here", "--sample", "1", "--seed", "5")
    assert code == 1 and "they differ" in text and "--seed 5" in text
    near = f"; did you mean {topic}?"
    with raises(ConfigError, "kafka.unknown-topic", topic=f"{topic}s", clusters="east", near=near):
        said(tmp_path, east, west, topic, "--topic", f"{topic}s")


@pytest.mark.claim(
    "groups",
    "proof-borders",
    "what a twin has lost since it was proven is never called identical: the missing range is named, each round",
)
def test_what_a_twin_has_lost_since_it_was_proven_is_never_called_identical(
    pair: Pair, east: LabCluster, west: LabCluster, tmp_path: Path
) -> None:
    topic = made(pair, log(60), log(60), f"lost-{next(names)}")
    named = TopicPartition(topic, 0)
    how = ("--topic", topic, "--mode", "exact", "--here")
    assert said(tmp_path, east, west, topic, *how)[0] == 0
    delete_records(pair[1].cluster, {named: 20})
    for _ in range(2):
        code, text = said(tmp_path, east, west, topic, *how)
        assert code == 1 and text.startswith("NOT identical: 0 of 1 partitions identical, 1 differ")
        assert mentions(text, "DIFFERS at offset 0: missing record", "offset 20")
        assert "it lacks offsets 0 to 19" in text
    delete_records(pair[0].cluster, {named: 25})
    code, text = said(tmp_path, east, west, topic, *how, "--all")
    assert code == 0 and "identical from 25 through offset 59, 35 records" in text
    delete_topic(pair[1].cluster, topic)
    pair[1].admin.create_topic(topic, partitions=1, replication_factor=1, settings=FOR_EVER)
    until(lambda: "nothing was compared" in said(tmp_path, east, west, topic, *how)[1], 30, "what was proven is void")
    assert said(tmp_path, east, west, topic, *how)[0] == 2, "it was of another topic"


@pytest.mark.claim(
    "groups",
    "proof-names-unseen",
    "what is carried and cannot be seen is named, with exit code 2, and no proof of it is renewed",
)
def test_what_is_carried_and_cannot_be_seen_is_named_and_no_proof_of_it_is_renewed(
    pair: Pair, east: LabCluster, west: LabCluster, tmp_path: Path
) -> None:
    seen, unseen = (made(pair, log(9), log(9), f"carried-{next(names)}") for _ in range(2))
    topics = f"{seen}|{unseen}"
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        store.twins.save([TwinRow("east->west", topic, 0, "aa", "bb", 0, 0, 1) for topic in (seen, unseen)])
        assert said(tmp_path, east, west, topics, "--here")[0] == 0
        old = [replace(row, proven_ms=row.proven_ms - PROOF_REFRESH_INTERVAL_MS) for row in store.proofs.of()]
        store.proofs.save(old)
        delete_topic(pair[1].cluster, unseen)
        code, text = said(tmp_path, east, west, topics, "--here")
        ages = {row.topic: row.proven_ms for row in store.proofs.of()}
    assert code == 2 and text.startswith("cannot tell: 1 of 1 partitions identical, 1 topic or partition")
    assert f"{unseen}: not compared: there is no topic {unseen} on {west.cluster.name}" in text
    before = {row.topic: row.proven_ms for row in old}
    assert ages[unseen] == before[unseen] and ages[seen] > before[seen]


@pytest.mark.claim(
    "groups",
    "proof-beside-lanes",
    "a proof runs on Spark while every task and both heirs are at work, and they go on",
)
@pytest.mark.long
def test_a_proof_runs_on_spark_while_tasks_are_full(
    pair: Pair, east: LabCluster, west: LabCluster, tmp_path: Path
) -> None:
    tasks, proof_tasks = 2, 2
    topic = made(pair, log(), log(), f"spark-{next(names)}")
    said(tmp_path, east, west, topic, "--here")
    loaded = load_settings(tmp_path / "twinshore.toml", {})
    session = open_session(loaded.mirror, tasks, threading.Event())
    assert session is not None
    try:
        context = session.sparkContext
        assert context.defaultParallelism == tasks + 4
        held = [threading.Thread(target=hold, args=(context,)) for _ in range(tasks + 2)]
        for thread in held:
            thread.start()
        wait_for_tasks(context, tasks + 2)
        # Every task and both heirs are at work, and none of them will end before the proof has.
        wishes = ProofOptions(range_records=COUNT // 4)
        with open_store(f"sqlite:///{tmp_path}/beside.db") as store:
            proving = ProofRounds(
                loaded, store, spark_bundle_runner(context), options=wishes, tasks=proof_tasks, mode=CompareMode.EXACT
            )
            report = proving.round(loaded.links, [topic])
        (one,) = report.partitions
        assert (one.row.to_offset, one.row.records, one.troubles) == (COUNT, COUNT, ())
        assert len(context.statusTracker().getActiveJobsIds()) == tasks + 2, "tasks go on"
        context.cancelAllJobs()
        for thread in held:
            thread.join(30)
    finally:
        session.stop()


def hold(context: SparkContext) -> None:
    """A task, as far as Spark's slots are concerned."""

    def wait(_: Iterable[int]) -> Iterator[int]:
        time.sleep(60)
        yield 1

    with contextlib.suppress(Exception):
        context.parallelize([1], 1).mapPartitions(wait).collect()


def wait_for_tasks(context: SparkContext, count: int) -> None:
    tracker = context.statusTracker()
    deadline = time.monotonic() + 60
    while True:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        if sum(stage.numActiveTasks for stage in stages if stage is not None) == count:
            return
        assert time.monotonic() < deadline, "the lanes' tasks never ran"
        time.sleep(0.1)
