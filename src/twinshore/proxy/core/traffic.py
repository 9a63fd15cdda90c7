"""Traffic of all clients of a process, by client, topic, cluster and kind, and pages of it for operators.

Counts only grow; a window is the growth. Clients choose names freely, so each kind has a limit of flows. At the limit
the idlest flow goes, if idle in the last window; else traffic counts for others, unless an alarm covers it. Totals
never fall.

Only fixed header fields of batches are read: no record is parsed or decompressed. Now and then an uncompressed batch is
compressed to measure the gain.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from twinshore.kafka.protocol.fetch import FetchRequest, FetchResponse
from twinshore.kafka.protocol.handshake import API_VERSIONS_VERSION_MAX, read_api_versions_request
from twinshore.kafka.protocol.produce import ProduceRequest, ProduceResponse
from twinshore.kafka.protocol.record_batch import CODEC_MASK, HEADER_BYTES, Codec, compress
from twinshore.kafka.protocol.requests import Request
from twinshore.state.core.proxy_values import (
    LATENCY_BUCKETS_MS,
    OTHER_NAMES,
    SIZE_BUCKETS_BYTES,
    TrafficCounter,
    TrafficKey,
    TrafficKind,
    TrafficRow,
)

# Limits, so that made-up client ids leave room for others.
FLOWS_PER_KIND_MAX: Final = {
    TrafficKind.PRODUCE: 1_000,
    TrafficKind.FETCH: 1_000,
    TrafficKind.COMMIT: 500,
    TrafficKind.METADATA: 500,
    TrafficKind.CLIENT: 500,
}
# Additional flows, for alarms.
ALARMED_FLOWS_MAX: Final = 200
# Missing topics, whose names clients may make up.
UNKNOWN_TOPICS_MAX: Final = 200
# Windows without a request after which a flow is dropped.
IDLE_WINDOWS_MAX: Final = 30
# Longer names are cut. Kafka has no longer topic names.
CLIENT_ID_CHARS_MAX: Final = 255
TOPIC_CHARS_MAX: Final = 249
# Compression samples in a window, at most one of a flow.
COMPRESSION_SAMPLES_MAX: Final = 40
# Flows reported for a window: the busiest. Others are summed.
REPORTED_FLOWS_MAX: Final = 300
METRIC_SERIES_MAX: Final = 300
RECORDS_KINDS: Final = (TrafficKind.PRODUCE, TrafficKind.FETCH)
# Attributes, producer id and record count of a batch, from the start of what its CRC covers.
_BATCH: Final = struct.Struct(">h20xq6xi")
_ATTRIBUTES: Final = 21
# Committed offsets remembered for a client, to see how far commits advance.
_PLACES_MAX: Final = 10_000
# The most records that a commit counts for: how far it advances is the client's claim, which no broker has checked.
COMMITTED_RECORDS_MAX: Final = 1_000_000_000
SOFTWARE_CHARS_MAX: Final = 128
_NOWHERE: Final = TrafficCounter()
# Bytes of a batch in a compression sample, which takes some tens of microseconds.
COMPRESSION_SAMPLE_BYTES_MAX: Final = 65_536


@dataclass(slots=True)
class ResentRecords:
    """Records retried after forced switches. `known`: replicated, so not written again. `unsure`: written, though
    perhaps replicated.
    """

    known: int = 0
    unsure: int = 0
    unsure_at: Counter[tuple[str, int, int]] = field(default_factory=Counter)

    def add_unconfirmed(self, topic: str, partition: int, term: int, records: int, most: int) -> None:
        """Count records, of at most `most` in that term."""
        key = topic, partition, term
        more = min(records, most - self.unsure_at[key])
        self.unsure += more
        self.unsure_at[key] += more


class TrafficTable:
    """The flows of a process.

    `kept`: the key to keep a flow beyond the limit, None to count it for
    others. `samples_left`: compression samples left in this window.
    """

    def __init__(self, kept: Callable[[TrafficKey], TrafficKey | None] = lambda _: None) -> None:
        self._kept = kept
        self._flows: dict[TrafficKey, TrafficCounter] = {}
        self._before: dict[TrafficKey, TrafficCounter] = {}
        self._idle: dict[TrafficKey, int] = {}
        self._connected: dict[TrafficKey, int] = {}
        self._count = Counter[TrafficKind]()
        self._beyond: set[TrafficKey] = set()  # kept beyond the limit
        self._idlest: dict[TrafficKind, list[TrafficKey]] = {}  # as of the last window, the idlest last
        self._unknown = 0
        self.samples_left = COMPRESSION_SAMPLES_MAX
        self.again = ResentRecords()

    def of(self, client: str, topic: str, cluster: str, kind: TrafficKind) -> TrafficCounter:
        """Returns the counts of a flow, or of others. Use at once: idle flows are forgotten."""
        found = self._flows.get((client, topic, cluster, kind))  # type: ignore[call-overload]  # it is as good a key
        return self._begin(client, topic, cluster, kind) if found is None else found

    def _begin(self, client: str, topic: str, cluster: str, kind: TrafficKind) -> TrafficCounter:
        key = TrafficKey(client[:CLIENT_ID_CHARS_MAX], topic[:TOPIC_CHARS_MAX], cluster, kind)
        found = self._flows.get(key)
        if found is None:
            if not _is_others(key) and self._has_room(key):
                self._count[kind] += 1
                self._unknown += _is_unknown(key)
            else:
                key = self._beyond_all(key)
            found = self._flows.setdefault(key, TrafficCounter())
        return found

    def _has_room(self, key: TrafficKey) -> bool:
        """Whether a flow fits, after dropping idle ones if needed."""
        if _is_unknown(key) and self._unknown >= UNKNOWN_TOPICS_MAX:
            return False
        idlest = self._idlest.get(key.kind, [])
        while self._count[key.kind] >= FLOWS_PER_KIND_MAX[key.kind] and idlest:
            one = idlest.pop()
            if one in self._flows and one not in self._connected and self._flows[one] == self._before.get(one):
                self._forget(one)
        return self._count[key.kind] < FLOWS_PER_KIND_MAX[key.kind]

    def _beyond_all(self, key: TrafficKey) -> TrafficKey:
        """Returns the key for a flow beyond the limit."""
        kept = self._kept(key)
        has_room = kept in self._beyond or len(self._beyond) < ALARMED_FLOWS_MAX
        if kept is None or _is_others(kept) or not has_room:
            return TrafficKey(OTHER_NAMES, OTHER_NAMES, key.cluster, key.kind)
        if kept not in self._flows:
            self._beyond.add(kept)
        return kept

    def comes(self, client: str) -> TrafficCounter:
        """Add a connection of this client. The counts may be kept until `goes`."""
        found = self.of(client, "", "", TrafficKind.CLIENT)
        key = self._key_of(client, found)
        count = self._connected[key] = self._connected.get(key, 0) + 1
        found.connections += 1
        found.connected_max = max(found.connected_max, count)
        return found

    def goes(self, client: str, counter: TrafficCounter) -> None:
        key = self._key_of(client, counter)
        count = self._connected.get(key, 0) - 1
        if count > 0:
            self._connected[key] = count
        else:
            self._connected.pop(key, None)

    def _key_of(self, client: str, counter: TrafficCounter) -> TrafficKey:
        key = TrafficKey(client[:CLIENT_ID_CHARS_MAX], "", "", TrafficKind.CLIENT)
        return key if self._flows.get(key) is counter else TrafficKey(OTHER_NAMES, OTHER_NAMES, "", TrafficKind.CLIENT)

    def window(self) -> list[tuple[TrafficKey, TrafficCounter]]:
        """Returns the growth since the last call."""
        grown: list[tuple[TrafficKey, TrafficCounter]] = []
        self.samples_left = COMPRESSION_SAMPLES_MAX
        self._idlest.clear()
        for key, counter in list(self._flows.items()):
            counter.sampled = False
            before = self._before.get(key)
            if before is None or counter != before:
                grown.append((key, counter.since(before or TrafficCounter())))
                self._before[key] = counter.copy()
                self._idle.pop(key, None)
            elif key not in self._connected:
                self._idle[key] = self._idle.get(key, 0) + 1
            if key.kind is TrafficKind.CLIENT:  # the end of a peak is no growth
                counter.connected_max = self._before[key].connected_max = self._connected.get(key, 0)
            if self._idle.get(key, 0) >= IDLE_WINDOWS_MAX:
                self._forget(key)
        for key in sorted(self._idle, key=self._idle.__getitem__):
            if key not in self._beyond and not _is_others(key):
                self._idlest.setdefault(key.kind, []).append(key)
        return grown

    def _forget(self, key: TrafficKey) -> None:
        del self._flows[key]
        self._before.pop(key, None)
        self._idle.pop(key, None)
        if key in self._beyond:
            self._beyond.remove(key)
        elif not _is_others(key):
            self._count[key.kind] -= 1
            self._unknown -= _is_unknown(key)


def _is_unknown(key: TrafficKey) -> bool:
    return key.kind is TrafficKind.METADATA and key.topic != ""


def _is_others(key: TrafficKey) -> bool:
    return key.client == key.topic == OTHER_NAMES


def select_busiest(grown: Iterable[tuple[TrafficKey, TrafficCounter]]) -> list[tuple[TrafficKey, TrafficCounter]]:
    """Returns the busiest flows, and the rest summed by cluster and kind."""
    ordered = sorted(grown, key=lambda one: (one[1].requests, one[1].bytes), reverse=True)
    known, others = dict(ordered[:REPORTED_FLOWS_MAX]), ordered[REPORTED_FLOWS_MAX:]
    rest = ((TrafficKey(OTHER_NAMES, OTHER_NAMES, key.cluster, key.kind), counter) for key, counter in others)
    merge_flows(known, rest)
    return list(known.items())


def merge_flows(known: dict[TrafficKey, TrafficCounter], grown: Iterable[tuple[TrafficKey, TrafficCounter]]) -> None:
    """Add these counts to `known`."""
    for key, counter in grown:
        known.setdefault(key, TrafficCounter()).add(counter)


class TrafficTotals:
    """Traffic since the process began, in few enough series for Prometheus.

    `topics`: of producers and consumers, by keys without a client. `clients`: by client id. `clusters`: producers, with
    response times.
    """

    def __init__(self) -> None:
        self.topics: dict[TrafficKey, TrafficCounter] = {}
        self.clients: dict[str, TrafficCounter] = {}
        self.clusters: dict[str, TrafficCounter] = {}

    def take(self, grown: Iterable[tuple[TrafficKey, TrafficCounter]]) -> None:
        """Add a window."""
        for key, counter in grown:
            if key.kind is TrafficKind.CLIENT:
                is_known = key.client in self.clients or len(self.clients) < METRIC_SERIES_MAX
                name = key.client if is_known else OTHER_NAMES
                self.clients.setdefault(name, TrafficCounter()).add(counter)
            elif key.kind in RECORDS_KINDS:
                by_topic = key._replace(client="")
                if by_topic not in self.topics and len(self.topics) >= METRIC_SERIES_MAX:
                    by_topic = by_topic._replace(topic=OTHER_NAMES)
                self.topics.setdefault(by_topic, TrafficCounter()).add(counter)
            if key.kind is TrafficKind.PRODUCE:
                self.clusters.setdefault(key.cluster, TrafficCounter()).add(counter)


class RequestCounter:
    """Counts one client's traffic."""

    def __init__(self, traffic: TrafficTable | None = None) -> None:
        self._traffic = traffic if traffic is not None else TrafficTable()
        self.again = self._traffic.again
        self._places: dict[tuple[str, str, int], int] = {}

    def sent(self, request: Request, asked: ProduceRequest, cluster: str) -> tuple[TrafficCounter, ...]:
        """Count a Produce request; returns the flows to get the response time."""
        client, acks = request.client_id or "", asked.acks
        at = bisect_left(SIZE_BUCKETS_BYTES, len(request.view))
        touched: list[TrafficCounter] = []
        last, counter = None, _NOWHERE
        for topic, _, records in asked.batches:
            if topic != last:
                last, counter = topic, self._traffic.of(client, str(topic), cluster, TrafficKind.PRODUCE)
                touched.append(counter)
                counter.requests += 1
                counter.sizes[at] += 1
                if acks >= 0:
                    counter.acks_none += acks == 0
                    counter.acks_leader += acks == 1
                if request.version > counter.version_max:
                    counter.version_max = request.version
            if records is not None and (size := len(records)) >= HEADER_BYTES:
                attributes, producer_id, count = _BATCH.unpack_from(records, _ATTRIBUTES)
                counter.bytes += size
                counter.batches += 1
                if count > 1:  # as the client claims
                    counter.records += count
                elif count == 1:
                    counter.records += 1
                    counter.single_record_batches += 1
                if producer_id < 0:
                    counter.non_idempotent_batches += 1
                if not attributes & CODEC_MASK:
                    self._plain(counter, records)
        return tuple(touched)

    def _plain(self, counter: TrafficCounter, records: memoryview | bytes) -> None:
        counter.uncompressed_batches += 1
        counter.uncompressed_bytes += len(records)
        if not counter.sampled and self._traffic.samples_left:
            self._traffic.samples_left -= 1
            part = records[HEADER_BYTES : HEADER_BYTES + COMPRESSION_SAMPLE_BYTES_MAX]
            counter.sampled = True
            counter.lz4_sample_bytes += len(part)
            counter.lz4_sample_compressed_bytes += min(len(part), len(compress(Codec.LZ4, part)))

    def appended(self, client: str, cluster: str, answer: ProduceResponse) -> None:
        """Count errors of a Produce response."""
        for one in answer.appended:
            if one.error:
                self._traffic.of(client, str(one.topic), cluster, TrafficKind.PRODUCE).errors += 1

    def fetched(self, request: Request, asked: FetchRequest, topic: str, cluster: str, answer: FetchResponse) -> None:
        """Count a Fetch response. `topic`: the only one, else empty."""
        client = request.client_id or ""
        counter = whole = self._traffic.of(client, topic, cluster, TrafficKind.FETCH)
        whole.requests += 1
        whole.wait_ms += max(0, asked.max_wait_ms)
        whole.min_bytes += max(0, asked.min_bytes)
        whole.sizes[bisect_left(SIZE_BUCKETS_BYTES, len(request.view))] += 1
        if request.version > whole.version_max:
            whole.version_max = request.version
        last, empty = topic, True
        for one in answer.fetched:
            if (name := str(one.topic)) != last:
                last, counter = name, self._traffic.of(client, name, cluster, TrafficKind.FETCH)
            if one.records:
                empty = False
                counter.bytes += len(one.records)
            counter.errors += one.error != 0
        whole.empty += empty

    def committed(self, request: Request, group: str, topics: Iterable[Any], cluster: str) -> None:
        """Count commits. How far offsets advance is known from the second commit on."""
        client = request.client_id or ""
        for topic in topics:
            name = str(topic.name)
            counter = self._traffic.of(client, name, cluster, TrafficKind.COMMIT)
            counter.requests += 1
            for part in topic.partitions:
                place, offset = (group, name, part.partition_index), int(part.committed_offset)
                counter.batches += 1
                if offset < 0:  # no offset: brokers refuse it
                    continue
                before = self._places.get(place, offset)
                counter.records += min(COMMITTED_RECORDS_MAX, max(0, offset - before))
                if len(self._places) < _PLACES_MAX or place in self._places:
                    self._places[place] = offset

    def looked(self, request: Request) -> None:
        """Count a metadata request."""
        self._traffic.of(request.client_id or "", "", "", TrafficKind.METADATA).requests += 1

    def unknown(self, request: Request, topic: str) -> None:
        """Count a request for a missing topic."""
        counter = self._traffic.of(request.client_id or "", topic, "", TrafficKind.METADATA)
        counter.requests += 1
        counter.errors += 1

    def is_made_with(self, request: Request, software: str) -> None:
        """Set the client's software, unless empty."""
        if software:
            self._traffic.of(request.client_id or "", "", "", TrafficKind.CLIENT).software = software


