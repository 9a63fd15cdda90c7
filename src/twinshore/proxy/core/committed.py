"""Where groups stand: OffsetCommit and OffsetFetch, over all clusters. Pure.

A group is at home on one cluster. Its places in topics which that cluster does not have live with the topic, in a group
of the same name without members. Members are known at home only: so home says whether the member counts, before
anything is written elsewhere. What it has said holds for a short time alone: `still` is asked right before the writing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias

from twinshore.fleet.nouns import GROUPS_HOME
from twinshore.kafka.errors import Code
from twinshore.proxy.core import epochs
from twinshore.proxy.core.flows import Counting
from twinshore.proxy.core.groups import described, is_idle
from twinshore.proxy.core.layout import ANY, Place
from twinshore.proxy.core.messages import (
    answer_kind,
    error,
    filled,
    part_of,
    read_asked,
    read_said,
    refused_places,
    request_kind,
    with_errors,
    written,
)
from twinshore.proxy.core.moves import Ask, Errand, Hold, Move, Parts, Pass, Run, Said, Say
from twinshore.proxy.core.offers import FIND_COORDINATOR, HEARTBEAT
from twinshore.proxy.core.seen import Seen
from twinshore.wire.apis import OFFSET_COMMIT, OFFSET_FETCH
from twinshore.wire.serving.requests import Request

NO_MEMBER: Final = -1
_ERROR_OF_GROUP: Final = 2
_EPOCHS_OF_PLACES: Final = 5
_SEVERAL_GROUPS: Final = 8
_BATCHED_COORDINATORS: Final = 4
_TELLS_NO_GROUP: Final = 9
_OF_NEWER_GROUPS: Final = 9
# After this one every client asks the same broker the same again.
_AGAIN: Final = Code.COORDINATOR_LOAD_IN_PROGRESS
_MOVED: Final = Code.NOT_COORDINATOR
_Piece: TypeAlias = Generator[Sequence[Ask], Sequence[Said], Any]


class Committed:
    """For one client: it remembers where a group's coordinators were on other clusters."""

    def __init__(self, counting: Counting | None = None) -> None:
        self._coordinators: dict[tuple[str, str], int] = {}
        self._counting = counting or Counting()

    def commit_of(
        self, request: Request, asked: Any, place: Place | None, seen: Seen, still: Callable[[], bool] = lambda: True
    ) -> Move:
        """Each place where it lives, of what is `asked`. `still`: whether what it was judged by holds."""
        if place is None or place.cluster != seen.group_home():
            return Say(refused_places(request, asked.topics, Code.NOT_COORDINATOR))
        if seen.groups_wait:
            return Hold(refused_places(request, asked.topics, _AGAIN))
        self._counting.committed(request, str(asked.group_id), asked.topics, place.cluster)
        told = epochs.of_places(asked, seen)
        if all(seen.stays(str(one.name)) for one in asked.topics):
            rewrite = partial(_members_told, version=request.version) if request.version >= _TELLS_NO_GROUP else None
            body = written(told) if told is not asked else None
            return Pass(place, rewrite=rewrite, body=body, topics=(GROUPS_HOME,))
        asked = told
        return Run(self._commit(request, asked, place, seen, still), topics=(GROUPS_HOME,))

    def _commit(self, request: Request, asked: Any, place: Place, seen: Seen, still: Callable[[], bool]) -> Errand:
        if asked.generation_id_or_member_epoch != NO_MEMBER:
            code = yield from _member(request, asked, place, seen)
        else:
            idle = yield from is_idle(str(asked.group_id), place, seen)
            code = _AGAIN if idle is None else Code.NONE if idle else Code.UNKNOWN_MEMBER_ID
        if code not in (Code.NONE, Code.REBALANCE_IN_PROGRESS):
            return refused_places(request, asked.topics, code)
        asks: list[Ask] = []
        lost: dict[str, int] = {}
        for cluster, topics in by_cluster(asked.topics, seen).items():
            body = replace(asked, topics=topics)
            where: Place | Code = place
            if cluster != place.cluster:
                where = yield from self.coordinator(str(asked.group_id), cluster, seen)
                body = replace(body, generation_id_or_member_epoch=NO_MEMBER, member_id="")
                if hasattr(body, "group_instance_id"):
                    body = replace(body, group_instance_id=None)
            if isinstance(where, Code):
                lost |= {str(topic.name): where for topic in topics}
            else:
                asks.append(Ask(where, OFFSET_COMMIT, request.version, written(body)))
        if not still():
            return refused_places(request, asked.topics, _AGAIN)
        said = (yield asks) if asks else []
        told: dict[str, Any] = {}
        for ask, heard in zip(asks, said, strict=True):
            topics = () if heard is None else _by_member(read_said(OFFSET_COMMIT, request.version, heard)).topics
            codes = [part.error_code for one in topics for part in one.partitions]
            if ask.place == place or not self.moved(asked.group_id, ask.place, codes or [_MOVED]):
                told |= {str(one.name): one for one in topics}
        kind = answer_kind(OFFSET_COMMIT, request.version)
        missing = [one for one in asked.topics if str(one.name) not in told]
        refused = (with_errors(kind, one, lost.get(str(one.name), _AGAIN)) for one in missing)
        return written(filled(kind, topics=(*told.values(), *refused)))

    def fetch(self, request: Request, place: Place | None, seen: Seen) -> Move:
        """Each place from where it lives."""
        asked = read_asked(request)
        several = request.version >= _SEVERAL_GROUPS
        groups = asked.groups if several else [asked]
        if place is None or place.cluster != seen.group_home():
            return Say(_told_places(request, [_no_places(request, one, Code.NOT_COORDINATOR) for one in groups]))
        topics = [topic for one in groups for topic in one.topics or ()]
        names = [str(one.name) for one in topics]
        here = all(seen.stays(name) and not seen.may_be_apart(name) for name in names)
        if len(seen.clusters) == 1 or (here and all(one.topics is not None for one in groups)):
            hides = request.version >= _EPOCHS_OF_PLACES
            return Pass(place, rewrite=partial(_places_hidden, version=request.version) if hides else None)
        return Run(self._fetch(request, asked, groups, place, seen))

    def _fetch(self, request: Request, asked: Any, groups: Sequence[Any], place: Place, seen: Seen) -> Errand:
        told: dict[str, Any] = {}
        for group in groups:
            told[group.group_id] = yield from self._places(request, asked, group, place, seen)
        return _told_places(request, [*told.values()])

    def _places(self, request: Request, asked: Any, group: Any, place: Place, seen: Seen) -> _Piece:
        """Those of one group, as its answer has it; what cannot be had is an error of the whole group, since a place
        that seems to be missing would have the client begin anew."""
        shares = dict.fromkeys(seen.clusters) if group.topics is None else by_cluster(group.topics, seen)
        found = yield from self._places_at(request, asked, group, shares, place, seen)
        if isinstance(found, Mapping) and group.topics is not None and (more := _missing(group, found, place, seen)):
            # Its cluster may have got the twin since the group was there.
            elsewhere = yield from self._places_at(request, asked, group, more, place, seen)
            found = elsewhere if not isinstance(elsewhere, Mapping) else {**found, **elsewhere}
        if not isinstance(found, Mapping):
            return found
        kind = answer_kind(OFFSET_FETCH, request.version)
        kind = part_of(kind, "groups") if request.version >= _SEVERAL_GROUPS else kind
        return filled(kind, group_id=group.group_id, topics=_merged(found, seen))

    def _places_at(
        self, request: Request, asked: Any, group: Any, shares: Mapping[str, Any], place: Place, seen: Seen
    ) -> _Piece:
        """What these clusters say of the group's places, by cluster and topic; or an answer that is an error."""
        several = request.version >= _SEVERAL_GROUPS
        asks: list[Ask] = []
        for cluster, topics in shares.items():
            where: Place | Code = place
            one = replace(group, topics=topics)
            if cluster != place.cluster:
                where = yield from self.coordinator(str(group.group_id), cluster, seen)
                if hasattr(one, "member_id"):
                    one = replace(one, member_id=None, member_epoch=NO_MEMBER)
            if isinstance(where, Code):
                return _no_places(request, group, where)
            body = written(replace(asked, groups=(one,)) if several else one)
            asks.append(Ask(where, OFFSET_FETCH, request.version, body))
        said = (yield asks) if asks else []
        found: dict[tuple[str, str], Any] = {}
        for ask, heard in zip(asks, said, strict=True):
            whole = None if heard is None else read_said(OFFSET_FETCH, request.version, heard)
            answer = whole.groups[0] if several and whole is not None else whole
            code = _MOVED if answer is None else getattr(answer, "error_code", Code.NONE)
            if ask.place != place and self.moved(group.group_id, ask.place, [code]):
                return _no_places(request, group, _AGAIN)
            if answer is None or code:
                return answer or _no_places(request, group, _AGAIN)
            found |= {(ask.place.cluster, str(one.name)): epochs.without(one) for one in answer.topics}
        return found

    def coordinator(
        self, group: str, cluster: str, seen: Seen
    ) -> Generator[Sequence[Ask], Sequence[Said], Place | Code]:
        """Who keeps the group's places on a cluster that is not its home."""
        known = self._coordinators.get((cluster, group))
        if known is not None:
            return Place(cluster, known)
        if not seen.clusters[cluster].answers:
            return _AGAIN
        version = seen.offers[FIND_COORDINATOR][1]
        body = written(filled(request_kind(FIND_COORDINATOR, version), key=group, coordinator_keys=(group,)))
        (said,) = yield [Ask(Place(cluster, ANY), FIND_COORDINATOR, version, body)]
        whole = None if said is None else read_said(FIND_COORDINATOR, version, said)
        answer = whole.coordinators[0] if whole is not None and version >= _BATCHED_COORDINATORS else whole
        if answer is None or answer.error_code:
            return _AGAIN
        self._coordinators[cluster, group] = answer.node_id
        return Place(cluster, answer.node_id)

    def moved(self, group: str, place: Place, codes: Sequence[int]) -> bool:
        """Whether another broker keeps the group's places there by now, or this one answers nothing: who does is asked
        anew. The client knows its group's home only, and would look for that one."""
        moved = any(code in (Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE) for code in codes)
        if moved:
            self._coordinators.pop((place.cluster, str(group)), None)
        return moved


