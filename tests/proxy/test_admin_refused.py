"""What is refused says so by an answer; the first cluster tells of rights for all, and a broker of itself."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from testkit.errors import mentions
from tests.proxy.admin_talks import POLICY, TIMED_OUT, Clusters, played
from tests.proxy.talks import EAST, WEST, answer, asked, asked_part, by_kio, said_part, seen, session, told, view
from twinshore.kafka.protocol.apis import DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS
from twinshore.proxy.core import admin_requests, api_versions
from twinshore.proxy.core.api_versions import HANDLED_API_VERSIONS
from twinshore.proxy.core.message_codec import build_message, to_error_code
from twinshore.proxy.core.model import ANY_BROKER, BrokerId, BrokerRequest, FanOut, ForwardRequest, RespondNow

NOT_HERE, NOT_COORDINATOR = 6, 16


def refused(key: int, version: int, **values: Any) -> Any:
    move = session().move(asked(key, version, **values), seen())
    assert isinstance(move, RespondNow)
    return by_kio(key, version, view(move.body))


def each(key: int) -> range:
    return range(HANDLED_API_VERSIONS[key][0], HANDLED_API_VERSIONS[key][1] + 1)


def parts(key: int, version: int, array: str, count: int = 1, **values: Any) -> dict[str, Any]:
    return {array: tuple(build_message(asked_part(key, version, array), **values) for _ in range(count))}


def test_acls_are_not_changed_through_the_proxy() -> None:
    for key, array, answers in (
        (api_versions.CREATE_ACLS, "creations", "results"),
        (api_versions.DELETE_ACLS, "filters", "filter_results"),
    ):
        for version in each(key):
            found = getattr(refused(key, version, **parts(key, version, array, 2)), answers)
            assert [(int(one.error_code), one.error_message) for one in found] == [
                (POLICY, admin_requests.ACLS_REFUSED_MESSAGE)
            ] * 2


def test_quotas_and_users_are_not_changed_through_the_proxy() -> None:
    key = api_versions.ALTER_CLIENT_QUOTAS
    for version in each(key):
        entity = build_message(asked_part(key, version, "entries", "entity"), entity_type="user", entity_name="me")
        (found,) = refused(key, version, **parts(key, version, "entries", entity=(entity,))).entries
        assert (int(found.error_code), found.error_message) == (POLICY, admin_requests.QUOTAS_REFUSED_MESSAGE)
        assert [(one.entity_type, one.entity_name) for one in found.entity] == [("user", "me")]
    key = api_versions.ALTER_SCRAM_USERS
    changes = parts(key, 0, "deletions", name="me") | parts(key, 0, "upsertions", name="me")
    (found,) = refused(key, 0, **changes).results
    assert (found.user, int(found.error_code), found.error_message) == (
        "me",
        POLICY,
        admin_requests.SCRAM_REFUSED_MESSAGE,
    )


def test_leaders_and_replicas_stay_where_they_are() -> None:
    key = api_versions.ELECT_LEADERS
    for version in each(key):
        named = parts(key, version, "topic_partitions", topic="orders", partitions=(0, 1))
        (found,) = refused(key, version, **named).replica_election_results
        told_of = [(one.partition_id, int(one.error_code), one.error_message) for one in found.partition_result]
        assert told_of == [(number, POLICY, admin_requests.ELECTION_REFUSED_MESSAGE) for number in (0, 1)]
        whole = refused(key, version, topic_partitions=None)
        assert int(whole.error_code) == POLICY
    key = api_versions.ALTER_PARTITION_REASSIGNMENTS
    for version in each(key):
        part = build_message(asked_part(key, version, "topics", "partitions"), partition_index=3)
        found = refused(key, version, **parts(key, version, "topics", name="orders", partitions=(part,)))
        assert (int(found.error_code), found.error_message) == (POLICY, admin_requests.REASSIGNMENT_REFUSED_MESSAGE)
        (one,) = found.responses[0].partitions
        assert (one.partition_index, int(one.error_code), one.error_message) == (
            3,
            POLICY,
            admin_requests.REASSIGNMENT_REFUSED_MESSAGE,
        )


def test_a_transaction_is_described_by_its_coordinator_and_each_broker_lists_its_own() -> None:
    asks = asked(DESCRIBE_TRANSACTIONS, 0, transactional_ids=("tx",))
    assert session(EAST).move(asks, seen()) == ForwardRequest(EAST)
    for place in (WEST, None):
        (found,) = by_kio(DESCRIBE_TRANSACTIONS, 0, told(session(place).move(asks, seen()))).transaction_states
        assert (found.transactional_id, int(found.error_code)) == ("tx", NOT_COORDINATOR)
    for version in each(api_versions.LIST_TRANSACTIONS):
        asks = asked(api_versions.LIST_TRANSACTIONS, version)
        assert session(WEST).move(asks, seen()) == ForwardRequest(WEST)
        assert by_kio(asks.key, version, told(session(None).move(asks, seen()))).transaction_states == ()


@pytest.mark.parametrize("key", [api_versions.DESCRIBE_ACLS, api_versions.DESCRIBE_CLIENT_QUOTAS])
def test_the_first_cluster_tells_of_rights_and_quotas(key: int) -> None:
    def says(ask: BrokerRequest, _: Any) -> memoryview:
        return answer(key, ask.version, throttle_time=timedelta(milliseconds=7), error_code=to_error_code(54))

    for version in each(key):
        clusters = Clusters(says)
        found = played(asked(key, version), clusters, place=WEST)
        assert (int(found.error_code), found.throttle_time) == (54, timedelta(0))
        assert [place for place, _, _ in clusters.heard] == [BrokerId("east", ANY_BROKER)]
        for now, silent in ((seen(away=("east",)), ()), (seen(), ("east",))):
            found = played(asked(key, version), Clusters(says, silent=silent), now=now)
            assert int(found.error_code) == TIMED_OUT
            assert found.error_message.startswith("cluster east d")


def test_records_are_deleted_and_producers_described_by_the_leader() -> None:
    for key in (api_versions.DELETE_RECORDS, DESCRIBE_PRODUCERS):
        for version in each(key):
            asks = about(key, version, "orders", "bills")
            move = session().move(asks, seen())
            assert isinstance(move, FanOut)
            assert move.wait_s >= 30, "the client says how long replicas may take"
            clusters = Clusters(lambda ask, _: answer(ask.key, ask.version))
            found = played(asks, clusters)
            assert [place for place, _, _ in clusters.heard] == [EAST]
            codes = {
                str(one.name): [(two.partition_index, int(two.error_code)) for two in one.partitions]
                for one in found.topics
            }
            assert codes == {"bills": [(4, NOT_HERE)]}
            assert isinstance(session().move(about(key, version, "orders"), seen()), ForwardRequest)
            body = told(session(None).move(about(key, version, "orders"), seen()))
            assert int(by_kio(key, version, body).topics[0].partitions[0].error_code) == NOT_HERE


def about(key: int, version: int, *topics: str) -> Any:
    kind = asked_part(key, version, "topics")
    values: dict[str, Any] = {"partition_indexes": (4,)}
    if key == api_versions.DELETE_RECORDS:
        values = {"partitions": (build_message(asked_part(key, version, "topics", "partitions"), partition_index=4),)}
    return asked(key, version, topics=tuple(build_message(kind, name=name, **values) for name in topics))


def test_log_folders_are_the_broker_s_own_without_twins() -> None:
    key = api_versions.DESCRIBE_LOG_DIRS
    for version in each(key):
        asks = asked(key, version, topics=None)
        assert by_kio(key, version, told(session(None).move(asks, seen()))).results == ()
        move = session(WEST).move(asks, seen())
        assert isinstance(move, ForwardRequest)
        assert move.rewrite is not None
        topic = said_part(key, version, "results", "topics")
        topics = tuple(build_message(topic, name=name) for name in ("bills", "shared", "young"))
        body = answer(key, version, results=(build_message(said_part(key, version, "results"), topics=topics),))
        rewritten = move.rewrite(memoryview(b"head" + bytes(body)), 4)
        assert rewritten is not None
        (found,) = by_kio(key, version, view(rewritten)).results
        assert [str(one.name) for one in found.topics] == ["bills", "young"]


def moving(ask: BrokerRequest, found: Any) -> memoryview:
    """Each cluster tells of what it was asked, or of all that it has, twins included."""
    key = api_versions.LIST_PARTITION_REASSIGNMENTS
    node = 3 if ask.place.cluster == "east" else 2
    part = build_message(said_part(key, 0, "topics", "partitions"), replicas=(node, 9), adding_replicas=(9,))
    names = ("shared",) if found.topics is None else tuple(one.name for one in found.topics)
    topics = tuple(build_message(said_part(key, 0, "topics"), name=name, partitions=(part,)) for name in names)
    return answer(key, 0, topics=topics)


def test_moves_of_replicas_are_told_by_the_topic_s_home_in_the_client_s_numbers() -> None:
    key = api_versions.LIST_PARTITION_REASSIGNMENTS
    named = {"topics": tuple(parts(key, 0, "topics", name=name)["topics"][0] for name in ("bills", "orders"))}
    found = played(asked(key, 0, **named), Clusters(moving))
    replicas = {str(one.name): one.partitions[0].replicas for one in found.topics}
    assert replicas == {"bills": (102, 109), "orders": (3, 9)}
    assert found.topics[0].partitions[0].adding_replicas == (109,)
    whole = played(asked(key, 0, topics=None), Clusters(moving))
    assert {str(one.name): one.partitions[0].replicas for one in whole.topics} == {"shared": (3, 9)}
    for now, silent in ((seen(away=("west",)), ()), (seen(), ("west",))):
        found = played(asked(key, 0, **named), Clusters(moving, silent=silent), now=now)
        assert (int(found.error_code), [str(one.name) for one in found.topics]) == (0, ["orders"])
    nobody = played(asked(key, 0, topics=None), Clusters(moving), now=seen(away=("east", "west")))
    assert int(nobody.error_code) == TIMED_OUT
    assert mentions(nobody.error_message, "east", "west")