def parse_client_software(request: Request) -> str:
    """Returns the library in ApiVersions; empty in old versions. WireError if invalid."""
    if not 3 <= request.version <= API_VERSIONS_VERSION_MAX:
        return ""
    found = read_api_versions_request(request.view, request.position, request.version)
    return f"{found.name} {found.version}"[:SOFTWARE_CHARS_MAX] if found is not None else ""


def record_latency(counters: Iterable[TrafficCounter], took_ms: float) -> None:
    at, took_us = bisect_left(LATENCY_BUCKETS_MS, took_ms), int(took_ms * 1000)
    for counter in counters:
        counter.answered_us += took_us
        counter.latency[at] += 1


TAIL_QUANTILE: Final = 0.99


class TrafficGrouping(StrEnum):
    """What to group by. PROXY_TO_CLUSTER: so between sites. FLOW: each separately."""

    TOPIC = "topic"
    CLIENT = "client"
    CLUSTER = "cluster"
    PROXY_TO_CLUSTER = "way"
    FLOW = "flow"


class TrafficOrder(StrEnum):
    """What to sort by, largest first."""

    BYTES = "bytes"
    REQUESTS = "requests"
    RECORDS = "records"
    ERRORS = "errors"
    LATENCY = "latency"


_LINE_COUNTS: Final = ("bytes", "requests", "records", "batches", "errors", "empty", "connections", "connected_max")


