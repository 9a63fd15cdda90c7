"""`twinshore advise`: advice on a live cluster under a policy, compared with an earlier advice if given."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
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
    AdvisorPolicy,
    AdvisorRule,
    ClusterSnapshot,
    LinkSnapshot,
    PolicyRule,
    parse_policy,
    read_rules,
)
from twinshore.advisor.core.topic_rules import INTERNAL_JUDGES, PARTITION_JUDGES, TOPIC_JUDGES
from twinshore.config.errors import ConfigError
from twinshore.config.model import Cluster
from twinshore.config.schema import pattern_error
from twinshore.config.settings import Settings, read_text_file
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
