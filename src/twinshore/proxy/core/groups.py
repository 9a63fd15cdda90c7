"""Members of groups, and lists of groups: passed on to the groups' home, refused elsewhere. Pure.

Before groups move their members gather: each commits what it has read, joins anew, and waits for its answer until the
groups are elsewhere. A member that was heard of and has not joined anew since is **at work**: it may still commit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from twinshore.kafka.errors import Code
from twinshore.proxy.core.layout import Place
from twinshore.proxy.core.messages import answer_kind, error, filled, part_of, read_asked, refusal, written
from twinshore.proxy.core.moves import ANSWER_S, Hold, Move, Pass, Say
from twinshore.proxy.core.offers import DESCRIBE_GROUPS, HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, LIST_GROUPS, SYNC_GROUP
from twinshore.proxy.core.seen import Seen
from twinshore.wire.serving.requests import Request

# Whoever joins is answered once all others have: as late as the slowest of them may, half an hour where it is Connect.
_JOINING_S: Final = 1800.0


# Members say every three seconds by default that they are there, also over a connection that is new.
_GONE_S: Final = 5.0
# Of what is said in one second.
_REFUSED_MAX: Final = 8
# A client is a member of one group; whoever says that it is one of many more is not believed.
_GROUPS_MAX: Final = 16


class AtWork:
    """The groups of which members are at work, of all clients. One whose connection has ended may come again by
    another, and counts for some seconds more."""

    def __init__(self) -> None:
        self._groups = Counter[str]()
        self._gone: list[tuple[str, float | None]] = []
        self._refused: dict[str, None] = {}

    def refused(self, why: str) -> None:
        """A member was, and whoever looks after the proxy should know why."""
        if len(self._refused) < _REFUSED_MAX:
            self._refused[why] = None

    def told(self) -> list[str]:
        """Why members were refused since this was asked last."""
        found, self._refused = list(self._refused), {}
        return found

    def begins(self, group: str) -> None:
        self._groups[group] += 1

    def ends(self, group: str) -> None:
        self._groups[group] -= 1
        if self._groups[group] <= 0:
            del self._groups[group]

    def leaves(self, groups: Iterable[str]) -> None:
        """A client with members of these is gone."""
        self._gone += [(group, None) for group in groups]

    def look(self, now_s: float) -> None:
        """Once a second: forgets those who did not come again."""
        dated = [(group, now_s if since_s is None else since_s) for group, since_s in self._gone]
        self._gone = [one for one in dated if now_s <= one[1] + _GONE_S]
        for group, since_s in dated:
            if now_s > since_s + _GONE_S:
                self.ends(group)

    def some(self, most: int) -> tuple[str, ...]:
        """Some of them, so many at most; empty where there are none."""
        return tuple(sorted(self._groups)[:most])


class Members:
    """For one client: of which groups it has a member at work."""

    def __init__(self, at_work: AtWork) -> None:
        self._at_work, self._groups = at_work, set[str]()

    def judge(self, request: Request, place: Place | None, seen: Seen) -> Move:
        """JoinGroup, SyncGroup, Heartbeat and LeaveGroup."""
        group = str(read_asked(request).group_id)
        if request.key in (JOIN_GROUP, LEAVE_GROUP) or place is None or place.cluster != seen.group_home():
            if group in self._groups:
                self._groups.discard(group)
                self._at_work.ends(group)
        elif group not in self._groups and len(self._groups) < _GROUPS_MAX:
            self._groups.add(group)
            self._at_work.begins(group)
        return of_members(request, place, seen)

    def close(self) -> None:
        """The client is gone."""
        self._at_work.leaves(self._groups)
        self._groups.clear()


def of_members(request: Request, place: Place | None, seen: Seen) -> Move:
    """JoinGroup, SyncGroup, Heartbeat and LeaveGroup."""
    if place is None or place.cluster != seen.group_home():
        return Say(refusal(request, Code.NOT_COORDINATOR))
    if seen.groups_gather and request.key == HEARTBEAT:
        # Who is told so commits what it has read, and joins anew.
        return Say(refusal(request, Code.REBALANCE_IN_PROGRESS))
    if seen.groups_gather and request.key == JOIN_GROUP:
        return Hold(refusal(request, Code.COORDINATOR_LOAD_IN_PROGRESS))
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
