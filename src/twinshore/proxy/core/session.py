"""One client's session: decides each request, and applies circuit breakers to records.

Producers are refused with NOT_ENOUGH_REPLICAS: clients of all ages retry without a metadata refresh. librdkafka passes
newer errors, such as THROTTLING_QUOTA_EXCEEDED, to the application. Consumers get an empty response, after as long as
they would have waited.

Unhandled requests are refused, never forwarded: brokers, topics or groups in them have the names that clients see.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from twinshore.kafka.protocol import apis, fetch, produce
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.record_batch import CRC_START, BatchHeader
from twinshore.kafka.protocol.requests import Request
from twinshore.proxy.core import api_versions
from twinshore.proxy.core.admin_requests import ADMIN_RULES, AdminRequestRule, AdminRequests, refuse_guarded
from twinshore.proxy.core.breakers import CircuitBreakers, PartitionProducer
from twinshore.proxy.core.follower_fetch import ClientFollowerFetch, FollowerFetch, build_empty_fetch
from twinshore.proxy.core.group_requests import (
    ActiveMembers,
    ClientMembers,
    ConsumerProtocolGroups,
    OffsetRequests,
    route_describe_groups,
)
from twinshore.proxy.core.metadata_requests import (
    MetadataRequests,
    route_by_partitions,
    route_describe_cluster,
    route_find_coordinator,
    route_init_producer_id,
)
from twinshore.proxy.core.model import (
    CONSUMER_GROUP_DESCRIBE,
    BrokerAddressing,
    BrokerId,
    DiscardRequest,
    DisconnectClient,
    FanOut,
    FanOutSteps,
    ForwardRequest,
    ParkRequest,
    Parts,
    RequestDecision,
    RespondLater,
    RespondNow,
    RoutingTable,
)
from twinshore.proxy.core.offset_reset import OffsetResets, ResetFilter
from twinshore.proxy.core.protected_topics import Protection
from twinshore.proxy.core.record_requests import (
    FETCH_SESSIONS_VERSION,
    SESSION_NOT_FOUND_RESPONSE,
    RecordRequests,
    count_records,
    parse_batch,
    refuse_all_batches,
    sequence_distance,
)
from twinshore.proxy.core.traffic import RequestCounter, TrafficTable, parse_client_software
from twinshore.proxy.core.transaction_requests import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    TXN_OFFSET_COMMIT,
    TransactionEnds,
    route_add_offsets,
)
from twinshore.state.core.proxy_values import BreakerKind, BreakerPolicy, BreakerRow

# The throttle time. It delays a client's other topics too, so it is short, and left out if there are some.
THROTTLE_MS: Final = 200
FETCH_WAIT_S_MAX: Final = 1.0
# A client that has not retried by then has given up.
RETRY_TIMEOUT_S: Final = 10.0


# Batches of one client that are remembered.
BATCH_FINGERPRINTS_MAX: Final = 1000
BatchFingerprint: TypeAlias = tuple[str, int, bytes]


# The first refused sequence of a producer, and the time of the last refusal.
_Refused: TypeAlias = tuple[int, float]


class _Cut(NamedTuple):
    """A batch that a circuit breaker answers."""

    one: produce.ProduceRequestPartition
    row: BreakerRow
    header: BatchHeader | None
    drop: bool


class BreakerFilter:
    """Passes records that no circuit breaker cuts to `records`."""

    def __init__(self, records: RecordRequests, breakers: CircuitBreakers) -> None:
        self._records, self._breakers, self._reader = records, breakers, produce.ProduceRequestReader()
        self._refused: dict[PartitionProducer, _Refused] = {}
        # When a batch was last cut, the oldest first.
        self._cut_at_s: dict[BatchFingerprint, float] = {}
        self._writes_elsewhere = False
        self._out_of_step: set[int] = set()

    def on_produce(self, request: Request, place: BrokerId | None, table: RoutingTable) -> RequestDecision:
        """Judge Produce.

        A broker accepts any first sequence of an unknown producer. So after a refused batch, no successor passes before
        that batch.
        """
        breakers = self._breakers
        asked = self._reader.read(request.view, request.position, request.version)
        if BreakerKind.PRODUCE not in breakers.looks and not self._refused and not breakers.gaps:
            return self._records.on_produce(request, place, table, asked)
        client, remembers = request.client_id or "", bool(self._refused or breakers.gaps)
        cut: list[_Cut] = []
        told: list[produce.ProducedPartition] = []
        kept: list[produce.ProduceRequestPartition] = []
        for one in asked.batches:
            topic = str(one.topic)
            if not self._cut_at_s or not self._came_before(_fingerprint(one)):
                breakers.wants(BreakerKind.PRODUCE, topic, client, count_records(one.records), len(one.records or b""))
            row = breakers.cut(BreakerKind.PRODUCE, topic, client)
            # Nearly always only the record count is read.
            header = parse_batch(one.records) if remembers or row is not None else None
            if row is not None:
                self._note(_fingerprint(one))
                drops = row.policy is BreakerPolicy.DROP and asked.transactional_id is None
                cut.append(_Cut(one, row, header, drops or not asked.acks))
            elif (code := self._must_not_go_on(one, header)) is not None:
                told.append(_appended(one, code))
            else:
                kept.append(one)
        self._writes_elsewhere |= bool(kept)
        move = self._what_is_left(request, place, table, asked, kept)
        if isinstance(move, ParkRequest):
            return move  # all of it is judged again
        told += [self._answer(one, client) for one in cut]
        return self._with(move, request, told) if told and asked.acks else move

    def _came_before(self, fingerprint: BatchFingerprint) -> bool:
        """Whether this batch was refused a moment ago.

        A retry is no new demand: counted, it would keep a breaker open that closes once all is quiet.
        """
        at_s = self._cut_at_s.get(fingerprint)
        return at_s is not None and self._breakers.now_s - at_s < RETRY_TIMEOUT_S

    def _note(self, fingerprint: BatchFingerprint) -> None:
        self._cut_at_s.pop(fingerprint, None)
        self._cut_at_s[fingerprint] = self._breakers.now_s
        if len(self._cut_at_s) > BATCH_FINGERPRINTS_MAX:
            del self._cut_at_s[next(iter(self._cut_at_s))]

    def _what_is_left(
        self,
        request: Request,
        place: BrokerId | None,
        table: RoutingTable,
        asked: produce.ProduceRequest,
        kept: list[produce.ProduceRequestPartition],
    ) -> RequestDecision:
        if len(kept) == len(asked.batches):
            return self._records.on_produce(request, place, table, asked)
        if not kept:
            return RespondNow([]) if asked.acks else DiscardRequest()
        less = asked._replace(batches=kept)
        move = self._records.on_produce(request, place, table, less)
        if isinstance(move, ParkRequest) and move.refusal is not None:
            return move._replace(refusal=refuse_all_batches(request, asked, Code.not_leader_or_follower))
        if isinstance(move, ForwardRequest) and move.body is None:
            return move._replace(body=produce.write_produce_request(request.version, less))
        return move

    def _answer(self, cut: _Cut, client: str) -> produce.ProducedPartition:
        one, row, header, drop = cut
        records, size = header.count if header is not None else 0, len(one.records or b"")
        self._breakers.answered(row, 1, records, size)
        producer = _producer(one, header)
        if not drop:
            if producer is not None and header is not None:
                sequence = header.base_sequence
                first = self._first_refused(producer, sequence)
                self._refused[producer] = sequence if first is None else first, self._breakers.now_s
            return _appended(one, Code.not_enough_replicas)
        self._breakers.dropped(row, str(one.topic), client, one.partition, records, size)
        if producer is not None:
            self._refused.pop(producer, None)
            self._breakers.gap(producer)
        return _appended(one, Code.none)

    def _first_refused(self, producer: PartitionProducer, sequence: int) -> int | None:
        """Returns the sequence that was refused lately and comes before this one, if any."""
        if producer not in self._refused:
            return None
        first, at_s = self._refused[producer]
        is_recent = self._breakers.now_s - at_s < RETRY_TIMEOUT_S
        return first if is_recent and sequence_distance(sequence, first) > 0 else None

    def _must_not_go_on(self, one: produce.ProduceRequestPartition, header: BatchHeader | None) -> Code | None:
        producer = _producer(one, header)
        if producer is None or header is None:
            return None
        if producer in self._breakers.gaps:
            # The client gets a new id or epoch, and counts from 0: then the broker sees no gap.
            return Code.unknown_producer_id
        if self._first_refused(producer, header.base_sequence) is not None:
            return Code.not_enough_replicas
        self._refused.pop(producer, None)
        return None

    def _with(
        self, move: RequestDecision, request: Request, told: Sequence[produce.ProducedPartition]
    ) -> RequestDecision:
        """Add the cut batches to the response."""
        version = request.version

        def whole(body: memoryview, at: int) -> Parts:
            answer = produce.read_produce_response(body, at, version)
            return [produce.write_produce_response(version, answer._replace(appended=[*answer.appended, *told]))]

        if isinstance(move, RespondNow) and not move.body:
            throttle_ms = 0 if self._writes_elsewhere else THROTTLE_MS
            return RespondNow([produce.write_produce_response(version, produce.ProduceResponse(told, throttle_ms))])
        return _told_by(move, whole)

    def on_fetch(self, request: Request, place: BrokerId | None, table: RoutingTable) -> RequestDecision:
        """Judge Fetch.

        While a breaker cuts some topics, the client fetches without a session, since the broker's would have all. If
        all are cut, the session pauses, and the client opens another one afterwards.
        """
        breakers = self._breakers
        if place is None or (BreakerKind.FETCH not in breakers.looks and not self._out_of_step):
            return self._records.on_fetch(request, place, table)
        version, client = request.version, request.client_id or ""
        asked = fetch.read_fetch_request(request.view, request.position, version)
        topics = {str(one.topic) for one in asked.wanted}
        in_session = version >= FETCH_SESSIONS_VERSION and asked.session_epoch > 0
        if in_session:
            if not self._records.goes_on(asked, place, table):
                return RespondNow(fetch.write_fetch_response(version, SESSION_NOT_FOUND_RESPONSE))
            topics = {topic for topic, _ in self._records.sessions.of(asked.session_id).held}
        rows = {topic: row for topic in topics if (row := breakers.cut(BreakerKind.FETCH, topic, client)) is not None}
        if not in_session:
            self._out_of_step.discard(asked.session_id)
        if not rows and asked.session_id not in self._out_of_step:
            return self._records.on_fetch(request, place, table, asked, partial(self._count_fetched, client))
        for row in rows.values():
            breakers.answered(row, 1, 0, 0)
        if rows and len(rows) == len(topics):
            if in_session:
                self._out_of_step.add(asked.session_id)
            nothing = fetch.FetchResponse(THROTTLE_MS, 0, asked.session_id if in_session else 0, [])
            body = fetch.write_fetch_response(version, nothing)
            return RespondLater(body, min(asked.max_wait_ms / 1000, FETCH_WAIT_S_MAX))
        if in_session:
            self._records.sessions.forget(asked.session_id)
            self._out_of_step.discard(asked.session_id)
            return RespondNow(fetch.write_fetch_response(version, SESSION_NOT_FOUND_RESPONSE))
        return self._fetch_part(request, place, table, asked, frozenset(rows))

    def _fetch_part(
        self, request: Request, place: BrokerId, table: RoutingTable, asked: fetch.FetchRequest, cut: frozenset[str]
    ) -> RequestDecision:
        version = request.version
        kept = [one for one in asked.wanted if str(one.topic) not in cut]
        told = build_empty_fetch(one for one in asked.wanted if str(one.topic) in cut).fetched
        less = asked._replace(wanted=kept, dropped=(), session_id=0, session_epoch=-1)
        count = partial(self._count_fetched, request.client_id or "")
        move = self._records.on_fetch(request, place, table, less, count)

        def whole(view: memoryview, at: int) -> Parts:
            answer = fetch.read_fetch_response(view, at, version)
            return fetch.write_fetch_response(version, answer._replace(fetched=[*answer.fetched, *told]))

        if isinstance(move, ForwardRequest) and move.body is None:
            move = move._replace(body=[fetch.write_fetch_request(version, less)])
        return _told_by(move, whole)

    def _count_fetched(self, client: str, answer: fetch.FetchResponse) -> None:
        """Count the broker's bytes, if breakers need that."""
        if BreakerKind.FETCH in self._breakers.looks:
            for one in answer.fetched:
                self._breakers.wants(BreakerKind.FETCH, str(one.topic), client, 0, len(one.records or b""))


