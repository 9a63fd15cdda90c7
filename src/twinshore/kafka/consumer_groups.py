"""The consumer groups of one cluster: listing, committed offsets, commits for groups without members, and removal of
classic members.

Requests go to coordinators, many groups in each; `asked` counts them. Nothing here retries: callers that poll ask
again. An unavailable broker affects only its own groups.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from typing import NamedTuple, TypeAlias, TypeVar

from kio.schema.alter_share_group_offsets.v0 import AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse
from kio.schema.alter_share_group_offsets.v0.request import (
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from kio.schema.consumer_protocol_assignment.v0 import ConsumerProtocolAssignment
from kio.schema.describe_groups.v5 import DescribeGroupsRequest, DescribeGroupsResponse
from kio.schema.describe_share_group_offsets.v0 import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from kio.schema.describe_share_group_offsets.v0.request import DescribeShareGroupOffsetsRequestGroup
from kio.schema.describe_share_group_offsets.v0.response import DescribeShareGroupOffsetsResponseGroup
from kio.schema.find_coordinator.v4 import FindCoordinatorResponse
from kio.schema.leave_group.v4 import LeaveGroupRequest, LeaveGroupResponse
from kio.schema.leave_group.v4.request import MemberIdentity
from kio.schema.list_groups.v4 import ListGroupsRequest as ListGroupsRequestV4
from kio.schema.list_groups.v4 import ListGroupsResponse as ListGroupsResponseV4
from kio.schema.list_groups.v5 import ListGroupsRequest, ListGroupsResponse
from kio.schema.types import GroupId, TopicName
from kio.serial import entity_reader
from kio.serial.errors import SerialError
from kio.static.primitive import i8, i32, i64

from twinshore.config.errors import KafkaError, WireError
from twinshore.config.grouping import grouped, in_slices
from twinshore.config.model import TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.connection import Connection
from twinshore.kafka.protocol.apis import OFFSET_COMMIT, OFFSET_FETCH
from twinshore.kafka.protocol.error_codes import Code, kafka_error
from twinshore.kafka.protocol.offsets import (
    OFFSET_FETCH_VERSION,
    CommittedOffset,
    GroupOffsets,
    TopicPartitionTuple,
    encode_offset_commit,
    encode_offset_fetch,
    parse_offset_commit,
    parse_offset_fetch,
    split_commit,
)
from twinshore.kafka.protocol.response_check import check_response

LIST_GROUPS_KEY = 16
GROUP_COORDINATOR = i8(0)
GROUPS_PER_OFFSET_FETCH = 500
GROUPS_PER_FIND_COORDINATOR = 1000
# A broker processes a connection's commits one by one, some milliseconds each.
COMMIT_CONNECTIONS = 16
# A coordinator's batch is 1 MB at most by default. Where the limit is lower, groups that are too
# large are committed in smaller parts.
COMMIT_BYTES, COMMIT_BYTES_MIN = 256 * 1024, 8 * 1024
# Error codes for a commit that is too large; since Kafka 4.0 it is UNKNOWN_SERVER_ERROR.
_TOO_LARGE = frozenset(
    {Code.unknown_server_error, Code.message_too_large, Code.record_list_too_large, Code.invalid_commit_offset_size}
)
SHARE_TYPE, CONSUMER_TYPE, CLASSIC_TYPE = "share", "consumer", "classic"
# A coordinator that is moving or unavailable.
COORDINATOR_UNAVAILABLE_CODES = frozenset(
    {Code.coordinator_not_available, Code.coordinator_load_in_progress, Code.not_coordinator}
)
Item = TypeVar("Item")
# By group, and by coordinator: what to commit; and Kafka's code for each offset.
GroupCommits: TypeAlias = Mapping[str, Mapping[TopicPartitionTuple, CommittedOffset]]
CommitCodes: TypeAlias = dict[TopicPartitionTuple, int]
WantedOffsets: TypeAlias = Mapping[str, Iterable[TopicPartitionTuple] | None]


def group_by_coordinator(nodes: Mapping[str, int]) -> dict[int, dict[str, None]]:
    """Returns the groups of each coordinator, to fetch all their offsets."""
    return {node: dict.fromkeys(names) for node, names in grouped((n, name) for name, n in nodes.items()).items()}


def always_allowed() -> bool:
    """The default of `still`: a manual commit cannot be superseded."""
    return True


class GroupListing(NamedTuple):
    """`kind`: classic, consumer, share or streams."""

    group: str
    state: str
    kind: str
    protocol: str
    coordinator: int

    @property
    def live(self) -> bool:
        """Whether the group has members, or will soon."""
        return self.state not in ("Empty", "Dead")

    @property
    def reads_by_offsets(self) -> bool:
        """Whether the group commits partition offsets. Connect workers and share groups do not."""
        return self.kind != SHARE_TYPE and self.protocol in ("", "consumer", "streams")


class GroupListings(NamedTuple):
    """All groups by name. `away`: errors of brokers that did not answer."""

    groups: dict[str, GroupListing]
    away: dict[int, KafkaError]


class GroupCoordinators(NamedTuple):
    """Each group's coordinator. A group without one now is in neither field."""

    nodes: dict[str, int]
    errors: dict[str, KafkaError]


