"""What clients did, summed up from windows, in any order and in parts, so that parts can be summed anywhere; what it
costs, reckoned from counts, and how figures are told. Pure.

What a habit of a client and a rule about it are. Pure.

A rule is data: the habit, what it costs, which settings mend it and what comes of that, and one small function that
says where it is so, with figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from twinshore.advisor.core.model import Limit, Weight
from twinshore.state.core.proxy_values import Flow, FlowKey, FlowKind, FlowRow


@dataclass(slots=True)
class Use:
    """One flow over all windows. `told_ms`: for how long each process counted something of it: a time of rest makes no
    rate smaller. `points`: requests and bytes by the number of a stretch of time, for a drawing."""

    flow: Flow = field(default_factory=Flow)
    told_ms: dict[str, int] = field(default_factory=dict)
    points: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def lasted_s(self) -> float:
        """Processes count side by side."""
        return max(self.told_ms.values(), default=0) / 1000

    @property
    def beside(self) -> float:
        """How many processes counted at the same time, on average."""
        return sum(self.told_ms.values()) / (self.lasted_s * 1000) if self.lasted_s else 1.0

    def per_s(self, count: float) -> float:
        """As a rate; 0 where nothing lasted."""
        return count / self.lasted_s if self.told_ms else 0.0

    def add(self, other: Use) -> Use:
        """With the other's share, as this one."""
        self.flow.add(other.flow)
        for instance, told_ms in other.told_ms.items():
            self.told_ms[instance] = self.told_ms.get(instance, 0) + told_ms
        for number, (requests, size) in other.points.items():
            known = self.points.get(number, (0, 0))
            self.points[number] = known[0] + requests, known[1] + size
        return self


Uses = dict[FlowKey, Use]


@dataclass(frozen=True, slots=True)
class Client:
    """What one client id did: it may be that of many processes, for clients call themselves alike by default.
    `min_insync`: of topics, by cluster and name, as far as it is known."""

    name: str
    uses: Mapping[FlowKey, Use]
    min_insync: Mapping[tuple[str, str], int] = field(default_factory=dict)

    def of(self, kind: FlowKind) -> Iterable[tuple[FlowKey, Use]]:
        """Its uses of this kind, by topic."""
        return sorted(((key, use) for key, use in self.uses.items() if key.kind is kind), key=lambda one: one[0])

    @property
    def connected(self) -> float:
        """Connections at once, at most: of the proxy that had the most, times the proxies side by side. So many
        processes may share the id, and no more."""
        uses = [use for key, use in self.uses.items() if key.kind is FlowKind.CLIENT]
        return max(1.0, sum(use.flow.connected_max * use.beside for use in uses))

    def each_s(self, use: Use, count: float) -> float:
        """As a rate of each connection: what many share an id for is no habit of one."""
        return use.per_s(count) / self.connected

    def whole(self, kind: FlowKind) -> Use:
        """All its uses of this kind together."""
        found = Use()
        for _, use in self.of(kind):
            found.add(Use(use.flow, {}, {}))
            for instance, told_ms in use.told_ms.items():  # of several topics at the same time
                found.told_ms[instance] = max(found.told_ms.get(instance, 0), told_ms)
        return found


def use_of(row: FlowRow, stretch_ms: int) -> Use:
    """That of one window."""
    told_ms = row.until_ms - row.since_ms
    points = {row.until_ms // stretch_ms: (row.flow.requests, row.flow.bytes)}
    return Use(row.flow.copy(), {row.instance: told_ms}, points)


def uses_of(rows: Iterable[FlowRow], stretch_ms: int) -> Uses:
    """That of some windows."""
    found: Uses = {}
    for row in rows:
        join(found, row.key, use_of(row, stretch_ms))
    return found


def join(known: Uses, key: FlowKey, use: Use) -> None:
    """Takes this one along."""
    if key in known:
        known[key].add(use)
    else:
        known[key] = use


def clients_of(uses: Uses, min_insync: Mapping[tuple[str, str], int]) -> list[Client]:
    """By their names."""
    found: dict[str, Uses] = {}
    for key, use in uses.items():
        found.setdefault(key.client, {})[key] = use
    return [Client(name, ours, min_insync) for name, ours in sorted(found.items())]


def weakly_written(uses: Uses) -> list[tuple[str, str]]:
    """Cluster and name of topics to which some client writes with less than acks=all."""
    weak = {
        (key.cluster, key.topic)
        for key, use in uses.items()
        if key.kind is FlowKind.PRODUCE and use.flow.acks_none + use.flow.acks_leader
    }
    return sorted(weak)


# What a small request costs a broker and its client's connection, about: measured figures differ by machine.
REQUEST_US: Final = 50
# What a waiting producer or consumer is advised to wait.
LINGER_MS: Final = 20
FETCH_WAIT_MS: Final = 500
DAY_S: Final = 86_400
SECONDS = Limit("seconds", 20, "seconds of traffic from which on it is judged")


def lasts(use: Use, seconds: float) -> bool:
    """Whether there is enough of it to be judged."""
    return use.lasted_s >= seconds


def size(count: float) -> str:
    """As in "1.2 MB"."""
    for unit, bytes_of in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= bytes_of:
            return f"{count / bytes_of:,.1f} {unit}"
    return f"{count:,.0f} bytes"


def work(requests_s: float) -> str:
    """The processor time of so many requests a second, in an hour."""
    return (
        f"about {requests_s * 3_600 * REQUEST_US / 1e6:,.1f} s of a broker's processor time in an hour,"
        f" reckoned at {REQUEST_US} us a request"
    )


def part_of(count: float, whole: float) -> float:
    """0 where there is nothing."""
    return count / whole if whole else 0.0


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
