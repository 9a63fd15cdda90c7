"""A line to a target: how many of the answers that are due wake the task, and what the end of a peer does meanwhile."""

from __future__ import annotations

import contextlib
import queue
import socket
from collections.abc import Iterator

import pytest

from tests.kafka.peers import greet, peer, read_request, woken
from tests.replication.task.parcels import a_batch
from twinshore.config.errors import KafkaError
from twinshore.config.model import Security
from twinshore.kafka.connection import open_connection
from twinshore.kafka.protocol.primitives import uvarint
from twinshore.kafka.protocol.produce import (
    PRODUCE_KEY,
    ProducedPartition,
    ProduceResponse,
    write_produce_response,
)
from twinshore.kafka.protocol.requests import response_frame
from twinshore.kafka.protocol.transactions import LOG_ENDS_KEY, LOG_ENDS_VERSION
from twinshore.replication.task.core.batches import SequenceMap
from twinshore.replication.task.core.connections import (
    RESPONSE_SLACK_S,
    CompletedRequest,
    SetWakeThreshold,
    TargetProducer,
)
from twinshore.replication.task.core.messages import PartitionConfig, TaskLimits
from twinshore.replication.task.core.partition import PartitionReplicator, SentBatch
from twinshore.replication.task.core.partitions import TaskPartitions
from twinshore.replication.task.runner import TargetConnection

TOPIC = bytes(range(16))
LIMITS = TaskLimits()


def answer_of(correlation: int, parts: int, throttle_ms: int = 0) -> bytes:
    """A produce answer of version 13 for so many partitions, as short as brokers make it."""
    answer = ProduceResponse([ProducedPartition(TOPIC, one, 0, 7, -1, 0) for one in range(parts)], throttle_ms)
    return b"".join(response_frame(PRODUCE_KEY, 13, correlation, [write_produce_response(13, answer)]))


class Target:
    """A peer that answers as many requests as it is told to, and then hangs up."""

    def __init__(self, parts: int, throttle_ms: int = 0) -> None:
        self.parts, self.throttle_ms = parts, throttle_ms
        self.answers: queue.Queue[int] = queue.Queue()
        self.spoilt = False

    def talk(self, connection: socket.socket) -> None:
        greet(connection, (PRODUCE_KEY, 9, 13), (LOG_ENDS_KEY, LOG_ENDS_VERSION, LOG_ENDS_VERSION))
        while count := self.answers.get(timeout=120):
            for _ in range(count):
                answer = answer_of(read_request(connection)[2], self.parts, self.throttle_ms)
                if self.spoilt:  # it says that it holds more topics than it does
                    answer = answer[:9] + uvarint(100) + answer[10:]
                connection.sendall(answer)

    @contextlib.contextmanager
    def line(self) -> Iterator[TargetConnection]:
        with peer(self.talk) as address:
            connection = open_connection(address, Security())
            connection.transport.setblocking(False)
            line = TargetConnection(TargetProducer(1, LIMITS, version=13), connection, (1, 0))
            try:
                yield line
            finally:
                self.answers.put(0)
                line.close()


def sent(parts: int) -> list[SentBatch]:
    tracks = [
        PartitionReplicator(PartitionConfig("t", number, "aa", "bb"), SequenceMap(1, 0, 0, 0), (b"a", 0), TOPIC)
        for number in range(parts)
    ]
    return [SentBatch(track, a_batch(0, 1, 8), None, b"head", -1) for track in tracks]


def send(line: TargetConnection, requests: int, parts: int) -> None:
    for _ in range(requests):
        assert line.send(line.producer.send(sent(parts), 0.0).flight)
    settle(line)


def settle(line: TargetConnection) -> None:
    """The end of a turn, with nothing more to send."""
    for command in line.producer.serve(TaskPartitions(1, 0, 1, state_expiry_ms=1000, limits=LIMITS), 0.0, 0):
        assert isinstance(command, SetWakeThreshold)
        line.wake_at(command.due_bytes)


@pytest.mark.parametrize("parts", [1, 4, 50])
def test_of_many_answers_half_wake_the_task_at_once_and_the_last_ones_each(parts: int) -> None:
    target = Target(parts)
    with target.line() as line:
        send(line, 8, parts)
        for due, wake in ((8, 4), (4, 2), (2, 1), (1, 1)):
            assert line.producer.defers_wakeups == (wake > 1)
            if wake > 1:
                target.answers.put(wake - 1)
                assert not woken(line, 0.3), f"{wake - 1} answers of {due} that are due wake nobody"
            target.answers.put(1)
            assert woken(line, 60), f"{wake} answers of {due} do"
            found = list(line.receive(0.0))
            assert len(found) == wake
            assert all(one.produced[parts - 1].base_offset == 7 for one in found)
            settle(line)
        assert not line.producer.in_flight


def test_answers_of_which_nobody_is_woken_are_had_on_a_look() -> None:
    target = Target(1)
    with target.line() as line:
        send(line, 8, 1)
        target.answers.put(2)
        assert not woken(line, 0.3)
        assert len(list(line.receive(0.0))) == 2
        settle(line)
        assert line.producer.defers_wakeups, "six are due: three of them wake"


def test_the_end_of_a_target_wakes_whoever_waits_for_many_answers() -> None:
    target = Target(1)
    with target.line() as line:
        send(line, 8, 1)
        target.answers.put(1)
        assert not woken(line, 0.3)
        target.answers.put(0)
        assert woken(line, 60)
        with pytest.raises(KafkaError, match=r"hung up|connection lost"):
            list(line.receive(0.0))


def test_answers_behind_which_the_target_hangs_up_are_taken_first() -> None:
    """As when a broker is stopped in good order: else their partitions would wait for answers that came."""
    target = Target(1)
    with target.line() as line:
        send(line, 2, 1)
        target.answers.put(2)
        target.answers.put(0)
        found: list[CompletedRequest] = []
        with pytest.raises(KafkaError, match=r"hung up|connection lost"):
            while woken(line, 60):
                for answer in line.receive(0.0):
                    found.append(answer)  # noqa: PERF402  what was taken before the error counts
        assert [one.produced[0].base_offset for one in found] == [7, 7]
        assert not line.producer.in_flight


def test_a_request_whose_answer_cannot_be_read_stays_unanswered() -> None:
    target = Target(1)
    target.spoilt = True
    with target.line() as line:
        send(line, 1, 1)
        target.answers.put(1)
        assert woken(line, 60)
        with pytest.raises(KafkaError):
            list(line.receive(0.0))
        assert len(line.producer.in_flight) == 1
        assert len(line.producer.close()) == 1


def test_a_broker_that_throttles_is_sent_nothing_meanwhile_and_its_answers_are_waited_for() -> None:
    target = Target(1, throttle_ms=60_000)
    with target.line() as line:
        send(line, 3, 1)
        target.answers.put(1)
        assert woken(line, 60)
        assert len(list(line.receive(100.0))) == 1
        assert line.producer.quota.still(159.9)
        assert not line.producer.quota.still(160.1)
        assert not line.producer.free(160.1), "two are on their way still: they wait with the broker"
        assert line.producer.silent_s(150.0) <= 0.0, "the broker said that it would say nothing"
        usual_s = LIMITS.produce_timeout_s + RESPONSE_SLACK_S
        assert not line.producer.late(160.0 + usual_s)
        assert line.producer.late(160.1 + usual_s)
