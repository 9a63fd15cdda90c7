"""What a rule and a finding are. Pure.

A rule is data: what is at risk and in which event, for the report and for the page, and one small function that says
where it is so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from twinshore.advisor.seen import Seen


class Weight(StrEnum):
    """`grave`: one fault loses records or stops writers, or has done so. `warning`: so will a fault and some bad luck.
    `note`: worth knowing."""

    GRAVE = "grave"
    WARNING = "warning"
    NOTE = "note"


WEIGHTS = tuple(Weight)


@dataclass(frozen=True, slots=True)
class Limit:
    """A threshold of a rule; a policy may set another."""

    name: str
    default: float
    says: str
    whole: bool = False


# What several rules go by: were it other for one of them, their commands would undo each other, or one would say what
# another one denies. A policy has it in [limits].
SHARED = (
    Limit("copies", 3, "replicas that a partition should have", whole=True),
    Limit("min_insync", 2, "min.insync.replicas that Kafka's own topics and new ones should have", whole=True),
    Limit("waited", 120, "seconds that a group's next record must have waited before the group is said to stand still"),
)


@dataclass(frozen=True, slots=True)
class Change:
    """Settings of one topic that `--fix` may set: no write that works now is refused because of them, and no record
    goes."""

    topic: str
    settings: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"topic {self.topic}: " + ", ".join(f"{name}={value}" for name, value in self.settings)


@dataclass(frozen=True, slots=True)
class Found:
    """Where a rule's case is so. `commands` mend it, as they would be typed; `by_hand` says what no command can do.
    `safe`, by itself, mends all of it. `weight`, where it is another one than the rule's: an owner asked for it."""

    subject: str
    evidence: str
    commands: tuple[str, ...] = ()
    by_hand: str = ""
    safe: Change | None = None
    weight: Weight | None = None


Judge = Callable[[Seen, Mapping[str, float]], Iterable[Found]]


@dataclass(frozen=True, slots=True)
class Rule:
    """`says` is the case, `risk` what is at risk, `event` when that happens. `judge` gets what was seen and the
    limits by name, those that are shared among them. `story`: which one of the simulator shows it, if one does."""

    name: str
    weight: Weight
    says: str
    risk: str
    event: str
    judge: Judge
    limits: tuple[Limit, ...] = ()
    story: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule's case at one subject."""

    rule: str
    weight: Weight
    subject: str
    says: str
    risk: str
    event: str
    evidence: str
    commands: tuple[str, ...] = ()
    by_hand: str = ""
    safe: Change | None = None
    story: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """The same finding at another time has the same key."""
        return self.rule, self.subject


def finding_of(rule: Rule, found: Found) -> Finding:
    return Finding(
        rule.name,
        found.weight or rule.weight,
        found.subject,
        rule.says,
        rule.risk,
        rule.event,
        found.evidence,
        found.commands,
        found.by_hand,
        found.safe,
        rule.story,
    )
