"""What is asked of the leader of partitions, by the topic's name: ListOffsets, OffsetForLeaderEpoch, DeleteRecords and
DescribeProducers; of topics that a switch had, the first two by `epoch_questions`. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from operator import attrgetter
from typing import Any, Final

from twinshore.kafka.errors import Code
from twinshore.proxy.core import epoch_questions
from twinshore.proxy.core.layout import Place
from twinshore.proxy.core.messages import answer_kind, error, filled, part_of, read_asked, read_said, written
from twinshore.proxy.core.moves import ANSWER_S, Ask, Errand, Move, Pass, Run, Say
from twinshore.proxy.core.offers import DELETE_RECORDS
from twinshore.proxy.core.seen import Seen
from twinshore.wire.apis import DESCRIBE_PRODUCERS, LIST_OFFSETS
from twinshore.wire.serving.requests import Request

# What each calls a topic, and a partition.
_WORDS: Final = dict.fromkeys((LIST_OFFSETS, DELETE_RECORDS, DESCRIBE_PRODUCERS), ("name", "partition_index"))
_ELSE: Final = ("topic", "partition")


def about_partitions(request: Request, place: Place | None, seen: Seen) -> Move:
    """Passed on as it came where all its topics are at that cluster; what is elsewhere is refused."""
    asked = read_asked(request)
    topic, _ = _WORDS.get(request.key, _ELSE)
    here = (
        ()
        if place is None
        else tuple(one for one in asked.topics if not seen.is_elsewhere(getattr(one, topic), place.cluster))
    )
    by_epochs = request.key in epoch_questions.QUESTIONS and any(getattr(one, topic) in seen.leads for one in here)
    if place is not None and len(here) == len(asked.topics) and not by_epochs:
        return Pass(place, _wait_s(asked))
    moved = tuple(_moved(request, one) for one in asked.topics if one not in here)
    if place is None or not here:
        return all_refused(request, asked, Code.NOT_LEADER_OR_FOLLOWER)
    of_here = replace(asked, topics=here)
    ask = _part(request, of_here, place)
    if by_epochs:
        ask = epoch_questions.asked(request, of_here, attrgetter(topic), place, seen, partial(_moved, request))
    return Run(_with(request, ask, moved), _wait_s(asked))


def all_refused(request: Request, asked: Any, code: Code) -> Say:
    """The answer that has this error for each of its partitions."""
    topics = tuple(_moved(request, one, code) for one in asked.topics)
    return Say(written(filled(answer_kind(request.key, request.version), topics=topics)))


def _wait_s(asked: Any) -> float:
    """Deletion of records waits for replicas as long as the client allows."""
    timeout = getattr(asked, "timeout", timedelta(0))
    return ANSWER_S + max(0.0, min(timeout.total_seconds(), ANSWER_S))


def _part(request: Request, asked: Any, place: Place) -> Errand:
    (said,) = yield [Ask(place, request.key, request.version, written(asked))]
    if said is None:
        return all_refused(request, asked, Code.NOT_LEADER_OR_FOLLOWER).body
    return [said]


def _with(request: Request, ask: Errand, moved: tuple[Any, ...]) -> Errand:
    """What is told of the rest, and what has moved."""
    body = yield from ask
    if not moved:
        return body
    answer = read_said(request.key, request.version, memoryview(b"".join(body)))
    return written(replace(answer, topics=(*answer.topics, *moved)))


def _moved(request: Request, topic: Any, code: Code = Code.NOT_LEADER_OR_FOLLOWER) -> Any:
    name, number = _WORDS.get(request.key, _ELSE)
    kind = part_of(answer_kind(request.key, request.version), "topics")
    part = part_of(kind, "partitions")
    values = {"error_code": error(code), "low_watermark": -1}
    numbers = (
        topic.partition_indexes if request.key == DESCRIBE_PRODUCERS else map(attrgetter(number), topic.partitions)
    )
    partitions = tuple(filled(part, **values, **{number: one}) for one in numbers)
    return filled(kind, partitions=partitions, **{name: getattr(topic, name)})
