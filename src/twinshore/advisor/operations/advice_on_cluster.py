"""`twinshore advise`: advice on a live cluster under a policy, compared with an earlier advice if given. `--fix` sets
topic settings that an advice calls safe, after showing them, and reads them back.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from twinshore.advisor.collect import BlindSpotCollector, CollectScope, collect_cluster
from twinshore.advisor.core import advice_report
from twinshore.advisor.core.advice_report import (
    Advice,
    AdviceDifference,
    AdviceScope,
    as_values,
    build_advice,
    compare_advices,
    difference_as_values,
    from_values,
)
from twinshore.advisor.core.cluster_rules import BROKER_JUDGES, GROUP_JUDGES, LINK_JUDGES
from twinshore.advisor.core.model import (
    MIN_ISR_CONFIG,
    AdvisorPolicy,
    AdvisorRule,
    ClusterSnapshot,
    Finding,
    LinkSnapshot,
    PolicyRule,
    parse_policy,
    read_rules,
)
from twinshore.advisor.core.topic_rules import INTERNAL_JUDGES, PARTITION_JUDGES, TOPIC_JUDGES
from twinshore.config.errors import ConfigError, KafkaError, RefusedError
from twinshore.config.frozen import ADVISE_CLIENT_ID
from twinshore.config.model import Cluster, Plan
from twinshore.config.schema import pattern_error
from twinshore.config.sentences import count_phrase, join_names
from twinshore.config.settings import Settings, read_text_file
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.metadata import NO_LEADER, TopicMetadata
from twinshore.kafka.protocol.error_codes import Code
from twinshore.state.opening import open_if_exists

HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class AdviceRequest:
    """`cluster`: the name in the settings, empty if they have only one. `policy`, `since`: files."""

    cluster: str = ""
    topics: tuple[str, ...] = ()
    policy: Path | None = None
    since: Path | None = None
    apart_s: float = 10.0
    within_s: float = 60.0


@dataclass(frozen=True, slots=True)
class AdviceResult:
    advice: Advice
    policy: AdvisorPolicy
    changed: AdviceDifference | None = None

    @property
    def exit_code(self) -> int:
        return self.policy.exit_code(self.advice.findings, self.advice.unseen)


def advise_on_cluster(
    request: AdviceRequest, settings: Settings, *, clock: Callable[[], int], wait: Callable[[float], None]
) -> AdviceResult:
    """Reads and judges the cluster. A wrong request raises ConfigError before the cluster is read."""
    cluster = select_cluster(request.cluster, settings)
    for expression in request.topics:
        _check(expression)
    policy = load_policy(request.policy, RULES)
    earlier = None if request.since is None else _earlier(request.since)
    wanted = _wanted(request, policy)
    before = (earlier.places, earlier.at_ms) if earlier is not None else None
    snapshot = _with_links(collect_cluster(cluster, wanted, clock=clock, wait=wait, before=before), settings, clock)
    if earlier is not None and earlier.cluster_id != snapshot.cluster_id:
        raise ConfigError(
            "advisor.other-cluster", path=str(request.since), found=earlier.cluster_id, cluster_id=snapshot.cluster_id
        )
    _must_meet(request.topics, snapshot)
    advice = build_advice(snapshot, policy, RULES)
    scope = AdviceScope(policy.off, wanted.admits)
    return AdviceResult(advice, policy, compare_advices(earlier, advice, scope) if earlier is not None else None)


def _must_meet(expressions: tuple[str, ...], snapshot: ClusterSnapshot) -> None:
    """Raises ConfigError for a pattern without a topic: a typo would report that nothing was found."""
    for expression in expressions:
        if not any(re.fullmatch(expression, topic.name) for topic in snapshot.topics):
            raise ConfigError("advisor.no-topic-matches", pattern=expression, cluster=snapshot.cluster)


def _with_links(snapshot: ClusterSnapshot, settings: Settings, clock: Callable[[], int]) -> ClusterSnapshot:
    """Adds the store's links, if there is a store. An unreadable store becomes a blind spot."""
    blind_spots = BlindSpotCollector(list(snapshot.unseen))
    links: tuple[LinkSnapshot, ...] = ()
    with blind_spots.trying("links, as the store has them"):
        store = open_if_exists(settings)
        if store is None:
            return snapshot
        # This import loads as much as all others together, and few clusters have links.
        from twinshore.advisor.collect import collect_links

        with store:
            links = collect_links(snapshot.cluster, settings, store, clock=clock, blind_spots=blind_spots)
    return replace(snapshot, links=links, unseen=blind_spots.distinct())


