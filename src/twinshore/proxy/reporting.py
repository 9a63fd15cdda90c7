"""Metrics and health of a proxy, and traffic windows for the store and a topic.

Without the store, counts join the next window. Counts that the store refuses as invalid are left out. What the topic
does not accept is not sent later: the store has it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import accumulate
from typing import Any, Final, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from twinshore.config.frozen import PROXY_CLIENT_ID
from twinshore.config.model import Cluster
from twinshore.config.repeat_filter import RepeatFilter, describe_error
from twinshore.kafka.clock import steady_s, wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.apis import api_name
from twinshore.kafka.state_topic import StateTopic
from twinshore.proxy.context import ProxyContext
from twinshore.proxy.core.breakers import TrafficAlarms
from twinshore.proxy.core.traffic import TrafficTable, TrafficTotals, merge_flows, select_busiest
from twinshore.proxy.listeners import Listeners
from twinshore.routing.core.leader_cluster import NoLeaderReason
from twinshore.state.core import proxy_values
from twinshore.state.store import Store

log = logging.getLogger(__name__)

_Rows = Iterable[tuple[Iterable[str], float]]


class ProxyCollector(Collector):
    """Collects in another thread than the one that counts, so each number is of some moment."""

    def __init__(self, context: ProxyContext, doors: Listeners, totals: TrafficTotals, alarms: TrafficAlarms) -> None:
        self._context, self._doors, self._totals, self._alarms = context, doors, totals, alarms

    def collect(self) -> Iterator[Metric]:
        for name, told, value in self._counts():
            yield CounterMetricFamily(f"twinshore_proxy_{name}", told, value=value)
        for name, told, value in self._levels():
            yield GaugeMetricFamily(f"twinshore_proxy_{name}", told, value=value)
        for name, told, labels, counts in self._labelled_counts():
            yield _with_rows(CounterMetricFamily(f"twinshore_proxy_{name}", told, labels=labels), counts)
        for name, told, label, levels in self._labelled_levels():
            yield _with_rows(GaugeMetricFamily(f"twinshore_proxy_{name}", told, labels=label), levels)
        latency, sizes = "latency of brokers' produce responses", "size of produce requests"
        yield self._histogram("produce_seconds", latency, proxy_values.LATENCY_BUCKETS_MS, 0.001)
        yield self._histogram("produce_request_bytes", sizes, proxy_values.SIZE_BUCKETS_BYTES, 1)

    def _counts(self) -> Iterable[tuple[str, str, float]]:
        counts, again, reads = self._context.counts, self._context.traffic.again, self._context.follower_fetch
        return (
            ("clients", "client connections accepted", counts.clients),
            ("forwarded_requests", "requests for which the proxy asked other brokers", counts.errands),
            ("paused_requests", "requests that waited for a switch or an offset reset", counts.held),
            ("deduplicated_records", "records resent after a forced switch that were not written again", again.known),
            (
                "possible_duplicate_records",
                "records written after a forced switch that may repeat others",
                again.unsure,
            ),
            ("throttled", "pauses of clients above their quota", counts.slowed),
            ("connections_refused", "client connections refused", counts.turned_away),
            ("connections_closed", "client connections closed by the proxy", counts.hung_up),
            ("logins_refused", "client logins refused", counts.refused),
            ("brokers_lost", "broker connections lost", counts.brokers_lost),
            ("received_bytes", "bytes received from clients", counts.bytes_in),
            ("sent_bytes", "bytes sent to clients", counts.bytes_out),
            ("follower_redirects", "responses that sent a reader to a twin", reads.led),
            ("home_redirects", "partitions whose reader was sent home because of an error", reads.redirected_home),
        )

    def _levels(self) -> Iterable[tuple[str, str, float]]:
        context = self._context
        waiting, assumed = len(context.holding), len(context.table.unconfirmed_leaders)
        known = float(context.breakers.known)
        return (
            ("connections", "client connections open now", len(context.guests)),
            ("waiting_clients", "clients with a request that waits for a switch or for a topic's home", waiting),
            (
                "assumed_homes",
                "topics whose home was decided without an answer of each cluster since the start",
                assumed,
            ),
            ("follower_partitions", "partitions of twins that serve readers now", len(context.follower_fetch.served)),
            ("breakers_known", "0 while the breakers are unknown, since no store has answered", known),
        )

    def _labelled_counts(self) -> Iterator[tuple[str, str, Sequence[str], _Rows]]:
        """Traffic is as of the last window."""
        requests, read = dict(self._context.counts.requests), dict(self._context.follower_fetch.bytes_read)
        yield "requests", "requests of clients, by API", ["api"], [((api_name(key),), n) for key, n in requests.items()]
        yield (
            "follower_bytes",
            "bytes of records read at twins",
            ["cluster"],
            [((name,), n) for name, n in read.items()],
        )
        tallies = list(self._context.breakers.tallies.items())
        for name, told in (
            ("requests", "requests answered by a breaker"),
            ("records", "records kept out by a breaker"),
        ):
            yield f"breaker_{name}", told, ["topic", "client", "kind"], [(key, getattr(n, name)) for key, n in tallies]
        topics = list(self._totals.topics.items())
        for name, told in (
            ("requests", "produce requests and fetch responses of the topic"),
            ("bytes", "bytes of records produced and fetched"),
            ("records", "records produced"),
            ("errors", "partitions answered with an error"),
        ):
            yield (
                f"topic_{name}",
                told,
                ["topic", "cluster", "kind"],
                [(key[1:], getattr(n, name)) for key, n in topics],
            )
        if (keeper := self._context.keeper) is not None:
            held = list(keeper.counts.items())
            yield "protected_writes", "writes to protected topics, by outcome", ["topic", "outcome"], held
        clients = list(self._totals.clients.items())
        for name, told in (
            ("requests", "requests of the client id"),
            ("bytes", "bytes sent and received by its clients"),
            ("connections", "connections opened by its clients"),
        ):
            yield f"client_{name}", told, ["client"], [((client,), getattr(n, name)) for client, n in clients]

    def _labelled_levels(self) -> Iterator[tuple[str, str, Sequence[str], _Rows]]:
        now_s, table, breakers = steady_s(), self._context.table, self._context.breakers
        registered = [((name,), float(now_s < until_s)) for name, until_s in dict(self._context.until_s).items()]
        why = "1 while the proxy is registered at the cluster, so that switches wait for it; else writers there wait"
        yield "registered", why, ["cluster"], registered
        answer = [((cluster.name,), float(cluster.answers)) for cluster in list(table.clusters.values())]
        yield "cluster_up", "1 where the cluster answers", ["cluster"], answer
        leaderless = Counter(leader.lacks for leader in table.leaderless.values())
        reasons = [((reason.name.lower(),), leaderless[reason]) for reason in NoLeaderReason]
        yield "leaderless_topics", "topics without a leader, by reason", ["why"], reasons
        is_open = [(key, float(key in breakers.open)) for key in list(breakers.tallies)]
        yield "breaker_open", "1 while the breaker is open", ["topic", "client", "kind"], is_open
        if (keeper := self._context.keeper) is not None:
            states = Counter((partition.topic, state.value) for partition, state in keeper.states().items())
            told = "protected partitions that this process writes to, by what an acknowledgement means"
            yield "protected_partitions", told, ["topic", "state"], list(states.items())
            waiting = [((topic, cause.name.lower()), n) for (topic, cause), n in keeper.waiting().items()]
            yield "protected_waiting", "writes that wait for the twin, by cause", ["topic", "cause"], waiting
        alarms = [((name,), float(standing)) for name, standing in self._alarms.standing.items()]
        yield "alarm", "1 while the alarm is open", ["alarm"], alarms

    def _histogram(self, name: str, told: str, bounds: Sequence[int], unit: float) -> Metric:
        metric = HistogramMetricFamily(f"twinshore_proxy_{name}", told, labels=["cluster"])
        for cluster, counter in list(self._totals.clusters.items()):
            counts = counter.latency if bounds is proxy_values.LATENCY_BUCKETS_MS else counter.sizes
            ends = [f"{end * unit:g}" for end in bounds] + ["+Inf"]
            total = counter.answered_us / 1e6 if bounds is proxy_values.LATENCY_BUCKETS_MS else None
            metric.add_metric([cluster], list(zip(ends, map(float, accumulate(counts)), strict=True)), total)
        return metric

    def clusters(self) -> dict[str, Any]:
        """Returns each cluster's state, for /health."""
        return {
            name: {"answers": cluster.answers, "brokers": len(cluster.brokers), "topics": len(cluster.topics)}
            for name, cluster in list(self._context.table.clusters.items())
        }

    def trouble(self) -> str:
        """Returns why clients are not served, else empty. One silent cluster is no reason to restart the proxy: the
        others' clients would suffer.
        """
        if not self._context.table.answering():
            return "no cluster answers"
        return next(iter(list(self._doors.shut.values())), "")


