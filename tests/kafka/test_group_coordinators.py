"""What an answer says of many groups' coordinators, some of which are away and some not ours to ask about."""

from __future__ import annotations

import datetime

from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v4.response import Coordinator, FindCoordinatorResponse
from kio.schema.types import BrokerId
from kio.static.primitive import i32, i32Timedelta

from twinshore.kafka.consumer_groups import parse_coordinators


def said(group: str, node: int, error: ErrorCode = ErrorCode.none) -> Coordinator:
    return Coordinator(key=group, node_id=BrokerId(node), host="", port=i32(0), error_code=error, error_message=None)


def test_a_group_that_is_refused_hinders_none_that_is_answered() -> None:
    coordinators = (
        said("a", 1),
        said("forbidden", -1, ErrorCode.group_authorization_failed),
        said("moves", -1, ErrorCode.coordinator_not_available),
        said("z", 2),
    )
    answer = FindCoordinatorResponse(throttle_time=i32Timedelta.parse(datetime.timedelta(0)), coordinators=coordinators)
    found = parse_coordinators(answer, "west")
    assert found.nodes == {"a": 1, "z": 2}
    assert list(found.errors) == ["forbidden"]
    error = found.errors["forbidden"]
    assert (error.code, error.retriable) == (30, False)
    assert error.message.startswith("west: coordinator of group forbidden: ")
    assert "Describe on group forbidden" in error.hint
