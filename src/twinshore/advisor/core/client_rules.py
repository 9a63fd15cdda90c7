"""The client audit's values, and its rules about any client (connections, metadata requests, age), consumers (fetches,
commits) and producers (batches, acknowledgements).

Usage is summed from traffic windows in any order. A rule is data, in `rules.json`, and one function that returns the
cases with figures.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from twinshore.advisor.core.model import RuleLimit, Severity, read_rules
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


LimitValues = Mapping[str, float]
ClientCases = Iterator[ClientCase]
# Client software names, the first version that is not old, and why.
OLD_CLIENT_VERSIONS: Mapping[str, tuple[tuple[int, int], str]] = {
    "apache-kafka-java": ((3, 0), "before 3.0 producers have acks=1 and are not idempotent unless they are told to be"),
    "librdkafka": ((2, 0), "releases before 2.0 are from before 2023, and what was mended since is not in them"),
}


# Default client ids. Java numbers the clients of a process, so each number is one client there; any number of
# processes share such an id.
DEFAULT_CLIENT_IDS = re.compile(r"(producer|consumer|adminclient)(-.*)?-\d+|rdkafka|sarama|kafka-python-.*|")


def _many_connections(client: AuditedClient, limits: LimitValues) -> ClientCases:
    for key, usage in client.of(TrafficKind.CLIENT):
        count = usage.counter.connected_max
        if count > limits["connections"] and not DEFAULT_CLIENT_IDS.fullmatch(client.name):
            requests = compute_share(usage.counter.requests, count)
            yield ClientCase(
                key,
                f"{count:,} connections at once, {requests:,.0f} requests by each",
                "memory and a place in the event loop of proxy and broker for each; brokers and proxies have bounds",
                "where these are of one process: one producer and one consumer serve all its threads, with a connection"
                " to each broker that leads something of theirs. Processes that share the id need theirs",
                {"connected_max": count, "requests_per_connection": requests},
            )


def _reconnects(client: AuditedClient, limits: LimitValues) -> ClientCases:
    for key, usage in client.of(TrafficKind.CLIENT):
        counter = usage.counter
        opened_s, each = usage.per_s(counter.connections), compute_share(counter.requests, counter.connections)
        if not has_enough_traffic(usage, limits["seconds"]) or opened_s <= limits["connections_s"]:
            continue
        # Connections now, divided by new ones per second: the longest life of a connection.
        lives_s = client.connected / opened_s
        if lives_s < limits["lives_s"] and each < limits["requests"]:
            yield ClientCase(
                key,
                f"{opened_s:,.1f} new connections a second, with {each:,.0f} requests each; one lasts for"
                f" {lives_s:,.1f} s at most",
                "a handshake, a login and the questions where everything is, for each; a record waits for all of them",
                f"no new connections while nothing fails, in place of {opened_s * 3_600:,.0f} an hour",
                {"connections_s": opened_s, "requests_per_connection": each, "lives_s": lives_s},
            )


def _metadata_storm(client: AuditedClient, limits: LimitValues) -> ClientCases:
    ours = [(key, usage) for key, usage in client.of(TrafficKind.METADATA) if not key.topic]
    for key, usage in ours:
        asked_s, each_s = usage.per_s(usage.counter.requests), client.each_s(usage, usage.counter.requests)
        if (
            has_enough_traffic(usage, limits["seconds"])
            and asked_s > limits["requests_s"]
            and each_s > limits["each_s"]
        ):
            yield ClientCase(
                key,
                f"{asked_s:,.1f} questions a second where topics are",
                f"{format_processor_time(asked_s)}, and more where the cluster has many partitions: each answer "
                "names them",
                "one question in five minutes from each client, as by default",
                {"requests_s": asked_s},
            )


def _unknown_topics(client: AuditedClient, limits: LimitValues) -> ClientCases:
    for key, usage in client.of(TrafficKind.METADATA):
        asked_s = usage.per_s(usage.counter.errors)
        if key.topic and usage.counter.errors > limits["requests"] and asked_s > limits["requests_s"]:
            yield ClientCase(
                key,
                f"asked for {usage.counter.errors:,} times, {asked_s:,.1f} times a second, and nobody has it",
                format_processor_time(asked_s),
                "none of these questions",
                {"requests": usage.counter.errors, "requests_s": asked_s},
            )


def _old_client(client: AuditedClient, _limits: LimitValues) -> ClientCases:
    for key, usage in client.of(TrafficKind.CLIENT):
        name, _, version = usage.counter.software.partition(" ")
        known, number = OLD_CLIENT_VERSIONS.get(name), re.match(r"(\d+)\.(\d+)", version)
        if known is None or number is None:
            continue
        (first, why), release = known, (int(number[1]), int(number[2]))
        if release < first:
            yield ClientCase(
                key,
                f"it says that it is {name} {version}",
                why,
                f"{name} {first[0]}.{first[1]} or newer has what was mended since",
                {"major": release[0], "minor": release[1]},
            )


ANY_CLIENT_JUDGES: dict[str, JudgeClient] = {
    "many-connections": _many_connections,
    "reconnects": _reconnects,
    "metadata-storm": _metadata_storm,
    "unknown-topics": _unknown_topics,
    "old-client": _old_client,
}


def _busy_polling(client: AuditedClient, limits: LimitValues) -> ClientCases:
    """Judges by the responses' maximum wait: several consumers may share one id, so the rate is no evidence."""
    for key, usage in client.of(TrafficKind.FETCH):
        counter = usage.counter
        empty_s, part = usage.per_s(counter.empty), compute_share(counter.empty, counter.requests)
        wait_ms = compute_share(counter.wait_ms, counter.requests)
        if not has_enough_traffic(usage, limits["seconds"]) or empty_s <= limits["empty_s"]:
            continue
        if part > limits["part"] and wait_ms < limits["wait_ms"]:
            fewer = empty_s * wait_ms / FETCH_WAIT_MS
            yield ClientCase(
                key,
                f"{empty_s:,.0f} answers a second are empty, {part:.0%} of all: an answer may wait for"
                f" {wait_ms:,.0f} ms for {compute_share(counter.min_bytes, counter.requests):,.0f} bytes",
                format_processor_time(empty_s),
                f"about {max(fewer, 1):,.0f} empty answers a second; records that come are answered as soon as before",
                {"empty_s": empty_s, "part": part, "wait_ms": wait_ms, "empty_s_mended": fewer},
            )


