"""What the first cluster answers for all, and moves of replicas, of which each cluster tells. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from twinshore.kafka.errors import Code
from twinshore.proxy.core.admin.shares import controller, first_of, located, refused_whole
from twinshore.proxy.core.layout import ANY, Layout, Place
from twinshore.proxy.core.messages import answer_kind, filled, read_asked, read_said, written
from twinshore.proxy.core.moves import Ask, Errand, Move, Run, Say
from twinshore.proxy.core.seen import Seen
from twinshore.wire.serving.requests import Request


def of_first(request: Request, seen: Seen) -> Move:
    """DescribeAcls and DescribeClientQuotas. Those of other clusters may be others; a mirror writes its own there."""
    read_asked(request)
    first = first_of(seen)
    if not seen.clusters[first].answers:
        return Say(refused_whole(request, Code.REQUEST_TIMED_OUT, f"cluster {first} does not answer"))
    return Run(_of_first(request, first))


def _of_first(request: Request, first: str) -> Errand:
    (said,) = yield [Ask(Place(first, ANY), request.key, request.version, [request.view[request.position :]])]
    if said is None:
        return refused_whole(request, Code.REQUEST_TIMED_OUT, f"cluster {first} did not answer in time")
    return written(replace(read_said(request.key, request.version, said), throttle_time=timedelta(0)))


def list_reassignments(request: Request, layout: Layout, seen: Seen) -> Move:
    """Of each topic what its home says, by the numbers of brokers that clients know."""
    return Run(_reassignments(request, read_asked(request), layout, seen))


def _reassignments(request: Request, asked: Any, layout: Layout, seen: Seen) -> Errand:
    wanted: dict[str, Any] = dict.fromkeys(seen.clusters)
    if asked.topics is not None:
        homes = yield from located([str(one.name) for one in asked.topics], seen)
        wanted = {}
        for one in asked.topics:
            if home := homes.get(str(one.name)):
                wanted[home] = (*wanted.get(home, ()), one)
    asks = [
        Ask(controller(name, seen), request.key, request.version, written(replace(asked, topics=topics)))
        for name, topics in wanted.items()
        if seen.clusters[name].answers
    ]
    said = (yield asks) if asks else []
    told: list[Any] = []
    failed: Any = None
    for ask, heard in zip(asks, said, strict=True):
        if heard is None:
            continue
        answer = read_said(request.key, request.version, heard)
        failed = answer if answer.error_code else failed
        here = [one for one in answer.topics if not seen.is_elsewhere(str(one.name), ask.place.cluster)]
        told += [_renamed(one, ask.place.cluster, layout) for one in here]
    if failed is not None and not told:
        return written(replace(failed, throttle_time=timedelta(0)))
    if wanted and not any(said):
        return refused_whole(request, Code.REQUEST_TIMED_OUT, f"cluster {' or '.join(wanted)} does not answer")
    return written(filled(answer_kind(request.key, request.version), topics=tuple(told)))


def _renamed(topic: Any, cluster: str, layout: Layout) -> Any:
    def numbers(one: Any) -> dict[str, tuple[int, ...]]:
        names = ("replicas", "adding_replicas", "removing_replicas")
        return {name: tuple(layout.number(cluster, node) for node in getattr(one, name)) for name in names}

    return replace(topic, partitions=tuple(replace(one, **numbers(one)) for one in topic.partitions))
