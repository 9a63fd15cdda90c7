"""What is asked of the leader of partitions, by the topic's name: ListOffsets, OffsetForLeaderEpoch, DeleteRecords and
DescribeProducers. Pure.

Where an epoch ended that is of an earlier term the topic's home does not know. There the topic moved: what was read up
to that point is what the home has, and what lay behind it is nowhere any more. So a client that had read further,
before a home died, hears that its log was cut, as it would of an unclean election.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from operator import attrgetter
from typing import Any, Final

from twinshore.kafka.errors import Code
from twinshore.proxy.core import epochs
from twinshore.proxy.core.layout import Place
from twinshore.proxy.core.messages import answer_kind, error, filled, part_of, read_asked, read_said, written
from twinshore.proxy.core.moves import ANSWER_S, Ask, Errand, Move, Pass, Run, Say
from twinshore.proxy.core.offers import DELETE_RECORDS
from twinshore.proxy.core.seen import Seen
from twinshore.wire.apis import DESCRIBE_PRODUCERS, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from twinshore.wire.serving.requests import Request

QUESTIONS: Final = (LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH)
_NAMES: Final = ("leader_epoch", "current_leader_epoch")
# What each calls a topic, and a partition.
_WORDS: Final = dict.fromkeys((LIST_OFFSETS, DELETE_RECORDS, DESCRIBE_PRODUCERS), ("name", "partition_index"))
_ELSE: Final = ("topic", "partition")


def epochs_asked(
    request: Request, body: Any, name: Callable[[Any], str], place: Place, seen: Seen, lost: Callable[[Any], Any]
) -> Errand:
    """By the epochs of the topics' home. `name` of a topic in question and answer; `lost`: what is said of one whose
    broker does not answer."""
    ended: dict[str, tuple[Any, ...]] = {}
    topics: list[Any] = []
    for topic in body.topics:
        base = _base(name(topic), seen)
        before = tuple(one for one in topic.partitions if _is_earlier(request, one, base))
        if before:
            ended[name(topic)] = tuple(_end(request, name(topic), one, seen) for one in before)
        left = tuple(_meant(one, base) for one in topic.partitions if one not in before)
        if left:
            topics.append(replace(topic, partitions=left))
    kind = answer_kind(request.key, request.version)
    answer = filled(kind)
    if topics:
        (said,) = yield [Ask(place, request.key, request.version, written(replace(body, topics=tuple(topics))))]
        answer = filled(kind, topics=tuple(map(lost, topics)))
        if said is not None:
            answer = read_said(request.key, request.version, said)
    found = [
        replace(one, partitions=(*(_told(part, name(one), seen) for part in one.partitions), *ended.pop(name(one), ())))
        for one in answer.topics
    ]
    part = part_of(kind, "topics")
    found += [filled(part, topic=topic, partitions=parts) for topic, parts in ended.items()]
    return written(replace(answer, topics=tuple(found)))


def _base(topic: str, seen: Seen) -> int | None:
    """Of a topic without a term what clients name is the broker's own: they are told none."""
    return epochs.base_of(topic, seen) if topic in seen.leads else 0


def _is_earlier(request: Request, part: Any, base: int | None) -> bool:
    return request.key == OFFSET_FOR_LEADER_EPOCH and epochs.is_earlier(part.leader_epoch, base)


def _end(request: Request, topic: str, part: Any, seen: Seen) -> Any:
    kind = part_of(answer_kind(request.key, request.version), "topics", "partitions")
    end = epochs.moved_at(topic, part.partition, seen)
    return filled(kind, partition=part.partition, leader_epoch=part.leader_epoch, end_offset=end)


def _meant(part: Any, base: int | None) -> Any:
    values = {one: epochs.meant(getattr(part, one), base) for one in _NAMES if hasattr(part, one)}
    return replace(part, **values)


def _told(part: Any, topic: str, seen: Seen) -> Any:
    if not hasattr(part, "leader_epoch"):
        return part
    return replace(part, leader_epoch=epochs.told(part.leader_epoch, _base(topic, seen)))


def about_partitions(request: Request, place: Place | None, seen: Seen) -> Move:
    """Passed on as it came where all its topics are at that cluster; what is elsewhere is refused."""
    asked = read_asked(request)
    topic, _ = _WORDS.get(request.key, _ELSE)
    here = (
        ()
        if place is None
        else tuple(one for one in asked.topics if not seen.is_elsewhere(getattr(one, topic), place.cluster))
    )
    by_epochs = request.key in QUESTIONS and any(getattr(one, topic) in seen.leads for one in here)
    if place is not None and len(here) == len(asked.topics) and not by_epochs:
        return Pass(place, _wait_s(asked))
    moved = tuple(_moved(request, one) for one in asked.topics if one not in here)
    if place is None or not here:
        return all_refused(request, asked, Code.NOT_LEADER_OR_FOLLOWER)
    of_here = replace(asked, topics=here)
    ask = _part(request, of_here, place)
    if by_epochs:
        ask = epochs_asked(request, of_here, attrgetter(topic), place, seen, partial(_moved, request))
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
