"""Transactions: a transactional id, the topics that it writes and its group live on the groups' home. Pure.

What one transaction writes is committed by one coordinator, which knows its own cluster only. So a topic that is at
home elsewhere is refused, with an error that lets the application abort and go on; one that a switch has moved there is
waited for, as groups are to come behind it, and not every client survives such an error. A switch waits for open
transactions, and while it holds topics no new one begins there. Once groups have moved, their new home knows nothing of
a producer: it says so, the client aborts once, and is given an id there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from twinshore.config.frozen import GROUPS_HOME
from twinshore.config.model import FIRST_TERM
from twinshore.kafka.protocol.apis import DESCRIBE_TRANSACTIONS, INIT_PRODUCER_ID
from twinshore.kafka.protocol.errors import Code
from twinshore.kafka.protocol.server import Request
from twinshore.kafka.protocol.transactions import encode_transactions, parse_transactions
from twinshore.proxy.core import messages
from twinshore.proxy.core.messages import (
    answer_kind,
    error,
    filled,
    part_of,
    read_asked,
    read_said,
    refusal,
    refused_places,
    written,
)
from twinshore.proxy.core.model import ANSWER_S, Ask, Errand, Hold, Move, Parts, Pass, Place, Run, Say, Seen

ADD_PARTITIONS: Final = 24
ADD_OFFSETS: Final = 25
END_TRANSACTION: Final = 26
COMMIT_OFFSETS: Final = 28
# Kafka's own, which say that what they are about has no fault of its own, and that the group may not be written.
_NOT_ATTEMPTED: Final = 55
_NOT_FOR_GROUP: Final = 30
# Kafka's own as well, by which a coordinator that does not know a producer has it abort and begin anew.
_NOT_MAPPED: Final = 49
_NOBODY: Final = -1


def init(request: Request, asked: Any, place: Place | None, seen: Seen) -> Move:
    """At the groups' home. A number of another cluster means nothing there."""
    if place is None or place.cluster != seen.group_home():
        return Say(refusal(request, Code.NOT_COORDINATOR, producer_epoch=-1))
    if getattr(asked, "producer_id", _NOBODY) < 0:
        return Pass(place)
    return Run(_init_known(request, asked, place), ANSWER_S)


def _init_known(request: Request, asked: Any, place: Place) -> Errand:
    question = [encode_transactions([str(asked.transactional_id)])]
    (said,) = yield [Ask(place, DESCRIBE_TRANSACTIONS, 0, question)]
    states = [] if said is None else parse_transactions(said, 0)
    if states and not states[0].error and states[0].producer_id != asked.producer_id:
        asked = replace(asked, producer_id=_NOBODY, producer_epoch=-1)
    (answer,) = yield [Ask(place, INIT_PRODUCER_ID, request.version, written(asked))]
    if answer is None:
        return refusal(request, Code.COORDINATOR_LOAD_IN_PROGRESS, producer_epoch=-1)
    return [answer]


class Refused:
    """For one client: transactions that were refused before anything of them had begun. Their coordinator knows nothing
    of those, and would say so to a client that ends one, which librdkafka's do not survive."""

    def __init__(self) -> None:
        self._ids: set[str] = set()

    def add_partitions(self, request: Request, place: Place | None, seen: Seen) -> Move:
        """Where a transaction begins."""
        asked = read_asked(request)
        move = _add_partitions(request, asked, place, seen)
        if isinstance(move, Say | Hold) and place is not None and place.cluster == seen.group_home():
            self._ids.add(str(asked.v3_and_below_transactional_id))
        return move

    def end(self, request: Request, place: Place | None, seen: Seen) -> Move:
        """At the coordinator that has the transaction, wherever groups are by now."""
        del seen
        if place is None:
            return Say(refusal(request, Code.NOT_COORDINATOR))
        asked = read_asked(request)
        name = str(asked.transactional_id)
        if asked.committed or name not in self._ids:
            return Pass(place)
        self._ids.discard(name)
        return Pass(place, rewrite=partial(_ended, request))


def _ended(request: Request, view: memoryview, at: int) -> Parts | None:
    answer = read_said(request.key, request.version, view[at:])
    return refusal(request, Code.NONE) if answer.error_code == Code.INVALID_TXN_STATE else None


def _has_moved(topic: str, seen: Seen) -> bool:
    """Whether a switch has moved the topic: it was where groups are, and they may come along."""
    lead = seen.leads.get(topic)
    return lead is not None and lead.term > FIRST_TERM


def _add_partitions(request: Request, asked: Any, place: Place | None, seen: Seen) -> Move:
    """What is at home elsewhere is refused, and nothing else of the request is done."""
    names = [str(one.name) for one in asked.v3_and_below_topics]
    home = seen.group_home()
    if place is None or place.cluster != home:
        return Say(_of_partitions(request, asked, dict.fromkeys(names, Code.NOT_COORDINATOR)))
    # While members gather new ones may begin: whoever waited here would not join anew.
    elsewhere = {name for name in names if seen.is_elsewhere(name, home)}
    come = elsewhere and (seen.groups_gather or all(_has_moved(name, seen) for name in elsewhere))
    if seen.groups_wait or come or any(seen.must_wait(name) for name in names):
        # Who reads what it writes is waited for as groups gather: it aborts, as it must at their new home, and joins.
        code = _NOT_MAPPED if elsewhere and seen.groups_gather else Code.CONCURRENT_TRANSACTIONS
        return Hold(_of_partitions(request, asked, dict.fromkeys(names, code)))
    if not elsewhere:
        return Pass(place)
    codes = {name: Code.TOPIC_AUTHORIZATION_FAILED if name in elsewhere else _NOT_ATTEMPTED for name in names}
    return Say(_of_partitions(request, asked, codes))


def _of_partitions(request: Request, asked: Any, codes: Mapping[str, int]) -> Parts:
    kind = answer_kind(request.key, request.version)
    topic = part_of(kind, "results_by_topic_v3_and_below")
    part = part_of(topic, "results_by_partition")
    told = []
    for one in asked.v3_and_below_topics:
        code = error(codes[str(one.name)])
        parts = tuple(filled(part, partition_index=number, partition_error_code=code) for number in one.partitions)
        told.append(filled(topic, name=one.name, results_by_partition=parts))
    return written(filled(kind, results_by_topic_v3_and_below=tuple(told)))


def add_offsets(request: Request, place: Place | None, seen: Seen) -> Move:
    """Places of a group become part of a transaction, or it begins with them."""
    if place is None or place.cluster != seen.group_home():
        return Say(refusal(request, Code.NOT_COORDINATOR))
    if seen.groups_wait:
        return Hold(refusal(request, Code.CONCURRENT_TRANSACTIONS))
    return Pass(place)


def commit_offsets(request: Request, place: Place | None, seen: Seen) -> Move:
    """Places in topics that the groups' home has."""
    asked = read_asked(request)
    if place is None or place.cluster != seen.group_home():
        return Say(refused_places(request, asked.topics, Code.NOT_COORDINATOR))
    if seen.groups_wait:
        return Hold(refused_places(request, asked.topics, Code.COORDINATOR_LOAD_IN_PROGRESS))
    if not all(seen.stays(str(one.name)) for one in asked.topics):
        return Say(refused_places(request, asked.topics, _NOT_FOR_GROUP))
    told = messages.of_places(asked, seen)
    return Pass(place, body=written(told) if told is not asked else None, topics=(GROUPS_HOME,))
