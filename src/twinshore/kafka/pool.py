"""Retries, the availability of clusters, and pooled connections.

Many links share a cluster. If all of them waited for an unavailable one, they would block all threads. So one thread at
a time asks, and others get its last error at once. Short outages, such as a broker restart, are waited out by all.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple, TypeVar

from twinshore.config.errors import ConfigError, KafkaError
from twinshore.config.model import Cluster, Security
from twinshore.kafka.clock import delay_s
from twinshore.kafka.connection import Connection, open_connection
from twinshore.kafka.metadata import BrokerAddress
from twinshore.kafka.protocol.error_codes import Code


class ClusterWait(NamedTuple):
    """A request that waits for a cluster, and since when."""

    cluster: str
    at: str
    since_s: float


_NOW: dict[object, ClusterWait] = {}


@contextmanager
def track_wait(cluster: str, at: str) -> Iterator[None]:
    """Register a request with all its attempts. Thread-safe."""
    key = object()
    _NOW[key] = ClusterWait(cluster, at, time.monotonic())
    try:
        yield
    finally:
        del _NOW[key]


def current_waits() -> list[ClusterWait]:
    """Returns the waits of all threads, by `time.monotonic`."""
    return list(_NOW.values())


# A topic that was just created may be unknown to some broker for a moment; one that does not exist stays unknown.
UNKNOWN_TOPIC_TIMEOUT_S = 3.0
# Cached metadata is out of date; fresh metadata helps.
_STALE = frozenset({Code.unknown_topic_id, Code.inconsistent_topic_id})
Value = TypeVar("Value")


def is_retriable(error: KafkaError) -> bool:
    """Whether a retry with fresh metadata may succeed."""
    return error.retriable or error.code in _STALE


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Retries within a time limit for each thread.

    `limit_s` bounds a thread's outermost `errand`: attempts, pauses and nested calls, if each call takes at most
    `left_s`. `gave_up` is called when the cluster did not answer in time. `at`: addresses of `place`, for messages.
    """

    place: str
    limit_s: float
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    rng: Random
    gave_up: Callable[[], None] = lambda: None
    at: str = ""
    _errands: threading.local = field(default_factory=threading.local, repr=False, compare=False)

    @contextmanager
    def errand(self) -> Iterator[None]:
        """Start this thread's time limit; a nested errand shares the outer one."""
        if self._deadline() < math.inf:
            yield
            return
        self._errands.deadline = self.clock() + self.limit_s
        try:
            yield
        finally:
            self._errands.deadline = math.inf

    def left_s(self) -> float:
        """Returns this thread's time left: zero or less when over, `inf` outside `errand`."""
        return self._deadline() - self.clock()

    def _deadline(self) -> float:
        return float(getattr(self._errands, "deadline", math.inf))

    def retry(self, what: str, attempt: Callable[[], Value]) -> Value:
        """Attempt until success, a final error, or the time limit."""
        started = self.clock()
        failures = 0
        with self.errand(), track_wait(self.place, self.at):
            while True:
                try:
                    return attempt()
                except KafkaError as error:
                    failures += 1
                    self.pause(what, error, failures, started)

    def pause(self, what: str, error: KafkaError, failures: int, started: float) -> None:
        """Wait before the next attempt. Raises when that would not help, or come too late."""
        if not is_retriable(error):
            raise error
        wait_s = delay_s(failures, self.rng)
        if error.code == Code.unknown_topic_or_partition and self.clock() + wait_s - started >= UNKNOWN_TOPIC_TIMEOUT_S:
            raise error
        if wait_s >= self.left_s() or isinstance(error, ClusterUnavailableError):
            last = f"the last failure: {error.message}"
            message = f"{self.place}: no answer about {what} within {self.limit_s:g} s; {last}"
            gave_up = KafkaError(message, code=error.code, retriable=True, hint=error.hint)
            if not error.code:
                self.gave_up()
                gave_up.silent, gave_up.cause = self.place, error.cause or str(error)
            raise gave_up from error
        self.sleep(wait_s)


UNAVAILABLE_AFTER_S = 3.0
PROBE_INTERVAL_S = 0.25


class ClusterUnavailableError(KafkaError):
    """The cluster was not asked: it has been unavailable for a while."""


