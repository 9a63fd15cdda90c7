"""What went through proxies, as counts: of one client, one topic, one cluster, for a while. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Final, NamedTuple

# The upper ends of histograms; what lies above the last one is counted behind it.
LATENCY_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000)
SIZE_BYTES: Final = (256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576)
# A client or a topic that stands for all those that are not told apart.
OTHERS: Final = "*"


class FlowKind(StrEnum):
    """What is counted. CLIENT: all that a client asks, over all its connections."""

    PRODUCE = "produce"
    FETCH = "fetch"
    COMMIT = "commit"
    METADATA = "metadata"
    CLIENT = "client"


class FlowKey(NamedTuple):
    """Of whom and where. `topic` is empty where what is asked is about several, or none; `cluster` where it is about
    none."""

    client: str
    topic: str
    cluster: str
    kind: FlowKind


def _none_of(bounds: tuple[int, ...]) -> list[int]:
    return [0] * (len(bounds) + 1)


@dataclass(slots=True)
class Flow:
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
    latency: list[int] = field(default_factory=lambda: _none_of(LATENCY_MS))
    sizes: list[int] = field(default_factory=lambda: _none_of(SIZE_BYTES))
    sampled: bool = field(default=False, compare=False)  # in this window

    @property
    def answered(self) -> int:
        """How many requests of producers were answered."""
        return sum(self.latency)

    @property
    def mean_ms(self) -> float:
        """How long that took; 0 where none was."""
        return self.answered_us / self.answered / 1000 if self.answered_us else 0.0

    def add(self, other: Flow) -> None:
        """Takes the other's counts along."""
        for name in SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in HIGHEST:
            setattr(self, name, max(getattr(self, name), getattr(other, name)))
        self.software = other.software or self.software
        self.latency = [ours + theirs for ours, theirs in zip(self.latency, other.latency, strict=True)]
        self.sizes = [ours + theirs for ours, theirs in zip(self.sizes, other.sizes, strict=True)]

    def copy(self) -> Flow:
        """As it is now."""
        return self.since(_NONE)

    def since(self, before: Flow) -> Flow:
        """What has come since it was as `before`."""
        found = Flow(software=self.software)
        for name in SUMS:
            setattr(found, name, getattr(self, name) - getattr(before, name))
        for name in HIGHEST:
            setattr(found, name, getattr(self, name))
        found.latency = [now - then for now, then in zip(self.latency, before.latency, strict=True)]
        found.sizes = [now - then for now, then in zip(self.sizes, before.sizes, strict=True)]
        return found


HIGHEST: Final = ("connected_max", "version_max")
SUMS: Final = tuple(
    one.name for one in fields(Flow) if one.name not in {*HIGHEST, "software", "latency", "sizes", "sampled"}
)
_NONE: Final = Flow()


@dataclass(frozen=True, slots=True)
class FlowRow:
    """What one proxy counted in a window of time. `instance` is the process, `proxy` what it calls itself."""

    instance: str
    proxy: str
    since_ms: int
    until_ms: int
    key: FlowKey
    flow: Flow

    def as_values(self) -> dict[str, Any]:
        """For programs."""
        counts = {name: getattr(self.flow, name) for name in (*SUMS, *HIGHEST)}
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
