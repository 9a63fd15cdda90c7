"""One client's session: decides each request, and applies circuit breakers to records.

Producers are refused with NOT_ENOUGH_REPLICAS: clients of all ages retry without a metadata refresh. librdkafka passes
newer errors, such as THROTTLING_QUOTA_EXCEEDED, to the application. Consumers get an empty response, after as long as
they would have waited.

Unhandled requests are refused, never forwarded: brokers, topics or groups in them have the names that clients see.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from twinshore.kafka.protocol import fetch, produce
from twinshore.kafka.protocol.apis import (
    API_VERSIONS,
    FETCH,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    api_name,
)
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.record_batch import CRC_START
from twinshore.kafka.protocol.requests import Request
from twinshore.proxy.core import group_requests, metadata_requests, transaction_requests
from twinshore.proxy.core.admin_requests import AdminRequestRule, build_admin_rules, refuse_guarded
from twinshore.proxy.core.api_versions import (
    CONSUMER_GROUP_HEARTBEAT,
    DESCRIBE_CLUSTER,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    HANDLED_API_VERSIONS,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    SYNC_GROUP,
    build_versions_response,
)
from twinshore.proxy.core.breakers import CircuitBreakers, PartitionProducer
from twinshore.proxy.core.follower_fetch import ClientFollowerFetch, FollowerFetch, build_empty_fetch
from twinshore.proxy.core.group_requests import OffsetRequests
from twinshore.proxy.core.metadata_requests import route_by_partitions
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
from twinshore.proxy.core.record_requests import (
    FETCH_SESSIONS_VERSION,
    SESSION_NOT_FOUND_RESPONSE,
    ProducerBatch,
    RecordRequests,
    count_records,
    parse_batch,
    refuse_all_batches,
    sequence_distance,
)
from twinshore.proxy.core.traffic import RequestCounter, TrafficTable, parse_client_software
from twinshore.state.core.proxy_values import BreakerKind, BreakerPolicy, BreakerRow

# The throttle time. It delays a client's other topics too, so it is short, and left out if there are some.
THROTTLE_MS: Final = 200
FETCH_WAIT_S_MAX: Final = 1.0
# A client that has not retried by then has given up.
RETRY_TIMEOUT_S: Final = 10.0


# Batches of one client that are remembered.
BATCH_FINGERPRINTS_MAX: Final = 1000
BatchFingerprint: TypeAlias = tuple[str, int, bytes]


class _Refused(NamedTuple):
    """The first refused sequence of a producer, and the time of the last refusal."""

    sequence: int
    at_s: float


class _Cut(NamedTuple):
    """A batch that a circuit breaker answers."""

    one: produce.ProduceRequestPartition
    row: BreakerRow
    batch: ProducerBatch | None
    drop: bool


class BreakerFilter:
    """Passes records that no circuit breaker cuts to `records`."""

    def __init__(self, records: RecordRequests, breakers: CircuitBreakers) -> None:
        self._records, self._breakers, self._reader = records, breakers, produce.ProduceRequestReader()
        self._refused: dict[PartitionProducer, _Refused] = {}
        # When a batch was last cut, the oldest first.
        self._prints: dict[BatchFingerprint, float] = {}
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
        told: list[produce.ProduceResponsePartition] = []
        kept: list[produce.ProduceRequestPartition] = []
        for one in asked.batches:
            topic = str(one.topic)
            if not self._prints or not self._came_before(_print(one)):
                breakers.wants(BreakerKind.PRODUCE, topic, client, count_records(one.records), len(one.records or b""))
            row = breakers.cut(BreakerKind.PRODUCE, topic, client)
            # Nearly always only the record count is read.
            batch = parse_batch(one.records) if remembers or row is not None else None
            if row is not None:
                self._note(_print(one))
                drops = row.policy is BreakerPolicy.DROP and asked.transactional_id is None
                cut.append(_Cut(one, row, batch, drops or not asked.acks))
            elif (code := self._must_not_go_on(one, batch)) is not None:
                told.append(_appended(one, code))
            else:
                kept.append(one)
        self._writes_elsewhere |= bool(kept)
        move = self._what_is_left(request, place, table, asked, kept, len(cut) + len(told))
        if isinstance(move, ParkRequest):
            return move  # all of it is judged again
        told += [self._answer(one, client) for one in cut]
        return self._with(move, request, told) if told and asked.acks else move

    def _came_before(self, print_of: BatchFingerprint | None) -> bool:
        """Whether this batch was refused a moment ago.

        A retry is no new demand: counted, it would keep a breaker open that closes once all is quiet.
        """
        at_s = self._prints.get(print_of) if print_of is not None else None
        return at_s is not None and self._breakers.now_s - at_s < RETRY_TIMEOUT_S

    def _note(self, print_of: BatchFingerprint | None) -> None:
        if print_of is None:
            return
        self._prints.pop(print_of, None)
        self._prints[print_of] = self._breakers.now_s
        if len(self._prints) > BATCH_FINGERPRINTS_MAX:
            del self._prints[next(iter(self._prints))]

    def _what_is_left(
        self,
        request: Request,
        place: BrokerId | None,
        table: RoutingTable,
        asked: produce.ProduceRequest,
        kept: list[produce.ProduceRequestPartition],
        out: int,
    ) -> RequestDecision:
        if not out:
            return self._records.on_produce(request, place, table, asked)
        if not kept:
            return RespondNow([]) if asked.acks else DiscardRequest()
        less = asked._replace(batches=kept)
        move = self._records.on_produce(request, place, table, less)
        if isinstance(move, ParkRequest) and move.refusal is not None:
            return move._replace(refusal=refuse_all_batches(request, asked, Code.NOT_LEADER_OR_FOLLOWER))
        if isinstance(move, ForwardRequest) and move.body is None:
            return move._replace(body=produce.write_produce_request(request.version, less))
        return move

    def _answer(self, cut: _Cut, client: str) -> produce.ProduceResponsePartition:
        one, row, batch, drop = cut
        records, size = _count(batch), len(one.records or b"")
        self._breakers.answered(row, 1, records, size)
        writer = _writer(one, batch)
        if not drop:
            if writer is not None and batch is not None:
                self._remember(writer, batch.header.base_sequence)
            return _appended(one, Code.NOT_ENOUGH_REPLICAS)
        self._breakers.dropped(row, str(one.topic), client, one.partition, records, size)
        if writer is not None:
            self._refused.pop(writer, None)
            self._breakers.gap(writer)
        return _appended(one, Code.NONE)

    def _remember(self, writer: PartitionProducer, sequence: int) -> None:
        known = self._refused.get(writer)
        if (
            known is not None
            and sequence_distance(sequence, known.sequence) > 0
            and self._breakers.now_s - known.at_s < RETRY_TIMEOUT_S
        ):
            sequence = known.sequence
        self._refused[writer] = _Refused(sequence, self._breakers.now_s)

    def _must_not_go_on(self, one: produce.ProduceRequestPartition, batch: ProducerBatch | None) -> Code | None:
        writer = _writer(one, batch)
        if writer is None or batch is None:
            return None
        if writer in self._breakers.gaps:
            # The client gets a new id or epoch, and counts from 0: then the broker sees no gap.
            return Code.UNKNOWN_PRODUCER_ID
        known = self._refused.get(writer)
        if known is None:
            return None
        if (
            self._breakers.now_s - known.at_s < RETRY_TIMEOUT_S
            and sequence_distance(batch.header.base_sequence, known.sequence) > 0
        ):
            return Code.NOT_ENOUGH_REPLICAS
        del self._refused[writer]
        return None

    def _with(
        self, move: RequestDecision, request: Request, told: Sequence[produce.ProduceResponsePartition]
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
            topics = self._records.sessions.topics_of(asked.session_id)
        rows = {topic: row for topic in topics if (row := breakers.cut(BreakerKind.FETCH, topic, client)) is not None}
        if not in_session:
            self._out_of_step.discard(asked.session_id)
        if not rows and asked.session_id not in self._out_of_step:
            return self._records.on_fetch(request, place, table, asked, self._meter(client))
        for row in rows.values():
            breakers.answered(row, 1, 0, 0)
        if rows and len(rows) == len(topics):
            if in_session:
                self._out_of_step.add(asked.session_id)
            nothing = fetch.FetchResponse(THROTTLE_MS, 0, asked.session_id if in_session else 0, [])
            return RespondLater(
                fetch.write_fetch_response(version, nothing), min(asked.max_wait_ms / 1000, FETCH_WAIT_S_MAX)
            )
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
        move = self._records.on_fetch(request, place, table, less, self._meter(request.client_id or ""))

        def whole(view: memoryview, at: int) -> Parts:
            answer = fetch.read_fetch_response(view, at, version)
            return fetch.write_fetch_response(version, answer._replace(fetched=[*answer.fetched, *told]))

        if isinstance(move, ForwardRequest) and move.body is None:
            move = move._replace(body=[fetch.write_fetch_request(version, less)])
        return _told_by(move, whole)

    def _meter(self, client: str) -> Callable[[fetch.FetchResponse], None] | None:
        """Returns what counts the broker's bytes, if breakers need that."""
        breakers = self._breakers
        if BreakerKind.FETCH not in breakers.looks:
            return None

        def count(answer: fetch.FetchResponse) -> None:
            for one in answer.fetched:
                breakers.wants(BreakerKind.FETCH, str(one.topic), client, 0, len(one.records or b""))

        return count


