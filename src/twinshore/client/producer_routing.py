"""The thread that routes a `FailoverProducer`'s calls, and its librdkafka producers.

A turn of the thread closes the routes to topics that a switch holds, waits for their unanswered calls and reports the
topics as parked. At each topic's home, kept calls are sent before new calls go there directly. Calls that a dead home
never acknowledged are sent again, before anything newer of their topic.

Any thread may poll delivery reports, best one that calls `produce`: each report needs the interpreter lock, and another
thread would wait for that lock.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from twinshore.client.core.delivered import common_ends
from twinshore.client.dedupe import UnconfirmedSends
from twinshore.client.discovery.routing_topic import Discovery
from twinshore.client.held_reports import AckedCall, HeldReports, share_gate
from twinshore.client.pending import (
    AUTHORIZATION_ERRORS,
    PURGE_ERRORS,
    RECORD_ERRORS,
    DeliveryCallback,
    DeliveryReports,
    PendingQueue,
    PendingSend,
    RefusedSend,
    refused_message,
)
from twinshore.client.sites import Site, WarningQueue, acks_of, client_thread
from twinshore.config.model import FIRST_TERM
from twinshore.config.repeat_filter import describe_error, run_all
from twinshore.kafka.clock import steady_s
from twinshore.routing.core.subscribers import Pause, WriteOrder, WriteTo

DEFAULT_SETTINGS: Mapping[str, Any] = {
    "acks": "all",
    "enable.idempotence": True,
    "partitioner": "murmur2_random",  # as in Java clients
}
# Each call gets a report, or calls lost with a dead home would be unknown. A timed-out call might still arrive.
FORCED_SETTINGS: Mapping[str, Any] = {
    "delivery.report.only.error": False,
    **dict.fromkeys(("message.timeout.ms", "delivery.timeout.ms"), 0),
    **dict.fromkeys(("retries", "message.send.max.retries"), (1 << 31) - 1),
}
SETTLE_FLUSH_TIMEOUT_S = 1.0
WARM_UP_TIMEOUT_S = 1.0
POLL_SPACING_S = 0.02  # the router thread does not poll again so soon after another thread

SendResult = Callable[[PendingSend, KafkaError | None, Message], None]


class ClusterProducer:
    """One librdkafka producer for one cluster.

    `answers` collects reports of acknowledged calls. `heard` is called in the router thread for failed or spooled
    calls. `silent_s`: after so long without any answer the client counts as silent. `is_dead`: a fatal error occurred,
    nothing more is sent.
    """

    def __init__(
        self, settings: Mapping[str, Any], answers: DeliveryReports, heard: SendResult, silent_s: float
    ) -> None:
        every = {**DEFAULT_SETTINGS, **settings, **FORCED_SETTINGS}
        self._producer = Producer(every)
        self.has_all_acks = all(value.lower() in ("all", "-1") for _, value in acks_of(every))
        self._heard, self._silent_s = heard, silent_s
        self.answers = answers
        self.is_dead = False
        self.ways: dict[str, ProducerRoute] = {}
        # Reports for the router thread.
        self.came = deque[tuple[ProducerRoute, PendingSend, KafkaError | None, Message]]()
        self._hearing = threading.Lock()
        self._raised: Exception | None = None
        self._answers_then = 0
        self._heard_s = self._alive_s = steady_s()

    def __len__(self) -> int:
        """librdkafka's count: unanswered calls and errors not polled yet."""
        return len(self._producer)

    def __bool__(self) -> bool:
        return True

    def way(self, topic: str) -> ProducerRoute:
        return self.ways.get(topic) or self.ways.setdefault(topic, ProducerRoute(self, topic, self._producer.produce))

    def on_its_way(self, topic: str) -> int:
        route = self.ways.get(topic)
        return route.sent - route.answered if route is not None else 0

    def on_their_way(self) -> int:
        return sum(route.sent - route.answered for route in self.ways.values())

    def hear(self) -> None:
        """Poll delivery reports, in any thread, unless another one polls now.

        Exceptions of callbacks in the application's settings are raised in the router thread: they are no result for
        this caller.
        """
        if not self._hearing.acquire(blocking=False):
            return
        try:
            self._heard_s = steady_s()
            self._producer.poll(0)
        except Exception as error:
            self._raised = error
        finally:
            self._hearing.release()

    # -- the thread that moves

    def poll(self) -> None:
        if steady_s() >= self._heard_s + POLL_SPACING_S:
            self.hear()
        self.settle()
        answered = sum(route.answered for route in self.ways.values())
        if answered != self._answers_then or not len(self._producer):
            self._answers_then, self._alive_s = answered, steady_s()
        raised, self._raised = self._raised, None
        if raised is not None:
            raise raised

    def is_silent(self) -> bool:
        return steady_s() >= self._alive_s + self._silent_s

    def flush(self, timeout_s: float) -> int:
        with self._hearing:
            left = self._producer.flush(timeout_s)
        self.settle()
        return left

    def give_up(self) -> None:
        """Purge unanswered calls, which come back in call order."""
        for is_in_queue in (False, True):
            self._producer.purge(in_queue=is_in_queue, in_flight=True, blocking=True)
            self._hear_all()

    def ends(self) -> int:
        """Drop all routes, so that librdkafka's threads end with the last reference. Returns the number of unanswered
        calls.
        """
        never_heard = self.on_their_way()
        for route in self.ways.values():
            route.free.clear()
        self.ways.clear()
        return never_heard

    def warm_up(self, topics: list[str]) -> None:
        """Connect, so that the first record does not wait."""
        for topic in topics:
            try:
                self._producer.list_topics(topic, timeout=WARM_UP_TIMEOUT_S)
            except Exception:
                break

    def settle(self) -> None:
        """Process polled reports in the router thread."""
        with self._hearing:
            while self.came:
                route, kept, error, message = self.came.popleft()
                self.is_dead = self.is_dead or (error is not None and error.code() == KafkaError._FATAL)
                try:
                    self._heard(kept, error, message)
                finally:
                    route.answered += 1

    def _hear_all(self) -> None:
        """Poll until no report arrives: one flush may not deliver all."""
        before = self.on_their_way() + 1
        while len(self._producer) and self.on_their_way() != before:
            before = self.on_their_way()
            self.flush(SETTLE_FLUSH_TIMEOUT_S)
        self.settle()


