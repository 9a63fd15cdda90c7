"""What a habit of a client and a rule about it are. Pure.

A rule is data: the habit, what it costs, which settings mend it and what comes of that, and one small function that
says where it is so, with figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from twinshore.advisor.conduct.uses import Client
from twinshore.advisor.rule import Limit, Weight
from twinshore.store.traffic_values import FlowKey

Figures = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Case:
    """Where a habit is so. `evidence` and `cost` are sentences with figures, `figures` the same for programs; `effect`:
    what the settings would change, as far as it can be reckoned."""

    key: FlowKey
    evidence: str
    cost: str
    effect: str
    figures: Figures = field(default_factory=dict)


Judge = Callable[[Client, Mapping[str, float]], Iterable[Case]]


@dataclass(frozen=True, slots=True)
class HabitRule:
    """`says` is the habit, `costs` what it costs in general. `settings`: lines for a client's settings; where
    librdkafka has another name for one, it stands behind."""

    name: str
    weight: Weight
    says: str
    costs: str
    settings: tuple[str, ...]
    judge: Judge
    limits: tuple[Limit, ...] = ()


@dataclass(frozen=True, slots=True)
class Habit:
    """A rule's case at one client. `subject` is the client, with topic and cluster where the habit is about one."""

    rule: str
    weight: Weight
    subject: str
    client: str
    topic: str
    cluster: str
    says: str
    costs: str
    evidence: str
    cost: str
    settings: tuple[str, ...]
    effect: str
    figures: Figures = field(default_factory=dict)

    def as_values(self) -> dict[str, Any]:
        """For programs."""
        figures = {name: round(value, 3) for name, value in self.figures.items()}
        return {**asdict(self), "settings": list(self.settings), "figures": figures}


def habit_of(rule: HabitRule, case: Case) -> Habit:
    """The rule's words around the case's."""
    key = case.key
    return Habit(
        rule.name,
        rule.weight,
        subject_of(key),
        key.client,
        key.topic,
        key.cluster,
        rule.says,
        rule.costs,
        case.evidence,
        case.cost,
        rule.settings,
        case.effect,
        case.figures,
    )


def subject_of(key: FlowKey) -> str:
    """As in "client app, topic orders on east"."""
    client = f"client {key.client}" if key.client else "clients without an id"
    topic = f", topic {key.topic}" if key.topic else ""
    return f"{client}{topic}" + (f" on {key.cluster}" if key.topic and key.cluster else "")