def _told_by(move: RequestDecision, whole: Callable[[memoryview, int], Parts]) -> RequestDecision:
    """Returns the decision with `whole` applied to its response."""

    def errand(begun: FanOutSteps) -> FanOutSteps:
        return whole(_joined((yield from begun)), 0)

    match move:
        case ForwardRequest():
            rewrite = move.rewrite

            def both(view: memoryview, at: int) -> Parts | RespondLater:
                parts = rewrite(view, at) if rewrite else None
                if isinstance(parts, RespondLater):
                    return RespondLater(whole(_joined(parts.body), 0), parts.wait_s)
                return whole(view, at) if parts is None else whole(_joined(parts), 0)

            return move._replace(rewrite=both)
        case FanOut():
            return move._replace(errand=errand(move.errand))
        case RespondNow(body):
            return RespondNow(whole(_joined(body), 0))
        case RespondLater(body, wait_s):
            return RespondLater(whole(_joined(body), 0), wait_s)
    return move


def _joined(parts: Parts) -> memoryview:
    return memoryview(b"".join(parts))


def _count(batch: ProducerBatch | None) -> int:
    return batch.header.count if batch is not None else 0


def _writer(one: produce.ProduceRequestPartition, batch: ProducerBatch | None) -> PartitionProducer | None:
    if batch is None or batch.header.producer_id < 0:
        return None
    return PartitionProducer(str(one.topic), one.partition, batch.header.producer_id, batch.header.producer_epoch)


