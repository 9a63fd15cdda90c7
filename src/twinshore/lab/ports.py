"""Free ports on loopback, below the range from which the kernel takes ports for outgoing connections.

A broker that restarts must get its port again; one from the kernel's own range might by then be some client's.
Seconds pass until whoever was given a port listens there, and a killed broker's is free meanwhile. So each port
that is given is also locked, as a byte of one file, against the other processes of this user. Of two clusters that
took the same port, one once dialled the other's TLS listener and died of the size that it read there.
"""

from __future__ import annotations

import fcntl
import functools
import os
import random
import socket
import tempfile
from pathlib import Path

_FIRST, _LAST = 12_000, 30_000
_given: set[int] = set()


def free_port() -> int:
    """A port nobody listens on, never the same twice while this process lives."""
    for _ in range(1_000):
        port = random.SystemRandom().randrange(_FIRST, _LAST)
        if port not in _given and _claimed(port) and _is_free(port):
            _given.add(port)
            return port
    raise OSError(f"no free port between {_FIRST} and {_LAST}")


def free_port_range(count: int) -> int:
    """The first of so many ports in a row that nobody listens on now."""
    for _ in range(100):
        first = free_port()
        others = range(first + 1, first + count)
        if all(port not in _given and _claimed(port) and _is_free(port) for port in others):
            _given.update(others)
            return first
    raise OSError(f"no {count} ports in a row are free")


def _claimed(port: int) -> bool:
    """Whether no other process was given it. The kernel lets a claim go when this process ends, however it ends."""
    try:
        fcntl.lockf(_claims(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


@functools.cache
def _claims() -> int:
    """The file of claims, opened once: closing any descriptor of it would let all claims of this process go."""
    path = Path(tempfile.gettempdir(), f"twinshore-ports-{os.getuid()}")
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
