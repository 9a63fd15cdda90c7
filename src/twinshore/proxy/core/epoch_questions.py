"""ListOffsets and OffsetForLeaderEpoch of topics that a switch had: both name leader epochs, as clients see them. Pure.

Where an epoch ended that is of an earlier term the topic's home does not know. There the topic moved: what was read up
to that point is what the home has, and what lay behind it is nowhere any more. So a client that had read further,
before a home died, hears that its log was cut, as it would of an unclean election.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from twinshore.proxy.core import epochs
from twinshore.proxy.core.layout import Place
from twinshore.proxy.core.messages import answer_kind, filled, part_of, read_said, written
from twinshore.proxy.core.moves import Ask, Errand
from twinshore.proxy.core.seen import Seen
from twinshore.wire.apis import LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from twinshore.wire.serving.requests import Request

QUESTIONS: Final = (LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH)
_NAMES: Final = ("leader_epoch", "current_leader_epoch")


def asked(
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
