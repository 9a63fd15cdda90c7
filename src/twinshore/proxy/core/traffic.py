"""What goes through, counted by client, topic, cluster and kind: for all clients of a process. Pure.

Counts only grow, and a window of time is what they grew by. Names are the clients' own, so of each kind there are so
many flows and no more. Where a kind has no room the idlest goes, if one had nothing in the last window; else what comes
counts for others, but for what an alarm is about: that has places of its own.

Sums never fall: a topic that is idle stays, and what comes once there are too many counts for others.

Of batches only fixed places of their headers are read: no record is walked, and nothing is decompressed. Now and then
one that is not compressed is, to see what that would save; what comes of it is thrown away.

What went through, as an operator looks at it: by topic, client, cluster or way, sorted, a page at a time. Pure.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

from twinshore.kafka.protocol.fetch import FetchAnswer, FetchRequest
from twinshore.kafka.protocol.handshake import VERSION_MAX, read_versions_request
from twinshore.kafka.protocol.produce import ProduceAnswer, ProduceRequest
from twinshore.kafka.protocol.record_batch import CODEC_MASK, HEADER_BYTES, Codec, compress
from twinshore.kafka.protocol.server import Request
from twinshore.state.core.proxy_values import LATENCY_MS, OTHERS, SIZE_BYTES, Flow, FlowKey, FlowKind, FlowRow

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
SERIES_MAX: Final = 300
RECORDS_KINDS: Final = (FlowKind.PRODUCE, FlowKind.FETCH)
# Attributes, producer id and count of a batch, from where its CRC begins to count.
_BATCH: Final = struct.Struct(">h20xq6xi")
_ATTRIBUTES: Final = 21
# Places of a client that are remembered, so that it is seen by how much its commits move them.
_PLACES_MAX: Final = 10_000
# A commit counts for no more records than that: how far it moves is the client's word, which no broker has seen yet.
STEP_MAX: Final = 1_000_000_000
SOFTWARE_MAX: Final = 128
_NOWHERE: Final = Flow()
# More of a batch is not compressed for a look: some tens of microseconds.
SAMPLE_BYTES: Final = 65_536


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


class ByTopic(NamedTuple):
    """A topic on a cluster, and what is done with it."""

    topic: str
    cluster: str
    kind: FlowKind


class Totals:
    """What went through since the process began, by topic and by client, in few enough series for Prometheus. `topics`:
    of producers and consumers. `clients`: of all connections of a client id. `clusters`: producers, with how long
    brokers took."""

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


class Counting:
    """What one client sends and is given, read from what is at hand when its requests are judged."""

    def __init__(self, flows: Flows | None = None) -> None:
        self._flows = flows if flows is not None else Flows()
        self.again = self._flows.again
        self._places: dict[tuple[str, str, int], int] = {}

    def sent(self, request: Request, asked: ProduceRequest, cluster: str) -> tuple[Flow, ...]:
        """A producer's request goes out there. The flows that it counts for: they are to hear how long it took."""
        client, acks = request.client_id or "", asked.acks
        at = bisect_left(SIZE_BYTES, len(request.view))
        touched: list[Flow] = []
        last, flow = None, _NOWHERE
        for topic, _, records in asked.batches:
            if topic != last:
                last, flow = topic, self._flows.of(client, str(topic), cluster, FlowKind.PRODUCE)
                touched.append(flow)
                flow.requests += 1
                flow.sizes[at] += 1
                if acks >= 0:
                    flow.acks_none += acks == 0
                    flow.acks_leader += acks == 1
                if request.version > flow.version_max:
                    flow.version_max = request.version
            if records is not None and (size := len(records)) >= HEADER_BYTES:
                attributes, producer_id, count = _BATCH.unpack_from(records, _ATTRIBUTES)
                flow.bytes += size
                flow.batches += 1
                if count > 1:  # it is the client's word
                    flow.records += count
                elif count == 1:
                    flow.records += 1
                    flow.singles += 1
                if producer_id < 0:
                    flow.unnumbered += 1
                if not attributes & CODEC_MASK:
                    self._plain(flow, records)
        return tuple(touched)

    def _plain(self, flow: Flow, records: memoryview | bytes) -> None:
        flow.plain += 1
        flow.plain_bytes += len(records)
        if not flow.sampled and self._flows.samples_left:
            self._flows.samples_left -= 1
            part = records[HEADER_BYTES : HEADER_BYTES + SAMPLE_BYTES]
            flow.sampled = True
            flow.tried += len(part)
            flow.tried_lz4 += min(len(part), len(compress(Codec.LZ4, part)))

    def appended(self, client: str, cluster: str, answer: ProduceAnswer) -> None:
        """What a broker did not take."""
        for one in answer.appended:
            if one.error:
                self._flows.of(client, str(one.topic), cluster, FlowKind.PRODUCE).errors += 1

    def fetched(self, request: Request, asked: FetchRequest, topic: str, cluster: str, answer: FetchAnswer) -> None:
        """What a consumer was given. `topic`: the only one that it asks for, empty where there are several."""
        client = request.client_id or ""
        flow = whole = self._flows.of(client, topic, cluster, FlowKind.FETCH)
        whole.requests += 1
        whole.wait_ms += max(0, asked.max_wait_ms)
        whole.min_bytes += max(0, asked.min_bytes)
        whole.sizes[bisect_left(SIZE_BYTES, len(request.view))] += 1
        if request.version > whole.version_max:
            whole.version_max = request.version
        last, empty = topic, True
        for one in answer.fetched:
            if (name := str(one.topic)) != last:
                last, flow = name, self._flows.of(client, name, cluster, FlowKind.FETCH)
            if one.records:
                empty = False
                flow.bytes += len(one.records)
            flow.errors += one.error != 0
        whole.empty += empty

    def committed(self, request: Request, group: str, topics: Iterable[Any], cluster: str) -> None:
        """Places that a client commits, as kio has them. How far they move is known from the second time on."""
        client = request.client_id or ""
        for topic in topics:
            name = str(topic.name)
            flow = self._flows.of(client, name, cluster, FlowKind.COMMIT)
            flow.requests += 1
            for part in topic.partitions:
                place, offset = (group, name, part.partition_index), int(part.committed_offset)
                flow.batches += 1
                if offset < 0:  # no place: brokers refuse it
                    continue
                before = self._places.get(place, offset)
                flow.records += min(STEP_MAX, max(0, offset - before))
                if len(self._places) < _PLACES_MAX or place in self._places:
                    self._places[place] = offset

    def looked(self, request: Request) -> None:
        """It asks where topics are."""
        self._flows.of(request.client_id or "", "", "", FlowKind.METADATA).requests += 1

    def unknown(self, request: Request, topic: str) -> None:
        """It has asked for a topic that nobody has."""
        flow = self._flows.of(request.client_id or "", topic, "", FlowKind.METADATA)
        flow.requests += 1
        flow.errors += 1

    def is_made_with(self, request: Request, software: str) -> None:
        """What the client says of itself; nothing where it is too old to say anything."""
        if software:
            self._flows.of(request.client_id or "", "", "", FlowKind.CLIENT).software = software


