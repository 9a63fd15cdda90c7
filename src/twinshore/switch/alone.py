"""One process at a time does a thing that the store names."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from twinshore.fleet import RefusedError
from twinshore.service.clock import steady_s
from twinshore.service.lease_keeper import LeaseKeeper
from twinshore.store import Store

LEASE_S, GRACE_S = 10.0, 2.0
TAKEN_WITHIN_S = 30.0
POLL_S = 0.05


@contextmanager
def alone(thing: str, store: Store, by: str) -> Iterator[LeaseKeeper]:
    """While this process alone does it, as long as the lease holds. RefusedError where another one does."""
    owner = f"{by}, process {os.getpid()}, {secrets.token_hex(4)}"  # new with each start, as leases want it
    lease = LeaseKeeper(store, thing, owner, LEASE_S, GRACE_S).begin()
    try:
        until_s, tick = steady_s() + TAKEN_WITHIN_S, threading.Event()
        while not lease.generation():
            if steady_s() > until_s:
                raise RefusedError(f"{thing} is being worked on by another process: {lease.sentence()}")
            tick.wait(POLL_S)
        yield lease
    finally:
        lease.close(release=True)
