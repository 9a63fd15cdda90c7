"""Members of groups, and lists of groups: passed on to the groups' home, refused elsewhere. Pure."""

from __future__ import annotations

from typing import Final

from twinshore.kafka.errors import Code
from twinshore.proxy.core.layout import Place
from twinshore.proxy.core.messages import answer_kind, error, filled, part_of, read_asked, refusal, written
from twinshore.proxy.core.moves import ANSWER_S, Move, Pass, Say
from twinshore.proxy.core.offers import DESCRIBE_GROUPS, JOIN_GROUP, LIST_GROUPS, SYNC_GROUP
from twinshore.proxy.core.seen import Seen
from twinshore.wire.serving.requests import Request

# Whoever joins is answered once all others have: as late as the slowest of them may, half an hour where it is Connect.
_JOINING_S: Final = 1800.0


def of_members(request: Request, place: Place | None, seen: Seen) -> Move:
    """JoinGroup, SyncGroup, Heartbeat and LeaveGroup."""
    if place is None or place.cluster != seen.group_home():
        return Say(refusal(request, Code.NOT_COORDINATOR))
    return Pass(place, _JOINING_S if request.key in (JOIN_GROUP, SYNC_GROUP) else ANSWER_S)


def of_admins(request: Request, place: Place | None, seen: Seen) -> Move:
    """DescribeGroups and ListGroups. Elsewhere than at home a group has only places, and is not listed again."""
    if place is not None and place.cluster == seen.group_home():
        return Pass(place)
    if request.key == LIST_GROUPS:
        return Say(written(filled(answer_kind(LIST_GROUPS, request.version))))
    kind = answer_kind(DESCRIBE_GROUPS, request.version)
    part, code = part_of(kind, "groups"), error(Code.NOT_COORDINATOR)
    groups = tuple(filled(part, group_id=group, error_code=code) for group in read_asked(request).groups)
    return Say(written(filled(kind, groups=groups)))