def _members_told(view: memoryview, at: int, version: int) -> Parts | None:
    """The answer to a commit where there is no such group; None where there is."""
    whole = read_said(OFFSET_COMMIT, version, view[at:])
    told = _by_member(whole)
    return None if told is whole else written(told)


def _by_member(whole: Any) -> Any:
    """A member of a group that has moved without it is told that it is none: it joins anew then. That there is no such
    group would be told to its application."""
    if all(part.error_code != Code.GROUP_ID_NOT_FOUND for one in whole.topics for part in one.partitions):
        return whole

    def told(part: Any) -> Any:
        gone = part.error_code == Code.GROUP_ID_NOT_FOUND
        return replace(part, error_code=error(Code.UNKNOWN_MEMBER_ID)) if gone else part

    topics = (replace(one, partitions=tuple(map(told, one.partitions))) for one in whole.topics)
    return replace(whole, topics=tuple(topics))


def _places_hidden(view: memoryview, at: int, version: int) -> Parts:
    """The answer without leader epochs."""
    whole = read_said(OFFSET_FETCH, version, view[at:])
    if version < _SEVERAL_GROUPS:
        return written(replace(whole, topics=tuple(map(epochs.without, whole.topics))))
    groups = (replace(one, topics=tuple(map(epochs.without, one.topics))) for one in whole.groups)
    return written(replace(whole, groups=tuple(groups)))


