"""What goes through, counted by client, topic, cluster and kind: for all clients of a process. Pure.

Counts only grow, and a window of time is what they grew by. Names are the clients' own, so of each kind there are so
many flows and no more. Where a kind has no room the idlest goes, if one had nothing in the last window; else what comes
counts for others, but for what an alarm is about: that has places of its own.

Sums never fall: a topic that is idle stays, and what comes once there are too many counts for others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from twinshore.store.traffic_values import OTHERS, Flow, FlowKey, FlowKind

# Client ids that somebody makes up leave the others their room.
FLOWS_MAX: Final = {
    FlowKind.PRODUCE: 1_000,
    FlowKind.FETCH: 1_000,
    FlowKind.COMMIT: 500,
    FlowKind.METADATA: 500,
    FlowKind.CLIENT: 500,
}
# Beyond these, for what alarms are about.
KEPT_MAX: Final = 200
# Of topics that nobody has, whose names anybody can make up.
UNKNOWN_MAX: Final = 200
# Windows without a request, behind which a flow is forgotten.
IDLE_WINDOWS: Final = 30
# Longer names are cut: those of topics are no topics', as Kafka has it.
CLIENT_MAX: Final = 255
TOPIC_MAX: Final = 249
# Uncompressed batches that are compressed for a look in a window, one of a flow at most.
SAMPLES: Final = 40
# What one window tells: the busiest, and all others together.
TOLD_MAX: Final = 300


@dataclass(slots=True)
class Again:
    """What producers sent behind forced switches, in records: `known`, as they had crossed, and so not written again;
    `unsure`, of which nobody knew that, and so written."""

    known: int = 0
    unsure: int = 0
    unsure_at: Counter[tuple[str, int, int]] = field(default_factory=Counter)

    def is_unsure(self, topic: str, partition: int, term: int, records: int, most: int) -> None:
        """So many more, of `most` that may be there in that term."""
        key = topic, partition, term
        more = min(records, most - self.unsure_at[key])
        self.unsure += more
        self.unsure_at[key] += more


class Flows:
    """Those of a process. `most`: of each kind, for tests. `kept`: as what a flow has a place where there is no room,
    None where it counts for others. `samples_left`: how many more may be taken in this window. `again`: what producers
    sent behind forced switches."""

    def __init__(self, most: int | None = None, kept: Callable[[FlowKey], FlowKey | None] = lambda _: None) -> None:
        self._most = FLOWS_MAX if most is None else dict.fromkeys(FlowKind, most)
        self._kept = kept
        self._flows: dict[FlowKey, Flow] = {}
        self._before: dict[FlowKey, Flow] = {}
        self._idle: dict[FlowKey, int] = {}
        self._connected: dict[FlowKey, int] = {}
        self._count = Counter[FlowKind]()
        self._beyond: set[FlowKey] = set()  # of those that are kept
        self._idlest: dict[FlowKind, list[FlowKey]] = {}  # as of the last window, the idlest last
        self._unknown = 0
        self.samples_left = SAMPLES
        self.again = Again()

    def of(self, client: str, topic: str, cluster: str, kind: FlowKind) -> Flow:
        """The counts of this one, or of others where too many are counted already. It may be kept for a moment only:
        what is idle is forgotten."""
        found = self._flows.get((client, topic, cluster, kind))  # type: ignore[call-overload]  # it is as good a key
        return self._begin(client, topic, cluster, kind) if found is None else found

    def _begin(self, client: str, topic: str, cluster: str, kind: FlowKind) -> Flow:
        key = FlowKey(client[:CLIENT_MAX], topic[:TOPIC_MAX], cluster, kind)
        found = self._flows.get(key)
        if found is None:
            if not _is_others(key) and self._has_room(key):
                self._count[kind] += 1
                self._unknown += _is_unknown(key)
            else:
                key = self._beyond_all(key)
            found = self._flows.setdefault(key, Flow())
        return found

    def _has_room(self, key: FlowKey) -> bool:
        """Whether there is room, if need be that of the idlest."""
        if _is_unknown(key) and self._unknown >= UNKNOWN_MAX:
            return False
        idlest = self._idlest.get(key.kind, [])
        while self._count[key.kind] >= self._most[key.kind] and idlest:
            one = idlest.pop()
            if one in self._flows and one not in self._connected and self._flows[one] == self._before.get(one):
                self._forget(one)
        return self._count[key.kind] < self._most[key.kind]

    def _beyond_all(self, key: FlowKey) -> FlowKey:
        """Where that counts for which there is no room."""
        kept = self._kept(key)
        if kept is not None and (kept in self._beyond or len(self._beyond) < KEPT_MAX) and not _is_others(kept):
            if kept not in self._flows:
                self._beyond.add(kept)
            return kept
        return FlowKey(OTHERS, OTHERS, key.cluster, key.kind)

    def comes(self, client: str) -> Flow:
        """One more connection of this client. Until it `goes` its counts may be kept."""
        found = self.of(client, "", "", FlowKind.CLIENT)
        key = self._key_of(client, found)
        count = self._connected[key] = self._connected.get(key, 0) + 1
        found.connections += 1
        found.connected_max = max(found.connected_max, count)
        return found

    def goes(self, client: str, flow: Flow) -> None:
        """A connection has ended whose counts were `flow`."""
        key = self._key_of(client, flow)
        count = self._connected.get(key, 0) - 1
        if count > 0:
            self._connected[key] = count
        else:
            self._connected.pop(key, None)

    def _key_of(self, client: str, flow: Flow) -> FlowKey:
        key = FlowKey(client[:CLIENT_MAX], "", "", FlowKind.CLIENT)
        return key if self._flows.get(key) is flow else FlowKey(OTHERS, OTHERS, "", FlowKind.CLIENT)

    def window(self) -> list[tuple[FlowKey, Flow]]:
        """What has come since it was asked last."""
        grown: list[tuple[FlowKey, Flow]] = []
        self.samples_left = SAMPLES
        self._idlest.clear()
        for key, flow in list(self._flows.items()):
            flow.sampled = False
            before = self._before.get(key)
            if before is None or flow != before:
                grown.append((key, flow.since(before or Flow())))
                self._before[key] = flow.copy()
                self._idle.pop(key, None)
            elif key not in self._connected:
                self._idle[key] = self._idle.get(key, 0) + 1
            if key.kind is FlowKind.CLIENT:  # that a peak is over is no news by itself
                flow.connected_max = self._before[key].connected_max = self._connected.get(key, 0)
            if self._idle.get(key, 0) >= IDLE_WINDOWS:
                self._forget(key)
        for key in sorted(self._idle, key=self._idle.__getitem__):
            if key not in self._beyond and not _is_others(key):
                self._idlest.setdefault(key.kind, []).append(key)
        return grown

    def _forget(self, key: FlowKey) -> None:
        del self._flows[key]
        self._before.pop(key, None)
        self._idle.pop(key, None)
        if key in self._beyond:
            self._beyond.remove(key)
        elif not _is_others(key):
            self._count[key.kind] -= 1
            self._unknown -= _is_unknown(key)


def _is_unknown(key: FlowKey) -> bool:
    return key.kind is FlowKind.METADATA and key.topic != ""


def _is_others(key: FlowKey) -> bool:
    return key.client == key.topic == OTHERS


def busiest(grown: Iterable[tuple[FlowKey, Flow]], most: int = TOLD_MAX) -> list[tuple[FlowKey, Flow]]:
    """The busiest as they are, and the rest of each cluster and kind together."""
    ordered = sorted(grown, key=lambda one: (one[1].requests, one[1].bytes), reverse=True)
    known = dict(ordered[:most])
    for key, flow in ordered[most:]:
        known.setdefault(FlowKey(OTHERS, OTHERS, key.cluster, key.kind), Flow()).add(flow)
    return list(known.items())


def join(known: dict[FlowKey, Flow], grown: Iterable[tuple[FlowKey, Flow]]) -> None:
    """Takes these counts along."""
    for key, flow in grown:
        known.setdefault(key, Flow()).add(flow)


SERIES_MAX: Final = 300
RECORDS_KINDS: Final = (FlowKind.PRODUCE, FlowKind.FETCH)


class ByTopic(NamedTuple):
    """A topic on a cluster, and what is done with it."""

    topic: str
    cluster: str
    kind: FlowKind


class Totals:
    """`topics`: of producers and consumers. `clients`: of all connections of a client id. `clusters`: producers, with
    how long brokers took."""

    def __init__(self, most: int = SERIES_MAX) -> None:
        self._most = most
        self.topics: dict[ByTopic, Flow] = {}
        self.clients: dict[str, Flow] = {}
        self.clusters: dict[str, Flow] = {}

    def take(self, grown: Iterable[tuple[FlowKey, Flow]]) -> None:
        """One more window."""
        for key, flow in grown:
            if key.kind is FlowKind.CLIENT:
                name = key.client if key.client in self.clients or len(self.clients) < self._most else OTHERS
                self.clients.setdefault(name, Flow()).add(flow)
            elif key.kind in RECORDS_KINDS:
                by_topic = ByTopic(key.topic, key.cluster, key.kind)
                if by_topic not in self.topics and len(self.topics) >= self._most:
                    by_topic = by_topic._replace(topic=OTHERS)
                self.topics.setdefault(by_topic, Flow()).add(flow)
            if key.kind is FlowKind.PRODUCE:
                self.clusters.setdefault(key.cluster, Flow()).add(flow)
