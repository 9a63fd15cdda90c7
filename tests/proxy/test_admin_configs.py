"""Settings of topics come from their home, those of a broker from itself, and no address of a broker is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.proxy.admin_talks import (
    BAD_REQUEST,
    POLICY,
    TIMED_OUT,
    UNKNOWN_TOPIC,
    Clusters,
    codes,
    each_done,
    played,
)
from tests.proxy.talks import WEST, answer, asked, asked_part, said_part, seen
from twinshore.kafka.protocol.apis import DESCRIBE_CONFIGS
from twinshore.proxy.core.admin_requests import (
    BROKER_LOGGER_RESOURCE_TYPE,
    BROKER_RESOURCE_TYPE,
    GROUP_RESOURCE_TYPE,
    TOPIC_RESOURCE_TYPE,
)
from twinshore.proxy.core.api_versions import ALTER_CONFIGS, HANDLED_API_VERSIONS, INCREMENTAL_ALTER_CONFIGS
from twinshore.proxy.core.message_codec import build_message
from twinshore.proxy.core.model import ANY_BROKER, BrokerId, BrokerRequest, HomeRoute

CLIENT_METRICS = 16
ALTERS = [
    (key, version)
    for key in (ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS)
    for version in range(HANDLED_API_VERSIONS[key][0], HANDLED_API_VERSIONS[key][1] + 1)
]
EVERYBODY = [
    (TOPIC_RESOURCE_TYPE, "orders"),
    (TOPIC_RESOURCE_TYPE, "bills"),
    (TOPIC_RESOURCE_TYPE, "none"),
    (BROKER_RESOURCE_TYPE, "3"),
    (BROKER_RESOURCE_TYPE, "102"),
    (GROUP_RESOURCE_TYPE, "g"),
]


def about(key: int, version: int, *resources: tuple[int, str], change: str = "retention.ms") -> Any:
    kind = asked_part(key, version, "resources")
    values: dict[str, Any] = {}
    if key != DESCRIBE_CONFIGS:
        values = {"configs": (build_message(asked_part(key, version, "resources", "configs"), name=change, value="1"),)}
    named = (build_message(kind, resource_type=which, resource_name=name, **values) for which, name in resources)
    return asked(key, version, resources=tuple(named))


def tells(values: dict[str, str]) -> Any:
    """A broker with these settings, each with itself as its only synonym."""

    def says(ask: BrokerRequest, found: Any) -> memoryview:
        kind = said_part(DESCRIBE_CONFIGS, ask.version, "results")
        part = said_part(DESCRIBE_CONFIGS, ask.version, "results", "configs")
        synonym = said_part(DESCRIBE_CONFIGS, ask.version, "results", "configs", "synonyms")
        configs = tuple(
            build_message(part, name=name, value=value, synonyms=(build_message(synonym, name=name, value=value),))
            for name, value in values.items()
        )
        told = (
            build_message(kind, resource_type=one.resource_type, resource_name=one.resource_name, configs=configs)
            for one in found.resources
        )
        return answer(DESCRIBE_CONFIGS, ask.version, results=tuple(told))

    return says


def by_place(clusters: Clusters) -> dict[BrokerId, list[tuple[int, str]]]:
    asked_about = clusters.asked("resources").items()
    return {place: [(one.resource_type, one.resource_name) for one in parts] for place, parts in asked_about}


@pytest.mark.parametrize("version", range(1, 5))
def test_each_is_described_by_whoever_has_it(version: int) -> None:
    clusters = Clusters(tells({"retention.ms": "5"}))
    found = played(about(DESCRIBE_CONFIGS, version, *EVERYBODY), clusters)
    assert codes(found.results, "resource_name") == dict.fromkeys(["orders", "bills", "3", "102", "g"], 0) | {
        "none": UNKNOWN_TOPIC
    }
    assert by_place(clusters) == {
        BrokerId("east", ANY_BROKER): [(TOPIC_RESOURCE_TYPE, "orders"), (GROUP_RESOURCE_TYPE, "g")],
        BrokerId("west", ANY_BROKER): [(TOPIC_RESOURCE_TYPE, "bills")],
        BrokerId("east", 3): [(BROKER_RESOURCE_TYPE, "3")],
        WEST: [(BROKER_RESOURCE_TYPE, "2")],
    }


def test_no_address_and_no_number_of_a_broker_s_own_is_told() -> None:
    own = {"node.id": "2", "advertised.listeners": "PLAINTEXT://w2:9092", "log.dirs": "/x"}
    found = played(about(DESCRIBE_CONFIGS, 4, (BROKER_RESOURCE_TYPE, "102")), Clusters(tells(own)))
    told = {
        one.name: (one.value, one.is_sensitive, [two.value for two in one.synonyms]) for one in found.results[0].configs
    }
    assert told == {
        "node.id": ("102", False, ["102"]),
        "advertised.listeners": (None, True, []),
        "log.dirs": ("/x", False, ["/x"]),
    }


@pytest.mark.parametrize(
    ("real", "told"), [("0:2,1:3", "0:102,1:103"), ("*", "*"), ("", ""), ("2:2", "2:102"), ("none", "none")]
)
def test_brokers_within_a_topic_s_settings_have_the_client_s_numbers(real: str, told: str) -> None:
    clusters = Clusters(tells({"leader.replication.throttled.replicas": real}))
    found = played(about(DESCRIBE_CONFIGS, 4, (TOPIC_RESOURCE_TYPE, "bills")), clusters)
    assert found.results[0].configs[0].value == told


@pytest.mark.parametrize(("key", "version"), ALTERS)
def test_each_is_changed_where_it_is(key: int, version: int) -> None:
    clusters = Clusters(each_done("responses", names, "resources"))
    found = played(about(key, version, *EVERYBODY), clusters)
    assert codes(found.responses, "resource_name") == dict.fromkeys(["orders", "bills", "3", "102", "g"], 0) | {
        "none": UNKNOWN_TOPIC
    }
    assert by_place(clusters)[WEST] == [(BROKER_RESOURCE_TYPE, "2")]


def test_a_topic_that_is_being_moved_is_described_and_not_changed() -> None:
    now = replace(seen(), leads={"bills": HomeRoute("west", 3, held=True)})
    clusters = Clusters(each_done("responses", names, "resources"))
    (told,) = played(about(INCREMENTAL_ALTER_CONFIGS, 1, (TOPIC_RESOURCE_TYPE, "bills")), clusters, now=now).responses
    assert (int(told.error_code), clusters.heard) == (TIMED_OUT, [])
    (told,) = played(
        about(DESCRIBE_CONFIGS, 4, (TOPIC_RESOURCE_TYPE, "bills")), Clusters(tells({"x": "5"})), now=now
    ).results
    assert int(told.error_code) == 0


def names(one: Any) -> dict[str, Any]:
    return {"resource_type": one.resource_type, "resource_name": one.resource_name}


@pytest.mark.parametrize(
    ("resource", "change", "code", "says"),
    [
        ((BROKER_RESOURCE_TYPE, "7"), "x", BAD_REQUEST, "there is no broker 7 behind this proxy"),
        ((BROKER_LOGGER_RESOURCE_TYPE, "east"), "x", BAD_REQUEST, "there is no broker east behind this proxy"),
        ((BROKER_RESOURCE_TYPE, "9" * 50), "x", BAD_REQUEST, f"there is no broker {'9' * 50} behind this proxy"),
        (
            (BROKER_RESOURCE_TYPE, ""),
            "x",
            POLICY,
            "what holds for all brokers is each cluster's own: name a broker, or ask the cluster",
        ),
        ((BROKER_RESOURCE_TYPE, "3"), "listeners", POLICY, "listeners is changed at the broker's own address only"),
        ((CLIENT_METRICS, "all"), "x", POLICY, "settings of the type 16 are not served by this proxy"),
        (
            (TOPIC_RESOURCE_TYPE, "orders"),
            "leader.replication.throttled.replicas",
            POLICY,
            "leader.replication.throttled.replicas names brokers by their own numbers",
        ),
    ],
)
def test_what_cannot_be_changed_here_is_said(resource: tuple[int, str], change: str, code: int, says: str) -> None:
    clusters = Clusters(each_done("responses", names, "resources"))
    (told,) = played(about(INCREMENTAL_ALTER_CONFIGS, 1, resource, change=change), clusters).responses
    assert (int(told.error_code), clusters.heard) == (code, [])
    assert told.error_message.startswith(says)


def test_what_holds_for_all_brokers_is_told_by_the_first_cluster() -> None:
    clusters = Clusters(tells({"log.retention.ms": "5"}))
    (told,) = played(about(DESCRIBE_CONFIGS, 4, (BROKER_RESOURCE_TYPE, "")), clusters).results
    assert (told.resource_name, by_place(clusters)) == (
        "",
        {BrokerId("east", ANY_BROKER): [(BROKER_RESOURCE_TYPE, "")]},
    )


def test_a_cluster_that_is_away_costs_its_own_topics_and_brokers_alone() -> None:
    for silent in (False, True):
        clusters = Clusters(tells({"retention.ms": "5"}), silent=("west",) if silent else ())
        now = seen() if silent else seen(away=("west",))
        found = played(about(DESCRIBE_CONFIGS, 4, *EVERYBODY), clusters, now=now)
        told = codes(found.results, "resource_name")
        assert told == {"orders": 0, "3": 0, "g": 0, "none": UNKNOWN_TOPIC, "bills": TIMED_OUT, "102": TIMED_OUT}
