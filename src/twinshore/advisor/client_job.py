"""Sums and judges traffic windows, as a Spark job whose tasks read the store, or in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from twinshore.advisor.core.clients.client_audit import judge_client
from twinshore.advisor.core.clients.model import (
    AuditedClient,
    ClientFinding,
    ClientUsage,
    UsageByFlow,
    group_usage_by_client,
    merge_usage,
    sum_usages,
)
from twinshore.advisor.core.model import AdvisorPolicy
from twinshore.config.model import Secret
from twinshore.state.core.proxy_values import TrafficKey
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