def _member(request: Request, asked: Any, place: Place, seen: Seen) -> Generator[Sequence[Ask], Sequence[Said], int]:
    """What home says of the member that commits."""
    version = seen.offers[HEARTBEAT][1]
    beat = filled(
        request_kind(HEARTBEAT, version),
        group_id=asked.group_id,
        generation_id=asked.generation_id_or_member_epoch,
        member_id=asked.member_id,
        group_instance_id=getattr(asked, "group_instance_id", None),
    )
    (said,) = yield [Ask(place, HEARTBEAT, version, written(beat))]
    if said is None:
        return Code.COORDINATOR_NOT_AVAILABLE
    code = int(read_said(HEARTBEAT, version, said).error_code)
    if code == Code.UNKNOWN_MEMBER_ID and seen.serves_newer_groups and request.version >= _OF_NEWER_GROUPS:
        # A heartbeat of the newer protocol would take from the member what only its own is to be told.
        one = yield from described(str(asked.group_id), str(asked.member_id), place, seen)
        if one is not None:
            epoch = asked.generation_id_or_member_epoch
            return Code.NONE if one.member_epoch == epoch else Code.STALE_MEMBER_EPOCH
    return code


def by_cluster(topics: Sequence[Any], seen: Seen) -> dict[str, tuple[Any, ...]]:
    """The topics by the cluster where places in them are kept."""
    found: dict[str, tuple[Any, ...]] = {}
    for one in topics:
        cluster = seen.keeps(str(one.name))
        found[cluster] = (*found.get(cluster, ()), one)
    return found