class ProducerRoute:
    """The route to one topic on one cluster.

    Direct calls use `produce`, librdkafka's own function, with one of `free` as delivery callback; other calls use
    `send`. `sent` counts both, `answered` those with a report. `reports` holds those of a protected topic.
    """

    __slots__ = ("answered", "free", "home", "produce", "producer", "reports", "sent", "topic")

    def __init__(self, producer: ClusterProducer, topic: str, produce: Callable[..., None]) -> None:
        self.producer, self.topic, self.produce = producer, topic, produce
        self.free: list[DirectSend] = []
        self.sent = self.answered = 0
        self.home = WriteTo("", 0)
        self.reports: HeldReports | None = None

    def send(self, kept: PendingSend) -> None:
        """Send a call. BufferError when the queue is full, KafkaException when librdkafka rejects the call."""
        told = partial(self._answered, kept)
        self.sent += 1  # the report may arrive before this returns
        try:
            headers = list(kept.headers) or None
            self.produce(kept.topic, kept.value, kept.key, kept.partition, told, None, kept.timestamp, headers)
        except BaseException as error:
            self.sent -= 1
            if isinstance(error, KafkaException) and error.args[0].code() == KafkaError._FATAL:
                self.producer.is_dead = True
            raise

    def _answered(self, kept: PendingSend, error: KafkaError | None, message: Message) -> None:
        if error is None and self.reports is not None:
            self.reports.add(AckedCall(self.home, kept, message))
            self.answered += 1
            return
        if error is None:
            self.producer.answers.add(kept.told, None, message)
        if error is not None or kept.is_spooled:
            self.producer.came.append((self, kept, error, message))
        else:
            self.answered += 1