def select_cluster(name: str, settings: Settings) -> Cluster:
    """The named cluster, or the only one. Raises ConfigError if the choice is unclear."""
    if name:
        return settings.cluster(name)
    if len(settings.clusters) != 1:
        raise ConfigError(
            "advisor.several-clusters", count=len(settings.clusters), clusters=", ".join(settings.clusters)
        )
    return next(iter(settings.clusters.values()))


def _check(expression: str) -> None:
    if reason := pattern_error(expression):
        raise ConfigError("config.invalid-pattern", option="--topic", cause=reason)


def _wanted(request: AdviceRequest, policy: AdvisorPolicy) -> CollectScope:
    (rule,) = [rule for rule in RULES if rule.name == "group-retention"]
    limits = policy.limits_of(rule)
    horizon_ms, waited_ms = int(limits["hours"] * HOUR_MS), int(limits["waited"] * 1000)
    return CollectScope(request.topics, request.apart_s, horizon_ms, limits["part"], waited_ms, request.within_s)


def load_policy(path: Path | None, rules: Sequence[PolicyRule]) -> AdvisorPolicy:
    return AdvisorPolicy() if path is None else parse_policy(read_text_file(path), str(path), rules)


def _earlier(path: Path) -> Advice:
    try:
        values = json.loads(read_text_file(path))
    except json.JSONDecodeError as error:
        raise ConfigError("advisor.not-advice", path=str(path), cause=str(error)) from error
    return from_values(values, str(path))


def advice_as_values(result: AdviceResult) -> dict[str, Any]:
    """JSON values, also for a later --since."""
    values = as_values(result.advice, result.policy)
    if result.changed is not None:
        values["since"] = difference_as_values(result.changed)
    return values


def render_advice(result: AdviceResult) -> str:
    return advice_report.render_advice_page(result.advice, result.changed)


def describe_result(result: AdviceResult, *, everything: bool) -> list[str]:
    lines = list(advice_report.describe_advice(result.advice, everything=everything))
    if result.changed is not None:
        lines += ["", *advice_report.describe_difference(result.changed, result.advice.at_ms)]
    return lines


JUDGES = PARTITION_JUDGES | TOPIC_JUDGES | INTERNAL_JUDGES | GROUP_JUDGES | LINK_JUDGES | BROKER_JUDGES
RULES = tuple(AdvisorRule(**rule, judge=JUDGES[name]) for name, rule in read_rules("cluster").items())


ITEMS_NAMED_MAX = 10
CLUSTER_TIMEOUT_S = 20.0
# Brokers learn of a change from the controller a moment later.
READ_BACK_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class MendStep:
    """One topic. `before`: the values when planned. `wanted`: the new values."""

    topic: str
    topic_id: bytes
    before: tuple[tuple[str, str], ...]
    wanted: tuple[tuple[str, str], ...]

    def sentence(self, *, done: bool) -> str:
        old = dict(self.before)
        told = ", ".join(f"{name}={value} (it was {old.get(name, 'unset')})" for name, value in self.wanted)
        return f"topic {self.topic}: {told} {'is set, and was read back' if done else 'would be set'}"


def plan_fixes(advice: Advice, cluster: Cluster) -> Plan[MendStep]:
    """Plans the safe changes of the advice, without waived findings."""
    wanted: dict[str, dict[str, str]] = {}
    for finding in advice.findings:
        if finding.safe is not None:
            wanted.setdefault(finding.safe.topic, {}).update(finding.safe.settings)
    left = sum(finding.safe is None for finding in advice.findings)
    remarks = [f"{count_phrase(left, 'more finding')} left to you: what mends each stands beside it"] if left else []
    if not wanted:
        return Plan(remarks=("nothing that was found is safe to mend by itself", *remarks))
    with closing(_open(advice, cluster)) as kafka:
        topics = kafka.metadata(list(wanted)).topics
        barred = {name: why for name in wanted if (why := explain_refusal(topics.get(name), wanted[name]))}
        now = _now(kafka, {name: settings for name, settings in wanted.items() if name not in barred})
        steps = tuple(
            MendStep(name, topics[name].topic_id, now[name], tuple(wanted[name].items())) for name in sorted(now)
        )
    remarks += [f"topic {name} is left alone: {why}" for name, why in sorted(barred.items())]
    return Plan(steps, remarks=tuple(remarks))


