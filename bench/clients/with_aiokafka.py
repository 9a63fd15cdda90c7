"""aiokafka: its loop runs while it is asked something."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition  # type: ignore[import-not-found]
from aiokafka.admin import AIOKafkaAdminClient, NewTopic  # type: ignore[import-not-found]
from aiokafka.errors import KafkaError, KafkaTimeoutError  # type: ignore[import-not-found]

from bench.clients.client import COOPERATIVE, SERVER, Job, Lacks, Part
from bench.clients.trying import run

_TIMEOUT_S = 30.0


class Aiokafka:
    def __init__(self, job: Job, _: dict[str, Any]) -> None:
        self._where = job.bootstrap
        self._loop = asyncio.new_event_loop()

    def done(self, what: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(what, _TIMEOUT_S * 2))

    async def _admin(self, ask: str, *words: Any) -> Any:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._where)
        await admin.start()
        try:
            return await getattr(admin, ask)(*words)
        finally:
            await admin.close()

    def look(self) -> tuple[set[str], int]:
        return set(self.done(self._admin("list_topics"))), len(self.done(self._admin("describe_cluster"))["brokers"])

    def produce(self, topic: str, values: Sequence[str], acks: str, *, idempotent: bool) -> None:
        async def produce() -> None:
            settings = {"acks": acks if acks == "all" else int(acks), "enable_idempotence": idempotent}
            producer = AIOKafkaProducer(bootstrap_servers=self._where, **settings)
            await producer.start()
            try:
                await asyncio.gather(*[await producer.send(topic, value.encode(), value.encode()) for value in values])
            finally:
                await producer.stop()

        self.done(produce())

    def _reader(self, *topics: str, **settings: Any) -> Any:
        own = {"bootstrap_servers": self._where, "enable_auto_commit": False, "auto_offset_reset": "earliest"}
        return AIOKafkaConsumer(*topics, **{**own, "isolation_level": "read_committed", **settings})

    def read(self, topic: str, wanted: Iterable[str], seconds: float) -> set[str]:
        async def read() -> set[str]:
            consumer, left, seen = self._reader(), set(wanted), set[str]()
            await consumer.start()
            try:
                parts = [TopicPartition(topic, number) for number in (0, 1)]
                consumer.assign(parts)
                await consumer.seek_to_beginning(*parts)
                until_s = time.monotonic() + seconds
                while left - seen and time.monotonic() < until_s:
                    seen |= set(await taken(consumer, 0.5))
                return seen
            finally:
                await consumer.stop()

        found: set[str] = self.done(read())
        return found

    def transact(self, topic: str, values: Sequence[str], group: str, place: int, *, commit: bool) -> None:
        async def transact() -> None:
            producer = AIOKafkaProducer(bootstrap_servers=self._where, transactional_id=f"{group}-writer")
            await producer.start()
            try:
                await producer.begin_transaction()
                for value in values:
                    await producer.send_and_wait(topic, value.encode())
                await producer.send_offsets_to_transaction({TopicPartition(topic, 0): place}, group)
                await (producer.commit_transaction() if commit else producer.abort_transaction())
            finally:
                await producer.stop()

        self.done(transact())

    def place(self, group: str, topic: str) -> int:
        async def place() -> int:
            consumer = self._reader(group_id=group)
            await consumer.start()
            try:
                found = await consumer.committed(TopicPartition(topic, 0))
                return -1 if found is None else int(found)
            finally:
                await consumer.stop()

        return int(self.done(place()))

    def member(self, group: str, topics: Sequence[str], way: str, instance: str) -> Member:
        if way in (COOPERATIVE, SERVER):
            raise Lacks("it has only eager groups")
        named: dict[str, Any] = {"group_instance_id": instance} if instance else {}
        named |= {"group_id": group, "session_timeout_ms": 10_000, "heartbeat_interval_ms": 500}

        async def begin() -> Member:
            # It joins as it starts, for which others may have to be polled: so nobody waits for that here.
            consumer = self._reader(*topics, **named)
            return Member(self, consumer, asyncio.create_task(consumer.start()))

        made: Member = self.done(begin())
        return made

    def writer(self, topic: str, transactional: str) -> Writer:
        async def begin() -> Writer:
            named = {"transactional_id": transactional} if transactional else {"enable_idempotence": True}
            producer = AIOKafkaProducer(bootstrap_servers=self._where, **named)
            await producer.start()
            return Writer(self, producer, topic, bool(transactional))

        made: Writer = self.done(begin())
        return made

    def describe(self) -> tuple[str, int]:
        told = self.done(self._admin("describe_cluster"))
        return str(told["cluster_id"]), len(told["brokers"])

    def create(self, topic: str) -> None:
        answer = self.done(self._admin("create_topics", [NewTopic(topic, 1, 1)]))
        for error in answer.topic_errors:
            if error[1]:
                raise KafkaError(f"error {error[1]}: {error[2] if len(error) > 2 else ''}")

    def ends(self, topics: Sequence[str]) -> dict[str, int]:
        async def ends() -> dict[str, int]:
            consumer, found = self._reader(), dict.fromkeys(topics, 0)
            await consumer.start()
            try:
                asked = [TopicPartition(topic, number) for topic in topics for number in (0, 1)]
                for part, end in (await consumer.end_offsets(asked)).items():
                    found[part.topic] += end
                return found
            finally:
                await consumer.stop()

        told: dict[str, int] = self.done(ends())
        return told

    def groups(self) -> set[str]:
        return {one[0] for one in self.done(self._admin("list_consumer_groups"))}


class Member:
    def __init__(self, client: Aiokafka, consumer: Any, starting: asyncio.Task[None]) -> None:
        self._client, self._consumer, self._starting = client, consumer, starting

    def poll(self, seconds: float) -> list[str]:
        async def poll() -> list[str]:
            await asyncio.wait([self._starting], timeout=seconds)
            if not self._starting.done():
                return []
            self._starting.result()
            return await taken(self._consumer, seconds)

        found: list[str] = self._client.done(poll())
        return found

    def parts(self) -> set[Part]:
        return {(one.topic, one.partition) for one in self._consumer.assignment()}

    def commit(self) -> None:
        self._client.done(self._consumer.commit())

    def close(self) -> None:
        self._starting.cancel()
        self._client.done(self._consumer.stop())


class Writer:
    def __init__(self, client: Aiokafka, producer: Any, topic: str, transactional: bool) -> None:
        self._client, self._producer, self._topic, self._transactional = client, producer, topic, transactional

    def write(self, values: Sequence[str]) -> None:
        async def send() -> None:
            sent = [await self._producer.send(self._topic, value.encode(), value.encode()) for value in values]
            await asyncio.gather(*sent)

        async def write() -> None:
            if self._transactional:
                async with self._producer.transaction():
                    await send()
            else:
                await send()

        self._client.done(write())

    def close(self) -> None:
        self._client.done(self._producer.stop())


async def taken(consumer: Any, seconds: float) -> list[str]:
    told = await consumer.getmany(timeout_ms=int(seconds * 1000), max_records=500)
    return [record.value.decode() for records in told.values() for record in records]


def in_words(error: Exception) -> str | None:
    if not isinstance(error, KafkaError) or isinstance(error, KafkaTimeoutError):
        return None
    return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    run(Aiokafka, in_words)
