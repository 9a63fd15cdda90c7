"""Connections that are kept for whoever asks: some to each address, lent to many at once, who take turns on them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection

from twinshore.fleet import KafkaError, Security
from twinshore.kafka.connection import Connection
from twinshore.kafka.silence import AskedOnce, Silence, Unheard

Key = tuple[tuple[str, int], Security]
UNHEARD = Unheard()


class Pool:
    """Safe for several threads. At most `each` are kept to one address for one user. A connection is kept for as long
    as one of those that asked by it is there."""

    def __init__(self, each: int = 1, *, spares: bool = False, once: bool = False) -> None:
        """`spares`: a cluster that is silent is asked by one of its askers only, for all of them. `once`: after one of
        them has waited in vain, by none."""
        self._each, self._spares, self._once = each, spares, once
        self._silences: dict[object, Silence] = {}
        self._kept: dict[Key, list[Connection]] = {}
        self._askers: dict[Key, set[object]] = {}
        self._dialling: Counter[Key] = Counter()
        self._guard = threading.Lock()

    def silence_of(self, cluster: object) -> Silence:
        """Of the cluster that all who give the same value ask."""
        if not self._spares and not self._once:
            return UNHEARD
        with self._guard:
            if cluster not in self._silences:
                self._silences[cluster] = AskedOnce() if self._once else Silence()
            return self._silences[cluster]

    def lend(self, key: Key, asker: object, dial: Callable[[], Connection]) -> Connection:
        """A connection on which nobody waits for an answer; a new one while there is room, else the one on which the
        fewest do."""
        with self._guard:
            self._askers.setdefault(key, set()).add(asker)
            usable, lost = self._sorted(key)
            idle = next((one for one in usable if not one.callers), None)
            known = idle or (usable[0] if usable and len(usable) + self._dialling[key] >= self._each else None)
            if known is None:
                self._dialling[key] += 1
        for one in lost:
            one.retire()
        return known or self._dialled(key, asker, dial)

    def leave(self, asker: object, but: Collection[tuple[str, int]] = ()) -> None:
        """It asks no more at any address but these."""
        with self._guard:
            ours = [key for key, askers in self._askers.items() if asker in askers and key[0] not in but]
            left: list[Connection] = []
            for key in ours:
                self._askers[key].discard(asker)
                if not self._askers[key]:
                    del self._askers[key]
                    left += self._kept.pop(key, [])
        for one in left:
            one.retire()

    def _dialled(self, key: Key, asker: object, dial: Callable[[], Connection]) -> Connection:
        try:
            fresh = dial()
        finally:
            with self._guard:
                self._dialling[key] -= 1
        with self._guard:
            gone = asker not in self._askers.get(key, ())
            usable, lost = self._sorted(key)
            if not gone and len(usable) < self._each:
                self._kept[key] = [*usable, fresh]
                usable = []
            else:
                lost.append(fresh)
        for one in lost:
            one.retire()
        if gone:
            raise KafkaError(f"{fresh.place}: this client was closed")
        return usable[0] if usable else fresh

    def _sorted(self, key: Key) -> tuple[list[Connection], list[Connection]]:
        """Those that can be used, the least busy first, which alone are kept from now on; and the others."""
        kept = self._kept.get(key, [])
        usable = sorted((one for one in kept if one.usable), key=lambda one: len(one.callers))
        if kept:
            self._kept[key] = usable
        return usable, [one for one in kept if not one.usable]
