"""What the store keeps of proxies, as values: fuses, who serves, what fuses answered in place of brokers, and resets
of groups' places. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

EVERY = "*"


class FuseKind(StrEnum):
    """What a fuse cuts."""

    PRODUCE = "produce"
    FETCH = "fetch"


class FuseState(StrEnum):
    """OPEN: it cuts. CLOSED: it does not, unless it has limits and they trip it."""

    OPEN = "open"
    CLOSED = "closed"


class FusePolicy(StrEnum):
    """What producers are answered. REFUSE: try again. DROP: it is written, which it is not."""

    REFUSE = "refuse"
    DROP = "drop"


class FuseKey(NamedTuple):
    """`topic` and `client` are whole names, or how names begin, with a `*` behind."""

    topic: str
    client: str
    kind: FuseKind


@dataclass(frozen=True, slots=True)
class Limits:
    """At how much a fuse trips by itself, at each proxy for itself; 0: never. It does where one of them was passed for
    `above_s`, and closes again once all stayed below half of it for `quiet_s`."""

    records_s: int = 0
    bytes_s: int = 0
    latency_ms: int = 0
    above_s: int = 5
    quiet_s: int = 30

    @property
    def any(self) -> bool:
        """Whether there are limits at all."""
        return bool(self.records_s or self.bytes_s or self.latency_ms)


@dataclass(frozen=True, slots=True)
class FuseRow:
    """`until_ms`: when it closes by itself; 0: never."""

    topic: str
    client: str
    kind: FuseKind
    state: FuseState
    policy: FusePolicy
    reason: str
    set_by: str
    since_ms: int
    until_ms: int = 0
    limits: Limits = Limits()

    @property
    def key(self) -> FuseKey:
        """Which one it is."""
        return FuseKey(self.topic, self.client, self.kind)


@dataclass(frozen=True, slots=True)
class InstanceRow:
    """A process that serves clients. `revision`: how often fuses had been changed when it took up the last change."""

    id: str
    name: str
    host: str
    port: int
    started_ms: int
    revision: int
    seen_ms: int


@dataclass(frozen=True, slots=True)
class FuseCountRow:
    """What one fuse answered at one proxy since that began. `tripped`: whether its limits have it cut just now."""

    instance: str
    topic: str
    client: str
    kind: FuseKind
    requests: int
    records: int
    bytes: int
    tripped: bool
    changed_ms: int

    @property
    def key(self) -> FuseKey:
        """Of which fuse."""
        return FuseKey(self.topic, self.client, self.kind)


@dataclass(frozen=True, slots=True)
class DropRow:
    """Records of a client that it takes for written and that no broker has, from the first to the last one. `fuse`: the
    topic as the fuse names it. `partitions`: their numbers with commas between."""

    instance: str
    topic: str
    client: str
    since_ms: int
    fuse: str
    partitions: str
    records: int
    bytes: int
    until_ms: int


class ResetState(StrEnum):
    """HELD: members wait, and commit what they have read; where that is over, nothing was touched. SETTING: they leave,
    and some of the places may be set. DONE: all are. UNDONE: all are as they were. GIVEN_UP: none was touched."""

    HELD = "held"
    SETTING = "setting"
    DONE = "done"
    UNDONE = "undone"
    GIVEN_UP = "given up"


# Of these members wait.
BEGUN: Final = (ResetState.HELD, ResetState.SETTING)


class ResetGoal(NamedTuple):
    """A place of the group: where it is kept, where it was (None: nowhere), and where it is to be."""

    cluster: str
    topic: str
    partition: int
    was: int | None
    to: int


@dataclass(frozen=True, slots=True)
class ResetRow:
    """A group is set to other places. `run`: whoever is at it, by a number of his own, and another one once he sets
    places. `until_ms`: so long members wait while it has BEGUN, and he may write; then, so long nobody commits these
    places from outside. `members`: who was sent away for it; they may still commit places of before."""

    group: str
    run: str
    state: ResetState
    set_by: str
    since_ms: int
    until_ms: int
    goals: tuple[ResetGoal, ...] = ()
    members: frozenset[str] = frozenset()

    def holds(self, now_ms: int) -> bool:
        """Whether members are to wait."""
        return self.state in BEGUN and now_ms < self.until_ms


@dataclass(frozen=True, slots=True)
class ResetWord:
    """A proxy holds the group of this run: nothing of before is on its way. `waits`: so many members wait there."""

    instance: str
    run: str
    waits: int
    at_ms: int


def goals_text(goals: tuple[ResetGoal, ...]) -> str:
    """As the store keeps them."""
    return json.dumps(goals, separators=(",", ":"))


def goals_of(text: str) -> tuple[ResetGoal, ...]:
    """The other way round."""
    return tuple(ResetGoal(*one) for one in json.loads(text))
