"""What clients ask any broker: the answers name the proxy's own brokers only, and each topic is told by its cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from testkit.errors import mentions, raises
from tests.proxy.talks import (
    EAST,
    LAYOUT,
    WEST,
    answer,
    asked,
    asked_part,
    by_kio,
    carried,
    request,
    said_part,
    seen,
    session,
    told,
)
from twinshore.config.errors import ConfigError
from twinshore.config.frozen import GROUPS_HOME
from twinshore.kafka.protocol.apis import INIT_PRODUCER_ID, METADATA
from twinshore.proxy.core.api_versions import DESCRIBE_CLUSTER, FIND_COORDINATOR
from twinshore.proxy.core.message_codec import build_message, decode_request, to_error_code
from twinshore.proxy.core.model import (
    ANY_BROKER,
    BrokerId,
    BrokerRequest,
    HomeRoute,
    RoutingTable,
    check_cluster_marks,
    get_cluster_mark,
)

UNKNOWN_TOPIC, NO_LEADER, AGAIN, NO_COORDINATOR, UNSUPPORTED = 3, 5, 14, 15, 35


# Of Twinshore's own, as clusters of a link have them.
NOTES = (
    "twinshore.homes",
    "twinshore.twins",
    "twinshore.followers",
    "twinshore.heartbeats",
    "east.twinshore.heartbeats",
)


def ask_metadata(version: int, *topics: str, every: bool = False) -> Any:
    kind = asked_part(METADATA, version, "topics")
    named = None if every and version else tuple(build_message(kind, name=topic) for topic in topics)
    return asked(METADATA, version, topics=named, allow_auto_topic_creation=True)


def tells(version: int, topics: dict[str, int], leader: int) -> memoryview:
    """A broker's metadata: topics with their errors."""
    kind = said_part(METADATA, version, "topics")
    part = said_part(METADATA, version, "topics", "partitions")
    led = build_message(
        part, leader_id=leader, leader_epoch=7, replica_nodes=(leader, 9), isr_nodes=(leader,), offline_replicas=(9,)
    )
    made = tuple(
        build_message(kind, name=name, error_code=to_error_code(code), partitions=() if code else (led,))
        for name, code in topics.items()
    )
    return answer(METADATA, version, topics=made, cluster_id="east-id", controller_id=leader)


def broker(version: int) -> Any:
    """Both clusters: each tells of all that it has, or says that it has not what it was asked for."""
    has = {"east": {"orders", "shared", *NOTES}, "west": {"bills", "shared", "young", *NOTES}}

    def says(ask: BrokerRequest) -> memoryview:
        ours = has[ask.place.cluster]
        named = names_in(version, ask)
        told_of = {name: 0 if name in ours else UNKNOWN_TOPIC for name in (sorted(ours) if named is None else named)}
        return tells(version, told_of, 1 if ask.place.cluster == "east" else 2)

    return says


def names_in(version: int, ask: BrokerRequest) -> list[str] | None:
    """Which topics a question is about."""
    found = decode_request(request(METADATA, version, ask.body))
    assert not found.allow_auto_topic_creation, "a question makes no topic"
    return None if found.topics is None else [str(one.name) for one in found.topics]


@pytest.mark.claim("proxy", "old-metadata", "clients of old versions of Metadata are served, and make no topic")
@pytest.mark.parametrize("version", range(10))
def test_each_topic_is_told_of_by_its_own_cluster_and_by_the_proxy_s_numbers(version: int) -> None:
    """Older questions than v4 would make topics: clusters are asked in v4."""
    body, asks = carried(session().move(ask_metadata(version, every=True), seen()), broker(max(4, version)))
    assert {one.place for one in asks} == {BrokerId("east", ANY_BROKER), BrokerId("west", ANY_BROKER)}
    found = by_kio(METADATA, version, body)
    leaders = {str(one.name): one.partitions[0].leader_id for one in found.topics}
    assert leaders == {"orders": 1, "shared": 1, "bills": 102, "young": 102}
    (bills,) = [one for one in found.topics if one.name == "bills"]
    assert (bills.partitions[0].replica_nodes, bills.partitions[0].isr_nodes) == ((102, 109), (102,))
    assert getattr(bills.partitions[0], "leader_epoch", -1) == -1, "a client would not follow to a lower one"
    if version >= 5:
        assert bills.partitions[0].offline_replicas == (109,)
    assert {(one.node_id, one.host, one.port) for one in found.brokers} == {
        (1, LAYOUT.host, 19094),
        (3, LAYOUT.host, 19096),
        (102, LAYOUT.host, 19195),
    }
    assert (getattr(found, "cluster_id", "twinshore"), getattr(found, "controller_id", 1)) == ("twinshore", 1)
    named, _ = carried(session().move(ask_metadata(version, "bills", "none"), seen()), broker(max(4, version)))
    codes = {str(one.name): int(one.error_code) for one in by_kio(METADATA, version, named).topics}
    assert codes == {"bills": 0, "none": UNKNOWN_TOPIC}