class DirectSend:
    """Delivery callback of a direct call, reused: creating hundreds of thousands of objects costs more than the calls.
    A direct call has no partition, timestamp or headers, which librdkafka does not return for a failed record.
    """

    __slots__ = ("number", "route", "told")

    def __init__(self, route: ProducerRoute) -> None:
        self.route = route
        self.number = -1
        self.told: DeliveryCallback | None = None

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        route = self.route
        if error is not None or route.reports is not None:
            value, key = message.value(), message.key()
            assert not isinstance(value, str) and not isinstance(key, str)
            route._answered(PendingSend(self.number, route.topic, value, key, -1, self.told, 0, ()), error, message)
        else:
            if self.told is not None:
                route.producer.answers.add(self.told, None, message)
            route.answered += 1
        self.told = None
        route.free.append(self)


LOOP_INTERVAL_S = 0.01
SENDS_PER_TURN = 2_000  # kept calls; calls of other topics wait for them
RECONFIGURE_TIMEOUT_S = 5.0  # how long unanswered calls are waited for before they are sent with new settings
LATE_WRITES_S = 2.0  # how long after close a purged client's calls may still arrive
MOVE_FLUSH_TIMEOUT_S = 1.0  # the longest wait of calls to topics that stay
RETRY_DELAY_S = 1.0
FLUSH_INTERVAL_S = 0.1
DIRECT_SEND_S = 0.001  # how often a calling thread polls reports


