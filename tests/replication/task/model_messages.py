"""What is on its way between a modelled pump and the modelled brokers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.replication.task.model_brokers import Answer
from twinshore.config.model import NamedPartition
from twinshore.kafka.protocol.fetch import FetchedAnswer
from twinshore.replication.task.core.fetching import FetchOrder
from twinshore.replication.task.core.partition import Sent
from twinshore.replication.task.core.position import Marked
from twinshore.replication.task.core.resync import Rest


@dataclass(slots=True)
class Request:
    """A produce request, or the question where `rests` end: on its way, then processed, then answered."""

    node: int
    sent: list[Sent]
    bodies: list[tuple[NamedPartition, bytes]]
    sent_s: float
    answers: dict[NamedPartition, Answer] | None = None
    done_s: float = 0.0
    rests: Sequence[Rest] = ()


def ends_of(request: Request) -> list[Marked]:
    """The answer to a question, as a lane is told it."""
    found = (request.answers or {}).items()
    return [Marked(named.topic, named.partition, error, end) for named, (error, end, _) in found]


@dataclass(slots=True)
class Fetch:
    order: FetchOrder
    answer: FetchedAnswer | None = None


@dataclass(slots=True)
class Look:
    named: NamedPartition
    ends: tuple[int, int, int] | None = None
