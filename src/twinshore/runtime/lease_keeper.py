"""Keeps this process's leases: for each store one thread, which does nothing else, renews all in one transaction and
watches those that others hold.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from twinshore.config.errors import RefusedError, StoreError
from twinshore.config.repeat_filter import describe_error
from twinshore.kafka.clock import steady_s
from twinshore.runtime.scheduler import supervise
from twinshore.state.core.lease_watch import HeldLease, LeaseWatch
from twinshore.state.core.values import LeaseRow
from twinshore.state.store import Store

POLL_RATIO = 0.1  # of the shortest lease's length
CLOSE_TIMEOUT_S = 10.0
SeenLease = tuple[LeaseRow, float]  # as it stood at that moment of the steady clock


def read_leases(store: Store, names: Collection[str]) -> dict[str, SeenLease]:
    rows = store.leases.read_each(names)
    return {name: (row, steady_s()) for name, row in rows.items()}


class LeaseKeeper:
    """One lease. `left_s`: how long still held, or 0. `lands_s`: how long brokers may still append requests in flight.
    Watchers wait for the longer of `lands_s` and the lease.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        owner: str,
        ttl_s: float,
        grace_s: float,
        lands_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.store, self.name, self.ttl_s = store, name, ttl_s
        self._owner, self._lands_s = owner, lands_s
        self._watch = LeaseWatch(ttl_s, grace_s)
        self._held: HeldLease | None = None
        self._trouble = ""
        self._holder, self._waits_s = "", 0.0
        # Held while the store changes the lease. `closed`: no more changes.
        self.change_lock = threading.Lock()
        self.closed = False

    def begin(self, seen: SeenLease | None = None) -> Self:
        """Takes the lease when free and renews it until `close`. `seen`: an earlier reading, from which the holder is
        watched.
        """
        if seen:
            self._watch.observe(*seen)
        lease_renewer.join(self)
        return self

    def left_s(self) -> float:
        held = self._held
        return max(0.0, held.valid_until_s - steady_s()) if held else 0.0

    def generation(self) -> int:
        """The epoch of our holding, another after each loss; 0: not held."""
        held = self._held
        return held.row.epoch if held and self.left_s() > 0 else 0

    def row(self) -> LeaseRow | None:
        """Returns the lease as held, for transactions that must not outlast the lease."""
        held = self._held
        return held.row if held and self.left_s() > 0 else None

    def sentence(self) -> str:
        if self._trouble:
            return self._trouble
        if not self._holder:
            return "taking the lease"
        return f"held by {self._holder}; standing by, to take over {self._waits_s:g} s after its last sign of life"

    def close(self, *, release: bool) -> None:
        """Gives up the lease: at once (`release`) when no request is in flight, else by expiry, once none can be
        appended.
        """
        lease_renewer.leave(self)
        # A store that does not answer has the time of one of its transactions.
        free = self.change_lock.acquire(timeout=CLOSE_TIMEOUT_S)
        try:
            self.closed = True
            held, self._held = self._held, None
            try:
                if held and release:
                    self.store.leases.release(held.row)
                elif held and self._lands_s() > 0:
                    self.store.leases.renew_each([held.row], {self.name: self.ttl_ms()})
            except StoreError as error:
                self._trouble = error.message
        finally:
            if free:
                self.change_lock.release()

    # -- what the thread of all leases asks and tells

    def due(self) -> LeaseRow | None:
        held = self._held
        return held.row if held and not self.closed and held.renewal_due(steady_s()) else None

    def held(self) -> bool:
        return self._held is not None

    def ttl_ms(self) -> int:
        """Returns how long others must wait after the next beat."""
        return int(max(self.ttl_s, self._lands_s()) * 1000)

    def beaten(self, row: LeaseRow | None, sent_s: float) -> None:
        """Takes the lease after a beat sent at `sent_s`; None: lost."""
        held = self._held
        if held and not self.closed:
            self._held = held.renewed(row, sent_s) if row else None

    def saw(self, row: LeaseRow | None) -> None:
        """Takes a reading of a lease not held, and acquires it where allowed."""
        self._holder = ""
        if row and not self._watch.observe(row, steady_s()):
            self._holder, self._waits_s = row.owner, self._watch.waits_s(row)
            return
        with self.change_lock:
            if self.closed:
                return
            sent_s = steady_s()
            taken = self.store.leases.take(self.name, self._owner, int(self.ttl_s * 1000), row=row)
            self._held = HeldLease(taken, sent_s, self.ttl_s) if taken else None

    def tell(self, trouble: str) -> None:
        """Sets what hinders the lease; empty: nothing."""
        self._trouble = trouble


