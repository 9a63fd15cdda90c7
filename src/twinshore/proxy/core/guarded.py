"""Requests that no client may send through a proxy: changes of Kafka's and Twinshore's own topics, and questions as a
replica. Such a request is refused as a whole. Reads of these topics stay allowed. Pure.

Produce is refused in `records`, which has read its topics already, by the same rule (`links.filters.is_guarded`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, Final

from twinshore.fleet.errors import WireError
from twinshore.kafka.errors import Code
from twinshore.links.filters import is_guarded
from twinshore.proxy.core.admin import CONFIGS_CHANGED, CREATED, DELETED, GROWN, TOPIC, Shares, Words
from twinshore.proxy.core.messages import read_asked
from twinshore.proxy.core.moves import HangUp, Move, Run
from twinshore.proxy.core.offers import (
    ALTER_CONFIGS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    INCREMENTAL_ALTER_CONFIGS,
)
from twinshore.proxy.core.partition_questions import all_refused
from twinshore.proxy.core.seen import Seen
from twinshore.wire.apis import FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH, api_name
from twinshore.wire.primitives import I32, PAST_END
from twinshore.wire.serving.requests import Request

# Where the replica id is the first field of the request; a consumer's is -1, a debugger's -2.
_OF_REPLICAS: Final = {FETCH: 0, LIST_OFFSETS: 0, OFFSET_FOR_LEADER_EPOCH: 3}
_CONSUMERS: Final = (-1, -2)
_WORDS: Final[Mapping[int, Words]] = {
    CREATE_TOPICS: CREATED,
    DELETE_TOPICS: DELETED,
    CREATE_PARTITIONS: GROWN,
    ALTER_CONFIGS: CONFIGS_CHANGED,
    INCREMENTAL_ALTER_CONFIGS: CONFIGS_CHANGED,
}
_NAMES: Final[Mapping[int, Callable[[Any], Iterable[str]]]] = {
    CREATE_TOPICS: lambda asked: map(attrgetter("name"), asked.topics),
    DELETE_TOPICS: attrgetter("topic_names"),
    CREATE_PARTITIONS: lambda asked: map(attrgetter("name"), asked.topics),
    DELETE_RECORDS: lambda asked: map(attrgetter("name"), asked.topics),
    **dict.fromkeys(
        (ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS),
        lambda asked: (one.resource_name for one in asked.resources if one.resource_type == TOPIC),
    ),
}


def refused(request: Request, seen: Seen) -> Move | None:
    """The refusal; None where the client may send this."""
    if request.version >= _OF_REPLICAS.get(request.key, 1 << 15):
        return _as_replica(request)
    if (names := _NAMES.get(request.key)) is None:
        return None
    asked = read_asked(request)
    guarded = next((name for name in map(str, names(asked)) if is_guarded(name)), None)
    if guarded is None:
        return None
    if request.key == DELETE_RECORDS:
        return all_refused(request, asked, Code.POLICY_VIOLATION)
    words = _WORDS[request.key]
    shares = Shares(request, asked, words, seen)
    for one in getattr(asked, words.asked):
        says = f"topic {guarded} is Kafka's or Twinshore's own: change it at the cluster's own address, alone"
        shares.refuse(one, Code.POLICY_VIOLATION, says)
    return Run(shares.errand())


def _as_replica(request: Request) -> Move | None:
    try:
        (replica,) = I32.unpack_from(request.view, request.position)
    except PAST_END as error:
        raise WireError(f"{api_name(request.key)}: it has no replica id") from error
    if replica in _CONSUMERS:
        return None
    return HangUp(f"it asked {api_name(request.key)} as replica {replica}, and no broker comes by a proxy")
