"""A broker that lets a connection lie for longer than a log's end counts, after each answer: another connection asks.

Peers on loopback play such a broker: whatever they answer names a throttle, and until it is over they read no more from
that connection. Of each batch and marker they note how long before it a question was answered.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterable, Iterator

import pytest

from tests.kafka.peers import greet, next_request, peer, say
from tests.replication.task.parcels import a_batch
from twinshore.config.model import Security, TopicPartition
from twinshore.kafka.connection import open_connection
from twinshore.kafka.protocol.primitives import compact_string, uvarint
from twinshore.kafka.protocol.produce import (
    PRODUCE_KEY,
    ProducedPartition,
    ProduceResponse,
    write_produce_response,
)
from twinshore.kafka.protocol.transactions import LOG_ENDS_KEY, LOG_ENDS_VERSION, MARKERS_KEY, MARKERS_VERSION
from twinshore.replication.task.core.batches import OffsetGap
from twinshore.replication.task.core.connections import SendRequest, SetWakeThreshold, TargetProducer, TaskCommand
from twinshore.replication.task.core.known_end import LOG_END_TTL_S
from twinshore.replication.task.core.messages import Handoff, PartitionConfig, TaskLimits
from twinshore.replication.task.core.partition import PartitionLeaders, Phase
from twinshore.replication.task.core.partitions import TaskPartitions
from twinshore.replication.task.runner import TargetConnection

pytestmark = pytest.mark.claim(
    "topics",
    "asking-apart",
    "a connection of its own asks a throttling broker where twins end, and what no sequence guards "
    "follows within half a second or not at all",
)

SOURCE_ID, TARGET_ID = "11" * 16, "22" * 16
NODE = 2
THROTTLE_S = LOG_END_TTL_S + 0.3
OLD_MS = 1_600_000_000_000  # a backfill: no broker remembers us by it
LIMITS = TaskLimits()
PLAIN, MARKED = 0, 1


class Throttling:
    """A leader of two partitions with a quota for requests."""

    def __init__(self) -> None:
        self.ends = [0, 0]
        self.asked_s = 0.0
        self.gaps_s: list[float] = []
        self._guard = threading.Lock()

    def talk(self, connection: socket.socket) -> None:
        apis = ((PRODUCE_KEY, 9, 13), (LOG_ENDS_KEY, LOG_ENDS_VERSION, LOG_ENDS_VERSION))
        greet(connection, *apis, (MARKERS_KEY, MARKERS_VERSION, MARKERS_VERSION))
        while True:
            request = next_request(connection)
            key = request.key
            with self._guard:
                body = self._answer(key)
                if key == LOG_ENDS_KEY:
                    self.asked_s = time.monotonic()
                else:
                    self.gaps_s.append(time.monotonic() - self.asked_s)
            say(connection, request, [body])
            if key != MARKERS_KEY:  # which no quota throttles
                time.sleep(THROTTLE_S)

    def _answer(self, key: int) -> bytes:
        throttle = struct.pack(">i", int(1000 * THROTTLE_S))
        if key == LOG_ENDS_KEY:
            ends = b"".join(struct.pack(">ihqqi", one, 0, -1, self.ends[one], 0) + b"\0" for one in (PLAIN, MARKED))
            return throttle + uvarint(2) + compact_string("orders") + uvarint(3) + ends + b"\0\0"
        if key == MARKERS_KEY:
            self.ends[MARKED] += 1
            done = compact_string("orders") + uvarint(2) + struct.pack(">ih", MARKED, 0) + b"\0\0"
            return uvarint(2) + struct.pack(">q", 7) + uvarint(2) + done + b"\0\0"
        base, self.ends[PLAIN] = self.ends[PLAIN], self.ends[PLAIN] + 1
        appended = ProducedPartition(bytes.fromhex(TARGET_ID), PLAIN, 0, base, -1, 0)
        return write_produce_response(13, ProduceResponse([appended], int(1000 * THROTTLE_S)))


def waiting_task(batches: int, gaps: int) -> TaskPartitions:
    """A backfill of so many batches waits for the one partition, so many offsets that nobody sees for the other."""
    task = TaskPartitions(7, 0, 1, state_expiry_ms=86_400_000, limits=LIMITS)
    task.assign([PartitionConfig("orders", number, SOURCE_ID, TARGET_ID) for number in (PLAIN, MARKED)])
    for number in (PLAIN, MARKED):
        task.routed(TopicPartition("orders", number), PartitionLeaders(1, 0, NODE, target_epoch=0))
    task.take_over([Handoff("orders", number, 0, -1, 0, True, 0, NODE, 0) for number in (PLAIN, MARKED)], 0.0)
    plain, marked = (task.replicators[TopicPartition("orders", number)] for number in (PLAIN, MARKED))
    for offset in range(batches):
        plain.queue(a_batch(offset, offset + 1, 8, OLD_MS), None)
    for offset in range(gaps):
        marked.queue(OffsetGap(offset, offset + 1), None)
    plain.fetched, marked.fetched = batches, gaps
    for track in (plain, marked):
        task.wake(track)
    return task


@contextlib.contextmanager
def line_to(address: tuple[str, int]) -> Iterator[TargetConnection]:
    connection = open_connection(address, Security())
    connection.transport.setblocking(False)
    line = TargetConnection(TargetProducer(NODE, LIMITS, version=13), connection, (7, 0))
    try:
        yield line
    finally:
        line.close()


def acked(task: TaskPartitions) -> list[int]:
    return [track.acked for track in task.replicators.values()]


def do(commands: Iterable[TaskCommand], *lines: TargetConnection) -> None:
    by_flow = {line.producer: line for line in lines}
    for command in commands:
        match command:
            case SendRequest(flow, flight):
                by_flow[flow].send(flight)
            case SetWakeThreshold(flow, due_bytes):
                by_flow[flow].wake_at(due_bytes)


def carry(task: TaskPartitions, wanted: list[int], within_s: float, *lines: TargetConnection) -> bool:
    """As the pump's loop does, by the first line and perhaps its asker: whether so much landed."""
    until_s = time.monotonic() + within_s
    while acked(task) != wanted and time.monotonic() < until_s:
        now_s = time.monotonic()
        do(lines[0].producer.serve(task, now_s, int(time.time() * 1000)), *lines)
        for one in lines:
            one.push()
            for answer in one.receive(now_s):
                answer.tell(task, now_s)
        time.sleep(0.002)
    return acked(task) == wanted