@dataclass(frozen=True, slots=True)
class TrafficLine:
    """One subject and kind, over `lasted_s` seconds."""

    subject: str
    kind: TrafficKind
    flow: TrafficCounter
    lasted_s: float
    clients: int
    topics: int

    def as_values(self) -> dict[str, Any]:
        """Returns JSON values; rates are per second."""
        counter, per_s = self.flow, 1 / self.lasted_s
        return {
            "subject": self.subject,
            "kind": self.kind.value,
            "bytes_s": round(counter.bytes * per_s, 1),
            "requests_s": round(counter.requests * per_s, 3),
            "records_s": round(counter.records * per_s, 3),
            **{name: getattr(counter, name) for name in _LINE_COUNTS},
            "latency_ms": round(counter.mean_ms, 1) if counter.answered else None,
            "latency_99_ms": get_tail_latency_ms(counter.latency),
            "clients": self.clients,
            "topics": self.topics,
            "software": counter.software,
        }


def get_tail_latency_ms(counts: Sequence[int]) -> int | None:
    """Returns the bucket bound within which 99 of 100 were answered; None without answers, or beyond the last."""
    total, so_far = sum(counts), 0
    for end, count in zip(LATENCY_BUCKETS_MS, counts, strict=False):
        so_far += count
        if total and so_far >= TAIL_QUANTILE * total:
            return end
    return None