class LeaseRenewer:
    """All leases of this process: one thread for each store with leases."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._keepers: dict[Store, list[LeaseKeeper]] = {}

    def join(self, keeper: LeaseKeeper) -> None:
        with self._news:
            if keeper.store not in self._keepers:
                # First: this raises where the machine has no thread left, before the store counts as served.
                supervise(lambda: self._work(keeper.store), "leases")
            self._keepers[keeper.store] = [*self._keepers.get(keeper.store, ()), keeper]
            self._news.notify_all()

    def leave(self, keeper: LeaseKeeper) -> None:
        with self._news:
            self._keepers[keeper.store] = [one for one in self._keepers.get(keeper.store, ()) if one is not keeper]
            self._news.notify_all()

    def _work(self, store: Store) -> None:
        while True:
            with self._news:
                ours = self._keepers.get(store)
                if not ours:
                    self._keepers.pop(store, None)
                    return
                self._news.wait(min(keeper.ttl_s for keeper in ours) * POLL_RATIO)
                ours = self._keepers.get(store) or []
            renew_leases(store, ours)


def renew_leases(store: Store, keepers: Sequence[LeaseKeeper]) -> None:
    """Renews all due leases at once, then reads those held by others."""
    _renew(store, keepers)
    others = [keeper for keeper in keepers if not keeper.held()]
    if not others:
        return
    until_s = time.monotonic() + POLL_RATIO * min(keeper.ttl_s for keeper in keepers)
    try:
        seen = store.leases.read_each([keeper.name for keeper in others])
    except Exception as error:
        # Any error: an exception would end the reading. The next turn tries again.
        for keeper in others:
            keeper.tell(describe_error(error))
        return
    for keeper in others:
        if time.monotonic() > until_s:
            return  # Each taking is a transaction: what is held must be renewed in time.
        try:
            keeper.saw(seen.get(keeper.name))
            keeper.tell("")
        except Exception as error:
            keeper.tell(describe_error(error))


def _renew(store: Store, keepers: Sequence[LeaseKeeper]) -> None:
    due = {keeper: row for keeper in keepers if (row := keeper.due())}
    if not due:
        return
    sent_s = steady_s()
    try:
        beaten = store.leases.renew_each(list(due.values()), {keeper.name: keeper.ttl_ms() for keeper in due})
    except Exception as error:
        for keeper in due:
            keeper.tell(describe_error(error))
        return
    for keeper in due:
        keeper.beaten(beaten.get(keeper.name), sent_s)
        keeper.tell("")


lease_renewer = LeaseRenewer()

# Readings of leases by another process of this machine, which `exclusive` goes on watching from.
earlier_readings: dict[str, SeenLease] = {}

LEASE_S, GRACE_S = 10.0, 2.0
ACQUIRE_TIMEOUT_S = 30.0
ACQUIRE_POLL_INTERVAL_S = 0.05


@contextmanager
def exclusive(thing: str, store: Store, by: str) -> Iterator[LeaseKeeper]:
    """Holds the lease `thing` during the block. Raises RefusedError while another process does."""
    owner = f"{by}, process {os.getpid()}, {secrets.token_hex(4)}"  # new with each start, as leases want it
    lease = LeaseKeeper(store, thing, owner, LEASE_S, GRACE_S).begin(earlier_readings.pop(thing, None))
    try:
        until_s, tick = steady_s() + ACQUIRE_TIMEOUT_S, threading.Event()
        while not lease.generation():
            if steady_s() > until_s:
                raise RefusedError("runtime.lease-taken", thing=thing, holder=lease.sentence())
            tick.wait(ACQUIRE_POLL_INTERVAL_S)
        yield lease
    finally:
        lease.close(release=True)