def _missing(group: Any, found: Mapping[tuple[str, str], Any], place: Place, seen: Seen) -> dict[str, tuple[Any, ...]]:
    """What is not at the groups' home and may be on the topic's own cluster, by that."""
    more: dict[str, tuple[Any, ...]] = {}
    for topic in group.topics:
        name = str(topic.name)
        there = found.get((place.cluster, name))
        has = {one.partition_index for one in there.partitions if _is_place(one)} if there is not None else set()
        if seen.may_be_apart(name) and not has.issuperset(topic.partition_indexes):
            cluster = seen.routes[name]
            more[cluster] = (*more.get(cluster, ()), topic)
    return more


def _merged(found: Mapping[tuple[str, str], Any], seen: Seen) -> tuple[Any, ...]:
    """Each topic once: where its places are kept, and of places that are not there those on its own cluster."""
    told: dict[str, Any] = {}
    for (cluster, name), topic in found.items():
        if cluster == seen.keeps(name):
            told[name] = topic
    for (cluster, name), topic in found.items():
        if seen.may_be_apart(name) and cluster == seen.routes[name]:
            parts = {one.partition_index: one for one in topic.partitions}
            parts |= {
                one.partition_index: one for one in (told[name].partitions if name in told else ()) if _is_place(one)
            }
            told[name] = replace(topic, partitions=tuple(parts.values()))
    return tuple(told.values())


def _is_place(part: Any) -> bool:
    """Whether a place is there, or it is not known."""
    return bool(part.error_code) or part.committed_offset >= 0


def _no_places(request: Request, group: Any, code: Code) -> Any:
    """The error at each partition where the version has no other place for it. Else not there as well, since clients
    would take the partitions for lost."""
    kind = answer_kind(OFFSET_FETCH, request.version)
    kind = part_of(kind, "groups") if request.version >= _SEVERAL_GROUPS else kind
    if request.version >= _ERROR_OF_GROUP:
        return filled(kind, group_id=group.group_id, error_code=error(code))
    return filled(kind, topics=tuple(with_errors(kind, one, code) for one in group.topics or ()))


def _told_places(request: Request, told: Sequence[Any]) -> Parts:
    if request.version < _SEVERAL_GROUPS:
        return written(told[0])
    return written(filled(answer_kind(OFFSET_FETCH, request.version), groups=tuple(told)))
