"""The brokers of one cluster: where they are, connections that are kept to them, and whom to ask first."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from random import Random

from twinshore.fleet import Cluster, ConfigError, KafkaError, Security
from twinshore.kafka.connection import Connection
from twinshore.kafka.metadata import BrokerAddress
from twinshore.kafka.opening import open_connection
from twinshore.kafka.patience import AskedOnce, Silence, Unheard

Key = tuple[tuple[str, int], Security]
UNHEARD = Unheard()


class Pool:
    """Connections that are kept for whoever asks: some to each address, lent to many at once, who take turns on them.
    Safe for several threads. At most `each` are kept to one address for one user. A connection is kept for as long as
    one of those that asked by it is there."""

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


Address = tuple[str, int]
ELSEWHERE_S = 5.0


class Nodes:
    """Safe for several threads."""

    def __init__(
        self,
        cluster: Cluster,
        client_id: str,
        clock: Callable[[], float],
        rng: Random,
        *,
        call_s: float,
        pool: Pool | None = None,
    ) -> None:
        self._cluster = cluster
        self._call_s = call_s
        self._client_id = client_id
        self._clock = clock
        self._rng = rng
        self._bootstrap = [parse_address(text, cluster.name) for text in cluster.bootstrap]
        if not self._bootstrap:
            raise ConfigError(f"cluster {cluster.name} has no bootstrap address")
        self._known: dict[int, BrokerAddress] = {}
        self._pool = pool or Pool()
        self.silence = self._pool.silence_of((frozenset(self._bootstrap), cluster.security))
        self._failed_at: dict[Address, float] = {}
        self._closed = False
        self._guard = threading.Lock()

    def learn(self, brokers: dict[int, BrokerAddress]) -> None:
        """These are the brokers now; connections to others are let go."""
        with self._guard:
            self._known = dict(brokers)
            valid = {(broker.host, broker.port) for broker in brokers.values()} | set(self._bootstrap)
            self._failed_at = {address: at for address, at in self._failed_at.items() if address in valid}
        self._pool.leave(self, but=valid)

    def address_of(self, node_id: int) -> Address | None:
        with self._guard:
            broker = self._known.get(node_id)
        return (broker.host, broker.port) if broker else None

    def somebody(self) -> list[Address]:
        """Addresses to ask what every broker knows: brokers first, then bootstrap; those that failed lately last."""
        with self._guard:
            known = [(broker.host, broker.port) for broker in self._known.values()]
            self._rng.shuffle(known)
            addresses = list(dict.fromkeys([*known, *self._bootstrap]))
            addresses.sort(key=lambda one: self._failed_at.get(one, 0.0))
        return addresses

    def kept(self, address: Address, *, timeout_s: float) -> Connection:
        """A connection that is kept to this address, a new one where it was lost or its session is over."""
        if self._closed:
            raise KafkaError(f"{self._cluster.name}: this client was closed")
        key = (address, self._cluster.security)
        return self._pool.lend(key, self, lambda: self.dial(address, timeout_s=timeout_s))

    def dial(self, address: Address, *, timeout_s: float) -> Connection:
        """A new connection for the caller alone."""
        name = self._cluster.name
        try:
            connection = open_connection(
                address,
                self._cluster.security,
                client_id=self._client_id,
                timeout_s=timeout_s,
                call_s=self._call_s,
                cluster=name,
            )
        except KafkaError as error:
            self.note_failure(address)
            if address not in self._bootstrap and error.hint:
                error.hint += "; the brokers themselves advertise this address"
            raise
        with self._guard:
            self._failed_at.pop(address, None)
        return connection

    def note_failure(self, address: Address) -> None:
        with self._guard:
            self._failed_at[address] = self._clock()

    def leads_elsewhere(self, connection: Connection) -> None:
        """The connection is kept for some seconds only, as its address may be set right again, and the address is
        asked after the others. It is not closed at once: else the wrong broker would be dialled at each question."""
        connection.expires_at = min(connection.expires_at, time.monotonic() + ELSEWHERE_S)
        self.note_failure(connection.address)

    def close(self) -> None:
        self._closed = True
        self._pool.leave(self)


def parse_address(text: str, place: str) -> Address:
    """`host:port`, `[v6]:port`; ConfigError names the cluster."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError(f"cluster {place}: bootstrap address {text!r} is not host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)