def _print(one: produce.ProduceRequestPartition) -> BatchFingerprint | None:
    """Returns what identifies a retried batch: the partition and the batch's CRC."""
    data = one.records
    if data is None or len(data) < CRC_START:
        return None
    return str(one.topic), one.partition, bytes(data[CRC_START - 4 : CRC_START])


def _appended(one: produce.ProduceRequestPartition, code: Code) -> produce.ProduceResponsePartition:
    log_start = 0 if code is Code.UNKNOWN_PRODUCER_ID else -1
    return produce.ProduceResponsePartition(one.topic, one.partition, int(code), -1, log_start=log_start)


class ClientSession:
    """Decides one client's requests.

    `place`: the broker of the client's port; None for the first port. `news` asks for a new look at the clusters.
    `box`: circuit breakers; `at_work`: members of all clients; `flows`: traffic; `near`: follower fetch; `now`: the
    routing table when a response comes.
    """

    def __init__(
        self,
        place: BrokerId | None,
        addressing: BrokerAddressing,
        news: Callable[[], None],
        breakers: CircuitBreakers | None = None,
        now: Callable[[], RoutingTable] | None = None,
        at_work: group_requests.ActiveMembers | None = None,
        traffic: TrafficTable | None = None,
        resets: OffsetResets | None = None,
        follower_fetch: FollowerFetch | None = None,
    ) -> None:
        self.place, self._addressing, self._news = place, addressing, news
        self._admin: Mapping[int, AdminRequestRule] | None = None
        self._counting = RequestCounter(traffic)
        reading = self._reading = ClientFollowerFetch(follower_fetch or FollowerFetch(), addressing)
        as_seen = (lambda: reading.seen(now())) if now else None
        self._fused = BreakerFilter(
            RecordRequests(addressing, news, as_seen, self._counting, reading), breakers or CircuitBreakers()
        )
        self._committed = OffsetRequests(self._counting)
        self._refused = transaction_requests.RefusedTransactions()
        at_work, resets = at_work or group_requests.ActiveMembers(), resets or OffsetResets()
        self._members = group_requests.ClientMembers(at_work)
        self._newer = group_requests.ConsumerProtocolGroups(at_work, resets.holds, news)
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
        if key == API_VERSIONS:
            self._counting.is_made_with(request, self.is_made_with(parse_client_software(request)))
            return RespondNow([build_versions_response(request, table.offers)])
        low, high = table.offers.get(key, (0, -1))
        if not low <= request.version <= high:
            return DisconnectClient(_not_offered(request, table))
        if (refusal := refuse_guarded(request, table)) is not None:
            return refusal
        judge = _JUDGES.get(key)
        return judge(self, request, table) if judge is not None else self._of_admins()[key](request, self.place, table)

    def judged(self) -> frozenset[int]:
        """Returns the keys of handled requests, except ApiVersions."""
        return frozenset(_JUDGES) | frozenset(self._of_admins())

    def _of_admins(self) -> Mapping[int, AdminRequestRule]:
        """Build the admin rules on first use: few clients need them."""
        if self._admin is None:
            self._admin = build_admin_rules(self._addressing, self._committed, self._news)
        return self._admin

    def _member(self, request: Request, place: BrokerId | None, table: RoutingTable) -> RequestDecision:
        move = self._members.judge(request, place, table)
        return self._newer.joins(request, move, table) if request.key == JOIN_GROUP else move


