"""What a consumer does as its topics move: it leaves what a switch holds, and joins where topics are at home.

All of it is done by the thread that polls. What is heard of homes comes from the threads of a centre.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from twinshore.client.centres.homes import HomesCentre
from twinshore.client.handed_out import since
from twinshore.client.member import Dealt, Farewell, Member
from twinshore.client.places import Places
from twinshore.client.reach import Reach
from twinshore.client.warned import Warned
from twinshore.fleet.once import each
from twinshore.fleet.terms import FIRST_TERM
from twinshore.homes.following import Park, Write
from twinshore.kafka.clock import steady_s

Moving = Callable[[str, str, str], Any]  # topic, from, to
LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Functions:
    """Functions of the application's own. `on_assign` may change the list that it is given: what is in it then is read,
    from the offsets that it has."""

    on_assign: Dealt | None = None
    on_revoke: Dealt | None = None
    on_lost: Dealt | None = None


class ConsumerMoves:
    """`at`: the cluster where each topic is read now; `members`: of the group, by cluster; `arriving`: topics that have
    moved, until partitions are dealt out at the new home; `left`: where topics were read that are between two homes.
    `news` is set when it is to look before its time."""

    def __init__(
        self,
        name: str,
        reach: Reach,
        handed: Places,
        news: threading.Event,
        *,
        lease_s: float,
        before: Moving | None,
        after: Moving | None,
        warned: Warned,
    ) -> None:
        self._name, self._reach, self._handed, self._news = name, reach, handed, news
        self._lease_s, self._before, self._after, self._warned = lease_s, before, after, warned
        self.centre: HomesCentre | None = None
        self.topics: tuple[str, ...] = ()
        self.at: dict[str, str] = {}
        self.members: dict[str, Member] = {}
        self.arriving: set[str] = set()
        self.left: dict[str, str] = {}
        self._told = Functions()
        self._left_ids: dict[str, str] = {}
        self._pushed: set[str] = set()  # left for settings that were pushed, which may lead anywhere
        self._parted: dict[str, Farewell] = {}  # of topics that were left
        self._terms: dict[str, int] = {}
        self._undealt: set[str] = set()  # joined, until partitions are dealt out
        self._looked_s = 0.0

    def begin(self, topics: tuple[str, ...], told: Functions) -> None:
        self.topics, self._told = topics, told
        self.centre = self._reach.ask(self._name, topics, self._lease_s)

    def end(self) -> None:
        """Leaves all clusters, whatever an application's function raises at one, and says goodbye."""
        ends = [partial(self._part, cluster) for cluster in self.members]
        try:
            each([*ends, *([self.centre.stop] if self.centre else [])])
        finally:
            self.at.clear()
            self.topics = ()
            self._handed.clear()
            self.centre = None

    # -- what is known

    def where(self, topic: str) -> str:
        """The cluster that the topic is read on now, or why it waits."""
        if topic in self.at:
            return self.at[topic]
        order = self.centre.order(topic) if self.centre else Park("", "nothing is subscribed to")
        return order.why if isinstance(order, Park) else f"about to be read on {order.cluster}"

    def term(self, topic: str) -> int:
        return self._terms.get(topic, 0) if topic in self.at else 0

    def place_now(self, topic: str, partition: int, place: int, term: int) -> int | None:
        line = self.centre.line(topic) if self.centre else None
        return since({partition: place}, term, self.term(topic), line).get(partition)

    def reader(self, topic: str) -> Member | None:
        """Who reads it; None while it is between two homes, or is about to be read."""
        member = self.members[self.at[topic]] if topic in self.at and topic not in self._undealt else None
        return None if member is None or member.farewell.is_closing else member

    # -- following

    def follow(self) -> None:
        """Leaves what a switch holds, and joins where topics are at home. Looked at when there is news, and before the
        lease runs out."""
        if self.centre is None:
            raise RuntimeError(f"{self._name} has subscribed to nothing")
        now_s = steady_s()
        if not self._news.is_set() and now_s < self._looked_s + LOOK_S:
            return
        self._news.clear()
        self._looked_s = now_s
        self._reach.hear()
        centre = self._take_up() if self._reach.is_due else self.centre
        held = centre.held()  # before the orders: a topic that is held since is not parked, and joined by an older one
        orders = {topic: centre.heard(topic) for topic in self.topics}
        goes = {topic: order.cluster for topic, order in orders.items() if isinstance(order, Write)}
        elsewhere = {topic for topic, at in self.at.items() if goes.get(topic) != at}
        if elsewhere:
            self._leave(elsewhere)
        for topic in held:
            if isinstance(orders.get(topic), Park) and topic not in self.at and self._has_parted(topic):
                centre.parked(topic)
        free = {topic: order for topic, order in orders.items() if isinstance(order, Write) and topic not in self.at}
        wanted = {topic: order for topic, order in free.items() if not self._is_dealt(order.cluster, topic)}
        if wanted:
            self._join(centre, wanted)
        for cluster, member in self.members.items():
            self._handed.pay(member.consumer, self._read_on(cluster) - self.arriving)

    def _take_up(self) -> HomesCentre:
        """Leaves all topics, to read on with what was pushed."""
        self._leave(set(self.at))
        self._pushed |= self._left_ids.keys()
        if self.centre is not None:
            self.centre.stop()
        self.centre = self._reach.ask(self._name, self.topics, self._lease_s)
        return self.centre

    def _read_on(self, cluster: str) -> set[str]:
        return {topic for topic, at in self.at.items() if at == cluster}

    def _is_dealt(self, cluster: str, topic: str) -> bool:
        """What is left on the same cluster is dealt anew first."""
        return cluster in self.members and self.members[cluster].deals(topic)

    # -- leaving

    def _leave(self, topics: Collection[str]) -> None:
        for topic in topics:
            if self._before:
                self._before(topic, self.at[topic], "")
        for topic in topics:
            self.left[topic] = self.at.pop(topic)
            self._left_ids[topic] = self.centre.cluster_id(self.left[topic]) if self.centre else ""
            self._handed.leave(topic)
        # Whatever an application's function raises at one of them, the others are left as well.
        each([partial(self._leave_at, cluster, topics) for cluster in {self.left[topic] for topic in topics}])

    def _leave_at(self, cluster: str, topics: Collection[str]) -> None:
        member = self.members[cluster]
        places = self._handed.of(member.consumer, topics)
        dealt = member.consumer.assignment()
        self._handed.left((one.topic, one.partition) for one in dealt if one.topic in topics)
        self._parted |= {topic: member.farewell for topic in topics if self.left[topic] == cluster}
        last = places if member.habits.commits else []
        self._handed.note_committed(((one.topic, one.partition), one.offset) for one in last)
        if stays := self._read_on(cluster):
            member.still(stays)
            if last:
                member.farewell.commit_soon(last)
            self._subscribe(cluster)
        else:
            self._part(cluster, last)

    def _part(self, cluster: str, places: Sequence[TopicPartition] = ()) -> None:
        """Where the cluster keeps silent the application is told here of what it loses."""
        try:
            lost = self.members[cluster].farewell.close(places)
        finally:
            del self.members[cluster]
        told = self._told.on_lost or self._told.on_revoke
        if told is not None and lost:
            told(lost)

    def _has_parted(self, topic: str) -> bool:
        """Who says that it has parked has committed, and left its group."""
        return topic not in self._parted or self._parted[topic].is_over

    # -- joining

    def _join(self, centre: HomesCentre, wanted: Mapping[str, Write]) -> None:
        clusters = sorted({order.cluster for order in wanted.values()})
        for cluster in clusters:
            if cluster not in self.members:  # where none can be made nothing has changed yet
                settings = self._reach.sites[cluster].settings()
                self.members[cluster] = Member(settings, self._name, cluster, self._warned.at_once)
        for topic, order in wanted.items():
            self._arrive(centre, topic, order)
        for cluster in clusters:
            self.at |= {topic: cluster for topic, order in wanted.items() if order.cluster == cluster}
            self._subscribe(cluster)
        for topic, order in wanted.items():
            before = self.left.pop(topic, "")
            if before and before != order.cluster and self._after:
                self._after(topic, before, order.cluster)

    def _arrive(self, centre: HomesCentre, topic: str, order: Write) -> None:
        term = max(order.term, FIRST_TERM)  # before its first switch no line tells of it
        left_id, pushed = self._left_ids.pop(topic, ""), topic in self._pushed
        self._pushed.discard(topic)
        is_same = bool(left_id) and centre.cluster_id(order.cluster) == left_id
        if is_same or (order.term and not pushed):
            lost = self._handed.arrive(topic, self._terms.get(topic, term), term, centre.line(topic))
        else:
            lost = self._handed.arrive_anywhere(topic)
        self._handed.warn_of_lost(lost)
        self._terms[topic] = term
        self._undealt.add(topic)
        if self._parted.pop(topic, None) is not None:
            self.arriving.add(topic)

    def _subscribe(self, cluster: str) -> None:
        lost = self._told.on_lost
        callbacks = {"on_lost": partial(self._revoked, cluster, lost)} if lost is not None else {}
        revoked = partial(self._revoked, cluster, self._told.on_revoke)
        self.members[cluster].consumer.subscribe(
            sorted(self._read_on(cluster)), on_assign=partial(self._assigned, cluster), on_revoke=revoked, **callbacks
        )

    # -- what librdkafka calls

    def _assigned(self, cluster: str, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        mine, member = self._read_on(cluster), self.members[cluster]
        member.stir(one for one in partitions if one.topic in mine)
        try:
            if self._told.on_assign is not None:
                self._told.on_assign(partitions)
        finally:
            self.arriving -= mine
            self._undealt -= mine
            here = [one for one in partitions if one.topic in mine]
            self._handed.begin(consumer, partitions, here, member.habits.is_incremental)
            self._handed.pay(consumer, mine)

    def _revoked(self, cluster: str, told: Dealt | None, consumer: Consumer, parts: list[TopicPartition]) -> None:
        """Another member may read on there."""
        member = self.members.get(cluster)
        if member is None or not member.farewell.claim(consumer):
            return
        try:
            if told is not None:
                member.farewell.tell(partial(told, parts))
        finally:
            for one in parts:
                if self.at.get(one.topic) == cluster:
                    self._handed.forget((one.topic, one.partition))
