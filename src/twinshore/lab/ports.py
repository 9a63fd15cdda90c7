"""Free ports on loopback, below the range from which the kernel takes ports for outgoing connections.

A broker that restarts must get its port again; one from the kernel's own range might by then be some client's.
"""

from __future__ import annotations

import random
import socket

_FIRST, _LAST = 12_000, 30_000
_given: set[int] = set()


def free_port() -> int:
    """A port nobody listens on, never the same twice in this process."""
    for _ in range(1_000):
        port = random.SystemRandom().randrange(_FIRST, _LAST)
        if port not in _given and _is_free(port):
            _given.add(port)
            return port
    raise OSError(f"no free port between {_FIRST} and {_LAST}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