def test_twinshores_own_topics_are_told_to_whoever_names_them_and_to_nobody_who_wants_all() -> None:
    """A client that subscribes to `.*` reads what applications wrote; it compares with a list of all."""
    told_of, _ = topics_of(seen(homes={"twinshore.homes": "east"}), "twinshore.homes", "orders")
    assert told_of == {"twinshore.homes": 0, "orders": 0}
    body, _ = carried(session().move(ask_metadata(9, every=True), seen()), broker(9))
    assert {str(one.name) for one in by_kio(METADATA, 9, body).topics}.isdisjoint(NOTES)


def topics_of(
    seen_now: RoutingTable, *topics: str, news: list[None] | None = None
) -> tuple[dict[str, int], list[BrokerRequest]]:
    """Which errors are told of these, and who was asked."""
    heard = [] if news is None else news
    move = session(news=lambda: heard.append(None)).move(ask_metadata(9, *topics), seen_now)
    body, asks = carried(move, broker(9))
    return {str(one.name): int(one.error_code) for one in by_kio(METADATA, 9, body).topics}, asks


def test_only_the_clusters_of_the_topics_that_are_named_are_asked() -> None:
    found, asks = topics_of(seen(), "bills")
    assert (found, [one.place.cluster for one in asks]) == ({"bills": 0}, ["west"])
    found, asks = topics_of(seen(homes={"shared": "west"}), "shared", "orders")
    assert (found, [one.place.cluster for one in asks]) == ({"shared": 0, "orders": 0}, ["west", "east"])
    found, asks = topics_of(seen())
    assert (found, asks) == ({}, []), "who asks for brokers alone waits for nobody"


def test_a_topic_that_nobody_was_known_to_have_is_asked_for_everywhere() -> None:
    news: list[None] = []
    found, asks = topics_of(seen(), "young", "none", news=news)
    assert found == {"young": 0, "none": UNKNOWN_TOPIC}
    assert len(asks) == 2
    assert news, "the clusters are looked at again"


def test_a_cluster_that_is_away_costs_the_others_topics_nothing() -> None:
    found, asks = topics_of(seen(away=("west",)), "orders", "bills")
    assert (found, [one.place.cluster for one in asks]) == ({"orders": 0, "bills": NO_LEADER}, ["east"])
    body, _ = carried(session().move(ask_metadata(9, "orders"), seen()), lambda _: None)
    assert [int(one.error_code) for one in by_kio(METADATA, 9, body).topics] == [NO_LEADER]


@pytest.mark.parametrize("version", range(2))
def test_the_whole_is_described_as_one_cluster(version: int) -> None:
    found = by_kio(
        DESCRIBE_CLUSTER, version, told(session().move(asked(DESCRIBE_CLUSTER, version), seen_now := seen()))
    )
    assert seen_now.answering() == ["east", "west"]
    assert (found.cluster_id, found.controller_id, len(found.brokers)) == ("twinshore", 1, 3)
    assert {one.port for one in found.brokers} == {19094, 19096, 19195}


def test_controllers_are_not_for_clients() -> None:
    found = by_kio(DESCRIBE_CLUSTER, 1, told(session().move(asked(DESCRIBE_CLUSTER, 1, endpoint_type=2), seen())))
    assert int(found.error_code) == 115 and mentions(found.error_message, "controllers")


def coordinator(version: int, node: int, code: int = 0) -> memoryview:
    values: dict[str, Any] = {"error_code": to_error_code(code), "node_id": node, "host": "e3", "port": 9092}
    if version < 4:
        return answer(FIND_COORDINATOR, version, **values)
    part = said_part(FIND_COORDINATOR, version, "coordinators")
    return answer(FIND_COORDINATOR, version, coordinators=(build_message(part, key="g", **values),))


