"""Windows of traffic summed up and judged: as a job of Spark whose tasks read the store themselves, or right here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from twinshore.advisor.core.clients.model import Client, Habit, Use, Uses, clients_of, join, uses_of
from twinshore.advisor.core.clients.report import judge
from twinshore.advisor.core.model import Policy
from twinshore.config.model import Secret
from twinshore.state.core.proxy_values import FlowKey
from twinshore.state.store import open_store

if TYPE_CHECKING:
    from pyspark import SparkContext

# Windows are read for so long at once: of a busy proxy they are some ten thousand rows.
READ_MS: Final = 600_000
MinInsync = Mapping[tuple[str, str], int]
# What is known of topics, once it is known which ones matter.
Ask = Callable[[Uses], MinInsync]


@dataclass(frozen=True, slots=True)
class Slice:
    """Windows that ended between the two times, in the store of this URL."""

    url: str
    password: Secret
    from_ms: int
    to_ms: int
    stretch_ms: int

    def parted(self, parts: int) -> list[Slice]:
        """In so many of about the same length."""
        span = self.to_ms - self.from_ms
        ends = [self.from_ms + span * number // parts for number in range(parts + 1)]
        return [replace(self, from_ms=begin, to_ms=end) for begin, end in pairwise(ends)]


def read(slices: Iterable[Slice]) -> Iterator[tuple[FlowKey, Use]]:
    """The body of a task: what is in these slices, summed up."""
    found: Uses = {}
    for one in slices:
        with open_store(one.url, one.password) as store:
            for begin in range(one.from_ms, one.to_ms, READ_MS):
                rows = store.traffic.rows(begin, min(begin + READ_MS, one.to_ms))
                for key, use in uses_of(rows, one.stretch_ms).items():
                    join(found, key, use)
    return iter(found.items())


def on_spark(context: SparkContext, whole: Slice, policy: Policy, ask: Ask, tasks: int) -> tuple[Uses, list[Habit]]:
    """What clients did, and their habits."""
    summed = context.parallelize(whole.parted(tasks), tasks).mapPartitions(read).reduceByKey(Use.add, tasks).cache()
    uses: Uses = {FlowKey(*key): use for key, use in summed.collect()}
    min_insync = dict(ask(uses))
    clients = summed.map(_by_client).groupByKey(tasks)
    habits = clients.flatMap(partial(_judged, policy=policy, min_insync=min_insync)).collect()
    summed.unpersist()
    return uses, habits


def in_this_process(whole: Slice, policy: Policy, ask: Ask) -> tuple[Uses, list[Habit]]:
    """The same, without Spark."""
    uses = dict(read([whole]))
    return uses, [habit for client in clients_of(uses, ask(uses)) for habit in judge(client, policy)]


def _by_client(one: tuple[FlowKey, Use]) -> tuple[str, tuple[FlowKey, Use]]:
    return one[0].client, one


def _judged(one: tuple[str, Iterable[tuple[FlowKey, Use]]], policy: Policy, min_insync: MinInsync) -> Sequence[Habit]:
    name, uses = one
    return judge(Client(name, dict(uses), min_insync), policy)
