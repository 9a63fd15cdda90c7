"""A producer that writes where home lines say, by hand: what a client library does, in the little that a stage needs.

It asks the clusters, parks when a switch holds its topic, waits until nothing of its own is on its way, says so, and
goes on at the new home. What was acknowledged is kept, record by record.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, Message, Producer

from testkit.switch_under_load import KEYS, Acked, told, value_of
from twinshore.client.discovery.routing_topic import HomeTracker
from twinshore.client.sites import Site
from twinshore.config.model import Cluster
from twinshore.lab.clients import client_settings
from twinshore.lab.processes import LabError
from twinshore.routing.core.subscribers import POLL_INTERVAL_S, SUBSCRIPTION_LEASE_S, Pause, WriteOrder, WriteTo

_SLICE_S = 0.02
_IDLE_S = 0.005
_PATIENCE_S = 1.0
_SETTLE_S = 60.0
_COMMIT_S = 2.0


@dataclass(frozen=True, slots=True)
class Writing:
    """How a writer writes. `transaction_s`: one transaction after the other, each so long; 0: none. `aborts_every`: of
    so many transactions one is aborted, on purpose; 0: none. `follows`: whether it asks for homes at all."""

    records_per_s: float = 100.0
    keys: int = KEYS
    transaction_s: float = 0.0
    aborts_every: int = 0
    follows: bool = True
    lease_s: float = SUBSCRIPTION_LEASE_S
    settings: Mapping[str, str | int] = field(default_factory=dict)


class FollowingWriter:
    """`clusters`: those that it knows; it begins on `begin`. Its keys are its own, so that of each key the order is
    known. `with FollowingWriter(...)`, or `start` and `stop`."""

    def __init__(
        self, name: str, topic: str, clusters: Mapping[str, Cluster], begin: str, how: Writing = Writing()
    ) -> None:
        self.name, self._topic, self._clusters, self._how = name, topic, clusters, how
        self._id = uuid.uuid4().hex
        sites = {one: Site(cluster) for one, cluster in clusters.items()}
        self._centre = HomeTracker(name, [topic], sites, begin, lease_s=how.lease_s)
        self._stopping = threading.Event()
        self._killed = False
        self._at = begin
        self._producer: Producer | None = None
        self._warm: dict[str, Producer] = {}  # where a switch may soon order it
        self._opening = {name: threading.Lock() for name in clusters}
        self._due: dict[int, None] = {}  # written, and neither acknowledged nor given up: in order
        self._next = 0
        self._tentative: list[Acked] = []
        self._transaction_until_s = 0.0
        self._transactions = 0
        self.acked: list[Acked] = []
        self.failed: dict[int, str] = {}
        self.sent_again: list[int] = []
        self.aborted: set[int] = set()
        self.moves: list[tuple[float, WriteOrder]] = []
        self._broken: Exception | None = None
        self._threads = [threading.Thread(target=self._run, name=f"writer {name}", daemon=True)]
        if how.follows:
            self._threads.append(threading.Thread(target=self._warm_up, name=f"opener {name}", daemon=True))

    def __enter__(self) -> FollowingWriter:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        if self._how.follows:
            self._centre.start()
        for thread in self._threads:
            thread.start()

    def stop(self) -> list[Acked]:
        """Sends no more, waits for what is on its way, and says goodbye; LabError where the writer itself broke."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(_SETTLE_S + 3 * _PATIENCE_S)
        self._centre.stop()
        if self._broken or any(thread.is_alive() for thread in self._threads):
            raise LabError(f"writer {self.name} did not end well: {self._broken or 'it hangs'}")
        return self.acked

    def deafen(self) -> None:
        """From now on it reaches no cluster when it asks for homes, though its records do."""
        self._centre.stop(goodbye=False)

    def kill(self) -> None:
        """Ends it as a process dies: nobody hears of it, and what is on its way is on its own."""
        self._killed = True
        self._centre.stop(goodbye=False)
        self._stopping.set()

    @property
    def cluster(self) -> str:
        """Where it writes, or wrote until it parked."""
        return self._at

    def longest_pause_s(self, since_s: float = 0.0) -> float:
        """Between one acknowledgement and the next, on the monotonic clock, from then on."""
        times = [one.at_s for one in self.acked if one.at_s >= since_s]
        return max((after - before for before, after in pairwise(times)), default=0.0)

    def _warm_up(self) -> None:
        """Where a switch may soon order it."""
        while not self._stopping.wait(POLL_INTERVAL_S / 10):
            for name in self._clusters if self._centre.moving() else ():
                with self._opening[name]:
                    if name != self._at and name not in self._warm:
                        self._warm[name] = self._opened(name)
                        with suppress(KafkaException):
                            self._warm[name].list_topics(self._topic, timeout=_PATIENCE_S)

    # -- writing

    def _run(self) -> None:
        try:
            began_s = time.monotonic()
            behind = 0.0
            while not self._stopping.is_set():
                now_s = time.monotonic()
                order = self._order(now_s)
                if isinstance(order, Pause):
                    self._park()
                    behind += time.monotonic() - now_s  # Nothing is made up for later.
                    continue
                self._move_to(order.cluster)
                due = int((now_s - began_s - behind) * self._how.records_per_s) - self._next
                self._write(max(0, due), now_s)
                self._poll(_SLICE_S)
            if not self._killed:
                self._settle(_SETTLE_S)
        except Exception as error:
            self._broken = None if self._killed else error
        finally:
            self._warm.clear()
            if self._producer is not None:
                self._producer.purge()
                self._producer.flush(1.0)
                self._producer = None

    def _order(self, now_s: float) -> WriteOrder:
        if not self._how.follows:
            return WriteTo(self._at, 0)
        order = self._centre.order(self._topic)
        if not self.moves or self.moves[-1][1] != order:
            self.moves.append((now_s, order))
        return order

    def _park(self) -> None:
        """Nothing new; once nothing is on its way it is said."""
        if self._settle(_SLICE_S):
            self._centre.parked(self._topic)
        self._stopping.wait(_IDLE_S)

    def _move_to(self, cluster: str) -> None:
        """What the cluster of before never acknowledged is sent again, before anything newer of its keys."""
        if self._producer is not None and self._at == cluster:
            return
        if self._producer is not None:
            self._producer.purge()
            self._producer.flush(5.0)
        # Two producers with one transactional id would fence each other.
        with self._opening[cluster]:
            self._at, self._tentative, self._transaction_until_s = cluster, [], 0.0
            self._producer = self._warm.pop(cluster, None) or self._opened(cluster)
        again = list(self._due)
        self.sent_again += again
        for number in again:
            self._send(number)

    def _opened(self, cluster: str) -> Producer:
        settings: dict[str, str | int | float | bool] = {
            **client_settings(self._clusters[cluster]),
            "client.id": self.name,
            "enable.idempotence": True,
            "linger.ms": 10,
            "queue.buffering.max.messages": 1_000_000,
            **self._how.settings,
        }
        if self._how.transaction_s:
            settings["transactional.id"] = f"{self.name}-{self._id}"
        producer = Producer(settings)
        if self._how.transaction_s:
            producer.init_transactions(_SETTLE_S)
        return producer

    def _write(self, count: int, now_s: float) -> None:
        if self._transaction_until_s and now_s >= self._transaction_until_s:
            self._end_transaction()
        for number in range(self._next, self._next + count):
            self._due[number] = None
            self._send(number)
        self._next += count

    def _send(self, number: int) -> None:
        assert self._producer is not None
        if self._how.transaction_s and not self._transaction_until_s:
            self._producer.begin_transaction()
            self._transaction_until_s = time.monotonic() + self._how.transaction_s
        value = value_of(number)
        self._producer.produce(self._topic, value, self._key(number), on_delivery=self._delivered)

    def _delivered(self, error: ClientError | None, message: Message) -> None:
        number = told(message.value() or b"0", 1)
        if error is not None:
            # What was thrown away is sent again elsewhere; whatever else is said of it is final.
            if error.code() not in (ClientError._PURGE_QUEUE, ClientError._PURGE_INFLIGHT):
                self.failed[number] = error.name()
                self._due.pop(number, None)
            return
        place = self._at, message.partition() or 0, message.offset() or 0
        acked = Acked(self._key(number), number // self._how.keys, *place, time.monotonic())
        if self._how.transaction_s:
            self._tentative.append(acked)
        else:
            self._done(acked)

    def _done(self, acked: Acked) -> None:
        self.acked.append(acked)
        self._due.pop(self._count(acked), None)

    def _end_transaction(self) -> None:
        assert self._producer is not None
        self._transactions += 1
        try:
            if self._how.aborts_every and self._transactions % self._how.aborts_every == 0:
                self._producer.flush(_COMMIT_S)
                self._producer.abort_transaction(_COMMIT_S)
                self.aborted |= {self._count(one) for one in self._tentative}
                for one in self._tentative:
                    self._due.pop(self._count(one), None)
            else:
                self._producer.commit_transaction(_COMMIT_S)
                for one in self._tentative:
                    self._done(one._replace(at_s=time.monotonic()))
        except KafkaException as error:
            if error.args[0].retriable():
                return  # Asked again in the next turn.
            raise
        self._tentative, self._transaction_until_s = [], 0.0

    def _settle(self, within_s: float) -> bool:
        """Whether nothing is on its way any more."""
        if self._producer is None:
            return True
        if self._transaction_until_s:
            self._end_transaction()
        left = self._producer.flush(within_s)
        return not left and not self._transaction_until_s

    def _poll(self, for_s: float) -> None:
        assert self._producer is not None
        until_s = time.monotonic() + for_s
        while (left_s := until_s - time.monotonic()) > 0:
            self._producer.poll(left_s)

    def _key(self, number: int) -> bytes:
        return b"%s-%d" % (self.name.encode(), number % self._how.keys)

    def _count(self, acked: Acked) -> int:
        """Which of all its records that is."""
        return acked.number * self._how.keys + int(acked.key.rpartition(b"-")[2])
