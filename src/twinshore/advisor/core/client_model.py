"""Values of the client audit: usage summed from traffic windows in any order, client rules and findings.

A rule is data: the finding, its cost, the settings that fix it, and one function that returns the cases with figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from twinshore.advisor.core.model import RuleLimit, Severity
from twinshore.state.core.proxy_values import TrafficCounter, TrafficKey, TrafficKind, TrafficRow


@dataclass(slots=True)
class ClientUsage:
    """One flow over all windows.

    `told_ms`: how long each process counted traffic; idle time does not lower rates. `points`: requests and bytes by
    chart interval.
    """

    counter: TrafficCounter = field(default_factory=TrafficCounter)
    told_ms: dict[str, int] = field(default_factory=dict)
    points: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def lasted_s(self) -> float:
        """The longest counting time of any process: processes count in parallel."""
        return max(self.told_ms.values(), default=0) / 1000

    @property
    def beside(self) -> float:
        """The average number of processes that counted at the same time."""
        return sum(self.told_ms.values()) / (self.lasted_s * 1000) if self.lasted_s else 1.0

    def per_s(self, count: float) -> float:
        """As a rate; 0 without counted time."""
        return count / self.lasted_s if self.told_ms else 0.0

    def add(self, other: ClientUsage) -> ClientUsage:
        """Adds `other` in place and returns self."""
        self.counter.add(other.counter)
        for instance, told_ms in other.told_ms.items():
            self.told_ms[instance] = self.told_ms.get(instance, 0) + told_ms
        for number, (requests, size) in other.points.items():
            known = self.points.get(number, (0, 0))
            self.points[number] = known[0] + requests, known[1] + size
        return self


UsageByFlow = dict[TrafficKey, ClientUsage]


@dataclass(frozen=True, slots=True)
class AuditedClient:
    """Usage of one client id, which many processes may share. `min_insync`: of topics, by cluster and name."""

    name: str
    uses: Mapping[TrafficKey, ClientUsage]
    min_insync: Mapping[tuple[str, str], int] = field(default_factory=dict)

    def of(self, kind: TrafficKind) -> Iterable[tuple[TrafficKey, ClientUsage]]:
        return sorted(((key, usage) for key, usage in self.uses.items() if key.kind is kind), key=lambda one: one[0])

    @property
    def connected(self) -> float:
        """Upper bound of processes that share the id: the busiest proxy's connections times the parallel proxies."""
        uses = [usage for key, usage in self.uses.items() if key.kind is TrafficKind.CLIENT]
        return max(1.0, sum(usage.counter.connected_max * usage.beside for usage in uses))

    def each_s(self, usage: ClientUsage, count: float) -> float:
        """As a rate per connection, since many processes may share an id."""
        return usage.per_s(count) / self.connected

    def whole(self, kind: TrafficKind) -> ClientUsage:
        found = ClientUsage()
        for _, usage in self.of(kind):
            found.add(ClientUsage(usage.counter, {}, {}))
            for instance, told_ms in usage.told_ms.items():  # of several topics at the same time
                found.told_ms[instance] = max(found.told_ms.get(instance, 0), told_ms)
        return found


def build_usage(row: TrafficRow, stretch_ms: int) -> ClientUsage:
    told_ms = row.until_ms - row.since_ms
    points = {row.until_ms // stretch_ms: (row.flow.requests, row.flow.bytes)}
    return ClientUsage(row.flow.copy(), {row.instance: told_ms}, points)


def sum_usages(rows: Iterable[TrafficRow], stretch_ms: int) -> UsageByFlow:
    found: UsageByFlow = {}
    for row in rows:
        merge_usage(found, row.key, build_usage(row, stretch_ms))
    return found


def merge_usage(known: UsageByFlow, key: TrafficKey, usage: ClientUsage) -> None:
    if key in known:
        known[key].add(usage)
    else:
        known[key] = usage


def group_usage_by_client(usages: UsageByFlow, min_insync: Mapping[tuple[str, str], int]) -> list[AuditedClient]:
    found: dict[str, UsageByFlow] = {}
    for key, usage in usages.items():
        found.setdefault(key.client, {})[key] = usage
    return [AuditedClient(name, ours, min_insync) for name, ours in sorted(found.items())]


def find_weak_acks_topics(usages: UsageByFlow) -> list[tuple[str, str]]:
    """Cluster and name of topics written with less than acks=all."""
    weak = {
        (key.cluster, key.topic)
        for key, usage in usages.items()
        if key.kind is TrafficKind.PRODUCE and usage.counter.acks_none + usage.counter.acks_leader
    }
    return sorted(weak)


# Approximate cost of a small request for a broker and the client's connection; differs by machine.
REQUEST_US: Final = 50
# The advised waiting time of a producer or consumer.
LINGER_MS: Final = 20
FETCH_WAIT_MS: Final = 500
DAY_S: Final = 86_400


def has_enough_traffic(usage: ClientUsage, seconds: float) -> bool:
    return usage.lasted_s >= seconds


def format_size(count: float) -> str:
    """For example "1.2 MB"."""
    for unit, bytes_of in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= bytes_of:
            return f"{count / bytes_of:,.1f} {unit}"
    return f"{count:,.0f} bytes"


def format_processor_time(requests_s: float) -> str:
    """Broker processor time per hour of this request rate."""
    return (
        f"about {requests_s * 3_600 * REQUEST_US / 1e6:,.1f} s of a broker's processor time in an hour,"
        f" reckoned at {REQUEST_US} us a request"
    )


def compute_share(count: float, whole: float) -> float:
    """0 if `whole` is 0."""
    return count / whole if whole else 0.0


Figures = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class ClientCase:
    """`evidence` and `cost` are sentences with figures, `figures` the same as numbers. `effect`: the estimated change
    by the settings.
    """

    key: TrafficKey
    evidence: str
    cost: str
    effect: str
    figures: Figures = field(default_factory=dict)


JudgeClient = Callable[[AuditedClient, Mapping[str, float]], Iterable[ClientCase]]


@dataclass(frozen=True, slots=True)
class ClientRule:
    """`says`: the finding. `costs`: its cost in general. `settings`: the client's lines, with librdkafka's name if
    different.
    """

    name: str
    severity: Severity
    says: str
    costs: str
    settings: tuple[str, ...]
    judge: JudgeClient
    limits: tuple[RuleLimit, ...] = ()


@dataclass(frozen=True, slots=True)
class ClientFinding:
    """`subject`: the client, with topic and cluster if the rule is about one."""

    rule: str
    severity: Severity
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
        figures = {name: round(value, 3) for name, value in self.figures.items()}
        return {**asdict(self), "settings": list(self.settings), "figures": figures}


def build_client_finding(rule: ClientRule, case: ClientCase) -> ClientFinding:
    key = case.key
    return ClientFinding(
        rule.name,
        rule.severity,
        describe_subject(key),
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


def describe_subject(key: TrafficKey) -> str:
    """For example "client app, topic orders on east"."""
    client = f"client {key.client}" if key.client else "clients without an id"
    topic = f", topic {key.topic}" if key.topic else ""
    return f"{client}{topic}" + (f" on {key.cluster}" if key.topic and key.cluster else "")
