"""Holds a link's lease for this process, or watches who does. Beats in a thread of its own, whatever else is slow."""

from __future__ import annotations

import threading
from collections.abc import Callable

from twinshore.fleet import StoreError
from twinshore.fleet.once import in_words
from twinshore.service.clock import steady_s
from twinshore.service.workers import keep_on
from twinshore.store import HeldLease, LeaseWatch, Store

POLL_PART = 0.1  # of the lease's length


class LeaseKeeper:
    """`left_s` says for how long the link is still ours; 0 while it is not. `lands_s`: for how long what we have sent
    may still land, whatever becomes of us. Where that is longer than the lease, whoever watches it waits so long."""

    def __init__(
        self,
        store: Store,
        name: str,
        owner: str,
        ttl_s: float,
        grace_s: float,
        lands_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._store = store
        self.name = name
        self._owner = owner
        self._ttl_s = ttl_s
        self._lands_s = lands_s
        self._watch = LeaseWatch(ttl_s, grace_s)
        self._held: HeldLease | None = None
        self._trouble = ""
        self._closed = threading.Event()
        self._holder, self._waits_s = "", 0.0
        self._thread = keep_on(self._work, f"lease {name}")

    def left_s(self) -> float:
        held = self._held
        return max(0.0, held.valid_until_s - steady_s()) if held else 0.0

    def generation(self) -> int:
        """Which term of ours this is; changes whenever the lease was lost in between. 0: not ours."""
        held = self._held
        return held.row.generation if held and self.left_s() > 0 else 0

    def sentence(self) -> str:
        """Why we do not hold it."""
        if self._trouble:
            return self._trouble
        if not self._holder:
            return "taking the lease"
        return f"carried by {self._holder}; standing by, to take over {self._waits_s:g} s after its last sign of life"

    def close(self, *, release: bool) -> None:
        """Gives the lease up, at once when nothing of ours is on its way any more (`release`)."""
        self._closed.set()
        self._thread.join(timeout=10)
        held, self._held = self._held, None
        if held and release:
            try:
                self._store.leases.release(held.row)
            except StoreError as error:
                self._trouble = error.message

    def _work(self) -> None:
        while not self._closed.wait(self._ttl_s * POLL_PART):
            try:
                self._turn()
                self._trouble = ""
            except Exception as error:
                # Nobody would beat for the link any more: whatever it is, the next turn tries again.
                self._trouble = in_words(error)

    def _turn(self) -> None:
        held = self._held
        if held:
            if not held.beat_due(steady_s()):
                return
            sent_s = steady_s()
            row = self._store.leases.beat(held.row, self._ttl_ms(self._lands_s()))
            self._held = held.beaten(row, sent_s) if row else None
            return
        seen = self._store.leases.read(self.name)
        self._holder = seen.owner if seen and not seen.released else ""
        self._waits_s = self._watch.waits_s(seen) if seen else 0.0
        if self._watch.observe(seen, steady_s()):
            sent_s = steady_s()
            row = self._store.leases.take(self.name, self._owner, self._ttl_ms(0.0), seen=seen)
            self._held = HeldLease(row, sent_s, self._ttl_s) if row else None

    def _ttl_ms(self, lands_s: float) -> int:
        return int(max(self._ttl_s, lands_s) * 1000)