def _small_fetches(client: AuditedClient, limits: LimitValues) -> ClientCases:
    whole = client.whole(TrafficKind.FETCH)
    counter = whole.counter
    full = counter.requests - counter.empty
    full_s, mean = whole.per_s(full), compute_share(counter.bytes, full)
    # A client that would poll as often while waiting gains nothing by waiting.
    often = client.each_s(whole, full) > 1_000 / FETCH_WAIT_MS
    if (
        has_enough_traffic(whole, limits["seconds"])
        and full_s > limits["requests_s"]
        and mean < limits["bytes"]
        and often
    ):
        yield ClientCase(
            TrafficKey(client.name, "", "", TrafficKind.FETCH),
            f"{full_s:,.0f} answers a second with {format_size(mean)} each",
            format_processor_time(full_s),
            f"answers of {format_size(limits['bytes'])} and more, {compute_share(mean, limits['bytes']):.0%} as "
            "many; a record waits"
            f" for {FETCH_WAIT_MS} ms at most",
            {"requests_s": full_s, "bytes_per_answer": mean},
        )


def _commit_storm(client: AuditedClient, limits: LimitValues) -> ClientCases:
    for key, usage in client.of(TrafficKind.COMMIT):
        counter = usage.counter
        commits_s, each = usage.per_s(counter.requests), compute_share(counter.records, counter.requests)
        if not has_enough_traffic(usage, limits["seconds"]) or commits_s <= limits["commits_s"]:
            continue
        # Many members that share an id and commit periodically reach this number, mostly without progress.
        often = client.each_s(usage, counter.requests) > limits["each_s"]
        if often and limits["moved"] <= each < limits["records"]:
            yield ClientCase(
                key,
                f"{commits_s:,.0f} commits a second, each {each:,.1f} records behind the one before",
                f"{format_processor_time(commits_s)}; each is a record in __consumer_offsets, on all its replicas",
                f"one commit for each poll in place of {commits_s:,.0f} a second; after a crash at most the records of"
                " one poll are read again",
                {"commits_s": commits_s, "records_per_commit": each},
            )


