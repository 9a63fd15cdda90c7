"""The asyncio variants: nothing keeps the loop waiting, and the answers are those of a FailoverProducer and
FailoverConsumer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from twinshore.client import AsyncFailoverConsumer, AsyncFailoverProducer
from twinshore.lab.clients import client_settings
from twinshore.lab.cluster import LabCluster


class Slow:
    """Three records, each of which takes a while. Its topic may move."""

    def __init__(self) -> None:
        self.left: list[Message] = []
        self.subscribe()
        self.term_now = 1
        self.handed_out: list[bytes | None] = []

    def find(self, count: int, _: float) -> list[Message]:
        time.sleep(0.1)
        found, self.left = self.left[:count], self.left[count:]
        return found

    def subscribe(self, _: object = ()) -> None:
        self.left = [Message(topic="orders", partition=0, offset=number, value=b"%d" % number) for number in range(3)]

    def seek(self, partition: TopicPartition) -> None:
        if partition.partition == 0:
            self.left = [Message(topic="orders", partition=0, offset=partition.offset, value=b"sought")]

    def hand_out(self, found: list[Message]) -> None:
        self.handed_out += [one.value() for one in found]

    def term(self, _: str) -> int:
        return self.term_now

    def close(self) -> None:
        pass


def over(slow: Slow) -> AsyncFailoverConsumer:
    consumer = AsyncFailoverConsumer({"group.id": "readers"}, clusters={"away": {"bootstrap.servers": "127.0.0.1:1"}})
    consumer._consumer = slow  # type: ignore[assignment]
    return consumer


async def cancelled(consumer: AsyncFailoverConsumer) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(consumer.poll(5), 0.02)


def test_what_was_read_for_a_call_that_was_cancelled_the_next_one_returns() -> None:
    """Nobody else would hand it out."""

    async def plays() -> list[Message | None]:
        consumer = over(Slow())
        for _ in range(2):
            await cancelled(consumer)
        found: list[Message | None] = [*await consumer.consume(2)]
        found += await asyncio.gather(consumer.poll(), consumer.poll())
        await consumer.close()
        return found

    assert [one.value() for one in asyncio.run(plays()) if one is not None] == [b"0", b"1", b"2"]


def test_what_was_read_for_a_call_that_was_cancelled_is_read_again_where_its_topic_has_moved() -> None:
    """Another record may have that offset there."""

    async def plays() -> list[bytes | None]:
        slow = Slow()
        consumer = over(slow)
        await cancelled(consumer)
        await asyncio.sleep(0.2)
        slow.term_now = 2
        assert await consumer.poll() is None
        assert await consumer.poll() is not None
        await consumer.close()
        return slow.handed_out

    assert asyncio.run(plays()) == [b"1"]


@pytest.mark.claim("client", "cancelled-poll", "no commit passes a record that only a cancelled asyncio call has read")
@pytest.mark.parametrize(
    ("anew", "returned"),
    [
        (lambda consumer: consumer.seek(TopicPartition("orders", 0, 7)), [b"sought"]),
        (lambda consumer: consumer.subscribe(["orders"]), [b"0", b"1", b"2"]),
        (lambda consumer: consumer.seek(TopicPartition("orders", 1, 7)), [b"0", b"1", b"2"]),
    ],
    ids=["seek", "subscribe", "seek elsewhere"],
)
@pytest.mark.parametrize("reads_s", [0, 0.2], ids=["still reading", "read"])
def test_what_a_cancelled_call_has_read_is_not_returned_where_another_place_was_sought(
    anew: Callable[[AsyncFailoverConsumer], Awaitable[None]], returned: list[bytes], reads_s: float
) -> None:
    async def plays() -> list[bytes | None]:
        slow = Slow()
        consumer = over(slow)
        await cancelled(consumer)
        await asyncio.sleep(reads_s)
        await anew(consumer)
        for _ in range(4):
            await consumer.poll()
        await consumer.close()
        return slow.handed_out

    assert asyncio.run(plays()) == returned


@pytest.mark.claim("client", "cancelled-poll", "no commit passes a record that only a cancelled asyncio call has read")
@pytest.mark.parametrize("commits", [True, False], ids=["close", "commit"])
def test_no_commit_passes_what_a_cancelled_call_has_read(commits: bool, east: LabCluster, unique_topic: str) -> None:
    """Whoever read on behind it would never see it."""
    east.create_topic(unique_topic)
    settings = dict(client_settings(east.cluster))
    config = {"group.id": unique_topic, "auto.offset.reset": "earliest", "enable.auto.commit": commits}
    producer = Producer(settings)
    for number in range(3):
        producer.produce(unique_topic, b"%d" % number)
    producer.flush()

    async def plays() -> None:
        async with AsyncFailoverConsumer(config, clusters={"east": settings}) as consumer:
            await consumer.subscribe([unique_topic])
            while await consumer.poll() is None:
                pass
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.poll(5), 0)
            await asyncio.sleep(0.5)  # it is read by now
            if not commits:
                await consumer.commit()

    asyncio.run(plays())
    asking = Consumer({**settings, "group.id": unique_topic})
    (place,) = asking.committed([TopicPartition(unique_topic, 0)], 30)
    asking.close()
    assert place.offset == 1


def test_records_are_written_and_read_while_the_loop_runs_on(east: LabCluster, unique_topic: str) -> None:
    east.create_topic(unique_topic)
    clusters: dict[str, dict[str, Any]] = {"east": dict(client_settings(east.cluster))}

    async def plays() -> list[bytes]:
        turns = 0

        async def counts() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0.01)
                turns += 1

        counting = asyncio.create_task(counts())
        async with AsyncFailoverProducer({}, clusters=clusters, topics=[unique_topic]) as producer:
            answers = [await producer.produce(unique_topic, b"%d" % number, b"key") for number in range(50)]
            messages = await asyncio.wait_for(asyncio.gather(*answers), 60)
            assert [message.offset() for message in messages] == list(range(50))
            assert producer.where(unique_topic) == "east"
            large = await producer.produce(unique_topic, b"x" * 900_000, b"key")
            assert (await asyncio.wait_for(large, 60)).offset() == 50
            with pytest.raises(KafkaException):
                await producer.produce(unique_topic, b"x" * 2_000_000, b"key")
        config = {"group.id": unique_topic, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        read: list[bytes] = []
        async with AsyncFailoverConsumer(config, clusters=clusters) as consumer:
            await consumer.subscribe([unique_topic])
            async with asyncio.timeout(60):
                async for message in consumer:
                    read.append(bytes(message.value() or b""))
                    if len(read) == 50:
                        break
            await consumer.commit()
            assert consumer.where(unique_topic) == "east"
        counting.cancel()
        assert turns > 1, "the loop stood still"
        return read

    assert asyncio.run(plays()) == [b"%d" % number for number in range(50)]
