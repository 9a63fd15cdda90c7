"""Calls that wait for their topic's home on the disk, where a killed process leaves them to the next one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

from confluent_kafka import KafkaError

from twinshore.client.kept import Delivered, Kept, by_number
from twinshore.client.spool import Spool
from twinshore.client.spool.frames import SpoolRecord
from twinshore.client.spool.spool import Batch
from twinshore.fleet import RefusedError
from twinshore.fleet.sentences import counted
from twinshore.kafka.clock import wall_ms

LATE_AT_ONCE = 1_000


class KeptOnDisk:
    """In a spool. Whom to tell of an answer is in memory all the same: of `told_max` calls at most. `follows`: whether
    the producer sends what an earlier one left of a topic."""

    outlives = True

    def __init__(
        self, spool: Spool, told_max: int, follows: Callable[[str], bool], warn: Callable[[str], None]
    ) -> None:
        self._spool, self._told_max, self._warn = spool, told_max, warn
        left = spool.topics()
        self._topics = {topic for topic in left if follows(topic)}
        self._strange = {topic: count for topic, count in left.items() if topic not in self._topics}
        for topic, count in self._strange.items():
            warn(f"{spool.folder}: {counted(count, 'record')} of topic {topic} stay: this producer does not follow it")
        self._told: dict[int, Delivered] = {}
        self._came_back: dict[str, list[Kept]] = {}  # not looked at yet
        self._in_memory: dict[str, deque[Kept]] = {}  # in order: what the disk did not take
        self._head: dict[str, Kept] = {}

    def topics(self) -> set[str]:
        return {*self._topics, *self._came_back, *self._in_memory}

    def begin(self, topic: str) -> None:
        self._topics.add(topic)

    def keep(self, kept: Kept) -> Callable[[], None] | None:
        if kept.told is not None and len(self._told) >= self._told_max:
            return None
        batch = self._spool.keep([_record(kept)])
        if batch is None:
            return None
        if kept.told is not None:
            self._told[kept.number] = kept.told
        return lambda: self._commit(kept, batch)

    def _commit(self, kept: Kept, batch: Batch) -> None:
        try:
            self._spool.commit(batch)
        except BufferError:
            self._told.pop(kept.number, None)
            raise

    def again(self, kept: Kept) -> None:
        if not kept.is_spooled:
            self._came_back.setdefault(kept.topic, []).append(kept)
            return
        if kept.told is not None:
            self._told[kept.number] = kept.told
        self._head.pop(kept.topic, None)
        self._topics.add(kept.topic)
        self._spool.given_back(kept.topic, kept.number)

    def settle(self) -> None:
        """Beyond the bound, if need be: these calls were accepted. What the disk does not take stays in memory."""
        for topic in {*self._came_back, *self._in_memory}:
            self._topics.add(topic)
            self._head.pop(topic, None)
            back = [*self._in_memory.pop(topic, ()), *self._came_back.get(topic, ())]
            self._in_memory[topic] = deque(sorted(back, key=by_number))
            self._came_back.pop(topic, None)
            self._in_memory[topic] = self._write(topic, self._in_memory[topic])
            if not self._in_memory[topic]:
                del self._in_memory[topic]

    def _write(self, topic: str, back: deque[Kept]) -> deque[Kept]:
        """What stays in memory of it, in order."""
        stays: deque[Kept] = deque()
        size = LATE_AT_ONCE
        while back:
            part = list(islice(back, size))
            try:
                self._write_part(part)
            except BufferError as error:
                self._warn(f"calls for topic {topic} that a home gave back are kept in memory: {error}")
                return stays + back
            except (TypeError, ValueError) as error:
                if size > 1:
                    size = 1  # one of them is at fault: the others need not stay with it
                    continue
                self._warn(f"a call for topic {topic} that a home gave back is kept in memory: {error}")
                stays += part
            for _ in part:
                back.popleft()
        return stays

    def _write_part(self, part: Sequence[Kept]) -> None:
        batch = self._spool.keep([_record(one) for one in part], beyond=True)
        assert batch is not None, "there is always room beyond the bound"
        self._spool.commit(batch)
        for one in part:
            if one.told is not None:
                self._told[one.number] = one.told

    def prepare(self, topic: str) -> None:
        with self._told_of():
            self._spool.prepare(topic)

    def head(self, topic: str) -> Kept | None:
        if topic in self._came_back:
            return None  # it is not settled where that stands
        if (found := self._head.get(topic)) is None:
            back = self._in_memory[topic][0] if topic in self._in_memory else None
            record = None
            with self._told_of():
                record = self._spool.head(topic)
            if record is None and back is not None and self._spool.unsent(topic):
                return None  # one on the disk may come first
            if record is not None and (back is None or record.number < back.number):
                found = _kept(record, self._told.get(record.number))
            else:
                found = back
            if found is not None:
                self._head[topic] = found
        return found

    def sent(self, topic: str) -> None:
        kept = self._head.pop(topic)
        if not kept.is_spooled:
            self._in_memory[topic].popleft()
            if not self._in_memory[topic]:
                del self._in_memory[topic]
            return
        self._told.pop(kept.number, None)
        self._spool.handed_out(topic, kept.number)

    def answered(self, kept: Kept, error: KafkaError | None) -> None:
        if not kept.is_spooled:
            return
        if error is None or kept.told is not None:
            self._spool.done(kept.topic, kept.number)
            return
        self._spool.refused(kept.topic, kept.number)
        self._warn(
            f"a record of topic {kept.topic} that was kept in {self._spool.folder} is refused, and stays there:"
            f" {error.str()}"
        )

    def is_empty(self, topic: str) -> bool:
        return not (topic in self._came_back or topic in self._in_memory or self._spool.unsent(topic))

    def end(self, topic: str) -> None:
        self._topics.discard(topic)

    def full(self) -> str:
        if len(self._told) >= self._told_max:
            return f"{counted(self._told_max, 'call')} that want to be told of their answer are kept back"
        return f"the spool {self._spool.folder} may hold {counted(self._spool.bytes_max, 'byte')}"

    def tend(self) -> None:
        with self._told_of():
            self._spool.tend()

    def __len__(self) -> int:
        return self._spool.unsent() - sum(self._strange.values()) + self._only_in_memory()

    def left(self) -> int:
        return sum(self._spool.topics().values()) - sum(self._strange.values())

    def _only_in_memory(self) -> int:
        return sum(map(len, self._came_back.values())) + sum(map(len, self._in_memory.values()))

    def close(self, *, goodbye: bool) -> None:
        try:
            if goodbye:
                self.settle()
        finally:
            with self._told_of():
                self._spool.close(mark=goodbye)
        if goodbye and (lost := self._only_in_memory()):
            self._warn(
                f"{counted(lost, 'call')} that the spool {self._spool.folder} does not take end with the producer"
            )

    @contextmanager
    def _told_of(self) -> Iterator[None]:
        """What the disk refuses is told, and keeps no other topic waiting."""
        try:
            yield
        except (OSError, RefusedError) as error:
            self._warn(f"the spool {self._spool.folder}: {error}")


def _record(kept: Kept) -> SpoolRecord:
    now_ms = wall_ms()
    timestamp = kept.timestamp or now_ms
    return SpoolRecord(
        *(kept.number, kept.topic, kept.value, kept.key, kept.partition, timestamp, kept.headers, now_ms)
    )


def _kept(record: SpoolRecord, told: Delivered | None) -> Kept:
    return Kept(
        record.number,
        record.topic,
        record.value,
        record.key,
        record.partition,
        told,
        record.timestamp,
        record.headers,
        is_spooled=True,
    )
