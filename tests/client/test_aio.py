"""The asyncio variants: nothing keeps the loop waiting, and the answers are those of a HotProducer and HotConsumer."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from confluent_kafka import KafkaException

from twinshore.client import AsyncHotConsumer, AsyncHotProducer
from twinshore.lab import LabCluster
from twinshore.lab.clients import client_settings


class Slow:
    """Three records, each of which takes a while."""

    def __init__(self) -> None:
        self.left = [*b"abc"]

    def consume(self, count: int, _: float) -> list[int]:
        time.sleep(0.1)
        found, self.left = self.left[:count], self.left[count:]
        return found

    def close(self) -> None:
        pass


def test_what_was_read_for_a_call_that_was_cancelled_the_next_one_returns() -> None:
    """Nobody else would hand it out."""

    async def plays() -> list[object]:
        consumer = AsyncHotConsumer({"group.id": "readers"}, clusters={"away": {"bootstrap.servers": "127.0.0.1:1"}})
        consumer._consumer = Slow()  # type: ignore[assignment]
        found: list[object] = []
        for _ in range(2):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.poll(5), 0.02)
        found += await consumer.consume(2)
        found += await asyncio.gather(consumer.poll(), consumer.poll())
        await consumer.close()
        return found

    assert asyncio.run(plays()) == [*b"abc"]


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
        async with AsyncHotProducer({}, clusters=clusters, topics=[unique_topic]) as producer:
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
        async with AsyncHotConsumer(config, clusters=clusters) as consumer:
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
