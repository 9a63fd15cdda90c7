"""No client changes Kafka's own topics and Twinshore's through a proxy, and none asks as a replica."""

from __future__ import annotations

from typing import Any

import pytest

from tests.proxy.talks import EAST, asked, asked_part, carried, request, seen, session, told
from twinshore.kafka.protocol import fetch, produce
from twinshore.kafka.protocol.apis import FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH, PRODUCE
from twinshore.kafka.protocol.error_codes import Code
from twinshore.proxy.core.api_versions import (
    ALTER_CONFIGS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    INCREMENTAL_ALTER_CONFIGS,
)
from twinshore.proxy.core.message_codec import build_message, decode_response
from twinshore.proxy.core.model import DisconnectClient, FanOut, ForwardRequest, RequestDecision

GUARDED = ("twinshore.homes", "twinshore.followers", "twinshore.later", "__consumer_offsets", "__transaction_state")
NOW = seen(more_on_east=frozenset(GUARDED))
guarded = pytest.mark.claim(
    "proxy", "guarded-topics", "no client changes Kafka's own topics or Twinshore's through the proxy"
)


def written_to(*topics: str, acks: int = -1) -> RequestDecision:
    batches = [produce.ProduceRequestPartition(topic, 0, b"x" * 100) for topic in topics]
    return session(EAST).move(
        request(PRODUCE, 9, produce.write_produce_request(9, produce.ProduceRequest(None, acks, 1000, batches))), NOW
    )


@guarded
@pytest.mark.parametrize("topic", GUARDED)
def test_records_for_them_are_refused_and_others_are_sent_again(topic: str) -> None:
    answer = produce.read_produce_response(told(written_to("orders", topic)), 0, 9)
    assert [(one.topic, one.error) for one in answer.appended] == [
        ("orders", Code.not_leader_or_follower),
        (topic, Code.topic_authorization_failed),
    ]
    assert isinstance(written_to(topic, acks=0), DisconnectClient)
    assert isinstance(written_to("orders"), ForwardRequest)


def change(key: int, topic: str) -> Any:
    """A request that changes the topic."""
    version = {DELETE_RECORDS: 2, ALTER_CONFIGS: 1, INCREMENTAL_ALTER_CONFIGS: 1, CREATE_PARTITIONS: 3}.get(key, 5)
    if key == DELETE_TOPICS:
        return asked(key, version, topic_names=(topic,))
    if key in (ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS):
        one = build_message(asked_part(key, version, "resources"), resource_type=2, resource_name=topic)
        return asked(key, version, resources=(one,))
    part = asked_part(key, version, "topics")
    more = {}
    if key == DELETE_RECORDS:
        more = {"partitions": (build_message(asked_part(key, version, "topics", "partitions"), offset=-1),)}
    return asked(key, version, topics=(build_message(part, name=topic, **more),))


CHANGES = (CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS, DELETE_RECORDS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS)


@guarded
@pytest.mark.parametrize("topic", GUARDED)
@pytest.mark.parametrize("key", CHANGES)
def test_a_change_of_them_is_refused_and_no_broker_is_asked(key: int, topic: str) -> None:
    one = change(key, topic)
    move = session(EAST).move(one, NOW)
    body, asks = carried(move, lambda _: None) if isinstance(move, FanOut) else (told(move), [])
    assert not asks
    answer = decode_response(key, one.version, body)
    results = getattr(answer, "topics", None) or getattr(answer, "responses", None) or answer.results
    parts = results[0].partitions if key == DELETE_RECORDS else results
    assert [part.error_code for part in parts] == [Code.policy_violation]
    other = session(EAST).move(change(key, "orders"), NOW)
    if isinstance(other, FanOut):
        assert carried(other, lambda _: None)[1], "other topics are changed"
    else:
        assert isinstance(other, ForwardRequest)


@guarded
def test_they_may_be_read() -> None:
    wanted = [fetch.FetchRequestPartition(topic, 0, 0, 9000) for topic in GUARDED]
    body = fetch.write_fetch_request(11, fetch.FetchRequest(500, 1, 9000, 0, wanted))
    assert isinstance(session(EAST).move(request(FETCH, 11, [body]), NOW), ForwardRequest)


@pytest.mark.claim("proxy", "replicas", "no client reads through the proxy as a replica, beyond the high watermark")
@pytest.mark.parametrize("replica", [0, 2, -3])
def test_a_question_as_a_replica_is_refused(replica: int) -> None:
    for version in (4, 11, 12):
        for who, moves in ((replica, DisconnectClient), (-1, ForwardRequest)):
            want = fetch.FetchRequest(
                500, 1, 9000, 0, [fetch.FetchRequestPartition("orders", 0, 0, 9000)], replica=(who, -1)
            )
            got = session(EAST).move(request(FETCH, version, [fetch.write_fetch_request(version, want)]), NOW)
            assert isinstance(got, moves)
    for key, version in ((LIST_OFFSETS, 1), (LIST_OFFSETS, 7), (OFFSET_FOR_LEADER_EPOCH, 3)):
        assert isinstance(session(EAST).move(asked(key, version, replica_id=replica), NOW), DisconnectClient)
        assert not isinstance(session(EAST).move(asked(key, version, replica_id=-1), NOW), DisconnectClient)
    assert not isinstance(session(EAST).move(asked(OFFSET_FOR_LEADER_EPOCH, 2), NOW), DisconnectClient)
