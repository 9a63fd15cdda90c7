"""Calls of which nobody knows whether they have arrived, since their home died before it answered. Each bears a header
by which it is known again: the new home's log is read for it, as far as it was copied, and what is there is not sent a
second time.

What is found is there. What is not found in time is sent again, and may be there twice: no doubt loses a record.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from secrets import token_hex

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from twinshore.client.kept import Kept
from twinshore.client.sites import Site
from twinshore.client.spool.frames import Headers, given_headers
from twinshore.fleet.once import in_words
from twinshore.kafka.client_settings import client_settings
from twinshore.kafka.clock import steady_s, wall_ms

HEADER = "twinshore-call"
BACK_MS = 60_000  # a topic may bear its brokers' time, and clocks differ
LOOK_S = 20.0
ASK_S = 5.0
FOUND_MAX = 1_000_000
AT_ONCE, SLICE_S = 500, 0.2

Warn = Callable[[str], None]


def marked(kept: Kept, who: str, now_ms: int) -> Kept:
    """The call with the header, and with a time by which it can be found. Pure."""
    header = (HEADER, f"{who}-{kept.number}".encode())
    return kept._replace(headers=(*kept.headers, header), timestamp=kept.timestamp or now_ms)


def mark_of(headers: Headers) -> bytes | None:
    """By which the call is known; None where it has none. Pure."""
    return next((value for name, value in reversed(headers) if name == HEADER and value is not None), None)


class Doubts:
    """Of one producer, in the thread that moves. `first_number`: of its own calls; what lies on the disk with a lower
    one an earlier process may have sent."""

    def __init__(self, name: str, first_number: int, warn: Warn) -> None:
        self._name, self._first_number, self._warn = name, first_number, warn
        self._who = token_hex(8)
        self._since_ms: dict[str, int] = {}  # of each topic with doubts, from when on to look
        self._looked_at_left: set[str] = set()
        self._looks: dict[str, Look] = {}

    def mark(self, kept: Kept) -> Kept:
        """In any thread."""
        return marked(kept, self._who, wall_ms())

    def add(self, kept: Kept) -> None:
        """It was sent, and nobody has answered."""
        if mark_of(kept.headers) is not None:
            before_ms = self._since_ms.get(kept.topic, kept.timestamp)
            self._since_ms[kept.topic] = min(before_ms, kept.timestamp)
            self._end(kept.topic)

    def is_open(self, topic: str, site: Site, head: Kept | None) -> bool:
        """Whether it is not known yet what has arrived there; it is looked for from then on. `head`: the next call."""
        if head is not None and topic not in self._looked_at_left:
            self._looked_at_left.add(topic)
            if head.is_spooled and head.number < self._first_number:
                self.add(head)
        if topic not in self._since_ms:
            return False
        look = self._looks.get(topic)
        if look is None or look.site.name != site.name:
            self._end(topic)
            look = self._looks[topic] = Look(site, topic, self._since_ms[topic] - BACK_MS, self._who)
        if look.is_over and look.why:
            self._warn(
                f"{self._name}: which calls for topic {topic} had arrived on {site.name} is not known ({look.why}): "
                "they are sent again, and may be there twice"
            )
            look.why = ""
        return not look.is_over

    def has_arrived(self, kept: Kept) -> bool:
        """Whether it lies at the new home."""
        look, mark = self._looks.get(kept.topic), mark_of(kept.headers)
        return look is not None and mark in look.found

    def record(self, kept: Kept) -> Message | None:
        """As it lies there; None of a call of an earlier process, whom nobody waits for."""
        return self._looks[kept.topic].found.get(mark_of(kept.headers) or b"")

    def forget(self, topic: str) -> None:
        """All that was in doubt is there, or was sent."""
        self._since_ms.pop(topic, None)
        self._end(topic)

    def stop(self) -> None:
        """Nobody is to wait for what is looked for."""
        for topic in list(self._looks):
            self._end(topic)

    def _end(self, topic: str) -> None:
        if (look := self._looks.pop(topic, None)) is not None:
            look.stopping.set()


class Look:
    """At a topic's log on one cluster, from a time on up to its end now. `found`: by their marks those of `who`, and
    that there are others; `why`: it could not be read to its end."""

    def __init__(self, site: Site, topic: str, since_ms: int, who: str) -> None:
        self.site, self._topic, self._since_ms, self._who = site, topic, max(0, since_ms), who.encode()
        self.found: dict[bytes, Message | None] = {}
        self.is_over, self.why, self.stopping = False, "", threading.Event()
        threading.Thread(target=self._run, name=f"looks at {topic}", daemon=True).start()

    def _run(self) -> None:
        try:
            self._read()
        except Exception as error:
            self.why = in_words(error)
        self.is_over = True

    def _read(self) -> None:
        consumer = Consumer(
            {
                **client_settings(self.site.cluster),
                "group.id": "twinshore-looks",  # which it never joins, and where it commits nothing
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_uncommitted",
            }
        )
        try:
            until_s = steady_s() + LOOK_S
            left = self._begin(consumer)
            while left and not self.stopping.is_set():
                if steady_s() >= until_s:
                    raise TimeoutError(f"its log is not read in {LOOK_S:g} s")
                for message in consumer.consume(AT_ONCE, SLICE_S):
                    self._take(message, left)
        finally:
            consumer.close()

    def _begin(self, consumer: Consumer) -> dict[int, int]:
        """The ends up to which it reads, by partition."""
        seen = consumer.list_topics(self._topic, timeout=ASK_S).topics[self._topic]
        if seen.error is not None:
            raise KafkaException(seen.error)
        asked = [TopicPartition(self._topic, number, self._since_ms) for number in seen.partitions]
        begins = consumer.offsets_for_times(asked, timeout=ASK_S)
        for one in begins:
            if one.error is not None:
                raise KafkaException(one.error)
        begins = [one for one in begins if one.offset >= 0]  # else nothing there is so late
        ends = {one.partition: consumer.get_watermark_offsets(one, timeout=ASK_S)[1] for one in begins}
        consumer.assign(begins)
        return ends

    def _take(self, message: Message, left: dict[int, int]) -> None:
        error, number, offset = message.error(), message.partition(), message.offset()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            left.pop(number or 0, None)
        elif error is not None:
            raise KafkaException(error)
        elif (mark := mark_of(given_headers(message.headers()))) is not None:
            if len(self.found) >= FOUND_MAX:
                raise TimeoutError(f"its log holds more than {FOUND_MAX:,} such calls")
            self.found[mark] = message if mark.startswith(self._who) else None
        if error is None and (offset or 0) + 1 >= left.get(number or 0, 0):
            left.pop(number or 0, None)
