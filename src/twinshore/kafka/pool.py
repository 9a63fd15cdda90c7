"""How long to keep trying: the one loop around everything that may fail now and succeed later; which clusters are
waited for at this moment, for a command that tells a person why it is silent; and who asks a cluster that answers
nobody.

Many links share a cluster. If all of them waited for an answer that does not come, they would hold all the threads
that there are, and nothing else would be done. So one at a time asks, and the others hear at once what he heard last. A
short silence is waited out as ever: a broker may just begin again.

The brokers of one cluster: where they are, connections that are kept to them, and whom to ask first.
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
from twinshore.kafka.backoff import delay_s
from twinshore.kafka.connection import Connection, open_connection
from twinshore.kafka.metadata import BrokerAddress
from twinshore.kafka.protocol.error_codes import Code


class ClusterWait(NamedTuple):
    """A question to a cluster that has no answer yet, and since when."""

    cluster: str
    at: str
    since_s: float


_NOW: dict[object, ClusterWait] = {}


@contextmanager
def track_wait(cluster: str, at: str) -> Iterator[None]:
    """Around a question with all its attempts. Safe for several threads."""
    key = object()
    _NOW[key] = ClusterWait(cluster, at, time.monotonic())
    try:
        yield
    finally:
        del _NOW[key]


def current_waits() -> list[ClusterWait]:
    """Those of all threads, by `time.monotonic`."""
    return list(_NOW.values())


# A topic that was just created may be unknown to some broker for a moment; one that does not exist stays unknown.
UNKNOWN_TOPIC_TIMEOUT_S = 3.0
# Our knowledge of the topic is out of date, and fresh metadata mends it.
_STALE = frozenset({Code.UNKNOWN_TOPIC_ID, Code.INCONSISTENT_TOPIC_ID})
Value = TypeVar("Value")


def is_retriable(error: KafkaError) -> bool:
    """Trying again, with fresh metadata, may succeed."""
    return error.retriable or error.code in _STALE


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """`limit_s` bounds the whole of one errand of a thread: its attempts, its pauses, and the errands within it, as far
    as every call takes no more than `left_s`. `gave_up` hears that nobody answered in that time; `at`: where `place` is
    asked, for people."""

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
        """An errand within another has no more time than that."""
        if self._deadline() < math.inf:
            yield
            return
        self._errands.deadline = self.clock() + self.limit_s
        try:
            yield
        finally:
            self._errands.deadline = math.inf

    def left_s(self) -> float:
        """What this thread's errand has left, zero or less when it is over; `inf` outside of any."""
        return self._deadline() - self.clock()

    def _deadline(self) -> float:
        return float(getattr(self._errands, "deadline", math.inf))

    def retry(self, what: str, attempt: Callable[[], Value]) -> Value:
        """Attempts until one succeeds, fails for good, or time is up."""
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
        """Waits before the next attempt; raises when another would not help or would come too late."""
        if not is_retriable(error):
            raise error
        wait_s = delay_s(failures, self.rng)
        if error.code == Code.UNKNOWN_TOPIC_OR_PARTITION and self.clock() + wait_s - started >= UNKNOWN_TOPIC_TIMEOUT_S:
            raise error
        if wait_s >= self.left_s() or isinstance(error, ClusterUnavailableError):
            message = (
                f"{self.place}: no answer about {what} within {self.limit_s:g} s; the last failure: {error.message}"
            )
            gave_up = KafkaError(message, code=error.code, retriable=True, hint=error.hint)
            if not error.code:
                self.gave_up()
                gave_up.silent, gave_up.cause = self.place, error.cause or str(error)
            raise gave_up from error
        self.sleep(wait_s)


UNAVAILABLE_AFTER_S = 3.0
PROBE_INTERVAL_S = 0.25


class ClusterUnavailableError(KafkaError):
    """The cluster was not asked: it has been silent for a while, and somebody else asks already."""


