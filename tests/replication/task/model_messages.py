"""What is on its way between a modelled task and the modelled brokers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.replication.task.model_brokers import Answer
from twinshore.config.model import TopicPartition
from twinshore.kafka.protocol.fetch import FetchResponseById
from twinshore.replication.task.core.fetching import PlannedFetch
from twinshore.replication.task.core.markers import MarkerOutcome
from twinshore.replication.task.core.partition import SentBatch
from twinshore.replication.task.core.resync import EndOffsetCheck


@dataclass(slots=True)
class Request:
    """A produce request, or the question where `rests` end: on its way, then processed, then answered."""

    node: int
    sent: list[SentBatch]
    bodies: list[tuple[TopicPartition, bytes]]
    sent_s: float
    answers: dict[TopicPartition, Answer] | None = None
    done_s: float = 0.0
    rests: Sequence[EndOffsetCheck] = ()


def ends_of(request: Request) -> list[MarkerOutcome]:
    """The answer to a question, as a task is told it."""
    found = (request.answers or {}).items()
    return [MarkerOutcome(named.topic, named.partition, error, end) for named, (error, end, _) in found]


@dataclass(slots=True)
class Fetch:
    order: PlannedFetch
    answer: FetchResponseById | None = None


@dataclass(slots=True)
class Look:
    named: TopicPartition
    ends: tuple[int, int, int] | None = None
