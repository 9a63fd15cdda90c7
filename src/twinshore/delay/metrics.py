"""The monitor's own /metrics and /health: read from its state when asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from twinshore.delay.alarms import root
from twinshore.delay.state import LinkState
from twinshore.fleet.settings.sections.delay import DelaySection
from twinshore.service.server import MetricsServer

if TYPE_CHECKING:
    from twinshore.delay.standing import StandingAlarms


class Watching(Protocol):
    """What the metrics need of a monitor."""

    states: dict[str, LinkState]
    sampled_ms: dict[str, int]


class DelayCollector(Collector):
    """Keeps no figures of its own."""

    def __init__(self, monitor: Watching, alarms: StandingAlarms) -> None:
        self._monitor, self._alarms = monitor, alarms

    def collect(self) -> Iterator[Metric]:
        lag = _gauge("twinshore_delay_lag_records", "Records on the source alone.", "topic")
        aged, whole = "Age of the oldest of them, since they arrived.", "with all of its partitions."
        point = _gauge("twinshore_delay_recovery_point_seconds", aged, "topic")
        read = _gauge("twinshore_delay_read_timestamp_seconds", f"When the topic was read last, {whole}", "topic")
        sampled = _gauge("twinshore_delay_sampled_timestamp_seconds", "When the link was read last.")
        judged = _gauge("twinshore_delay_judged_timestamp_seconds", "When the windows judged it last.")
        late = _gauge("twinshore_delay_heartbeat_seconds", "How long the newest heartbeat took.")
        count = CounterMetricFamily("twinshore_delay_samples", "Times the link was read.", labels=["link"])
        alone = "Alarms that stand, without those that follow from others."
        alarms = _gauge("twinshore_delay_alarms", alone, "kind")
        parts = _gauge("twinshore_delay_alarm_parts", "Alarms that stand and follow from others.", "kind")
        for name, state in self._monitor.states.items():
            for title, (records, age_s) in _by_topic(state).items():
                lag.add_metric([name, title], records)
                point.add_metric([name, title], age_s)
            for title, at_ms in list(state.seen_ms.items()):
                if title:
                    read.add_metric([name, title], at_ms / 1000)
            sampled.add_metric([name], self._monitor.sampled_ms[name] / 1000)
            judged.add_metric([name], state.judged_ms / 1000)
            count.add_metric([name], state.samples)
            if state.beat_seen_ms:
                late.add_metric([name], state.beat_late_ms / 1000)
        standing = {key: one for key, one in list(self._alarms.book.items()) if one.raised_ms is not None}
        heads = {key for key, one in standing.items() if root(key, standing, beyond=one.beyond) == key}
        for family, some in ((alarms, heads), (parts, standing.keys() - heads)):
            for (link, kind), number in Counter((key.link, key.kind.value) for key in some).items():
                family.add_metric([link, kind], number)
        yield from (lag, point, read, sampled, judged, late, count, alarms, parts)


def _gauge(name: str, says: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, says, labels=["link", *labels])


def _by_topic(state: LinkState) -> Mapping[str, tuple[int, float]]:
    """Of topics that the last reading could see whole: no figure is better than one of old that looks like today's."""
    found: dict[str, tuple[int, float]] = {}
    read, failures = state.read, state.failures
    for place, view in list(state.views.items()):
        if place in read and place.topic not in failures:
            records, age_s = found.get(view.place.topic, (0, 0.0))
            found[view.place.topic] = (records + view.lag_records, max(age_s, view.recovery_point_ms / 1000))
    return found


@contextmanager
def serve(section: DelaySection, monitor: Watching, alarms: StandingAlarms) -> Iterator[MetricsServer]:
    """Serves both while the context lasts."""

    def links() -> dict[str, Any]:
        return {name: {"sampled_ms": at_ms} for name, at_ms in monitor.sampled_ms.items()}

    collector = DelayCollector(monitor, alarms)
    server = MetricsServer(section.metrics_address, section.metrics_port, collector, links)
    try:
        yield server
    finally:
        server.close()
