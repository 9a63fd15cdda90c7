"""Clients may send what all clusters take and the proxy handles, and nothing else."""

from __future__ import annotations

import pytest

from tests.proxy.talks import request, seen, session, told
from twinshore.kafka.protocol.apis import API_VERSIONS, FETCH, METADATA, PRODUCE
from twinshore.kafka.protocol.handshake import (
    ApiVersionRange,
    ApiVersionsResponse,
    ClientSoftware,
    FeatureRange,
    encode_api_versions_request,
    parse_api_versions,
)
from twinshore.proxy.core.api_versions import (
    CONSUMER_GROUP_HEARTBEAT,
    CREATE_TOPICS,
    DELETE_TOPICS,
    HANDLED_API_VERSIONS,
    compute_offered_versions,
    intersect_versions,
    supports_consumer_protocol,
    without_consumer_protocol,
)
from twinshore.proxy.core.model import CONSUMER_GROUP_DESCRIBE, DisconnectClient
from twinshore.proxy.core.session import RULES

UPDATE_FEATURES, TELEMETRY, SHARE_FETCH = 57, 71, 78
GROUPS = "group.version"
NEWEST = dict.fromkeys(range(93), (0, 99))


def test_versions_are_those_that_every_cluster_takes() -> None:
    old = {**NEWEST, FETCH: (4, 11), METADATA: (0, 8)}
    assert intersect_versions([NEWEST, old, {FETCH: (2, 10), METADATA: (9, 12)}]) == {FETCH: (4, 10)}
    found = compute_offered_versions([NEWEST, old])
    assert (found[FETCH], found[METADATA], found[PRODUCE]) == ((4, 11), (0, 8), (3, 11))
    own = {key: HANDLED_API_VERSIONS[key] for key in (API_VERSIONS, CONSUMER_GROUP_HEARTBEAT)}
    assert compute_offered_versions([{}]) == own, "what is answered here needs no cluster"


def test_records_are_named_by_topic_names_and_telemetry_is_not_offered() -> None:
    found = compute_offered_versions([NEWEST])
    assert found[FETCH][1] < 13
    assert found[CREATE_TOPICS][1] < 7
    assert found[DELETE_TOPICS][1] < 6
    assert not {TELEMETRY, SHARE_FETCH} & found.keys()


@pytest.mark.claim("proxy", "begins-asked", "no transaction begins while a switch waits for those that are open")
def test_no_request_that_writes_begins_a_transaction() -> None:
    """From v12 on Produce does, and what has begun to write goes on through a switch's hold."""
    assert compute_offered_versions([NEWEST])[PRODUCE][1] < 12


def test_groups_of_the_newer_protocol_and_topic_ids_come_together_and_by_all_clusters() -> None:
    both = CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_DESCRIBE
    found = compute_offered_versions([NEWEST, {**NEWEST, CONSUMER_GROUP_HEARTBEAT: (0, 0)}])
    assert (found[METADATA], [found[key] for key in both]) == ((0, 12), [(0, 0), (0, 1)])
    for lacking in both:
        old = {key: some for key, some in NEWEST.items() if key != lacking}
        found = compute_offered_versions([NEWEST, old])
        assert found[METADATA] == (0, 9), "ids are told where somebody needs them"
        assert found[CONSUMER_GROUP_HEARTBEAT] == HANDLED_API_VERSIONS[CONSUMER_GROUP_HEARTBEAT], (
            "it is refused by its own request"
        )
        assert CONSUMER_GROUP_DESCRIBE not in found


@pytest.mark.parametrize(("name", "level", "has"), [("kraft.version", 1, False), (GROUPS, 0, False), (GROUPS, 1, True)])
def test_a_cluster_has_such_groups_once_they_are_in_force(name: str, level: int, *, has: bool) -> None:
    offers = [ApiVersionRange(key, 0, 1) for key in (FETCH, CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_DESCRIBE)]
    assert supports_consumer_protocol(ApiVersionsResponse(0, offers, finalized=[FeatureRange(name, 0, level)])) is has
    assert without_consumer_protocol({one.key: (0, 1) for one in offers}) == {FETCH: (0, 1)}


@pytest.mark.parametrize("version", range(5))
def test_a_client_is_told_in_its_own_version(version: int) -> None:
    body = encode_api_versions_request(version, ClientSoftware("librdkafka", "2"))
    found = parse_api_versions(told(session().move(request(API_VERSIONS, version, [body]), seen())), 0, version)
    offers = {one.key: (one.lowest, one.highest) for one in found.offers}
    assert offers[PRODUCE] == (0, 11), "librdkafka compresses only where v0 is offered"
    assert {**offers, PRODUCE: HANDLED_API_VERSIONS[PRODUCE]} == HANDLED_API_VERSIONS
    assert found.features == found.finalized == ()


def test_whoever_asks_in_a_version_of_tomorrow_learns_which_to_ask_in() -> None:
    found = parse_api_versions(told(session().move(request(API_VERSIONS, 9, [b"whatever"]), seen())), 0, 3)
    assert (found.error, found.offers) == (35, ((API_VERSIONS, 0, 4),))


@pytest.mark.parametrize(
    ("key", "version", "says"),
    [
        (UPDATE_FEATURES, 1, "it asked UpdateFeatures v1, which is not served"),
        (CREATE_TOPICS, 7, "it asked CreateTopics v7, which is not served: v2 to v6 are"),
        (1234, 0, "it asked Api1234 v0, which is not served"),
        (FETCH, 13, "it asked Fetch v13, which is not served: v4 to v12 are"),
        (PRODUCE, 2, "it asked Produce v2, which is not served: v3 to v11 are"),
    ],
)
def test_what_is_not_handled_is_never_passed_on(key: int, version: int, says: str) -> None:
    assert session().move(request(key, version, [b"\0" * 50]), seen()) == DisconnectClient(says)


def test_something_is_made_of_each_request_that_may_be_offered() -> None:
    assert RULES.keys() == HANDLED_API_VERSIONS.keys() - {API_VERSIONS}
