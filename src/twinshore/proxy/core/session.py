"""What becomes of each request of one client. Pure: the hands carry it out, and say what came of it.

A request is judged by what is known of the clusters at that moment. Whatever is not handled is refused, never passed
on: it would name brokers, topics or groups as clients see them, or as they must not see them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twinshore.proxy.core import groups, lookups
from twinshore.proxy.core.committed import Committed
from twinshore.proxy.core.layout import Layout, Place
from twinshore.proxy.core.moves import HangUp, Move, Say
from twinshore.proxy.core.offers import (
    DESCRIBE_CLUSTER,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    HANDLED,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    SYNC_GROUP,
    versions_body,
)
from twinshore.proxy.core.places import about_partitions
from twinshore.proxy.core.records import Records
from twinshore.proxy.core.seen import Seen
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

_OF_MEMBERS: Final = (JOIN_GROUP, SYNC_GROUP, HEARTBEAT, LEAVE_GROUP)


class Session:
    """`place` is the broker that the client took the proxy for; None where it only knows the first port. `news` is
    called where the clusters should be looked at again, since they seem to be other than they are known."""

    def __init__(self, place: Place | None, layout: Layout, news: Callable[[], None]) -> None:
        self.place, self._layout, self._news = place, layout, news
        self._records = Records(layout, news)
        self._committed = Committed()
        self._judges: dict[int, Callable[[Request, Place | None, Seen], Move]] = {
            PRODUCE: self._records.on_produce,
            FETCH: self._records.on_fetch,
            LIST_OFFSETS: about_partitions,
            OFFSET_FOR_LEADER_EPOCH: about_partitions,
            OFFSET_COMMIT: self._committed.commit,
            OFFSET_FETCH: self._committed.fetch,
            INIT_PRODUCER_ID: lookups.init_producer_id,
            DESCRIBE_GROUPS: groups.of_admins,
            LIST_GROUPS: groups.of_admins,
        }
        self._judges |= dict.fromkeys(_OF_MEMBERS, groups.of_members)

    def move(self, request: Request, seen: Seen) -> Move:
        """WireError where the request cannot be read: then the connection ends, as its next one cannot be either."""
        key = request.key
        if key == API_VERSIONS:
            return Say([versions_body(request, seen.offers)])
        low, high = seen.offers.get(key, (0, -1))
        if not low <= request.version <= high:
            return HangUp(_not_offered(request, seen))
        if (judge := self._judges.get(key)) is not None:
            return judge(request, self.place, seen)
        if key == METADATA:
            return lookups.metadata(request, self._layout, seen, self._news)
        if key == FIND_COORDINATOR:
            return lookups.find_coordinator(request, self._layout, seen)
        assert key == DESCRIBE_CLUSTER
        return lookups.describe_cluster(request, self._layout, seen)


def _not_offered(request: Request, seen: Seen) -> str:
    name = f"{api_name(request.key)} v{request.version}"
    if request.key not in HANDLED:
        return f"it asked {name}, which is not served"
    if request.key not in seen.offers:
        return f"it asked {name}, which not all clusters take"
    low, high = seen.offers[request.key]
    return f"it asked {name}, which is not served: v{low} to v{high} are"
