"""`twinshore proxy client-audit`: audits how clients recently used their clusters, under a policy."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from twinshore.advisor.collect import BlindSpotCollector
from twinshore.advisor.core import client_audit
from twinshore.advisor.core.client_audit import ClientAudit, build_client_audit, judge_client
from twinshore.advisor.core.client_rules import (
    CLIENT_RULES,
    AuditedClient,
    ClientFinding,
    ClientUsage,
    UsageByFlow,
    find_weak_acks_topics,
    group_usage_by_client,
    merge_usage,
    sum_usages,
)
from twinshore.advisor.core.model import AdvisorPolicy
from twinshore.advisor.operations.advice_on_cluster import load_policy
from twinshore.config.frozen import AUDIT_CLIENT_ID
from twinshore.config.grouping import grouped
from twinshore.config.model import Secret
from twinshore.config.sentences import Tell
from twinshore.config.settings import Settings
from twinshore.kafka.cluster import KafkaCluster
from twinshore.runtime.spark import open_session, stop_quietly
from twinshore.state.core.proxy_values import TrafficKey
from twinshore.state.opening import open_existing
from twinshore.state.store import open_store

if TYPE_CHECKING:
    from pyspark import SparkContext

# Windows are read for so long at once: a busy proxy writes some ten thousand rows in that time.
READ_SPAN_MS: Final = 600_000
MinInsync = Mapping[tuple[str, str], int]
# Returns min.insync.replicas of the topics that matter, once usage is known.
AskMinInsync = Callable[[UsageByFlow], MinInsync]


@dataclass(frozen=True, slots=True)
class TrafficSlice:
    """Windows that ended between the two times, in the store of this URL."""

    url: str
    password: Secret
    from_ms: int
    to_ms: int
    stretch_ms: int

    def parted(self, parts: int) -> list[TrafficSlice]:
        span = self.to_ms - self.from_ms
        ends = [self.from_ms + span * number // parts for number in range(parts + 1)]
        return [replace(self, from_ms=begin, to_ms=end) for begin, end in pairwise(ends)]


def read_usage(slices: Iterable[TrafficSlice]) -> Iterator[tuple[TrafficKey, ClientUsage]]:
    """The body of a Spark task: sums the slices."""
    found: UsageByFlow = {}
    for slice in slices:
        with open_store(slice.url, slice.password) as store:
            for begin in range(slice.from_ms, slice.to_ms, READ_SPAN_MS):
                rows = store.traffic.rows(begin, min(begin + READ_SPAN_MS, slice.to_ms))
                for key, usage in sum_usages(rows, slice.stretch_ms).items():
                    merge_usage(found, key, usage)
    return iter(found.items())


def audit_on_spark(
    context: SparkContext, whole: TrafficSlice, policy: AdvisorPolicy, ask: AskMinInsync, tasks: int
) -> tuple[UsageByFlow, list[ClientFinding]]:
    summed = (
        context.parallelize(whole.parted(tasks), tasks)
        .mapPartitions(read_usage)
        .reduceByKey(ClientUsage.add, tasks)
        .cache()
    )
    usages: UsageByFlow = {TrafficKey(*key): usage for key, usage in summed.collect()}
    min_insync = dict(ask(usages))
    clients = summed.map(_by_client).groupByKey(tasks)
    findings = clients.flatMap(partial(_judged, policy=policy, min_insync=min_insync)).collect()
    summed.unpersist()
    return usages, findings


def audit_locally(
    whole: TrafficSlice, policy: AdvisorPolicy, ask: AskMinInsync
) -> tuple[UsageByFlow, list[ClientFinding]]:
    """As `audit_on_spark`, in this process."""
    usages = dict(read_usage([whole]))
    return usages, [
        finding for client in group_usage_by_client(usages, ask(usages)) for finding in judge_client(client, policy)
    ]


def _by_client(one: tuple[TrafficKey, ClientUsage]) -> tuple[str, tuple[TrafficKey, ClientUsage]]:
    return one[0].client, one


def _judged(
    one: tuple[str, Iterable[tuple[TrafficKey, ClientUsage]]], policy: AdvisorPolicy, min_insync: MinInsync
) -> Sequence[ClientFinding]:
    name, uses = one
    return judge_client(AuditedClient(name, dict(uses), min_insync), policy)


SPARK_TASKS = 4
CHART_POINTS = 120
CLUSTER_TIMEOUT_S = 10.0
MIN_INSYNC_CONFIG = "min.insync.replicas"


@dataclass(frozen=True, slots=True)
class ClientAuditRequest:
    """`last_s`: the audited time. `here`: without Spark. `policy`: a file."""

    last_s: int = 3600
    policy: Path | None = None
    here: bool = False


@dataclass(frozen=True, slots=True)
class ClientAuditResult:
    audit: ClientAudit
    policy: AdvisorPolicy

    @property
    def exit_code(self) -> int:
        return self.policy.exit_code(self.audit.findings, self.audit.unseen)


def audit_clients(
    request: ClientAuditRequest, settings: Settings, *, clock: Callable[[], int], stop: threading.Event, tell: Tell
) -> ClientAuditResult | None:
    """Reads and judges usage; None if `stop` was set first. `tell` gets that Spark starts. Raises ConfigError if there
    is no store.
    """
    policy = load_policy(request.policy, CLIENT_RULES)
    open_existing(settings, "advisor.no-store").close()
    to_ms = clock()
    from_ms = to_ms - request.last_s * 1000
    stretch_ms = max(1_000, request.last_s * 1000 // CHART_POINTS)
    whole = TrafficSlice(settings.store.url, settings.store.password, from_ms, to_ms, stretch_ms)
    blind_spots = BlindSpotCollector()

    def ask(usages: UsageByFlow) -> MinInsync:
        return min_insync(usages, settings, blind_spots)

    found: tuple[UsageByFlow, list[ClientFinding]] | None
    if request.here:
        found = audit_locally(whole, policy, ask)
    else:
        tell(f"starting Spark on {settings.mirror.spark.master}, which takes some seconds; --here goes without it")
        session = open_session(settings.mirror, SPARK_TASKS, stop, ("twinshore.advisor.operations.client_audits",))
        if session is None:
            return None
        try:
            found = audit_on_spark(session.sparkContext, whole, policy, ask, SPARK_TASKS)
        finally:
            stop_quietly(session.stop)
    usages, findings = found
    return ClientAuditResult(
        build_client_audit(findings, policy, usages, (from_ms, to_ms, stretch_ms), blind_spots.blind_spots), policy
    )


def min_insync(usages: UsageByFlow, settings: Settings, blind_spots: BlindSpotCollector) -> MinInsync:
    """min.insync.replicas of topics written with less than acks=all, read from their clusters."""
    found: dict[tuple[str, str], int] = {}
    for name, topics in grouped(find_weak_acks_topics(usages)).items():
        if name not in settings.clusters:
            continue
        ways = {"client_id": AUDIT_CLIENT_ID, "patience_s": CLUSTER_TIMEOUT_S, "call_s": CLUSTER_TIMEOUT_S}
        with (
            blind_spots.trying(f"{MIN_INSYNC_CONFIG} of topics on {name}"),
            closing(KafkaCluster(settings.cluster(name), **ways)) as kafka,  # type: ignore[arg-type]
        ):
            known, errors = kafka.admin.readable_settings(topics, (MIN_INSYNC_CONFIG,))
            blind_spots.missed(f"{MIN_INSYNC_CONFIG} of topic", errors)
            for topic, one in known.items():
                value = one[MIN_INSYNC_CONFIG].value if MIN_INSYNC_CONFIG in one else None
                if value is not None:
                    found[name, topic] = int(value)
    return found


def audit_as_values(answer: ClientAuditResult) -> dict[str, Any]:
    return answer.audit.as_values(answer.policy)


def render_audit(answer: ClientAuditResult) -> str:
    return client_audit.render_audit_page(answer.audit)


def describe_audit(answer: ClientAuditResult, *, everything: bool) -> list[str]:
    return list(client_audit.describe_client_audit(answer.audit, everything=everything))
