"""Messages between coordinator, tasks and task groups, as values and as lines of JSON.

A task's messages are commands of its core. Messages are encoded and decoded only here; driver and task have one
version. A **task group** is a set of small tasks of several links, side by side in one Spark task.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from twinshore.config.model import TopicPartition
from twinshore.replication.task.core.config import (
    EpochOffset,
    Handoff,
    PartitionConfig,
    PartitionIncident,
    PartitionProgress,
    TaskConfig,
    TaskLimits,
    WrittenPosition,
    json_adapter,
)
from twinshore.replication.task.core.throttle import QuotaSnapshot

# Tasks in a group take turns: one turn may fetch and parse only a part of what a single task may.
FETCH_BYTES_MAX = 4 << 20
PARTITION_BYTES_MAX = 1 << 20
JOINED_BYTES_MAX = 8 << 20
WORK_MAX = 10_000
# A broadcast holds at least so many fetches.
FETCHES_HELD = 8
MessageT = TypeVar("MessageT")


class Assign(NamedTuple):
    configs: tuple[PartitionConfig, ...]


class StartWriting(NamedTuple):
    """Start to write. `told`: how far progress is recorded. `reached`: how far mapped twins are written. `paces`:
    quotas as the previous task learnt them. `untouched`: new twins that no task was allowed to write.
    """

    handoffs: tuple[Handoff, ...]
    told: Mapping[TopicPartition, EpochOffset]
    reached: Mapping[TopicPartition, WrittenPosition]
    paces: tuple[LearntQuota, ...] = ()
    untouched: tuple[TopicPartition, ...] = ()


class LeaseGranted(NamedTuple):
    """Extends the write lease by `grant_s` from `asked_s` on, the time of the request on the task's clock."""

    asked_s: float
    grant_s: float


class Release(NamedTuple):
    """Stops this partition and hands it over."""

    partition: TopicPartition


class TaskRateLimits(NamedTuple):
    """The task's share of each throttle in bytes a second (0: unlimited), and topic weights."""

    link: float
    topics: Mapping[str, float]
    weights: Mapping[str, int]


class TakeOver(NamedTuple):
    """Positions of partitions that another task has released."""

    handoffs: tuple[Handoff, ...]


class Finish(NamedTuple):
    """Stop in good order, and report positions."""


class Stop(NamedTuple):
    """Stop at once."""


class TaskReady(NamedTuple):
    """Every connection is open, or was tried."""


class TaskProgress(NamedTuple):
    """Progress and incidents since the last one, and a request to renew the lease from `asked_s` on. The coordinator
    returns `asked_s`, as several may be in flight.
    """

    carried: list[PartitionProgress]
    incidents: list[PartitionIncident]
    speed: dict[str, float]
    asked_s: float


class ThrottleUsage(NamedTuple):
    used: dict[str, list[float]]


class Released(NamedTuple):
    """A partition is idle and no longer this task's."""

    partition: TopicPartition
    handover: Handoff | None
    carried: PartitionProgress | None


class LearntQuota(NamedTuple):
    """What quotas let through on one connection. `stream`: -1 on the target."""

    side: str
    node: int
    stream: int
    learnt: QuotaSnapshot


class TaskFinished(NamedTuple):
    """The last message. `unread_s`: how long a broker may still accept earlier requests. `paces`: for the next task."""

    carried: list[PartitionProgress]
    incidents: list[PartitionIncident]
    handoffs: list[Handoff]
    speed: dict[str, float]
    unread_s: float
    paces: list[LearntQuota]


CoordinatorMessage = Assign | StartWriting | LeaseGranted | Release | TaskRateLimits | TakeOver | Finish | Stop
TaskMessage = TaskReady | TaskProgress | ThrottleUsage | Released | TaskFinished
COORDINATOR_MESSAGES: tuple[type[CoordinatorMessage], ...]
COORDINATOR_MESSAGES = (Assign, StartWriting, LeaseGranted, Release, TaskRateLimits, TakeOver, Finish, Stop)
TASK_MESSAGES: tuple[type[TaskMessage], ...] = (TaskReady, TaskProgress, ThrottleUsage, Released, TaskFinished)
JsonMessage = dict[str, Any]


def encode_line(message: JsonMessage) -> bytes:
    """Encodes a message as one line of JSON."""
    return (json.dumps(message, separators=(",", ":"), default=_fields_of) + "\n").encode()


def _fields_of(value: Any) -> JsonMessage:
    return {name: getattr(value, name) for name in value.__slots__}


def encode_message(message: CoordinatorMessage | TaskMessage | TaskGroupCommand | TaskGroupMessage) -> JsonMessage:
    fields = message._asdict() if isinstance(message, tuple) else dataclasses.asdict(message)
    if isinstance(message, StartWriting):  # keys in JSON are text
        fields |= {"told": list(message.told.items()), "reached": list(message.reached.items())}
    return {"what": type(message).__name__.lower(), **fields}