class ConsumerGroups:
    """The groups of one cluster; for one thread, while commits use threads of their own. `close` closes connections.
    `stable`: an offset that an open transaction may change is an error.
    """

    def __init__(self, cluster: KafkaCluster, *, stable: bool = False) -> None:
        self.cluster, self.stable = cluster, stable
        self.name = cluster.name
        self.asked: Counter[str] = Counter()
        self._lines: dict[int, list[Connection]] = {}
        self._commit_bytes: dict[str, int] = {}

    def close(self) -> None:
        for connection in chain.from_iterable(self._lines.values()):
            connection.close()
        self._lines.clear()

    def listed(self) -> GroupListings:
        """Returns all groups; each broker lists its own."""
        self.asked["Metadata"] += 1
        brokers = self.cluster.metadata([], refresh=True).brokers
        listed, away = query_each_broker(brokers, self._list_at)
        return GroupListings({one.group: one for one in listed}, away)

    def places(
        self, wanted: Mapping[int, WantedOffsets], known: Mapping[str, GroupOffsets]
    ) -> tuple[dict[str, GroupOffsets], dict[int, KafkaError]]:
        """Returns committed offsets of groups, given by coordinator, and errors of unavailable coordinators."""
        found, away = query_each_broker(wanted, lambda node: self._places_at(node, wanted[node], known))
        return {one.group: one for one in found}, away

    def all_places(self) -> tuple[dict[str, GroupListing], dict[str, GroupOffsets], list[KafkaError]]:
        """Returns groups that commit offsets, their committed offsets, and errors of brokers."""
        listed = self.listed()
        ours = {name: one for name, one in listed.groups.items() if one.reads_by_offsets}
        found, away = self.places(group_by_coordinator({name: one.coordinator for name, one in ours.items()}), {})
        return ours, found, [*listed.away.values(), *away.values()]

    def coordinators(self, groups: Sequence[str]) -> dict[str, int]:
        return self.located(groups).nodes

    def located(self, groups: Sequence[str]) -> GroupCoordinators:
        """Returns coordinators, and groups that this user may not describe."""
        found = GroupCoordinators({}, {})
        for some in in_slices(groups, GROUPS_PER_FIND_COORDINATOR):
            self.asked["FindCoordinator"] += 1
            answer = self.cluster.find_coordinators(GROUP_COORDINATOR, some)
            nodes, errors = parse_coordinators(answer, self.name)
            found.nodes.update(nodes)
            found.errors.update(errors)
        return found

    def commit(
        self, places: Mapping[int, GroupCommits], still: Callable[[], bool] = always_allowed
    ) -> dict[str, CommitCodes]:
        """Commit offsets for groups, given by coordinator. Returns Kafka's code for each offset.

        A coordinator refuses a group with members, so none is overtaken. An offset missing from the result may or may
        not be committed. Large groups take several requests. `still` is called before each: once false, nothing more is
        sent.
        """
        answers: dict[str, CommitCodes] = {}
        for node, groups in places.items():
            try:
                lines = self._lines_to(node, min(COMMIT_CONNECTIONS, len(groups)))
            except KafkaError as error:
                if not error.retriable:
                    raise
                continue
            names = list(groups)
            parts = [{name: groups[name] for name in names[number :: len(lines)]} for number in range(len(lines))]
            for found, requests in self._commit_all(list(zip(lines, parts, strict=True)), still):
                answers.update(found)
                self.asked["OffsetCommit"] += requests
        return answers

    def _commit_all(
        self, shares: Sequence[tuple[Connection, GroupCommits]], still: Callable[[], bool]
    ) -> list[tuple[dict[str, CommitCodes], int]]:
        """Commit each share over its connection, in threads if there are several."""
        if len(shares) == 1:
            return [self._commit_on(*shares[0], still)]
        with ThreadPoolExecutor(len(shares), thread_name_prefix=f"commits {self.name}") as pool:
            return [done.result() for done in [pool.submit(self._commit_on, *share, still) for share in shares]]

    def _commit_on(
        self, connection: Connection, groups: GroupCommits, still: Callable[[], bool]
    ) -> tuple[dict[str, CommitCodes], int]:
        """Returns codes, and the number of requests."""
        answers: dict[str, CommitCodes] = {}
        requests = 0
        try:
            connection.handwritten_version(OFFSET_COMMIT)
            for group, places in groups.items():
                left = [dict(places)] if places else []
                while left and still():
                    some, *others = split_commit(group, left.pop(0), self._commit_bytes.get(group, COMMIT_BYTES))
                    left = others + left
                    requests += 1
                    body = encode_offset_commit(group, some)
                    codes = connection.ask(OFFSET_COMMIT, OFFSET_FETCH_VERSION, body, parse_offset_commit)
                    if self._too_large(group, some, codes):
                        left.insert(0, some)
                    else:
                        answers.setdefault(group, {}).update(codes)
        except KafkaError as error:
            if not error.retriable:
                raise
        return answers, requests

    def _too_large(self, group: str, places: Mapping[TopicPartitionTuple, CommittedOffset], codes: CommitCodes) -> bool:
        """Whether to retry in smaller parts, which the group then keeps using."""
        most = self._commit_bytes.get(group, COMMIT_BYTES)
        refused = bool(codes) and _TOO_LARGE.issuperset(codes.values())
        if not refused or most <= COMMIT_BYTES_MIN or len(places) < 2:
            return False
        self._commit_bytes[group] = most // 2
        return True

    def _places_at(self, node: int, groups: WantedOffsets, known: Mapping[str, GroupOffsets]) -> Iterator[GroupOffsets]:
        for names in in_slices(groups, GROUPS_PER_OFFSET_FETCH):
            some = {name: groups[name] for name in names}
            self.asked["OffsetFetch"] += 1
            connection = self.cluster.connection_to(node)
            connection.handwritten_version(OFFSET_FETCH)
            body = encode_offset_fetch(some, stable=self.stable)
            read = partial(parse_offset_fetch, known=known)
            yield from connection.ask(OFFSET_FETCH, OFFSET_FETCH_VERSION, body, read)

    def _list_at(self, node: int) -> Iterator[GroupListing]:
        self.asked["ListGroups"] += 1
        connection = self.cluster.connection_to(node)
        answer: ListGroupsResponse | ListGroupsResponseV4
        if connection.api_version(LIST_GROUPS_KEY, 5, 4) >= 5:
            answer = connection.call(ListGroupsRequest(), ListGroupsResponse)
        else:
            answer = connection.call(ListGroupsRequestV4(), ListGroupsResponseV4)
        if answer.error_code:
            place = f"{self.name}: groups of broker {node}"
            raise kafka_error(int(answer.error_code), place, right="Describe on the cluster")
        for one in answer.groups:
            # Brokers before 3.8 know no kinds but the classic one.
            kind = str(getattr(one, "group_type", CLASSIC_TYPE)).lower()
            yield GroupListing(str(one.group_id), one.group_state, kind, one.protocol_type, node)

    def _lines_to(self, node: int, width: int) -> list[Connection]:
        if width == 1:
            return [self.cluster.connection_to(node)]
        lines = [connection for connection in self._lines.get(node, []) if connection.usable]
        while len(lines) < width:
            lines.append(self.cluster.dial(node))
        self._lines[node] = lines
        return lines[:width]


