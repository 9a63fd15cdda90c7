"""Free loopback ports, below the kernel's range for outgoing connections, which could take a restarting broker's port.

A port is also free until its owner listens, and while a killed broker is down. So each port handed out is locked, as a
byte of one file, against other processes of this user.
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
    """Returns a port without listener, never the same twice in this process."""
    for _ in range(1_000):
        port = random.SystemRandom().randrange(_FIRST, _LAST)
        if port not in _given and _claimed(port) and _is_free(port):
            _given.add(port)
            return port
    raise OSError(f"no free port between {_FIRST} and {_LAST}")


def free_port_range(count: int) -> int:
    """Returns the first of `count` consecutive ports without listeners."""
    for _ in range(100):
        first = free_port()
        others = range(first + 1, first + count)
        if all(port not in _given and _claimed(port) and _is_free(port) for port in others):
            _given.update(others)
            return first
    raise OSError(f"no {count} ports in a row are free")


def _claimed(port: int) -> bool:
    """Locks the port; False if another process holds the lock. The kernel frees the lock when this process ends."""
    try:
        fcntl.lockf(_claims(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


@functools.cache
def _claims() -> int:
    """The lock file, opened once: closing any descriptor of the file would free all locks of this process."""
    path = Path(tempfile.gettempdir(), f"twinshore-ports-{os.getuid()}")
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
