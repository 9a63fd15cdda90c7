"""Holds delivery reports of protected topics until home and twin have the records.

Producers of one process that use the same clusters share one keeper, in a thread of its own. Reports reach it from any
thread. After a switch a report is its producer's again.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from secrets import token_hex
from typing import NamedTuple

from confluent_kafka import KafkaError, Message

from twinshore.client.pending import PendingSend
from twinshore.client.sites import Site, client_thread
from twinshore.config.frozen import FOLLOWER_CLIENT_ID_PREFIX, PROTECTION_TOPIC
from twinshore.config.model import Cluster, TopicPartition
from twinshore.config.repeat_filter import RepeatFilter, describe_error
from twinshore.kafka.clock import steady_s
from twinshore.kafka.protocol.error_codes import Code
from twinshore.protection.keeper import TICK_S, GateKeeper
from twinshore.routing.core.subscribers import WriteTo

log = logging.getLogger(__name__)
LOOK_INTERVAL_S = 1.0


class AckedCall(NamedTuple):
    """A call that its topic's home has acknowledged."""

    home: WriteTo
    kept: PendingSend
    message: Message


class SharedGate:
    """One keeper and its thread. Other threads only call `why_not`, `holds` and `call`."""

    def __init__(self, name: str, clusters: Mapping[str, Cluster]) -> None:
        self.clusters, self.users = clusters, 0
        self._loop = asyncio.SelectorEventLoop()
        place, client_id = f"{socket.gethostname()}/{token_hex(4)}", f"{FOLLOWER_CLIENT_ID_PREFIX}{name}"
        self.keeper = GateKeeper(place, clusters.values(), client_id, self.home_of, self._loop)
        self._homes: dict[str, WriteTo] = {}  # of protected topics that producers write
        self._partitions: dict[str, set[int]] = {}
        self._open: dict[str, str] = {}  # by topic: the cluster where it may be written
        self._knows_levels, self._looked_s = False, 0.0
        self._faults = RepeatFilter(log)
        client_thread("protects", name, self._run).start()

    def why_not(self, topic: str, order: WriteTo) -> str:
        """Returns why the topic waits; empty if it may be written there."""
        if not self._knows_levels:
            return f"{PROTECTION_TOPIC} was not read ({self.keeper.trouble()})"
        level = self.keeper.levels.get(topic)
        if level is None or not level.watches:
            return ""
        known = self._homes.get(topic)
        if known is None or known.term <= order.term:  # another producer may have heard of a switch earlier
            self._homes[topic] = order
        if self._open.get(topic) == order.cluster:
            return ""
        return f"topic {topic} is protected ({level.level}), and its twin takes no records"

    def holds(self, topic: str) -> bool:
        level = self.keeper.levels.get(topic)
        return level is not None and level.holds

    def home_of(self, topic: str) -> str | None:
        home = self._homes.get(topic)
        return home.cluster if home is not None else None

    def call(self, act: Callable[[], None]) -> None:
        """Has this called in the gate's thread."""
        with suppress(RuntimeError):  # the last producer is closed
            self._loop.call_soon_threadsafe(act)

    def later(self, act: Callable[[], None]) -> None:
        """Calls this some moments later."""
        self._loop.call_later(TICK_S, act)

    def release(self) -> None:
        with _sharing:
            self.users -= 1
            if not self.users:
                _shared.remove(self)
                self.call(self._loop.stop)

    def _run(self) -> None:
        self.keeper.start()
        self._loop.call_soon(self._tick)
        self._loop.run_forever()
        self.keeper.stop()
        self._loop.close()

    def _tick(self) -> None:
        self._loop.call_later(TICK_S, self._tick)
        try:
            self._turn()
        except Exception as error:  # no report is confirmed without the next turns
            self._faults.say(f"reports of protected topics wait: {describe_error(error)}")

    def _turn(self) -> None:
        self.keeper.tick()
        self._knows_levels = self.keeper.has_read_levels()
        watched = {topic for topic, level in self.keeper.levels.items() if level.watches}
        homes = {topic: order for topic, order in list(self._homes.items()) if topic in watched}
        if homes.keys() - self._partitions.keys() or steady_s() >= self._looked_s + LOOK_INTERVAL_S:
            self._looked_s = steady_s()
            self._partitions = {topic: set() for topic in homes}
            for one in self.keeper.partitions_of(homes):
                self._partitions[one.topic].add(one.partition)
        self._open = {topic: order.cluster for topic, order in homes.items() if self._takes_records(topic)}

    def _takes_records(self, topic: str) -> bool:
        """Asked of each partition: the first question makes its gate."""
        numbers = self._partitions[topic] or {0}
        return [self.keeper.refusal(topic, [one]) for one in numbers] == [None] * len(numbers)


