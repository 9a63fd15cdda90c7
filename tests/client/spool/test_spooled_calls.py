"""A FailoverProducer with a spool, where no cluster answers and where one does."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from testkit.errors import mentions, raises
from testkit.log_lines import LogLines
from tests.client.spool.spooling import numbers, put, record, segments, taken
from twinshore.client import AsyncFailoverProducer, FailoverProducer
from twinshore.client.pending import DiskQueue, PendingSend
from twinshore.client.sites import WarningQueue
from twinshore.client.spool import Spool
from twinshore.config.errors import ConfigError, RefusedError
from twinshore.kafka.clock import wall_ms
from twinshore.lab.clients import client_settings
from twinshore.lab.cluster import LabCluster

AWAY: dict[str, Any] = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


def away(folder: Path, **named: Any) -> FailoverProducer:
    return FailoverProducer({}, clusters={"away": AWAY}, topics=["orders*"], spool=folder, **named)


def found_in(folder: Path, topic: str = "orders") -> list[tuple[int, bytes | None]]:
    spool = Spool(folder)
    found = [(one.number, one.value) for one in taken(spool, topic)]
    spool.close(mark=False)
    return found


def until(holds: Callable[[], bool], within_s: float, what: str) -> None:
    deadline_s = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.01)


def test_what_is_kept_back_is_on_the_disk_once_the_call_returns(tmp_path: Path) -> None:
    producer = away(tmp_path)
    with pytest.raises(TypeError, match="bytes, str or None, not int"):
        producer.produce("orders", 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a header is"):
        producer.produce("orders", b"x", headers=[("a", 1)])
    with raises(ConfigError, "client.topic-not-followed", topic="bills"):
        producer.produce("bills", b"x")
    producer.produce("orders", "one", key="ключ", headers={"a": "b"}, timestamp=77, partition=2)
    producer.produce("orders", None, on_delivery=print)
    (path,) = segments(tmp_path)
    on_disk = path.read_bytes()
    assert b"one" in on_disk
    assert "ключ".encode() in on_disk
    assert len(producer) == 2
    with raises(RefusedError, "client.spool-in-use", process=str(os.getpid())):
        away(tmp_path)
    assert producer.flush(0.05) == 2
    assert producer.close(0.05) == 2, "so many are left for the next start"
    assert producer.close(0) == 2
    with away(tmp_path) as after:
        assert len(after) == 2
        after.produce("orders", b"three")
        assert after.close(0) == 3
    assert [value for _, value in found_in(tmp_path)] == [b"one", None, b"three"]


def test_a_producer_that_is_killed_leaves_all_and_one_that_follows_other_topics_lets_them_lie(
    tmp_path: Path, log_lines: LogLines
) -> None:
    producer = away(tmp_path)
    for number in range(3):
        producer.produce("orders-7", b"%d" % number)
    producer.kill()
    named: dict[str, Any] = {"clusters": {"away": AWAY}, "topics": ["bills"], "spool": tmp_path}
    with FailoverProducer({}, **named) as other:
        assert (len(other), other.close(0)) == (0, 0)
    assert [mentions(one, tmp_path, "3 records", "orders-7") for one in log_lines.of(topic="orders-7")] == [True]
    assert found_in(tmp_path, "orders-7") == [(0, b"0"), (1, b"1"), (2, b"2")]


@pytest.mark.parametrize("when_full", ["wait", "tell"])
def test_where_the_spool_is_full_a_call_waits_or_is_told_at_once(tmp_path: Path, when_full: str) -> None:
    with away(tmp_path, spool_bytes_max=65_536, when_full=when_full, max_block_s=0.5) as producer:
        for _ in range(6):
            producer.produce("orders", b"x" * 10_000)
        begun_s = time.monotonic()
        with pytest.raises(BufferError, match=r"no room.* may be its home: away.*; the spool .* may hold 65,536 bytes"):
            producer.produce("orders", b"x" * 10_000)
        assert (time.monotonic() - begun_s > 0.4) is (when_full == "wait")
        producer.produce("orders", b"a small one has room")
        assert producer.close(0) == 7
    with raises(ConfigError, "client.when-full-invalid", when_full="later"):
        away(tmp_path, when_full="later")


def test_whom_to_tell_is_in_memory_and_so_bounded(tmp_path: Path) -> None:
    with away(tmp_path, kept_max=2, when_full="tell") as producer:
        for _ in range(2):
            producer.produce("orders", b"x", on_delivery=lambda *_: None)
        with pytest.raises(BufferError, match=r"\b2 calls\b"):
            producer.produce("orders", b"x", on_delivery=lambda *_: None)
        for _ in range(5):
            producer.produce("orders", b"x")
        assert producer.close(0) == 7


def test_a_call_under_way_when_the_producer_closes_is_kept_or_told(tmp_path: Path) -> None:
    producer = away(tmp_path)
    kept: list[int] = []
    ended: list[str] = []

    def calls(own: int) -> None:
        for number in range(100_000):
            try:
                producer.produce("orders", b"%d-%d" % (own, number))
            except (RuntimeError, BufferError) as error:
                ended.append(str(error))
                return
            kept.append(number)

    threads = [threading.Thread(target=calls, args=(own,)) for own in range(4)]
    for thread in threads:
        thread.start()
    until(lambda: len(kept) > 50, 60, "they keep calls")
    left = producer.close(0)
    for thread in threads:
        thread.join(60)
    assert len(ended) == 4
    assert all("closed" in one for one in ended), ended
    assert left == len(kept) == len(found_in(tmp_path))


def read(lab: LabCluster, topic: str, count: int) -> list[Message]:
    consumer = Consumer({**client_settings(lab.cluster), "group.id": "read"})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[Message] = []
    until_s = time.monotonic() + 60
    while len(found) < count and time.monotonic() < until_s:
        found += [one for one in consumer.consume(100, 0.5) if one.error() is None]
    found += consumer.consume(1, 1.0)
    consumer.close()
    return found


def test_what_an_earlier_producer_left_is_sent_first_and_as_it_was(
    east: LabCluster, unique_topic: str, tmp_path: Path
) -> None:
    east.create_topic(unique_topic)
    spool = Spool(tmp_path)
    begun_ms = wall_ms() - 60_000
    left = [record(number, unique_topic)._replace(timestamp=begun_ms + number) for number in range(5_000)]
    put(spool, *left)
    spool.close()
    told: list[tuple[KafkaError | None, bytes | str | None]] = []

    def answered(error: KafkaError | None, message: Message | None) -> None:
        told.append((error, message.value() if message else None))

    clusters = {"east": dict(client_settings(east.cluster))}
    with FailoverProducer({}, clusters=clusters, topics=[unique_topic], spool=tmp_path) as producer:
        assert len(producer) == 5_000
        for number in range(50):
            producer.produce(unique_topic, b"new %d" % number, b"key", on_delivery=answered)
        assert producer.flush(60) == 0
        producer.produce(unique_topic, b"straight", b"key", on_delivery=answered)
        assert producer.close(60) == 0
    assert told == [(None, b"new %d" % number) for number in range(50)] + [(None, b"straight")]
    found = read(east, unique_topic, 5_051)
    values = [one.value() for one in found]
    assert values == [one.value for one in left] + [b"new %d" % number for number in range(50)] + [b"straight"]
    first = found[3]
    assert (first.key(), first.headers()) == (b"key", [("who", b"me"), ("none", None)])
    assert first.timestamp()[1] == begun_ms + 3
    assert segments(tmp_path) == [], "what is acknowledged is gone"


def test_what_a_broker_refuses_is_told_to_whoever_called_and_else_stays(
    east: LabCluster, unique_topic: str, tmp_path: Path, log_lines: LogLines
) -> None:
    """A record of an earlier process has nobody to hear of it: it stays, and the others go on. It has a partition of
    its own, as librdkafka lets a whole batch fail for one record."""
    east.create_topic(unique_topic, partitions=2, settings={"max.message.bytes": "5000"})
    spool = Spool(tmp_path)
    large = record(1, unique_topic, b"x" * 9_000)._replace(partition=1)
    put(spool, record(0, unique_topic)._replace(partition=0), large, record(2, unique_topic)._replace(partition=0))
    spool.close()
    told: list[int] = []

    def answered(error: KafkaError | None, _: Message | None) -> None:
        assert error is not None
        told.append(error.code())

    named: dict[str, Any] = {"topics": [unique_topic], "spool": tmp_path}
    with FailoverProducer({}, clusters={"east": dict(client_settings(east.cluster))}, **named) as producer:
        producer.produce(unique_topic, b"x" * 9_000, partition=1, on_delivery=answered)
        assert producer.flush(60) == 0
        assert producer.close(60) == 1, "what was refused is left"
    assert told == [KafkaError.MSG_SIZE_TOO_LARGE]
    (sentence,) = log_lines.of("twinshore.client")
    assert sentence.startswith(f"a record of topic {unique_topic} in {tmp_path} is refused, and stays")
    assert [one.value() for one in read(east, unique_topic, 2)] == [b"value 0", b"value 2"]
    spool = Spool(tmp_path)
    assert numbers(taken(spool, unique_topic)) == [1]
    spool.close()


def test_what_a_home_gave_back_stays_in_memory_in_order_while_the_disk_refuses_it(
    tmp_path: Path, log_lines: LogLines
) -> None:
    """And goes before what was called later, wherever that lies."""
    refuses = False

    def sync(handle: int) -> None:
        if refuses:
            raise OSError(errno.EIO, "Input/output error")
        os.fsync(handle)

    spool = Spool(tmp_path, sync=sync)
    warned = WarningQueue(logging.getLogger("twinshore.client"))
    kept = DiskQueue(spool, 100, lambda _: True, warned)

    def call(number: int) -> PendingSend:
        return PendingSend(number, "orders", b"%d" % number, None, -1, None, 0, ())

    def sent() -> list[int]:
        found = []
        kept.prepare("orders")
        while (head := kept.head("orders")) is not None:
            kept.sent("orders")
            found.append(head)
        flying.extend(found)
        return [one.number for one in found]

    flying: list[PendingSend] = []
    for number in (10, 11, 30):
        safe = kept.keep(call(number))
        assert safe is not None
        safe()
    refuses = True
    for number in (20, 9, 21):
        kept.again(call(number))
    assert kept.head("orders") is None, "first it is settled where that stands"
    kept.settle()
    warned.tell()
    assert ["are kept in memory" in one for one in log_lines] == [True]
    assert (len(kept), kept.is_empty("orders")) == (6, False)
    assert sent() == [9, 10, 11, 20, 21, 30]
    assert kept.is_empty("orders")
    for one in reversed(flying):
        kept.again(one)
    refuses = False
    kept.settle()
    assert sent() == [9, 10, 11, 20, 21, 30]
    assert spool.topics() == {"orders": 6}, "all of it is on the disk now"
    kept.close(goodbye=True)


def test_one_call_that_the_disk_can_never_hold_stays_in_memory_and_keeps_no_other_there(
    tmp_path: Path, log_lines: LogLines
) -> None:
    spool = Spool(tmp_path)
    warned = WarningQueue(logging.getLogger("twinshore.client"))
    kept = DiskQueue(spool, 100, lambda _: True, warned)
    bad = PendingSend(1, "orders", b"bad", None, -1, None, 0, (("x" * 70_000, b""),))
    for one in (
        PendingSend(0, "orders", b"0", None, -1, None, 0, ()),
        bad,
        PendingSend(2, "orders", b"2", None, -1, None, 0, ()),
    ):
        kept.again(one)
    kept.settle()
    kept.settle()
    assert spool.topics() == {"orders": 2}
    warned.tell()
    assert (len(kept), "is kept in memory" in log_lines[0]) == (3, True)
    found = []
    while not kept.is_empty("orders"):
        kept.prepare("orders")
        while (head := kept.head("orders")) is not None:
            kept.sent("orders")
            found.append(head.value)
    assert found == [b"0", b"bad", b"2"]
    kept.again(bad)
    kept.close(goodbye=True)
    assert kept.left() == 2, "what is in memory is not there for the next start"
    warned.tell()
    assert mentions(log_lines[-1], "1 call", tmp_path)


def test_with_asyncio_it_is_the_same(tmp_path: Path) -> None:
    async def plays() -> int:
        producer = AsyncFailoverProducer({}, clusters={"away": AWAY}, topics=["orders"], spool=tmp_path)
        for number in range(3):
            answer = await producer.produce("orders", b"%d" % number)
            assert not answer.done()
        return await producer.close(0.1)

    assert asyncio.run(plays()) == 3
    assert [value for _, value in found_in(tmp_path)] == [b"0", b"1", b"2"]
