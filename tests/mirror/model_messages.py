"""What is on its way between a modelled pump and the modelled brokers."""

from __future__ import annotations

from dataclasses import dataclass

from tests.mirror.model_brokers import Answer
from twinshore.fleet import NamedPartition
from twinshore.mirror.fetch_book import FetchOrder
from twinshore.mirror.track import Sent
from twinshore.wire.fetch import FetchAnswer


@dataclass(slots=True)
class Request:
    """A produce request: on its way, then processed, then answered."""

    node: int
    sent: list[Sent]
    bodies: list[tuple[NamedPartition, bytes]]
    sent_s: float
    answers: dict[NamedPartition, Answer] | None = None
    done_s: float = 0.0


@dataclass(slots=True)
class Fetch:
    order: FetchOrder
    answer: FetchAnswer | None = None


@dataclass(slots=True)
class Look:
    named: NamedPartition
    ends: tuple[int, int, int] | None = None
