"""From where a member reads on, and what it commits: what it has handed out, told to consumers of librdkafka's."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import OFFSET_INVALID, OFFSET_STORED, Consumer, KafkaError, KafkaException, Message, TopicPartition

from twinshore.client.handed_out import HandedOut, Where
from twinshore.client.warned import Warned

NO_OFFSET = KafkaError._NO_OFFSET


def commit(consumer: Consumer, offsets: Sequence[TopicPartition] | None, asynchronous: bool) -> None:
    """Nothing to commit is no error."""
    try:
        asked: dict[str, Any] = {"asynchronous": asynchronous} | ({} if offsets is None else {"offsets": list(offsets)})
        if offsets is None or offsets:
            consumer.commit(**asked)
    except KafkaException as error:
        if error.args[0].code() != NO_OFFSET:
            raise


def commit_further(consumer: Consumer, places: Mapping[tuple[str, int], int], ask_s: float) -> None:
    """Those behind which the group does not stand yet."""
    if places:
        there = consumer.committed([TopicPartition(*where) for where in places], ask_s)
        further = [(one, places[one.topic, one.partition]) for one in there]
        commit(
            consumer, [TopicPartition(one.topic, one.partition, at) for one, at in further if at > one.offset], False
        )


def behind(message: Message) -> TopicPartition:
    """The place that a group has once it is done with the record. KafkaException for one that is an error."""
    if message.error():
        raise KafkaException(message.error())
    return TopicPartition(message.topic() or "", message.partition() or 0, (message.offset() or 0) + 1)


def asks_for_the_groups_place(dealt: TopicPartition) -> bool:
    """Where an application that was told of its partitions gave this one no offset; the beginning or the end is one."""
    return dealt.offset in (OFFSET_INVALID, OFFSET_STORED)


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