# One table for all clients: one for each would take most of a session's memory.
_JUDGES: Final[Mapping[int, Callable[[ClientSession, Request, RoutingTable], RequestDecision]]] = {
    PRODUCE: lambda client, request, table: client._fused.on_produce(request, client.place, table),
    FETCH: lambda client, request, table: client._fused.on_fetch(request, client.place, table),
    METADATA: lambda client, request, table: metadata_requests.route_metadata(
        request, client._addressing, table, client._news, client._counting, client._reading.copies
    ),
    FIND_COORDINATOR: lambda client, request, table: metadata_requests.route_find_coordinator(
        request, client._addressing, table
    ),
    DESCRIBE_CLUSTER: lambda client, request, table: metadata_requests.route_describe_cluster(
        request, client._addressing, table
    ),
    LIST_OFFSETS: lambda client, request, table: route_by_partitions(request, client.place, table),
    OFFSET_FOR_LEADER_EPOCH: lambda client, request, table: route_by_partitions(request, client.place, table),
    OFFSET_COMMIT: lambda client, request, table: client._resets.commit(request, client.place, table),
    OFFSET_FETCH: lambda client, request, table: client._committed.fetch(request, client.place, table),
    INIT_PRODUCER_ID: lambda client, request, table: metadata_requests.route_init_producer_id(
        request, client.place, table
    ),
    CONSUMER_GROUP_HEARTBEAT: lambda client, request, table: client._newer.beat(request, client.place, table),
    transaction_requests.ADD_PARTITIONS_TO_TXN: lambda client, request, table: client._refused.add_partitions(
        request, client.place, table
    ),
    transaction_requests.ADD_OFFSETS_TO_TXN: lambda client, request, table: transaction_requests.route_add_offsets(
        request, client.place, table
    ),
    transaction_requests.END_TXN: lambda client, request, table: client._refused.end(request, client.place, table),
    transaction_requests.TXN_OFFSET_COMMIT: lambda client, request, table: client._resets.commit_in_transaction(
        request, client.place, table
    ),
    **dict.fromkeys(
        (DESCRIBE_GROUPS, LIST_GROUPS, CONSUMER_GROUP_DESCRIBE),
        lambda client, request, table: group_requests.route_describe_groups(request, client.place, table),
    ),
    **dict.fromkeys(
        (JOIN_GROUP, SYNC_GROUP, HEARTBEAT, LEAVE_GROUP),
        lambda client, request, table: client._resets.of_members(request, client.place, table),
    ),
}


def _not_offered(request: Request, table: RoutingTable) -> str:
    name = f"{api_name(request.key)} v{request.version}"
    if request.key not in HANDLED_API_VERSIONS:
        return f"it asked {name}, which is not served"
    if request.key not in table.offers:
        return f"it asked {name}, which not all clusters take"
    low, high = table.offers[request.key]
    return f"it asked {name}, which is not served: v{low} to v{high} are"
