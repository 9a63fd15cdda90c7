"""Whether a mirror is at work on a link: asked before writers are held, or anything is deleted that a mirror is to make
anew, or both would wait for none."""

from __future__ import annotations

from twinshore.mirror.driver.no_mirror import GRACE_S
from twinshore.service.clock import steady_s
from twinshore.store import LeaseRow, LeaseWatch, Store
from twinshore.switch.decision import Cannot, Wait


class MirrorWatch:
    """Sees the link's lease renewed before our eyes: no two hosts' clocks are compared."""

    def __init__(self, store: Store, link: str, lease_s: float) -> None:
        self._store, self._link = store, link
        self._watch = LeaseWatch(lease_s, GRACE_S)
        self._first: LeaseRow | None = None
        self._alive = False

    def why_not(self) -> Wait | Cannot | None:
        """None once a mirror was seen at work."""
        if self._alive:
            return None
        row = self._store.leases.read(f"link {self._link}")
        if row is None or row.released:
            return Cannot(f"no mirror carries {self._link} now: `twinshore mirror run` has to run")
        self._first = self._first or row
        self._alive = row != self._first
        if self._alive:
            return None
        if self._watch.observe(row, steady_s()):
            return Cannot(f"{row.owner}, who carried {self._link}, gives no sign of life: is its mirror dead?")
        return Wait(f"a sign of life of {row.owner}, who carries {self._link}, is waited for")


class MirrorSilence:
    """Sees that a link's lease is given up or not renewed any more, while a mirror is waited for that nobody can do
    without. One that comes back is heard again."""

    def __init__(self, store: Store, link: str, lease_s: float) -> None:
        self._store, self._link = store, link
        self._watch = LeaseWatch(lease_s, GRACE_S)

    def waiting(self, sentence: str) -> Wait:
        """This sentence says what is waited for, as long as the mirror may be at work."""
        row = self._store.leases.read(f"link {self._link}")
        if not self._watch.observe(row, steady_s()):
            return Wait(sentence)
        return Wait(f"waits for the mirror of {self._link}, which gives no sign of life: start it, this goes on")
