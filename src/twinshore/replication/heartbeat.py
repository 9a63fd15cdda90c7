"""Writes a link's heartbeats to the source, which are replicated like any record; reads the newest of each cluster."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from twinshore.config.errors import KafkaError, StoreError
from twinshore.config.frozen import HEARTBEATS
from twinshore.config.model import Link, is_heartbeats_topic
from twinshore.config.repeat_filter import RepeatFilter, describe_error
from twinshore.config.settings import Settings
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.state_topic import StateTopic
from twinshore.replication.core.ownership import find_reverse_link, pair_name
from twinshore.replication.core.topology_view import (
    NewestHeartbeat,
    Topology,
    beat_line,
    beat_ms,
    build_topology,
    parse_heartbeat_path,
)
from twinshore.runtime.endpoints import SHORT_TIMEOUT_CONNECTIONS, known_cluster_ids
from twinshore.runtime.logging import LinkLogger
from twinshore.runtime.scheduler import process_scheduler
from twinshore.state.opening import open_or_temporary

log = logging.getLogger(__name__)

HEARTBEAT_SETTINGS = {"cleanup.policy": "delete", "retention.ms": "604800000", "segment.bytes": "16777216"}
REFUSED_PAUSE_S = 30.0
CALL_TIMEOUT_S = 2.0


class HeartbeatTask:
    """Writes heartbeats while `may_beat`, apart from the controller, which a slow source must not hold up."""

    def __init__(self, link: Link, source: KafkaCluster, every_s: float, may_beat: Callable[[], object]) -> None:
        self._link, self._cluster, self._every_s = link, source, every_s
        self._may_beat = may_beat
        self._repeat_filter = RepeatFilter(LinkLogger(log, link.name))
        self._source = SHORT_TIMEOUT_CONNECTIONS.client(source.cluster, CALL_TIMEOUT_S)
        self._topic, self._exists = StateTopic(self._source, HEARTBEATS, call_s=CALL_TIMEOUT_S), False
        name, asks = f"heart {link.name}", (link.source,)
        self._task = process_scheduler.every(name, self._turn, asks=asks, first_s=every_s) if every_s else None

    def close(self) -> None:
        if self._task:
            self._task.close()
        self._source.close()

    def _turn(self) -> float:
        if not self._may_beat():
            return self._every_s
        try:
            self._source.expect_cluster_id(self._cluster.cluster_id())
            if not self._exists and not self._topic.exists():
                self._topic.make(HEARTBEAT_SETTINGS)
            self._exists = True
            now_ms = wall_ms()
            self._topic.append([beat_line(self._link, now_ms)], now_ms)
            self._repeat_filter.well(f"heartbeats are written on {self._link.source} again")
            return self._every_s
        except Exception as error:
            # If no broker refused, perhaps an unreadable secret, which its owner may mend.
            self._exists = False
            if isinstance(error, KafkaError) and error.retriable:
                return self._every_s
            why = f"{error.message} (try: {error.hint})" if isinstance(error, KafkaError) else describe_error(error)
            lacks = f"no heartbeat on {self._link.source}, so `twinshore topology` does not see the link"
            self._repeat_filter.say(f"{lacks}: {why}")
            return REFUSED_PAUSE_S


PATIENCE_S = 5.0


def read_topology(settings: Settings) -> Topology:
    """Returns what runs now, by heartbeats. A cluster that does not answer, or is not the one that the links began
    with, is listed as away.
    """
    ids, homes = _read_store(settings)
    beats: list[NewestHeartbeat] = []
    away: dict[str, str] = {}
    for name, known in settings.clusters.items():
        cluster = KafkaCluster(known, cluster_id=ids.get(name, ""), patience_s=PATIENCE_S, call_s=PATIENCE_S)
        try:
            for topic in sorted(cluster.metadata(None, refresh=True).topics):
                if is_heartbeats_topic(topic):
                    beats += _newest(cluster, topic, parse_heartbeat_path(topic, name, settings.clusters))
        except KafkaError as error:
            away[name] = error.message
        finally:
            cluster.close()
    return replace(build_topology(settings.links, beats, away), homes=homes)


def _read_store(settings: Settings) -> tuple[dict[str, str], tuple[tuple[str, str, int], ...]]:
    """Cluster ids, and the homes of pairs; empty while the store does not answer."""
    try:
        with open_or_temporary(settings) as store:
            pairs = {pair_name(link) for link in settings.links if find_reverse_link(link, settings.links)}
            counts = {pair: Counter(row.home for row in store.homes.of(pair).values()) for pair in sorted(pairs)}
            homes = [(pair, home, counts[pair][home]) for pair in counts for home in sorted(counts[pair])]
            return known_cluster_ids(settings.links, store), tuple(homes)
    except StoreError as error:
        log.warning(f"whether these are the clusters that the links began with is unknown: {error}")
        return {}, ()


def _newest(cluster: KafkaCluster, topic: str, path: tuple[str, ...]) -> list[NewestHeartbeat]:
    record = StateTopic(cluster, topic).last()
    if record is None:
        return []
    at_ms = beat_ms(record.value)
    written_ms = record.timestamp if at_ms is None else at_ms
    return [NewestHeartbeat(path, max(0, wall_ms() - written_ms) / 1000)]