def test_alone_it_sends_nothing_unseen_and_wants_another_line_to_ask() -> None:
    broker, task = Throttling(), waiting_task(3, 0)
    with peer(broker.talk) as address, line_to(address) as line:
        assert not carry(task, [3, 0], 4 * THROTTLE_S, line)
        assert acked(task) == [0, 0], "the end that it saw is as old as the throttle is long"
        assert line.producer.lacks_asker


def test_with_an_asker_all_goes_right_behind_the_word_of_where_its_log_ends() -> None:
    broker, task = Throttling(), waiting_task(4, 0)
    with peer(broker.talk) as address, line_to(address) as line, line_to(address) as asker:
        carry(task, [4, 0], THROTTLE_S / 2, line)
        line.producer.lend(asker.producer)
        assert carry(task, [4, 0], 60, line, asker), (acked(task), broker.gaps_s)
        assert max(broker.gaps_s) < LOG_END_TTL_S
        line.producer.part(task, 0.0)


def test_markers_and_batches_take_turns_and_neither_goes_unseen() -> None:
    broker, task = Throttling(), waiting_task(3, 3)
    with peer(broker.talk) as address, line_to(address) as line, line_to(address) as asker:
        carry(task, [3, 3], THROTTLE_S / 2, line)
        line.producer.lend(asker.producer)
        assert carry(task, [3, 3], 90, line, asker), (acked(task), broker.gaps_s)
        assert max(broker.gaps_s) < LOG_END_TTL_S
        line.producer.part(task, 0.0)


def test_what_an_asker_that_breaks_had_asked_is_looked_at() -> None:
    broker, task = Throttling(), waiting_task(3, 3)
    with peer(broker.talk) as address, line_to(address) as line, line_to(address) as asker:
        carry(task, [3, 3], THROTTLE_S / 2, line)
        line.producer.lend(asker.producer)
        until_s = time.monotonic() + 30
        while not asker.producer.in_flight and time.monotonic() < until_s:
            now_s = time.monotonic()
            for answer in line.receive(now_s):
                answer.tell(task, now_s)
            do(line.producer.serve(task, now_s, int(time.time() * 1000)), line, asker)
        assert asker.producer.in_flight, "it asks"
        line.producer.part(task, time.monotonic())
        assert {track.phase for track in task.replicators.values()} == {Phase.UNVERIFIED}
        assert not any(track.in_flight or track.known_end.asking for track in task.replicators.values())
        assert not line.producer.lacks_asker, "once it is throttled again"