def aggregate_traffic(rows: Iterable[TrafficRow], by: TrafficGrouping, sort: TrafficOrder) -> list[TrafficLine]:
    """Returns all lines. Rates cover the first window's start to the last one's end."""
    rows = list(rows)
    since_ms, until_ms = min((row.since_ms for row in rows), default=0), max((row.until_ms for row in rows), default=0)
    lasted_s = max(0.001, (until_ms - since_ms) / 1000)
    sums: dict[tuple[str, TrafficKind], tuple[TrafficCounter, set[str], set[str]]] = {}
    for row in rows:
        if (subject := _subject(row, by)) is not None:
            counter, clients, topics = sums.setdefault((subject, row.key.kind), (TrafficCounter(), set(), set()))
            counter.add(row.flow)
            clients.add(row.key.client)
            topics.add(row.key.topic)
    found = [
        TrafficLine(subject, kind, counter, lasted_s, len(clients), len(topics))
        for (subject, kind), (counter, clients, topics) in sums.items()
    ]
    return sorted(found, key=lambda line: (-_size(line.flow, sort), line.subject, line.kind))


def _subject(row: TrafficRow, by: TrafficGrouping) -> str | None:
    """Returns the row's subject, if any."""
    key = row.key
    if by is TrafficGrouping.CLIENT:
        return key.client
    if key.kind is TrafficKind.CLIENT:
        return None
    if by is TrafficGrouping.TOPIC:
        return key.topic or None
    if by is TrafficGrouping.FLOW:
        return f"{key.client}, {key.topic or 'no topic'} on {key.cluster or 'no cluster'}"
    if not key.cluster:
        return None
    return key.cluster if by is TrafficGrouping.CLUSTER else f"{row.proxy} to {key.cluster}"


def _size(counter: TrafficCounter, sort: TrafficOrder) -> float:
    return counter.mean_ms if sort is TrafficOrder.LATENCY else float(getattr(counter, sort.value))


def describe_traffic(line: TrafficLine) -> str:
    one = line.as_values()
    parts = [f"{one['bytes_s']:,.0f} bytes/s", f"{one['requests_s']:,.1f} requests/s"]
    if line.kind in (TrafficKind.PRODUCE, TrafficKind.COMMIT):
        parts.append(f"{one['records_s']:,.1f} records/s")
    if line.kind is TrafficKind.FETCH:
        parts.append(f"{one['empty']:,} of {one['requests']:,} answers empty")
    if one["latency_ms"] is not None:
        tail = f"below {one['latency_99_ms']:,} ms" if one["latency_99_ms"] is not None else "above all that is told"
        parts.append(f"answered in {one['latency_ms']:,.1f} ms, 99 of 100 {tail}")
    if line.kind is TrafficKind.CLIENT:
        parts.append(f"{one['connected_max']:,} connections at once, {one['connections']:,} new")
    if one["errors"]:
        parts.append(f"{one['errors']:,} errors")
    return f"{line.subject}, {line.kind}: {', '.join(parts)}"
