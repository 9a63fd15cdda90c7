"""Which topics of a cluster its notes call twins."""

from __future__ import annotations

from twinshore.replication.core.claim_records import ClaimKeyValue, LinkClaimState
from twinshore.routing.core.home_records import TwinLog
from twinshore.state.core.values import TwinRow

THERE, OTHER = "b" * 32, "c" * 32


def lines(*links: str, target: str = THERE) -> list[ClaimKeyValue]:
    row = TwinRow("", "orders", 0, "a" * 32, target, 0, 0, 1)
    return [line for link in links for line in LinkClaimState(link, "east-id").twin_lines([row], ())]


def read(*some: tuple[bytes | None, bytes | None]) -> frozenset[str]:
    log = TwinLog()
    for line in some:
        log.take(*line)
    return log.twins()


def test_what_a_mirror_notes_of_a_twin_is_read_back_until_it_is_taken_back() -> None:
    (east,), (north,) = lines("east->west"), lines("north->west")
    assert read(east) == {THERE}
    assert read(east, (east[0], None)) == frozenset()
    assert read(east, north, (east[0], None)) == {THERE}, "another link still writes it"
    assert read(east, *lines("east->west", target=OTHER)) == {OTHER}, "it was made again"


def test_what_strangers_write_there_is_passed_over() -> None:
    (east,) = lines("east->west")
    assert (
        read((None, b"{}"), (b"orders", b'{"topic_id":"x"}'), (b"[", b"1"), (east[0], b'{"target":7}')) == frozenset()
    )
