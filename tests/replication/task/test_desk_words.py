"""What coordinator, tasks and task groups say to each other comes out of its lines of JSON as the value that went
in.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinshore.config.incident_policy import IncidentEffect, IncidentKind, IncidentPolicy, IncidentSide
from twinshore.config.model import Cluster, OffsetRun, SaslMechanism, Secret, Security, TopicPartition
from twinshore.replication.task.core import messages
from twinshore.replication.task.core.messages import (
    Assign,
    CoordinatorMessage,
    EpochOffset,
    Finish,
    Handoff,
    LearntQuota,
    LeaseGranted,
    PartitionConfig,
    PartitionIncident,
    PartitionProgress,
    Release,
    Released,
    SlotEnded,
    SlotTurn,
    StartTask,
    StartWriting,
    Stop,
    StopTaskGroup,
    TakeOver,
    TaskConfig,
    TaskFinished,
    TaskGroupAlive,
    TaskGroupConfig,
    TaskGroupMessage,
    TaskMessage,
    TaskProgress,
    TaskRateLimits,
    TaskReady,
    ThrottleUsage,
    WrittenPosition,
    parse_task_config,
)
from twinshore.replication.task.core.throttle import QuotaSnapshot

NAMED = TopicPartition("orders", 3)
STANDS = (Handoff("orders", 3, 70, 5, 9_000, next_sequence=4), Handoff("others", 0, 0, -1, 0))
PACE = LearntQuota("source", 1, 2, QuotaSnapshot(100, 5.5, 0.5, 0.25, 12.0, [(3.5, 7)], 10, 0.5))
SIDE = Cluster("east", ("127.0.0.1:1",), Security(sasl=SaslMechanism.PLAIN, username="u", password=Secret(env="P")))
ORDER = TaskConfig("east->west", 0, 7, SIDE, SIDE, 1, 0, 60_000, "127.0.0.1", 1, "token")


NUMBERS = st.integers(-1, 1 << 53)
MOMENTS_S = st.floats(-1e9, 1e9)
NAMES = st.text(min_size=1, max_size=5)
SPEEDS = st.dictionaries(NAMES, MOMENTS_S, max_size=3)
CARRIED = st.builds(
    PartitionProgress,
    *(NAMES, *[NUMBERS] * 10),
    producers=st.lists(st.tuples(*[NUMBERS] * 6), max_size=2).map(tuple),
    offset_runs=st.lists(st.builds(OffsetRun, *[NUMBERS] * 4), max_size=2).map(tuple),
    epoch=NUMBERS,
)
HANDOVERS = st.builds(Handoff, NAMES, *[NUMBERS] * 4, st.booleans(), *[NUMBERS] * 4)
POLICIES = st.builds(IncidentPolicy, st.text(max_size=9), st.sampled_from(IncidentEffect))
MET = st.builds(
    PartitionIncident,
    *(NAMES, NUMBERS, st.sampled_from(IncidentKind), NUMBERS, NUMBERS, st.text(max_size=9)),
    policy=st.none() | POLICIES,
    side=st.none() | st.sampled_from(IncidentSide),
)
MOVED = st.lists(st.tuples(MOMENTS_S, NUMBERS), max_size=3)
LEARNT = st.builds(QuotaSnapshot, NUMBERS, *[MOMENTS_S] * 4, MOVED, NUMBERS, MOMENTS_S)
PACES = st.builds(LearntQuota, st.sampled_from(["source", "target"]), NUMBERS, NUMBERS, LEARNT)
ACCOUNT = st.lists(CARRIED, max_size=2), st.lists(MET, max_size=2)
WORDS_OF_A_TASK = st.one_of(
    st.just(TaskReady()),
    st.builds(TaskProgress, *ACCOUNT, SPEEDS, MOMENTS_S),
    st.builds(ThrottleUsage, st.dictionaries(NAMES, st.lists(MOMENTS_S, min_size=2, max_size=2), max_size=2)),
    st.builds(Released, st.builds(TopicPartition, NAMES, NUMBERS), st.none() | HANDOVERS, st.none() | CARRIED),
    st.builds(TaskFinished, *ACCOUNT, st.lists(HANDOVERS, max_size=2), SPEEDS, MOMENTS_S, st.lists(PACES, max_size=2)),
)


def travelled(message: messages.JsonMessage) -> Any:
    return json.loads(messages.encode_line(message))


@pytest.mark.parametrize(
    "word",
    [
        Assign((PartitionConfig("orders", 3, "aa", "bb", receipt_to=4, twin="copy"),)),
        Assign((PartitionConfig("orders", 3, "aa", "bb", reached=WrittenPosition(70, 80, 5)),)),
        StartWriting(STANDS, {NAMED: EpochOffset(4, 70)}, {NAMED: WrittenPosition(70, 80, 5, warm=True)}, (PACE,)),
        LeaseGranted(12.5, 4.0),
        Release(NAMED),
        TaskRateLimits(1000.0, {"orders": 10.0}, {"orders": 40}),
        TakeOver(STANDS),
        Finish(),
        Stop(),
    ],
)
def test_words_of_the_coordinator(word: CoordinatorMessage) -> None:
    assert messages.decode_for_task(travelled(messages.encode_message(word))) == word


@given(word=WORDS_OF_A_TASK)
def test_words_of_a_task(word: TaskMessage) -> None:
    assert messages.decode_for_coordinator(travelled(messages.encode_message(word))) == word


@pytest.mark.parametrize("word", [StartTask(9, ORDER), StopTaskGroup()])
def test_words_to_a_task_group(word: StartTask | StopTaskGroup) -> None:
    assert messages.decode_for_task_group(travelled(messages.encode_message(word))) == word


@pytest.mark.parametrize(
    "word", [TaskGroupAlive(), SlotTurn(4), SlotTurn(0), SlotEnded(3, "finished"), SlotEnded(3, "it died", died=True)]
)
def test_words_of_a_task_group(word: TaskGroupMessage) -> None:
    assert messages.decode_from_task_group(travelled(messages.encode_message(word))) == word


@pytest.mark.parametrize(
    "hear",
    [
        messages.decode_for_task,
        messages.decode_for_coordinator,
        messages.decode_for_task_group,
        messages.decode_from_task_group,
    ],
)
def test_a_word_that_nobody_knows_ends_the_talk(hear: Any) -> None:
    with pytest.raises(ValueError, match="does not know the word 'sing'"):
        hear({"what": "sing"})


def test_a_task_tells_an_order_for_a_task_from_one_for_a_task_group() -> None:
    task_group = TaskGroupConfig(0, 3, "127.0.0.1", 1, "token")
    assert parse_task_config(task_group.to_json()) == task_group
    assert parse_task_config(ORDER.to_json()) == ORDER
    assert "token" not in repr(replace(task_group, coordinator_host="elsewhere"))
