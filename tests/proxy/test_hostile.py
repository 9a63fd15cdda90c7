"""Whatever a client or a broker sends, the core says what becomes of it or raises WireError: nothing else."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.proxy.talks import EAST, request, seen, session
from twinshore.config.errors import WireError
from twinshore.kafka.protocol.requests import read_request
from twinshore.proxy.core.api_versions import HANDLED_API_VERSIONS
from twinshore.proxy.core.message_codec import decode_response
from twinshore.proxy.core.model import BrokerResponse, FanOut

SEEN = seen(homes={"shared": "west"})
VERSIONS = [
    (key, version) for key, (low, high) in HANDLED_API_VERSIONS.items() for version in {low, (low + high) // 2, high}
]


@pytest.mark.claim(
    "proxy",
    "hostile",
    "hostile bytes, an answer to something else and a client that reads nothing cost nobody else anything",
)
@given(st.sampled_from(VERSIONS), st.binary(max_size=120), st.sampled_from([EAST, None]))
def test_any_body_is_judged_or_is_a_wire_error(what: tuple[int, int], body: bytes, place: object) -> None:
    with contextlib.suppress(WireError):
        move = session(EAST if place else None).move(request(*what, [body]), SEEN)
        if isinstance(move, FanOut):
            said: list[BrokerResponse] | None = None
            with contextlib.suppress(StopIteration):
                while True:
                    asks = next(move.errand) if said is None else move.errand.send(said)
                    said = [memoryview(body) for _ in asks]


@pytest.mark.claim(
    "proxy",
    "hostile",
    "hostile bytes, an answer to something else and a client that reads nothing cost nobody else anything",
)
@given(st.binary(max_size=200))
def test_any_frame_is_a_request_or_a_wire_error(frame: bytes) -> None:
    with contextlib.suppress(WireError):
        session().move(read_request(memoryview(frame)), SEEN)


@pytest.mark.claim(
    "proxy",
    "hostile",
    "hostile bytes, an answer to something else and a client that reads nothing cost nobody else anything",
)
@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_a_count_of_two_billions_makes_no_room_for_them(key: int, version: int) -> None:
    bomb = b"\x7f\xff\xff\xff" * 8
    for body in (bomb, b"\0\0" + bomb, b"\xff\xff\xff\xff\x07" * 8, b"\0" * 14 + bomb):
        with contextlib.suppress(WireError):
            session().move(request(key, version, [body]), SEEN)
        with contextlib.suppress(WireError):
            decode_response(key, version, memoryview(body))
