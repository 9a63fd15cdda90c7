"""Calls that a topic's home has refused by rules. A switch says that it holds a topic before its rules keep writers
out: so such a refusal counts only once that cluster was read behind it. Where a hold ran out the rules may stay, until
the switch is ended: what they refuse meanwhile is sent again then."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from confluent_kafka import KafkaError, Message

from twinshore.client.kept import Kept


class Refusal(NamedTuple):
    """`heard_s`: when it was; `amid`: behind a hold that ran out."""

    cluster: str
    kept: Kept
    error: KafkaError
    message: Message
    heard_s: float
    amid: bool


class ShutOut:
    """Of one producer, in the thread that moves."""

    def __init__(self) -> None:
        self.waiting: list[Refusal] = []

    def topics(self) -> set[str]:
        """Nothing may overtake what was refused of them."""
        return {one.kept.topic for one in self.waiting}

    def due(self, is_heard: Callable[[Refusal], bool]) -> list[Refusal]:
        """Takes out those that can be judged by now."""
        judged = [(one, is_heard(one)) for one in self.waiting]
        self.waiting = [one for one, is_due in judged if not is_due]
        return [one for one, is_due in judged if is_due]
