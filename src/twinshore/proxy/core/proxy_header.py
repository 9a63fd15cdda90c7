"""The PROXY header, in which a load balancer names the client: text in version 1, binary in version 2.

No byte behind the header is read, since a TLS handshake may follow.
"""

from __future__ import annotations

import ipaddress
import struct
from typing import Final

from twinshore.config.errors import WireError
from twinshore.proxy.core.follower_fetch import parse_ip_address

# Headers of both versions are longer than this.
FIRST_READ_BYTES: Final = 12
_SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
_LINE, _LINE_MAX, _LINE_END = b"PROXY ", 107, b"\r\n"
_REST: Final = struct.Struct(">BBH")
_VERSION, _LOCAL, _PROXY = 2, 0, 1
_TCP4, _TCP6 = 0x11, 0x21
_PORTS: Final = 4
# Load balancers may add some hundred bytes behind the addresses, such as TLS names.
_MORE_MAX: Final = 4096


class ProxyHeader:
    """A header being read. `address`: the client's; empty if there is none, as in health checks."""

    def __init__(self) -> None:
        self.address = ""
        self._got = bytearray()

    @property
    def lacks(self) -> int:
        """How many bytes may be taken next; 0 once complete. WireError if this is no header."""
        got = self._got
        if len(got) < FIRST_READ_BYTES:
            return FIRST_READ_BYTES - len(got)
        if got.startswith(_SIGNATURE):
            whole = FIRST_READ_BYTES + _REST.size
            if len(got) >= whole:
                whole += self._length()
            return whole - len(got)
        return self._lacks_of_line()

    def _length(self) -> int:
        version, _, length = _REST.unpack_from(self._got, FIRST_READ_BYTES)
        if version >> 4 != _VERSION or version & 0xF not in (_LOCAL, _PROXY):
            raise WireError(f"a PROXY header of an unknown version or command: {version:#04x}")
        if length > _MORE_MAX:
            raise WireError(f"a PROXY header of {length} bytes")
        return int(length)

    def _lacks_of_line(self) -> int:
        if not self._got.startswith(_LINE):
            raise WireError("no PROXY header")
        if self._got.endswith(_LINE_END):
            return 0
        if len(self._got) >= _LINE_MAX:
            raise WireError("a PROXY header without an end")
        # The header's last byte must be the last one taken.
        return 1

    def take(self, data: bytes | memoryview) -> None:
        """Take at most `lacks` bytes. WireError if this is no header."""
        self._got += data
        if self.lacks == 0:
            self.address = self._of_line() if self._got.startswith(_LINE) else self._of_binary()

    def _of_binary(self) -> str:
        version, family, length = _REST.unpack_from(self._got, FIRST_READ_BYTES)
        size = {_TCP4: 4, _TCP6: 16}.get(family)
        if version & 0xF == _LOCAL or size is None:
            return ""
        if length < 2 * size + _PORTS:
            raise WireError("a PROXY header that ends within its addresses")
        begin = FIRST_READ_BYTES + _REST.size
        return _text(ipaddress.ip_address(bytes(self._got[begin : begin + size])).compressed)

    def _of_line(self) -> str:
        words = self._got[: -len(_LINE_END)].decode("latin-1").split(" ")
        if words[1] == "UNKNOWN":
            return ""
        if len(words) != 6 or words[1] not in ("TCP4", "TCP6"):
            raise WireError("a PROXY header of another kind than TCP4, TCP6 and UNKNOWN")
        return _text(words[2])


def _text(address: str) -> str:
    found = parse_ip_address(address)
    if found is None:
        raise WireError("a PROXY header without an address")
    return str(found)
