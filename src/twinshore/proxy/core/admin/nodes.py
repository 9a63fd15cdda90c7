"""What is asked of one broker by name: its log folders, and the transactions that it keeps. Pure."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from twinshore.kafka.errors import Code
from twinshore.proxy.core.layout import Place
from twinshore.proxy.core.messages import answer_kind, error, filled, part_of, read_asked, read_said, written
from twinshore.proxy.core.moves import Move, Parts, Pass, Say
from twinshore.proxy.core.seen import Seen
from twinshore.wire.serving.requests import Request


def log_folders(request: Request, place: Place | None, seen: Seen) -> Move:
    """The broker's own, without twins: clients know no replica of a topic there whose home is elsewhere."""
    read_asked(request)
    if place is None:
        return nothing(request)
    return Pass(place, rewrite=partial(_without_twins, request=request, place=place, seen=seen))


def _without_twins(view: memoryview, at: int, request: Request, place: Place, seen: Seen) -> Parts:
    answer = read_said(request.key, request.version, view[at:])
    results = tuple(
        replace(one, topics=tuple(two for two in one.topics if not seen.is_elsewhere(str(two.name), place.cluster)))
        for one in answer.results
    )
    return written(replace(answer, results=results))


def transactions(request: Request, place: Place | None, _: Seen) -> Move:
    """Those that it coordinates. A client asks every broker, and so hears of all clusters'."""
    read_asked(request)
    return nothing(request) if place is None else Pass(place)


def described(request: Request, place: Place | None, seen: Seen) -> Move:
    """Transactions by their names: their coordinators are where groups are at home."""
    if place is not None and place.cluster == seen.group_home():
        return Pass(place)
    part = part_of(answer_kind(request.key, request.version), "transaction_states")
    code = error(Code.NOT_COORDINATOR)
    states = (filled(part, transactional_id=one, error_code=code) for one in read_asked(request).transactional_ids)
    return Say(written(filled(answer_kind(request.key, request.version), transaction_states=tuple(states))))


def nothing(request: Request) -> Move:
    """The first port stands for no broker."""
    return Say(written(filled(answer_kind(request.key, request.version))))
