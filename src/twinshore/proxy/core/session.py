"""What becomes of each request of one client. Pure: the hands carry it out, and say what came of it.

A request is judged by what is known of the clusters at that moment. Whatever is not handled is refused, never passed
on: it would name brokers, topics or groups as clients see them, or as they must not see them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from twinshore.proxy.core import groups, lookups, transactions
from twinshore.proxy.core.admin import Judge, judges, refused_as_guarded
from twinshore.proxy.core.committed import Committed
from twinshore.proxy.core.flows import Counting, Flows, software_of
from twinshore.proxy.core.fused import Fused
from twinshore.proxy.core.fuses import Fusebox
from twinshore.proxy.core.layout import Layout, Place
from twinshore.proxy.core.moves import HangUp, Move, Say
from twinshore.proxy.core.near import Near, Reading
from twinshore.proxy.core.offers import (
    DESCRIBE_CLUSTER,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    HANDLED,
    HEARTBEAT,
    HEARTBEAT_OF_NEWER_GROUP,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    SYNC_GROUP,
    versions_body,
)
from twinshore.proxy.core.partition_questions import about_partitions
from twinshore.proxy.core.records import Records
from twinshore.proxy.core.resets import ResetBook, Resets
from twinshore.proxy.core.seen import CONSUMER_GROUP_DESCRIBE, Seen
from twinshore.wire.apis import (
    API_VERSIONS,
    FETCH,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    api_name,
)
from twinshore.wire.serving.requests import Request


class Session:
    """`place` is the broker that the client took the proxy for; None where it only knows the first port. `news` is
    called where the clusters should be looked at again, since they seem to be other than they are known. `box` has the
    fuses, `at_work` the members of all clients, `resets` the groups that are being set to other places, `flows` what
    all clients have done, `near` what is known of twins; `now` says what is known as an answer comes."""

    def __init__(
        self,
        place: Place | None,
        layout: Layout,
        news: Callable[[], None],
        box: Fusebox | None = None,
        now: Callable[[], Seen] | None = None,
        at_work: groups.AtWork | None = None,
        flows: Flows | None = None,
        resets: ResetBook | None = None,
        near: Near | None = None,
    ) -> None:
        self.place, self._layout, self._news = place, layout, news
        self._admin: Mapping[int, Judge] | None = None
        self._counting = Counting(flows)
        reading = self._reading = Reading(near or Near(), layout)
        as_seen = (lambda: reading.seen(now())) if now else None
        self._fused = Fused(Records(layout, news, as_seen, self._counting, reading), box or Fusebox())
        self._committed = Committed(self._counting)
        self._refused = transactions.Refused()
        at_work, resets = at_work or groups.AtWork(), resets or ResetBook()
        self._members = groups.Members(at_work)
        self._newer = groups.NewerGroups(at_work.refused, resets.holds, news)
        self._resets = Resets(resets, self._committed, self._member, as_seen)

    def comes_from(self, address: str) -> None:
        """Where the client is."""
        self._reading.comes_from(address)

    def close(self) -> None:
        """The client is gone."""
        self._resets.close()

    def is_made_with(self, software: str) -> str:
        """What the client says of itself; empty where it says nothing."""
        self._resets.is_made_with(software)
        return software

    def move(self, request: Request, seen: Seen) -> Move:
        """WireError where the request cannot be read: then the connection ends, as its next one cannot be either."""
        key, seen = request.key, self._reading.seen(seen)
        if key == API_VERSIONS:
            self._counting.is_made_with(request, self.is_made_with(software_of(request)))
            return Say([versions_body(request, seen.offers)])
        low, high = seen.offers.get(key, (0, -1))
        if not low <= request.version <= high:
            return HangUp(_not_offered(request, seen))
        if (refusal := refused_as_guarded(request, seen)) is not None:
            return refusal
        judge = _JUDGES.get(key)
        return judge(self, request, seen) if judge is not None else self._of_admins()[key](request, self.place, seen)

    def judged(self) -> frozenset[int]:
        """The requests that something is made of, beside the one for versions."""
        return frozenset(_JUDGES) | frozenset(self._of_admins())

    def _of_admins(self) -> Mapping[int, Judge]:
        """Made once one of these comes: few clients ever ask one."""
        if self._admin is None:
            self._admin = judges(self._layout, self._committed, self._news)
        return self._admin

    def _member(self, request: Request, place: Place | None, seen: Seen) -> Move:
        move = self._members.judge(request, place, seen)
        return self._newer.joins(request, move, seen) if request.key == JOIN_GROUP else move


# One table for all clients: one for each would be the larger part of what a client's session takes.
_JUDGES: Final[Mapping[int, Callable[[Session, Request, Seen], Move]]] = {
    PRODUCE: lambda client, request, seen: client._fused.on_produce(request, client.place, seen),
    FETCH: lambda client, request, seen: client._fused.on_fetch(request, client.place, seen),
    METADATA: lambda client, request, seen: lookups.metadata(
        request, client._layout, seen, client._news, client._counting, client._reading.copies
    ),
    FIND_COORDINATOR: lambda client, request, seen: lookups.find_coordinator(request, client._layout, seen),
    DESCRIBE_CLUSTER: lambda client, request, seen: lookups.describe_cluster(request, client._layout, seen),
    LIST_OFFSETS: lambda client, request, seen: about_partitions(request, client.place, seen),
    OFFSET_FOR_LEADER_EPOCH: lambda client, request, seen: about_partitions(request, client.place, seen),
    OFFSET_COMMIT: lambda client, request, seen: client._resets.commit(request, client.place, seen),
    OFFSET_FETCH: lambda client, request, seen: client._committed.fetch(request, client.place, seen),
    INIT_PRODUCER_ID: lambda client, request, seen: lookups.init_producer_id(request, client.place, seen),
    HEARTBEAT_OF_NEWER_GROUP: lambda client, request, seen: client._newer.beat(request, client.place, seen),
    transactions.ADD_PARTITIONS: lambda client, request, seen: client._refused.add_partitions(
        request, client.place, seen
    ),
    transactions.ADD_OFFSETS: lambda client, request, seen: transactions.add_offsets(request, client.place, seen),
    transactions.END_TRANSACTION: lambda client, request, seen: client._refused.end(request, client.place, seen),
    transactions.COMMIT_OFFSETS: lambda client, request, seen: client._resets.commit_in_transaction(
        request, client.place, seen
    ),
    **dict.fromkeys(
        (DESCRIBE_GROUPS, LIST_GROUPS, CONSUMER_GROUP_DESCRIBE),
        lambda client, request, seen: groups.of_admins(request, client.place, seen),
    ),
    **dict.fromkeys(
        (JOIN_GROUP, SYNC_GROUP, HEARTBEAT, LEAVE_GROUP),
        lambda client, request, seen: client._resets.of_members(request, client.place, seen),
    ),
}


def _not_offered(request: Request, seen: Seen) -> str:
    name = f"{api_name(request.key)} v{request.version}"
    if request.key not in HANDLED:
        return f"it asked {name}, which is not served"
    if request.key not in seen.offers:
        return f"it asked {name}, which not all clusters take"
    low, high = seen.offers[request.key]
    return f"it asked {name}, which is not served: v{low} to v{high} are"
