"""Topics that each site has for itself: clients write and read theirs, and keep their places beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from testkit.errors import raises
from tests.proxy.near_stage import ELSEWHERE, PARIS, client, near
from tests.proxy.talks import EAST, WEST, asked, asked_part, request, seen
from tests.proxy.test_near import passed, wanted
from twinshore.config.errors import RefusedError
from twinshore.config.settings import parse_settings
from twinshore.kafka.protocol import produce
from twinshore.kafka.protocol.apis import OFFSET_COMMIT, PRODUCE
from twinshore.kafka.protocol.requests import Request
from twinshore.proxy.core.message_codec import build_message
from twinshore.proxy.core.model import (
    BrokerId,
    FanOut,
    ForwardRequest,
    HomeRoute,
    RespondLater,
    RespondNow,
    RoutingTable,
)
from twinshore.proxy.operations.reset_offsets import check_no_site_topics

FRANKFURT = "10.1.0.7"
OWN = ("sha*",)


def sent(topic: str) -> Request:
    batches = [produce.ProduceRequestPartition(topic, 0, b"x")]
    return request(PRODUCE, 9, produce.write_produce_request(9, produce.ProduceRequest(None, -1, 1000, batches)))


def is_taken(address: str, place: BrokerId, now: RoutingTable, own: tuple[str, ...] = OWN) -> tuple[bool, bool]:
    """Whether this broker takes what a client there writes to `shared`, and gives it what it reads."""
    made = near(own_topics=own)
    moves = [client(made, place, address).move(one, now) for one in (sent("shared"), wanted("shared"))]
    assert all(isinstance(one, ForwardRequest | RespondNow | RespondLater) for one in moves)
    return isinstance(moves[0], ForwardRequest), isinstance(moves[1], ForwardRequest)


@pytest.mark.parametrize(
    ("address", "east", "west"),
    [(PARIS, False, True), (FRANKFURT, True, False), (ELSEWHERE, True, False)],
)
def test_clients_write_and_read_the_topic_of_their_own_site(address: str, east: bool, west: bool) -> None:
    assert is_taken(address, EAST, seen(homes={})) == (east, east)
    assert is_taken(address, WEST, seen(homes={})) == (west, west)


@pytest.mark.parametrize(
    ("now", "own"),
    [
        (seen(homes={"shared": "east"}), OWN),
        (replace(seen(homes={}), leads={"shared": HomeRoute("east", 1)}), OWN),
    ],
)
def test_a_topic_that_a_link_carries_or_that_nobody_named_is_written_at_its_home(
    now: RoutingTable, own: tuple[str, ...]
) -> None:
    assert is_taken(PARIS, EAST, now, own) == (True, True)
    assert is_taken(PARIS, WEST, now, own) == (False, False)


def test_a_topic_that_the_site_does_not_have_is_where_it_is() -> None:
    made = near(own_topics=("*",))
    assert passed(client(made, EAST).move(wanted("orders"), seen(homes={}))).place == EAST
    assert passed(client(made, WEST, FRANKFURT).move(wanted("bills"), seen(homes={}))).place == WEST


def test_what_is_seen_stays_the_same_while_nothing_is_new() -> None:
    made, now = near(own_topics=OWN), seen(homes={})
    assert made.get_site_view(now, "paris") is made.get_site_view(now, "paris")
    assert made.get_site_view(now, "paris") != made.get_site_view(now, "frankfurt")
    assert near().get_site_view(now, "paris") is now


@pytest.mark.parametrize(("address", "stays"), [(PARIS, False), (FRANKFURT, True), (ELSEWHERE, True)])
def test_places_are_kept_beside_the_topic_that_they_are_of(address: str, stays: bool) -> None:
    """Groups are at home on east: offsets of west's topic are none of east's."""
    topic = asked_part(OFFSET_COMMIT, 7, "topics")
    part = asked_part(OFFSET_COMMIT, 7, "topics", "partitions")
    named = (
        build_message(topic, name="shared", partitions=(build_message(part, partition_index=0, committed_offset=5),)),
    )
    commit = asked(OFFSET_COMMIT, 7, group_id="g", generation_id_or_member_epoch=-1, topics=named)
    move = client(near(own_topics=OWN), EAST, address).move(commit, seen(homes={}))
    assert isinstance(move, ForwardRequest if stays else FanOut)
    if isinstance(move, FanOut):
        assert [ask.place.cluster for ask in next(move.errand)] == ["east"], "home says whether the group has members"


def test_a_rack_names_no_log_since_it_comes_with_a_fetch_alone() -> None:
    """Every request of a client means the same log, whichever it sends first."""
    made = near(own_topics=OWN)
    for place, taken in ((EAST, True), (WEST, False)):
        talk = client(made, place, ELSEWHERE)
        moves = [talk.move(wanted("shared", rack="paris"), seen(homes={})) for _ in range(3)] + [
            talk.move(sent("shared"), seen(homes={}))
        ]
        assert [isinstance(one, ForwardRequest) for one in moves] == [taken] * 4


def test_places_in_topics_of_each_site_are_not_reset_by_the_proxies(tmp_path: Path) -> None:
    text = f'[store]\nurl = "sqlite:///{tmp_path}/none.db"\n[near]\nown_topics = ["sha*"]\n'
    settings = parse_settings(text, name="it", env={})
    with raises(RefusedError, "proxy.topic-at-each-site", topic="shared"):
        check_no_site_topics(["orders", "shared"], seen(homes={}), settings)
    check_no_site_topics(["orders", "bills"], seen(homes={}), settings)
    check_no_site_topics(["shared"], seen(homes={"shared": "east"}), settings)
