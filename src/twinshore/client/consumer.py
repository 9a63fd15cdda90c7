"""A group member that reads topics at their homes, and continues at the same offset after a switch.

A topic and its twin hold the same records at the same offsets. When a switch holds a topic, the member stops reading,
auto-commits if enabled, and leaves the group, so that the switch can copy committed offsets. At the new home it
continues at the committed offset or its own position, whichever is further: it delivers no record twice.

All this happens in the thread that polls; tracker threads read the home records.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import OFFSET_INVALID, Consumer, Message, TopicPartition

from twinshore.client.core.delivered import TopicPartitionTuple, translate_offsets
from twinshore.client.discovery.routing_topic import Clusters, Discovery, HomeTracker, check_lease
from twinshore.client.group_member import (
    REQUEST_TIMEOUT_S,
    ConsumerCalls,
    ConsumerCloser,
    Member,
    OffsetCommitter,
    PartitionsCallback,
    RebalanceCallback,
    RebalanceCallbacks,
    offset_after,
)
from twinshore.client.sites import Site, WarningQueue, check_group_id, check_topic_names
from twinshore.config.errors import ConfigError
from twinshore.config.grouping import grouped
from twinshore.config.model import FIRST_TERM
from twinshore.config.repeat_filter import run_all
from twinshore.kafka.clock import steady_s
from twinshore.routing.core.subscribers import SUBSCRIPTION_LEASE_S, Pause, WriteTo

Key = TypeVar("Key")
MoveCallback = Callable[[str, str, str], Any]  # topic, from, to
log = logging.getLogger(__name__)
HOME_CHECK_INTERVAL_S = 0.05


class ConsumerRouter:
    """Moves one consumer between clusters.

    `at`: the cluster where each topic is read. `members`: by cluster. `arriving`: moved topics without assigned
    partitions yet. `left`: the previous cluster of topics between two homes. `news` wakes the router early.
    """

    def __init__(
        self,
        name: str,
        discovery: Discovery,
        handed: OffsetCommitter,
        news: threading.Event,
        *,
        lease_s: float,
        before: MoveCallback | None,
        after: MoveCallback | None,
    ) -> None:
        self._name, self._discovery, self._handed, self._news = name, discovery, handed, news
        self._lease_s, self._before, self._after = lease_s, before, after
        self.tracker: HomeTracker | None = None
        self.topics: tuple[str, ...] = ()
        self.at: dict[str, str] = {}
        self.members: dict[str, Member] = {}
        self.arriving: set[str] = set()
        self.left: dict[str, str] = {}
        self._callbacks = RebalanceCallbacks()
        self._left_ids: dict[str, str] = {}
        self._pushed: set[str] = set()  # left for pushed settings, which may name other clusters
        self._parted: dict[str, ConsumerCloser] = {}  # of left topics
        self._terms: dict[str, int] = {}
        self._undealt: set[str] = set()  # joined, until partitions are assigned
        self._looked_s = 0.0

    def begin(self, topics: tuple[str, ...], callbacks: RebalanceCallbacks) -> None:
        self.topics, self._callbacks = topics, callbacks
        self.tracker = self._discovery.ask(self._name, topics, self._lease_s)

    def end(self) -> None:
        """Leave all clusters, even if a callback raises, and unsubscribe."""
        ends = [partial(self._part, cluster) for cluster in self.members]
        try:
            run_all([*ends, *([self.tracker.stop] if self.tracker else [])])
        finally:
            self.at.clear()
            self.topics = ()
            self._handed.clear()
            self.tracker = None

    # -- what is known

    def term(self, topic: str) -> int:
        return self._terms.get(topic, 0) if topic in self.at else 0

    def reader(self, topic: str) -> Member | None:
        """Returns the member that reads the topic; None between two homes and before assignment."""
        member = self.members[self.at[topic]] if topic in self.at and topic not in self._undealt else None
        return None if member is None or member.closer.is_closing else member

    # -- following

    def follow(self) -> None:
        """Leave held topics, and join others at their homes."""
        if self.tracker is None:
            raise RuntimeError(f"{self._name} has subscribed to nothing")
        now_s = steady_s()
        if not self._news.is_set() and now_s < self._looked_s + HOME_CHECK_INTERVAL_S:
            return
        self._news.clear()
        self._looked_s = now_s
        self._discovery.hear()
        tracker = self._take_up() if self._discovery.is_due else self.tracker
        held = tracker.held()  # before the orders: a topic held since is not parked, or joined by an older order
        orders = {topic: tracker.heard(topic) for topic in self.topics}
        goes = {topic: order.cluster for topic, order in orders.items() if isinstance(order, WriteTo)}
        elsewhere = {topic for topic, at in self.at.items() if goes.get(topic) != at}
        if elsewhere:
            self._leave(elsewhere)
        for topic in held:
            if isinstance(orders.get(topic), Pause) and topic not in self.at and self._has_parted(topic):
                tracker.parked(topic)
        free = {topic: order for topic, order in orders.items() if isinstance(order, WriteTo) and topic not in self.at}
        wanted = {topic: write for topic, write in free.items() if not self._is_dealt(write.cluster, topic)}
        if wanted:
            self._join(tracker, wanted)
        for cluster, member in self.members.items():
            self._handed.commit_deferred(member.consumer, self._read_on(cluster) - self.arriving)

    def _take_up(self) -> HomeTracker:
        """Leave all topics and restart with pushed settings."""
        self._leave(set(self.at))
        self._pushed |= self._left_ids.keys()
        if self.tracker is not None:
            self.tracker.stop()
        self.tracker = self._discovery.ask(self._name, self.topics, self._lease_s)
        return self.tracker

    def _read_on(self, cluster: str) -> set[str]:
        return {topic for topic, at in self.at.items() if at == cluster}

    def _is_dealt(self, cluster: str, topic: str) -> bool:
        """Whether the cluster still assigns the topic: then a rebalance must revoke it first."""
        assigned = self.members[cluster].consumer.assignment() if cluster in self.members else []
        return any(one.topic == topic for one in assigned)

    # -- leaving

    def _leave(self, topics: Collection[str]) -> None:
        for topic in topics:
            if self._before:
                self._before(topic, self.at[topic], "")
        for topic in topics:
            self.left[topic] = self.at.pop(topic)
            self._left_ids[topic] = self.tracker.cluster_id(self.left[topic]) if self.tracker else ""
            self._handed.leave(topic)
        # Even if a callback raises for one cluster, the others are left.
        run_all([partial(self._leave_at, cluster, topics) for cluster in {self.left[topic] for topic in topics}])

    def _leave_at(self, cluster: str, topics: Collection[str]) -> None:
        member = self.members[cluster]
        places = self._handed.of(member.consumer, topics)
        dealt = member.consumer.assignment()
        self._handed.left((one.topic, one.partition) for one in dealt if one.topic in topics)
        self._parted |= {topic: member.closer for topic in topics if self.left[topic] == cluster}
        last = places if member.mode.commits else []
        self._handed.note_committed(((one.topic, one.partition), one.offset) for one in last)
        if stays := self._read_on(cluster):
            member.still(stays)
            if last:
                member.closer.commit_soon(last)
            self._subscribe(cluster)
        else:
            self._part(cluster, last)

    def _part(self, cluster: str, places: Sequence[TopicPartition] = ()) -> None:
        """Leave a cluster. If it does not answer, report lost partitions here."""
        try:
            lost = self.members[cluster].closer.close(places)
        finally:
            del self.members[cluster]
        callback = self._callbacks.on_lost or self._callbacks.on_revoke
        if callback is not None and lost:
            callback(lost)

    def _has_parted(self, topic: str) -> bool:
        """Whether the member has committed and left the group."""
        return topic not in self._parted or self._parted[topic].is_over

    # -- joining

    def _join(self, tracker: HomeTracker, wanted: Mapping[str, WriteTo]) -> None:
        clusters = sorted({write.cluster for write in wanted.values()})
        for cluster in clusters:
            if cluster not in self.members:  # if this fails, nothing has changed yet
                settings = self._discovery.sites[cluster].settings()
                self.members[cluster] = Member(settings, self._name, cluster)
        for topic, write in wanted.items():
            self._arrive(tracker, topic, write)
        for cluster in clusters:
            self.at |= {topic: cluster for topic, write in wanted.items() if write.cluster == cluster}
            self._subscribe(cluster)
        for topic, write in wanted.items():
            before = self.left.pop(topic, "")
            if before and before != write.cluster and self._after:
                self._after(topic, before, write.cluster)

    def _arrive(self, tracker: HomeTracker, topic: str, write: WriteTo) -> None:
        term = max(write.term, FIRST_TERM)  # before the first switch there is no home record
        left_id, pushed = self._left_ids.pop(topic, ""), topic in self._pushed
        self._pushed.discard(topic)
        is_same = bool(left_id) and tracker.cluster_id(write.cluster) == left_id
        if is_same or (write.term and not pushed):
            lost = self._handed.arrive(topic, self._terms.get(topic, term), term, tracker.line(topic))
        else:
            lost = self._handed.arrive_anywhere(topic)
        self._handed.warn_of_lost(
            lost, "that offset is unknown at the new home, so the group's committed offset counts"
        )
        self._terms[topic] = term
        self._undealt.add(topic)
        if self._parted.pop(topic, None) is not None:
            self.arriving.add(topic)

    def _subscribe(self, cluster: str) -> None:
        lost = self._callbacks.on_lost
        callbacks = {"on_lost": partial(self._revoked, cluster, lost)} if lost is not None else {}
        revoked = partial(self._revoked, cluster, self._callbacks.on_revoke)
        self.members[cluster].consumer.subscribe(
            sorted(self._read_on(cluster)), on_assign=partial(self._assigned, cluster), on_revoke=revoked, **callbacks
        )

    # -- what librdkafka calls

    def _assigned(self, cluster: str, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        mine, member = self._read_on(cluster), self.members[cluster]
        member.resume_reassigned(one for one in partitions if one.topic in mine)
        try:
            if self._callbacks.on_assign is not None:
                self._callbacks.on_assign(partitions)
        finally:
            self.arriving -= mine
            self._undealt -= mine
            here = [one for one in partitions if one.topic in mine]
            self._handed.begin(consumer, partitions, here, member.mode.is_incremental)
            self._handed.commit_deferred(consumer, mine)

    def _revoked(
        self, cluster: str, callback: PartitionsCallback | None, consumer: Consumer, parts: list[TopicPartition]
    ) -> None:
        """Forget revoked partitions: another member may read them."""
        member = self.members.get(cluster)
        if member is None or not member.closer.claim(consumer):
            return
        try:
            if callback is not None:
                member.closer.tell(partial(callback, parts))
        finally:
            for one in parts:
                if self.at.get(one.topic) == cluster:
                    self._handed.forget((one.topic, one.partition))


POLL_INTERVAL_S = 0.05


class FailoverConsumer(ConsumerCalls):
    """A consumer that follows its topics. One thread at a time may call it.

    `clusters` and `config` as for FailoverProducer, with `group.id`. `before_move(topic, old, "")` is called before a
    topic is left, for a switch or pushed settings; `after_move(topic, old, new)` after joining at the new home.
    Callbacks run inside poll or consume.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        clusters: Clusters,
        name: str = "",
        lease_s: float = SUBSCRIPTION_LEASE_S,
        before_move: MoveCallback | None = None,
        after_move: MoveCallback | None = None,
    ) -> None:
        check_lease(lease_s)
        self._news = threading.Event()
        self._discovery = Discovery(clusters, config, ("*",), check=_must_make, news=self._news.set)
        group = self._discovery.sites[self._discovery.begin].settings()["group.id"]
        self._name = name or str(config.get("client.id") or group)
        self._handed = OffsetCommitter(self._name, WarningQueue(log))
        ours = self._name, self._discovery, self._handed, self._news
        self._router = ConsumerRouter(*ours, lease_s=lease_s, before=before_move, after=after_move)
        self._turn = 0

    # -- what an application calls

    def subscribe(
        self,
        topics: Sequence[str],
        on_assign: RebalanceCallback[FailoverConsumer] | None = None,
        on_revoke: RebalanceCallback[FailoverConsumer] | None = None,
        on_lost: RebalanceCallback[FailoverConsumer] | None = None,
    ) -> None:
        """Like Consumer.subscribe. Callbacks get this consumer. ConfigError for a regular expression: topics are
        followed by name.
        """
        names = check_topic_names(topics)
        if wild := [topic for topic in names if topic.startswith("^")]:
            raise ConfigError("client.topic-is-an-expression", topic=wild[0], consumer=self._name)
        self._router.end()
        self._router.begin(names, self._callbacks(on_assign, on_revoke, on_lost))

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        found = self.find(num_messages, timeout)
        self.hand_out(found)
        return found

    def find(self, num_messages: int, timeout: float) -> list[Message]:
        """Like `consume`, but the caller calls `hand_out` for delivered records."""
        until_s = steady_s() + timeout if timeout >= 0 else float("inf")
        while True:
            self._router.follow()
            left_s = max(0.0, min(POLL_INTERVAL_S, until_s - steady_s()))
            found = self._read(num_messages, left_s)
            if found or steady_s() >= until_s:
                return found

    def hand_out(self, found: Iterable[Message]) -> None:
        """Mark records as delivered. No commit passes others."""
        last = {(one.topic, one.partition): one for one in map(offset_after, (one for one in found if not one.error()))}
        self._handed.next |= {where: one.offset for where, one in last.items()}
        for member, offsets in _grouped(last.values(), self._router.reader).items():
            member.store(offsets)

    def commit(
        self,
        message: Message | None = None,
        offsets: Sequence[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> None:
        """Commit on each topic's current cluster; between two homes, after arrival. After a forced switch offsets are
        limited to what the new home has.
        """
        if message is not None:
            offsets = [offset_after(message)]
        router, members = self._router, self._router.members
        if offsets is None:
            self._handed.defer_commits_of_left_topics()
            self._handed.note_committed(self._handed.next.items())
            for member in list(members.values()):
                member.commit(None, asynchronous)
            return
        known = self._handed.committable(offsets)
        self._handed.note_committed(((one.topic, one.partition), one.offset) for one in known)
        for one in known:
            if one.topic not in router.at or one.topic in router.arriving:
                self._handed.defer_commit((one.topic, one.partition), one.offset)
        arrived = [one for one in known if one.topic not in router.arriving]
        for cluster, some in _grouped(arrived, router.at.get).items():
            members[cluster].commit(some, asynchronous)
        for cluster, member in members.items():
            last = [one for one in known if router.left.get(one.topic) == cluster]
            if last and member.closer.is_closing:  # a switch that waits for this member copies the committed offset
                member.commit(last, asynchronous)

    def position(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Returns the offset after the last delivered record, or the sought one, also between two homes; below 0 for
        none.
        """
        asked = [(one.topic, one.partition) for one in partitions]
        return [_place(where, self._handed.position(where)) for where in asked]

    def assignment(self) -> list[TopicPartition]:
        return [one for member in self._router.members.values() for one in member.consumer.assignment()]

    def committed(
        self, partitions: Sequence[TopicPartition], timeout: float = REQUEST_TIMEOUT_S
    ) -> list[TopicPartition]:
        """Returns committed offsets on each topic's current cluster. Between two homes: what this member committed, or
        will after arrival; below 0 for none.
        """
        there: dict[TopicPartitionTuple, TopicPartition] = {}
        for cluster, some in _grouped(partitions, self._router.at.get).items():
            for one in self._router.members[cluster].consumer.committed(some, timeout):
                there[one.topic, one.partition] = one
        asked = [(one.topic, one.partition) for one in partitions]
        committed = {where: self._handed.committed_offset(where) for where in asked if where not in there}
        return [there[where] if where in there else _place(where, committed[where]) for where in asked]

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Deliver no record of these until `resume`, at later homes too."""
        self._handed.paused |= {(one.topic, one.partition) for one in partitions}
        for member, some in _grouped(partitions, self._router.reader).items():
            member.consumer.pause(some)

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        self._handed.paused -= {(one.topic, one.partition) for one in partitions}
        for member, some in _grouped(partitions, self._router.reader).items():
            member.consumer.resume(some)

    def seek(self, partition: TopicPartition) -> None:
        """Read from this offset. Between two homes, or before assignment, it is stored, and wins over the committed
        offset. ConfigError for a topic that is not subscribed.
        """
        where = partition.topic, partition.partition
        if partition.topic not in self._router.topics:
            raise ConfigError("client.not-subscribed", consumer=self._name, topic=partition.topic)
        member = self._router.reader(partition.topic)
        if self._dealt is not None and (dealt := [one for one in self._dealt if (one.topic, one.partition) == where]):
            dealt[0].offset = partition.offset
        elif member is not None:
            member.consumer.seek(partition)
            self._handed.seek(where, partition.offset)
        else:
            self._handed.seek_later(where, partition.offset)

    def where(self, topic: str) -> str:
        """Returns the cluster that the topic is read on now, or why the topic waits."""
        if topic in self._router.at:
            return self._router.at[topic]
        tracker = self._router.tracker
        order = tracker.order(topic) if tracker else Pause("", "nothing is subscribed to")
        return order.why if isinstance(order, Pause) else f"about to be read on {order.cluster}"

    def term(self, topic: str) -> int:
        """Returns the term of the home where the topic is read; 0 while the topic waits. Store this term with an offset
        kept outside Kafka.
        """
        return self._router.term(topic)

    def place_now(self, topic: str, partition: int, place: int, term: int) -> int | None:
        """Translate an offset read under `term` to the current home; a forced switch may lower it. None where unknown:
        the topic moved more than once since, or is between two homes.
        """
        record = self._router.tracker.line(topic) if self._router.tracker else None
        return translate_offsets({partition: place}, term, self.term(topic), record).get(partition)

    def close(self) -> None:
        """Leave the group, commit if auto-commit is enabled, and unsubscribe."""
        self._discovery.stop()
        self._router.end()

    # -- reading

    def _read(self, count: int, for_s: float) -> list[Message]:
        """Read the clusters in turn."""
        members = list(self._router.members.items())
        if not members:
            self._news.wait(for_s)
            return []
        for step in range(len(members)):
            self._turn += 1
            cluster, member = members[self._turn % len(members)]
            waits_s = for_s if step == len(members) - 1 else 0.0
            found = [one for one in member.consumer.consume(count, waits_s) if self._is_current(cluster, one)]
            if found:
                return found
        return []

    def _is_current(self, cluster: str, message: Message) -> bool:
        return bool(message.error()) or self._router.at.get(message.topic() or "") == cluster


def _grouped(
    partitions: Iterable[TopicPartition], key_of: Callable[[str], Key | None]
) -> dict[Key, list[TopicPartition]]:
    """Group partitions by a key of their topic, without those whose key is None."""
    keyed = ((key_of(partition.topic), partition) for partition in partitions)
    return grouped((key, partition) for key, partition in keyed if key is not None)


def _place(where: TopicPartitionTuple, at: int | None) -> TopicPartition:
    return TopicPartition(*where, OFFSET_INVALID if at is None else at)


def _must_make(sites: Mapping[str, Site]) -> None:
    """Raises where librdkafka rejects these settings, or `group.id` is missing."""
    for site in sites.values():
        check_group_id(site)
        Consumer(site.settings()).close()