def _told_by(move: RequestDecision, whole: Callable[[memoryview, int], Parts]) -> RequestDecision:
    """Returns the decision with `whole` applied to its response."""

    def change(body: Parts) -> Parts:
        return whole(memoryview(b"".join(body)), 0)

    def change_last(steps: FanOutSteps) -> FanOutSteps:
        return change((yield from steps))

    match move:
        case ForwardRequest():
            inner = move.rewrite

            def rewrite(view: memoryview, at: int) -> Parts | RespondLater:
                parts = inner(view, at) if inner else None
                if isinstance(parts, RespondLater):
                    return parts._replace(body=change(parts.body))
                return whole(view, at) if parts is None else change(parts)

            return move._replace(rewrite=rewrite)
        case FanOut():
            return move._replace(errand=change_last(move.errand))
        case RespondNow() | RespondLater():
            return move._replace(body=change(move.body))
    return move


def _producer(one: produce.ProduceRequestPartition, header: BatchHeader | None) -> PartitionProducer | None:
    if header is None or header.producer_id < 0:
        return None
    return PartitionProducer(str(one.topic), one.partition, header.producer_id, header.producer_epoch)


def _fingerprint(one: produce.ProduceRequestPartition) -> BatchFingerprint:
    """Returns what identifies a retried batch: the partition and the batch's CRC."""
    return str(one.topic), one.partition, bytes((one.records or b"")[CRC_START - 4 : CRC_START])


