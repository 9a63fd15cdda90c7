"""Values that the store keeps of proxies: circuit breakers, instances, offset resets, and traffic counts."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Final, NamedTuple

WILDCARD_SUFFIX = "*"


class BreakerKind(StrEnum):
    """The requests that a breaker blocks."""

    PRODUCE = "produce"
    FETCH = "fetch"


class BreakerState(StrEnum):
    """OPEN: blocks requests. CLOSED: does not, unless its limits open the breaker."""

    OPEN = "open"
    CLOSED = "closed"


class BreakerPolicy(StrEnum):
    """The answer to blocked producers. REFUSE: retry. DROP: acknowledged, though not written."""

    REFUSE = "refuse"
    DROP = "drop"


class BreakerKey(NamedTuple):
    """What identifies a breaker. `topic` and `client` are whole names, or prefixes followed by `*`."""

    topic: str
    client: str
    kind: BreakerKind


@dataclass(frozen=True, slots=True)
class BreakerLimits:
    """Limits that open a breaker, at each proxy separately; 0: never. A breaker opens when one was exceeded for
    `above_s`, and closes once all values stayed below half for `quiet_s`.
    """

    records_s: int = 0
    bytes_s: int = 0
    latency_ms: int = 0
    above_s: int = 5
    quiet_s: int = 30

    @property
    def any(self) -> bool:
        return bool(self.records_s or self.bytes_s or self.latency_ms)


@dataclass(frozen=True, slots=True)
class BreakerRow:
    """A circuit breaker. `until_ms`: when it closes by itself; 0: never."""

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
        return BreakerKey(self.topic, self.client, self.kind)


@dataclass(frozen=True, slots=True)
class ProxyInstanceRow:
    """A proxy process. `revision`: the breaker revision that the proxy applied last. `settings_revision`: the last one
    of live settings of which all are in force there.
    """

    id: str
    name: str
    host: str
    port: int
    started_ms: int
    revision: int
    seen_ms: int
    settings_revision: int = 0


@dataclass(frozen=True, slots=True)
class BreakerCountRow:
    """One breaker's responses at one proxy since that started. `tripped`: opened by its limits now."""

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
        return BreakerKey(self.topic, self.client, self.kind)


@dataclass(frozen=True, slots=True)
class DroppedRecordsRow:
    """Records acknowledged to a client that no broker has. `breaker`: the breaker's topic pattern. `partitions`:
    comma-separated.
    """

    instance: str
    topic: str
    client: str
    since_ms: int
    breaker: str
    partitions: str
    records: int
    bytes: int
    until_ms: int


class ResetState(StrEnum):
    """HELD: members commit what they have read, and wait; nothing is changed if this ends here. SETTING: members leave,
    and some offsets may be set. DONE: all are set. ROLLED_BACK: all are as before. GIVEN_UP: none was changed.
    """

    HELD = "held"
    SETTING = "setting"
    DONE = "done"
    ROLLED_BACK = "undone"
    GIVEN_UP = "given up"


# Members wait in these states.
ONGOING_RESET_STATES: Final = (ResetState.HELD, ResetState.SETTING)


class ResetGoal(NamedTuple):
    """A committed offset: its cluster and partition, its old value (None: none) and its new value."""

    cluster: str
    topic: str
    partition: int
    was: int | None
    to: int


@dataclass(frozen=True, slots=True)
class ResetRow:
    """A reset of a group's committed offsets.

    `run`: a random id of the resetting process, a new one once offsets are set. `until_ms`: while HELD or SETTING
    members wait until then, and the process may write; afterwards no client outside may commit these offsets until
    then. `members`: those sent away, which may still commit earlier offsets.
    """

    group: str
    run: str
    state: ResetState
    set_by: str
    since_ms: int
    until_ms: int
    goals: tuple[ResetGoal, ...] = ()
    members: frozenset[str] = frozenset()

    def holds(self, now_ms: int) -> bool:
        return self.state in ONGOING_RESET_STATES and now_ms < self.until_ms


@dataclass(frozen=True, slots=True)
class ResetStatusRow:
    """A proxy holds this run's group, with no earlier request in flight. `waiting_members`: those there."""

    instance: str
    run: str
    waiting_members: int
    at_ms: int


# The upper bounds of histogram buckets; one more bucket counts all above the last.
LATENCY_BUCKETS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000)
SIZE_BUCKETS_BYTES: Final = (256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576)
# The client or topic that counts all those without a count of their own.
OTHER_NAMES: Final = "*"


class TrafficKind(StrEnum):
    """What is counted. CLIENT: all requests of a client, over all its connections."""

    PRODUCE = "produce"
    FETCH = "fetch"
    COMMIT = "commit"
    METADATA = "metadata"
    CLIENT = "client"


class TrafficKey(NamedTuple):
    """Whose traffic, and where. `topic` is empty where requests concern several or none; `cluster` where they concern
    none.
    """

    client: str
    topic: str
    cluster: str
    kind: TrafficKind


def _none_of(bounds: tuple[int, ...]) -> list[int]:
    return [0] * (len(bounds) + 1)


@dataclass(slots=True)
class TrafficCounter:
    """Counts that only grow, and the maxima `connected_max` and `version_max`.

    Producers: `bytes`, `records` and `batches` as sent. lz4 made `lz4_sample_compressed_bytes` of samples of
    `lz4_sample_bytes`. `non_idempotent_batches`: without producer id. `acks_none`, `acks_leader`: requests. Consumers:
    `empty` responses; sums of requested `wait_ms` and `min_bytes`. Commits: `records` by which offsets moved. Metadata:
    `errors` are requests for unknown topics. A request with several topics counts for each. `latency` counts produce
    requests, `sizes` requests.
    """

    requests: int = 0
    bytes: int = 0
    records: int = 0
    batches: int = 0
    uncompressed_batches: int = 0
    uncompressed_bytes: int = 0
    lz4_sample_bytes: int = 0
    lz4_sample_compressed_bytes: int = 0
    single_record_batches: int = 0
    non_idempotent_batches: int = 0
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
        """The number of answered produce requests."""
        return sum(self.latency)

    @property
    def mean_ms(self) -> float:
        """The mean latency of those; 0 without any."""
        return self.answered_us / self.answered / 1000 if self.answered_us else 0.0

    def add(self, other: TrafficCounter) -> None:
        for name in SUM_FIELDS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in MAX_FIELDS:
            setattr(self, name, max(getattr(self, name), getattr(other, name)))
        self.software = other.software or self.software
        self.latency = [ours + theirs for ours, theirs in zip(self.latency, other.latency, strict=True)]
        self.sizes = [ours + theirs for ours, theirs in zip(self.sizes, other.sizes, strict=True)]

    def copy(self) -> TrafficCounter:
        return self.since(_NONE)

    def since(self, before: TrafficCounter) -> TrafficCounter:
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
    """One proxy's counts in a time window. `instance`: the process. `proxy`: its configured name."""

    instance: str
    proxy: str
    since_ms: int
    until_ms: int
    key: TrafficKey
    flow: TrafficCounter

    def as_values(self) -> dict[str, Any]:
        """Returns the row for JSON."""
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
