"""The producer and the consumer for asyncio, without blocking the event loop.

Each client makes its calls in one thread, in the order in which they were awaited. A consumer's callbacks run in that
thread.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Self, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from twinshore.client.consumer import FailoverConsumer
from twinshore.client.core.delivered import TopicPartitionTuple
from twinshore.client.group_member import REQUEST_TIMEOUT_S
from twinshore.client.producer import FailoverProducer
from twinshore.client.sites import client_thread, thread_name

Result = TypeVar("Result")
POLL_INTERVAL_S = 0.1


class _Calls(ABC):
    """Makes calls in one thread, which ends with the call that closes the client."""

    def __init__(self, does: str) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=thread_name(does))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @abstractmethod
    async def close(self) -> object:
        """Ends the client, and its thread."""

    async def _call(self, what: Callable[..., Result], *words: Any, **named: Any) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._executor, partial(what, *words, **named))

    async def _end(self, what: Callable[..., Result], *words: Any) -> Result:
        try:
            return await self._call(what, *words)
        finally:
            self._executor.shutdown(wait=False)


class AsyncFailoverProducer(_Calls):
    """A FailoverProducer for asyncio, with the same arguments: `async with AsyncFailoverProducer(...)`. A thread polls
    delivery reports, until `POLL_INTERVAL_S` after `close`.
    """

    def __init__(self, config: Any, **named: Any) -> None:
        self._producer = FailoverProducer(config, **named)
        super().__init__("produces")
        self._stopping = threading.Event()
        self._thread = client_thread("answers", "", self._poll)
        self._thread.start()

    async def produce(self, topic: str, *words: Any, **named: Any) -> asyncio.Future[Message]:
        """Like FailoverProducer.produce, without `on_delivery`: the returned future gets the message, or
        KafkaException. Returns once the call is made, which may take `max_block_s` while the queue is full.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Message] = loop.create_future()

        def told(error: KafkaError | None, message: Message | None) -> None:
            loop.call_soon_threadsafe(_settle, answer, error, message)

        await self._call(self._producer.produce, topic, *words, **named, on_delivery=told)
        return answer

    async def flush(self, timeout: float = -1) -> int:
        """As FailoverProducer.flush."""
        return await self._call(self._producer.flush, timeout)

    def where(self, topic: str) -> str:
        return self._producer.where(topic)

    async def close(self, timeout: float = 30.0) -> int:
        """As FailoverProducer.close."""
        if self._stopping.is_set():
            return 0
        self._stopping.set()
        return await self._end(self._producer.close, timeout)

    def _poll(self) -> None:
        """Poll until `close`. Callbacks only wake a loop; when that is closed, no future waits."""
        while not self._stopping.is_set():
            try:
                self._producer.poll(POLL_INTERVAL_S)
            except RuntimeError:
                return


class AsyncFailoverConsumer(_Calls):
    """A FailoverConsumer for asyncio, with the same arguments: `async with AsyncFailoverConsumer(...)`, then `async for
    message in consumer`.
    """

    def __init__(self, config: Any, **named: Any) -> None:
        self._consumer = FailoverConsumer(config, **named)
        super().__init__("consumes")
        self._closed = False
        self._turn = asyncio.Lock()
        self._asked: asyncio.Task[list[tuple[tuple[int, int], Message]]] | None = None
        self._found: list[tuple[tuple[int, int], Message]] = []  # with (term, seeks) at the time of the read
        self._began = Counter[TopicPartitionTuple | None]()  # number of seeks and subscriptions
        self._returned = deque[Message]()

    def __aiter__(self) -> AsyncFailoverConsumer:
        return self

    async def __anext__(self) -> Message:
        while not self._closed:
            if (found := await self.poll(POLL_INTERVAL_S)) is not None:
                return found
        raise StopAsyncIteration

    async def subscribe(self, topics: Sequence[str], **named: Any) -> None:
        await self._anew(None, self._consumer.subscribe, topics, **named)

    async def poll(self, timeout: float = 1.0) -> Message | None:
        """Returns the next record, or None after `timeout`."""
        found = await self.consume(1, timeout)
        return found[0] if found else None

    async def consume(self, num_messages: int = 1, timeout: float = 1.0) -> list[Message]:
        """Returns up to `num_messages` records.

        Records read by a cancelled call, for example after a timeout, are returned by the next call, or read again if
        the topic moved or the application sought another offset since.
        """
        async with self._turn:
            if not self._found:
                if self._asked is None:
                    self._asked = asyncio.create_task(self._call(self._find, num_messages, timeout))
                await asyncio.wait([self._asked])  # a cancelled call leaves the records to the next one
                asked, self._asked = self._asked, None
                self._found = asked.result()
            some, self._found = self._found[:num_messages], self._found[num_messages:]
            found = [one for then, one in some if self._now(one) == then]
            self._returned.extend(found)
            return found

    async def _call(self, what: Callable[..., Result], *words: Any, **named: Any) -> Result:
        """Make a call. Only returned records count as delivered, so no commit passes those of a cancelled call."""

        def call() -> Result:
            self._consumer.hand_out([self._returned.popleft() for _ in range(len(self._returned))])
            return what(*words, **named)

        return await super()._call(call)

    async def _anew(
        self, where: TopicPartitionTuple | None, what: Callable[..., None], *words: Any, **named: Any
    ) -> None:
        """Make a call that discards records read before."""

        def call() -> None:
            what(*words, **named)
            self._began[where] += 1

        async with self._turn:
            await self._call(call)

    def _find(self, count: int, timeout: float) -> list[tuple[tuple[int, int], Message]]:
        return [(self._now(one), one) for one in self._consumer.find(count, timeout)]

    def _now(self, one: Message) -> tuple[int, int]:
        topic, partition = one.topic() or "", one.partition()
        began = self._began[None] + self._began[topic, -1 if partition is None else partition]
        return self._consumer.term(topic), began

    async def commit(self, message: Message | None = None, offsets: Sequence[TopicPartition] | None = None) -> None:
        """Commit, and wait for the result."""
        await self._call(self._consumer.commit, message, offsets, asynchronous=False)

    async def seek(self, partition: TopicPartition) -> None:
        await self._anew((partition.topic, partition.partition), self._consumer.seek, partition)

    async def pause(self, partitions: Sequence[TopicPartition]) -> None:
        await self._call(self._consumer.pause, partitions)

    async def resume(self, partitions: Sequence[TopicPartition]) -> None:
        await self._call(self._consumer.resume, partitions)

    async def position(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        return await self._call(self._consumer.position, partitions)

    async def committed(
        self, partitions: Sequence[TopicPartition], timeout: float = REQUEST_TIMEOUT_S
    ) -> list[TopicPartition]:
        return await self._call(self._consumer.committed, partitions, timeout)

    def where(self, topic: str) -> str:
        return self._consumer.where(topic)

    async def close(self) -> None:
        """As FailoverConsumer.close."""
        if not self._closed:
            self._closed = True
            await self._end(self._consumer.close)


def _settle(answer: asyncio.Future[Message], error: KafkaError | None, message: Message | None) -> None:
    if answer.done():
        return
    if error is not None:
        answer.set_exception(KafkaException(error))
    elif message is not None:
        answer.set_result(message)
