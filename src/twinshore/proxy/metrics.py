"""What a proxy counts, for Prometheus, and whether it is well."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from twinshore.proxy.doors import Doors
from twinshore.proxy.house import House
from twinshore.wire.apis import api_name


class ProxyCollector(Collector):
    """Read by another thread than the one that counts: each number is as of some moment."""

    def __init__(self, house: House, doors: Doors) -> None:
        self._house, self._doors = house, doors

    def collect(self) -> Iterator[Metric]:
        counts, seen = self._house.counts, self._house.seen
        requests = CounterMetricFamily("twinshore_proxy_requests", "requests of clients, by API", labels=["api"])
        for key, count in sorted(dict(counts.requests).items()):
            requests.add_metric([api_name(key)], count)
        yield requests
        for name, told, value in (
            ("clients", "connections of clients that came", counts.clients),
            ("errands", "requests for which several brokers, or another one, were asked", counts.errands),
            ("hung_up", "connections of clients that were ended here", counts.hung_up),
            ("brokers_lost", "connections to brokers that ended", counts.brokers_lost),
            ("received_bytes", "bytes received from clients", counts.bytes_in),
            ("sent_bytes", "bytes sent to clients", counts.bytes_out),
        ):
            yield CounterMetricFamily(f"twinshore_proxy_{name}", told, value=value)
        yield GaugeMetricFamily(
            "twinshore_proxy_clients_now", "clients that are connected", value=len(self._house.guests)
        )
        answers = GaugeMetricFamily(
            "twinshore_proxy_cluster_answers", "1 where the cluster answers", labels=["cluster"]
        )
        for cluster in list(seen.clusters.values()):
            answers.add_metric([cluster.name], float(cluster.answers))
        yield answers

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
