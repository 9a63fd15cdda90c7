"""`twinshore proxy client-audit`: audits how clients recently used their clusters, under a policy."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twinshore.advisor.client_job import MinInsync, TrafficSlice, audit_locally, audit_on_spark
from twinshore.advisor.collect import BlindSpotCollector
from twinshore.advisor.core.clients import client_audit
from twinshore.advisor.core.clients.client_audit import ClientAudit, build_client_audit
from twinshore.advisor.core.clients.client_rules import CLIENT_RULES
from twinshore.advisor.core.clients.model import ClientFinding, UsageByFlow, find_weak_acks_topics
from twinshore.advisor.core.model import AdvisorPolicy
from twinshore.advisor.operations.advice_on_cluster import load_policy
from twinshore.config.frozen import AUDIT_CLIENT_ID
from twinshore.config.sentences import Tell
from twinshore.config.settings import Settings
from twinshore.kafka.cluster import KafkaCluster
from twinshore.runtime.spark import open_session, stop_quietly
from twinshore.state.opening import open_existing

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
        session = open_session(settings.mirror, SPARK_TASKS, stop, ("twinshore.advisor.client_job",))
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
    wanted: dict[str, list[str]] = {}
    for cluster, topic in find_weak_acks_topics(usages):
        wanted.setdefault(cluster, []).append(topic)
    found: dict[tuple[str, str], int] = {}
    for name, topics in wanted.items():
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
