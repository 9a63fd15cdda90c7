"""What a transactional id does for markers, as transcripts; and by chance at a coordinator that is modelled."""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import Any

import pytest

from twinshore.config.errors import KafkaError
from twinshore.config.model import TopicPartition
from twinshore.kafka.protocol.error_codes import UNKNOWN_ERROR, Code
from twinshore.replication.task.core.batches import OffsetGap
from twinshore.replication.task.core.messages import PartitionConfig
from twinshore.replication.task.core.partition import PartitionReplicator
from twinshore.replication.task.core.resync import (
    AbortTransaction,
    AcquireTransactionalId,
    AskEndOffsets,
    BeginTransaction,
    EmptyTransactionCore,
    FinishedMarkerRuns,
    MarkerRunProgress,
    PendingMarkers,
    RetryAcquire,
    TransactionQuestion,
    markers_landed,
)

SEEDS = 300
AWAY = KafkaError("no answer", retriable=True)


def run(partition: int = 0, base: int = 10, times: int = 1) -> MarkerRunProgress:
    track = PartitionReplicator.of(PartitionConfig("orders", partition, "aa", "bb"), (7, 0), 3, 1 << 20)
    return MarkerRunProgress(PendingMarkers(track, OffsetGap(base, base + times)), base, times)


def held() -> EmptyTransactionCore:
    core = EmptyTransactionCore()
    core.held = True
    return core


def played(
    talk: Generator[TransactionQuestion, Any, FinishedMarkerRuns], *answers: object
) -> tuple[list[TransactionQuestion], FinishedMarkerRuns]:
    """What it asks, given these answers, and what it returns behind the last of them. An error is thrown in."""
    asked = [next(talk)]
    for answer in answers:
        try:
            asked.append(talk.throw(answer) if isinstance(answer, KafkaError) else talk.send(answer))
        except StopIteration as over:
            return asked, over.value
    raise AssertionError(f"it goes on with {asked[-1]}")


def test_a_round_opens_a_unit_where_twins_end_as_they_did_and_closes_it() -> None:
    one, other = run(0), run(1, base=4, times=2)
    names = [one.named, other.named]
    ends = {one.named: 11, other.named: 5}
    asked, over = played(
        EmptyTransactionCore().round([one, other]), None, {one.named: 10, other.named: 4}, {}, None, ends
    )
    assert asked == [
        AcquireTransactionalId(),
        AskEndOffsets(names),
        BeginTransaction(names),
        AbortTransaction(),
        AskEndOffsets(names),
    ]
    assert over == [(one, one.answer(0, 11))], "the other has a marker more to come"
    assert other.done == 1


def test_where_a_twin_ends_elsewhere_nothing_is_opened() -> None:
    one, other = run(0), run(1)
    asked, over = played(held().round([one, other]), {one.named: 10, other.named: 9})
    assert asked == [AskEndOffsets([one.named, other.named])]
    assert over == [(other, other.answer(UNKNOWN_ERROR))]


def test_what_a_unit_may_not_hold_is_answered_and_the_others_wait_for_the_next() -> None:
    one, other = run(0), run(1)
    refused = {other.named: Code.topic_authorization_failed}
    _, over = played(held().round([one, other]), {one.named: 10, other.named: 10}, refused)
    assert over == [(other, other.answer(Code.topic_authorization_failed))]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (AWAY, UNKNOWN_ERROR),
        (KafkaError("fenced", code=Code.producer_fenced), UNKNOWN_ERROR),
        (KafkaError("no right", code=Code.cluster_authorization_failed), Code.cluster_authorization_failed),
    ],
)
def test_a_round_that_fails_takes_the_id_anew_until_nothing_is_open(error: KafkaError, code: int) -> None:
    one = run()
    asked, over = played(held().round([one]), {one.named: 10}, {}, error, AWAY, None, None)
    assert asked[-4:] == [AbortTransaction(), AcquireTransactionalId(), RetryAcquire(), AcquireTransactionalId()]
    assert over == [(one, one.answer(code))]


def test_an_id_that_is_refused_answers_its_runs() -> None:
    one, refusal = run(), KafkaError("no right", code=Code.transactional_id_authorization_failed)
    core = held()
    _, over = played(core.round([one]), {one.named: 10}, AWAY, refusal)
    assert over == [(one, one.answer(Code.transactional_id_authorization_failed))]
    assert not core.held


def test_a_round_behind_one_that_was_cut_short_only_closes_what_that_left() -> None:
    core, one = held(), run()
    begun = core.round([one])
    next(begun)
    begun.send({one.named: 10})
    begun.close()
    assert played(core.round([one]), None) == ([AcquireTransactionalId()], [(one, one.answer(UNKNOWN_ERROR))])


class Coordinator:
    """It does what is asked of it, or not, and its answer comes, or not. Who takes the id closes what is open."""

    def __init__(self, chance: random.Random, ends: dict[TopicPartition, int]) -> None:
        self.chance, self.ends = chance, ends
        self.open: list[TopicPartition] = []
        self.trouble = chance.choice((0.0, 0.1, 0.4))

    def asked(self, question: TransactionQuestion) -> Any:
        if isinstance(question, RetryAcquire):
            return None
        if self.chance.random() < self.trouble / 2:
            raise AWAY
        answer: Any = None
        match question:
            case AcquireTransactionalId() | AbortTransaction():
                for named in self.open:
                    self.ends[named] += 1
                self.open = []
            case BeginTransaction(partitions):
                self.open, answer = list(partitions), {}
            case AskEndOffsets(partitions):
                answer = {named: self.ends[named] for named in partitions}
        if self.chance.random() < self.trouble / 2:
            raise AWAY
        return answer


def carried(
    talk: Generator[TransactionQuestion, Any, FinishedMarkerRuns], brokers: Coordinator, dropped: float
) -> FinishedMarkerRuns | None:
    """None where the pump's thread was stopped at a question."""
    send: Any = None
    while True:
        try:
            question = talk.throw(send) if isinstance(send, KafkaError) else talk.send(send)
        except StopIteration as over:
            return list(over.value)
        if brokers.chance.random() < dropped:
            talk.close()
            return None
        try:
            send = brokers.asked(question)
        except KafkaError as error:
            send = error


@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_what_is_told_as_landed_has_landed_and_nothing_is_open_on_what_is_over(first: int) -> None:
    for seed in range(first, first + 50):
        chance = random.Random(seed)
        runs = [run(number, base=chance.randrange(9), times=chance.randint(1, 4)) for number in range(3)]
        brokers, core = Coordinator(chance, {one.named: one.base for one in runs}), EmptyTransactionCore()
        dropped = chance.choice((0.0, 0.05))
        while runs:
            over = carried(core.round(runs), brokers, dropped)
            if over is None:
                continue
            assert not brokers.open, f"seed {seed}"
            for one, answer in over:
                gap, end = one.marks.gap, brokers.ends[one.named]
                assert end <= gap.end, f"seed {seed}: more markers than there is room for"
                assert markers_landed(answer, gap) == (answer.error == 0 and end == gap.end), f"seed {seed}"
            gone = {id(one) for one, _ in over}
            runs = [one for one in runs if id(one) not in gone]
