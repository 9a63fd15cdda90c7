"""PROXY headers of both versions: read to their last byte and no further, whatever comes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinshore.config.errors import WireError
from twinshore.proxy.core.proxy_header import ProxyHeader

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"


def binary(source: bytes, family: int = 0x11, *, command: int = 1, more: bytes = b"") -> bytes:
    body = source + bytes(len(source)) + struct.pack(">HH", 40000, 19092) + more
    return SIGNATURE + struct.pack(">BBH", 0x20 | command, family, len(body)) + body


def read(data: bytes) -> tuple[str, bytes]:
    """The address, and what was left alone."""
    header = ProxyHeader()
    while size := header.lacks:
        if not data:
            raise EOFError
        part, data = data[:size], data[size:]
        header.take(part)
    return header.address, data


@pytest.mark.parametrize(
    ("data", "address"),
    [
        (binary(bytes([10, 1, 2, 3])), "10.1.2.3"),
        (binary(bytes([10, 1, 2, 3]), more=b"\x03\x00\x04\x01\x02\x03\x04"), "10.1.2.3"),
        (binary(bytes.fromhex("20010db8000000000000000000000007"), 0x21), "2001:db8::7"),
        (binary(bytes(10) + b"\xff\xff" + bytes([10, 1, 2, 3]), 0x21), "10.1.2.3"),
        (binary(bytes([10, 1, 2, 3]), command=0), ""),
        (binary(b"", 0x00), ""),
        (binary(bytes(108), 0x31), ""),
        (b"PROXY TCP4 10.1.2.3 10.9.9.9 40000 19092\r\n", "10.1.2.3"),
        (b"PROXY TCP6 2001:db8::7 ::1 40000 19092\r\n", "2001:db8::7"),
        (b"PROXY UNKNOWN\r\n", ""),
        (b"PROXY UNKNOWN ffff:f::1 ffff:f::2 65535 65535\r\n", ""),
    ],
)
def test_a_header_says_who_the_client_is_and_leaves_what_follows(data: bytes, address: str) -> None:
    follows = b"\x16\x03\x01 a handshake\r\n"
    assert read(data + follows) == (address, follows)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\x00\x00\x00\x14\x00\x12\x00\x00\x00\x00\x00\x01", "no PROXY header"),
        (b"GET / HTTP/1.1\r\n", "no PROXY header"),
        (b"PROXY TCP4 10.1.2.3\r\n", "another kind"),
        (b"PROXY UDP4 10.1.2.3 10.9.9.9 1 2\r\n", "another kind"),
        (b"PROXY TCP4 10.1.2 10.9.9.9 1 2\r\n", "without an address"),
        (b"PROXY TCP4 " + b"x" * 200, "without an end"),
        (SIGNATURE + b"\x31\x11\x00\x0c" + bytes(12), "unknown version or command"),
        (SIGNATURE + b"\x22\x11\x00\x0c" + bytes(12), "unknown version or command"),
        (SIGNATURE + b"\x21\x11\x00\x0b" + bytes(11), "ends within its addresses"),
        (SIGNATURE + b"\x21\x11\xff\xff" + bytes(99), "of 65535 bytes"),
    ],
)
def test_what_is_no_header_is_said(data: bytes, says: str) -> None:
    with pytest.raises(WireError, match=says):
        read(data)


@given(st.binary(max_size=200), st.sampled_from([b"", SIGNATURE, b"PROXY TCP4 ", SIGNATURE + b"\x21\x11"]))
def test_whatever_comes_is_a_header_or_none(data: bytes, begin: bytes) -> None:
    """And nothing else is raised, nor more kept than a header may have."""
    header = ProxyHeader()
    try:
        left = begin + data
        while left and (size := header.lacks):
            assert 0 < size <= 4096 + 16
            part, left = left[:size], left[size:]
            header.take(part)
    except WireError:
        return
    assert header.address.count(" ") == 0