def act_fixes(plan: Plan[MendStep], advice: Advice, cluster: Cluster) -> Iterator[MendStep]:
    """Applies the plan. Raises RefusedError if a setting changed since, or the topic's state no longer permits the
    change.
    """
    with closing(_open(advice, cluster)) as kafka:
        for step in plan.steps:
            why = explain_refusal(kafka.metadata([step.topic]).topics.get(step.topic), dict(step.wanted))
            if why:
                raise RefusedError("advisor.fix-refused", topic=step.topic, cause=why)
            names = {name: "" for name, _ in step.wanted}
            found = _now(kafka, {step.topic: names}).get(step.topic, ())
            if found != step.before:
                raise RefusedError(
                    "advisor.topic-changed",
                    topic=step.topic,
                    found=_told(found) or "deleted",
                    before=_told(step.before),
                )
            kafka.admin.alter_topic_settings(step.topic, dict(step.wanted), topic_id=step.topic_id)
            _read_back(kafka, step)
            yield step


def find_unmended(advice: Advice, steps: list[MendStep]) -> tuple[Finding, ...]:
    done = {(step.topic, *setting) for step in steps for setting in step.wanted}
    return tuple(
        finding
        for finding in advice.findings
        if finding.safe is None or not {(finding.safe.topic, *setting) for setting in finding.safe.settings} <= done
    )


def explain_refusal(topic: TopicMetadata | None, wanted: Mapping[str, str]) -> str:
    """Why these settings may not be set now; empty if they may.

    For a partition without a leader the present setting may be the only way back. A change of min.insync.replicas makes
    the cluster forget which out-of-sync replicas could lead.
    """
    if topic is None or topic.error:
        return "it is there no more"
    unled = [str(partition.partition) for partition in topic.partitions if partition.leader == NO_LEADER]
    if unled:
        return f"partition {join_names(unled, ITEMS_NAMED_MAX)} has no leader now"
    behind = [
        str(partition.partition) for partition in topic.partitions if not set(partition.replicas) <= set(partition.isr)
    ]
    if behind and MIN_ISR_CONFIG in wanted:
        return f"not all replicas of partition {join_names(behind, ITEMS_NAMED_MAX)} are in sync now"
    return ""


def _open(advice: Advice, cluster: Cluster) -> KafkaCluster:
    """Opens the advice's cluster, pinned by cluster id."""
    return KafkaCluster(
        cluster,
        client_id=ADVISE_CLIENT_ID,
        cluster_id=advice.cluster_id,
        patience_s=CLUSTER_TIMEOUT_S,
        call_s=CLUSTER_TIMEOUT_S,
    )


def _now(kafka: KafkaCluster, wanted: dict[str, dict[str, str]]) -> dict[str, tuple[tuple[str, str], ...]]:
    """Current values of these settings, by existing topic. Raises the first KafkaError."""
    keys = sorted({name for settings in wanted.values() for name in settings})
    found, errors = kafka.admin.readable_settings(wanted, keys)
    for error in errors.values():
        if error.code != Code.unknown_topic_or_partition:
            raise error
    return {
        topic: tuple((name, found[topic][name].value or "") for name in settings if name in found[topic])
        for topic, settings in wanted.items()
        if topic in found
    }


def _read_back(kafka: KafkaCluster, step: MendStep) -> None:
    until_s = time.monotonic() + READ_BACK_TIMEOUT_S
    names = {name: "" for name, _ in step.wanted}
    while (found := _now(kafka, {step.topic: names}).get(step.topic, ())) != step.wanted:
        if time.monotonic() > until_s:
            raise KafkaError(
                f"topic {step.topic}: {_told(step.wanted)} was set, but {_told(found)} is read back",
                hint="see with kafka-configs.sh --describe what holds",
            )
        time.sleep(0.1)


def _told(settings: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings)
