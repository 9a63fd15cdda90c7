"""From where a member reads on, and what it commits: what it has handed out, told to consumers of librdkafka's."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from confluent_kafka import Consumer, KafkaException, TopicPartition

from twinshore.client.commits import asks_for_the_groups_place, commit_further
from twinshore.client.handed_out import HandedOut, Where
from twinshore.client.warned import Warned

ASK_S = 10.0


class Places(HandedOut):
    """`name` is what sentences call the member."""

    def __init__(self, name: str, warned: Warned) -> None:
        super().__init__()
        self._name, self._warned = name, warned

    def of(self, consumer: Consumer, topics: Collection[str]) -> list[TopicPartition]:
        """How far this member has handed out what it is to read now."""
        mine = [(one.topic, one.partition) for one in consumer.assignment() if one.topic in topics]
        return [TopicPartition(*where, self.next[where]) for where in mine if where in self.next]

    def begin(
        self, consumer: Consumer, partitions: list[TopicPartition], here: list[TopicPartition], by_bits: bool
    ) -> None:
        """Right behind a move, where the group's place lies before what this member has handed out, behind that: it is
        in the application's hands. At any later time the group's place alone counts, as for every consumer. What the
        application has sought counts before either. `here` are the partitions that are read there, `by_bits` says how
        they are dealt out."""
        sought = self.take_sought([(one.topic, one.partition) for one in here])
        ours = {(one.topic, one.partition): one for one in here if asks_for_the_groups_place(one)}
        carried = self.take_carried({one.topic for one in here}, ours)
        for where in sought.keys() & ours.keys():
            ours[where].offset = sought[where]
            self.seek(where, sought[where])
        self._place(consumer, {where: one for where, one in ours.items() if where in carried.keys() - sought}, carried)
        if not by_bits:
            self._warn_of(self.drop_sought({one.topic for one in here}), "another member of the group reads it now")
            consumer.assign(partitions)
        elif partitions:
            consumer.incremental_assign(partitions)
        if still := [one for one in here if (one.topic, one.partition) in self.paused]:
            consumer.pause(still)

    def _place(self, consumer: Consumer, ours: Mapping[Where, TopicPartition], carried: Mapping[Where, int]) -> None:
        there: dict[Where, int] = {}
        try:
            if ours:
                there = {(one.topic, one.partition): one.offset for one in consumer.committed([*ours.values()], ASK_S)}
        except KafkaException as error:
            self._warned.at_once(f"{self._name} is not told the group's places: {error.args[0].str()}")
        for where, one in ours.items():
            one.offset = self.next[where] = max(there.get(where, 0), carried[where])

    def pay(self, consumer: Consumer, topics: Collection[str]) -> None:
        """Commits what was committed of these topics on their way here."""
        owed = self.take_owed(topics)
        try:
            commit_further(consumer, owed, ASK_S)
            self.note_committed(owed.items())
        except KafkaException as error:
            self._warned.at_once(f"{self._name} cannot commit yet what it was told on the way: {error.args[0].str()}")
            for where, at in owed.items():
                self.owe(where, at)

    def warn_of_lost(self, sought: Iterable[Where]) -> None:
        self._warn_of(sought, "at its new home nobody knows what is there, so the group's place counts")

    def _warn_of(self, sought: Iterable[Where], why: str) -> None:
        for topic, number in sought:
            self._warned.now(f"{self._name} does not read {topic}-{number} on from where it was told to: {why}")

    def to_commit(self, offsets: Iterable[TopicPartition]) -> list[TopicPartition]:
        """What of these may be committed, now or once their topics have arrived."""
        return [found for one in offsets if (found := self._known(one)) is not None]

    def _known(self, one: TopicPartition) -> TopicPartition | None:
        where = one.topic, one.partition
        at = self.known(where, one.offset)
        if at == one.offset:
            return one
        self._warned(
            f"{self._name} commits {one.topic}-{one.partition} {'not at all' if at is None else f'to {at} alone'}, not"
            f" to {one.offset}: that was read at a home that it has left, and other records have these offsets now"
        )
        self._warned.tell()
        return None if at is None else TopicPartition(*where, at)