def _appended(one: produce.ProduceRequestPartition, code: Code) -> produce.ProducedPartition:
    log_start = 0 if code is Code.unknown_producer_id else -1
    return produce.ProducedPartition(one.topic, one.partition, int(code), -1, log_start=log_start)


class ClientSession:
    """Decides one client's requests.

    `place`: the broker of the client's port; None for the first port. `news` asks for a new look at the clusters.
    `now`: the routing table when a response comes; `at_work`: members of all clients.
    """

    def __init__(
        self,
        place: BrokerId | None,
        addressing: BrokerAddressing,
        news: Callable[[], None],
        breakers: CircuitBreakers | None = None,
        now: Callable[[], RoutingTable] | None = None,
        at_work: ActiveMembers | None = None,
        traffic: TrafficTable | None = None,
        resets: OffsetResets | None = None,
        follower_fetch: FollowerFetch | None = None,
        protection: Protection | None = None,
    ) -> None:
        self.place, self._addressing, self._news = place, addressing, news
        self._counting = RequestCounter(traffic)
        reading = self._reading = ClientFollowerFetch(follower_fetch or FollowerFetch(), addressing)
        as_seen = (lambda: reading.seen(now())) if now else None
        records = RecordRequests(addressing, news, as_seen, self._counting, reading, protection)
        self._reads = records.reads
        self._fused = BreakerFilter(records, breakers or CircuitBreakers())
        self._committed = OffsetRequests(self._counting)
        self._refused = TransactionEnds(protection)
        at_work, resets = at_work or ActiveMembers(), resets or OffsetResets()
        self._members = ClientMembers(at_work)
        self._newer = ConsumerProtocolGroups(at_work, resets.holds, news)
        self._resets = ResetFilter(resets, self._committed, self._member, as_seen)

    def comes_from(self, address: str) -> None:
        self._reading.comes_from(address)

    def close(self) -> None:
        self._resets.close()

    def is_made_with(self, software: str) -> str:
        """Set the client's software, and return it; empty if unknown."""
        self._resets.is_made_with(software)
        return software

    def move(self, request: Request, table: RoutingTable) -> RequestDecision:
        """Decide a request. WireError if unreadable: then the connection must end."""
        key, table = request.key, self._reading.seen(table)
        if key == apis.API_VERSIONS:
            self._counting.is_made_with(request, self.is_made_with(parse_client_software(request)))
            return RespondNow([api_versions.build_versions_response(request, table.offers)])
        low, high = table.offers.get(key, (0, -1))
        if not low <= request.version <= high:
            return DisconnectClient(_not_offered(request, table))
        if (refusal := refuse_guarded(request, table)) is not None:
            return refusal
        return RULES[key](self, request, table)

    def _list_offsets(self, request: Request, table: RoutingTable) -> RequestDecision:
        move = route_by_partitions(request, self.place, table)
        if self.place is None or not self._reads.has_topics:
            return move
        return _told_by(move, partial(self._reads.bounded_latest, request=request, cluster=self.place.cluster))

    def _member(self, request: Request, place: BrokerId | None, table: RoutingTable) -> RequestDecision:
        move = self._members.judge(request, place, table)
        return self._newer.joins(request, move, table) if request.key == api_versions.JOIN_GROUP else move


