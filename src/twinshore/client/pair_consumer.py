"""A member of a consumer group that reads prefix pairs: each topic under both its names, the records of each key in the
order in which they were written, though their producer went from one cluster to the other.

Where it reads is its own affair, not that of any home line: both clusters have all records. It moves when it is told.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from twinshore.client.member import Dealing, Told
from twinshore.client.pair_member import STRATEGY, Log, PairMember, Wish
from twinshore.client.pairs import name_at
from twinshore.client.places import behind
from twinshore.client.reach import Clusters, Reach
from twinshore.client.sites import Site, must_have_group, names_of
from twinshore.client.warned import Warned
from twinshore.fleet import ConfigError
from twinshore.fleet.once import in_words
from twinshore.kafka.clock import steady_s

WAIT_S = 5.0
SLICE_S = 0.05
AGAIN_S = 1.0
SHORT_S = 0.01  # while records wait for answers


class HotPairConsumer(Dealing):
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
        self._sites: Mapping[str, Site] = {}
        check = partial(self._must_suit, cluster)
        self._reach = Reach(clusters, config, ("*",), warn=self._warned.at_once, check=check, news=self._news.set)
        self._sites, self._begin = self._reach.sites, self._reach.begin
        self._at = cluster or self._begin
        self._name = name or str(config.get("client.id") or self._sites[self._at].settings()["group.id"])
        self._wish: Wish | None = None
        self._member: PairMember | None = None
        self._carry: Mapping[Log, int] = {}  # places of the cluster that was left, until a member has them
        self._tried_s = 0.0
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
        on_assign: Told[HotPairConsumer] | None = None,
        on_revoke: Told[HotPairConsumer] | None = None,
        on_lost: Told[HotPairConsumer] | None = None,
    ) -> None:
        """To both names of each topic, of which the plain one is given. What `on_assign` gives an offset is read from
        there. Callbacks are given this consumer, whose places are behind what was handed out."""
        for topic in names_of(topics):
            if topic.startswith("^"):
                raise ConfigError(f"{topic} is an expression: a HotPairConsumer follows topics by their names")
            for home in self._sites:
                if topic in (name_at(one, home, "") for one in topics):
                    raise ConfigError(f"{topic} is the twin that {home} has of another topic, and is read with it")
        self._leave()
        self._wish = Wish(
            self._name,
            tuple(dict.fromkeys(topics)),
            self._telling(on_assign, deals=True),
            self._telling(on_revoke),
            self._telling(on_lost),
            self._wait_s,
            self._warned,
        )
        self._carry = {}
        try:
            self._join()
        except BaseException:
            self._wish = None
            raise

    def poll(self, timeout: float | None = None) -> Message | None:
        """The next record, or None where none may go within the time."""
        found = self.consume(1, -1 if timeout is None else timeout)
        return found[0] if found else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Up to so many, waiting for the first for so long at most."""
        until_s = steady_s() + timeout if timeout >= 0 else float("inf")
        while True:
            self._follow()
            if not self._has_joined():
                if steady_s() >= until_s:
                    return []
                self._news.wait(max(0.0, min(SLICE_S, until_s - steady_s())))
                continue
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
        """What was handed out, without `message` and `offsets`. Names are those of the cluster where it reads, so
        commit before a move: what lies beyond what was handed out there is not committed, and `warn` says so."""
        if message is not None:
            offsets = [behind(message)]
        self._reader().commit(offsets, asynchronous)
        self._warned.tell()

    def position(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Behind the last record that was handed out of each, also before it was dealt anything where it moved to;
        below 0 where nothing is known yet."""
        if self._wish is None:
            raise RuntimeError(f"{self._name} has subscribed to nothing")
        carry, places = (self._member.carry, self._member.places()) if self._member else (self._carry, [])
        mine = {(name_at(topic, home, self._at), number): at for (topic, home, number), at in carry.items()}
        mine |= {(one.topic, one.partition): one.offset for one in places}
        return [
            TopicPartition(one.topic, one.partition, mine.get((one.topic, one.partition), -1001)) for one in partitions
        ]

    def assignment(self) -> list[TopicPartition]:
        return [] if self._wish and self._member is None else self._reader().consumer.assignment()

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
            try:
                self._leave_for(to)
            finally:
                self._join()

    def close(self) -> None:
        """Commits where that is its habit, and leaves the group."""
        self._reach.stop()
        try:
            self._leave()
        finally:
            self._wish = None

    # -- where it reads

    def _must_suit(self, cluster: str, sites: Mapping[str, Site]) -> None:
        """Raises where these are no pair, or another one, or no member can be made of them."""
        if len(sites) != 2:
            raise ConfigError(f"a pair is of two clusters, and {len(sites)} are named")
        for name in (cluster, *self._sites):
            if name and name not in sites:
                raise ConfigError(f"{name} is none of the clusters {' and '.join(sites)}")
        for site in sites.values():
            _must_be_dealt_alike(site)
            Consumer(site.settings()).close()

    def _known(self, cluster: str) -> str:
        if cluster not in self._sites:
            raise ConfigError(f"{cluster} is none of the clusters {' and '.join(self._sites)}")
        return cluster

    def _reader(self) -> PairMember:
        if self._wish is None:
            raise RuntimeError(f"{self._name} has subscribed to nothing")
        if self._member is None:
            raise RuntimeError(f"{self._name} has not joined its group on {self._at} yet: poll tries again")
        return self._member

    def _has_joined(self) -> bool:
        return self._member is not None or self._wish is None

    def _join_again(self) -> None:
        """Where it could not join behind a move, as while a file of certificates is being replaced."""
        if self._has_joined() or steady_s() < self._tried_s + AGAIN_S:
            return
        try:
            self._join()
        except Exception as error:
            self._warned.now(f"{self._name} cannot join its group on {self._at} yet: {_in_words(error)}")

    def _follow(self) -> None:
        """Takes up what was pushed."""
        self._reach.hear()
        sites, begin = self._reach.sites, self._reach.begin
        if sites is not self._sites or begin != self._begin:
            moves = begin != self._begin
            self._sites, self._begin = sites, begin
            self._leave_for(begin if moves else self._at)
        self._join_again()

    def _leave_for(self, to: str) -> None:
        """To join there is due from then on."""
        if self._member is not None:
            self._carry = self._member.all_places()
        self._tried_s = 0.0
        try:
            self._leave()
        finally:
            self._at = to

    def _join(self) -> None:
        if self._wish is not None:
            self._tried_s = steady_s()
            self._member = PairMember(self._at, self._sites, self._wish, self._carry, self._news.set)
            self._carry = {}
            self._twins |= {name: home for name, (_, home) in self._member.names.items() if home != self._at}

    def _leave(self) -> None:
        try:
            if self._member is not None:
                self._member.close()
        finally:
            self._member = None
            self._warned.tell()


def _must_be_dealt_alike(site: Site) -> None:
    """ConfigError where one member would not have the same partitions of both names."""
    settings = site.settings()
    must_have_group(site)
    for key, needed in (("group.protocol", "classic"), (STRATEGY, "range")):
        if str(settings.get(key, needed)).lower() != needed:
            raise ConfigError(
                f"cluster {site.name}: {key} {settings[key]} deals out the two names of a topic apart",
                hint=f"leave it out: with {needed} one member has the same partitions of both",
            )


def _in_words(error: Exception) -> str:
    return str(error.args[0].str()) if isinstance(error, KafkaException) else in_words(error)
