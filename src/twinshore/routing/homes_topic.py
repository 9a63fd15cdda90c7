"""The topics of home records, twins and subscribers on one cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from twinshore.config.errors import KafkaError, RefusedError
from twinshore.config.frozen import FOLLOWERS_TOPIC, HOMES_TOPIC, TWINS_TOPIC
from twinshore.config.model import TopicPartition
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.error_codes import Code, kafka_error
from twinshore.kafka.state_topic import StateRecord, StateTopic, split_into_batches
from twinshore.routing.core import home_records
from twinshore.routing.core.home_records import HomeLog, HomeRecord, KeyValue, TopicClaim, TwinLog, release_record
from twinshore.routing.core.subscribers import LEASE_MS_MAX, SubscriberLog

CLEANUP_POLICY = "cleanup.policy"
HOMES_SETTINGS = {
    CLEANUP_POLICY: "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.ms": "86400000",
    # A losing record follows the current one until a reader mends that.
    "min.compaction.lag.ms": "86400000",
    "max.message.bytes": "1048588",
}
SUBSCRIBERS_SETTINGS = {
    CLEANUP_POLICY: "delete",
    "retention.ms": "3600000",
    "segment.ms": "600000",
    "segment.bytes": "16777216",
    "max.message.bytes": "1048588",
}
TOPIC_CHECK_INTERVAL_S = 1.0
CLOCK_SKEW_MAX_S = 60.0  # so much the clocks of clients and switches may differ
READ_BACK_MS = LEASE_MS_MAX + int(CLOCK_SKEW_MAX_S * 1000)  # so far back the lines of followers are read at first


class RecordLog(Protocol):
    def take(self, key: bytes | None, value: bytes | None) -> None:
        """Takes a record; ignores one of a foreign form."""


Log = TypeVar("Log", bound=RecordLog)


class TopicTail:
    """A topic's log, read incrementally. Cheap to poll: checks only the log end, and every `TOPIC_CHECK_INTERVAL_S` the
    topic.
    """

    def __init__(self, cluster: KafkaCluster, topic: str) -> None:
        self.state_topic = StateTopic(cluster, topic)
        self._cluster, self._topic, self._place = cluster, topic, f"{cluster.name}: {topic}"
        self._seen = b"", -1
        self._begins = self._read_to = 0
        self._looked_s = -TOPIC_CHECK_INTERVAL_S

    def whole(self) -> bool:
        """Whether the log must be read from the beginning, since the topic or its start changed; if so, resets to
        there.
        """
        if self._seen[0] and time.monotonic() < self._looked_s + TOPIC_CHECK_INTERVAL_S:
            return False
        asked_s, seen = time.monotonic(), self.state_topic.seen()
        if not seen[0]:
            self._refuse_hidden()
        begins, end = self.state_topic.bounds() if seen[0] else (0, 0)
        anew = seen != self._seen or begins > self._begins or end < self._read_to
        self._seen, self._begins, self._looked_s = seen, begins, asked_s
        if anew:
            self._read_to = begins
        return anew

    def _refuse_hidden(self) -> None:
        """Raises where the topic is only invisible for lack of rights."""
        topic = self._cluster.metadata([self._topic], refresh=False).topics.get(self._topic)
        if topic is not None and topic.error == Code.topic_authorization_failed:
            raise kafka_error(topic.error, self._place, right=f"Describe on topic {self._topic}")

    def again(self) -> None:
        """Makes the next read start from the beginning."""
        self._seen = b"", -1

    def skip_before(self, time_ms: int) -> None:
        """Skips to the first record from this time on, or to the end."""
        if self._seen[0]:
            since = self._cluster.first_since(TopicPartition(self._topic, 0), time_ms)
            self._read_to = max(self._read_to, since if since >= 0 else self.state_topic.end())

    def read(self, log: Log, empty: Log) -> Log:
        """Returns `log` with the new records; `empty` with all records where all must be read."""
        whole = self.whole()
        log = empty if whole else log
        try:
            for notes in self.pages():
                for note in notes:
                    log.take(note.key, note.value)
        except BaseException:
            # A partly read log says too little: the earlier reading counts until all is read.
            if whole:
                self.again()
            raise
        return log

    def pages(self) -> Iterator[list[StateRecord]]:
        """Yields new records. Raises KafkaError where the current end is not reached."""
        if not self._seen[0]:
            return
        end = self.state_topic.end()
        if end <= self._read_to:
            return
        for notes, reached in self.state_topic.pages(self._read_to, (self._begins, end)):
            yield notes
            self._read_to = reached
        if self._read_to < end:
            self._looked_s = -TOPIC_CHECK_INTERVAL_S
            raise KafkaError(f"{self._place} cannot be read to its end: {self._read_to} of {end}", retriable=True)


class HomesTopic:
    """Home records, claims and switch records on one cluster. Each call ends within the cluster's retry limit or raises
    KafkaError; failed writes are not repeated later. `known`: returns a topic's highest term known from elsewhere.
    """

    def __init__(self, cluster: KafkaCluster, known: Callable[[str], int] = lambda _: 0) -> None:
        self._cluster, self._known = cluster, known
        self._tail = TopicTail(cluster, HOMES_TOPIC)
        self.log = HomeLog(known=known)

    @property
    def homes(self) -> Mapping[str, HomeRecord]:
        """The current home records by topic, as last read."""
        return self.log.homes

    def exists(self) -> bool:
        return self._tail.state_topic.exists()

    def make(self) -> None:
        """Creates the topic, or makes an existing one compact, since its records would expire."""
        with self._cluster.errand():
            if not self.exists():
                self._tail.state_topic.make(HOMES_SETTINGS, lasting=True)
                return
            admin = self._cluster.admin
            found = admin.topic_settings([HOMES_TOPIC]).get(HOMES_TOPIC, {}).get(CLEANUP_POLICY)
            if found is None or found.value != "compact":
                topic_id, _ = self._tail.state_topic.seen()
                admin.alter_topic_settings(HOMES_TOPIC, {CLEANUP_POLICY: "compact"}, topic_id=topic_id)

    def read(self) -> Mapping[str, HomeRecord]:
        """Reads on, and returns current home records by topic; none without the topic."""
        with self._cluster.errand():
            self.log = self._tail.read(self.log, HomeLog(known=self._known))
            self.log.accept_plausible()
        if self.log.full:
            raise KafkaError(
                f"{self._cluster.name}: {HOMES_TOPIC} holds more than is taken: what stands is not known",
                hint=f"find out who writes there: only Twinshore may have Write on {HOMES_TOPIC}",
            )
        return self.log.homes

    def say(
        self, lines: Iterable[HomeRecord], now_ms: int, may: Callable[[], None] | None = None
    ) -> dict[str, HomeRecord]:
        """Writes the records that would become current, and returns the current record of each topic afterwards. Ask
        `log.is_current` whether one's own record won. Raises KafkaError if a topic has a newer record. `may` is called
        right before the write, if there is one, and raises if the caller may no longer write.
        """
        records = list(lines)
        with self._cluster.errand():
            self.read()
            self._must_be_read(records)
            ours = [record.line() for record in records if not self.log.is_superseded(record)]
            if ours and may:
                may()
            self._append(ours, now_ms)
            self.read()
            self._append(self.log.mending(), now_ms)
        return {record.topic: self.log.homes[record.topic] for record in records if record.topic in self.log.homes}

    def claim(self, topics: Iterable[str], switch: str, by: str, now_ms: int) -> dict[str, TopicClaim]:
        """Claims the topics for the switch, except those of other switches; returns each topic's holder."""
        wanted = sorted(set(topics))
        with self._cluster.errand():
            self.read()
            free = [topic for topic in wanted if self.log.holder(topic) is None]
            self._append([home_records.claim_record(topic, TopicClaim(switch, now_ms, by)) for topic in free], now_ms)
            self.read()
            holders = {topic: self.log.holder(topic) for topic in wanted}
            others = {topic for topic, claim in holders.items() if claim is not None and claim.switch != switch}
            lost = [topic for topic in self.log.claimed(switch) if topic in free and topic in others]
            self._append([release_record(topic, switch) for topic in lost], now_ms)
        return {topic: claim for topic, claim in holders.items() if claim is not None}

    def release(self, topics: Iterable[str], switch: str, now_ms: int) -> None:
        with self._cluster.errand():
            self.read()
            ours = set(self.log.claimed(switch))
            self._append([release_record(topic, switch) for topic in sorted(set(topics) & ours)], now_ms)

    def save(self, switch: str, record: Mapping[str, Any], seen: str, now_ms: int) -> str:
        """Saves the switch's record, and returns its digest. `seen`: the digest that this one follows, empty for the
        first. Raises RefusedError where another record is current: another process continues the switch.
        """
        mine = home_records.record_digest(record)
        with self._cluster.errand():
            self.read()
            # Mine: written earlier, though the response was lost.
            self._must_stand(switch, {seen, mine})
            self._append(self.log.records.lines(switch, record), now_ms)
            self.read()
            self._append(self.log.mending(), now_ms)
            self._must_stand(switch, {mine})
            self._append(self.log.records.spent(switch), now_ms)
        return mine

    def forget(self, switch: str, now_ms: int) -> None:
        """Removes the switch's record, now kept elsewhere. Claims stay."""
        with self._cluster.errand():
            self.read()
            self._append(self.log.records.tombstones(switch), now_ms)

    def _must_be_read(self, lines: Iterable[HomeRecord]) -> None:
        found = (self.log.homes.get(home_record.topic) for home_record in lines)
        if there := next((record for record in found if record is not None and record.newer), None):
            why = home_records.newer_in_words(there.topic, there.newer, self._cluster.name)
            raise KafkaError(why, hint=home_records.newer_hint())

    def _must_stand(self, switch: str, known: set[str]) -> None:
        if self.log.records.is_newer(switch):
            raise RefusedError("routing.switch-newer", switch=switch[:8], cluster=self._cluster.name)
        if self.log.records.digest(switch) not in known:
            raise RefusedError("routing.switch-taken", switch=switch[:8], cluster=self._cluster.name)

    def _append(self, lines: Sequence[KeyValue], now_ms: int) -> None:
        for some in split_into_batches(lines):
            self._tail.state_topic.append(some, now_ms)


