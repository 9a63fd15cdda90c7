"""Reads the newest heartbeat of every heartbeats topic of every cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

from twinshore.fleet import KafkaError, StoreError, WireError, is_heartbeats
from twinshore.fleet.settings import Settings
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.notes import Note, Notebook
from twinshore.links.homes import counterpart, pair_of
from twinshore.mirror.topology.picture import LastBeat, Picture, path_of, picture
from twinshore.service.clock import wall_ms
from twinshore.service.identity import known_clusters
from twinshore.store import Store
from twinshore.store.opening import open_to_look
from twinshore.wire.note_text import bounded_json

PATIENCE_S = 5.0


def listen(settings: Settings, log: Callable[[str], None]) -> Picture:
    """What runs now, as the clusters of the settings show it; one that cannot be asked is named, not waited for. Nor is
    another cluster asked than the links began with. `log` hears where the store cannot say which these are."""
    ids, homes = _remembered(settings, log)
    beats: list[LastBeat] = []
    away: dict[str, str] = {}
    for name, known in settings.clusters.items():
        cluster = KafkaCluster(known, cluster_id=ids.get(name, ""), patience_s=PATIENCE_S, call_s=PATIENCE_S)
        try:
            for topic in sorted(cluster.metadata(None, refresh=True).topics):
                if is_heartbeats(topic):
                    beats += _newest(cluster, topic, path_of(topic, name, settings.clusters))
        except KafkaError as error:
            away[name] = error.message
        finally:
            cluster.close()
    return replace(picture(settings.links, beats, away), homes=homes)


def _remembered(
    settings: Settings, log: Callable[[str], None]
) -> tuple[dict[str, str], tuple[tuple[str, str, int], ...]]:
    """Which clusters these are, and where topics of pairs are at home. What runs is shown also while the store is
    away."""
    try:
        with open_to_look(settings) as store:
            return known_clusters(settings.links, store), tuple(_homes(settings, store))
    except StoreError as error:
        log(f"whether these are the clusters that the links began with is not known: {error}")
        return {}, ()


def _homes(settings: Settings, store: Store) -> Iterator[tuple[str, str, int]]:
    pairs = {pair_of(link) for link in settings.links if counterpart(link, settings.links)}
    for pair in sorted(pairs):
        for home, count in sorted(Counter(row.home for row in store.homes.of(pair).values()).items()):
            yield pair, home, count


def _newest(cluster: KafkaCluster, topic: str, path: tuple[str, ...]) -> list[LastBeat]:
    return [LastBeat(path, max(0, wall_ms() - _written_ms(note)) / 1000) for note in Notebook(cluster, topic).last()]


def _written_ms(note: Note) -> int:
    try:
        return int(bounded_json(note.value or b"")["at_ms"])
    except (WireError, ValueError, OverflowError, KeyError, TypeError):
        return note.timestamp