def parse_coordinators(answer: FindCoordinatorResponse, cluster: str) -> GroupCoordinators:
    found = GroupCoordinators({}, {})
    for one in answer.coordinators:
        code = int(one.error_code)
        if not code:
            found.nodes[one.key] = int(one.node_id)
        elif code not in COORDINATOR_UNAVAILABLE_CODES:
            place = f"{cluster}: coordinator of group {one.key}"
            found.errors[one.key] = kafka_error(code, place, right=f"Describe on group {one.key}")
    return found


def query_each_broker(
    nodes: Iterable[int], ask: Callable[[int], Iterable[Item]]
) -> tuple[list[Item], dict[int, KafkaError]]:
    """Returns items of all brokers, and errors of those without a complete answer. Raises final errors."""
    found: list[Item] = []
    away: dict[int, KafkaError] = {}
    for node in nodes:
        try:
            found.extend(ask(node))
        except KafkaError as error:
            if not error.retriable:
                raise
            away[node] = error
    return found, away


DEAD_STATE, EMPTY_STATE = "Dead", "Empty"
MEMBERS_PER_LEAVE_GROUP = 500
GROUPS_PER_DESCRIBE = 100


class GroupMembers(NamedTuple):
    """`state`: as the coordinator names it. `members`: group.instance.id by member id, None for dynamic members."""

    state: str
    members: dict[str, str | None]

    @property
    def settled(self) -> bool:
        """Whether no member is joining now."""
        return self.state in (DEAD_STATE, EMPTY_STATE, "Stable")


