"""What becomes of each request of one client. Pure: the hands carry it out, and say what came of it.

A request is judged by what is known of the clusters at that moment. Whatever is not handled is refused, never passed
on: it would name brokers, topics or groups as clients see them, or as they must not see them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twinshore.proxy.core import groups, lookups, newer_groups, transactions
from twinshore.proxy.core.admin.table import judges
from twinshore.proxy.core.committed import Committed
from twinshore.proxy.core.counting import Counting, software_of
from twinshore.proxy.core.flows import Flows
from twinshore.proxy.core.fused import Fused
from twinshore.proxy.core.fuses import Fusebox
from twinshore.proxy.core.layout import Layout, Place
from twinshore.proxy.core.moves import HangUp, Move, Say
from twinshore.proxy.core.near.knows import Near
from twinshore.proxy.core.near.reading import Reading
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
from twinshore.proxy.core.places import about_partitions
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

_OF_MEMBERS: Final = (JOIN_GROUP, SYNC_GROUP, HEARTBEAT, LEAVE_GROUP)


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
        self._counting = Counting(flows)
        reading = self._reading = Reading(near or Near(), layout)
        as_seen = (lambda: reading.seen(now())) if now else None
        fused = Fused(Records(layout, news, as_seen, self._counting, reading), box or Fusebox())
        self._committed = Committed(self._counting)
        self._refused = transactions.Refused()
        at_work, resets = at_work or groups.AtWork(), resets or ResetBook()
        self._members = groups.Members(at_work)
        self._newer = newer_groups.NewerGroups(at_work.refused, resets.holds, news)
        self._resets = Resets(resets, self._committed, self._of_members, as_seen)
        self._judges: dict[int, Callable[[Request, Place | None, Seen], Move]] = {
            PRODUCE: fused.on_produce,
            FETCH: fused.on_fetch,
            METADATA: self._metadata,
            FIND_COORDINATOR: self._coordinator,
            DESCRIBE_CLUSTER: self._cluster,
            LIST_OFFSETS: about_partitions,
            OFFSET_FOR_LEADER_EPOCH: about_partitions,
            OFFSET_COMMIT: self._resets.commit,
            OFFSET_FETCH: self._committed.fetch,
            INIT_PRODUCER_ID: lookups.init_producer_id,
            DESCRIBE_GROUPS: groups.of_admins,
            LIST_GROUPS: groups.of_admins,
            HEARTBEAT_OF_NEWER_GROUP: self._newer.beat,
            CONSUMER_GROUP_DESCRIBE: newer_groups.describe,
        }
        self._judges |= {
            transactions.ADD_PARTITIONS: self._refused.add_partitions,
            transactions.ADD_OFFSETS: transactions.add_offsets,
            transactions.END_TRANSACTION: self._refused.end,
            transactions.COMMIT_OFFSETS: self._resets.commit_in_transaction,
        }
        self._judges |= dict.fromkeys(_OF_MEMBERS, self._resets.of_members)
        self._judges |= judges(layout, self._committed, news)

    def comes_from(self, address: str) -> None:
        """Where the client is."""
        self._reading.comes_from(address)

    def close(self) -> None:
        """The client is gone."""
        self._members.close()
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
        return self._judges[key](request, self.place, seen)

    def judged(self) -> frozenset[int]:
        """The requests that something is made of, beside the one for versions."""
        return frozenset(self._judges)

    def _metadata(self, request: Request, _: Place | None, seen: Seen) -> Move:
        return lookups.metadata(request, self._layout, seen, self._news, self._counting, self._reading.copies)

    def _of_members(self, request: Request, place: Place | None, seen: Seen) -> Move:
        move = self._members.judge(request, place, seen)
        return self._newer.joins(request, move, seen) if request.key == JOIN_GROUP else move

    def _coordinator(self, request: Request, _: Place | None, seen: Seen) -> Move:
        return lookups.find_coordinator(request, self._layout, seen)

    def _cluster(self, request: Request, _: Place | None, seen: Seen) -> Move:
        return lookups.describe_cluster(request, self._layout, seen)


def _not_offered(request: Request, seen: Seen) -> str:
    name = f"{api_name(request.key)} v{request.version}"
    if request.key not in HANDLED:
        return f"it asked {name}, which is not served"
    if request.key not in seen.offers:
        return f"it asked {name}, which not all clusters take"
    low, high = seen.offers[request.key]
    return f"it asked {name}, which is not served: v{low} to v{high} are"
