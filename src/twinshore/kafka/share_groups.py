"""Share groups of one cluster: from which offset each of their partitions is still delivered, asked and set.

Kafka 4.1 and newer. Records above a start that were acknowledged one by one are known to the group's own cluster alone;
whoever sets a start elsewhere delivers those again there, which a share group may do at any time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from kio.schema.alter_share_group_offsets.v0 import AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse
from kio.schema.alter_share_group_offsets.v0.request import (
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from kio.schema.describe_share_group_offsets.v0 import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from kio.schema.describe_share_group_offsets.v0.request import DescribeShareGroupOffsetsRequestGroup
from kio.schema.describe_share_group_offsets.v0.response import DescribeShareGroupOffsetsResponseGroup
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i64

from twinshore.fleet import KafkaError
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.groups import Groups, Located, always, from_each
from twinshore.wire.group_places import GroupPlaces, Place, Where

GROUPS_PER_QUESTION = 100


class ShareGroups:
    """Answers and takes places as `Groups` does; a place is a start here, without metadata."""

    def __init__(self, cluster: KafkaCluster, groups: Groups) -> None:
        self._cluster, self._groups = cluster, groups
        self.name = cluster.name

    @property
    def asked(self) -> Counter[str]:
        return self._groups.asked

    def places(
        self, wanted: Mapping[int, Mapping[str, Iterable[Where] | None]], known: Mapping[str, GroupPlaces]
    ) -> tuple[dict[str, GroupPlaces], dict[int, KafkaError]]:
        """The starts of these groups, by coordinator; and which coordinators did not answer."""
        found, away = from_each(wanted, lambda node: self._described(node, list(wanted[node])))
        return {said.group: _again(said, known) for said in found}, away

    def located(self, groups: Sequence[str]) -> Located:
        """Which broker coordinates each."""
        return self._groups.located(groups)

    def commit(
        self, places: Mapping[int, Mapping[str, Mapping[Where, Place]]], still: Callable[[], bool] = always
    ) -> dict[str, dict[Where, int]]:
        """Sets starts; Kafka's code for each. A group with members is refused by its coordinator."""
        answers: dict[str, dict[Where, int]] = {}
        for node, groups in places.items():
            for group, ours in groups.items():
                if not still():
                    break
                self.asked["AlterShareGroupOffsets"] += 1
                try:
                    answers[group] = self._altered(node, group, ours)
                except KafkaError as error:
                    if not error.retriable:
                        raise
        return answers

    def _described(self, node: int, names: Sequence[str]) -> Iterator[GroupPlaces]:
        wanted = [DescribeShareGroupOffsetsRequestGroup(group_id=GroupId(name), topics=None) for name in names]
        for start in range(0, len(wanted), GROUPS_PER_QUESTION):
            self.asked["DescribeShareGroupOffsets"] += 1
            request = DescribeShareGroupOffsetsRequest(groups=tuple(wanted[start : start + GROUPS_PER_QUESTION]))
            answer = self._cluster.connection_to(node).call(request, DescribeShareGroupOffsetsResponse)
            yield from map(_places, answer.groups)

    def _altered(self, node: int, group: str, places: Mapping[Where, Place]) -> dict[Where, int]:
        topics: dict[str, list[AlterShareGroupOffsetsRequestPartition]] = {}
        for (topic, partition), place in places.items():
            one = AlterShareGroupOffsetsRequestPartition(partition_index=i32(partition), start_offset=i64(place.offset))
            topics.setdefault(topic, []).append(one)
        request = AlterShareGroupOffsetsRequest(
            group_id=GroupId(group),
            topics=tuple(
                AlterShareGroupOffsetsRequestTopic(topic_name=TopicName(topic), partitions=tuple(ours))
                for topic, ours in topics.items()
            ),
        )
        answer = self._cluster.connection_to(node).call(request, AlterShareGroupOffsetsResponse)
        if answer.error_code:
            return dict.fromkeys(places, int(answer.error_code))
        return {
            (str(topic.topic_name), int(one.partition_index)): int(one.error_code)
            for topic in answer.responses
            for one in topic.partitions
        }


def _places(answer: DescribeShareGroupOffsetsResponseGroup) -> GroupPlaces:
    places: dict[Where, Place] = {}
    failed: dict[Where, int] = {}
    for topic in answer.topics:
        for one in topic.partitions:
            where = (str(topic.topic_name), int(one.partition_index))
            if one.error_code:
                failed[where] = int(one.error_code)
            elif one.start_offset >= 0:
                places[where] = Place(int(one.start_offset))
    return GroupPlaces(str(answer.group_id), int(answer.error_code), places, failed, b"")


def _again(said: GroupPlaces, known: Mapping[str, GroupPlaces]) -> GroupPlaces:
    """The very object of last time where nothing has changed."""
    before = known.get(said.group)
    return before if before == said else said
