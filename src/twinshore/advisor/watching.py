"""Where a cluster's consumer groups stand, and how old the records are that they read next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace

from twinshore.advisor.seen import Group, GroupPlace, Topic, with_places
from twinshore.fleet import KafkaError, NamedPartition, WireError
from twinshore.kafka.cluster import KafkaCluster, OffsetKind
from twinshore.kafka.errors import Code, kafka_error
from twinshore.kafka.groups import CLASSIC, GroupListing, Groups, held_by_members
from twinshore.wire.batch import CONTROL, BatchHeader, split_batches
from twinshore.wire.group_places import GroupPlaces

# So many batches are read at most to say how old they are: those that retention comes to first are few.
READ_MAX = 500
# A log's end of so many offsets may be markers alone, as applications that are exactly once leave them.
MARKERS_MAX, MARKERS_BYTES = 100, 64 * 1024
Missed = Callable[[str, Mapping[str, KafkaError]], None]
Ends = tuple[dict[NamedPartition, int], dict[NamedPartition, int]]


class Watching:
    """`missed` and `trying` hear what could not be seen."""

    def __init__(
        self, kafka: KafkaCluster, missed: Missed, trying: Callable[[str], AbstractContextManager[None]]
    ) -> None:
        self._kafka, self._missed, self._trying = kafka, missed, trying
        self._groups = Groups(kafka)

    def groups(self, topics: Mapping[str, Topic]) -> tuple[Group, ...]:
        """Each group that reads by offsets, with its places in these topics."""
        with self._trying("consumer groups"):
            listed = self._groups.listed()
            self._missed("groups of broker", {str(node): error for node, error in listed.away.items()})
            groups = {name: one for name, one in listed.groups.items() if one.reads_by_offsets}
            return self._with_ends(groups, self._places(groups), self._held(groups), topics)
        return ()

    def _held(self, groups: Mapping[str, GroupListing]) -> dict[str, frozenset[NamedPartition]]:
        """What members hold. It shows those that have committed nothing yet."""
        by_node: dict[int, list[str]] = {}
        for name, one in groups.items():
            if one.live and one.kind == CLASSIC:
                by_node.setdefault(one.coordinator, []).append(name)
        held: dict[str, frozenset[NamedPartition]] = {}
        refused: dict[str, KafkaError] = {}
        for node, names in by_node.items():
            try:
                held |= held_by_members(self._kafka, node, names)
            except KafkaError as error:
                refused[str(node)] = error
        self._missed("members of groups at broker", refused)
        return held

    def _places(self, groups: Mapping[str, GroupListing]) -> dict[str, GroupPlaces]:
        wanted: dict[int, dict[str, None]] = {}
        for name, one in groups.items():
            wanted.setdefault(one.coordinator, {})[name] = None
        places, away = self._groups.places(wanted, {})
        self._missed("places of groups at broker", {str(node): error for node, error in away.items()})
        refused = {name: self._refused(name, one.error) for name, one in places.items() if one.error}
        self._missed("places of group", refused)
        return {name: one for name, one in places.items() if not one.error}

    def _refused(self, group: str, code: int) -> KafkaError:
        return kafka_error(code, f"{self._kafka.name}: places of group {group}", right=f"Describe on group {group}")

    def _with_ends(
        self,
        groups: Mapping[str, GroupListing],
        places: Mapping[str, GroupPlaces],
        held: Mapping[str, frozenset[NamedPartition]],
        topics: Mapping[str, Topic],
    ) -> tuple[Group, ...]:
        read = {topic for one in places.values() for topic, _ in one.places if topic in topics}
        read |= {named.topic for some in held.values() for named in some if named.topic in topics}
        parts = {topic: [NamedPartition(topic, one.number) for one in topics[topic].partitions] for topic in read}
        starts, ends = self._ends(named for some in parts.values() for named in some)
        found = []
        for name, one in sorted(places.items()):
            ours = tuple(
                GroupPlace(topic, number, place.offset, starts[named], ends[named])
                for (topic, number), place in sorted(one.places.items())
                if place.offset >= 0 and (named := NamedPartition(topic, number)) in starts and named in ends
            )
            placed = {NamedPartition(place.topic, place.partition) for place in ours}
            wanted = held.get(name, frozenset()).union(*(parts[topic] for topic in {one.topic for one in ours}))
            unplaced = tuple(
                str(named) for named in sorted(wanted - placed) if ends.get(named, 0) > starts.get(named, 0)
            )
            if ours or unplaced:
                found.append(Group(name, groups[name].live, ours, unplaced))
        return tuple(found)

    def _ends(self, parts: Iterable[NamedPartition]) -> Ends:
        """Of each partition that answers; those of topics deleted meanwhile are no partitions any more."""
        known = list(parts)
        if not known:
            return {}, {}
        starts, away = self._kafka.offsets_of_each(known, OffsetKind.EARLIEST)
        ends, more = self._kafka.offsets_of_each(known, OffsetKind.HIGH_WATERMARK)
        refused = {str(named): error for named, error in (away | more).items()}
        gone = Code.UNKNOWN_TOPIC_OR_PARTITION
        self._missed("the log of", {name: error for name, error in refused.items() if error.code != gone})
        return starts, ends

    def without_markers(self, groups: tuple[Group, ...]) -> tuple[Group, ...]:
        """The same, knowing of each place near its log's end how much of what is left no consumer is given."""
        ends: dict[tuple[NamedPartition, int], int] = {}
        for group in groups:
            for one in group.places:
                if 0 < one.offsets_left <= MARKERS_MAX and one.offset >= one.log_start:
                    ends[NamedPartition(one.topic, one.partition), one.offset] = one.log_end
        markers: dict[tuple[NamedPartition, int], int] = {}
        refused: dict[str, KafkaError] = {}
        for number, ((named, offset), end) in enumerate(ends.items()):
            if number >= READ_MAX:
                place = f"{self._kafka.name}: {named} at {offset}"
                refused[str(named)] = KafkaError(f"{place}: more than {READ_MAX} logs would have to be read")
                continue
            try:
                read = self._kafka.read_from(named, offset, bytes_max=MARKERS_BYTES, committed=False)
                markers[named, offset] = markers_in((one for _, one in split_batches(read.records)), offset, end)
            except KafkaError as error:
                refused[str(named)] = error
            except WireError:  # Damaged: whatever it is, it is still to be read.
                continue
        self._missed("whether records or markers are left to a group in", refused)

        def judged(one: GroupPlace) -> GroupPlace:
            return replace(one, markers=markers.get((NamedPartition(one.topic, one.partition), one.offset), 0))

        return with_places(groups, judged)

    def waiting(self, groups: tuple[Group, ...], now_ms: int, waited_ms: int) -> tuple[Group, ...]:
        """The same, knowing whether the record that each group reads next has waited for so long, by time stamps.

        Many clients commit by the clock, as Kafka Streams and Kafka Connect do: with younger ones they are at work. One
        question for each leader tells it. A record of before that was stamped later hides one that waits.
        """
        wanted = {
            NamedPartition(place.topic, place.partition)
            for group in groups
            for place in group.places
            if place.lag and place.offset >= place.log_start
        }
        older: dict[NamedPartition, int] = {}
        with self._trying("how long records have waited for groups"):
            older = self._older(wanted, now_ms - waited_ms)

        def judged(one: GroupPlace) -> GroupPlace:
            until = older.get(NamedPartition(one.topic, one.partition))
            return one if until is None or not one.lag else replace(one, waits=one.offset < until)

        return with_places(groups, judged)

    def aged(
        self, groups: tuple[Group, ...], topics: Mapping[str, Topic], now_ms: int, horizon_ms: int, part: float
    ) -> tuple[Group, ...]:
        """The same with the ages of records that retention comes to within the horizon, that have waited for so large
        a part of it already, and that are still to be read.

        Which these are is asked of each leader in one question; their batches are read one by one.
        """
        by_retention: dict[int, dict[NamedPartition, int]] = {}
        for group in groups:
            for place in group.places:
                retention_ms = topics[place.topic].number("retention.ms")
                if place.lag and place.offset >= place.log_start and retention_ms is not None and retention_ms >= 0:
                    named = NamedPartition(place.topic, place.partition)
                    wanted = by_retention.setdefault(retention_ms, {})
                    wanted[named] = min(place.offset, wanted.get(named, place.offset))
        ages: dict[tuple[NamedPartition, int], int] = {}
        with self._trying("how old the records are that groups read next"):
            for retention_ms, lowest in by_retention.items():
                until_ms = now_ms - max(retention_ms - horizon_ms, int(part * retention_ms))
                gone = self._older(lowest, until_ms)
                ages |= self._ages(groups, gone, now_ms, len(ages))

        def judged(one: GroupPlace) -> GroupPlace:
            return replace(one, next_age_ms=ages.get((NamedPartition(one.topic, one.partition), one.offset)))

        return with_places(groups, judged)

    def _older(self, parts: Iterable[NamedPartition], than_ms: int) -> dict[NamedPartition, int]:
        """Up to which offset each log's records are older."""
        asked = list(parts)
        first, refused = self._kafka.first_since_each(asked, than_ms) if asked else ({}, {})
        self._missed("times of records in", {str(named): error for named, error in refused.items()})
        return {named: 1 << 62 if offset < 0 else offset for named, offset in first.items()}

    def _ages(
        self, groups: tuple[Group, ...], gone: Mapping[NamedPartition, int], now_ms: int, read: int
    ) -> dict[tuple[NamedPartition, int], int]:
        places = ((NamedPartition(one.topic, one.partition), one) for group in groups for one in group.places)
        wanted = {
            (named, one.offset) for named, one in places if one.lag and one.log_start <= one.offset < gone.get(named, 0)
        }
        found: dict[tuple[NamedPartition, int], int] = {}
        refused: dict[str, KafkaError] = {}
        for named, offset in sorted(wanted):
            place = f"{self._kafka.name}: {named} at {offset}"
            if read + len(found) >= READ_MAX:
                refused[str(named)] = KafkaError(f"{place}: more than {READ_MAX} batches would have to be read")
                continue
            try:
                batch = self._kafka.read_tail_batch(named, offset)
                if batch is None:
                    refused[str(named)] = KafkaError(f"{place}: no batch has this offset")
                else:
                    found[named, offset] = now_ms - batch.max_timestamp
            except KafkaError as error:
                refused[str(named)] = error
        self._missed("the age of the next record of a group in", refused)
        return found


def markers_in(headers: Iterable[BatchHeader], offset: int, end: int) -> int:
    """How many offsets from this one to the log's end are those of markers, by batches read from it on."""
    return sum(
        min(one.last_offset + 1, end) - max(one.base_offset, offset)
        for one in headers
        if one.attributes & CONTROL and one.last_offset >= offset and one.base_offset < end
    )
