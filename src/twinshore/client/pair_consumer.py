"""A member of a consumer group that reads prefix pairs: each topic under both its names, the records of each key in the
order in which they were written, though their producer went from one cluster to the other.

Where it reads is its own affair, not that of any home line: both clusters have all records. It moves when it is told.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition

from twinshore.client.commits import behind, commit
from twinshore.client.pair_member import Log, PairMember, Told, Wish, must_suit
from twinshore.client.pairs import name_at
from twinshore.client.reach import Clusters, Reach
from twinshore.client.sites import Site
from twinshore.client.warned import Warned
from twinshore.fleet import ConfigError
from twinshore.kafka.clock import steady_s

WAIT_S = 5.0
SLICE_S = 0.05
SHORT_S = 0.01  # while records wait for answers


class HotPairConsumer:
    """`clusters` and `config` as a HotConsumer's; the two clusters are called as their links call them, which is what
    twins' names begin with. `cluster`: the one where it reads, without it the first, or the pushed home. `wait_s`: how
    long a home that does not answer is waited for. One thread at a time may call it."""

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        clusters: Clusters,
        cluster: str = "",
        name: str = "",
        wait_s: float = WAIT_S,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._news = threading.Event()
        self._warned, self._wait_s = Warned(warn), wait_s
        self._reach = Reach(clusters, config, ("*",), warn=self._warned.at_once, check=_must_make, news=self._news.set)
        self._sites, self._begin = self._reach.sites, self._reach.begin
        if len(self._sites) != 2:
            raise ConfigError(f"a pair is of two clusters, and {len(self._sites)} are named")
        for site in self._sites.values():
            must_suit(site)
        self._at = self._known(cluster or self._begin)
        self._name = name or str(config.get("client.id") or self._sites[self._at].settings()["group.id"])
        self._wish: Wish | None = None
        self._member: PairMember | None = None
        self._twins: dict[str, str] = {}  # where twins of each name are written, wherever it has read
        self._served_s = 0.0

    def __enter__(self) -> HotPairConsumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- what an application calls

    def subscribe(
        self,
        topics: Sequence[str],
        on_assign: Told | None = None,
        on_revoke: Told | None = None,
        on_lost: Told | None = None,
    ) -> None:
        """To both names of each topic, of which the plain one is given. What `on_assign` gives an offset is read from
        there."""
        for topic in topics:
            if topic.startswith("^"):
                raise ConfigError(f"{topic} is an expression: a HotPairConsumer follows topics by their names")
            for home in self._sites:
                if topic in (name_at(one, home, "") for one in topics):
                    raise ConfigError(f"{topic} is the twin that {home} has of another topic, and is read with it")
        self._leave()
        self._wish = Wish(
            *(self._name, tuple(dict.fromkeys(topics)), on_assign, on_revoke, on_lost, self._wait_s, self._warned)
        )
        self._join({})

    def poll(self, timeout: float | None = None) -> Message | None:
        """The next record, or None where none may go within the time."""
        found = self.consume(1, -1 if timeout is None else timeout)
        return found[0] if found else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Up to so many, waiting for the first for so long at most."""
        until_s = steady_s() + timeout if timeout >= 0 else float("inf")
        while True:
            self._follow()
            member, now_s = self._reader(), steady_s()
            if now_s >= self._served_s + SLICE_S:  # also while there is enough: the group must hear of this member
                self._served_s = now_s
                member.read(0.0)
            found = member.take(num_messages)
            if found or now_s >= until_s:
                return found
            member.read(max(0.0, min(SHORT_S if member.is_waiting() else SLICE_S, until_s - now_s)))

    def commit(
        self,
        message: Message | None = None,
        offsets: Sequence[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> None:
        """What was handed out, without `message` and `offsets`. Names are those of the cluster where it reads."""
        if message is not None:
            offsets = [behind(message)]
        member = self._reader()
        commit(member.consumer, member.places() if offsets is None else offsets, asynchronous)

    def position(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Behind the last record that was handed out of each; below 0 where nothing is known yet."""
        mine = {(one.topic, one.partition): one.offset for one in self._reader().places()}
        return [
            TopicPartition(one.topic, one.partition, mine.get((one.topic, one.partition), -1001)) for one in partitions
        ]

    def assignment(self) -> list[TopicPartition]:
        return self._reader().consumer.assignment()

    def committed(self, partitions: Sequence[TopicPartition], timeout: float = 10.0) -> list[TopicPartition]:
        """Where the group stands on the cluster where it reads."""
        return self._reader().consumer.committed(list(partitions), timeout)

    def where(self) -> str:
        """The cluster where it reads."""
        return self._at

    def awaits(self) -> list[str]:
        """What must be read further, or cross, before more is handed out: a sentence for each partition."""
        return self._reader().awaits()

    def written_at(self, message: Message) -> str:
        """The cluster where the record was written. Ask before the next move: a plain name is of another home then."""
        return self._twins.get(message.topic() or "", self._at)

    def move(self, to: str) -> None:
        """Leaves the group where it reads, and joins on the other cluster. It goes on there at the group's place, or
        behind what was handed out here, whichever is further. Commits first where that is its habit."""
        if self._known(to) != self._at:
            self._go(to)

    def close(self) -> None:
        """Commits where that is its habit, and leaves the group."""
        self._reach.stop()
        self._leave()

    # -- where it reads

    def _known(self, cluster: str) -> str:
        if cluster not in self._sites:
            raise ConfigError(f"{cluster} is none of the clusters {' and '.join(self._sites)}")
        return cluster

    def _reader(self) -> PairMember:
        if self._member is None:
            raise RuntimeError(f"{self._name} has subscribed to nothing")
        return self._member

    def _follow(self) -> None:
        """Takes up what was pushed. A push that names other clusters than the pair's changes nothing."""
        self._reach.has_changed()
        sites, begin = self._reach.sites, self._reach.begin
        if sites is self._sites and begin == self._begin:
            return
        if sites.keys() != self._sites.keys():
            self._warned(f"{self._name} reads a pair of {' and '.join(self._sites)}: a push of others is not taken")
            return
        moves = begin != self._begin
        self._sites, self._begin = sites, begin
        self._go(begin if moves else self._at)

    def _go(self, to: str) -> None:
        carry = self._member.all_places() if self._member is not None else {}
        self._leave()
        self._at = to
        self._join(carry)

    def _join(self, carry: Mapping[Log, int]) -> None:
        if self._wish is not None:
            self._member = PairMember(self._at, self._sites, self._wish, carry, self._news.set)
            self._twins |= {name: home for name, (_, home) in self._member.names.items() if home != self._at}

    def _leave(self) -> None:
        member, self._member = self._member, None
        if member is not None:
            member.close()
        self._warned.tell()


def _must_make(site: Site) -> None:
    """Raises where a client cannot be made of these settings."""
    must_suit(site)
    Consumer(site.settings()).close()