def read_group_members(cluster: KafkaCluster, node: int, group: str) -> GroupMembers:
    """KafkaError where the broker does not coordinate the group."""
    (found,) = _describe(cluster, node, [group]).groups
    if found.error_code and int(found.error_code) != Code.group_id_not_found:
        place = f"{cluster.name}: group {group}"
        raise kafka_error(int(found.error_code), place, right=f"Describe on group {group}")
    return GroupMembers(str(found.group_state), {str(one.member_id): one.group_instance_id for one in found.members})


def read_assigned_partitions(
    cluster: KafkaCluster, node: int, groups: Iterable[str]
) -> dict[str, frozenset[TopicPartition]]:
    """Returns partitions assigned in each group. Groups not described, or with other assignments, are left out."""
    held = {}
    for some in in_slices(sorted(groups), GROUPS_PER_DESCRIBE):
        for one in _describe(cluster, node, some).groups:
            if not one.error_code and one.protocol_type == "consumer":
                parts = (parse_assignment(member.member_assignment) for member in one.members)
                held[str(one.group_id)] = frozenset(chain.from_iterable(parts))
    return held


def parse_assignment(said: bytes) -> Iterator[TopicPartition]:
    """Yields partitions of a member's assignment, as the group leader wrote it; none for other bytes."""
    body = memoryview(said)
    try:
        # The first two bytes are its version; later versions begin in the same way.
        found = entity_reader(ConsumerProtocolAssignment)(check_response(body[2:], ConsumerProtocolAssignment), 0)[0]
    except (SerialError, WireError, LookupError, struct.error, ValueError, OverflowError):
        return
    for topic in found.assigned_partitions or ():
        yield from (TopicPartition(topic.topic, int(number)) for number in topic.partitions or ())


def _describe(cluster: KafkaCluster, node: int, groups: Iterable[str]) -> DescribeGroupsResponse:
    named = tuple(GroupId(group) for group in groups)
    request = DescribeGroupsRequest(groups=named, include_authorized_operations=False)
    return cluster.call("members of groups", request, DescribeGroupsResponse, node_id=node)