def _with_rows(metric: CounterMetricFamily | GaugeMetricFamily, rows: _Rows) -> Metric:
    for values, number in rows:
        metric.add_metric([*values], number)
    return metric


STORE_TIMEOUT_S: Final = 5.0
HOUR_MS: Final = 3_600_000
RETENTION_INTERVAL_MS: Final = 60_000
SHUTDOWN_TIMEOUT_S: Final = 3.0


class TrafficTopic:
    """Writes traffic windows to a topic, created if missing: JSON, one record a flow. For one thread."""

    def __init__(self, cluster: Cluster, topic: str, keep_ms: int) -> None:
        self._kafka = KafkaCluster(
            cluster, client_id=PROXY_CLIENT_ID, patience_s=STORE_TIMEOUT_S, call_s=STORE_TIMEOUT_S
        )
        self._notes = StateTopic(self._kafka, topic)
        self._settings = {"retention.ms": str(keep_ms)} if keep_ms else {}
        self._made = False
        self._repeat_filter = RepeatFilter(logging.LoggerAdapter(log, {"cluster": cluster.name, "topic": topic}))
        self._topic = topic

    def take(self, rows: Sequence[proxy_values.TrafficRow]) -> None:
        """Write the rows. Never raises."""
        if not rows:
            return
        entries = [(row.key.client.encode(), json.dumps(row.as_values()).encode()) for row in rows]
        try:
            with self._kafka.errand():
                if not self._made and not self._notes.exists():
                    self._notes.make(self._settings)
                self._made = True
                self._notes.append(entries, wall_ms())
        except Exception as error:  # else no further window would be written
            self._made = False
            self._repeat_filter.say(f"{describe_error(error)}: what goes through is not written to topic {self._topic}")
            return
        self._repeat_filter.well(f"topic {self._topic} takes again what goes through")

    def close(self) -> None:
        self._kafka.close()