def decode_for_task(message: JsonMessage) -> CoordinatorMessage:
    if message["what"] == "startwriting":
        told, reached = ({TopicPartition(**key): row for key, row in message[name]} for name in ("told", "reached"))
        message = message | {"told": told, "reached": reached}
    return _decoded(message, COORDINATOR_MESSAGES, "a task")


def decode_for_coordinator(message: JsonMessage) -> TaskMessage:
    """Decodes a task's message. Raises KeyError, TypeError or ValueError for anything else."""
    return _decoded(message, TASK_MESSAGES, "the coordinator")


def _decoded(message: JsonMessage, kinds: tuple[type[MessageT], ...], receiver: str) -> MessageT:
    what = message["what"]
    kind = next((kind for kind in kinds if kind.__name__.lower() == what), None)
    if kind is None:
        raise ValueError(f"{receiver} does not know the word {what!r}")
    return json_adapter(kind).validate_python({name: value for name, value in message.items() if name != "what"})


@dataclass(frozen=True, slots=True)
class TaskGroupConfig:
    """All that a task group needs to start; tasks are assigned later. `tells`: report each turn before it begins."""

    task_group: int
    run: int
    coordinator_host: str
    coordinator_port: int
    coordinator_token: str = field(repr=False)
    tells: bool = False

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))


@dataclass(frozen=True, slots=True)
class StartTask:
    """To the task group: start this task. `slot`: the slot number, never used again."""

    slot: int
    config: TaskConfig


@dataclass(frozen=True, slots=True)
class StopTaskGroup:
    """To the task group: accept no more tasks, and end after the running ones."""


@dataclass(frozen=True, slots=True)
class TaskGroupAlive:
    """From the task group, every second: the loop is running."""


@dataclass(frozen=True, slots=True)
class SlotTurn:
    """From the task group: this slot's turn begins; 0: no task's. Only if `TaskGroupConfig.tells`."""

    slot: int


@dataclass(frozen=True, slots=True)
class SlotEnded:
    """From the task group: this slot's task has ended, and why."""

    slot: int
    sentence: str
    died: bool = False


TaskGroupMessage = TaskGroupAlive | SlotTurn | SlotEnded
TaskGroupCommand = StartTask | StopTaskGroup
TASK_GROUP_MESSAGES: tuple[type[TaskGroupMessage], ...] = (TaskGroupAlive, SlotTurn, SlotEnded)
TASK_GROUP_COMMANDS: tuple[type[TaskGroupCommand], ...] = (StartTask, StopTaskGroup)


def parse_task_config(text: str) -> TaskConfig | TaskGroupConfig:
    kind: type[TaskConfig | TaskGroupConfig] = TaskGroupConfig if "task_group" in json.loads(text) else TaskConfig
    return json_adapter(kind).validate_json(text)


def decode_for_task_group(message: JsonMessage) -> TaskGroupCommand:
    """Decodes a driver message. Raises ValueError for anything else."""
    return _decoded(message, TASK_GROUP_COMMANDS, "a task group")


def decode_from_task_group(message: JsonMessage) -> TaskGroupMessage:
    """Decodes a task group's message. Raises ValueError for anything else."""
    return _decoded(message, TASK_GROUP_MESSAGES, "a driver")


def narrow_limits(limits: TaskLimits, high_bytes: int = 0) -> TaskLimits:
    """Narrows a task's limits for a group, so that no turn delays another's lease renewal. `high_bytes`: what a
    broadcast may hold for slow tasks; one fetch may bring a part.
    """
    fetch_bytes = min(limits.fetch_bytes_max, FETCH_BYTES_MAX)
    partition_bytes = min(limits.partition_bytes_max, PARTITION_BYTES_MAX)
    widest, partition_widest = limits.fetch_bytes_widest, limits.partition_bytes_widest
    if high_bytes:
        # All members get the data of one fetch before the next one replaces it.
        fetch_bytes, partition_bytes = min(fetch_bytes, high_bytes // 2), min(partition_bytes, high_bytes // 4)
        widest = max(fetch_bytes, high_bytes // FETCHES_HELD)
        partition_widest = max(partition_bytes, high_bytes // FETCHES_HELD // 4)
    return dataclasses.replace(
        limits,
        fetch_bytes_max=fetch_bytes,
        partition_bytes_max=partition_bytes,
        fetch_bytes_widest=widest,
        partition_bytes_widest=partition_widest,
        joined_bytes_max=min(limits.joined_bytes_max, JOINED_BYTES_MAX),
        work_max=min(limits.work_max, WORK_MAX),
        far_streams=1,
    )
