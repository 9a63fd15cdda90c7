"""What a proxy counts, for Prometheus, and whether it is well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from twinshore.homes.leader_cluster import Lacks
from twinshore.kafka.clock import steady_s
from twinshore.proxy.core.alarms import Alarms
from twinshore.proxy.core.flows import Totals
from twinshore.proxy.doors import Doors
from twinshore.proxy.house import House
from twinshore.store.traffic_values import LATENCY_MS, SIZE_BYTES
from twinshore.wire.apis import api_name


class ProxyCollector(Collector):
    """Read by another thread than the one that counts: each number is as of some moment."""

    def __init__(self, house: House, doors: Doors, totals: Totals, alarms: Alarms) -> None:
        self._house, self._doors, self._totals, self._alarms = house, doors, totals, alarms

    def collect(self) -> Iterator[Metric]:
        counts, seen, again = self._house.counts, self._house.seen, self._house.flows.again
        rows = [((api_name(key),), count) for key, count in sorted(dict(counts.requests).items())]
        yield _family(CounterMetricFamily, "requests", "requests of clients, by API", ["api"], rows)
        for name, told, value in (
            ("clients", "connections of clients that came", counts.clients),
            ("errands", "requests for which several brokers, or another one, were asked", counts.errands),
            ("held", "requests that waited for a switch", counts.held),
            ("known_again_records", "records that came again behind a forced switch and were there", again.known),
            ("unsure_again_records", "records behind a forced switch that may have been there", again.unsure),
            ("slowed", "times that a client above its quota was not read for a while", counts.slowed),
            ("turned_away", "connections of clients that were not let in", counts.turned_away),
            ("hung_up", "connections of clients that were ended here", counts.hung_up),
            ("logins_refused", "logins of clients that were refused", counts.refused),
            ("brokers_lost", "connections to brokers that ended", counts.brokers_lost),
            ("received_bytes", "bytes received from clients", counts.bytes_in),
            ("sent_bytes", "bytes sent to clients", counts.bytes_out),
        ):
            yield CounterMetricFamily(f"twinshore_proxy_{name}", told, value=value)
        yield GaugeMetricFamily(
            "twinshore_proxy_clients_now", "clients that are connected", value=len(self._house.guests)
        )
        heard = GaugeMetricFamily(
            "twinshore_proxy_heard",
            "1 while a switch that moves topics of the cluster waits for this proxy; else their writers wait",
            labels=["cluster"],
        )
        for name, until_s in dict(self._house.until_s).items():
            heard.add_metric([name], float(steady_s() < until_s))
        yield heard
        yield GaugeMetricFamily(
            "twinshore_proxy_waiting_clients",
            "clients whose request waits for a switch, or to hear where its topic is",
            value=len(self._house.holding),
        )
        answer = [((one.name,), float(one.answers)) for one in list(seen.clusters.values())]
        yield _family(GaugeMetricFamily, "cluster_answers", "1 where the cluster answers", ["cluster"], answer)
        leaderless = Counter(one.lacks for one in seen.leaderless.values())
        why = [((one.name.lower(),), leaderless[one]) for one in Lacks]
        yield _family(GaugeMetricFamily, "leaderless", "topics without a leader, by why", ["why"], why)
        yield GaugeMetricFamily(
            "twinshore_proxy_led_unheard",
            "topics whose leader was chosen without a cluster that did not answer since this proxy began",
            value=len(seen.led_unheard),
        )
        yield from self._near()
        yield from self._fuses()
        yield from self._traffic()

    def _traffic(self) -> Iterator[Metric]:
        """As of the last window."""
        labels = ["topic", "cluster", "kind"]
        for name, told in (
            ("requests", "requests of producers, answers to consumers, of the topic"),
            ("bytes", "bytes of records that producers sent and consumers were given"),
            ("records", "records that producers sent"),
            ("errors", "partitions of answers with an error"),
        ):
            topics = [(key, getattr(flow, name)) for key, flow in list(self._totals.topics.items())]
            yield _family(CounterMetricFamily, f"topic_{name}", told, labels, topics)
        for name, told in (
            ("requests", "requests of the client id"),
            ("bytes", "bytes that its clients sent and received"),
            ("connections", "connections that they opened"),
        ):
            clients = [((client,), getattr(flow, name)) for client, flow in list(self._totals.clients.items())]
            yield _family(CounterMetricFamily, f"client_{name}", told, ["client"], clients)
        stands = [((name,), float(standing)) for name, standing in self._alarms.standing.items()]
        yield _family(GaugeMetricFamily, "alarm", "1 while the alarm stands", ["alarm"], stands)
        yield self._histogram("produce_seconds", "how long brokers took to answer producers", LATENCY_MS, 0.001)
        yield self._histogram("produce_request_bytes", "how large requests of producers are", SIZE_BYTES, 1)

    def _histogram(self, name: str, told: str, bounds: Sequence[int], unit: float) -> Metric:
        metric = HistogramMetricFamily(f"twinshore_proxy_{name}", told, labels=["cluster"])
        for cluster, flow in list(self._totals.clusters.items()):
            counts = flow.latency if bounds is LATENCY_MS else flow.sizes
            ends = [f"{end * unit:g}" for end in bounds] + ["+Inf"]
            total = flow.answered_us / 1e6 if bounds is LATENCY_MS else None
            metric.add_metric([cluster], list(zip(ends, map(float, accumulate(counts)), strict=True)), total)
        return metric

    def _near(self) -> Iterator[Metric]:
        near = self._house.near
        read = [((cluster,), count) for cluster, count in sorted(dict(near.bytes_read).items())]
        told = "bytes of records that clients read at a twin"
        yield _family(CounterMetricFamily, "near_bytes", told, ["cluster"], read)
        yield CounterMetricFamily("twinshore_proxy_led_near", "answers that led a client to a twin", value=near.led)
        yield CounterMetricFamily(
            "twinshore_proxy_sent_home", "partitions whose client a twin sent home", value=near.sent_home
        )
        yield GaugeMetricFamily(
            "twinshore_proxy_near_partitions", "partitions of twins that clients may read", value=len(near.served)
        )

    def _fuses(self) -> Iterator[Metric]:
        box, labels = self._house.fuses, ["topic", "client", "kind"]
        tallies = list(box.tallies.items())
        requests, records = ([(key, getattr(one, name)) for key, one in tallies] for name in ("requests", "records"))
        cut = [(key, float(key in box.open)) for key, _ in tallies]
        yield _family(CounterMetricFamily, "fused_requests", "answered by a fuse", labels, requests)
        yield _family(CounterMetricFamily, "fused_records", "records that a fuse kept out", labels, records)
        yield _family(GaugeMetricFamily, "fuse_open", "1 where the fuse cuts", labels, cut)
        yield GaugeMetricFamily(
            "twinshore_proxy_fuses_known", "0 while no store has said which fuses there are", value=float(box.known)
        )

    def clusters(self) -> dict[str, Any]:
        """How each cluster stands, for /health."""
        return {
            name: {"answers": one.answers, "brokers": len(one.brokers), "topics": len(one.topics)}
            for name, one in list(self._house.seen.clusters.items())
        }

    def trouble(self) -> str:
        """Why clients are not served as they should be; empty where they are. One cluster that is away is no reason to
        start the proxy again: the others would suffer."""
        if not self._house.seen.answering():
            return "no cluster answers"
        return next(iter(list(self._doors.shut.values())), "")


def _family(
    kind: type[CounterMetricFamily | GaugeMetricFamily],
    name: str,
    told: str,
    labels: Sequence[str],
    rows: Iterable[tuple[Iterable[str], float]],
) -> Metric:
    metric = kind(f"twinshore_proxy_{name}", told, labels=labels)
    for values, number in rows:
        metric.add_metric([*values], number)
    return metric
