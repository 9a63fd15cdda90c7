"""What one client does is counted from what is at hand: by topic, cluster and kind."""

from __future__ import annotations

from typing import Any

from tests.proxy.talks import EAST, LAYOUT, answer, asked, asked_part, carried, request, said_part, seen, view
from twinshore.kafka.protocol import fetch, produce
from twinshore.kafka.protocol.apis import API_VERSIONS, FETCH, METADATA, OFFSET_COMMIT, PRODUCE
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.handshake import ClientSoftware, encode_api_versions_request
from twinshore.kafka.protocol.record_batch import HEADER_STRUCT, BatchHeader
from twinshore.proxy.core.message_codec import build_message, to_error_code
from twinshore.proxy.core.model import BrokerRequest, FanOut, ForwardRequest
from twinshore.proxy.core.session import ClientSession
from twinshore.proxy.core.traffic import COMMITTED_RECORDS_MAX, COMPRESSION_SAMPLE_BYTES_MAX, TrafficTable
from twinshore.state.core.proxy_values import TrafficCounter, TrafficKey, TrafficKind

KNOWN = seen(homes={"shared": "east", "bills": "west"})


class Talk:
    def __init__(self) -> None:
        self.flows = TrafficTable()
        self.session = ClientSession(EAST, LAYOUT, lambda: None, traffic=self.flows)

    def counted(self, topic: str, kind: TrafficKind, cluster: str = "east") -> TrafficCounter:
        return dict(self.flows.window())[TrafficKey("app", topic, cluster, kind)]

    def sends(self, *batches: tuple[str, bytes], acks: int = -1) -> ForwardRequest:
        whole = produce.ProduceRequest(
            None, acks, 1_000, [produce.ProduceRequestPartition(topic, 0, one) for topic, one in batches]
        )
        move = self.session.move(request(PRODUCE, 9, produce.write_produce_request(9, whole)), KNOWN)
        assert isinstance(move, ForwardRequest)
        return move

    def fetches(self, *topics: str, session: tuple[int, int] = (0, -1)) -> ForwardRequest:
        wanted = [fetch.FetchRequestPartition(topic, 0, 5, 1_000) for topic in topics]
        whole = fetch.FetchRequest(500, 1, 1 << 20, 0, wanted, *session)
        move = self.session.move(request(FETCH, 12, [fetch.write_fetch_request(12, whole)]), KNOWN)
        assert isinstance(move, ForwardRequest)
        return move

    def is_given(self, move: ForwardRequest, *records: tuple[str, bytes], session: int = 0, error: int = 0) -> None:
        fetched = [fetch.FetchResponsePartition(topic, 0, error, 9, 9, records=one) for topic, one in records]
        assert move.rewrite is not None
        move.rewrite(view(fetch.write_fetch_response(12, fetch.FetchResponse(0, 0, session, fetched))), 0)


def batch(count: int = 3, *, codec: int = 0, producer_id: int = -1, size: int = 20) -> bytes:
    header = BatchHeader(0, 49 + size, -1, 2, 0, codec, count - 1, 0, 0, producer_id, 0, 0, count)
    return HEADER_STRUCT.pack(*header) + b"x" * size


def test_batches_of_a_producer_are_counted_by_their_headers() -> None:
    talk = Talk()
    talk.sends(("orders", batch(3)), ("orders", batch(1, codec=3, producer_id=7)), ("shared", batch(2)))
    talk.sends(("orders", batch(5)), acks=1)
    talk.sends(("orders", b"no batch"), acks=0)
    window = dict(talk.flows.window())
    flow = window[TrafficKey("app", "orders", "east", TrafficKind.PRODUCE)]
    assert (flow.requests, flow.batches, flow.records, flow.bytes) == (3, 3, 9, 3 * 81)
    assert (
        flow.uncompressed_batches,
        flow.uncompressed_bytes,
        flow.single_record_batches,
        flow.non_idempotent_batches,
    ) == (2, 2 * 81, 1, 2)
    assert (flow.acks_none, flow.acks_leader, flow.version_max) == (1, 1, 9)
    assert sum(flow.sizes) == 3
    assert window[TrafficKey("app", "shared", "east", TrafficKind.PRODUCE)].records == 2


def test_one_plain_batch_of_a_window_is_compressed_for_a_look() -> None:
    talk = Talk()
    for _ in range(3):
        talk.sends(("orders", batch(3, size=5_000)), ("shared", batch(3, codec=3, size=5_000)))
    window = dict(talk.flows.window())
    flow = window[TrafficKey("app", "orders", "east", TrafficKind.PRODUCE)]
    assert flow.lz4_sample_bytes == 5_000
    assert 0 < flow.lz4_sample_compressed_bytes < 200
    assert window[TrafficKey("app", "shared", "east", TrafficKind.PRODUCE)].lz4_sample_bytes == 0, "it is compressed"
    talk.sends(("orders", batch(3, size=COMPRESSION_SAMPLE_BYTES_MAX + 5_000)))
    assert talk.counted("orders", TrafficKind.PRODUCE).lz4_sample_bytes == COMPRESSION_SAMPLE_BYTES_MAX
    talk.flows.samples_left = 0
    talk.sends(("orders", batch(3)))
    assert talk.counted("orders", TrafficKind.PRODUCE).lz4_sample_bytes == 0, "so many in a window, and no more"