@pytest.mark.parametrize("version", range(6))
def test_a_group_is_led_to_its_home_s_coordinator_by_the_proxy_s_address(version: int) -> None:
    move = session(WEST).move(asked(FIND_COORDINATOR, version, key="g", coordinator_keys=("g",)), seen())
    body, asks = carried(move, lambda _: coordinator(version, 3))
    assert [one.place for one in asks] == [BrokerId("east", ANY_BROKER)]
    found = by_kio(FIND_COORDINATOR, version, body)
    one = found if version < 4 else found.coordinators[0]
    assert (one.node_id, one.host, one.port) == (3, LAYOUT.host, 19096)
    again = session().move(asked(FIND_COORDINATOR, version, key="g", coordinator_keys=("g",)), seen())
    found = by_kio(FIND_COORDINATOR, version, carried(again, lambda _: None)[0])
    one = found if version < 4 else found.coordinators[0]
    assert int(one.error_code) == NO_COORDINATOR


@pytest.mark.parametrize("version", [1, 4])
def test_only_groups_and_transactions_have_coordinators_here(version: int) -> None:
    ask = asked(FIND_COORDINATOR, version, key="tx", key_type=2, coordinator_keys=("tx",))
    found = by_kio(FIND_COORDINATOR, version, told(session().move(ask, seen())))
    one = found if version < 4 else found.coordinators[0]
    assert int(one.error_code) == UNSUPPORTED
    assert mentions(one.error_message, "coordinators")


@pytest.mark.parametrize("version", range(6))
def test_a_producer_s_number_is_marked_as_the_cluster_s_that_gave_it(version: int) -> None:
    def gives(_: BrokerRequest) -> memoryview:
        return answer(INIT_PRODUCER_ID, version, producer_id=1234, producer_epoch=0)

    body, asks = carried(session(WEST).move(asked(INIT_PRODUCER_ID, version), seen()), gives)
    assert [one.place for one in asks] == [WEST]
    west = by_kio(INIT_PRODUCER_ID, version, body).producer_id
    body, asks = carried(session(None).move(asked(INIT_PRODUCER_ID, version), seen()), gives)
    assert [one.place for one in asks] == [BrokerId("east", ANY_BROKER)]
    east = by_kio(INIT_PRODUCER_ID, version, body).producer_id
    assert (west, east) == (1234 | get_cluster_mark("west-id") << 48, 1234 | get_cluster_mark("east-id") << 48)
    assert 0 < east != west < 1 << 63


def test_a_marked_number_goes_back_to_its_cluster_without_the_mark() -> None:
    given = 1234 | get_cluster_mark("east-id") << 48
    heard: list[BrokerRequest] = []

    def gives(ask: BrokerRequest) -> memoryview:
        heard.append(ask)
        return answer(INIT_PRODUCER_ID, 4, error_code=to_error_code(47))

    body, _ = carried(session().move(asked(INIT_PRODUCER_ID, 4, producer_id=given, producer_epoch=3), seen()), gives)
    assert (1234).to_bytes(8, "big") in b"".join(heard[0].body)
    assert int(by_kio(INIT_PRODUCER_ID, 4, body).error_code) == 47


@pytest.mark.claim("proxy", "marks", "no proxy serves clusters that would give two producers the same id")
def test_clusters_that_mark_producers_alike_are_refused() -> None:
    """A mark has 14 bits of a cluster's id."""
    ids = {"east": "QH5N9AJcEbdUziPj04YhfQ", "north": "north-id", "west": "5MxAtWx3QGn6qrrfC0lerw"}
    assert get_cluster_mark(ids["east"]) == get_cluster_mark(ids["west"])
    with raises(ConfigError, "proxy.producer-ids-clash", first="east", second="west"):
        check_cluster_marks(ids)
    check_cluster_marks({"east": ids["east"], "north": ids["north"]})


