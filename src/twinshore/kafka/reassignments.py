"""Which partitions are on the move: until a new replica has caught up, metadata names old and new ones alike."""

from __future__ import annotations

import datetime
from typing import NamedTuple

from kio.schema.list_partition_reassignments.v0 import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from kio.static.primitive import i32Timedelta

from twinshore.fleet import NamedPartition
from twinshore.kafka.connection import Connection
from twinshore.kafka.errors import kafka_error


class Move(NamedTuple):
    """Replicas that a partition gets, and those that it is rid of once it has them."""

    adding: tuple[int, ...]
    removing: tuple[int, ...]


def ask_moves(line: Connection, timeout_s: float) -> dict[NamedPartition, Move]:
    """Of the whole cluster. Its controller knows, and so does any broker where the controller is none of them."""
    wait = i32Timedelta.parse(datetime.timedelta(milliseconds=int(800 * timeout_s)))
    request = ListPartitionReassignmentsRequest(timeout=wait, topics=None)
    answer = line.call(request, ListPartitionReassignmentsResponse, timeout_s=timeout_s)
    if answer.error_code:
        place = f"{line.place}: which partitions are on the move"
        detail = answer.error_message or ""
        raise kafka_error(int(answer.error_code), place, detail=detail, right="Describe on the cluster")
    return {
        NamedPartition(str(topic.name), int(one.partition_index)): Move(
            tuple(map(int, one.adding_replicas)), tuple(map(int, one.removing_replicas))
        )
        for topic in answer.topics
        for one in topic.partitions
    }