class ClusterAvailability:
    """Of one cluster, for all that ask it. Safe for several threads. A silence begins when no broker of it answers."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._last: KafkaError | None = None
        self._since_s = self._probed_s = 0.0
        self._prober: int | None = None

    def check(self) -> None:
        """SilentError where it is not to be asked by this thread now."""
        with self._guard:
            if self._gated() and self._prober != threading.get_ident():
                raise self._refusal()

    def gave_up(self) -> None:
        """Somebody has waited for it for as long as he would."""

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Around a question to whichever broker answers: SilentError where it is not to be asked now; what becomes of
        the question is what the others hear."""
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
        """`silent`: nobody answered; None: somebody did, whatever he said."""
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
    """Of a command that looks once: when one of its askers has waited for the cluster in vain, no other waits."""

    def __init__(self) -> None:
        super().__init__()
        self._gave_up = False

    def gave_up(self) -> None:
        with self._guard:
            self._gave_up = self._last is not None

    def check(self) -> None:
        """SilentError once it was waited for in vain."""
        with self._guard:
            if self._gated():
                raise self._refusal()

    @contextmanager
    def asking(self) -> Iterator[None]:
        """The same, around a question; what becomes of that is what the others hear."""
        self.check()
        with super().asking():
            yield

    def _gated(self) -> bool:
        return self._gave_up and self._last is not None


class UntrackedAvailability(ClusterAvailability):
    """Where nobody shares a cluster, nobody is spared."""

    def check(self) -> None:
        """Anybody may ask."""

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Anybody may ask."""
        yield


ConnectionKey = tuple[tuple[str, int], Security]
UNTRACKED = UntrackedAvailability()


class ConnectionPool:
    """Connections that are kept for whoever asks: some to each address, lent to many at once, who take turns on them.
    Safe for several threads. At most `each` are kept to one address for one user. A connection is kept for as long as
    one of those that asked by it is there."""

    def __init__(self, each: int = 1, *, spares: bool = False, once: bool = False) -> None:
        """`spares`: a cluster that is silent is asked by one of its askers only, for all of them. `once`: after one of
        them has waited in vain, by none."""
        self._each, self._spares, self._once = each, spares, once
        self._silences: dict[object, ClusterAvailability] = {}
        self._kept: dict[ConnectionKey, list[Connection]] = {}
        self._askers: dict[ConnectionKey, set[object]] = {}
        self._dialling: Counter[ConnectionKey] = Counter()
        self._guard = threading.Lock()

    def availability_of(self, cluster: object) -> ClusterAvailability:
        """Of the cluster that all who give the same value ask."""
        if not self._spares and not self._once:
            return UNTRACKED
        with self._guard:
            if cluster not in self._silences:
                self._silences[cluster] = FailFastAvailability() if self._once else ClusterAvailability()
            return self._silences[cluster]

    def lend(self, key: ConnectionKey, asker: object, dial: Callable[[], Connection]) -> Connection:
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
        for one in lost:
            one.retire()
        if gone:
            raise KafkaError(f"{fresh.place}: this client was closed")
        return usable[0] if usable else fresh

    def _sorted(self, key: ConnectionKey) -> tuple[list[Connection], list[Connection]]:
        """Those that can be used, the least busy first, which alone are kept from now on; and the others."""
        kept = self._kept.get(key, [])
        usable = sorted((one for one in kept if one.usable), key=lambda one: len(one.callers))
        if kept:
            self._kept[key] = usable
        return usable, [one for one in kept if not one.usable]


Address = tuple[str, int]
MISROUTED_CONNECTION_S = 5.0


class NodeConnections:
    """Safe for several threads."""

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
        self._cluster = cluster
        self._call_s = call_s
        self._client_id = client_id
        self._clock = clock
        self._rng = rng
        self._bootstrap = [parse_address(text, cluster.name) for text in cluster.bootstrap]
        if not self._bootstrap:
            raise ConfigError(f"cluster {cluster.name} has no bootstrap address")
        self._known: dict[int, BrokerAddress] = {}
        self._pool = pool or ConnectionPool()
        self.silence = self._pool.availability_of((frozenset(self._bootstrap), cluster.security))
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

    def bootstrap_order(self) -> list[Address]:
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
        connection.expires_at = min(connection.expires_at, time.monotonic() + MISROUTED_CONNECTION_S)
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