@pytest.mark.claim("proxy", "ids-elsewhere", "an idempotent producer begins where any cluster lets it in")
@pytest.mark.parametrize("refused", [31, None])
def test_a_number_is_asked_of_the_other_cluster_where_one_gives_none(refused: int | None) -> None:
    def gives(ask: BrokerRequest) -> memoryview | None:
        if ask.place.cluster == "west":
            return answer(INIT_PRODUCER_ID, 4, producer_id=9, producer_epoch=0)
        return None if refused is None else answer(INIT_PRODUCER_ID, 4, error_code=to_error_code(refused))

    body, asks = carried(session(EAST).move(asked(INIT_PRODUCER_ID, 4), seen()), gives)
    found = by_kio(INIT_PRODUCER_ID, 4, body)
    assert (int(found.error_code), found.producer_id) == (0, 9 | get_cluster_mark("west-id") << 48)
    assert [one.place for one in asks] == [EAST, BrokerId("west", ANY_BROKER)]


def test_where_no_cluster_answers_a_producer_asks_again() -> None:
    move = session().move(asked(INIT_PRODUCER_ID, 4, transactional_id=None), seen(away=("east", "west")))
    nobody, _ = carried(move, lambda _: None)
    assert int(by_kio(INIT_PRODUCER_ID, 4, nobody).error_code) == AGAIN, "after others Java looks for a coordinator"


def test_a_topic_that_two_clusters_have_and_of_which_no_home_is_known_has_no_leader_yet() -> None:
    """One of both is a twin that has just been made."""
    looks: list[None] = []
    topic, part = said_part(METADATA, 9, "topics"), said_part(METADATA, 9, "topics", "partitions")
    there = build_message(topic, name="fresh", partitions=(build_message(part, leader_id=1),))
    body = answer(METADATA, 9, topics=(there,))
    named = (build_message(asked_part(METADATA, 9, "topics"), name="fresh"),)
    move = session(news=lambda: looks.append(None)).move(asked(METADATA, 9, topics=named), seen())
    told_now, asks = carried(move, lambda _: body)
    (one,) = by_kio(METADATA, 9, told_now).topics
    assert (one.name, int(one.error_code), one.partitions) == ("fresh", NO_LEADER, ())
    assert sorted(ask.place.cluster for ask in asks) == ["east", "west"]
    assert len(looks) == 1, "it is looked at once which"


@pytest.mark.claim("proxy", "kafkas-own", "topics of Kafka's own are told by the cluster where groups are at home")
@pytest.mark.parametrize("home", ["east", "west"])
def test_kafkas_own_topics_are_told_by_the_home_of_groups(home: str) -> None:
    """Every cluster has them: a client that waits for their leaders would wait for ever."""
    now = replace(seen(), leads={GROUPS_HOME: HomeRoute(home, 1)})
    leads = {"east": 1, "west": 2}

    def tells_own(ask: BrokerRequest) -> memoryview:
        return tells(9, {"__consumer_offsets": 0, "__transaction_state": 0}, leads[ask.place.cluster])

    news: list[None] = []
    for asks in (ask_metadata(9, every=True), ask_metadata(9, "__consumer_offsets", "__transaction_state")):
        body, _ = carried(session(news=lambda: news.append(None)).move(asks, now), tells_own)
        topics = by_kio(METADATA, 9, body).topics
        number = LAYOUT.number(home, leads[home])
        assert [(int(one.error_code), one.partitions[0].leader_id) for one in topics] == [(0, number)] * 2
    assert not news, "nothing about them is new"


@pytest.mark.claim("proxy", "silent-topics", "topics of a silent cluster stay in metadata, without leaders")
@pytest.mark.parametrize("version", [1, 4, 9, 12])
@pytest.mark.parametrize("away", [(), ("west",)])
def test_topics_of_a_silent_cluster_stay_in_metadata_without_leaders(version: int, away: tuple[str, ...]) -> None:
    """Whoever subscribes by a pattern would take them for deleted; it is enough that one broker hangs."""
    plain = seen(away=away)
    west = replace(plain.clusters["west"], partitions={"bills": 2, "shared": 2, "__consumer_offsets": 50})
    now = replace(plain, clusters={**plain.clusters, "west": west})
    for asks in (ask_metadata(version, every=True), ask_metadata(version, "bills")):
        body, _ = carried(
            session().move(asks, now), lambda ask: broker(max(4, version))(ask) if ask.place.cluster == "east" else None
        )
        (bills,) = [one for one in by_kio(METADATA, version, body).topics if one.name == "bills"]
        told = [(int(one.partition_index), int(one.error_code), int(one.leader_id)) for one in bills.partitions]
        assert (int(bills.error_code), sorted(told)) == (0, [(0, 5, -1), (1, 5, -1)])
