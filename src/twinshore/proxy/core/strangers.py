"""What a peer sent that does not speak as it should, in words for the log. Pure."""

from __future__ import annotations

from twinshore.fleet.errors import WireError
from twinshore.wire.framing import FrameSizeError

# A handshake of TLS in place of the size of a frame.
_HELLO = 0x1603
# The first bytes of a PROXY header, of either version.
_HEADERS = (0x0D0A0D0A, 0x50524F58)


def what_it_sent(error: WireError) -> str:
    """Why a client is hung up on that sent this."""
    if isinstance(error, FrameSizeError) and error.size >> 16 == _HELLO:
        return "it speaks TLS, and this port does not"
    if isinstance(error, FrameSizeError) and error.size in _HEADERS:
        return "it sends a PROXY header, and is not in [proxy] balancers"
    return f"it does not keep to the protocol: {error}"