class HeldReports:
    """One producer's. `decided` gets each call, in the gate's thread; with an error unless both sides have it."""

    def __init__(self, gate: SharedGate, decided: Callable[[AckedCall, KafkaError | None], None]) -> None:
        self.gate, self._decided = gate, decided
        self._guard = threading.Lock()
        self._held: dict[int, AckedCall] = {}
        self._came = deque[AckedCall]()
        self._is_posted = False

    def __len__(self) -> int:
        return len(self._held)

    def add(self, call: AckedCall) -> None:
        """Holds the report of an acknowledged call, in any thread."""
        with self._guard:
            self._held[call.kept.number] = call
        self._came.append(call)
        if not self._is_posted:
            self._is_posted = True
            self.gate.call(self._take_up)

    def take(self, topic: str | None = None) -> list[AckedCall]:
        """Holds these no longer, without a decision; None: those of all topics."""
        with self._guard:
            found = [one for one in self._held.values() if topic in (None, one.kept.topic)]
            for one in found:
                del self._held[one.kept.number]
        return found

    # -- the gate's thread

    def _take_up(self) -> None:
        """Calls of one partition are decided together, by the last one's offset."""
        self._is_posted, groups = False, dict[tuple[TopicPartition, WriteTo], list[AckedCall]]()
        while self._came:
            one = self._came.popleft()
            partition = TopicPartition(one.kept.topic, one.message.partition() or 0)
            groups.setdefault((partition, one.home), []).append(one)
        for (partition, home), calls in groups.items():
            self._hold(partition, home, calls)

    def _hold(self, partition: TopicPartition, home: WriteTo, calls: Sequence[AckedCall]) -> None:
        gate, keeper = self.gate, self.gate.keeper
        if not gate.holds(partition.topic):
            return self._tell(calls)
        if gate.home_of(partition.topic) != home.cluster:
            return None  # the producer takes them
        again = partial(self._hold, partition, home, calls)

        def decided(code: Code) -> None:
            if code is Code.none:
                self._tell(calls)
            else:
                gate.call(refused)

        def refused() -> None:
            if protected is not None and keeper.has(partition, protected):
                self._tell(calls, home.cluster)
            else:
                again()  # the topic has moved, or another level counts

        offsets = [one.message.offset() for one in calls]  # a broker may not know that of an old retry
        last = -1 if None in offsets else max(one or 0 for one in offsets)
        if (protected := keeper.reported(partition, last, decided)) is None:
            gate.later(again)
        return None

    def _tell(self, calls: Sequence[AckedCall], lost_by: str = "") -> None:
        for one in calls:
            with self._guard:
                is_held = self._held.get(one.kept.number) is one
                if is_held:
                    del self._held[one.kept.number]
            if is_held:
                self._decided(one, unconfirmed_error(one, lost_by) if lost_by else None)


def unconfirmed_error(one: AckedCall, cluster: str) -> KafkaError:
    """Says as librdkafka does that the record may be there."""
    place = f"topic {one.kept.topic}, partition {one.message.partition()}, offset {one.message.offset()}"
    why = f"{cluster} acknowledged the record and may have lost it since, so its twin confirms nothing: {place}"
    return KafkaError(KafkaError._TIMED_OUT, why)


_sharing = threading.Lock()
_shared: list[SharedGate] = []


def share_gate(name: str, sites: Mapping[str, Site]) -> SharedGate:
    """Returns the process's gate between these clusters, until `release`."""
    clusters = {one: site.cluster for one, site in sites.items()}
    with _sharing:
        found = next((one for one in _shared if one.clusters == clusters), None)
        if found is None:
            found = SharedGate(name, clusters)
            _shared.append(found)
        found.users += 1
        return found


def forget_gates() -> None:
    """After a fork: the child has none of their threads."""
    global _sharing
    _sharing = threading.Lock()
    _shared.clear()
