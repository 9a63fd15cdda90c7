"""Finds out which unconfirmed calls had arrived before their home died.

Each record has an identifying header. The new home's log is searched for these headers; records found are not sent
again. Others are sent again: they may be duplicated, never lost.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from secrets import token_hex
from typing import cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from twinshore.client.core.spool_format import EarlierSends, find_own_send_id, find_send_id
from twinshore.client.pending import PendingSend
from twinshore.client.sites import Site, WarningQueue, client_thread
from twinshore.config.frozen import CALL_HEADER, LOOKS_GROUP_ID
from twinshore.config.repeat_filter import describe_error
from twinshore.kafka.clock import steady_s, wall_ms
from twinshore.kafka.connection import librdkafka_settings

SEARCH_BACK_MS = 60_000  # a topic may have LogAppendTime, and clocks differ
SEARCH_TIMEOUT_S = 20.0
REQUEST_TIMEOUT_S = 5.0
FOUND_SENDS_MAX = 1_000_000
MESSAGES_PER_POLL, POLL_TIMEOUT_S = 500, 0.2

HeaderPairs = Sequence[tuple[str, bytes | None]]


def with_send_id(kept: PendingSend, who: str, now_ms: int) -> PendingSend:
    """The call with the header, and with a time by which it can be found. Pure."""
    header = (CALL_HEADER, f"{who}-{kept.number}".encode())
    return kept._replace(headers=(*kept.headers, header), timestamp=kept.timestamp or now_ms)


class UnconfirmedTopicSends:
    """One topic's unconfirmed calls, and the time from which to search."""

    def __init__(self) -> None:
        self.since_ms: int | None = None
        self._left: EarlierSends | None = None
        self._is_awaited: dict[bytes, bool] = {}

    def add(self, mark: bytes, kept: PendingSend) -> None:
        self._since(kept.timestamp)
        self._is_awaited[mark] = kept.told is not None

    def add_left(self, left: EarlierSends) -> None:
        if left.since_ms is not None:
            self._since(left.since_ms)
            self._left = left

    def _since(self, time_ms: int) -> None:
        self.since_ms = time_ms if self.since_ms is None else min(self.since_ms, time_ms)

    def __contains__(self, mark: bytes) -> bool:
        return mark in self._is_awaited or (self._left is not None and mark in self._left)

    def is_awaited(self, mark: bytes) -> bool:
        """Whether a delivery callback waits for this record."""
        return self._is_awaited.get(mark, False)


class UnconfirmedSends:
    """The unconfirmed calls of one producer; used in the router thread. `left`: by topic, calls that an earlier process
    left in the spool and may have sent.
    """

    def __init__(self, name: str, left: Mapping[str, EarlierSends], warnings: WarningQueue) -> None:
        self._name, self._left, self._warnings = name, dict(left), warnings
        self._who = token_hex(8)
        self._doubts: dict[str, UnconfirmedTopicSends] = {}
        self._searches: dict[str, SendSearch] = {}

    def mark(self, kept: PendingSend) -> PendingSend:
        """Add the identifying header; in any thread."""
        return with_send_id(kept, self._who, wall_ms())

    def add(self, kept: PendingSend) -> None:
        if (mark := find_own_send_id(kept.headers, kept.number)) is not None:
            self._doubts.setdefault(kept.topic, UnconfirmedTopicSends()).add(mark, kept)
            self._end(kept.topic)

    def search(self, topic: str, site: Site) -> None:
        """Search the topic's log on this cluster, if the topic has unconfirmed calls."""
        if (left := self._left.pop(topic, None)) is not None:
            self._doubts.setdefault(topic, UnconfirmedTopicSends()).add_left(left)
        doubt = self._doubts.get(topic)
        if doubt is None or doubt.since_ms is None:
            return
        search = self._searches.get(topic)
        if search is None or search.site.name != site.name:
            self._end(topic)
            search = self._searches[topic] = SendSearch(site, topic, doubt.since_ms - SEARCH_BACK_MS, doubt)
        if search.is_over and search.why:
            self._warnings(
                f"{self._name}: which calls for topic {topic} had arrived on {site.name} is not known ({search.why}): "
                "they are sent again, and may be there twice",
                cluster=site.name,
                topic=topic,
            )

    def is_open(self, topic: str) -> bool:
        return topic in self._searches and not self._searches[topic].is_over

    def has_arrived(self, kept: PendingSend) -> bool:
        search, mark = self._searches.get(kept.topic), find_own_send_id(kept.headers, kept.number)
        return search is not None and mark in search.found

    def record(self, kept: PendingSend) -> Message | None:
        """Returns the record found; None for a call without a delivery callback."""
        return self._searches[kept.topic].found.get(find_own_send_id(kept.headers, kept.number) or b"")

    def forget(self, topic: str) -> None:
        """Drop the topic, whose calls were all found or sent."""
        self._doubts.pop(topic, None)
        self._end(topic)

    def stop(self) -> None:
        """Stop searches without waiting."""
        for topic in list(self._searches):
            self._end(topic)

    def _end(self, topic: str) -> None:
        if (search := self._searches.pop(topic, None)) is not None:
            search.stopping.set()