FlowDeltas = Sequence[tuple[proxy_values.TrafficKey, proxy_values.TrafficCounter]]
T = TypeVar("T")


class TrafficReporter:
    """Reports traffic windows.

    `serves`: this process. `heard` gets each window and its length in seconds. `topic`: where windows go too.
    """

    def __init__(
        self,
        store: Callable[[], Store | None],
        traffic: TrafficTable,
        serves: proxy_values.ProxyInstanceRow,
        *,
        every_s: float,
        keep_hours: int,
        heard: Callable[[FlowDeltas, float], None],
        topic: TrafficTopic | None = None,
    ) -> None:
        self._stores, self._traffic, self._serves, self._heard = store, traffic, serves, heard
        self._every_s, self._keep_ms, self._topic = every_s, keep_hours * HOUR_MS, topic
        self._untold: dict[proxy_values.TrafficKey, proxy_values.TrafficCounter] = {}
        self._repeat_filter, self._refused = RepeatFilter(log), RepeatFilter(log)
        self._since_ms = self._looked_ms = wall_ms()
        self._forgot_ms = 0
        self._threads = ThreadPoolExecutor(1, "traffic")

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            await self.tell()

    async def end(self) -> None:
        """Report the last window."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SHUTDOWN_TIMEOUT_S):
                await self.tell()
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._topic is not None:
            self._topic.close()

    async def tell(self) -> None:
        """End a window and report."""
        now_ms, grown = wall_ms(), self._traffic.window()
        began_ms, self._looked_ms = self._looked_ms, now_ms
        self._heard(grown, max(0.001, (now_ms - began_ms) / 1000))
        if self._keep_ms:
            merge_flows(self._untold, grown)
            self._untold = dict(select_busiest(self._untold.items()))
            await self._tell_store(now_ms)
        if self._topic is not None:
            rows = self._rows(began_ms, now_ms, select_busiest(grown))
            await self._in_thread(partial(self._topic.take, rows))

    async def _tell_store(self, now_ms: int) -> None:
        rows = self._rows(self._since_ms, now_ms, list(self._untold.items()))
        try:
            refused = await self._in_thread(partial(self._store_takes, rows, now_ms))
        except Exception as error:  # else no further window would be reported
            self._repeat_filter.say(f"{describe_error(error)}: what goes through is told later")
            return
        self._untold.clear()
        self._since_ms = max(now_ms, self._since_ms + 1)
        self._repeat_filter.well("the store takes again what goes through")
        if refused:
            self._refused.say("the store refuses some counts of what goes through for what they are: they are left out")

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _rows(self, since_ms: int, now_ms: int, flows: FlowDeltas) -> list[proxy_values.TrafficRow]:
        serves = self._serves
        return [
            proxy_values.TrafficRow(serves.id, serves.name, since_ms, max(now_ms, since_ms + 1), key, counter)
            for key, counter in flows
        ]

    def _store_takes(self, rows: Sequence[proxy_values.TrafficRow], now_ms: int) -> int:
        """Returns how many rows the store refused. Without a store rows are dropped."""
        store = self._stores()
        if store is None:
            return 0
        refused = store.traffic.tell(rows)
        if now_ms - self._forgot_ms >= RETENTION_INTERVAL_MS:
            self._forgot_ms = now_ms
            store.traffic.forget_before(now_ms - self._keep_ms)
        return refused
