"""Clients are told of each topic the id that the groups' home has, wherever the topic is at home; by values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from tests.proxy.talks import answer, asked, asked_part, by_kio, carried, request, said_part, seen, session
from twinshore.config.errors import WireError
from twinshore.config.frozen import GROUPS_HOME
from twinshore.kafka.protocol.apis import METADATA
from twinshore.proxy.core.api_versions import HANDLED_API_VERSIONS
from twinshore.proxy.core.message_codec import build_message, decode_request, to_error_code
from twinshore.proxy.core.model import BrokerRequest, HomeRoute, RoutingTable

UNKNOWN_ID = 100
# Each cluster's own ids.
IDS = {
    "east": {"orders": UUID(int=0xE1), "shared": UUID(int=0xE2)},
    "west": {"bills": UUID(int=0xA1), "shared": UUID(int=0xA2)},
}


def known(*, shared_at: str = "west", groups_at: str = "") -> RoutingTable:
    """`shared` is on both, and has moved perhaps; so have groups."""
    clusters = {
        name: replace(one, ids={topic: found.bytes for topic, found in IDS[name].items()})
        for name, one in seen().clusters.items()
    }
    leads = {GROUPS_HOME: HomeRoute(groups_at, 2)} if groups_at else {}
    return RoutingTable(clusters, {"shared": shared_at}, HANDLED_API_VERSIONS, leads=leads)


def brokers(version: int) -> Any:
    def says(ask: BrokerRequest) -> memoryview:
        found = decode_request(request(METADATA, version, ask.body))
        ours = IDS[ask.place.cluster]
        kind = said_part(METADATA, version, "topics")
        names = sorted(ours) if found.topics is None else [str(one.name) for one in found.topics]
        topics = tuple(
            build_message(kind, name=name, topic_id=ours.get(name), error_code=to_error_code(0 if name in ours else 3))
            for name in names
        )
        return answer(METADATA, version, topics=topics)

    return says


def told(version: int, seen_now: RoutingTable, *names: str | UUID, every: bool = False) -> dict[str, UUID | None]:
    kind = asked_part(METADATA, version, "topics")
    named = tuple(
        build_message(kind, name=None, topic_id=one) if isinstance(one, UUID) else build_message(kind, name=one)
        for one in names
    )
    asks = asked(METADATA, version, topics=None if every else named)
    body, _ = carried(session().move(asks, seen_now), brokers(version))
    found = by_kio(METADATA, version, body).topics
    assert all(int(one.error_code) == (UNKNOWN_ID if one.name is None else 0) for one in found)
    return {str(one.name): one.topic_id for one in found}


@pytest.mark.parametrize("version", [10, 11, 12])
@pytest.mark.parametrize("shared_at", ["east", "west"])
def test_the_id_of_a_topic_is_that_of_the_groups_home_while_the_topic_moves(version: int, shared_at: str) -> None:
    wanted = {"orders": UUID(int=0xE1), "bills": None, "shared": UUID(int=0xE2)}
    assert told(version, known(shared_at=shared_at), every=True) == wanted
    assert told(version, known(shared_at=shared_at), *wanted) == wanted
    wanted = {"orders": None, "bills": UUID(int=0xA1), "shared": UUID(int=0xA2)}
    assert told(version, known(shared_at=shared_at, groups_at="west"), *wanted) == wanted


def test_a_topic_is_found_by_the_id_that_clients_were_told() -> None:
    shared, own, none = UUID(int=0xE2), UUID(int=0xA2), UUID(int=7)
    assert told(12, known(), shared, "bills") == {"shared": shared, "bills": None}
    assert told(12, known(), own) == {"None": own}, "it is the other cluster's"
    assert told(12, known(), none, shared) == {"None": none, "shared": shared}
    assert told(12, known(groups_at="west"), own) == {"shared": own}


@pytest.mark.claim("proxy", "ids-first", "a Java consumer that subscribes by a broker's pattern finds its topics")
def test_an_id_counts_more_than_the_empty_name_that_java_sends_beside_it() -> None:
    kind, shared = asked_part(METADATA, 12, "topics"), UUID(int=0xE2)
    asks = asked(METADATA, 12, topics=(build_message(kind, name="", topic_id=shared),))
    body, _ = carried(session().move(asks, known()), brokers(12))
    assert [(one.name, one.topic_id) for one in by_kio(METADATA, 12, body).topics] == [("shared", shared)]


def test_a_topic_that_each_site_has_for_itself_has_an_id_where_it_is_at_the_groups_home() -> None:
    for cluster, found in (("east", UUID(int=0xE2)), ("west", None)):
        ours = replace(known(), homes={}, own={"shared": cluster})
        assert told(12, ours, "shared") == {"shared": found}
        by_id = told(12, ours, UUID(int=0xE2))
        assert by_id == {"shared" if found else "None": UUID(int=0xE2)}, "it is no id of the other site's"


def test_a_question_with_neither_name_nor_id_ends_the_connection() -> None:
    kind = asked_part(METADATA, 12, "topics")
    asks = asked(METADATA, 12, topics=(build_message(kind, name=None, topic_id=None),))
    with pytest.raises(WireError, match="without a name"):
        session().move(asks, known())


def test_what_a_cluster_says_of_a_topic_now_counts_more_than_what_was_seen() -> None:
    ours = known()
    east = replace(ours.clusters["east"], ids={"orders": UUID(int=5).bytes, "shared": UUID(int=6).bytes})
    old = RoutingTable({**ours.clusters, "east": east}, ours.homes, HANDLED_API_VERSIONS)
    assert told(12, old, "orders", "shared") == {"orders": UUID(int=0xE1), "shared": UUID(int=6)}