def test_a_count_that_no_batch_can_have_adds_nothing() -> None:
    talk = Talk()
    talk.sends(("orders", batch(1)[:57] + b"\xff" * 4 + batch(1)[61:]))
    assert talk.counted("orders", TrafficKind.PRODUCE).records == 0


def test_who_is_to_hear_how_long_it_took_is_on_the_move_and_refusals_count() -> None:
    talk = Talk()
    move = talk.sends(("orders", batch()), ("shared", batch()))
    assert len(move.counters) == 2
    given = produce.ProduceResponse(
        [produce.ProducedPartition("orders", 0, 7, -1), produce.ProducedPartition("shared", 0, 0, 5)]
    )
    assert move.rewrite is not None
    move.rewrite(view([produce.write_produce_response(9, given)]), 0)
    window = dict(talk.flows.window())
    errors = {key.topic: flow.errors for key, flow in window.items()}
    assert errors == {"orders": 1, "shared": 0}


def test_what_consumers_are_given_and_what_they_wait_for() -> None:
    talk = Talk()
    talk.is_given(talk.fetches("orders"), ("orders", b"r" * 40))
    talk.is_given(talk.fetches("orders"), ("orders", b""))
    talk.is_given(talk.fetches("orders"))
    flow = talk.counted("orders", TrafficKind.FETCH)
    assert (flow.requests, flow.empty, flow.bytes, flow.wait_ms, flow.min_bytes) == (3, 2, 40, 1_500, 3)
    talk.is_given(talk.fetches("orders", "shared"), ("orders", b"r" * 7), ("shared", b""), error=3)
    window = dict(talk.flows.window())
    whole = window[TrafficKey("app", "", "east", TrafficKind.FETCH)]
    assert (whole.requests, whole.empty, whole.bytes) == (1, 0, 0)
    ours = window[TrafficKey("app", "orders", "east", TrafficKind.FETCH)]
    assert (ours.requests, ours.bytes, ours.errors) == (0, 7, 1)


def test_in_a_session_the_topic_is_known_without_being_named() -> None:
    talk = Talk()
    talk.is_given(talk.fetches("orders", session=(0, 0)), session=44)
    talk.is_given(talk.fetches(session=(44, 1)), session=44)
    flow = talk.counted("orders", TrafficKind.FETCH)
    assert (flow.requests, flow.empty) == (2, 2)
    talk.is_given(talk.fetches("shared", session=(44, 2)), session=44)
    assert talk.counted("", TrafficKind.FETCH).requests == 1, "it has two topics now"


def commit(talk: Talk, offset: int) -> None:
    topic = asked_part(OFFSET_COMMIT, 7, "topics")
    part = asked_part(OFFSET_COMMIT, 7, "topics", "partitions")
    places: Any = (build_message(part, partition_index=0, committed_offset=offset),)
    named = (build_message(topic, name="orders", partitions=places),)
    talk.session.move(asked(OFFSET_COMMIT, 7, group_id="billing", topics=named), KNOWN)


def test_commits_are_counted_with_how_far_places_move() -> None:
    talk = Talk()
    for offset in (10, 11, 15, 3):
        commit(talk, offset)
    flow = talk.counted("orders", TrafficKind.COMMIT)
    assert (flow.requests, flow.records) == (4, 5), "the first says nothing of it, and nobody moves back"


def test_a_commit_of_no_place_moves_none_and_none_moves_beyond_all_measure() -> None:
    talk = Talk()
    for offset in (-(2**63), 2**63 - 1, -1, 0, 2**63 - 1):
        commit(talk, offset)
    flow = talk.counted("orders", TrafficKind.COMMIT)
    assert (flow.requests, flow.records) == (5, COMMITTED_RECORDS_MAX)


def test_topics_that_nobody_has_are_counted_for_whoever_asks_for_them() -> None:
    talk = Talk()
    name = build_message(asked_part(METADATA, 9, "topics"), name="nosuch")
    move = talk.session.move(asked(METADATA, 9, topics=(name,)), KNOWN)
    assert isinstance(move, FanOut)
    topic = build_message(
        said_part(METADATA, 9, "topics"), name="nosuch", error_code=to_error_code(Code.unknown_topic_or_partition)
    )

    def broker(_: BrokerRequest) -> memoryview:
        return answer(METADATA, 9, topics=(topic,))

    carried(move, broker)
    window = dict(talk.flows.window())
    assert window[TrafficKey("app", "", "", TrafficKind.METADATA)].requests == 1
    assert window[TrafficKey("app", "nosuch", "", TrafficKind.METADATA)].errors == 1


def test_a_client_says_what_it_is_made_with() -> None:
    talk = Talk()
    body = encode_api_versions_request(3, ClientSoftware("librdkafka", "2.4.0"))
    talk.session.move(request(API_VERSIONS, 3, [body]), KNOWN)
    talk.session.move(request(API_VERSIONS, 0, []), KNOWN)
    assert talk.counted("", TrafficKind.CLIENT, "").software == "librdkafka 2.4.0"