def software_of(request: Request) -> str:
    """The library that the client says that it is, by its question for versions. WireError where it is none."""
    if not 3 <= request.version <= VERSION_MAX:
        return ""
    found = read_versions_request(request.view, request.position, request.version)
    return f"{found.name} {found.version}"[:SOFTWARE_MAX] if found is not None else ""


def waited(flows: Iterable[Flow], took_ms: float) -> None:
    """A broker took so long to answer a producer."""
    at, took_us = bisect_left(LATENCY_MS, took_ms), int(took_ms * 1000)
    for flow in flows:
        flow.answered_us += took_us
        flow.latency[at] += 1


TAIL: Final = 0.99


class By(StrEnum):
    """WAY: from a proxy to a cluster, so between sites. FLOW: all apart."""

    TOPIC = "topic"
    CLIENT = "client"
    CLUSTER = "cluster"
    WAY = "way"
    FLOW = "flow"


class Sort(StrEnum):
    """By what the largest comes first."""

    BYTES = "bytes"
    REQUESTS = "requests"
    RECORDS = "records"
    ERRORS = "errors"
    LATENCY = "latency"


@dataclass(frozen=True, slots=True)
class Line:
    """One subject and what is done with it, over `lasted_s` seconds."""

    subject: str
    kind: FlowKind
    flow: Flow
    lasted_s: float
    clients: int
    topics: int

    def as_values(self) -> dict[str, Any]:
        """For programs; rates are per second."""
        flow, per_s = self.flow, 1 / self.lasted_s
        return {
            "subject": self.subject,
            "kind": self.kind.value,
            "bytes_s": round(flow.bytes * per_s, 1),
            "requests_s": round(flow.requests * per_s, 3),
            "records_s": round(flow.records * per_s, 3),
            "bytes": flow.bytes,
            "requests": flow.requests,
            "records": flow.records,
            "batches": flow.batches,
            "errors": flow.errors,
            "empty": flow.empty,
            "connections": flow.connections,
            "connected_max": flow.connected_max,
            "latency_ms": round(flow.mean_ms, 1) if flow.answered else None,
            "latency_99_ms": tail_ms(flow.latency),
            "clients": self.clients,
            "topics": self.topics,
            "software": flow.software,
        }