class ClusterAvailability:
    """Whether a cluster answers, shared by its users. Thread-safe. An outage begins when no broker answers."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._last: KafkaError | None = None
        self._since_s = self._probed_s = 0.0
        self._prober: int | None = None

    def check(self) -> None:
        """ClusterUnavailableError where this thread must not ask now."""
        with self._guard:
            if self._gated() and self._prober != threading.get_ident():
                raise self._refusal()

    def gave_up(self) -> None:
        """Note that a caller's time limit ended without an answer."""

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Guard a request to any broker, and share its result. ClusterUnavailableError where this thread must not ask
        now.
        """
        with self._guard:
            if self._gated():
                if self._prober is not None or self._clock() - self._probed_s < PROBE_INTERVAL_S:
                    raise self._refusal()
                self._prober = threading.get_ident()
        try:
            yield
        except KafkaError as error:
            self._heard(error if error.retriable and not error.code else None)
            raise
        except BaseException:
            self._heard(self._last)
            raise
        self._heard(None)

    def _heard(self, silent: KafkaError | None) -> None:
        """`silent`: the error when no broker answered; None after any answer."""
        with self._guard:
            now_s = self._clock()
            if self._prober == threading.get_ident():
                self._prober, self._probed_s = None, now_s
            if silent is not None and self._last is None:
                self._since_s = now_s
            self._last = silent

    def _gated(self) -> bool:
        return self._last is not None and self._clock() - self._since_s >= UNAVAILABLE_AFTER_S

    def _refusal(self) -> ClusterUnavailableError:
        assert self._last is not None
        refusal = ClusterUnavailableError(self._last.message, retriable=True, hint=self._last.hint)
        refusal.cause = self._last.cause
        return refusal


class FailFastAvailability(ClusterAvailability):
    """For one-shot commands: after one caller waited in vain, no other waits."""

    def __init__(self) -> None:
        super().__init__()
        self._gave_up = False

    def gave_up(self) -> None:
        with self._guard:
            self._gave_up = self._last is not None

    @contextmanager
    def asking(self) -> Iterator[None]:
        self.check()
        with super().asking():
            yield

    def _gated(self) -> bool:
        return self._gave_up and self._last is not None


class UntrackedAvailability(ClusterAvailability):
    """For a cluster that is not shared: all may ask."""

    def check(self) -> None:
        """Always allowed."""

    @contextmanager
    def asking(self) -> Iterator[None]:
        yield


ConnectionKey = tuple[tuple[str, int], Security]
UNTRACKED = UntrackedAvailability()


class ConnectionPool:
    """Shared connections, at most `each` for one address and user; callers take turns. Thread-safe. Connections are
    kept until all askers of their address have left.
    """

    def __init__(self, each: int = 1, *, spares: bool = False, once: bool = False) -> None:
        """`spares`: one caller at a time asks an unavailable cluster. `once`: after one waited in vain, none."""
        self._each, self._spares, self._once = each, spares, once
        self._silences: dict[object, ClusterAvailability] = {}
        self._kept: dict[ConnectionKey, list[Connection]] = {}
        self._askers: dict[ConnectionKey, set[object]] = {}
        self._dialling: Counter[ConnectionKey] = Counter()
        self._guard = threading.Lock()

    def availability_of(self, cluster: object) -> ClusterAvailability:
        """Returns the availability shared by callers with an equal `cluster` key."""
        if not self._spares and not self._once:
            return UNTRACKED
        with self._guard:
            if cluster not in self._silences:
                self._silences[cluster] = FailFastAvailability() if self._once else ClusterAvailability()
            return self._silences[cluster]

    def lend(self, key: ConnectionKey, asker: object, dial: Callable[[], Connection]) -> Connection:
        """Returns an idle connection, else a new one up to `each`, else the least busy one."""
        with self._guard:
            self._askers.setdefault(key, set()).add(asker)
            usable, lost = self._sorted(key)
            idle = next((one for one in usable if not one.callers), None)
            connection = idle or (usable[0] if usable and len(usable) + self._dialling[key] >= self._each else None)
            if connection is None:
                self._dialling[key] += 1
        for one in lost:
            one.retire()
        return connection or self._dialled(key, asker, dial)

    def leave(self, asker: object, but: Collection[tuple[str, int]] = ()) -> None:
        """Stop using connections for this asker, except to addresses in `but`."""
        with self._guard:
            ours = [key for key, askers in self._askers.items() if asker in askers and key[0] not in but]
            left: list[Connection] = []
            for key in ours:
                self._askers[key].discard(asker)
                if not self._askers[key]:
                    del self._askers[key]
                    left += self._kept.pop(key, [])
        for connection in left:
            connection.retire()

    def _dialled(self, key: ConnectionKey, asker: object, dial: Callable[[], Connection]) -> Connection:
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
        for connection in lost:
            connection.retire()
        if gone:
            raise KafkaError(f"{fresh.place}: this client was closed")
        return usable[0] if usable else fresh

    def _sorted(self, key: ConnectionKey) -> tuple[list[Connection], list[Connection]]:
        """Returns usable connections, least busy first, which alone stay pooled, and lost ones."""
        kept = self._kept.get(key, [])
        usable = [connection for connection in kept if connection.usable]
        usable.sort(key=lambda connection: len(connection.callers))
        if kept:
            self._kept[key] = usable
        return usable, [connection for connection in kept if not connection.usable]


Address = tuple[str, int]
MISROUTED_CONNECTION_S = 5.0


class NodeConnections:
    """One cluster's broker addresses and connections. Thread-safe."""

    def __init__(
        self,
        cluster: Cluster,
        client_id: str,
        clock: Callable[[], float],
        rng: Random,
        *,
        call_s: float,
        pool: ConnectionPool | None = None,
    ) -> None:
        self._cluster, self._client_id, self._call_s = cluster, client_id, call_s
        self._clock, self._rng = clock, rng
        self._bootstrap = [parse_address(text, cluster.name) for text in cluster.bootstrap]
        if not self._bootstrap:
            raise ConfigError("kafka.no-address", cluster=cluster.name)
        self._known: dict[int, BrokerAddress] = {}
        self._pool = pool or ConnectionPool()
        self.silence = self._pool.availability_of((frozenset(self._bootstrap), cluster.security))
        self._failed_at: dict[Address, float] = {}
        self._closed = False
        self._guard = threading.Lock()

    def learn(self, brokers: dict[int, BrokerAddress]) -> None:
        """Set the current brokers, and release connections to others."""
        with self._guard:
            self._known = dict(brokers)
            valid = {(broker.host, broker.port) for broker in brokers.values()} | set(self._bootstrap)
            self._failed_at = {address: at for address, at in self._failed_at.items() if address in valid}
        self._pool.leave(self, but=valid)

    def address_of(self, node_id: int) -> Address | None:
        with self._guard:
            broker = self._known.get(node_id)
        return (broker.host, broker.port) if broker else None

    def bootstrap_order(self) -> list[Address]:
        """Returns addresses for requests to any broker: brokers, then bootstrap; recent failures last."""
        with self._guard:
            known = [(broker.host, broker.port) for broker in self._known.values()]
            self._rng.shuffle(known)
            addresses = list(dict.fromkeys([*known, *self._bootstrap]))
            addresses.sort(key=lambda one: self._failed_at.get(one, 0.0))
        return addresses

    def kept(self, address: Address, *, timeout_s: float) -> Connection:
        """Returns a pooled connection, or a new one."""
        if self._closed:
            raise KafkaError(f"{self._cluster.name}: this client was closed")
        key = (address, self._cluster.security)
        return self._pool.lend(key, self, lambda: self.dial(address, timeout_s=timeout_s))

    def dial(self, address: Address, *, timeout_s: float) -> Connection:
        """Open a connection for the caller alone."""
        name = self._cluster.name
        try:
            connection = open_connection(
                *(address, self._cluster.security),
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
        """Handle a connection to another cluster: keep it for some seconds, and try its address last. Closing at once
        would mean a connection to the wrong broker for each request.
        """
        connection.expires_at = min(connection.expires_at, time.monotonic() + MISROUTED_CONNECTION_S)
        self.note_failure(connection.address)

    def close(self) -> None:
        self._closed = True
        self._pool.leave(self)


def parse_address(text: str, place: str) -> Address:
    """Parse `host:port` or `[v6]:port`. ConfigError names the cluster."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError("kafka.invalid-address", cluster=place, address=text)
    return host.removeprefix("[").removesuffix("]"), int(port)