Rule: TypeAlias = Callable[[ClientSession, Request, RoutingTable], RequestDecision]


def _by_place(route: Callable[[Request, BrokerId | None, RoutingTable], RequestDecision]) -> Rule:
    return lambda client, request, table: route(request, client.place, table)


def _by_address(route: Callable[[Request, BrokerAddressing, RoutingTable], RequestDecision]) -> Rule:
    return lambda client, request, table: route(request, client._addressing, table)


def _by_admin(rule: AdminRequestRule) -> Rule:
    return lambda client, request, table: rule(
        AdminRequests(client._addressing, client._committed, client._news), request, client.place, table
    )


def _metadata(client: ClientSession, request: Request, table: RoutingTable) -> RequestDecision:
    requests = MetadataRequests(client._addressing, client._news, client._counting, client._reading.copies)
    return requests.route(request, table)


# One table for all clients: one for each would take most of a session's memory.
RULES: Final[Mapping[int, Rule]] = {
    apis.PRODUCE: lambda client, request, table: client._fused.on_produce(request, client.place, table),
    apis.FETCH: lambda client, request, table: client._fused.on_fetch(request, client.place, table),
    apis.METADATA: _metadata,
    api_versions.FIND_COORDINATOR: _by_address(route_find_coordinator),
    api_versions.DESCRIBE_CLUSTER: _by_address(route_describe_cluster),
    apis.INIT_PRODUCER_ID: _by_place(route_init_producer_id),
    ADD_PARTITIONS_TO_TXN: lambda client, request, table: client._refused.add_partitions(request, client.place, table),
    ADD_OFFSETS_TO_TXN: _by_place(route_add_offsets),
    END_TXN: lambda client, request, _: client._refused.end(request, client.place),
    TXN_OFFSET_COMMIT: lambda client, request, table: client._resets.commit_in_transaction(
        request, client.place, table
    ),
    apis.OFFSET_COMMIT: lambda client, request, table: client._resets.commit(request, client.place, table),
    apis.OFFSET_FETCH: lambda client, request, table: client._committed.fetch(request, client.place, table),
    api_versions.CONSUMER_GROUP_HEARTBEAT: lambda client, request, table: client._newer.beat(
        request, client.place, table
    ),
    apis.LIST_OFFSETS: lambda client, request, table: client._list_offsets(request, table),
    apis.OFFSET_FOR_LEADER_EPOCH: _by_place(route_by_partitions),
    **dict.fromkeys(
        (api_versions.DESCRIBE_GROUPS, api_versions.LIST_GROUPS, CONSUMER_GROUP_DESCRIBE),
        _by_place(route_describe_groups),
    ),
    **dict.fromkeys(
        (api_versions.JOIN_GROUP, api_versions.SYNC_GROUP, api_versions.HEARTBEAT, api_versions.LEAVE_GROUP),
        lambda client, request, table: client._resets.of_members(request, client.place, table),
    ),
    **{key: _by_admin(rule) for key, rule in ADMIN_RULES.items()},
}


def _not_offered(request: Request, table: RoutingTable) -> str:
    name = f"{apis.api_name(request.key)} v{request.version}"
    if request.key not in api_versions.HANDLED_API_VERSIONS:
        return f"it asked {name}, which is not served"
    if request.key not in table.offers:
        return f"it asked {name}, which not all clusters support"
    low, high = table.offers[request.key]
    return f"it asked {name}, which is not served: v{low} to v{high} are"
