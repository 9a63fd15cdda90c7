"""A member of a consumer group that reads topics where they are at home, and goes on at the same offset after a switch.

A topic and its twin hold the same records at the same offsets, so a place is a place on either cluster. When a switch
holds a topic this member stops reading it, commits where that is its habit, and leaves the group with it: so the switch
can take the group's places along. At the new home it joins again and reads on at the place that stands there, or where
it stopped itself, whichever lies behind: what it has handed out once it hands out no second time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import OFFSET_INVALID, Consumer, Message, TopicPartition

from twinshore.client.centres.homes import must_be_lease
from twinshore.client.consumer_moves import ConsumerMoves, Functions, Moving
from twinshore.client.handed_out import Where
from twinshore.client.member import Dealing, Member, Told
from twinshore.client.places import ASK_S, Places, behind
from twinshore.client.reach import Clusters, Reach
from twinshore.client.sites import Site, must_have_group, names_of
from twinshore.client.warned import Warned
from twinshore.fleet import ConfigError
from twinshore.homes.following import LEASE_S
from twinshore.kafka.clock import steady_s

SLICE_S = 0.05


class HotConsumer(Dealing):
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
        must_be_lease(lease_s)
        self._news, self._warned = threading.Event(), Warned(warn)
        at_once, news = self._warned.at_once, self._news.set
        self._reach = Reach(clusters, config, ("*",), warn=at_once, check=_must_make, news=news)
        group = self._reach.sites[self._reach.begin].settings()["group.id"]
        self._name = name or str(config.get("client.id") or group)
        self._handed = Places(self._name, self._warned)
        self._moves = ConsumerMoves(
            *(self._name, self._reach, self._handed, self._news),
            lease_s=lease_s,
            before=before_move,
            after=after_move,
            warned=self._warned,
        )
        self._turn = 0

    def __enter__(self) -> HotConsumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- what an application calls

    def subscribe(
        self,
        topics: Sequence[str],
        on_assign: Told[HotConsumer] | None = None,
        on_revoke: Told[HotConsumer] | None = None,
        on_lost: Told[HotConsumer] | None = None,
    ) -> None:
        """As a Consumer's, but that these functions are given this consumer, whichever cluster partitions are dealt out
        on. ConfigError for an expression: topics are followed by name."""
        names = names_of(topics)
        if wild := [topic for topic in names if topic.startswith("^")]:
            raise ConfigError(f"{wild[0]} is an expression: a HotConsumer follows topics by their names")
        self._moves.end()
        assigned, revoked, lost = self._telling(on_assign, deals=True), self._telling(on_revoke), self._telling(on_lost)
        self._moves.begin(names, Functions(assigned, revoked, lost))

    def poll(self, timeout: float | None = None) -> Message | None:
        """The next record, or None where there is none within the time."""
        found = self.consume(1, -1 if timeout is None else timeout)
        return found[0] if found else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Up to so many, waiting for the first for so long at most."""
        found = self.find(num_messages, timeout)
        self.hand_out(found)
        return found

    def find(self, num_messages: int, timeout: float) -> list[Message]:
        """As `consume`, but that whoever hands the records out says so."""
        until_s = steady_s() + timeout if timeout >= 0 else float("inf")
        while True:
            self._moves.follow()
            left_s = max(0.0, min(SLICE_S, until_s - steady_s()))
            found = self._read(num_messages, left_s)
            if found or steady_s() >= until_s:
                return found

    def hand_out(self, found: Iterable[Message]) -> None:
        """From here on they count as read: no commit passes what was not handed out."""
        last = {(one.topic, one.partition): one for one in map(behind, (one for one in found if not one.error()))}
        self._handed.next |= {where: one.offset for where, one in last.items()}
        for member, some in self._by_reader(last.values()).items():
            member.store(some)

    def commit(
        self,
        message: Message | None = None,
        offsets: Sequence[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> None:
        """Where each topic is read; what is said of a topic between two homes counts when it has arrived. Of what was
        read before a switch by force, only what the new home has as well."""
        if message is not None:
            offsets = [behind(message)]
        moves, members = self._moves, self._moves.members
        if offsets is None:
            self._handed.owe_what_was_left()
            self._handed.note_committed(self._handed.next.items())
            for member in list(members.values()):
                member.commit(None, asynchronous)
            return
        known = self._handed.to_commit(offsets)
        self._handed.note_committed(((one.topic, one.partition), one.offset) for one in known)
        for one in known:
            if one.topic not in moves.at or one.topic in moves.arriving:
                self._handed.owe((one.topic, one.partition), one.offset)
        for cluster, some in self._by_cluster(one for one in known if one.topic not in moves.arriving).items():
            members[cluster].commit(some, asynchronous)
        for cluster, member in members.items():
            last = [one for one in known if moves.left.get(one.topic) == cluster]
            if last and member.farewell.is_closing:  # a switch that waits for this member takes the place along
                member.commit(last, asynchronous)

    def position(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Behind the last record that was handed out of each, or where it was told to read on; below 0 where nothing
        was. Also of a topic between two homes: there it is the place that it had."""
        asked = [(one.topic, one.partition) for one in partitions]
        return [_place(where, self._handed.position(where)) for where in asked]

    def assignment(self) -> list[TopicPartition]:
        return [one for member in self._moves.members.values() for one in member.consumer.assignment()]

    def committed(self, partitions: Sequence[TopicPartition], timeout: float = ASK_S) -> list[TopicPartition]:
        """Where the group stands, where each topic is read. Of a topic between two homes: what this member has
        committed of it, or is to commit where it arrives; below 0 where that is nothing."""
        there: dict[Where, TopicPartition] = {}
        for cluster, some in self._by_cluster(partitions).items():
            for one in self._moves.members[cluster].consumer.committed(some, timeout):
                there[one.topic, one.partition] = one
        asked = [(one.topic, one.partition) for one in partitions]
        committed = {where: self._handed.place_committed(where) for where in asked if where not in there}
        return [there[where] if where in there else _place(where, committed[where]) for where in asked]

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """No record of these is handed out until they are resumed: also at another home, and of a topic between two."""
        self._handed.paused |= {(one.topic, one.partition) for one in partitions}
        for member, some in self._by_reader(partitions).items():
            member.consumer.pause(some)

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        self._handed.paused -= {(one.topic, one.partition) for one in partitions}
        for member, some in self._by_reader(partitions).items():
            member.consumer.resume(some)

    def seek(self, partition: TopicPartition) -> None:
        """Reads on there. Of a topic between two homes, or before partitions are dealt out, it is kept: at the new home
        that place counts, and not the group's. ConfigError for a topic that is not subscribed to."""
        where = partition.topic, partition.partition
        if partition.topic not in self._moves.topics:
            raise ConfigError(f"{self._name} has not subscribed to topic {partition.topic}")
        member = self._moves.reader(partition.topic)
        if self._dealt is not None and (dealt := [one for one in self._dealt if (one.topic, one.partition) == where]):
            dealt[0].offset = partition.offset
        elif member is not None:
            member.consumer.seek(partition)
            self._handed.seek(where, partition.offset)
        else:
            self._handed.seek_later(where, partition.offset)

    def where(self, topic: str) -> str:
        """The cluster that the topic is read on now, or why it waits."""
        return self._moves.where(topic)

    def term(self, topic: str) -> int:
        """How often the topic has changed homes, with the one that it is read on now; 0 while it waits. A place that is
        kept elsewhere than with Kafka is kept with the term under which it was read."""
        return self._moves.term(topic)

    def place_now(self, topic: str, partition: int, place: int, term: int) -> int | None:
        """Where whoever read up to this place, under that term, reads on now: what lay behind the point at which the
        topic changed homes by force is not there. None where nobody knows: it changed homes more than once since, or
        is between two homes just now."""
        return self._moves.place_now(topic, partition, place, term)

    def close(self) -> None:
        """Leaves the group, commits where that is its habit, and says goodbye."""
        self._reach.stop()
        self._moves.end()

    # -- reading

    def _read(self, count: int, for_s: float) -> list[Message]:
        """By turns, where topics are read on several clusters."""
        members = list(self._moves.members.items())
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
        """What comes from a cluster that was left already is not handed out."""
        return bool(message.error()) or self._moves.at.get(message.topic() or "") == cluster

    def _by_reader(self, partitions: Iterable[TopicPartition]) -> dict[Member, list[TopicPartition]]:
        found: dict[Member, list[TopicPartition]] = {}
        for one in partitions:
            if (member := self._moves.reader(one.topic)) is not None:
                found.setdefault(member, []).append(one)
        return found

    def _by_cluster(self, partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
        found: dict[str, list[TopicPartition]] = {}
        for one in partitions:
            if one.topic in self._moves.at:
                found.setdefault(self._moves.at[one.topic], []).append(one)
        return found


def _place(where: Where, at: int | None) -> TopicPartition:
    return TopicPartition(*where, OFFSET_INVALID if at is None else at)


def _must_make(sites: Mapping[str, Site]) -> None:
    """Raises where a client cannot be made of these settings."""
    for site in sites.values():
        must_have_group(site)
        Consumer(site.settings()).close()