CONSUMER_JUDGES: dict[str, JudgeClient] = {
    "busy-polling": _busy_polling,
    "small-fetches": _small_fetches,
    "commit-storm": _commit_storm,
}


def _produced(client: AuditedClient, limits: LimitValues) -> Iterator[tuple[TrafficKey, ClientUsage, TrafficCounter]]:
    for key, usage in client.of(TrafficKind.PRODUCE):
        if has_enough_traffic(usage, limits["seconds"]):
            yield key, usage, usage.counter


def _no_compression(client: AuditedClient, limits: LimitValues) -> ClientCases:
    for key, usage, counter in _produced(client, limits):
        plain_s = usage.per_s(counter.uncompressed_bytes)
        part = compute_share(counter.uncompressed_bytes, counter.bytes)
        to_part = compute_share(counter.lz4_sample_compressed_bytes, counter.lz4_sample_bytes)
        if plain_s > limits["bytes_s"] and part > limits["part"] and to_part < limits["lz4_part"]:
            a_day = format_size(plain_s * DAY_S)
            saved = (
                f"lz4 took samples of {format_size(counter.lz4_sample_bytes)} to {to_part:.0%}:"
                f" {format_size(plain_s * to_part)} a second in place of {format_size(plain_s)}"
                if counter.lz4_sample_bytes
                else "how much they shrink one producer tries: no sample was taken"
            )
            yield ClientCase(
                key,
                f"{format_size(plain_s)} a second are not compressed, {part:.0%} of what it sends",
                f"{a_day} a day on the way to the leader, as much to each further replica and to each group that reads"
                " it, and on each replica's disk",
                f"{saved}; in larger batches it does more",
                {"plain_bytes_s": plain_s, "part": part, "bytes_s": usage.per_s(counter.bytes), "lz4_part": to_part},
            )


def _singles(counter: TrafficCounter) -> float:
    return compute_share(counter.single_record_batches, counter.batches)


def _single_records(client: AuditedClient, limits: LimitValues) -> ClientCases:
    for key, usage, counter in _produced(client, limits):
        # Of many clients that share an id each may send a record now and then: nothing to wait for.
        often = client.each_s(usage, counter.batches) > limits["batches_s"]
        if often and _singles(counter) > limits["part"]:
            yield _small(client, key, usage, f"{_singles(counter):.0%} of its batches hold one record")


def _tiny_batches(client: AuditedClient, limits: LimitValues) -> ClientCases:
    for key, usage, counter in _produced(client, limits):
        mean = compute_share(counter.bytes, counter.batches)
        often = client.each_s(usage, counter.requests) > limits["each_s"]
        if usage.per_s(counter.requests) <= limits["requests_s"] or not often:
            continue
        if mean < limits["bytes"] and _singles(counter) <= 0.9:
            yield _small(client, key, usage, f"a batch has {format_size(mean)} on average")


