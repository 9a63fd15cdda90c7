"""Transactions: the transactional id, the topics written and the group are on the groups' home.

One coordinator commits a transaction, and knows only its cluster. A topic at home elsewhere is refused, with an error
after which applications abort and go on. If a switch has moved it there, the request waits: groups are to follow, and
not every client survives the error. A switch waits for open transactions, and none begins on held topics. Once groups
have moved, their new home does not know a producer: the client aborts once, and gets an id there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from twinshore.config.frozen import GROUPS_HOME
from twinshore.config.model import FIRST_TERM, TopicPartition
from twinshore.kafka.protocol.apis import DESCRIBE_TRANSACTIONS
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.requests import Request
from twinshore.kafka.protocol.transactions import (
    TransactionState,
    encode_describe_transactions,
    parse_describe_transactions,
)
from twinshore.proxy.core.message_codec import (
    ask_broker,
    build_commit_errors,
    build_error_response,
    build_response,
    decode_request,
    decode_response,
    encode_message,
    strip_commit_epochs,
)
from twinshore.proxy.core.model import (
    RESPONSE_TIMEOUT_S,
    BrokerId,
    BrokerRequest,
    FanOut,
    FanOutSteps,
    ForwardRequest,
    ParkRequest,
    Parts,
    PauseStep,
    RequestDecision,
    RespondNow,
    RoutingTable,
    SubRequests,
    WaitingFanOut,
    WaitingSteps,
    WaitStep,
)
from twinshore.proxy.core.protected_topics import NoProtection, Protection

ADD_PARTITIONS_TO_TXN: Final = 24
ADD_OFFSETS_TO_TXN: Final = 25
END_TXN: Final = 26
TXN_OFFSET_COMMIT: Final = 28
# OPERATION_NOT_ATTEMPTED, for topics without a fault of their own, and GROUP_AUTHORIZATION_FAILED.
_NOT_ATTEMPTED: Final = 55
_NOT_FOR_GROUP: Final = 30
_NOBODY: Final = -1
# The coordinator's words for a commit under way, and for one whose markers are written.
_PREPARE_COMMIT, _COMPLETE_COMMIT = "PrepareCommit", "CompleteCommit"
# The coordinator writes the markers a moment after its answer.
_MARKERS_PAUSE_S: Final = 0.003


def init_transactional_producer(
    request: Request, asked: Any, place: BrokerId | None, table: RoutingTable
) -> RequestDecision:
    """Route to the groups' home. A producer id of another cluster means nothing there."""
    if place is None or place.cluster != table.group_home():
        return RespondNow(build_error_response(request, Code.not_coordinator, producer_epoch=-1))
    if getattr(asked, "producer_id", _NOBODY) < 0:
        return ForwardRequest(place)
    return FanOut(_init_known(request, asked, place), RESPONSE_TIMEOUT_S)


def _init_known(request: Request, asked: Any, place: BrokerId) -> FanOutSteps:
    state = yield from _describe(place, str(asked.transactional_id))
    if state is not None and not state.error and state.producer_id != asked.producer_id:
        asked = replace(asked, producer_id=_NOBODY, producer_epoch=-1)
    answer = yield from ask_broker(place, asked)
    if answer is None:
        return build_error_response(request, Code.coordinator_load_in_progress, producer_epoch=-1)
    return encode_message(answer)


class TransactionEnds:
    """The ends of one client's transactions: of those that were refused before they began, and of those that wrote to
    protected topics.

    The coordinator does not know refused ones, and its error to EndTxn would end librdkafka clients.
    """

    def __init__(self, protection: Protection | None = None) -> None:
        self._ids: set[str] = set()
        self._protection = protection or NoProtection()
        # What transactions wrote to that are committed and not confirmed: their coordinator no longer says it.
        self._committed: dict[str, list[TopicPartition]] = {}

    def add_partitions(self, request: Request, place: BrokerId | None, table: RoutingTable) -> RequestDecision:
        """Judge AddPartitionsToTxn, which begins a transaction."""
        asked = decode_request(request)
        move = _add_partitions(request, asked, place, table)
        if isinstance(move, RespondNow | ParkRequest) and place is not None and place.cluster == table.group_home():
            self._ids.add(str(asked.v3_and_below_transactional_id))
        return move

    def end(self, request: Request, place: BrokerId | None) -> RequestDecision:
        """Forward EndTxn to the coordinator that has the transaction, also if groups have moved."""
        if place is None:
            return RespondNow(build_error_response(request, Code.not_coordinator))
        asked = decode_request(request)
        name = str(asked.transactional_id)
        if asked.committed and any(level.holds for level in self._protection.levels.values()):
            return WaitingFanOut(self._commit(request, asked, name, place), RESPONSE_TIMEOUT_S)
        if asked.committed or name not in self._ids:
            return ForwardRequest(place)
        self._ids.discard(name)
        return ForwardRequest(place, rewrite=partial(_ended, request))

    def _commit(self, request: Request, asked: Any, name: str, place: BrokerId) -> WaitingSteps:
        """Commit, and answer once the twins have all that the transaction wrote to protected topics, and its end.

        While they do not, the client is told to commit again, as if the transaction were not complete at home.
        """
        later = build_error_response(request, Code.concurrent_transactions)
        state = yield from _describe(place, name)
        if state is None:
            return later
        if state.error and state.error != Code.transactional_id_not_found:
            return build_error_response(request, state.error)
        written = [TopicPartition(*one) for one in state.partitions]
        if state.state in (_PREPARE_COMMIT, _COMPLETE_COMMIT):
            unknown = written or self._protection.protected_partitions()
            written = self._committed.get(name, unknown)
        levels = self._protection.levels
        protected = [one for one in written if one.topic in levels and levels[one.topic].holds]
        if any(self._protection.refusal(one.topic, [one.partition]) is not None for one in protected):
            return later
        held = self._protection.hold(protected)
        try:
            self._committed[name] = protected
            answer = yield from ask_broker(place, asked)
            if answer is None or answer.error_code:
                return later if answer is None else encode_message(answer)
            while protected and not held.code and state.state != _COMPLETE_COMMIT:
                yield PauseStep(_MARKERS_PAUSE_S)
                state = yield from _describe(place, name)
                if state is None or state.error:
                    return later
            yield WaitStep(held.wait)
            if held.code:
                return later
            self._committed.pop(name, None)
            return encode_message(answer)
        finally:
            held.close()


