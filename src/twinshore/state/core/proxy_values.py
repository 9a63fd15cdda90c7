"""What the store keeps of proxies, as values: fuses, who serves, what fuses answered in place of brokers, and resets
of groups' places. Pure.

What went through proxies, as counts: of one client, one topic, one cluster, for a while. Pure.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Final, NamedTuple

WILDCARD_SUFFIX = "*"


class BreakerKind(StrEnum):
    """What a fuse cuts."""

    PRODUCE = "produce"
    FETCH = "fetch"


class BreakerState(StrEnum):
    """OPEN: it cuts. CLOSED: it does not, unless it has limits and they trip it."""

    OPEN = "open"
    CLOSED = "closed"


class BreakerPolicy(StrEnum):
    """What producers are answered. REFUSE: try again. DROP: it is written, which it is not."""

    REFUSE = "refuse"
    DROP = "drop"


class BreakerKey(NamedTuple):
    """`topic` and `client` are whole names, or how names begin, with a `*` behind."""

    topic: str
    client: str
    kind: BreakerKind


@dataclass(frozen=True, slots=True)
class BreakerLimits:
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
class BreakerRow:
    """`until_ms`: when it closes by itself; 0: never."""

    topic: str
    client: str
    kind: BreakerKind
    state: BreakerState
    policy: BreakerPolicy
    reason: str
    set_by: str
    since_ms: int
    until_ms: int = 0
    limits: BreakerLimits = BreakerLimits()

    @property
    def key(self) -> BreakerKey:
        """Which one it is."""
        return BreakerKey(self.topic, self.client, self.kind)


@dataclass(frozen=True, slots=True)
class ProxyInstanceRow:
    """A process that serves clients. `revision`: how often fuses had been changed when it took up the last change."""

    id: str
    name: str
    host: str
    port: int
    started_ms: int
    revision: int
    seen_ms: int


@dataclass(frozen=True, slots=True)
class BreakerCountRow:
    """What one fuse answered at one proxy since that began. `tripped`: whether its limits have it cut just now."""

    instance: str
    topic: str
    client: str
    kind: BreakerKind
    requests: int
    records: int
    bytes: int
    tripped: bool
    changed_ms: int

    @property
    def key(self) -> BreakerKey:
        """Of which fuse."""
        return BreakerKey(self.topic, self.client, self.kind)


@dataclass(frozen=True, slots=True)
class DroppedRecordsRow:
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
    ROLLED_BACK = "undone"
    GIVEN_UP = "given up"


# Of these members wait.
ONGOING_RESET_STATES: Final = (ResetState.HELD, ResetState.SETTING)


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
        return self.state in ONGOING_RESET_STATES and now_ms < self.until_ms


@dataclass(frozen=True, slots=True)
class ResetStatusRow:
    """A proxy holds the group of this run: nothing of before is on its way. `waits`: so many members wait there."""

    instance: str
    run: str
    waits: int
    at_ms: int


def encode_goals(goals: tuple[ResetGoal, ...]) -> str:
    """As the store keeps them."""
    return json.dumps(goals, separators=(",", ":"))


def parse_goals(text: str) -> tuple[ResetGoal, ...]:
    """The other way round."""
    return tuple(ResetGoal(*one) for one in json.loads(text))


# The upper ends of histograms; what lies above the last one is counted behind it.
LATENCY_BUCKETS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000)
SIZE_BUCKETS_BYTES: Final = (256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576)
# A client or a topic that stands for all those that are not told apart.
OTHER_NAMES: Final = "*"


class TrafficKind(StrEnum):
    """What is counted. CLIENT: all that a client asks, over all its connections."""

    PRODUCE = "produce"
    FETCH = "fetch"
    COMMIT = "commit"
    METADATA = "metadata"
    CLIENT = "client"


class TrafficKey(NamedTuple):
    """Of whom and where. `topic` is empty where what is asked is about several, or none; `cluster` where it is about
    none."""

    client: str
    topic: str
    cluster: str
    kind: TrafficKind


def _none_of(bounds: tuple[int, ...]) -> list[int]:
    return [0] * (len(bounds) + 1)


@dataclass(slots=True)
class TrafficCounter:
    """Counts that only grow, and `connected_max` and `version_max`, which are the highest that were seen.

    Producers: `bytes`, `records` and `batches` as they were sent; `plain` batches, with `plain_bytes`, are not
    compressed; of samples of those with `tried` bytes lz4 made `tried_lz4`. `singles` hold one record, `unnumbered`
    batches have no producer id; `acks_none` and `acks_leader` are requests. Consumers: `empty` are answers without a
    record, `wait_ms` and `min_bytes` what was asked for, summed up. Commits: `records` by which places moved. Metadata:
    `errors` are questions for a topic that nobody has. A request that names several topics counts for each. `latency`
    is of producers, `sizes` are of requests.
    """

    requests: int = 0
    bytes: int = 0
    records: int = 0
    batches: int = 0
    plain: int = 0
    plain_bytes: int = 0
    tried: int = 0
    tried_lz4: int = 0
    singles: int = 0
    unnumbered: int = 0
    acks_none: int = 0
    acks_leader: int = 0
    errors: int = 0
    empty: int = 0
    wait_ms: int = 0
    min_bytes: int = 0
    connections: int = 0
    connected_max: int = 0
    version_max: int = 0
    answered_us: int = 0
    software: str = ""
    latency: list[int] = field(default_factory=lambda: _none_of(LATENCY_BUCKETS_MS))
    sizes: list[int] = field(default_factory=lambda: _none_of(SIZE_BUCKETS_BYTES))
    sampled: bool = field(default=False, compare=False)  # in this window

    @property
    def answered(self) -> int:
        """How many requests of producers were answered."""
        return sum(self.latency)

    @property
    def mean_ms(self) -> float:
        """How long that took; 0 where none was."""
        return self.answered_us / self.answered / 1000 if self.answered_us else 0.0

    def add(self, other: TrafficCounter) -> None:
        """Takes the other's counts along."""
        for name in SUM_FIELDS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in MAX_FIELDS:
            setattr(self, name, max(getattr(self, name), getattr(other, name)))
        self.software = other.software or self.software
        self.latency = [ours + theirs for ours, theirs in zip(self.latency, other.latency, strict=True)]
        self.sizes = [ours + theirs for ours, theirs in zip(self.sizes, other.sizes, strict=True)]

    def copy(self) -> TrafficCounter:
        """As it is now."""
        return self.since(_NONE)

    def since(self, before: TrafficCounter) -> TrafficCounter:
        """What has come since it was as `before`."""
        found = TrafficCounter(software=self.software)
        for name in SUM_FIELDS:
            setattr(found, name, getattr(self, name) - getattr(before, name))
        for name in MAX_FIELDS:
            setattr(found, name, getattr(self, name))
        found.latency = [now - then for now, then in zip(self.latency, before.latency, strict=True)]
        found.sizes = [now - then for now, then in zip(self.sizes, before.sizes, strict=True)]
        return found


MAX_FIELDS: Final = ("connected_max", "version_max")
SUM_FIELDS: Final = tuple(
    one.name
    for one in fields(TrafficCounter)
    if one.name not in {*MAX_FIELDS, "software", "latency", "sizes", "sampled"}
)
_NONE: Final = TrafficCounter()


@dataclass(frozen=True, slots=True)
class TrafficRow:
    """What one proxy counted in a window of time. `instance` is the process, `proxy` what it calls itself."""

    instance: str
    proxy: str
    since_ms: int
    until_ms: int
    key: TrafficKey
    flow: TrafficCounter

    def as_values(self) -> dict[str, Any]:
        """For programs."""
        counts = {name: getattr(self.flow, name) for name in (*SUM_FIELDS, *MAX_FIELDS)}
        return {
            "proxy": self.proxy,
            "since_ms": self.since_ms,
            "until_ms": self.until_ms,
            **self.key._asdict(),
            **counts,
            "software": self.flow.software,
            "latency": self.flow.latency,
            "sizes": self.flow.sizes,
        }
