"""The members of one group of the classic protocol, and sending them away, by its coordinator."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from kio.schema.consumer_protocol_assignment.v0 import ConsumerProtocolAssignment
from kio.schema.describe_groups.v5 import DescribeGroupsRequest, DescribeGroupsResponse
from kio.schema.leave_group.v4 import LeaveGroupRequest, LeaveGroupResponse
from kio.schema.leave_group.v4.request import MemberIdentity
from kio.schema.types import GroupId
from kio.serial import entity_reader
from kio.serial.errors import SerialError

from twinshore.fleet import NamedPartition, WireError
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.connection import Connection
from twinshore.kafka.errors import Code, kafka_error
from twinshore.kafka.shapes import checked

DEAD, EMPTY = "Dead", "Empty"
MEMBERS_AT_ONCE = 500
GROUPS_AT_ONCE = 100


class GroupMembers(NamedTuple):
    """`state` as its coordinator calls it. `members`: those of a name that lasts have it, by their ids."""

    state: str
    members: dict[str, str | None]

    @property
    def settled(self) -> bool:
        """Whether nobody is just joining."""
        return self.state in (DEAD, EMPTY, "Stable")


def members_of(cluster: KafkaCluster, node: int, group: str) -> GroupMembers:
    """As the coordinator on this broker knows them; KafkaError where it is none."""

    (found,) = cluster.at(node, "members of a group", partial(_describe, [group])).groups
    if found.error_code and int(found.error_code) != Code.GROUP_ID_NOT_FOUND:
        place = f"{cluster.name}: group {group}"
        raise kafka_error(int(found.error_code), place, right=f"Describe on group {group}")
    return GroupMembers(str(found.group_state), {str(one.member_id): one.group_instance_id for one in found.members})


def held_by_members(cluster: KafkaCluster, node: int, groups: Iterable[str]) -> dict[str, frozenset[NamedPartition]]:
    """What the members of each hold now. A group that the coordinator does not describe, or that deals out something
    else than partitions, is left out."""
    named, held = sorted(groups), {}
    for start in range(0, len(named), GROUPS_AT_ONCE):
        describe = partial(_describe, named[start : start + GROUPS_AT_ONCE])
        for one in cluster.at(node, "members of groups", describe).groups:
            if not one.error_code and one.protocol_type == "consumer":
                parts = (part for member in one.members for part in assigned(member.member_assignment))
                held[str(one.group_id)] = frozenset(parts)
    return held


def assigned(said: bytes) -> Iterator[NamedPartition]:
    """The partitions in a member's share, as the group's leader wrote it; none where these bytes are no such share."""
    body = memoryview(said)
    try:
        # The first two bytes are its version; later ones begin alike.
        found = entity_reader(ConsumerProtocolAssignment)(checked(body[2:], ConsumerProtocolAssignment), 0)[0]
    except (SerialError, WireError, LookupError, struct.error, ValueError, OverflowError):
        return
    for topic in found.assigned_partitions or ():
        yield from (NamedPartition(topic.topic, int(number)) for number in topic.partitions or ())


def _describe(groups: Iterable[str], connection: Connection, timeout_s: float) -> DescribeGroupsResponse:
    named = tuple(GroupId(group) for group in groups)
    request = DescribeGroupsRequest(groups=named, include_authorized_operations=False)
    return connection.call(request, DescribeGroupsResponse, timeout_s=timeout_s)


def send_away(cluster: KafkaCluster, node: int, group: str, members: Mapping[str, str | None]) -> None:
    """These leave the group, as far as they are still in it. They learn of it with their next request, and join
    anew."""
    named = [MemberIdentity(member_id=one, group_instance_id=name) for one, name in sorted(members.items())]
    for start in range(0, len(named), MEMBERS_AT_ONCE):
        some = tuple(named[start : start + MEMBERS_AT_ONCE])
        answer = cluster.at(node, "members that leave a group", partial(_ask_to_leave, group, some))
        for code in (answer.error_code, *(one.error_code for one in answer.members)):
            if int(code) not in (Code.NONE, Code.UNKNOWN_MEMBER_ID):
                raise kafka_error(int(code), f"{cluster.name}: group {group}", right=f"Read on group {group}")


def _ask_to_leave(
    group: str, some: tuple[MemberIdentity, ...], connection: Connection, timeout_s: float
) -> LeaveGroupResponse:
    request = LeaveGroupRequest(group_id=GroupId(group), members=some)
    return connection.call(request, LeaveGroupResponse, timeout_s=timeout_s)
