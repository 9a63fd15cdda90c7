"""A producer whose topics may move to another cluster while it writes.

Each cluster has one librdkafka producer, idempotent and with acks=all. While a topic has a route, calls go directly.
While a switch holds the topic, calls are kept; once no call is unanswered, the topic is reported as parked. At the new
home kept calls go first. Calls that a dead home never acknowledged are sent again, before anything newer of their
topic. With a spool, kept calls are on disk.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Literal

from confluent_kafka import KafkaException

from twinshore.client.core.spool_format import EarlierSends
from twinshore.client.dedupe import UnconfirmedSends
from twinshore.client.discovery.routing_topic import Clusters, Discovery, check_lease
from twinshore.client.held_reports import forget_gates
from twinshore.client.pending import (
    DeliveryCallback,
    DiskQueue,
    MemoryQueue,
    PendingQueue,
    PendingSend,
    check_call,
)
from twinshore.client.producer_routing import LOOP_INTERVAL_S, DirectSend, ProducerRouter, check_settings
from twinshore.client.sites import WarningQueue, check_topic_names
from twinshore.client.spool import SPOOL_BYTES_MAX, Spool
from twinshore.config.errors import ConfigError
from twinshore.config.frozen import SPOOL_HOMES_FILE
from twinshore.kafka.clock import steady_s
from twinshore.routing.core.subscribers import SUBSCRIPTION_LEASE_S, Pause, WriteTo, any_pattern_matches

log = logging.getLogger(__name__)
MAX_BLOCK_S = 60.0
PENDING_SENDS_MAX = 100_000
CLOSE_TIMEOUT_S = 30.0
FLUSH_INTERVAL_S = 0.5
PLAIN_TYPES = frozenset((bytes, str, type(None)))  # what librdkafka takes of values and keys, and a spool as well
_ALL: weakref.WeakSet[FailoverProducer] = weakref.WeakSet()


class FailoverProducer:
    """A producer that follows its topics.

    `clusters`: by name, confluent-kafka settings of each; or `Pushes`. `config` applies to all. The first cluster is
    for topics without a home record. `topics`: names, or prefixes with a trailing `*`. `max_block_s`: how long a call
    waits for space. `spool`: a folder of its own for kept calls, at most `spool_bytes_max`; records of an earlier
    producer are sent first. `when_full`: wait for space, or raise at once. `recognise`: identify each record by a
    header, and search the new home for calls that a dead home did not acknowledge before sending them.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        clusters: Clusters,
        topics: Iterable[str] = ("*",),
        name: str = "",
        max_block_s: float = MAX_BLOCK_S,
        kept_max: int = PENDING_SENDS_MAX,
        lease_s: float = SUBSCRIPTION_LEASE_S,
        spool: str | Path | Spool | None = None,
        spool_bytes_max: int = SPOOL_BYTES_MAX,
        when_full: Literal["wait", "tell"] = "wait",
        recognise: bool = False,
    ) -> None:
        # Check all arguments before a thread, a file or a connection is opened.
        _must_make_sense(when_full, kept_max, max_block_s, recognise)
        if spool is None and spool_bytes_max != SPOOL_BYTES_MAX:
            raise ConfigError("client.spool-not-named")
        check_lease(lease_s)
        self._tells_at_once = when_full == "tell"
        self._topics = check_topic_names(topics)
        self._max_block_s, self._kept_max = max_block_s, kept_max
        self._name = name or str(config.get("client.id", "producer"))
        warnings = WarningQueue(log)
        self._process = os.getpid()
        self._killed = False
        wake, check = threading.Event(), partial(check_settings, self._name, lease_s)
        discovery = Discovery(clusters, config, self._topics, check=check, news=wake.set)
        pending: PendingQueue = MemoryQueue(kept_max)
        first_number, left = 0, dict[str, EarlierSends]()
        if spool is not None:
            try:
                opened = _opened(spool, spool_bytes_max)
            except BaseException:
                discovery.stop()
                raise
            discovery.memory = opened.folder / SPOOL_HOMES_FILE
            pending = DiskQueue(opened, kept_max, self._follows, warnings)
            warnings.tell()
            first_number, left = opened.next_number, opened.left
        self._numbers = count(first_number)
        ours = self._name, self._topics, discovery, pending
        self._router = ProducerRouter(*ours, lease_s=lease_s, answers_max=kept_max, warnings=warnings, wake=wake)
        if recognise:
            self._router.unconfirmed = UnconfirmedSends(self._name, left, warnings)
        _ALL.add(self)
        try:
            self._router.start()
        except BaseException:  # for example when no thread can start
            discovery.stop()
            pending.close(goodbye=False)
            raise

    def __enter__(self) -> FailoverProducer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- what an application calls

    def produce(
        self,
        topic: str,
        value: bytes | str | None = None,
        key: bytes | str | None = None,
        partition: int = -1,
        on_delivery: DeliveryCallback | None = None,
        timestamp: int = 0,
        headers: Any = None,
        *,
        callback: DeliveryCallback | None = None,
    ) -> None:
        """Like Producer.produce, with its TypeError and ValueError. BufferError without space for `max_block_s`, or if
        the spool cannot be written; ConfigError for a topic outside `topics`.
        """
        told, router = on_delivery or callback, self._router
        is_plain = headers is None and not timestamp and partition == -1
        if is_plain and type(value) in PLAIN_TYPES and type(key) in PLAIN_TYPES:
            try:
                with router.gate:
                    route = router.routes.get(topic)
                    if route is not None and steady_s() < router.direct_until_s:
                        straight = route.free.pop() if route.free else DirectSend(route)
                        straight.number, straight.told = next(self._numbers), told
                        route.sent += 1  # an interrupt here counts one call too many: a hold waits, but no call is lost
                        try:
                            return route.produce(topic, value, key, -1, straight)
                        except Exception:
                            route.sent -= 1
                            raise
            except Exception:
                pass  # the slow path raises it again
        self._must_be_ours()
        return self._with_care(check_call(topic, value, key, partition, told, timestamp, headers))

    def _with_care(self, call: PendingSend) -> None:
        router, topic, waits_until_s = self._router, call.topic, 0.0
        while True:
            router.hear()
            safe, tells = None, False
            with router.gate:
                if router.stopping.is_set():
                    raise RuntimeError(f"{self._name} is closed")
                route = router.routes.get(topic)
                if not router.has_room():
                    pass  # the application does not poll
                elif route is not None and steady_s() < router.until_s:
                    try:
                        return route.send(self._numbered(call))
                    except BufferError:
                        pass
                    except KafkaException:
                        if not route.producer.is_dead:
                            raise
                        del router.routes[topic]  # the next one sends it
                        continue
                else:
                    safe = self._keep(self._numbered(call))
                    tells = self._tells_at_once
                if safe is None:
                    waits_until_s = waits_until_s or steady_s() + self._max_block_s
                    if tells or steady_s() >= waits_until_s:
                        raise BufferError(self._why(topic, at_once=tells))
                    router.room.wait(LOOP_INTERVAL_S)
            if safe is not None:
                return safe()  # outside the gate: calls share a write to disk

    def poll(self, timeout: float = 0.0) -> int:
        """Call `on_delivery` callbacks, `timeout` at most. Returns how many."""
        until_s = steady_s() + timeout
        while not (called := self._tell()) and (left_s := until_s - steady_s()) > 0:
            self._router.stopping.wait(min(left_s, LOOP_INTERVAL_S))
        return called

    def _tell(self) -> int:
        if not self._is_forked():
            self._router.hear()
        return self._router.answers.tell()

    def flush(self, timeout: float = -1) -> int:
        """Wait until each call is answered, `timeout` at most. Returns the number of unanswered calls."""
        self._must_be_ours()
        until_s = steady_s() + timeout if timeout >= 0 else float("inf")
        while True:
            self._tell()
            left = len(self)
            if not left or steady_s() >= until_s:
                return left
            self._router.stopping.wait(LOOP_INTERVAL_S / 2)

    def __len__(self) -> int:
        """Calls unanswered, or whose `on_delivery` waits."""
        with self._router.gate:
            return len(self._router.pending) + self._router.on_their_way() + len(self._router.answers)

    def where(self, topic: str) -> str:
        """Returns the cluster that the topic is written to now, or why the topic waits."""
        order = self._router.order(topic)
        return order.cluster if isinstance(order, WriteTo) else order.why

    def close(self, timeout: float = CLOSE_TIMEOUT_S) -> int:
        """Send what is left, `timeout` at most, and unsubscribe. Returns the number of unanswered calls. With a spool:
        the number of records left there, without a wait while no cluster is available.
        """
        if self._is_forked():
            return 0
        try:
            unanswered = self._flushed(0 if self._router.stopping.is_set() else timeout)
        finally:  # an `on_delivery` may raise
            self._end(goodbye=True)
        left = self._router.pending.left()
        return unanswered if left is None else left

    def _flushed(self, timeout: float) -> int:
        until_s = steady_s() + timeout
        while True:
            left = self.flush(max(0.0, min(FLUSH_INTERVAL_S, until_s - steady_s())))
            if not left or steady_s() >= until_s:
                return left
            router = self._router
            with router.gate:
                is_away = router.pending.outlives and router.tracker.is_every_cluster_unavailable()
                if is_away and not router.on_their_way():
                    return left

    def kill(self) -> None:
        """End like a crash: no goodbye, and unanswered calls may or may not have arrived."""
        self._killed = True
        if not self._is_forked():
            self._end(goodbye=False)

    def _is_forked(self) -> bool:
        return os.getpid() != self._process

    def _must_be_ours(self) -> None:
        if self._is_forked():
            raise RuntimeError(f"{self._name} belongs to the process that was forked: make one after the fork")

    # -- within the gate

    def _numbered(self, call: PendingSend) -> PendingSend:
        kept = PendingSend(next(self._numbers), *call[1:])
        return self._router.unconfirmed.mark(kept) if self._router.unconfirmed is not None else kept

    def _keep(self, kept: PendingSend) -> Callable[[], None] | None:
        topic = kept.topic
        if topic not in self._router.pending.topics():
            if not self._follows(topic):
                named = ", ".join(self._topics)
                raise ConfigError("client.topic-not-followed", topic=topic, producer=self._name, topics=named)
            self._router.pending.begin(topic)
            self._router.wake.set()
        self._router.routes.pop(topic, None)  # no later call may overtake this one
        return self._router.pending.keep(kept)

    def _follows(self, topic: str) -> bool:
        return any_pattern_matches(topic, self._topics)

    def _why(self, topic: str, *, at_once: bool) -> str:
        order = self._router.order(topic)
        why = order.why if isinstance(order, Pause) else f"{order.cluster} takes less than is written"
        if isinstance(order, Pause) and (trouble := self._router.tracker.trouble()):
            why = f"{why} ({trouble})"
        if len(self._router.answers) > self._kept_max:
            why = "delivery reports wait for a call of poll or flush"
        elif not self._router.has_room():
            why = "the twins of protected topics do not have the records yet"
        elif self._router.routes.get(topic) is None:
            why = f"{why}; {self._router.pending.full()}"
        return f"no room: {why}" if at_once else f"no room for as long as {self._max_block_s:g} s: {why}"

    def _end(self, *, goodbye: bool) -> None:
        if not self._router.stopping.is_set():
            self._router.stop(goodbye=goodbye, killed=self._killed)


def _must_make_sense(when_full: object, kept_max: int, max_block_s: float, recognise: object) -> None:
    if when_full not in ("wait", "tell"):
        raise ConfigError("client.when-full-invalid", when_full=when_full)
    if kept_max < 1:
        raise ConfigError("client.argument-too-low", name="kept_max", value=kept_max, min=1)
    if not max_block_s >= 0:
        raise ConfigError("client.argument-too-low", name="max_block_s", value=max_block_s, min=0)
    if not isinstance(recognise, bool):
        raise ConfigError("client.argument-invalid")


def _opened(spool: str | Path | Spool, bytes_max: int) -> Spool:
    if isinstance(spool, Spool):
        return spool  # `spool send` shows its notes
    opened = Spool(Path(spool), bytes_max=bytes_max)
    for note in opened.notes:
        log.warning(note)
    return opened


def _close_all() -> None:
    forget_gates()
    for producer in _ALL:
        producer._router.close_all()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_all)
