"""A member of a consumer group that reads topics where they are at home, and goes on at the same offset after a switch.

A topic and its twin hold the same records at the same offsets, so a place is a place on either cluster. When a switch
holds a topic this member stops reading it, commits where that is its habit, and leaves the group with it: so the switch
can take the group's places along. At the new home it joins again and reads on at the place that stands there, or where
it stopped itself, whichever lies behind: what it has handed out once it hands out no second time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from twinshore.client.centres.homes import HomesCentre
from twinshore.client.commits import behind, commit
from twinshore.client.habits import Habits, habits, since
from twinshore.client.reach import Clusters, Reach
from twinshore.client.sites import Site
from twinshore.client.warned import Warned
from twinshore.fleet import ConfigError
from twinshore.fleet.terms import FIRST_TERM
from twinshore.homes.following import LEASE_S, Park, Write
from twinshore.kafka.clock import steady_s

Assigned = Callable[[Consumer, list[TopicPartition]], Any]
Moving = Callable[[str, str, str], Any]  # topic, from, to
SLICE_S = 0.05
ASK_S = 10.0


class HotConsumer:
    """`clusters` and `config` as a HotProducer's, with `group.id`. `before_move(topic, old, "")` is called before the
    member leaves a topic that a switch holds, or for settings that were pushed, `after_move(topic, old, new)` once it
    has joined at the new home; from within poll or consume, as all callbacks. One thread at a time may call it."""

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        clusters: Clusters,
        name: str = "",
        lease_s: float = LEASE_S,
        before_move: Moving | None = None,
        after_move: Moving | None = None,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._news = threading.Event()
        self._warn = Warned(warn).at_once
        self._reach = Reach(clusters, config, ("*",), warn=self._warn, check=_must_make, news=self._news.set)
        for site in self._reach.sites.values():
            _must_have_group(site)
        group = self._reach.sites[self._reach.begin].settings()["group.id"]
        self._name = name or str(config.get("client.id") or group)
        self._lease_s = lease_s
        self._before, self._after = before_move, after_move
        self._centre: HomesCentre | None = None
        self._topics: tuple[str, ...] = ()
        self._told: Mapping[str, Assigned | None] = {}
        self._consumers: dict[str, Consumer] = {}
        self._at: dict[str, str] = {}
        self._left: dict[str, str] = {}
        self._left_ids: dict[str, str] = {}
        self._pushed: set[str] = set()  # left for settings that were pushed, which may lead anywhere
        self._behind: dict[str, dict[int, int]] = {}  # of topics that were left: how far each partition was handed out
        self._carry: dict[tuple[str, int], int] = {}  # the same at the new home, until partitions are dealt out there
        self._next: dict[tuple[str, int], int] = {}
        self._stilled: set[tuple[str, str, int]] = set()  # paused as they were left on a cluster where others stay
        self._terms: dict[str, int] = {}
        self._habits: dict[str, Habits] = {}  # of the consumer of each cluster
        self._looked_s = 0.0
        self._turn = 0

    def __enter__(self) -> HotConsumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- what an application calls

    def subscribe(
        self,
        topics: Sequence[str],
        on_assign: Assigned | None = None,
        on_revoke: Assigned | None = None,
        on_lost: Assigned | None = None,
    ) -> None:
        """As a Consumer's. ConfigError for an expression: topics are followed by name."""
        if wild := [topic for topic in topics if topic.startswith("^")]:
            raise ConfigError(f"{wild[0]} is an expression: a HotConsumer follows topics by their names")
        self._close()
        self._topics = tuple(topics)
        self._told = {"assign": on_assign, "revoke": on_revoke, "lost": on_lost}
        self._centre = self._reach.ask(self._name, self._topics, self._lease_s)

    def poll(self, timeout: float | None = None) -> Message | None:
        """The next record, or None where there is none within the time."""
        found = self.consume(1, -1 if timeout is None else timeout)
        return found[0] if found else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Up to so many, waiting for the first for so long at most."""
        until_s = steady_s() + timeout if timeout >= 0 else float("inf")
        while True:
            self._follow()
            left_s = max(0.0, min(SLICE_S, until_s - steady_s()))
            found = self._read(num_messages, left_s)
            if found or steady_s() >= until_s:
                return found

    def commit(
        self,
        message: Message | None = None,
        offsets: Sequence[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> None:
        """Where each topic is read; what is said of a topic between two homes counts when it has arrived."""
        if message is not None:
            offsets = [behind(message)]
        if offsets is None:
            for consumer in self._consumers.values():
                commit(consumer, None, asynchronous)
            return
        for cluster, some in self._by_cluster(offsets).items():
            commit(self._consumers[cluster], some, asynchronous)

    def position(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Behind the last record that was handed out of each; below 0 where none was."""
        return [
            TopicPartition(one.topic, one.partition, self._next.get((one.topic, one.partition), -1001))
            for one in partitions
        ]

    def assignment(self) -> list[TopicPartition]:
        return [one for consumer in self._consumers.values() for one in consumer.assignment()]

    def committed(self, partitions: Sequence[TopicPartition], timeout: float = ASK_S) -> list[TopicPartition]:
        """Where the group stands, where each topic is read."""
        return [
            one
            for cluster, some in self._by_cluster(partitions).items()
            for one in self._consumers[cluster].committed(some, timeout)
        ]

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        for cluster, some in self._by_cluster(partitions).items():
            self._consumers[cluster].pause(some)

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        for cluster, some in self._by_cluster(partitions).items():
            self._consumers[cluster].resume(some)

    def seek(self, partition: TopicPartition) -> None:
        """Reads on there."""
        for cluster in self._by_cluster([partition]):
            self._consumers[cluster].seek(partition)
            self._next[partition.topic, partition.partition] = partition.offset

    def where(self, topic: str) -> str:
        """The cluster that the topic is read on now, or why it waits."""
        if topic in self._at:
            return self._at[topic]
        order = self._centre.order(topic) if self._centre else Park("", "nothing is subscribed to")
        return order.why if isinstance(order, Park) else f"about to be read on {order.cluster}"

    def term(self, topic: str) -> int:
        """How often the topic has changed homes, with the one that it is read on now; 0 while it waits. A place that is
        kept elsewhere than with Kafka is kept with the term under which it was read."""
        return self._terms.get(topic, 0) if topic in self._at else 0

    def place_now(self, topic: str, partition: int, place: int, term: int) -> int | None:
        """Where whoever read up to this place, under that term, reads on now: what lay behind the point at which the
        topic changed homes by force is not there. None where nobody knows: it changed homes more than once since."""
        line = self._centre.line(topic) if self._centre else None
        return since({partition: place}, term, self.term(topic), line).get(partition)

    def close(self) -> None:
        """Leaves the group, commits where that is its habit, and says goodbye."""
        self._reach.stop()
        self._close()
        self._topics = ()

    # -- following

    def _take_up(self) -> None:
        """Leaves all topics, to read on with what was pushed."""
        self._leave(set(self._at))
        self._pushed |= self._left_ids.keys()
        if self._centre is not None:
            self._centre.stop()
        self._centre = self._reach.ask(self._name, self._topics, self._lease_s)

    def _follow(self) -> None:
        """Leaves what a switch holds, and joins where topics are at home. Looked at when there is news, and before the
        lease runs out."""
        centre = self._centre
        if centre is None:
            raise RuntimeError(f"{self._name} has subscribed to nothing")
        now_s = steady_s()
        if not self._news.is_set() and now_s < self._looked_s + SLICE_S:
            return
        self._news.clear()
        self._looked_s = now_s
        if self._reach.has_changed():
            self._take_up()
            centre = self._centre
            assert centre is not None
        held = centre.held()  # before the orders: a topic that is held since is not parked, and joined by an older one
        orders = {topic: centre.heard(topic) for topic in self._topics}
        goes = {topic: order.cluster for topic, order in orders.items() if isinstance(order, Write)}
        elsewhere = {topic for topic, at in self._at.items() if goes.get(topic) != at}
        if elsewhere:
            self._leave(elsewhere)
        for topic in held:
            if isinstance(orders.get(topic), Park) and topic not in self._at:
                centre.parked(topic)
        free = {topic: order for topic, order in orders.items() if isinstance(order, Write) and topic not in self._at}
        wanted = {topic: order for topic, order in free.items() if not self._is_dealt(order.cluster, topic)}
        if wanted:
            self._join(wanted)

    def _leave(self, topics: Iterable[str]) -> None:
        for topic in topics:
            if self._before:
                self._before(topic, self._at[topic], "")
        for topic in topics:
            self._left[topic] = self._at.pop(topic)
            self._left_ids[topic] = self._centre.cluster_id(self._left[topic]) if self._centre else ""
            # With nothing read since the move before, that move's place is carried on.
            waiting = [where for where in self._carry if where[0] == topic]
            self._behind[topic] = {where[1]: self._carry.pop(where) for where in waiting}
        for cluster in {self._left[topic] for topic in topics}:
            consumer = self._consumers[cluster]
            places = self._places(consumer, topics)
            for one in places:
                self._behind[one.topic][one.partition] = self._next.pop((one.topic, one.partition))
            stays = [topic for topic, at in self._at.items() if at == cluster]
            if stays:
                self._still(cluster, consumer)
            if self._habits[cluster].commits:
                self._commit_last(cluster, consumer, places)
            if stays:
                self._subscribe(cluster, stays)
            else:
                del self._consumers[cluster]
                consumer.close()

    def _still(self, cluster: str, consumer: Consumer) -> None:
        """What has left is read no more, though it may be a while until it is dealt anew: librdkafka counts what it
        has given us as read, and commits it, whether it is handed out or not."""
        gone = [one for one in consumer.assignment() if self._at.get(one.topic) != cluster]
        consumer.pause(gone)
        self._stilled |= {(cluster, one.topic, one.partition) for one in gone}

    def _is_dealt(self, cluster: str, topic: str) -> bool:
        """What is left on the same cluster is dealt anew first."""
        return cluster in self._consumers and any(one.topic == topic for one in self._consumers[cluster].assignment())

    def _commit_last(self, cluster: str, consumer: Consumer, places: list[TopicPartition]) -> None:
        """A home that died takes no place any more, and is left all the same: this member knows how far it has read."""
        try:
            commit(consumer, places, asynchronous=False)
        except KafkaException as error:
            self._warn(f"{self._name} leaves {cluster}, which does not take its place: {error.args[0].str()}")

    def _join(self, wanted: Mapping[str, Write]) -> None:
        for topic, order in wanted.items():
            term = max(order.term, FIRST_TERM)  # before its first switch no line tells of it
            left_id, pushed = self._left_ids.pop(topic, ""), topic in self._pushed
            self._pushed.discard(topic)
            is_same = bool(left_id and self._centre and self._centre.cluster_id(order.cluster) == left_id)
            if is_same or (order.term and not pushed):
                self._carry |= self._carried_over(topic, term)
            else:  # nobody says that the two hold the same: the group's place there counts
                self._behind.pop(topic, None)
            self._terms[topic] = term
        for cluster in sorted({order.cluster for order in wanted.values()}):
            if cluster not in self._consumers:
                settings = self._reach.sites[cluster].settings()
                self._consumers[cluster], self._habits[cluster] = Consumer(settings), habits(settings)
            self._at |= {topic: cluster for topic, order in wanted.items() if order.cluster == cluster}
            self._subscribe(cluster, [topic for topic, at in self._at.items() if at == cluster])
        for topic, order in wanted.items():
            before = self._left.pop(topic, "")
            if before and before != order.cluster and self._after:
                self._after(topic, before, order.cluster)

    def _carried_over(self, topic: str, term: int) -> dict[tuple[str, int], int]:
        """How far the topic was handed out, as the new home counts: what lay behind the point at which it changed homes
        by force is not there, and other records have its offsets now."""
        line = self._centre.line(topic) if self._centre else None
        mine = self._behind.pop(topic, {})
        return {(topic, number): at for number, at in since(mine, self._terms.get(topic, term), term, line).items()}

    def _subscribe(self, cluster: str, topics: list[str]) -> None:
        lost = self._told.get("lost")
        callbacks = {"on_lost": partial(self._revoked, cluster, lost)} if lost is not None else {}
        revoked = partial(self._revoked, cluster, self._told.get("revoke"))
        assigned = partial(self._assigned, cluster)
        self._consumers[cluster].subscribe(topics, on_assign=assigned, on_revoke=revoked, **callbacks)

    def _assigned(self, cluster: str, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Right behind a move, where the group's place lies before what this member has handed out, behind that: it is
        in the application's hands. At any later time the group's place alone counts, as for every consumer."""
        here = [one for one in partitions if self._at.get(one.topic) == cluster]
        stilled = [one for one in here if (cluster, one.topic, one.partition) in self._stilled]
        if stilled:  # librdkafka keeps them so
            self._stilled -= {(cluster, one.topic, one.partition) for one in stilled}
            consumer.resume(stilled)
        told = self._told.get("assign")
        if told is not None:
            told(consumer, partitions)
        ours = [one for one in here if (one.topic, one.partition) in self._carry and one.offset < 0]
        carried = {(one.topic, one.partition): self._carry[one.topic, one.partition] for one in ours}
        dealt = {one.topic for one in here}
        self._carry = {where: place for where, place in self._carry.items() if where[0] not in dealt}
        if not ours:
            return
        places = {(one.topic, one.partition): one.offset for one in consumer.committed(ours, ASK_S)}
        for one in ours:
            where = one.topic, one.partition
            one.offset = self._next[where] = max(places[where], carried[where])
        if self._habits[cluster].is_incremental:
            consumer.incremental_assign(partitions)
        else:
            consumer.assign(partitions)

    def _revoked(
        self, cluster: str, told: Assigned | None, consumer: Consumer, partitions: list[TopicPartition]
    ) -> None:
        """Another member may read on there: how far this one came says nothing any more."""
        if told is not None:
            told(consumer, partitions)
        for one in partitions:
            if self._at.get(one.topic) == cluster:
                self._next.pop((one.topic, one.partition), None)

    def _read(self, count: int, for_s: float) -> list[Message]:
        """By turns, where topics are read on several clusters."""
        consumers = list(self._consumers.items())
        if not consumers:
            self._news.wait(for_s)
            return []
        for step in range(len(consumers)):
            self._turn += 1
            cluster, consumer = consumers[self._turn % len(consumers)]
            waits_s = for_s if step == len(consumers) - 1 else 0.0
            found = [one for one in consumer.consume(count, waits_s) if not self._is_old(cluster, one)]
            if found:
                return found
        return []

    def _is_old(self, cluster: str, message: Message) -> bool:
        """Notes how far it is handed out; what comes from a cluster that was left already is not."""
        if message.error():
            return False
        topic = message.topic() or ""
        if self._at.get(topic) != cluster:
            return True
        self._next[topic, message.partition() or 0] = (message.offset() or 0) + 1
        return False

    def _places(self, consumer: Consumer, topics: Iterable[str]) -> list[TopicPartition]:
        """How far this member has handed out what it is to read now."""
        mine = [(one.topic, one.partition) for one in consumer.assignment() if one.topic in topics]
        return [TopicPartition(*where, self._next[where]) for where in mine if where in self._next]

    def _by_cluster(self, partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
        found: dict[str, list[TopicPartition]] = {}
        for one in partitions:
            if one.topic in self._at:
                found.setdefault(self._at[one.topic], []).append(one)
        return found

    def _close(self) -> None:
        for consumer in self._consumers.values():
            consumer.close()
        self._consumers.clear()
        self._at.clear()
        if self._centre is not None:
            self._centre.stop()
            self._centre = None


def _must_have_group(site: Site) -> None:
    if not site.settings().get("group.id"):
        raise ConfigError(f"cluster {site.name}: group.id is not set")


def _must_make(site: Site) -> None:
    """Raises where a client cannot be made of these settings."""
    _must_have_group(site)
    Consumer(site.settings()).close()
