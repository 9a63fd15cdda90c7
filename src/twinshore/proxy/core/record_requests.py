"""Produce and Fetch, and producers whose topics have moved.

Record bytes pass unchanged. The rest is rewritten only if it names a broker, a topic that is elsewhere, or leader
epochs of a moved topic. Leaders beside an error are left out: clients ask for metadata instead.

A producer keeps its id and sequence numbers on every cluster. Batches of topics that never moved are not checked. A
batch that was replicated before its home died is not written again, but reported as written at its offset.

A new home accepts any first batch of an unknown producer. The old home knows the last sequence, so the proxy finds
duplicates, and batches that come too early, as a client may send while learning of the move. Once the new home has
taken a batch of the producer, the broker checks.

If the old home is gone, the mirror knows which batches were replicated. A twin is a prefix of its source, so all
earlier batches of the producer were replicated too. Later ones may be lost, so none is too early.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from twinshore.config.errors import WireError
from twinshore.config.model import TopicPartition
from twinshore.kafka.protocol import fetch, produce
from twinshore.kafka.protocol.apis import DESCRIBE_PRODUCERS
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.primitives import I32
from twinshore.kafka.protocol.record_batch import (
    HEADER_BYTES,
    PREFIX_BYTES,
    SEQUENCE_SPAN,
    BatchHeader,
    next_batch,
    with_producer_id,
)
from twinshore.kafka.protocol.requests import Request
from twinshore.proxy.core.follower_fetch import (
    EMPTY_RESPONSE_DELAY_S,
    PREFERRED_REPLICA_FETCH_VERSION,
    ClientFollowerFetch,
    SessionCheck,
    TopicPartitionKey,
    build_empty_fetch,
)
from twinshore.proxy.core.message_codec import ask_broker, build_request, to_broker_fetch, to_client_fetch
from twinshore.proxy.core.model import (
    RESPONSE_TIMEOUT_S,
    BrokerAddressing,
    BrokerId,
    BrokerRequest,
    DiscardRequest,
    DisconnectClient,
    FanOut,
    FanOutSteps,
    ForwardRequest,
    ParkRequest,
    Parts,
    ProducerTail,
    RequestDecision,
    RespondLater,
    RespondNow,
    RoutingTable,
    add_term_stamp,
    get_term_stamp,
)
from twinshore.proxy.core.protected_reads import ProtectedReads
from twinshore.proxy.core.protected_topics import (
    NoProtection,
    ProtectedPart,
    ProtectedParts,
    Protection,
    refusal_of,
    watched_partitions,
)
from twinshore.proxy.core.traffic import RequestCounter, ResentRecords
from twinshore.replication.core.filters import is_reserved_topic

_COUNT_AT = HEADER_BYTES - I32.size
# Batches of a partition that idempotent producers may have in flight, and brokers remember.
IN_FLIGHT_MAX = 5
ACKS_ALL = -1
# Producers tracked for one client, which may name any number.
MOVED_PRODUCERS_MAX = 1000


def parse_batch(records: memoryview | bytes | None) -> BatchHeader | None:
    """Returns the header of the one batch that a producer may send to a partition; None if invalid, which the broker
    then refuses.
    """
    view = memoryview(records or b"")
    try:
        found = next_batch(view, 0, 0)
    except WireError:
        return None
    if found is None or len(found[0]) != len(view) or found[1].length != len(view) - PREFIX_BYTES:
        return None
    return found[1]


def count_records(records: memoryview | bytes | None) -> int:
    """Returns the record count that the batch claims."""
    if records is None or len(records) < HEADER_BYTES:
        return 0
    return max(0, int(I32.unpack_from(records, _COUNT_AT)[0]))


def _protected_part(one: produce.ProduceRequestPartition) -> ProtectedPart:
    header = parse_batch(one.records)
    has_producer = header is not None and header.producer_id >= 0
    return ProtectedPart(TopicPartition(str(one.topic), one.partition), count_records(one.records) - 1, has_producer)


def check_sequence(header: BatchHeader, wrote: ProducerTail) -> Code:
    """Compare the batch with what its producer wrote last elsewhere. NONE: it is next in sequence.

    DUPLICATE_SEQUENCE_NUMBER: it is written already, as clients know by this error. OUT_OF_ORDER_SEQUENCE_NUMBER: a
    batch before is missing, unless the new home has it.
    """
    if header.producer_epoch != wrote.epoch:
        return Code.none if header.producer_epoch > wrote.epoch else Code.invalid_producer_epoch
    ahead = sequence_distance(header.base_sequence, wrote.last)
    if ahead == 1:
        return Code.none
    if ahead > 1:
        return Code.none if wrote.lost else Code.out_of_order_sequence_number
    last_ahead = sequence_distance(header.base_sequence + header.count - 1, wrote.last)
    return Code.duplicate_sequence_number if last_ahead <= 0 else Code.out_of_order_sequence_number


def find_duplicate_offset(header: BatchHeader, wrote: ProducerTail) -> int | None:
    """Returns the offset of a duplicate batch; None if unknown."""
    numbers = header.base_sequence, (header.base_sequence + header.count - 1) % SEQUENCE_SPAN
    same = (batch.base_offset for batch in wrote.batches if numbers == (batch.base_sequence, batch.last_sequence))
    return next(same, None)


def sequence_distance(sequence: int, last: int) -> int:
    """Returns by how much `sequence` is after `last`, with wraparound."""
    found = (sequence - last) % SEQUENCE_SPAN
    return found if found < SEQUENCE_SPAN // 2 else found - SEQUENCE_SPAN


class ProducerPartition(NamedTuple):
    """A producer in a partition, by the id for writing now."""

    topic: str
    partition: int
    producer_id: int


class ProduceVerdict(NamedTuple):
    """What may be written.

    `asked`: the request to send; `changed`: whether it differs. `refused`: errors; `there`: offsets of duplicates.
    `early`: producers that may write only if the new home knows them. `begins`: producers that the new home knows
    afterwards.
    """

    asked: produce.ProduceRequest
    changed: bool = False
    refused: Mapping[tuple[str, int], Code] = {}
    there: Mapping[tuple[str, int], int] = {}
    early: Sequence[ProducerPartition] = ()
    begins: Sequence[ProducerPartition] = ()


class MovedProducers:
    """The producers of one client that the new home knows. `again` counts for all clients."""

    def __init__(self, again: ResentRecords) -> None:
        self._begun: set[ProducerPartition] = set()
        self._again = again
        self._unsure: dict[ProducerPartition, int] = {}

    def judge(self, asked: produce.ProduceRequest, table: RoutingTable, here: frozenset[str]) -> ProduceVerdict:
        """Judge a request. `here`: topics at home on the cluster asked."""
        kept: list[produce.ProduceRequestPartition] = []
        refused: dict[tuple[str, int], Code] = {}
        there: dict[tuple[str, int], int] = {}
        early: list[ProducerPartition] = []
        begins: list[ProducerPartition] = []
        changed = False
        for one in asked.batches:
            topic = str(one.topic)
            key = topic, one.partition
            if topic not in here:
                refused[key] = Code.not_leader_or_follower
                continue
            header = parse_batch(one.records) if topic in table.leads else None
            if header is None or header.producer_id < 0:
                kept.append(one)
                continue
            client_id = header.producer_id
            producer = ProducerPartition(*key, add_term_stamp(client_id, get_term_stamp(table.leads[topic].term)))
            known = table.wrote.get(key, {}).get(client_id)
            how = self._check(header, producer, known, table)
            self._count(header, how, producer, table)
            offset = find_duplicate_offset(header, known) if known and how is Code.duplicate_sequence_number else None
            if offset is not None:
                there[key] = offset
                continue
            if how not in (Code.none, Code.out_of_order_sequence_number):
                refused[key] = how
                continue
            if how is Code.out_of_order_sequence_number:
                early.append(producer)
            begins.append(producer)
            if producer.producer_id != client_id:
                data = memoryview(one.records or b"")[HEADER_BYTES:]
                one = one._replace(records=b"".join((with_producer_id(header, producer.producer_id), data)))
                changed = True
            kept.append(one)
        return ProduceVerdict(asked._replace(batches=kept), changed, refused, there, early, begins)

    def _count(self, header: BatchHeader, how: Code, producer: ProducerPartition, table: RoutingTable) -> None:
        """Count retried records; a retry after a lost connection counts again.

        A producer had only the first `IN_FLIGHT_MAX` batches on their way.
        """
        topic, partition, _ = producer
        if how is Code.duplicate_sequence_number and table.leads[topic].torn is not None:
            self._again.known += header.count
        elif how is Code.none and (most := table.unsure.get((topic, partition))):
            before = self._unsure.get(producer, 0)
            if before or len(self._unsure) < MOVED_PRODUCERS_MAX:
                self._unsure[producer] = before + 1
            if before < IN_FLIGHT_MAX:
                self._again.add_unconfirmed(topic, partition, table.leads[topic].term, header.count, most)

    def _check(
        self, header: BatchHeader, producer: ProducerPartition, known: ProducerTail | None, table: RoutingTable
    ) -> Code:
        if producer in self._begun or known is None:
            return Code.none
        how = check_sequence(header, known)
        home = table.clusters.get(table.leads[producer.topic].cluster or "")
        can_tell = home is not None and DESCRIBE_PRODUCERS in home.offers
        return Code.none if how is Code.out_of_order_sequence_number and not can_tell else how

    def build_producers_request(self, verdict: ProduceVerdict) -> Any:
        """Ask which producers the new home knows."""
        numbers: dict[str, list[int]] = {}
        for one in verdict.early:
            numbers.setdefault(one.topic, []).append(one.partition)
        topics = [{"name": topic, "partition_indexes": tuple(some)} for topic, some in numbers.items()]
        return build_request(DESCRIBE_PRODUCERS, 0, topics=topics)

    def judge_again(self, verdict: ProduceVerdict, answer: Any) -> ProduceVerdict:
        """Returns the verdict after that response.

        Without an answer the client retries: an out-of-order error would end the producer for good because a broker is
        away.
        """
        known: set[ProducerPartition] = set()
        answered: set[tuple[str, int]] = set()
        for topic in () if answer is None else answer.topics:
            for part in topic.partitions:
                key = str(topic.name), part.partition_index
                if not part.error_code:
                    answered.add(key)
                known |= {ProducerPartition(*key, one.producer_id) for one in part.active_producers}
        self._begun |= known & set(verdict.early)
        out = {(one.topic, one.partition) for one in verdict.early if one not in known}
        kept = [one for one in verdict.asked.batches if (str(one.topic), one.partition) not in out]
        refused = dict(verdict.refused)
        for key in out:
            refused[key] = Code.out_of_order_sequence_number if key in answered else Code.not_leader_or_follower
        begins = [one for one in verdict.begins if (one.topic, one.partition) not in out]
        return verdict._replace(asked=verdict.asked._replace(batches=kept), refused=refused, early=(), begins=begins)

    def heard(self, begins: Sequence[ProducerPartition], answer: produce.ProduceResponse) -> None:
        """Note what the new home has taken."""
        if not begins:
            return
        taken = {(str(one.topic), one.partition) for one in answer.appended if not one.error}
        self._begun.update(one for one in begins if (one.topic, one.partition) in taken)


_NOT_HERE = int(Code.not_leader_or_follower)
FETCH_SESSIONS_VERSION = 7  # the first version of Fetch that has them
SESSION_NOT_FOUND_RESPONSE = fetch.FetchResponse(0, int(Code.fetch_session_id_not_found), 0, [])
# Clients have one for each connection. Beyond these the oldest is dropped, and the client opens it again.
FETCH_SESSIONS_MAX = 4


@dataclass(slots=True)
class ClientFetchSession:
    """A fetch session.

    `judged`: the state in which all partitions, maybe thousands, were read here. `check`: when none was to be read
    elsewhere. `only`: the single topic, or empty.
    """

    held: set[TopicPartitionKey]
    judged: tuple[RoutingTable, frozenset[tuple[str, str, int]]] | None = None
    check: SessionCheck = field(default_factory=SessionCheck)
    only: str = ""

    def __post_init__(self) -> None:
        self.look()

    def look(self) -> None:
        """Update after partitions have changed."""
        topics = {topic for topic, _ in self.held}
        self.only = topics.pop() if len(topics) == 1 else ""


class FetchSessions:
    """Partitions of one client's fetch sessions at one broker, so that a session ends once a topic of it moves.

    A broker's session is opened with all partitions, and later requests name changes. Clients open sessions that are
    unknown here again.
    """

    def __init__(self) -> None:
        self._known: dict[int, ClientFetchSession] = {}

    def goes_on(
        self, asked: fetch.FetchRequest, table: RoutingTable, cluster: str, reading: ClientFollowerFetch
    ) -> bool:
        """Whether the session is known and all read at this cluster. Else it ends."""
        session = self._known.get(asked.session_id)
        if session is None:
            return False
        count = len(session.held)
        session.held.difference_update((str(one.topic), one.partition) for one in asked.dropped)
        named = {(str(one.topic), one.partition) for one in asked.wanted}
        session.held.update(named)
        if asked.dropped or len(session.held) != count:
            session.look()
        judged, now = session.judged, (table, reading.follower_fetch.served)
        same = judged is not None and judged[0] is now[0] and judged[1] is now[1]
        parts = named if same else session.held
        away = {topic for topic in {topic for topic, _ in parts} if table.is_elsewhere(topic, cluster)}
        if away and not all(reading.serves(cluster, *part, table) for part in parts if part[0] in away):
            del self._known[asked.session_id]
            return False
        session.judged = now
        return True

    def of(self, session_id: int) -> ClientFetchSession:
        return self._known[session_id]

    def only_topic(self, asked: fetch.FetchRequest) -> str:
        """Returns the request's single topic, or empty."""
        if (session := self._known.get(asked.session_id)) is not None and asked.session_epoch > 0:
            return session.only
        topics = {one.topic for one in asked.wanted}
        return str(topics.pop()) if len(topics) == 1 else ""

    def forget(self, session_id: int) -> None:
        self._known.pop(session_id, None)

    def heard(self, asked: fetch.FetchRequest, answer: fetch.FetchResponse) -> None:
        """Take the broker's response."""
        if answer.error or asked.session_epoch == 0:
            self._known.pop(asked.session_id, None)
        if asked.session_epoch == 0 and answer.session_id and not answer.error:
            held = {(str(one.topic), one.partition) for one in asked.wanted}
            self._known[answer.session_id] = ClientFetchSession(held)
            if len(self._known) > FETCH_SESSIONS_MAX:
                del self._known[next(iter(self._known))]


