"""A group member that reads prefix pairs: each topic under both names, records of each key in write order, though
producers moved between clusters.

`core.pairs` decides the order; this module fetches, polls log ends, buffers, and commits only what was delivered. No
home record decides where to read: both clusters have all records, and the application or a push says when to move.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientTopicPartition

from twinshore.client.core.delivered import consumer_mode
from twinshore.client.core.pairs import (
    UNKNOWN_POSITION,
    BufferedRecord,
    PartitionPair,
    explain_unequal_assignment,
    local_topic_name,
)
from twinshore.client.discovery.routing_topic import Clusters, Discovery
from twinshore.client.group_member import (
    LEAVE_TIMEOUT_S,
    REQUEST_TIMEOUT_S,
    ConsumerCalls,
    ConsumerCloser,
    RebalanceCallback,
    RebalanceCallbacks,
    commit_offsets,
    committed_offsets,
    offset_after,
    wants_committed_offset,
)
from twinshore.client.log_ends import LogEndPoller
from twinshore.client.sites import Site, WarningQueue, check_group_id, check_topic_names
from twinshore.config.errors import ConfigError
from twinshore.config.model import TopicPartition
from twinshore.config.repeat_filter import describe_error
from twinshore.kafka.clock import steady_s

PairedLog = tuple[str, str, int]  # topic, home, partition
RECORDS_PER_READ = 500
RECORDS_PER_PAIR = 100  # records of one pair before the next pair's turn
# librdkafka fetches the queued records of a paused log again, so its queue is small. A resumed log does not wait
# for one read to its end.
FETCH_SETTINGS = {"queued.min.messages": 2_000, "fetch.queue.backoff.ms": 10, "fetch.wait.max.ms": 100}
ASSIGNMENT_STRATEGY = "partition.assignment.strategy"
FORCED_SETTINGS: Mapping[str, Any] = {
    ASSIGNMENT_STRATEGY: "range",
    **dict.fromkeys(("enable.auto.commit", "enable.auto.offset.store"), False),
    "enable.partition.eof": True,
}


@dataclass(frozen=True, slots=True)
class PairSubscription:
    """The subscription. `name` is used in messages."""

    name: str
    topics: tuple[str, ...]
    callbacks: RebalanceCallbacks
    wait_s: float
    warnings: WarningQueue


class PairMember:
    """A group member on the cluster `at`; the constructor joins. `carry`: offsets from the previous cluster, until
    assignment.
    """

    def __init__(
        self,
        at: str,
        sites: Mapping[str, Site],
        subscription: PairSubscription,
        carry: Mapping[PairedLog, int],
        news: Callable[[], None],
    ) -> None:
        self._at, self._homes, self._subscription, self.carry = at, sorted(sites), subscription, dict(carry)
        self._callbacks = subscription.callbacks
        settings = sites[at].settings()
        self._commits = consumer_mode(settings).commits
        self._every_s = int(settings.get("auto.commit.interval.ms", 5_000)) / 1_000
        self._committed_s = steady_s()
        self._uneven = ""
        self._errors = deque[Message]()
        self._forget()
        # With equal timestamps the first-named home goes first; homes are sorted.
        topics = subscription.topics
        self.names = {local_topic_name(topic, home, at): (topic, home) for topic in topics for home in self._homes}
        on_commit = partial(self._answered, settings.get("on_commit"))
        self.consumer = Consumer({**FETCH_SETTINGS, **settings, **FORCED_SETTINGS, "on_commit": on_commit})
        self._farewell = ConsumerCloser(self.consumer, subscription.name, at)
        self._ends = LogEndPoller(sites, subscription.name, news)
        try:
            names = list(self.names)
            self.consumer.subscribe(names, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
            self._ends.start()
        except BaseException:
            self._ends.end()
            self.consumer.close()
            raise

    def close(self) -> None:
        self._ends.end()
        try:
            if lost := self._farewell.close():
                self._tell_lost(lost)
        finally:
            self._ends.stop()

    # -- assignment

    def _forget(self) -> None:
        self._pairs: dict[tuple[str, int], PartitionPair[Message]] = {}
        self._turns = deque[tuple[str, int]]()  # the pairs; the first one has the turn
        self._streak = 0
        self._dealt: list[ClientTopicPartition] = []
        self._logs: dict[tuple[str, int], PairedLog] = {}  # by the name on this cluster
        self._paused: set[PairedLog] = set()
        self._early: dict[PairedLog, int] = {}  # offsets not replicated to this cluster yet
        self._kept: dict[tuple[str, int], int] = {}  # the timer's last commit

    def _assigned(self, consumer: Consumer, partitions: list[ClientTopicPartition]) -> None:
        try:
            if self._callbacks.on_assign is not None:
                self._callbacks.on_assign(partitions)
        finally:
            self._deal(consumer, partitions)

    def _deal(self, consumer: Consumer, partitions: list[ClientTopicPartition]) -> None:
        self._forget()
        dealt = [(one.topic, one.partition) for one in partitions]
        self._uneven = explain_unequal_assignment(self._subscription.topics, self._homes, self._at, dealt)
        if self._uneven:
            consumer.assign([])
            return
        for one in partitions:
            topic, home = self.names[one.topic]
            self._logs[one.topic, one.partition] = topic, home, one.partition
            self._pairs.setdefault((topic, one.partition), PartitionPair(self._homes))
        self._turns.extend(self._pairs)
        self._place(consumer, partitions)
        self._dealt = partitions
        self._take_on(consumer)

    def _take_on(self, consumer: Consumer) -> None:
        consumer.assign(self._dealt)
        consumer.resume(self._dealt)  # librdkafka keeps partitions paused
        # It may be fetched once before; records below the offset are then skipped.
        still = {*self._early, *self._paused}
        consumer.pause([one for one in self._dealt if self._logs[one.topic, one.partition] in still])

    def _place(self, consumer: Consumer, partitions: list[ClientTopicPartition]) -> None:
        """Start at the committed offset, or after a move at a further carried one.

        A twin may not be replicated up to that offset yet. Until then it is not fetched: librdkafka would find the
        offset out of range and reset, or stop.
        """
        ours = [one for one in partitions if wants_committed_offset(one)]
        try:
            committed = committed_offsets(consumer, ours, REQUEST_TIMEOUT_S)
        except KafkaException as error:
            committed = {}
            self._warn_of(f"cannot read the group's committed offsets on {self._at}", error)
        for one in ours:
            key = one.topic, one.partition
            log = self._logs[key]
            offset = max(committed.get(key, UNKNOWN_POSITION), self.carry.get(log, UNKNOWN_POSITION))
            if offset >= 0:
                one.offset = offset
                if log[1] != self._at:
                    self._early[log] = offset
        self.carry.clear()
        for one in partitions:
            if one.offset >= 0:
                topic, home, number = self._logs[one.topic, one.partition]
                self._pairs[topic, number].reached(home, one.offset)

    def _revoked(self, consumer: Consumer, partitions: list[ClientTopicPartition]) -> None:
        if not self._farewell.claim(consumer):
            return
        try:
            if self._callbacks.on_revoke is not None:
                self._farewell.tell(partial(self._callbacks.on_revoke, partitions))
        finally:
            if self._commits:
                self._farewell.commit(self.places())
            self._forget()

    def _lost(self, consumer: Consumer, partitions: list[ClientTopicPartition]) -> None:
        if self._farewell.claim(consumer):
            self._tell_lost(partitions)

    def _tell_lost(self, partitions: list[ClientTopicPartition]) -> None:
        """Report lost partitions without a commit: another member may read on."""
        callback = self._callbacks.on_lost or self._callbacks.on_revoke
        try:
            if callback is not None:
                self._farewell.tell(partial(callback, partitions))
        finally:
            self._forget()

    # -- reading

    def read(self, for_s: float) -> None:
        """Buffer records, wait up to `for_s` for the first, and do what else is due. Raises where the member cannot
        continue.
        """
        for _ in range(RECORDS_PER_READ):
            message = self.consumer.poll(for_s)
            if message is None:
                break
            self._note(message)
            for_s = 0.0
        self._hear()
        self._ask()
        self._bound()
        self._commit_by_time()
        self._subscription.warnings.tell()
        if (refusal := self._ends.refusal()) is not None:
            raise refusal
        if self._uneven:
            raise ConfigError("client.pair-uneven", consumer=self._subscription.name, cause=self._uneven)

    def take(self, count: int) -> list[Message]:
        """Take records to deliver now, from the partitions in turn."""
        found = list[Message]()
        while self._errors and len(found) < count:
            found.append(self._errors.popleft())
        for _ in range(len(self._turns)):
            pair = self._pairs[self._turns[0]]
            while len(found) < count and self._streak < RECORDS_PER_PAIR and (held := pair.take()) is not None:
                found.append(held.item)
                self._streak += 1
            if len(found) >= count:
                break
            self._turns.rotate(-1)
            self._streak = 0
        return found

    def is_waiting(self) -> bool:
        """Whether buffered records wait for a log end."""
        return any(pair.awaited() or pair.wanted() for pair in self._pairs.values())

    def awaits(self) -> list[str]:
        found = list[str]()
        for (topic, number), pair in self._pairs.items():
            for home, (read, end) in pair.awaited().items():
                name = local_topic_name(topic, home, self._at)
                found.append(f"{name}-{number} is read to {max(0, read)}, and must be to {end}")
        for (topic, home, number), offset in self._early.items():
            name = local_topic_name(topic, home, self._at)
            found.append(f"{name}-{number} has not reached the group's committed offset {offset} yet")
        return found

    def _note(self, message: Message) -> None:
        log = self._logs.get((message.topic() or "", message.partition() or 0))
        error, offset = message.error(), message.offset()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            self._errors.append(message)
        elif log is not None and offset is not None:
            topic, home, number = log
            pair = self._pairs[topic, number]
            if error is not None:
                pair.reached(home, offset)
            else:
                if offset < pair.read_to(home) and log not in self._early:
                    pair.begins_anew(home, offset)
                    self._subscription.warnings(
                        f"{self._subscription.name}: {message.topic()}-{number} starts again at offset {offset}, and"
                        " was read further before: the records there now are delivered"
                    )
                key, time_ms = message.key(), message.timestamp()[1]
                size = len(message.value() or b"") + len(key or b"")
                key = key.encode() if isinstance(key, str) else key
                pair.fetched(home, BufferedRecord(offset, time_ms, key, size, steady_s(), message))

    def _hear(self) -> None:
        """Apply polled log ends. A twin's own end counts only while its home does not answer, and for offsets not
        replicated yet.
        """
        for end in self._ends.take_answers():
            topic, number = end.partition.topic, end.partition.partition
            here = self._logs.get((topic, number)) if end.cluster == self._at else None
            if here is not None and end.offset >= self._early.get(here, end.offset + 1):
                del self._early[here]
                self._begin(ClientTopicPartition(topic, number, self._pairs[here[0], number].read_to(here[1])))
            if here is not None and here[1] != self._at:
                if self._is_away(here):
                    self._pairs[here[0], number].ended(here[1], end.offset, end.asked_s)
            elif (topic, number) in self._pairs:
                self._pairs[topic, number].ended(end.cluster, end.offset, end.asked_s)

    def _begin(self, place: ClientTopicPartition) -> None:
        """Start at an offset that is now replicated. librdkafka may have reset before; with auto.offset.reset=error
        only a new assignment restarts it.
        """
        try:
            self.consumer.seek(place)
        except KafkaException:
            for one in self._dealt:
                topic, home, number = self._logs[one.topic, one.partition]
                if (reached := self._pairs[topic, number].read_to(home)) != UNKNOWN_POSITION:
                    one.offset = reached
            self._take_on(self.consumer)
        else:
            self.consumer.resume([place])

    def _ask(self) -> None:
        asked: dict[str, list[TopicPartition]] = {home: [] for home in self._homes}
        for (topic, number), pair in self._pairs.items():
            for home in {*pair.wanted(), *pair.awaited()}:
                asked[home].append(TopicPartition(topic, number))
                if home != self._at and self._is_away((topic, home, number)):
                    asked[self._at].append(TopicPartition(local_topic_name(topic, home, self._at), number))
                    self._subscription.warnings(
                        f"{self._subscription.name}: {home} does not say where {topic} ends, so its twin's own end"
                        " counts, and a newer record of a key may come before one that is not replicated"
                    )
        for topic, home, number in self._early:
            asked[self._at].append(TopicPartition(local_topic_name(topic, home, self._at), number))
        for cluster, partitions in asked.items():
            self._ends.want(cluster, partitions)

    def _is_away(self, log: PairedLog) -> bool:
        topic, home, number = log
        return self._ends.silent_s(home, TopicPartition(topic, number)) >= self._subscription.wait_s

    def _bound(self) -> None:
        """Pause full logs until the other log catches up."""
        for (name, number), log in self._logs.items():
            pair = self._pairs[log[0], number]
            if log not in self._paused and pair.is_full(log[1]):
                self.consumer.pause([ClientTopicPartition(name, number)])
                self._paused.add(log)
            elif log in self._paused and pair.has_room(log[1]):
                self.consumer.resume([ClientTopicPartition(name, number)])
                self._paused.discard(log)

    # -- offsets

    def places(self) -> list[ClientTopicPartition]:
        """Returns the offsets after delivered records, where known."""
        found = [
            ClientTopicPartition(name, number, self._pairs[topic, number].place(home))
            for (name, number), (topic, home, _) in self._logs.items()
        ]
        return [one for one in found if one.offset != UNKNOWN_POSITION]

    def all_places(self) -> dict[PairedLog, int]:
        """Returns delivered offsets, and committed ones of other members."""
        found = dict[PairedLog, int]()
        try:
            topics = self.consumer.list_topics(timeout=LEAVE_TIMEOUT_S).topics
            known = [name for name in self.names if name in topics]
            asked = [ClientTopicPartition(name, number) for name in known for number in topics[name].partitions]
            for (name, number), offset in committed_offsets(self.consumer, asked, LEAVE_TIMEOUT_S).items():
                if offset >= 0:
                    found[(*self.names[name], number)] = offset
        except KafkaException as error:
            self._warn_of(f"leaves {self._at}, and cannot read the group's committed offsets there", error)
        for log, at in self.carry.items():  # after two moves without an assignment between them
            found[log] = max(at, found.get(log, UNKNOWN_POSITION))
        return found | {(*self.names[one.topic], one.partition): one.offset for one in self.places()}

    def _commit_by_time(self) -> None:
        now_s = steady_s()
        if not self._commits or now_s < self._committed_s + self._every_s:
            return
        self._committed_s = now_s
        moved = [one for one in self.places() if self._kept.get((one.topic, one.partition)) != one.offset]
        commit_offsets(self.consumer, moved, asynchronous=True)
        self._kept |= {(one.topic, one.partition): one.offset for one in moved}

    def _answered(self, callback: Any, error: KafkaError | None, partitions: list[ClientTopicPartition]) -> None:
        """The timer repeats failed commits."""
        for one in partitions:
            if error is not None or one.error is not None:
                self._kept.pop((one.topic, one.partition), None)
        if callback is not None:
            callback(error, partitions)

    def commit(self, offsets: Sequence[ClientTopicPartition] | None, asynchronous: bool) -> None:
        """Commit up to delivered offsets: a name from before a move means another log now. While leaving, a failed
        commit only means that records are read again.
        """
        places = self.places()
        if offsets is not None:
            reached = {(one.topic, one.partition): one.offset for one in places}
            places = [one for one in offsets if one.offset <= reached.get((one.topic, one.partition), UNKNOWN_POSITION)]
            for one in offsets:
                if not any(one is other for other in places):
                    self._subscription.warnings(
                        f"{self._subscription.name} does not commit {one.topic}-{one.partition} to {one.offset}:"
                        f" the records before that offset were not all delivered on {self._at}"
                    )
        if self._farewell.is_closing:
            self._farewell.commit(places)
        else:
            commit_offsets(self.consumer, places, asynchronous)

    def _warn_of(self, what: str, error: KafkaException) -> None:
        self._subscription.warnings(f"{self._subscription.name} {what}: {error.args[0].str()}")


HOME_WAIT_S = 5.0
POLL_INTERVAL_S = 0.05
REJOIN_DELAY_S = 1.0
WAITING_POLL_INTERVAL_S = 0.01  # while records wait for log ends


class FailoverPairConsumer(ConsumerCalls):
    """A consumer of prefix pairs. One thread at a time may call it.

    `clusters` and `config` as for FailoverConsumer; the two names must be the twins' prefixes, as links use them.
    `cluster`: where to read, by default the first, or the pushed home. `wait_s`: how long to wait for a home that does
    not answer.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        clusters: Clusters,
        cluster: str = "",
        name: str = "",
        wait_s: float = HOME_WAIT_S,
    ) -> None:
        self._news = threading.Event()
        self._warnings, self._wait_s = WarningQueue(logging.getLogger(__name__)), wait_s
        self._sites: Mapping[str, Site] = {}
        check = partial(self._must_suit, cluster)
        self._discovery = Discovery(clusters, config, ("*",), check=check, news=self._news.set)
        self._sites, self._begin = self._discovery.sites, self._discovery.begin
        self._at = cluster or self._begin
        self._name = name or str(config.get("client.id") or self._sites[self._at].settings()["group.id"])
        self._subscription: PairSubscription | None = None
        self._member: PairMember | None = None
        self._carry: Mapping[PairedLog, int] = {}  # offsets from the previous cluster, until a member has them
        self._tried_s = 0.0
        self._twins: dict[str, str] = {}  # the home of each twin name, on any cluster read so far
        self._served_s = 0.0

    # -- what an application calls

    def subscribe(
        self,
        topics: Sequence[str],
        on_assign: RebalanceCallback[FailoverPairConsumer] | None = None,
        on_revoke: RebalanceCallback[FailoverPairConsumer] | None = None,
        on_lost: RebalanceCallback[FailoverPairConsumer] | None = None,
    ) -> None:
        """Subscribe to both names of each topic, given by the plain name. Offsets set in `on_assign` are used.
        Callbacks get this consumer.
        """
        for topic in check_topic_names(topics):
            if topic.startswith("^"):
                raise ConfigError("client.topic-is-an-expression", topic=topic, consumer=self._name)
            for home in self._sites:
                if topic in (local_topic_name(one, home, "") for one in topics):
                    raise ConfigError("client.twin-named", topic=topic, cluster=home)
        self._leave()
        callbacks, names = self._callbacks(on_assign, on_revoke, on_lost), tuple(dict.fromkeys(topics))
        self._subscription = PairSubscription(self._name, names, callbacks, self._wait_s, self._warnings)
        self._carry = {}
        try:
            self._join()
        except BaseException:
            self._subscription = None
            raise

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        until_s = steady_s() + timeout if timeout >= 0 else float("inf")
        while True:
            self._follow()
            if not self._has_joined():
                if steady_s() >= until_s:
                    return []
                self._news.wait(max(0.0, min(POLL_INTERVAL_S, until_s - steady_s())))
                continue
            member, now_s = self._reader(), steady_s()
            if now_s >= self._served_s + POLL_INTERVAL_S:
                # Even with records buffered: the group needs polls of this member.
                self._served_s = now_s
                member.read(0.0)
            found = member.take(num_messages)
            if found or now_s >= until_s:
                return found
            interval_s = WAITING_POLL_INTERVAL_S if member.is_waiting() else POLL_INTERVAL_S
            member.read(max(0.0, min(interval_s, until_s - now_s)))

    def commit(
        self,
        message: Message | None = None,
        offsets: Sequence[ClientTopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> None:
        """Commit delivered records, or `message` or `offsets`. Names are the current cluster's, so commit before a
        move. Undelivered offsets are not committed, with a warning.
        """
        if message is not None:
            offsets = [offset_after(message)]
        self._reader().commit(offsets, asynchronous)
        self._warnings.tell()

    def position(self, partitions: Sequence[ClientTopicPartition]) -> list[ClientTopicPartition]:
        """Returns the offset after the last delivered record, also before assignment; below 0 where unknown."""
        if self._subscription is None:
            raise RuntimeError(f"{self._name} has subscribed to nothing")
        carry, places = (self._member.carry, self._member.places()) if self._member else (self._carry, [])
        mine = {(local_topic_name(topic, home, self._at), number): at for (topic, home, number), at in carry.items()}
        mine |= {(one.topic, one.partition): one.offset for one in places}
        asked = [(one.topic, one.partition) for one in partitions]
        return [ClientTopicPartition(*key, mine.get(key, OFFSET_INVALID)) for key in asked]

    def assignment(self) -> list[ClientTopicPartition]:
        return [] if self._subscription and self._member is None else self._reader().consumer.assignment()

    def committed(
        self, partitions: Sequence[ClientTopicPartition], timeout: float = REQUEST_TIMEOUT_S
    ) -> list[ClientTopicPartition]:
        """Returns committed offsets on the current cluster."""
        return self._reader().consumer.committed(list(partitions), timeout)

    def where(self) -> str:
        return self._at

    def awaits(self) -> list[str]:
        """Returns, as sentences, what must be read or replicated before more is delivered."""
        return self._reader().awaits()

    def written_at(self, message: Message) -> str:
        """Returns the cluster where the record was written. Ask before the next move changes plain names."""
        return self._twins.get(message.topic() or "", self._at)

    def move(self, to: str) -> None:
        """Leave the current cluster, after an auto-commit if enabled, and join on the other, at the committed offset
        there or after delivered records, whichever is further.
        """
        if self._known(to) != self._at:
            try:
                self._leave_for(to)
            finally:
                self._join()

    def close(self) -> None:
        """Auto-commit if enabled, and leave the group."""
        self._discovery.stop()
        try:
            self._leave()
        finally:
            self._subscription = None

    # -- where it reads

    def _must_suit(self, cluster: str, sites: Mapping[str, Site]) -> None:
        """Raises where these are not two sites, not the known ones, or rejected by librdkafka."""
        if len(sites) != 2:
            raise ConfigError("client.pair-of-two", count=len(sites))
        for name in (cluster, *self._sites):
            if name and name not in sites:
                raise ConfigError("client.no-such-cluster", cluster=name, clusters=", ".join(sites))
        for site in sites.values():
            _must_be_dealt_alike(site)
            Consumer(site.settings()).close()

    def _known(self, cluster: str) -> str:
        if cluster not in self._sites:
            raise ConfigError("client.no-such-cluster", cluster=cluster, clusters=", ".join(self._sites))
        return cluster

    def _reader(self) -> PairMember:
        if self._subscription is None:
            raise RuntimeError(f"{self._name} has subscribed to nothing")
        if self._member is None:
            raise RuntimeError(f"{self._name} has not joined its group on {self._at} yet: poll tries again")
        return self._member

    def _has_joined(self) -> bool:
        return self._member is not None or self._subscription is None

    def _join_again(self) -> None:
        """Retry a failed join, as while certificate files are replaced."""
        if self._has_joined() or steady_s() < self._tried_s + REJOIN_DELAY_S:
            return
        try:
            self._join()
        except Exception as error:
            self._warnings.now(f"{self._name} cannot join its group on {self._at} yet: {_in_words(error)}")

    def _follow(self) -> None:
        """Apply pushed settings."""
        self._discovery.hear()
        sites, begin = self._discovery.sites, self._discovery.begin
        if sites is not self._sites or begin != self._begin:
            moves = begin != self._begin
            self._sites, self._begin = sites, begin
            self._leave_for(begin if moves else self._at)
        self._join_again()

    def _leave_for(self, to: str) -> None:
        """Leave, so that the next join is on `to`."""
        if self._member is not None:
            self._carry = self._member.all_places()
        self._tried_s = 0.0
        try:
            self._leave()
        finally:
            self._at = to

    def _join(self) -> None:
        if self._subscription is not None:
            self._tried_s = steady_s()
            self._member = PairMember(self._at, self._sites, self._subscription, self._carry, self._news.set)
            self._carry = {}
            self._twins |= {name: home for name, (_, home) in self._member.names.items() if home != self._at}

    def _leave(self) -> None:
        try:
            if self._member is not None:
                self._member.close()
        finally:
            self._member = None
            self._warnings.tell()


def _must_be_dealt_alike(site: Site) -> None:
    """ConfigError where a member might not get the same partitions of both names."""
    settings = site.settings()
    check_group_id(site)
    for key, needed in (("group.protocol", "classic"), (ASSIGNMENT_STRATEGY, "range")):
        if str(settings.get(key, needed)).lower() != needed:
            raise ConfigError("client.pair-assigned-apart", cluster=site.name, key=key, needed=needed)


def _in_words(error: Exception) -> str:
    return str(error.args[0].str()) if isinstance(error, KafkaException) else describe_error(error)
