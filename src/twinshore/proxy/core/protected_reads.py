"""Shows consumers of topics protected with `read = "both"` no record that a forced switch would lose.

A Fetch goes to the home as ever, and its response is cut where the twin ends, as last proven. Consumers are not led to
the twin: that needs a recent client, the mirror's store and the right to read there; clients pause when they are led
twice within a minute; and ends and `latest` would still be the home's.

Batches are shown whole, or not at all. A batch of a leader epoch that the mirror has not reached is not shown: after an
unclean election the twin may have another record at its offset. No clock: a client that is shown nothing waits longer
with each response in a row.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from twinshore.config.model import TopicPartition
from twinshore.kafka.protocol import fetch
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.record_batch import HEADER_BYTES, PREFIX_BYTES
from twinshore.kafka.protocol.requests import Request
from twinshore.protection.core.model import ReadEnd
from twinshore.proxy.core.message_codec import decode_request, decode_response, encode_message
from twinshore.proxy.core.model import Parts
from twinshore.proxy.core.protected_topics import NoProtection, Protection

# Base offset, length, leader epoch and last offset delta of a batch.
_BATCH: Final = struct.Struct(">qii7xi")
# The delay of a response whose records are all cut: each in a row takes a fifth longer.
WAIT_S_MIN: Final = 0.01
WAIT_S_MAX: Final = 0.5
WAIT_GROWTH: Final = 1.2
# Of so many in a row: later ones do not have the twin asked more often.
AWAITED_MAX: Final = 20
_LATEST: Final = -1


def cut_records(records: memoryview | bytes | None, end: ReadEnd) -> memoryview | bytes | None:
    """Returns the batches before the first that is not shown; the same object if all are."""
    view, position = memoryview(records or b""), 0
    while position + HEADER_BYTES <= len(view):
        base, length, epoch, delta = _BATCH.unpack_from(view, position)
        if base + delta >= end.offset or epoch > end.epoch:
            return view[:position]
        position += PREFIX_BYTES + max(0, length)
    return records


class ProtectedReads:
    """Of one client."""

    def __init__(self, protection: Protection | None = None) -> None:
        self._protection: Protection = protection or NoProtection()
        self._empty = 0

    @property
    def has_topics(self) -> bool:
        return bool(self._protection.reads_both)

    def bounded(self, answer: fetch.FetchResponse, cluster: str) -> tuple[fetch.FetchResponse, float]:
        """Returns the response for the client, the same object if unchanged, and its delay in seconds. Batches have the
        cluster's own epochs.
        """
        if not self.has_topics:
            return answer, 0.0
        told = [self._told(one, cluster) for one in answer.fetched]
        cut = [one for one, before in zip(told, answer.fetched, strict=True) if one.records is not before.records]
        if told == answer.fetched:
            self._empty = 0
            return answer, 0.0
        for one in cut if self._empty < AWAITED_MAX else ():
            self._protection.awaits(TopicPartition(str(one.topic), one.partition))
        answer = answer._replace(fetched=told)
        if not cut or any(one.records or one.error for one in told):
            self._empty = 0
            return answer, 0.0
        wait_s = min(WAIT_S_MAX, WAIT_S_MIN * WAIT_GROWTH**self._empty)
        self._empty += wait_s < WAIT_S_MAX
        return answer, wait_s

    def _told(self, one: fetch.FetchResponsePartition, cluster: str) -> fetch.FetchResponsePartition:
        end = self._end(str(one.topic), one.partition, cluster)
        if end is None or one.error:
            return one
        records = cut_records(one.records, end)
        if records is one.records and one.high_watermark <= end.offset:
            return one
        high, stable = min(one.high_watermark, end.offset), min(one.last_stable_offset, end.offset)
        return one._replace(records=records, high_watermark=high, last_stable_offset=stable)

    def _end(self, topic: str, partition: int, cluster: str) -> ReadEnd | None:
        if topic not in self._protection.reads_both:
            return None
        return self._protection.read_end(TopicPartition(topic, partition), cluster)

    def bounded_latest(self, view: memoryview, at: int, request: Request, cluster: str) -> Parts:
        """Returns the response to ListOffsets: `latest` is where the consumer's next Fetch ends. While that is not
        known, clients ask again.
        """
        asked = decode_request(request).topics
        times = {(topic.name, one.partition_index): one.timestamp for topic in asked for one in topic.partitions}
        answer, topics = decode_response(request.key, request.version, view[at:]), []
        for topic in answer.topics:
            parts = [self._latest(topic.name, one, cluster, times) for one in topic.partitions]
            topics.append(replace(topic, partitions=tuple(parts)))
        return encode_message(replace(answer, topics=tuple(topics)))

    def _latest(self, topic: str, one: Any, cluster: str, times: Mapping[tuple[str, int], int]) -> Any:
        end = self._end(topic, one.partition_index, cluster)
        if end is None or one.error_code or times.get((topic, one.partition_index)) != _LATEST:
            return one
        if end.offset < 0:
            return replace(one, error_code=Code.not_leader_or_follower, offset=-1)
        return replace(one, offset=min(one.offset, end.offset))