class ProducerRouter:
    """Routes the calls of one producer to the homes of their topics.

    A caller holds `gate`: the call uses a route of `routes`, or is kept in `waiting`. `warned` takes messages for an
    operator. All other state belongs to the router thread, from `start` until `stop` returns.
    """

    def __init__(
        self,
        name: str,
        topics: Iterable[str],
        discovery: Discovery,
        pending: PendingQueue,
        *,
        lease_s: float,
        answers_max: int,
        warnings: WarningQueue,
        wake: threading.Event,
    ) -> None:
        self._name, self._topics, self._discovery = name, tuple(topics), discovery
        self._lease_s, self._warnings = lease_s, warnings
        self.pending = pending
        self.unconfirmed: UnconfirmedSends | None = None
        self.gate = threading.Lock()  # between a call and the thread that parks its topic
        self.room = threading.Condition(self.gate)
        self.routes: dict[str, ProducerRoute] = {}
        self.until_s = self.direct_until_s = self._not_before_s = self._replaced_s = 0.0
        self.answers, self._answers_max = DeliveryReports(), answers_max
        self.stopping, self.wake = threading.Event(), wake
        self._never_heard = 0
        self._at: dict[str, str] = {}
        self._late_until_s: dict[str, float] = {}  # by cluster: until then purged calls may arrive there
        # A switch announces its hold before ACLs fence writers: so a refusal is final only after a later read of that
        # cluster's home records.
        self._refusals: list[RefusedSend] = []
        self._clients: dict[str, ClusterProducer] = {}
        self._thread = client_thread("moves", name, self._run)

    def start(self) -> None:
        with suppress(KafkaException):  # connects while the homes are read
            self.client(self._discovery.begin)
        self.tracker = self._discovery.ask(self._name, self._topics, self._lease_s)
        self.reports = HeldReports(share_gate(self._name, self._discovery.sites), self._decided)
        self._thread.start()

    def stop(self, *, goodbye: bool, killed: bool = False) -> None:
        self._discovery.stop()
        with self.gate:
            self.stopping.set()
            self.direct_until_s = 0.0
        self.wake.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()  # until then clients, tracker and kept calls belong to the thread
        clients = self._clients.values()
        all_ends = [producer.give_up if killed or len(producer) else producer.settle for producer in clients]
        ends = partial(self.tracker.stop, goodbye=goodbye), partial(self.pending.close, goodbye=goodbye)
        try:
            run_all([*all_ends, self._take_back, self._judge, self.reports.gate.release, *ends])
        finally:
            if self.unconfirmed is not None:
                self.unconfirmed.stop()
            with self.gate:
                self.routes.clear()
                self._never_heard += sum(producer.ends() for producer in clients)
            self._warnings.tell()

    # -- within the gate

    def on_their_way(self) -> int:
        """Returns the number of calls without a report, or whose report is held. (A client's own length counts errors
        too.)
        """
        on_their_way = sum(producer.on_their_way() for producer in self._clients.values())
        return self._never_heard + len(self._refusals) + on_their_way + len(self.reports)

    def order(self, topic: str) -> WriteOrder:
        """Returns what to do with the topic now: a protected one also waits for its twin."""
        order = self.tracker.order(topic)
        why_not = self.reports.gate.why_not(topic, order) if isinstance(order, WriteTo) else ""
        return Pause("", why_not) if why_not else order

    def close_all(self) -> None:
        """Reset after a fork: the child has no router thread, whose locks would stay locked for ever."""
        self.gate = threading.Lock()
        self.direct_until_s = 0.0

    # -- answers

    def hear(self) -> None:
        """Poll reports in any thread. Then calls may be direct for `DIRECT_SEND_S`."""
        for producer in list(self._clients.values()):
            producer.hear()
        with self.gate:
            if not self.stopping.is_set() and self.has_room() and self.unconfirmed is None:
                self.direct_until_s = min(self.until_s, steady_s() + DIRECT_SEND_S)

    def has_room(self) -> bool:
        """Whether more delivery reports may wait."""
        return len(self.answers) + len(self.reports) <= self._answers_max

    def _decided(self, call: AckedCall, error: KafkaError | None) -> None:
        """Handle an acknowledged call that both sides have, or an `error`; in the gate's thread too."""
        if error is None:
            self.answers.add(call.kept.told, None, call.message)
        self._judged(call.home.cluster, call.kept, error, call.message)

    def _take_back(self, topic: str | None = None, order: WriteTo | None = None) -> None:
        """Decide held reports without the gate. `order`: of the new home, which has what is below the common end. Other
        calls are sent again.
        """
        for call in self.reports.take(topic):
            name, number, offset = call.kept.topic, call.message.partition() or 0, call.message.offset()
            was = max(call.home.term, FIRST_TERM)
            ends = common_ends(was, order.term, self.tracker.line(name)) if order is not None else ()
            has_moved = offset is not None and number < len(ends) and offset < ends[number]
            self._decided(call, None if has_moved else KafkaError(KafkaError._PURGE_INFLIGHT))

    def _delivered(self, cluster: str, kept: PendingSend, error: KafkaError | None, message: Message) -> None:
        """Handle a failed or spooled call, in the router thread."""
        if error is not None and error.code() in AUTHORIZATION_ERRORS:
            refusal = RefusedSend(cluster, kept, error, message, steady_s(), self._ran_out(kept.topic))
            self._refusals.append(refusal)
            if refusal.is_after_hold:
                held = f"{cluster} denies writes to topic {kept.topic} for a switch whose hold ran out"
                sentence = f"{self._name}: {held}: calls wait until the switch ends (`twinshore switch status`)"
                self._warnings(sentence, cluster=cluster, topic=kept.topic)
            return self._judge()
        return self._judged(cluster, kept, error, message)

    def _judge(self) -> None:
        judged = [(refusal, self._is_heard(refusal)) for refusal in self._refusals]
        self._refusals = [refusal for refusal, is_due in judged if not is_due]
        for cluster, kept, error, message, _, amid in (refusal for refusal, is_due in judged if is_due):
            self._judged(cluster, kept, error, message, amid)

    def _is_heard(self, one: RefusedSend) -> bool:
        topic = one.kept.topic
        if self.stopping.is_set() or not self._is_at_home(topic, one.cluster):
            return True
        return self.tracker.read_since(one.cluster, one.heard_s) and not self._ran_out(topic)

    def _ran_out(self, topic: str) -> bool:
        record = self.tracker.line(topic)
        return record is not None and record.ran_out

    def _judged(
        self, cluster: str, kept: PendingSend, error: KafkaError | None, message: Message, amid: bool = False
    ) -> None:
        if error is not None and self._is_sent_again(cluster, kept.topic, error.code(), amid):
            self.pending.again(kept)
            if self.unconfirmed is not None:
                self.unconfirmed.add(kept)
        else:
            if kept.is_spooled:
                self.pending.answered(kept, error)
            if error is not None:
                self.answers.add(kept.told, error, message)
                self._warn_of_refusal(kept, f"by {cluster}", error)

    def _is_sent_again(self, cluster: str, topic: str, code: int, amid: bool) -> bool:
        """Whether a failed call is sent again. An authorization error is final only at the topic's home without an
        expired hold: otherwise a switch fences writers.
        """
        if self.stopping.is_set() and not self.pending.outlives:
            return False
        return code in PURGE_ERRORS or (code in AUTHORIZATION_ERRORS and (amid or not self._is_at_home(topic, cluster)))

    def _is_at_home(self, topic: str, cluster: str) -> bool:
        order = self.tracker.order(topic)
        return isinstance(order, WriteTo) and order.cluster == cluster

    # -- the thread

    def _run(self) -> None:
        while not self.stopping.is_set():
            try:
                self.turn()
            except Exception as error:  # if the thread ended, calls would wait for ever
                self._warnings(f"{self._name}: {describe_error(error)}")
            self._warnings.tell()
            self.wake.wait(LOOP_INTERVAL_S)
            self.wake.clear()

    def turn(self) -> None:
        self._discovery.hear()
        if self._discovery.is_due:
            self._take_up()
        if self.stopping.is_set():
            return
        for cluster, producer in list(self._clients.items()):
            producer.poll()
            if producer.is_dead:
                self._replace(cluster, producer)
        self._judge()
        self.pending.settle()
        until_s = {cluster: self.tracker.until_s(cluster) for cluster in self._discovery.sites}
        held = self.tracker.held()  # before the orders: a hold read between the two counts in both
        with self.gate:
            topics = {*self.routes, *self.pending.topics(), *self._at}
        orders = {topic: self.order(topic) for topic in topics}
        goes = {one: order for one, order in orders.items() if isinstance(order, WriteTo)}
        with self.gate:
            refused = {refusal.kept.topic for refusal in self._refusals}  # later calls of these wait
            for topic in (self.routes.keys() - goes.keys()) | (self.routes.keys() & refused):
                del self.routes[topic]
            self.until_s = min((until_s[order.cluster] for order in goes.values()), default=0.0)
            self.direct_until_s = min(self.direct_until_s, self.until_s)
        self._settle(topics, held)
        for topic, order in goes.items():
            if all(topic != refusal.kept.topic for refusal in self._refusals):
                self._go(topic, order)
        if self.tracker.moving():
            self._warm_up()
        self.pending.tend()
        with self.room:
            self.room.notify_all()

    def _settle(self, topics: set[str], held: frozenset[str]) -> None:
        """Report held topics as parked once no call to their cluster is unanswered. Calls to its other topics wait
        briefly.
        """
        for topic in held - topics:
            self.tracker.parked(topic)  # this producer never wrote to the topic
        late = {cluster for cluster, until_s in self._late_until_s.items() if steady_s() < until_s}
        for cluster in {self._at[topic] for topic in held if topic in self._at} - late:
            self._quieten(cluster, {topic for topic in held if self._at.get(topic) == cluster})
        for topic in (held & topics) - self._at.keys() if not late else ():
            self.tracker.parked(topic)

    def _quieten(self, cluster: str, held: set[str]) -> None:
        producer = self._clients.get(cluster)  # None if purged
        if producer is not None:
            if len(producer) and steady_s() < self._not_before_s:
                return
            self._close_routes(producer)
            if producer.flush(MOVE_FLUSH_TIMEOUT_S):
                self._not_before_s = steady_s() + RETRY_DELAY_S
                return
        for topic in held:
            self.tracker.parked(topic)
        # Topics that stay get their routes back in this turn.

    def _go(self, topic: str, order: WriteTo) -> None:
        """Send a topic's kept calls to its home, then open the route."""
        before, cluster = self._at.get(topic), order.cluster
        if before is not None and before != cluster:
            self._leave(topic, before)
            self._take_back(topic, order)
        producer = self.client(cluster)
        self._at[topic] = cluster
        if self.pending.outlives and producer.is_silent():
            return self._close_routes(producer)  # new calls are safer on disk
        self.pending.prepare(topic)
        with self.gate:
            route = producer.way(topic)
            route.home, route.reports = order, self.reports if self.reports.gate.holds(topic) else None
            may_open = route.reports is None or producer.has_all_acks
            if may_open and self.routes.get(topic) is route and self.pending.is_empty(topic):
                return None
            if not self._is_at_home(topic, cluster):
                return None  # a switch began during this turn
            self.routes.pop(topic, None)
            site = self._discovery.sites[cluster]
            if self.unconfirmed is not None:
                self.unconfirmed.search(topic, site)
                if self.unconfirmed.is_open(topic):
                    self.pending.begin(topic)
                    return None
            has_room = self._send_kept(route)
            if may_open and self.pending.is_empty(topic):
                self.pending.end(topic)
                self.routes[topic] = route
                if self.unconfirmed is not None:
                    self.unconfirmed.forget(topic)
            elif has_room:
                self.wake.set()  # continue in the next turn at once
        return None

    def _send_kept(self, route: ProducerRoute) -> bool:
        """Send a portion. Returns whether the client would take more."""
        topic = route.topic
        for _ in range(SENDS_PER_TURN):
            if steady_s() >= self.until_s:
                return False  # for example after the machine slept
            kept = self.pending.head(topic)
            if kept is None:
                return True
            if route.reports is not None and not route.producer.has_all_acks:
                why = f"topic {topic} is protected, which needs acks=all"
                self._set_aside(kept, KafkaError(KafkaError._INVALID_ARG, why))
                continue
            if self.unconfirmed is not None and self.unconfirmed.has_arrived(kept):
                self._pass_over(kept, self.unconfirmed.record(kept))
                continue
            try:
                route.send(kept)
            except BufferError:
                return False
            except KafkaException as error:
                if error.args[0].code() not in RECORD_ERRORS:
                    why = error.args[0].str()
                    self._warnings(f"{self._name}: kept calls for topic {topic} cannot be sent: {why}", topic=topic)
                    return False
                self._set_aside(kept, error.args[0])
            except Exception as error:  # for example a record of an earlier version
                self._set_aside(kept, KafkaError(KafkaError._INVALID_ARG, describe_error(error)))
            else:
                self.pending.sent(topic)
        return True

    def _pass_over(self, kept: PendingSend, record: Message | None) -> None:
        """Report the head as delivered: the old home had replicated the record."""
        self.pending.sent(kept.topic)
        self.pending.answered(kept, None)
        self.answers.add(kept.told, None, record)

    def _set_aside(self, kept: PendingSend, error: KafkaError) -> None:
        """Fail the head, which would be refused for ever."""
        self.pending.sent(kept.topic)
        self.pending.answered(kept, error)
        self.answers.add(kept.told, error, refused_message(kept, error))
        self._warn_of_refusal(kept, "after it was kept back", error)

    def _warn_of_refusal(self, kept: PendingSend, where: str, error: KafkaError) -> None:
        """Warn of a refused record without a delivery callback. A spool warns by itself, and `close` counts purged
        calls.
        """
        if kept.told is None and not kept.is_spooled and error.code() not in PURGE_ERRORS:
            sentence = f"{self._name}: a record of topic {kept.topic} is refused {where}: {error.str()}"
            self._warnings(sentence, topic=kept.topic)

    def _replace(self, cluster: str, producer: ClusterProducer) -> None:
        if steady_s() >= self._replaced_s + RETRY_DELAY_S:
            self._replaced_s = steady_s()
            sentence = f"{self._name}: a fatal error ends the client of {cluster}, and a new one starts"
            self._warnings(sentence, cluster=cluster)
            self._give_up(cluster, producer)

    def _leave(self, topic: str, cluster: str) -> None:
        """Stop sending the topic's calls to this cluster. If some are unanswered, all unanswered calls of the client
        are sent again, also those of other topics.
        """
        producer = self._clients.get(cluster)
        if producer is None:
            return
        with self.gate:
            if topic in self.routes and self.routes[topic].producer is producer:
                del self.routes[topic]
                self.pending.begin(topic)
            is_answered = not producer.on_its_way(topic)
        if not is_answered:
            self._give_up(cluster, producer)

    def _give_up(self, cluster: str, producer: ClusterProducer) -> None:
        """Send all unanswered calls again by another client: sequence numbers of this one have a gap now."""
        self._close_routes(producer)
        is_late = producer.on_their_way() > 0
        try:
            producer.give_up()
        finally:
            if is_late:
                self._late_until_s[cluster] = steady_s() + LATE_WRITES_S
            with self.gate:
                del self._clients[cluster]
                self._never_heard += producer.ends()
        self.pending.settle()

    def _close_routes(self, producer: ClusterProducer) -> None:
        """Keep calls to the client's topics from now on."""
        with self.gate:
            for topic in [one for one, route in self.routes.items() if route.producer is producer]:
                del self.routes[topic]
                self.pending.begin(topic)

    def client(self, cluster: str) -> ClusterProducer:
        if cluster not in self._clients:
            settings = {"client.id": self._name, **self._discovery.sites[cluster].settings()}
            made = ClusterProducer(settings, self.answers, partial(self._delivered, cluster), self._lease_s)
            with self.gate:
                self._clients[cluster] = made
        return self._clients[cluster]

    def _take_up(self) -> None:
        """Apply new settings: wait for unanswered calls, then ask the new clusters. New calls are kept until these
        answer.
        """
        for cluster, producer in list(self._clients.items()):
            self._close_routes(producer)
            if self._wait_for_answers(producer, RECONFIGURE_TIMEOUT_S) and not self.stopping.is_set():
                self._give_up(cluster, producer)
        if self.stopping.is_set():
            return
        self._take_back()
        self.tracker.stop()
        self.reports.gate.release()
        self.reports = HeldReports(share_gate(self._name, self._discovery.sites), self._decided)
        with self.gate:
            self._never_heard += sum(producer.ends() for producer in self._clients.values())
            self._clients.clear()
            self.until_s = self.direct_until_s = 0.0
        self._at.clear()
        if not self.stopping.is_set():
            self.tracker = self._discovery.ask(self._name, self._topics, self._lease_s)

    def _wait_for_answers(self, producer: ClusterProducer, for_s: float) -> bool:
        """Returns whether calls are still unanswered after `for_s`, or at `stop`."""
        until_s = steady_s() + for_s
        while producer.flush(max(0.0, min(FLUSH_INTERVAL_S, until_s - steady_s()))):
            if self.stopping.is_set() or steady_s() >= until_s:
                return True
        return False

    def _warm_up(self) -> None:
        for cluster in self._discovery.sites.keys() - self._clients.keys():
            self.client(cluster).warm_up(list(self._at)[:10])


def check_settings(name: str, lease_s: float, sites: Mapping[str, Site]) -> None:
    """Raises where librdkafka rejects these settings."""
    for site in sites.values():
        ClusterProducer({"client.id": name, **site.settings()}, DeliveryReports(), lambda *_: None, lease_s)