class RecordRequests:
    """Produce and Fetch of one client.

    `stale` is called if a broker no longer leads a partition. `reading`: follower fetch.
    """

    def __init__(
        self,
        addressing: BrokerAddressing,
        stale: Callable[[], None],
        now: Callable[[], RoutingTable] | None,
        counting: RequestCounter,
        reading: ClientFollowerFetch,
        protection: Protection | None = None,
    ) -> None:
        self._addressing, self._stale, self._now = addressing, stale, now
        self._protection: Protection = protection or NoProtection()
        self._counting, self._reading = counting, reading
        self.sessions, self.reads = FetchSessions(), ProtectedReads(protection)
        # Of the last request: protected topics, and whether it wrote to others.
        self._wrote: tuple[set[str], bool] = set(), False
        self._moved = MovedProducers(self._counting.again)

    def on_produce(
        self, request: Request, place: BrokerId | None, table: RoutingTable, asked: produce.ProduceRequest | None = None
    ) -> RequestDecision:
        """Judge Produce. `asked`: the decoded request, if at hand. Writes to protected topics are sent with acks=all.

        A transaction's writes are not protected: its end is.
        """
        asked = asked or produce.read_produce_request(request.view, request.position, request.version)
        if not self._protection.levels or asked.transactional_id is not None:
            return self._produce(request, place, table, asked)
        watched = watched_partitions(asked, self._protection)
        protected = {topic for topic in watched if self._protection.levels[topic].holds}
        if protected and not asked.acks:
            topic = min(protected)
            return DisconnectClient(f"it writes to {topic} without acknowledgements, and {topic} is protected")
        if (code := refusal_of(watched, self._protection)) is not None:
            return self._refused(request, asked, code)
        self._note_mixing(request, protected, any(str(one.topic) not in protected for one in asked.batches))
        if not protected:
            return self._produce(request, place, table, asked)
        parts = tuple(_protected_part(one) for one in asked.batches if str(one.topic) in protected)
        if len({part.partition for part in parts}) < len(parts):  # each has one answer
            return self._refused(request, asked, Code.invalid_request)
        decision = self._produce(request, place, table, asked._replace(acks=ACKS_ALL))
        if not isinstance(decision, ForwardRequest | FanOut):
            return decision
        if isinstance(decision, ForwardRequest) and asked.acks != ACKS_ALL and decision.body is None:
            body = produce.write_produce_request(request.version, asked._replace(acks=ACKS_ALL))
            decision = decision._replace(body=body)
        return decision._replace(protected=ProtectedParts(parts, asked.timeout_ms, request.version))

    def _note_mixing(self, request: Request, protected: set[str], has_others: bool) -> None:
        """Note a client whose writes to other topics wait behind those to protected ones."""
        (before, had_others), self._wrote = self._wrote, (protected, has_others)
        if (topics := protected | before) and (has_others or had_others):
            self._protection.note_mixing(topics, request.client_id or "")

    def _produce(
        self, request: Request, place: BrokerId | None, table: RoutingTable, asked: produce.ProduceRequest
    ) -> RequestDecision:
        """Topics elsewhere are refused, so that the client refreshes; held ones wait."""
        topics = tuple(dict.fromkeys([str(one.topic) for one in asked.batches]))
        if place is None or not topics or any(map(is_reserved_topic, topics)):
            return self._refused(request, asked, Code.not_leader_or_follower)
        here = [topic for topic in topics if not table.is_elsewhere(topic, place.cluster)]
        if asked.transactional_id is not None and place.cluster != table.group_home() and here:
            return self._refused(request, asked, Code.invalid_txn_state)
        # A transaction may go on writing: a switch waits until it has ended.
        if asked.transactional_id is None and any(map(table.writes_paused, here)):
            refusal = refuse_all_batches(request, asked, Code.not_leader_or_follower) if asked.acks else None
            return ParkRequest(refusal, goes_first=True)
        if not here:
            return self._refused(request, asked, Code.not_leader_or_follower)
        untouched = len(here) == len(topics) and table.leads.keys().isdisjoint(here)
        judged = ProduceVerdict(asked) if untouched else self._moved.judge(asked, table, frozenset(here))
        wait_s = RESPONSE_TIMEOUT_S + asked.timeout_ms / 1000
        if not judged.refused and not judged.there and not judged.early:
            heard = partial(self._produced, request=request, place=place, begun=judged.begins)
            body = produce.write_produce_request(request.version, judged.asked) if judged.changed else None
            counters = self._counting.sent(request, judged.asked, place.cluster)
            return ForwardRequest(place, wait_s, heard, asked.acks != 0, body, topics, counters)
        if not asked.acks:
            return DisconnectClient("it sent records for a topic that has moved, and waits for no answer")
        return FanOut(self._produce_part(request, asked, place, judged), wait_s, tuple(here))

    def _refused(self, request: Request, asked: produce.ProduceRequest, code: Code) -> RequestDecision:
        if asked.acks:
            return RespondNow(refuse_all_batches(request, asked, code))
        if not asked.batches:
            return DiscardRequest()
        why = "it sent records to the wrong broker, or to a topic of Kafka's own, and waits for no answer"
        return DisconnectClient(why)

    def _produce_part(
        self, request: Request, asked: produce.ProduceRequest, place: BrokerId, verdict: ProduceVerdict
    ) -> FanOutSteps:
        version = request.version
        if verdict.early:
            producers = yield from ask_broker(place, self._moved.build_producers_request(verdict))
            verdict = self._moved.judge_again(verdict, producers)
        kept = {(str(one.topic), one.partition) for one in verdict.asked.batches}
        answer, code = produce.ProduceResponse([]), Code.none
        if kept:
            counters = self._counting.sent(request, verdict.asked, place.cluster)
            body = produce.write_produce_request(version, verdict.asked)
            (response,) = yield [BrokerRequest(place, request.key, version, body, counters)]
            if response is None:
                code = Code.request_timed_out
            else:
                answer = self._kept_out(produce.read_produce_response(response, 0, version), place)
        given = {(str(one.topic), one.partition): one for one in answer.appended}
        self._moved.heard(verdict.begins, answer)
        joined = []
        for one in asked.batches:
            key = (str(one.topic), one.partition)
            if key in verdict.there:
                joined.append(produce.ProducedPartition(*key, int(Code.none), verdict.there[key]))
                continue
            refused = int(code) if key in kept else int(verdict.refused.get(key, Code.not_leader_or_follower))
            joined.append(given.get(key, produce.ProducedPartition(*key, refused, -1)))
        return [produce.write_produce_response(version, _without_leaders(answer._replace(appended=joined)))]

    def _produced(
        self, view: memoryview, at: int, request: Request, place: BrokerId, begun: Sequence[ProducerPartition]
    ) -> Parts | None:
        version = request.version
        if not begun and produce.is_all_appended(view, at, version):
            return None
        answer = produce.read_produce_response(view, at, version)
        self._moved.heard(begun, answer)
        self._counting.appended(request.client_id or "", place.cluster, answer)
        if (told := self._kept_out(answer, place)) is not answer:
            return [produce.write_produce_response(version, _without_leaders(told))]
        if any(one.error == _NOT_HERE for one in answer.appended):
            self._stale()
        if not answer.endpoints and not any(one.current_leader for one in answer.appended):
            return None
        return [produce.write_produce_response(version, _without_leaders(answer))]

    def _kept_out(self, answer: produce.ProduceResponse, place: BrokerId) -> produce.ProduceResponse:
        """Replace authorization errors: a switch also blocks writers by ACLs, and late ones must refresh metadata."""
        table, refused = self._now() if self._now else None, int(Code.topic_authorization_failed)
        if table is None or all(one.error != refused for one in answer.appended):
            return answer
        appended = []
        for one in answer.appended:
            if one.error == refused and table.may_reject_writers(str(one.topic), place.cluster):
                one = one._replace(error=_NOT_HERE, message=None)
            appended.append(one)
        return answer._replace(appended=appended)

    def on_fetch(
        self,
        request: Request,
        place: BrokerId | None,
        table: RoutingTable,
        asked: fetch.FetchRequest | None = None,
        told: Callable[[fetch.FetchResponse], None] | None = None,
    ) -> RequestDecision:
        """Judge Fetch. A session is the broker's, as a client reaches it by one port only.

        `asked`: the decoded request, if its session is known to go on. `told` gets the broker's whole response.
        """
        version, is_judged = request.version, asked is not None
        asked = asked or fetch.read_fetch_request(request.view, request.position, version)
        if place is None:
            return RespondNow(self._fetch_refused(version, asked.wanted))
        if version >= FETCH_SESSIONS_VERSION and asked.session_epoch > 0:
            if not is_judged and not self.goes_on(asked, place, table):
                return RespondNow(fetch.write_fetch_response(version, SESSION_NOT_FOUND_RESPONSE))
        elif (led := self._led_near(version, asked, place, table)) is not None:
            return led
        here = [one for one in asked.wanted if self._reading.is_read_here(one, place.cluster, table)]
        wait_s = RESPONSE_TIMEOUT_S + asked.max_wait_ms / 1000
        if len(here) == len(asked.wanted):
            rewrite = partial(
                self._fetched, request=request, cluster=place.cluster, asked=asked, told=told, table=table
            )
            body = _body_with_epochs(version, asked, table, place.cluster)
            return ForwardRequest(place, wait_s, rewrite, body=body)
        if not here:
            return RespondNow(self._fetch_refused(version, asked.wanted))
        return FanOut(self._fetch_part(request, asked, asked._replace(wanted=here), place, table), wait_s)

    def goes_on(self, asked: fetch.FetchRequest, place: BrokerId, table: RoutingTable) -> bool:
        """Whether the session continues. It ends if some of it is to be read elsewhere, so that the client is
        redirected.
        """
        reading = self._reading
        if not self.sessions.goes_on(asked, table, place.cluster, reading):
            return False
        session = self.sessions.of(asked.session_id)
        if not reading.redirects_session(asked, session.held, place.cluster, table, session.check):
            return True
        self.sessions.forget(asked.session_id)
        return False

    def _led_near(
        self, version: int, asked: fetch.FetchRequest, place: BrokerId, table: RoutingTable
    ) -> RequestDecision | None:
        """Redirect the client, or have it wait for a check; None to read here."""
        reading = self._reading
        parts = ((str(one.topic), one.partition) for one in asked.wanted)
        if version < PREFERRED_REPLICA_FETCH_VERSION or not reading.note(asked, parts, table):
            return None
        if (led := reading.leads(asked, place.cluster, table)) is not None:
            return RespondNow(fetch.write_fetch_response(version, led))
        if reading.waits(asked.wanted, place.cluster, table):
            body = fetch.write_fetch_response(version, build_empty_fetch(asked.wanted))
            return RespondLater(body, EMPTY_RESPONSE_DELAY_S)
        return None

    def _fetch_refused(self, version: int, wanted: Sequence[fetch.FetchRequestPartition]) -> Parts:
        return fetch.write_fetch_response(version, fetch.FetchResponse(0, 0, 0, [_nothing(one) for one in wanted]))

    def _fetch_part(
        self,
        request: Request,
        asked: fetch.FetchRequest,
        here: fetch.FetchRequest,
        place: BrokerId,
        table: RoutingTable,
    ) -> FanOutSteps:
        """Fetch without a session, since the broker's would lack what is refused here.

        The broker may not wait: the client must learn at once what has moved.
        """
        version = request.version
        wanted = [to_broker_fetch(one, table, place.cluster) for one in here.wanted]
        alone = here._replace(wanted=wanted, dropped=(), session_id=0, session_epoch=-1, max_wait_ms=0)
        (response,) = yield [BrokerRequest(place, request.key, version, [fetch.write_fetch_request(version, alone)])]
        there = set() if response is None else set(here.wanted)
        moved = [_nothing(one) for one in asked.wanted if one not in there]
        answer = fetch.FetchResponse(0, 0, 0, [])
        if response is not None:
            answer = fetch.read_fetch_response(response, 0, version)
        answer, _ = self._reading.heard(alone, answer, place.cluster, table)
        answer, _ = self.reads.bounded(answer, place.cluster)
        whole = self._fetch_renamed(self._at_home(answer, table, place.cluster), place.cluster)
        return fetch.write_fetch_response(version, whole._replace(fetched=[*whole.fetched, *moved]))

    def _fetched(
        self,
        view: memoryview,
        at: int,
        request: Request,
        cluster: str,
        asked: fetch.FetchRequest,
        told: Callable[[fetch.FetchResponse], None] | None,
        table: RoutingTable,
    ) -> Parts | RespondLater | None:
        version = request.version
        answer = fetch.read_fetch_response(view, at, version)
        if told is not None:
            told(answer)
        topic = self.sessions.only_topic(asked)
        if version >= FETCH_SESSIONS_VERSION and asked.session_epoch >= 0:
            self.sessions.heard(asked, answer)
        self._counting.fetched(request, asked, topic, cluster, answer)
        if any(one.error == _NOT_HERE for one in answer.fetched):
            self._stale()
        shown, wait_s = self._reading.heard(asked, answer, cluster, table)
        shown, lacks_s = self.reads.bounded(shown, cluster)
        wait_s = max(wait_s, lacks_s)
        shown = self._at_home(shown, table, cluster)
        if shown is answer and all(one.current_leader is None and one.preferred_replica < 0 for one in answer.fetched):
            return None
        parts = fetch.write_fetch_response(version, self._fetch_renamed(shown, cluster))
        return RespondLater([b"".join(parts)], wait_s) if wait_s else parts

    def _at_home(self, answer: fetch.FetchResponse, table: RoutingTable, cluster: str) -> fetch.FetchResponse:
        """Convert epochs, and drop topics that moved while the broker waited.

        The new home may have other records there, and detects that by the client's epoch.
        """
        now = self._now() if self._now else table
        topics = {str(one.topic) for one in answer.fetched} if now is not table else set()
        left = {one for one in topics if now.is_elsewhere(one, cluster) and not table.is_elsewhere(one, cluster)}
        if left:
            fetched = [_nothing(one) if str(one.topic) in left else one for one in answer.fetched]
            answer = answer._replace(fetched=fetched)
        return to_client_fetch(answer, now, cluster)

    def _fetch_renamed(self, answer: fetch.FetchResponse, cluster: str) -> fetch.FetchResponse:
        fetched = []
        for one in answer.fetched:
            number = self._addressing.number(cluster, one.preferred_replica)
            fetched.append(one._replace(current_leader=None, preferred_replica=number))
        return answer._replace(fetched=fetched)


