"""What a cluster that is left says of a link, put together for a switch whose store is dead."""

from __future__ import annotations

from dataclasses import replace

from twinshore.config.model import Link
from twinshore.kafka.protocol.primitives import encode_json
from twinshore.replication.core.claim_records import LinkClaimState, LinkClaimStates, LinkWriter, StoreClaim
from twinshore.routing.core.home_records import HomeRecord
from twinshore.state.core.values import HomeRow, LinkIdentity, TwinRow
from twinshore.state.store import temporary_store
from twinshore.switch.operations.storeless import RecoveredLink, rebuild_link_state, store_recovered_links

LINK = Link("east", "west")
WRITER = LinkWriter("5" * 32, 12, 3, "id-west", "process")


def row(topic: str, partition: int, epoch: int = 0) -> TwinRow:
    return TwinRow(LINK.name, topic, partition, "a" * 32, "b" * 32, 7, 2, 0, 0, epoch)


def noted(
    link: str = LINK.name, source: str = "id-east", writer: LinkWriter = WRITER
) -> list[tuple[bytes, bytes | None]]:
    told = LinkClaimState(link, source)
    twins = told.twin_lines([row("orders", 0), row("orders", 1), row("bills", 0, 4), row("mixed", 0)], ["mixed"])
    return [told.claim_line(StoreClaim("5" * 32, "host", 1)), told.writer_line(writer), *twins]


def line(topic: str, cluster_id: str, term: int) -> HomeRecord:
    return HomeRecord(topic=topic, home="named elsewhere", cluster_id=cluster_id, term=term, since_ms=9, set_by="anna")


def seen(lines: dict[str, HomeRecord]) -> RecoveredLink:
    found = LinkClaimStates(LINK.name)
    for one in noted():
        found.take(*one)
    (told,) = found.written("id-west")
    assert told.writer
    return rebuild_link_state(LINK, told, told.writer, lines)


def test_the_source_of_a_link_is_found_in_its_notes() -> None:
    found = LinkClaimStates(LINK.name)
    lines = [
        *noted(),
        *noted("north->west", "id-north"),
        *noted(source="id-old", writer=replace(WRITER, target_cluster_id="id-gone")),
    ]
    for one in [*lines, (b"\xff", b"x"), (encode_json(["link", LINK.name]), None), (encode_json(["link", 1, 2]), None)]:
        found.take(*one)
    assert [told.source_id for told in found.written("id-west")] == ["id-east"]
    assert found.written("id-nowhere") == []


def test_what_is_left_is_what_the_store_would_say() -> None:
    one = seen({})
    assert one.identity == LinkIdentity(LINK.name, 12, 3, "id-east", "id-west")
    assert [(twin.topic, twin.partition, twin.epoch) for twin in one.twins if twin.topic != "mixed"] == [
        ("bills", 0, 4),
        ("orders", 0, 0),
        ("orders", 1, 0),
    ]
    assert (one.mapped, one.homes, one.elsewhere()) == (("mixed",), (), {})
    with temporary_store("of a test") as store:
        store_recovered_links(store, [one])
        assert store.links.identity(LINK.name) == one.identity
        assert {twin.topic for twin in store.twins.active(LINK.name)} == {"bills", "orders"}
        assert store.homes.of("east<>west") == {}


def test_a_topic_that_is_at_home_elsewhere_is_not_switched_again() -> None:
    one = seen(
        {"orders": line("orders", "id-west", 2), "bills": line("bills", "id-east", 5), "other": line("other", "x", 9)}
    )
    assert one.elsewhere() == {"orders": "west"}
    with temporary_store("of a test") as store:
        store_recovered_links(store, [one])
        assert {twin.topic for twin in store.twins.of(LINK.name)} == {"bills"}
        assert store.homes.of("east<>west")["bills"] == HomeRow("east<>west", "bills", "east", 5, 9, "anna")
    with temporary_store("of a test") as store:
        store_recovered_links(store, [one], also=["orders"])
        assert {twin.topic for twin in store.twins.of(LINK.name)} == {"bills", "orders"}, "for a switch that goes on"
        assert store.homes.of("east<>west")["orders"].term == 2
