"""DeleteGroups and OffsetDelete: a group's places end wherever they live. Pure.

The groups' home goes first, since it alone knows whether a group has members. Nothing elsewhere ends before it agrees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from twinshore.fleet.nouns import GROUPS_HOME
from twinshore.kafka.errors import Code
from twinshore.proxy.core.admin.shares import CHANGE_S, Piece
from twinshore.proxy.core.admin.versions import DELETE_GROUPS, OFFSET_DELETE
from twinshore.proxy.core.committed import Committed, by_cluster
from twinshore.proxy.core.layout import Place
from twinshore.proxy.core.messages import (
    answer_kind,
    error,
    filled,
    part_of,
    read_asked,
    read_said,
    refusal,
    request_kind,
    written,
)
from twinshore.proxy.core.moves import Ask, Errand, Hold, Move, Parts, Pass, Run, Say
from twinshore.proxy.core.newer_groups import is_idle
from twinshore.proxy.core.seen import Seen
from twinshore.wire.serving.requests import Request

# After this one every client asks the same broker the same again.
_AGAIN: Final = Code.COORDINATOR_LOAD_IN_PROGRESS
# A coordinator that says nothing: the next try looks for another.
_GONE: Final = Code.NOT_COORDINATOR


class Ends:
    """For one client, whose committer knows the coordinators elsewhere."""

    def __init__(self, committed: Committed) -> None:
        self._committed = committed

    def delete_groups(self, request: Request, place: Place | None, seen: Seen) -> Move:
        """At home and everywhere else, and not while groups move. While a cluster is away no group is deleted: one of
        that name would later begin at the places that were left there."""
        asked = read_asked(request)
        if place is None or place.cluster != seen.group_home():
            return Say(_deleted(request, dict.fromkeys(asked.groups_names, Code.NOT_COORDINATOR)))
        if seen.groups_gather:
            return Hold(_deleted(request, dict.fromkeys(asked.groups_names, _AGAIN)))
        if len(seen.clusters) == 1:
            return Pass(place, topics=(GROUPS_HOME,))
        if len(seen.answering()) < len(seen.clusters):
            return Say(_deleted(request, dict.fromkeys(asked.groups_names, _AGAIN)))
        return Run(self._delete_groups(request, asked, place, seen), CHANGE_S, (GROUPS_HOME,))

    def _delete_groups(self, request: Request, asked: Any, place: Place, seen: Seen) -> Errand:
        codes = yield from self._deleted_at(place, request.version, asked.groups_names)
        for cluster in seen.clusters:
            if cluster == place.cluster:
                continue
            left = [group for group, code in codes.items() if code in (Code.NONE, Code.GROUP_ID_NOT_FOUND)]
            there = yield from self._deleted_on(cluster, request.version, left, seen)
            codes |= {group: code for group, code in there.items() if code != Code.GROUP_ID_NOT_FOUND}
        return _deleted(request, codes)

    def _deleted_at(self, place: Place, version: int, groups: Sequence[Any]) -> Piece[dict[Any, int]]:
        body = written(filled(request_kind(DELETE_GROUPS, version), groups_names=tuple(groups)))
        (said,) = yield [Ask(place, DELETE_GROUPS, version, body)]
        told = () if said is None else read_said(DELETE_GROUPS, version, said).results
        return dict.fromkeys(groups, int(_GONE)) | {one.group_id: int(one.error_code) for one in told}

    def _deleted_on(self, cluster: str, version: int, groups: Sequence[Any], seen: Seen) -> Piece[dict[Any, int]]:
        """Up to the first that has no coordinator: a cluster that hangs would take as long for each of the others."""
        codes = dict.fromkeys(groups, int(_AGAIN))
        for group in groups:
            where = yield from self._committed.coordinator(str(group), cluster, seen)
            if isinstance(where, Code):
                break
            said = yield from self._deleted_at(where, version, [group])
            if self._committed.moved(group, where, [*said.values()]):
                break
            codes |= said
        return codes

    def delete_places(self, request: Request, place: Place | None, seen: Seen) -> Move:
        """OffsetDelete: each place where it lives. What lives elsewhere is left alone while the group has members."""
        asked = read_asked(request)
        if place is None or place.cluster != seen.group_home():
            return Say(refusal(request, Code.NOT_COORDINATOR))
        if seen.groups_gather:
            return Hold(refusal(request, _AGAIN))
        shares = by_cluster(asked.topics, seen)
        if set(shares) <= {place.cluster}:
            return Pass(place, topics=(GROUPS_HOME,))
        return Run(self._delete_places(request, asked, shares, place, seen), CHANGE_S, (GROUPS_HOME,))

    def _delete_places(
        self, request: Request, asked: Any, shares: dict[str, tuple[Any, ...]], place: Place, seen: Seen
    ) -> Errand:
        idle = yield from is_idle(str(asked.group_id), place, seen)
        if idle is None:
            return refusal(request, _AGAIN)
        told: list[Any] = []
        asks: list[Ask] = []
        for cluster, topics in shares.items():
            where: Place | Code = place
            if cluster != place.cluster:
                where = Code.GROUP_SUBSCRIBED_TO_TOPIC
                if idle:
                    where = yield from self._committed.coordinator(str(asked.group_id), cluster, seen)
            if isinstance(where, Code):
                told += [_failed(request, one, where) for one in topics]
            else:
                asks.append(Ask(where, OFFSET_DELETE, request.version, written(replace(asked, topics=topics))))
        said = (yield asks) if asks else []
        for ask, heard in zip(asks, said, strict=True):
            answer = None if heard is None else read_said(OFFSET_DELETE, request.version, heard)
            code = int(_GONE if answer is None else answer.error_code)
            if ask.place != place and self._committed.moved(asked.group_id, ask.place, [code]):
                code = _AGAIN
            if code == Code.GROUP_ID_NOT_FOUND and len(shares) > 1:
                code = Code.NONE  # Nothing is there to end, and there may be elsewhere.
                told += [_failed(request, one, Code.NONE) for one in shares[ask.place.cluster]]
            elif code:
                if len(shares) == 1:
                    return refusal(request, Code(code))
                told += [_failed(request, one, code) for one in shares[ask.place.cluster]]
            elif answer is not None:
                told += answer.topics
        return written(filled(answer_kind(OFFSET_DELETE, request.version), topics=tuple(told)))


def _deleted(request: Request, codes: dict[Any, Any]) -> Parts:
    kind = answer_kind(DELETE_GROUPS, request.version)
    part = part_of(kind, "results")
    results = tuple(filled(part, group_id=group, error_code=error(code)) for group, code in codes.items())
    return written(filled(kind, results=results))


def _failed(request: Request, topic: Any, code: int) -> Any:
    kind = part_of(answer_kind(OFFSET_DELETE, request.version), "topics")
    part = part_of(kind, "partitions")
    said = error(code)
    partitions = tuple(filled(part, partition_index=one.partition_index, error_code=said) for one in topic.partitions)
    return filled(kind, name=topic.name, partitions=partitions)