class SendSearch:
    """A search of one topic's log on one cluster, from a timestamp to the log end at the start of the search.

    `found`: send ids of unconfirmed calls, with the record where a callback waits. `why`: why the log could not be
    read. The thread ends at that log end, after `SEARCH_TIMEOUT_S`, or once `stopping` is set.
    """

    def __init__(self, site: Site, topic: str, since_ms: int, doubt: UnconfirmedTopicSends) -> None:
        self.site, self._topic, self._since_ms, self._doubt = site, topic, max(0, since_ms), doubt
        self.found: dict[bytes, Message | None] = {}
        self.is_over, self.why, self.stopping = False, "", threading.Event()
        client_thread("searches", topic, self._run).start()

    def _run(self) -> None:
        try:
            self._read()
        except Exception as error:
            self.why = describe_error(error)
        self.is_over = True

    def _read(self) -> None:
        consumer = Consumer(
            {
                **librdkafka_settings(self.site.cluster),
                "group.id": LOOKS_GROUP_ID,  # which it never joins, and where it commits nothing
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_uncommitted",
            }
        )
        with closing(consumer):
            until_s = steady_s() + SEARCH_TIMEOUT_S
            left = self._begin(consumer)
            while left and not self.stopping.is_set():
                if steady_s() >= until_s:
                    raise TimeoutError(f"its log is not read in {SEARCH_TIMEOUT_S:g} s")
                for message in consumer.consume(MESSAGES_PER_POLL, POLL_TIMEOUT_S):
                    self._take(message, left)

    def _begin(self, consumer: Consumer) -> dict[int, int]:
        """Assign partitions. Returns end offsets by partition."""
        seen = consumer.list_topics(self._topic, timeout=REQUEST_TIMEOUT_S).topics[self._topic]
        if seen.error is not None:
            raise KafkaException(seen.error)
        asked = [TopicPartition(self._topic, number, self._since_ms) for number in seen.partitions]
        begins = consumer.offsets_for_times(asked, timeout=REQUEST_TIMEOUT_S)
        for one in begins:
            if one.error is not None:
                raise KafkaException(one.error)
        begins = [one for one in begins if one.offset >= 0]  # -1: no record is so late
        ends = {one.partition: consumer.get_watermark_offsets(one, timeout=REQUEST_TIMEOUT_S)[1] for one in begins}
        consumer.assign(begins)
        return ends

    def _take(self, message: Message, left: dict[int, int]) -> None:
        error, number, offset = message.error(), message.partition(), message.offset()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            left.pop(number or 0, None)
        elif error is not None:
            raise KafkaException(error)
        elif (mark := find_send_id(cast(HeaderPairs, message.headers() or ()))) is not None and mark in self._doubt:
            if len(self.found) >= FOUND_SENDS_MAX:
                raise TimeoutError(f"its log holds more than {FOUND_SENDS_MAX:,} such calls")
            self.found[mark] = message if self._doubt.is_awaited(mark) else None
        if error is None and (offset or 0) + 1 >= left.get(number or 0, 0):
            left.pop(number or 0, None)