class TwinsTopic:
    """The records of `twinshore.twins` on one cluster."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self._tail = TopicTail(cluster, TWINS_TOPIC)
        self._log = TwinLog()

    def read(self) -> frozenset[str]:
        """Reads on, and returns topic ids of twins, in hex; none without the topic. Raises KafkaError where the end is
        not reached, or the topic may not be read.
        """
        with self._cluster.errand():
            self._log = self._tail.read(self._log, TwinLog())
        return self._log.twins()

    def may_be(self) -> frozenset[str]:
        """Names of topics that may be twins by newer records, as last read."""
        return self._log.may_be()


class SubscribersTopic:
    """Announcements on one cluster. Several clusters may share one `log`."""

    def __init__(self, cluster: KafkaCluster, log: SubscriberLog | None = None) -> None:
        self._cluster = cluster
        self._tail = TopicTail(cluster, FOLLOWERS_TOPIC)
        self.log = log or SubscriberLog()

    def exists(self) -> bool:
        return self._tail.state_topic.exists()

    def make(self) -> None:
        with self._cluster.errand():
            self._tail.state_topic.make(SUBSCRIBERS_SETTINGS)

    def say(self, line: KeyValue, now_ms: int) -> None:
        """Writes an announcement. KafkaError: the write may still have succeeded."""
        with self._cluster.errand():
            self._tail.state_topic.append([line], now_ms)

    def read(self) -> SubscriberLog:
        """Reads on. The first read takes only records whose lease may still run, within `CLOCK_SKEW_MAX_S`, and gives
        each a whole lease.
        """
        with self._cluster.errand():
            if self._tail.whole():
                self._tail.skip_before(wall_ms() - READ_BACK_MS)
            for notes in self._tail.pages():
                seen_s = time.monotonic()
                for note in notes:
                    self.log.take(note.key, note.value, seen_s)
        if self.log.full:
            raise KafkaError(f"{self._cluster.name}: {FOLLOWERS_TOPIC} holds more followers than are taken")
        return self.log