def tail_ms(counts: Sequence[int]) -> int | None:
    """By when all but one in a hundred were answered: the end of a bucket. None where nothing was, or where it took
    longer than the last bucket tells."""
    total, so_far = sum(counts), 0
    for end, count in zip(LATENCY_MS, counts, strict=False):
        so_far += count
        if total and so_far >= TAIL * total:
            return end
    return None


def lines_of(rows: Iterable[FlowRow], by: By, sort: Sort) -> list[Line]:
    """All of them, the largest first. Whatever lasted is from the first window's begin to the last one's end."""
    sums: dict[tuple[str, FlowKind], Flow] = {}
    names: dict[tuple[str, FlowKind], tuple[set[str], set[str]]] = {}
    since_ms, until_ms = 0, 0
    for row in rows:
        since_ms = min(since_ms or row.since_ms, row.since_ms)
        until_ms = max(until_ms, row.until_ms)
        subject = _subject(row, by)
        if subject is None:
            continue
        place = (subject, row.key.kind)
        sums.setdefault(place, Flow()).add(row.flow)
        clients, topics = names.setdefault(place, (set(), set()))
        clients.add(row.key.client)
        topics.add(row.key.topic)
    lasted_s = max(0.001, (until_ms - since_ms) / 1000)
    found = [
        Line(subject, kind, flow, lasted_s, len(names[subject, kind][0]), len(names[subject, kind][1]))
        for (subject, kind), flow in sums.items()
    ]
    return sorted(found, key=lambda one: (-_size(one.flow, sort), one.subject, one.kind))


def _subject(row: FlowRow, by: By) -> str | None:
    """None where the row is about nothing of that sort."""
    key = row.key
    if by is By.CLIENT:
        return key.client
    if key.kind is FlowKind.CLIENT:
        return None
    if by is By.TOPIC:
        return key.topic or None
    if by is By.FLOW:
        return f"{key.client}, {key.topic or 'no topic'} on {key.cluster or 'no cluster'}"
    if not key.cluster:
        return None
    return key.cluster if by is By.CLUSTER else f"{row.proxy} to {key.cluster}"


def _size(flow: Flow, sort: Sort) -> float:
    if sort is Sort.LATENCY:
        return flow.mean_ms
    return float(getattr(flow, sort.value))


def sentence(line: Line) -> str:
    """For people."""
    one = line.as_values()
    parts = [f"{one['bytes_s']:,.0f} bytes/s", f"{one['requests_s']:,.1f} requests/s"]
    if line.kind in (FlowKind.PRODUCE, FlowKind.COMMIT):
        parts.append(f"{one['records_s']:,.1f} records/s")
    if line.kind is FlowKind.FETCH:
        parts.append(f"{one['empty']:,} of {one['requests']:,} answers empty")
    if one["latency_ms"] is not None:
        tail = f"below {one['latency_99_ms']:,} ms" if one["latency_99_ms"] is not None else "above all that is told"
        parts.append(f"answered in {one['latency_ms']:,.1f} ms, 99 of 100 {tail}")
    if line.kind is FlowKind.CLIENT:
        parts.append(f"{one['connected_max']:,} connections at once, {one['connections']:,} new")
    if one["errors"]:
        parts.append(f"{one['errors']:,} errors")
    return f"{line.subject}, {line.kind}: {', '.join(parts)}"
