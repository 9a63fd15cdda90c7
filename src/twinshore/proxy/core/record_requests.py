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
from enum import Enum, auto
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from twinshore.config.errors import WireError
from twinshore.kafka.protocol import fetch, produce
from twinshore.kafka.protocol.apis import DESCRIBE_PRODUCERS
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.primitives import I32, Buffer
from twinshore.kafka.protocol.record_batch import (
    HEADER_BYTES,
    PREFIX_BYTES,
    SEQUENCE_SPAN,
    BatchHeader,
    next_batch,
    with_producer_id,
)
from twinshore.kafka.protocol.requests import Request
from twinshore.proxy.core import message_codec
from twinshore.proxy.core.follower_fetch import (
    EMPTY_RESPONSE_DELAY_S,
    PREFERRED_REPLICA_FETCH_VERSION,
    ClientFollowerFetch,
    FollowerFetch,
    SessionCheck,
    TopicPartitionKey,
    build_empty_fetch,
)
from twinshore.proxy.core.message_codec import (
    build_message,
    decode_response,
    encode_message,
    get_element_type,
    get_request_type,
)
from twinshore.proxy.core.model import (
    RESPONSE_TIMEOUT_S,
    BrokerAddressing,
    BrokerId,
    BrokerRequest,
    BrokerResponse,
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
from twinshore.proxy.core.traffic import RequestCounter, ResentRecords
from twinshore.replication.core.filters import is_protected_topic

_COUNT_AT = HEADER_BYTES - I32.size
# Batches of a partition that idempotent producers may have in flight, and brokers remember.
IN_FLIGHT_MAX = 5
# Producers tracked for one client, which may name any number.
MOVED_PRODUCERS_MAX = 1000


class SequenceCheck(Enum):
    """How a batch fits. IN_ORDER: next in sequence, or unknown. TWICE: written already. OUT_OF_ORDER: a batch before is
    missing, unless the new home has it. FENCED: an old producer epoch.
    """

    IN_ORDER = auto()
    TWICE = auto()
    OUT_OF_ORDER = auto()
    FENCED = auto()


class ProducerBatch(NamedTuple):
    """The one batch that a producer may send to a partition."""

    header: BatchHeader
    data: memoryview


def parse_batch(records: memoryview | bytes | None) -> ProducerBatch | None:
    """Parse a batch; None if invalid, which the broker then refuses."""
    view = memoryview(records or b"")
    try:
        found = next_batch(view, 0, 0)
    except WireError:
        return None
    if found is None or len(found[0]) != len(view) or found[1].length != len(view) - PREFIX_BYTES:
        return None
    return ProducerBatch(found[1], view)


def count_records(records: memoryview | bytes | None) -> int:
    """Returns the record count that the batch claims."""
    if records is None or len(records) < HEADER_BYTES:
        return 0
    return max(0, int(I32.unpack_from(records, _COUNT_AT)[0]))


def check_sequence(header: BatchHeader, wrote: ProducerTail) -> SequenceCheck:
    """Compare the batch with what its producer wrote last elsewhere."""
    if header.producer_epoch != wrote.epoch:
        return SequenceCheck.IN_ORDER if header.producer_epoch > wrote.epoch else SequenceCheck.FENCED
    ahead = sequence_distance(header.base_sequence, wrote.last)
    if ahead == 1:
        return SequenceCheck.IN_ORDER
    if ahead > 1:
        return SequenceCheck.IN_ORDER if wrote.lost else SequenceCheck.OUT_OF_ORDER
    return (
        SequenceCheck.TWICE
        if sequence_distance(header.base_sequence + header.count - 1, wrote.last) <= 0
        else SequenceCheck.OUT_OF_ORDER
    )


def find_duplicate_offset(header: BatchHeader, wrote: ProducerTail) -> int | None:
    """Returns the offset of a duplicate batch; None if unknown."""
    numbers = header.base_sequence, (header.base_sequence + header.count - 1) % SEQUENCE_SPAN
    for batch in wrote.batches:
        if numbers == (batch.base_sequence, batch.last_sequence):
            return batch.base_offset
    return None


def sequence_distance(sequence: int, last: int) -> int:
    """Returns by how much `sequence` is after `last`, with wraparound."""
    found = (sequence - last) % SEQUENCE_SPAN
    return found if found < SEQUENCE_SPAN // 2 else found - SEQUENCE_SPAN


def with_producer(batch: ProducerBatch, producer_id: int) -> Buffer:
    return b"".join((with_producer_id(batch.header, producer_id), batch.data[HEADER_BYTES:]))


_REFUSED: Mapping[SequenceCheck, Code] = {
    SequenceCheck.TWICE: Code.DUPLICATE_SEQUENCE_NUMBER,  # which clients take for written
    SequenceCheck.OUT_OF_ORDER: Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
    SequenceCheck.FENCED: Code.INVALID_PRODUCER_EPOCH,
}


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

    def __init__(self, again: ResentRecords | None = None) -> None:
        self._begun: set[ProducerPartition] = set()
        self._again = again or ResentRecords()
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
            if topic not in here:
                refused[topic, one.partition] = Code.NOT_LEADER_OR_FOLLOWER
                continue
            batch = parse_batch(one.records) if topic in table.leads else None
            if batch is None or batch.header.producer_id < 0:
                kept.append(one)
                continue
            writer = ProducerPartition(
                topic, one.partition, add_term_stamp(batch.header.producer_id, get_term_stamp(table.leads[topic].term))
            )
            known = table.wrote.get((topic, one.partition), {}).get(batch.header.producer_id)
            how = self._how(batch, writer, known, table)
            self._count(batch, how, writer, table)
            if (
                how is SequenceCheck.TWICE
                and known is not None
                and (offset := find_duplicate_offset(batch.header, known)) is not None
            ):
                there[topic, one.partition] = offset
                continue
            if how in _REFUSED and how is not SequenceCheck.OUT_OF_ORDER:
                refused[topic, one.partition] = _REFUSED[how]
                continue
            if how is SequenceCheck.OUT_OF_ORDER:
                early.append(writer)
            begins.append(writer)
            if writer.producer_id != batch.header.producer_id:
                one, changed = one._replace(records=bytes(with_producer(batch, writer.producer_id))), True
            kept.append(one)
        return ProduceVerdict(asked._replace(batches=kept), changed, refused, there, early, begins)

    def _count(self, batch: ProducerBatch, how: SequenceCheck, writer: ProducerPartition, table: RoutingTable) -> None:
        """Count retried records; a retry after a lost connection counts again.

        A producer had only the first `IN_FLIGHT_MAX` batches on their way.
        """
        if how is SequenceCheck.TWICE and table.leads[writer.topic].torn is not None:
            self._again.known += batch.header.count
        elif how is SequenceCheck.IN_ORDER and (most := table.unsure.get((writer.topic, writer.partition))):
            before = self._unsure.get(writer, 0)
            if before or len(self._unsure) < MOVED_PRODUCERS_MAX:
                self._unsure[writer] = before + 1
            if before < IN_FLIGHT_MAX:
                term = table.leads[writer.topic].term
                self._again.add_unconfirmed(writer.topic, writer.partition, term, batch.header.count, most)

    def _how(
        self, batch: ProducerBatch, writer: ProducerPartition, known: ProducerTail | None, table: RoutingTable
    ) -> SequenceCheck:
        if writer in self._begun:
            return SequenceCheck.IN_ORDER
        how = check_sequence(batch.header, known) if known is not None else SequenceCheck.IN_ORDER
        home = table.clusters.get(table.leads[writer.topic].cluster or "")
        can_tell = home is not None and DESCRIBE_PRODUCERS in home.offers
        return SequenceCheck.IN_ORDER if how is SequenceCheck.OUT_OF_ORDER and not can_tell else how

    def build_producers_request(self, judged: ProduceVerdict) -> Parts:
        """Ask which producers the new home knows."""
        kind = get_request_type(DESCRIBE_PRODUCERS, 0)
        part = get_element_type(kind, "topics")
        numbers: dict[str, list[int]] = {}
        for one in judged.early:
            numbers.setdefault(one.topic, []).append(one.partition)
        topics = tuple(
            build_message(part, name=topic, partition_indexes=tuple(some)) for topic, some in numbers.items()
        )
        return encode_message(build_message(kind, topics=topics))

    def told(self, judged: ProduceVerdict, said: BrokerResponse) -> ProduceVerdict:
        """Returns the verdict after that response.

        Without an answer the client retries: an out-of-order error would end the producer for good because a broker is
        away.
        """
        known: set[ProducerPartition] = set()
        heard: set[tuple[str, int]] = set()
        topics: Sequence[Any] = () if said is None else decode_response(DESCRIBE_PRODUCERS, 0, said).topics
        for topic in topics:
            for part in topic.partitions:
                if not part.error_code:
                    heard.add((str(topic.name), part.partition_index))
                known |= {
                    ProducerPartition(str(topic.name), part.partition_index, one.producer_id)
                    for one in part.active_producers
                }
        self._begun |= known & set(judged.early)
        out = {(one.topic, one.partition) for one in judged.early if one not in known}
        kept = [one for one in judged.asked.batches if (str(one.topic), one.partition) not in out]
        why = {
            one: _REFUSED[SequenceCheck.OUT_OF_ORDER] if one in heard else Code.NOT_LEADER_OR_FOLLOWER for one in out
        }
        refused = {**judged.refused, **why}
        begins = [one for one in judged.begins if (one.topic, one.partition) not in out]
        asked = judged.asked._replace(batches=kept)
        return judged._replace(asked=asked, refused=refused, early=(), begins=begins)

    def heard(self, begins: Sequence[ProducerPartition], answer: produce.ProduceResponse) -> None:
        """Note what the new home has taken."""
        if not begins:
            return
        taken = {(str(one.topic), one.partition) for one in answer.appended if not one.error}
        self._begun.update(one for one in begins if (one.topic, one.partition) in taken)


_NOT_HERE = int(Code.NOT_LEADER_OR_FOLLOWER)
FETCH_SESSIONS_VERSION = 7  # the first version of Fetch that has them
SESSION_NOT_FOUND_RESPONSE = fetch.FetchResponse(0, int(Code.FETCH_SESSION_ID_NOT_FOUND), 0, [])
# Clients have one for each connection. Beyond these the oldest is dropped, and the client opens it again.
FETCH_SESSIONS_MAX = 4


@dataclass(slots=True)
class _Session:
    """A fetch session.

    `judged`: the state in which all partitions, maybe thousands, were read here. `looked`: when none was to be read
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
        self._known: dict[int, _Session] = {}

    def goes_on(
        self, asked: fetch.FetchRequest, table: RoutingTable, cluster: str, follower_fetch: FollowerFetch
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
        judged, now = session.judged, (table, follower_fetch.served)
        same = judged is not None and judged[0] is now[0] and judged[1] is now[1]
        parts = named if same else session.held
        away = {topic for topic in {topic for topic, _ in parts} if table.is_elsewhere(topic, cluster)}
        if away and not all(follower_fetch.serves(cluster, *part) for part in parts if part[0] in away):
            del self._known[asked.session_id]
            return False
        session.judged = now
        return True

    def parts_of(self, session_id: int) -> tuple[set[TopicPartitionKey], SessionCheck]:
        """Returns the session's partitions, and when none was to be read elsewhere."""
        session = self._known[session_id]
        return session.held, session.check

    def topics_of(self, session_id: int) -> set[str]:
        return {topic for topic, _ in self._known[session_id].held}

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
            self._known[answer.session_id] = _Session({(str(one.topic), one.partition) for one in asked.wanted})
            for oldest in list(islice(self._known, max(0, len(self._known) - FETCH_SESSIONS_MAX))):
                del self._known[oldest]


class RecordRequests:
    """Produce and Fetch of one client.

    `stale` is called if a broker no longer leads a partition. `reading`: follower fetch.
    """

    def __init__(
        self,
        addressing: BrokerAddressing,
        stale: Callable[[], None],
        now: Callable[[], RoutingTable] | None = None,
        counting: RequestCounter | None = None,
        reading: ClientFollowerFetch | None = None,
    ) -> None:
        self._addressing, self._stale, self._now = addressing, stale, now
        self._counting = counting or RequestCounter()
        self._reading = reading or ClientFollowerFetch(FollowerFetch(), addressing)
        self.sessions = FetchSessions()
        self._moved = MovedProducers(self._counting.again)

    def on_produce(
        self, request: Request, place: BrokerId | None, table: RoutingTable, asked: produce.ProduceRequest | None = None
    ) -> RequestDecision:
        """Judge Produce. Topics elsewhere are refused, so that the client refreshes; held ones wait.

        `asked`: the decoded request, if at hand.
        """
        asked = asked or produce.read_produce_request(request.view, request.position, request.version)
        topics = tuple(dict.fromkeys([str(one.topic) for one in asked.batches]))
        if place is None or not topics or any(map(is_protected_topic, topics)):
            return self._refused(request, asked, Code.NOT_LEADER_OR_FOLLOWER)
        here = [topic for topic in topics if not table.is_elsewhere(topic, place.cluster)]
        if asked.transactional_id is not None and place.cluster != table.group_home() and here:
            return self._refused(request, asked, Code.INVALID_TXN_STATE)
        # A transaction may go on writing: a switch waits until it has ended.
        if asked.transactional_id is None and any(map(table.writes_paused, here)):
            refusal = refuse_all_batches(request, asked, Code.NOT_LEADER_OR_FOLLOWER) if asked.acks else None
            return ParkRequest(refusal, goes_first=True)
        if not here:
            return self._refused(request, asked, Code.NOT_LEADER_OR_FOLLOWER)
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
        if not asked.acks:
            return (
                DiscardRequest()
                if not asked.batches
                else DisconnectClient(
                    "it sent records to the wrong broker, or to a topic of Kafka's own, and waits for no answer"
                )
            )
        return RespondNow(refuse_all_batches(request, asked, code))

    def _produce_part(
        self, request: Request, asked: produce.ProduceRequest, place: BrokerId, judged: ProduceVerdict
    ) -> FanOutSteps:
        version = request.version
        if judged.early:
            (said,) = yield [BrokerRequest(place, DESCRIBE_PRODUCERS, 0, self._moved.build_producers_request(judged))]
            judged = self._moved.told(judged, said)
        kept = {(str(one.topic), one.partition) for one in judged.asked.batches}
        answer = produce.ProduceResponse([])
        code = Code.NONE
        if kept:
            counters = self._counting.sent(request, judged.asked, place.cluster)
            (said,) = yield [
                BrokerRequest(
                    place, request.key, version, produce.write_produce_request(version, judged.asked), counters
                )
            ]
            code = Code.REQUEST_TIMED_OUT if said is None else Code.NONE
            answer = answer if said is None else self._kept_out(produce.read_produce_response(said, 0, version), place)
        given = {(str(one.topic), one.partition): one for one in answer.appended}
        self._moved.heard(judged.begins, answer)
        joined = []
        for one in asked.batches:
            key = (str(one.topic), one.partition)
            if key in judged.there:
                joined.append(produce.ProduceResponsePartition(*key, int(Code.NONE), judged.there[key]))
                continue
            refused = int(code) if key in kept else int(judged.refused.get(key, Code.NOT_LEADER_OR_FOLLOWER))
            joined.append(given.get(key, produce.ProduceResponsePartition(*key, refused, -1)))
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
        table = self._now() if self._now else None
        if table is None or all(one.error != Code.TOPIC_AUTHORIZATION_FAILED for one in answer.appended):
            return answer

        def told(one: produce.ProduceResponsePartition) -> produce.ProduceResponsePartition:
            topic = str(one.topic)
            out = one.error == Code.TOPIC_AUTHORIZATION_FAILED and table.may_reject_writers(topic, place.cluster)
            return one._replace(error=_NOT_HERE, message=None) if out else one

        return answer._replace(appended=[told(one) for one in answer.appended])

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
        sessions = version >= FETCH_SESSIONS_VERSION and asked.session_epoch >= 0
        if sessions and asked.session_epoch > 0:
            if not is_judged and not self.goes_on(asked, place, table):
                return RespondNow(fetch.write_fetch_response(version, SESSION_NOT_FOUND_RESPONSE))
        elif (led := self._led_near(version, asked, place, table)) is not None:
            return led
        here = [one for one in asked.wanted if self._reading.is_read_here(one, place.cluster, table)]
        wait_s = RESPONSE_TIMEOUT_S + asked.max_wait_ms / 1000
        if len(here) == len(asked.wanted):
            fetched = partial(self._fetched, request=request, cluster=place.cluster, asked=asked, noted=sessions)
            heard = partial(fetched, told=told, table=table)
            return ForwardRequest(place, wait_s, heard, body=_body_with_epochs(version, asked, table, place.cluster))
        if not here:
            return RespondNow(self._fetch_refused(version, asked.wanted))
        return FanOut(self._fetch_part(request, asked, place, here, table), wait_s)

    def goes_on(self, asked: fetch.FetchRequest, place: BrokerId, table: RoutingTable) -> bool:
        """Whether the session continues. It ends if some of it is to be read elsewhere, so that the client is
        redirected.
        """
        reading = self._reading
        if not self.sessions.goes_on(asked, table, place.cluster, reading.follower_fetch):
            return False
        parts, check = self.sessions.parts_of(asked.session_id)
        if not reading.note_session(asked, parts, table, check):
            return True
        if not reading.redirects_session(parts, place.cluster, table, check):
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
            return RespondLater(
                fetch.write_fetch_response(version, build_empty_fetch(asked.wanted)), EMPTY_RESPONSE_DELAY_S
            )
        return None

    def _fetch_refused(self, version: int, wanted: Sequence[fetch.FetchRequestPartition]) -> Parts:
        return fetch.write_fetch_response(version, fetch.FetchResponse(0, 0, 0, [_nothing(one) for one in wanted]))

    def _fetch_part(
        self,
        request: Request,
        asked: fetch.FetchRequest,
        place: BrokerId,
        here: Sequence[fetch.FetchRequestPartition],
        table: RoutingTable,
    ) -> FanOutSteps:
        """Fetch without a session, since the broker's would lack what is refused here.

        The broker may not wait: the client must learn at once what has moved.
        """
        version = request.version
        alone = asked._replace(
            wanted=[message_codec.to_broker_fetch(one, table, place.cluster) for one in here],
            dropped=(),
            session_id=0,
            session_epoch=-1,
            max_wait_ms=0,
        )
        (said,) = yield [BrokerRequest(place, request.key, version, [fetch.write_fetch_request(version, alone)])]
        ours = set(here)
        moved = [_nothing(one) for one in asked.wanted if one not in ours]
        if said is None:
            moved = [_nothing(one) for one in asked.wanted]
        answer = fetch.FetchResponse(0, 0, 0, []) if said is None else fetch.read_fetch_response(said, 0, version)
        answer, _ = self._reading.heard(alone, answer, place.cluster, table)
        whole = self._fetch_renamed(self._at_home(answer, table, place.cluster), place.cluster)
        return fetch.write_fetch_response(version, whole._replace(fetched=[*whole.fetched, *moved]))

    def _fetched(
        self,
        view: memoryview,
        at: int,
        request: Request,
        cluster: str,
        asked: fetch.FetchRequest,
        noted: bool,
        told: Callable[[fetch.FetchResponse], None] | None,
        table: RoutingTable,
    ) -> Parts | RespondLater | None:
        version = request.version
        answer = fetch.read_fetch_response(view, at, version)
        if told is not None:
            told(answer)
        topic = self.sessions.only_topic(asked)
        if noted:
            self.sessions.heard(asked, answer)
        self._counting.fetched(request, asked, topic, cluster, answer)
        if any(one.error == _NOT_HERE for one in answer.fetched):
            self._stale()
        shown, wait_s = self._reading.heard(asked, answer, cluster, table)
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
        return message_codec.to_client_fetch(answer, now, cluster)

    def _fetch_renamed(self, answer: fetch.FetchResponse, cluster: str) -> fetch.FetchResponse:
        fetched = [
            one._replace(current_leader=None, preferred_replica=self._addressing.number(cluster, one.preferred_replica))
            for one in answer.fetched
        ]
        return answer._replace(fetched=fetched)


def refuse_all_batches(request: Request, asked: produce.ProduceRequest, code: Code) -> Parts:
    """Refuse all batches, protected topics as not authorized."""
    guarded = int(Code.TOPIC_AUTHORIZATION_FAILED)
    appended = [
        produce.ProduceResponsePartition(
            one.topic, one.partition, guarded if is_protected_topic(str(one.topic)) else int(code), -1
        )
        for one in asked.batches
    ]
    return [produce.write_produce_response(request.version, produce.ProduceResponse(appended))]


def _without_leaders(answer: produce.ProduceResponse) -> produce.ProduceResponse:
    return answer._replace(appended=[one._replace(current_leader=None) for one in answer.appended], endpoints=())


def _body_with_epochs(version: int, asked: fetch.FetchRequest, table: RoutingTable, cluster: str) -> Parts | None:
    """Returns the request with the cluster's epochs; None if there are none.

    librdkafka clients without an epoch name that of the last batch read, which brokers refuse after another leader.
    """
    if all(one.leader_epoch < 0 and one.last_fetched_epoch < 0 for one in asked.wanted):
        return None
    wanted = [message_codec.to_broker_fetch(one, table, cluster) for one in asked.wanted]
    return [fetch.write_fetch_request(version, asked._replace(wanted=wanted))]


def _nothing(one: fetch.FetchRequestPartition | fetch.FetchResponsePartition) -> fetch.FetchResponsePartition:
    return fetch.FetchResponsePartition(one.topic, one.partition, _NOT_HERE, -1, -1)
