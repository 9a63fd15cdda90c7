"""What one client sends and is given, for `flows`: read from what is at hand when its requests are judged. Pure.

Of batches only fixed places of their headers are read: no record is walked, and nothing is decompressed. Now and then
one that is not compressed is, to see what that would save; what comes of it is thrown away.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable
from typing import Any, Final

from twinshore.proxy.core.flows import Flows
from twinshore.store.traffic_values import LATENCY_MS, SIZE_BYTES, Flow, FlowKind
from twinshore.wire.api_versions import VERSION_MAX, read_versions_request
from twinshore.wire.batch import CODEC_MASK, HEADER_BYTES
from twinshore.wire.codecs import Codec, compress
from twinshore.wire.serving.fetch import FetchAnswer, FetchRequest
from twinshore.wire.serving.produce import ProduceAnswer, ProduceRequest
from twinshore.wire.serving.requests import Request

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


class Counting:
    """That of one client."""

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