def refuse_all_batches(request: Request, asked: produce.ProduceRequest, code: Code) -> Parts:
    """Refuse all batches, protected topics as not authorized."""
    appended = []
    for one in asked.batches:
        error = Code.topic_authorization_failed if is_reserved_topic(str(one.topic)) else code
        appended.append(produce.ProducedPartition(one.topic, one.partition, int(error), -1))
    return [produce.write_produce_response(request.version, produce.ProduceResponse(appended))]


def _without_leaders(answer: produce.ProduceResponse) -> produce.ProduceResponse:
    return answer._replace(appended=[one._replace(current_leader=None) for one in answer.appended], endpoints=())


def _body_with_epochs(version: int, asked: fetch.FetchRequest, table: RoutingTable, cluster: str) -> Parts | None:
    """Returns the request with the cluster's epochs; None if there are none.

    librdkafka clients without an epoch name that of the last batch read, which brokers refuse after another leader.
    """
    if all(one.leader_epoch < 0 and one.last_fetched_epoch < 0 for one in asked.wanted):
        return None
    wanted = [to_broker_fetch(one, table, cluster) for one in asked.wanted]
    return [fetch.write_fetch_request(version, asked._replace(wanted=wanted))]


def _nothing(one: fetch.FetchRequestPartition | fetch.FetchResponsePartition) -> fetch.FetchResponsePartition:
    return fetch.FetchResponsePartition(one.topic, one.partition, _NOT_HERE, -1, -1)