def _small(client: AuditedClient, key: TrafficKey, usage: ClientUsage, what: str) -> ClientCase:
    counter = usage.counter
    batches_s, requests_s = usage.per_s(counter.batches), usage.per_s(counter.requests)
    fewer = min(requests_s, client.connected * 1_000 / LINGER_MS)
    return ClientCase(
        key,
        f"{what}: {counter.records:,} records in {counter.batches:,} batches, {requests_s:,.0f} requests a second",
        f"{format_processor_time(requests_s)}; and each batch has a header, an index entry and a check of its own",
        f"with linger.ms={LINGER_MS} a connection sends {1_000 / LINGER_MS:.0f} requests a second at most: with"
        f" {client.connected:,.0f} of them {fewer:,.0f} in place of {requests_s:,.0f}. An application that waits for"
        " each record before it sends the next one gains nothing: let it look at what became of records in callbacks",
        {
            "requests_s": requests_s,
            "batches_s": batches_s,
            "records_per_batch": compute_share(counter.records, counter.batches),
            "bytes_per_batch": compute_share(counter.bytes, counter.batches),
            "requests_s_mended": fewer,
        },
    )


def _weak_acks(client: AuditedClient, limits: LimitValues) -> ClientCases:
    for key, usage in client.of(TrafficKind.PRODUCE):
        minimum = client.min_insync.get((key.cluster, key.topic), 0)
        weak = usage.counter.acks_none + usage.counter.acks_leader
        if minimum >= limits["min_insync"] and weak:
            yield ClientCase(
                key,
                f"min.insync.replicas={minimum}, and {weak:,} of {usage.counter.requests:,} requests asked for less:"
                f" {usage.counter.acks_leader:,} with acks=1, {usage.counter.acks_none:,} with acks=0",
                f"{format_size(usage.counter.bytes)} were sent; what only a leader has when it dies is lost,"
                f" though it was"
                " acknowledged",
                f"each record is on {minimum} replicas before it is acknowledged; a request waits for the slowest of"
                " them",
                {"min_insync": minimum, "requests_weak": weak, "requests": usage.counter.requests},
            )


def _unheard(client: AuditedClient, limits: LimitValues) -> ClientCases:
    for key, usage in client.of(TrafficKind.PRODUCE):
        minimum = client.min_insync.get((key.cluster, key.topic), 0)
        none = usage.counter.acks_none
        if none > limits["requests"] and minimum < 2:
            yield ClientCase(
                key,
                f"{none:,} requests with acks=0",
                "whatever a broker refuses is lost, and neither it nor the application hears of it",
                "with acks=1 each request is answered: the same records, and a refusal is told and tried again",
                {"requests_unheard": none, "requests": usage.counter.requests},
            )


def _not_idempotent(client: AuditedClient, limits: LimitValues) -> ClientCases:
    for key, usage in client.of(TrafficKind.PRODUCE):
        counter = usage.counter
        strong = counter.requests - counter.acks_none - counter.acks_leader
        part = compute_share(counter.non_idempotent_batches, counter.batches)
        if (
            strong * 2 > counter.requests
            and counter.non_idempotent_batches > limits["batches"]
            and part > limits["part"]
        ):
            yield ClientCase(
                key,
                f"{counter.non_idempotent_batches:,} of {counter.batches:,} batches bear no producer id",
                "a batch whose acknowledgement is lost is written twice, and with several requests under way a retry"
                f" comes behind its successors; {counter.errors:,} were refused meanwhile",
                "the broker takes each batch once and in order; a request grows by nothing",
                {
                    "batches_unnumbered": counter.non_idempotent_batches,
                    "batches": counter.batches,
                    "errors": counter.errors,
                },
            )


PRODUCER_JUDGES: dict[str, JudgeClient] = {
    "weak-acks": _weak_acks,
    "no-compression": _no_compression,
    "single-records": _single_records,
    "tiny-batches": _tiny_batches,
    "no-idempotence": _not_idempotent,
    "acks-none": _unheard,
}

JUDGES = PRODUCER_JUDGES | CONSUMER_JUDGES | ANY_CLIENT_JUDGES
CLIENT_RULES = tuple(
    ClientRule(**rule | {"settings": tuple(rule["settings"])}, judge=JUDGES[name])
    for name, rule in read_rules("client").items()
)