def remove_members(cluster: KafkaCluster, node: int, group: str, members: Mapping[str, str | None]) -> None:
    """Remove members still in the group. They learn so with their next request, and join again."""
    named = [MemberIdentity(member_id=one, group_instance_id=name) for one, name in sorted(members.items())]
    for some in in_slices(named, MEMBERS_PER_LEAVE_GROUP):
        request = LeaveGroupRequest(group_id=GroupId(group), members=tuple(some))
        answer = cluster.call("members that leave a group", request, LeaveGroupResponse, node_id=node)
        for code in (answer.error_code, *(one.error_code for one in answer.members)):
            if int(code) not in (Code.none, Code.unknown_member_id):
                raise kafka_error(int(code), f"{cluster.name}: group {group}", right=f"Read on group {group}")


SHARE_GROUPS_PER_REQUEST = 100


class ShareGroups:
    """Start offsets of share groups (Kafka 4.1 and newer), with the interface of `ConsumerGroups`: a committed offset
    is a start offset, without metadata.

    Records above the start that were acknowledged singly are known only to the group's own cluster. Elsewhere they are
    delivered again, which share groups allow.
    """

    def __init__(self, cluster: KafkaCluster, groups: ConsumerGroups) -> None:
        self._cluster, self._groups = cluster, groups
        self.name = cluster.name

    @property
    def asked(self) -> Counter[str]:
        return self._groups.asked

    def places(
        self, wanted: Mapping[int, WantedOffsets], known: Mapping[str, GroupOffsets]
    ) -> tuple[dict[str, GroupOffsets], dict[int, KafkaError]]:
        """Returns start offsets of groups, given by coordinator, and errors of unavailable coordinators."""
        found, away = query_each_broker(wanted, lambda node: self._described(node, list(wanted[node])))
        # The previous object where nothing changed.
        return {one.group: known[one.group] if known.get(one.group) == one else one for one in found}, away

    def located(self, groups: Sequence[str]) -> GroupCoordinators:
        return self._groups.located(groups)

    def commit(
        self, places: Mapping[int, GroupCommits], still: Callable[[], bool] = always_allowed
    ) -> dict[str, CommitCodes]:
        """Set start offsets. Returns Kafka's code for each. The coordinator refuses a group with members."""
        answers: dict[str, CommitCodes] = {}
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

    def _described(self, node: int, names: Sequence[str]) -> Iterator[GroupOffsets]:
        wanted = [DescribeShareGroupOffsetsRequestGroup(group_id=GroupId(name), topics=None) for name in names]
        for some in in_slices(wanted, SHARE_GROUPS_PER_REQUEST):
            self.asked["DescribeShareGroupOffsets"] += 1
            request = DescribeShareGroupOffsetsRequest(groups=tuple(some))
            answer = self._cluster.connection_to(node).call(request, DescribeShareGroupOffsetsResponse)
            yield from map(_places, answer.groups)

    def _altered(self, node: int, group: str, places: Mapping[TopicPartitionTuple, CommittedOffset]) -> CommitCodes:
        topics = grouped(
            (topic, AlterShareGroupOffsetsRequestPartition(partition_index=i32(number), start_offset=i64(place.offset)))
            for (topic, number), place in places.items()
        )
        asked = tuple(
            AlterShareGroupOffsetsRequestTopic(topic_name=TopicName(topic), partitions=tuple(ours))
            for topic, ours in topics.items()
        )
        request = AlterShareGroupOffsetsRequest(group_id=GroupId(group), topics=asked)
        answer = self._cluster.connection_to(node).call(request, AlterShareGroupOffsetsResponse)
        if answer.error_code:
            return dict.fromkeys(places, int(answer.error_code))
        return {
            (str(topic.topic_name), int(one.partition_index)): int(one.error_code)
            for topic in answer.responses
            for one in topic.partitions
        }


def _places(answer: DescribeShareGroupOffsetsResponseGroup) -> GroupOffsets:
    places: dict[TopicPartitionTuple, CommittedOffset] = {}
    failed: dict[TopicPartitionTuple, int] = {}
    for topic in answer.topics:
        for one in topic.partitions:
            where = (str(topic.topic_name), int(one.partition_index))
            if one.error_code:
                failed[where] = int(one.error_code)
            elif one.start_offset >= 0:
                places[where] = CommittedOffset(int(one.start_offset))
    return GroupOffsets(str(answer.group_id), int(answer.error_code), places, failed, b"")
