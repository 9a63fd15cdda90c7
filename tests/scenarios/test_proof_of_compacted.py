"""Proofs of compacted topics on real brokers: what cleaners took is no difference, what was lost is, whoever writes."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.clients import alter_topic, delete_records
from testkit.raw_writer import RawWriter
from tests.scenarios.pair_of_logs import Pair, both, in_order, log, made, names, said
from twinshore.config.model import TopicPartition
from twinshore.kafka.protocol.record_batch import Record, encode_batch
from twinshore.lab.cluster import LabCluster
from twinshore.state.core.values import TwinRow
from twinshore.state.store import open_store


@pytest.fixture(scope="module")
def pair(east: LabCluster, west: LabCluster) -> Iterator[Pair]:
    with both(east, west) as clusters:
        yield clusters


@contextlib.contextmanager
def written_all_the_time(pair: Pair, topic: str, start: int) -> Iterator[None]:
    """Both sides get the same records of busy keys until the block ends; they begin before it does."""
    stop, begun = threading.Event(), threading.Event()
    writers = [RawWriter(kafka, topic) for kafka in pair]

    def write_on() -> None:
        for n in itertools.count(start):
            record = Record(0, 1_700_000_000_000 + n, b"busy %d" % (n % 7), b"value %d" % n)
            for writer in writers:
                assert writer.send([encode_batch([record])]).error == 0
            if n > start + 20:
                begun.set()
            if stop.wait(0.005):
                return

    thread = threading.Thread(target=write_on)
    thread.start()
    try:
        assert begun.wait(60), "the writer wrote nothing"
        yield
    finally:
        stop.set()
        thread.join()


def compactable(count: int = 120) -> list[Record]:
    return [Record(n, 1_700_000_000_000 + n, b"busy %d" % (n % 7), b"value %d" % n) for n in range(count)]


@pytest.mark.claim(
    "groups",
    "compacted-while-written",
    "each round of a proof finds a compacted topic's lost latest record while other keys are written,"
    " until its key is written anew",
)
def test_a_lost_latest_record_is_found_while_its_compacted_topic_is_written(
    pair: Pair, east: LabCluster, west: LabCluster, tmp_path: Path
) -> None:
    whole = compactable()
    whole[20] = whole[20]._replace(key=b"precious", value=b"its only value")
    topic = made(pair, whole, [record for record in whole if record.offset != 20], f"precious-{next(names)}")
    how = ("--topic", topic, "--mode", "compacted", "--here", "--json")
    with written_all_the_time(pair, topic, len(whole)):
        for _ in range(2):
            code, text = said(tmp_path, east, west, topic, *how)
            (one,) = json.loads(text)["partitions"]
            assert (code, one["state"], one["to_offset"], one["records"]) == (1, "differs", 20, 20), text
            assert (one["difference"]["kind"], one["difference"]["offset"]) == ("missing record", 20)
    RawWriter(pair[0], topic).send([encode_batch([Record(0, 1, b"precious", b"written anew")])])
    RawWriter(pair[1], topic).send([encode_batch([Record(0, 1, b"precious", b"written anew")])])
    code, text = said(tmp_path, east, west, topic, *how)
    assert (code, json.loads(text)["state"]) == (0, "identical"), text


@pytest.mark.claim(
    "groups",
    "compacted-once",
    "what cleaners took is no difference after a topic was turned from compact to delete; it is "
    "compared offset by offset again once retention has taken that part",
)
def test_what_a_cleaner_took_is_no_difference_once_the_topic_is_compacted_no_more(
    pair: Pair, east: LabCluster, west: LabCluster, tmp_path: Path
) -> None:
    whole = compactable()
    latest = {record.key: record.offset for record in whole}
    kept = [record for record in whole if latest[record.key] == record.offset or record.offset % 3]
    topic = made(pair, whole, kept, f"turned-{next(names)}")
    how = ("--topic", topic, "--here", "--json")
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        store.twins.save([TwinRow("east->west", topic, 0, "aa", "bb", 0, 0, 1)])
    for kafka, policy in ((pair[0], "compact"), (pair[1], "compact,delete")):
        alter_topic(kafka.cluster, topic, {"cleanup.policy": policy})
    for policy in ("compact", "delete"):
        if policy == "delete":
            for kafka in pair:
                alter_topic(kafka.cluster, topic, {"cleanup.policy": policy})
        for _ in range(2):
            code, text = said(tmp_path, east, west, topic, *how, "--again")
            (one,) = json.loads(text)["partitions"]
            assert (code, one["state"], one["mode"], one["to_offset"]) == (0, "identical", "compacted", 120), text
    for kafka in pair:  # Retention takes all that was there then.
        RawWriter(kafka, topic).send([encode_batch(in_order(log(30)))])
        delete_records(kafka.cluster, {TopicPartition(topic, 0): 120})
    code, text = said(tmp_path, east, west, topic, *how)
    (one,) = json.loads(text)["partitions"]
    assert (code, one["state"], one["mode"], one["records"]) == (0, "identical", "exact", 30), text
