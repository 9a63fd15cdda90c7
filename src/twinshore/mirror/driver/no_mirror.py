"""Whether any mirror is at work on a link: asked before what it writes is changed under it."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from twinshore.fleet import RefusedError
from twinshore.store import LeaseRow, LeaseWatch, Store

LOOK_S = 0.1
HELD_MS = 60_000  # far more than a change of the store takes
GRACE_S = 5.0  # what of a dead mirror may be on its way still, as its successors wait for it


def refuse_under_a_mirror(store: Store, link: str, lease_s: float, tell: Callable[[str], None]) -> LeaseRow | None:
    """The link's lease, if there is one, that is given up or has run out before our eyes: no two hosts' clocks are
    compared. RefusedError where a mirror renews it. `tell` hears why it takes so long."""
    watch = LeaseWatch(lease_s, GRACE_S)
    first = row = store.leases.read(f"link {link}")
    if row is None or row.released:
        return row
    tell(f"{link}: {row.owner} has not given its lease up; looking whether it is alive")
    while not watch.observe(row, time.monotonic()):
        if row != first:
            raise _carried(link, row)
        time.sleep(LOOK_S)
        row = store.leases.read(f"link {link}")
    return row


@contextmanager
def in_place_of_a_mirror(store: Store, link: str, seen: LeaseRow | None, by: str) -> Iterator[None]:
    """Holds the link's lease, so that no mirror begins meanwhile. RefusedError where one has taken or renewed it since
    it was `seen`."""
    owner = f"{by}, process {os.getpid()}, {secrets.token_hex(4)}"
    held = store.leases.take(f"link {link}", owner, HELD_MS, seen=seen)
    if held is None:
        raise _carried(link, store.leases.read(f"link {link}"))
    try:
        yield
    finally:
        store.leases.release(held)


def _carried(link: str, row: LeaseRow | None) -> RefusedError:
    hint = "stop that mirror in good order, then run this again"
    return RefusedError(f"{link} is carried by {row.owner if row else 'nobody'} now", hint=hint)