def _describe(place: BrokerId, name: str) -> SubRequests[TransactionState | None]:
    """Returns the transaction's state, or its error; None if the coordinator does not answer."""
    (body,) = yield [BrokerRequest(place, DESCRIBE_TRANSACTIONS, 0, [encode_describe_transactions([name])])]
    states = [] if body is None else parse_describe_transactions(body, 0)
    return states[0] if states else None


def _ended(request: Request, view: memoryview, at: int) -> Parts | None:
    answer = decode_response(request.key, request.version, view[at:])
    return build_error_response(request, Code.none) if answer.error_code == Code.invalid_txn_state else None


def _has_moved(topic: str, table: RoutingTable) -> bool:
    """Whether a switch has moved the topic from where groups are."""
    lead = table.leads.get(topic)
    return lead is not None and lead.term > FIRST_TERM


def _add_partitions(request: Request, asked: Any, place: BrokerId | None, table: RoutingTable) -> RequestDecision:
    """If topics are at home elsewhere, refuse the whole request."""
    names = [str(one.name) for one in asked.v3_and_below_topics]
    home = table.group_home()
    if place is None or place.cluster != home:
        return RespondNow(_of_partitions(request, asked, dict.fromkeys(names, Code.not_coordinator)))
    # While members gather, transactions may begin: a client that waited here would not rejoin.
    elsewhere = {name for name in names if table.is_elsewhere(name, home)}
    come = elsewhere and (table.groups_gathering or all(_has_moved(name, table) for name in elsewhere))
    if table.offset_commits_paused or come or any(table.writes_paused(name) for name in names):
        # A client that also reads is awaited as groups gather: it aborts, as it must at the new home, and rejoins.
        aborts = elsewhere and table.groups_gathering
        code = Code.invalid_producer_id_mapping if aborts else Code.concurrent_transactions
        return ParkRequest(_of_partitions(request, asked, dict.fromkeys(names, code)))
    if not elsewhere:
        return ForwardRequest(place)
    codes = {name: Code.topic_authorization_failed if name in elsewhere else _NOT_ATTEMPTED for name in names}
    return RespondNow(_of_partitions(request, asked, codes))


def _of_partitions(request: Request, asked: Any, codes: Mapping[str, int]) -> Parts:
    topics = []
    for topic in asked.v3_and_below_topics:
        code = codes[str(topic.name)]
        partitions = [{"partition_index": number, "partition_error_code": code} for number in topic.partitions]
        topics.append({"name": topic.name, "results_by_partition": partitions})
    return build_response(request, results_by_topic_v3_and_below=topics)


def route_add_offsets(request: Request, place: BrokerId | None, table: RoutingTable) -> RequestDecision:
    """Route AddOffsetsToTxn, which may begin a transaction."""
    if place is None or place.cluster != table.group_home():
        return RespondNow(build_error_response(request, Code.not_coordinator))
    if table.offset_commits_paused:
        return ParkRequest(build_error_response(request, Code.concurrent_transactions))
    return ForwardRequest(place)


def route_txn_offset_commit(request: Request, place: BrokerId | None, table: RoutingTable) -> RequestDecision:
    """Route TxnOffsetCommit, for topics that the groups' home has."""
    asked = decode_request(request)
    if place is None or place.cluster != table.group_home():
        return RespondNow(build_commit_errors(request, asked.topics, Code.not_coordinator))
    if table.offset_commits_paused:
        return ParkRequest(build_commit_errors(request, asked.topics, Code.coordinator_load_in_progress))
    if not all(table.stays(str(one.name)) for one in asked.topics):
        return RespondNow(build_commit_errors(request, asked.topics, _NOT_FOR_GROUP))
    told = strip_commit_epochs(asked, table)
    return ForwardRequest(place, body=encode_message(told) if told is not asked else None, topics=(GROUPS_HOME,))
