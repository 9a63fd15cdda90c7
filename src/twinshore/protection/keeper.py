"""The gates of one process, and what they need: watermarks of both sides, levels, and the mirror's words.

All is called in the thread of one event loop. Records are read and written by threads.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import statistics
import threading
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from twinshore.config.errors import KafkaError
from twinshore.config.model import Cluster, TopicPartition
from twinshore.config.repeat_filter import RepeatFilter, describe_error
from twinshore.config.sentences import NAMED_MAX, join_names
from twinshore.kafka.clock import steady_s, wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.primitives import to_printable
from twinshore.protection.core.gate import REACHED_TTL_S, PartitionGate
from twinshore.protection.core.loss_bound import LossBoundGate
from twinshore.protection.core.model import (
    AfterFailover,
    AskEpochEnd,
    ClearAlone,
    Confirm,
    GateCommand,
    GateState,
    ProtectionSettings,
    ReadEnd,
    RefuseWrite,
    ReportProtection,
    WaitCause,
    WriteAlone,
)
from twinshore.protection.core.records import (
    MIXING_MAX,
    TEXT_CHARS_MAX,
    GateRecord,
    ProtectionLog,
    TopicProtection,
    current_levels,
    gate_line,
)
from twinshore.protection.topic import GatesTopic, ProtectionTopic
from twinshore.protection.watermarks import IDLE_SPACING_S, SPACING_S, Views, WatermarkQueries

log = logging.getLogger(__name__)

TICK_S: Final = 0.1
READ_INTERVAL_S: Final = 0.5
# A gate's record is written again so often, with what it has confirmed.
RECORD_INTERVAL_S: Final = 1.0
CALL_TIMEOUT_S: Final = 3.0
COMMIT_HOLD_S: Final = 15.0
# How long a twin is asked at the short spacing after a consumer lacked records that the home has.
READ_WAIT_S: Final = 0.5
# A client that has not mixed topics for so long is named no more.
MIXING_S: Final = 600.0
EPOCH_MAX: Final = (1 << 31) - 1
DELAYS_KEPT: Final = 100
# Stands for an unknown age too.
BEHIND_S_MAX: Final = 86_400.0

# Is called once with the error to answer with, `Code.none` for a confirmation.
Decided = Callable[[Code], None]
# Is called once with why a record was not written, None if it was.
Written = Callable[[Exception | None], None]


@dataclass(slots=True)
class _Waiting:
    """A write that is not decided. `answered_s`: when the home had it, 0 before."""

    decided: Decided
    answered_s: float = 0.0


@dataclass(slots=True)
class ProtectedPartition:
    """A gate, the clusters that it compares, and who waits for it. `delays_s`: how long the last answers waited.
    `said`: the state that was logged.
    """

    gate: PartitionGate
    home: str
    twin: str
    waiting: dict[int, _Waiting] = field(default_factory=dict)
    alone_since: int = -1
    delays_s: deque[float] = field(default_factory=lambda: deque(maxlen=DELAYS_KEPT))
    read_until_s: float = 0.0
    said: GateState = GateState.PROTECTED

    def waits(self, now_s: float) -> bool:
        return bool(self.waiting) or now_s < self.read_until_s


class _Side:
    """One cluster: its connections, and its records as last read."""

    def __init__(self, cluster: Cluster, client_id: str) -> None:
        self.kafka = KafkaCluster(cluster, client_id=client_id, patience_s=CALL_TIMEOUT_S)
        self.records = KafkaCluster(cluster, client_id=client_id, patience_s=CALL_TIMEOUT_S)
        self.topic = ProtectionTopic(self.records)
        # Of the writer's thread.
        self.gates, self.read_back = GatesTopic(self.records), ProtectionTopic(self.records)
        self.outage = RepeatFilter(logging.LoggerAdapter(log, {"cluster": cluster.name}), once=True)
        self.cluster_id = ""
        self.log, self.asked_s = ProtectionLog(), 0.0
        self.gates_read, self.alone = GatesTopic(self.records), frozenset[tuple[str, int]]()
        self.writer = ThreadPoolExecutor(1, "protection-writes")  # one: no record may overtake a later one


class GateKeeper:
    """`name`: of this process, in its records. `home_of`: the cluster at which a topic is at home, None if unknown."""

    def __init__(
        self,
        name: str,
        clusters: Iterable[Cluster],
        client_id: str,
        home_of: Callable[[str], str | None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._name, self._home_of, self._loop = name, home_of, loop
        self._sides = {cluster.name: _Side(cluster, client_id) for cluster in clusters}
        self._queries = {
            name: WatermarkQueries(side.kafka, client_id, loop, partial(self._take_views, name))
            for name, side in self._sides.items()
        }
        # Daemons: an application that closes nothing ends all the same.
        self._readers = [
            threading.Thread(target=self._read, args=(one,), name=f"twinshore-protection {one}", daemon=True)
            for one in self._sides
        ]
        self._partitions: dict[TopicPartition, ProtectedPartition] = {}
        self._waiting: set[TopicPartition] = set()
        self._polls: asyncio.Handle | None = None
        self._asked_all_s = 0.0
        self._numbers = itertools.count()
        self._stopped = threading.Event()
        # By cluster and topic: the record to be written, and who is told of it.
        self._unwritten: dict[tuple[str, str], tuple[GateRecord, list[Written]]] = {}
        self._unwritten_lock = threading.Lock()
        self._recorded_s = 0.0
        # By cluster that was asked for its records: why they could not be read, empty if they were.
        self._tried: dict[str, str] = {}
        self.levels: dict[str, TopicProtection] = {}
        self.reads_both: frozenset[str] = frozenset()
        self._mixing: dict[str, dict[str, float]] = {}
        # By topic and outcome: confirmed, alone, refused, and each kind of report.
        self.counts = Counter[tuple[str, str]]()

    # -- life

    def start(self) -> None:
        for reader in self._readers:
            reader.start()

    def stop(self) -> None:
        """Call once the loop's thread calls nothing else any more; it may be called in another."""
        self._stopped.set()
        for queries in self._queries.values():
            queries.close()
        for reader in self._readers:
            reader.join()
        for side in self._sides.values():
            side.writer.shutdown(wait=True, cancel_futures=True)
            side.kafka.close()
            side.records.close()

    def _post(self, call: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(call)

    def _read(self, name: str) -> None:
        side = self._sides[name]
        while not self._stopped.is_set():
            try:
                alone = side.gates_read.read().alone() if self.reads_both else side.alone
                side.cluster_id, asked_s = side.records.cluster_id(), steady_s()
                found = side.topic.read().copy()
            except Exception as error:  # what was read stays as it was
                if self._stopped.is_set():
                    return
                side.outage.say(f"protection is not read: {describe_error(error)}")
                self._post(partial(self._tried.__setitem__, name, describe_error(error)))
            else:
                side.outage.well("protection is read again")
                self._post(partial(self._take_records, name, found, alone, asked_s))
            self._stopped.wait(READ_INTERVAL_S)

    # -- writes

    def has_read_levels(self) -> bool:
        """Whether `levels` can be relied on: each cluster was asked, and one answered. Commands write to all."""
        has_answered = any(side.asked_s for side in self._sides.values())
        return has_answered and self._tried.keys() >= self._sides.keys()

    def trouble(self) -> str:
        """Returns why clusters' records cannot be read; empty for none."""
        return "; ".join(why for _, why in sorted(self._tried.items()) if why)

    def refusal(self, topic: str, partitions: Iterable[int]) -> Code | None:
        """Returns the error for a write that is not to be sent; None to send it."""
        home = self._home_of(topic)
        if not self.levels[topic].holds and home in self._sides and self._is_alone(topic, home):
            return None  # without a twin there is no bound
        for number in partitions:
            protected = self._protected(TopicPartition(topic, number))
            code = protected.gate.refusal() if protected else Code.not_enough_replicas
            if code is not None:
                return code
        return None

    def sent(self, partition: TopicPartition, hold_s: float, decided: Decided, *, has_producer: bool) -> int:
        """A write goes to the home now. Returns its number; `decided` is called within `hold_s`, unless it `failed`."""
        write = next(self._numbers)
        protected = self._partitions[partition]
        protected.waiting[write] = _Waiting(decided)
        protected.gate.sent(write, steady_s(), hold_s, has_producer=has_producer)
        self._poll_for(partition)
        return write

    def failed(self, partition: TopicPartition, write: int) -> None:
        if (protected := self._partitions.get(partition)) and protected.waiting.pop(write, None):
            protected.gate.failed(write)

    def appended(self, partition: TopicPartition, write: int, last: int) -> None:
        protected = self._partitions.get(partition)
        if protected is None or write not in protected.waiting:
            return
        protected.waiting[write].answered_s = now_s = steady_s()
        self._do(partition, protected, protected.gate.appended(write, last, now_s))

    def reported(self, partition: TopicPartition, last: int, decided: Decided) -> ProtectedPartition | None:
        """The home has a write that was not announced by `sent`. Returns who holds it, without end; None while the twin
        is unknown.
        """
        protected = self._protected(partition)
        if protected is not None:
            write = next(self._numbers)
            protected.waiting[write] = _Waiting(decided, steady_s())
            self._do(partition, protected, protected.gate.reported(write, last, steady_s()))
            self._poll_for(partition)
        return protected

    def has(self, partition: TopicPartition, protected: ProtectedPartition) -> bool:
        """False once the topic has moved, or its protection has changed."""
        return self._partitions.get(partition) is protected

    def hold(self, partitions: Sequence[TopicPartition]) -> HeldCommit:
        """A transaction that wrote there is about to be committed; none of them is refused."""
        return HeldCommit(self, partitions)

    def committed(self, partition: TopicPartition, write: int) -> None:
        """The write is a transaction's, and the home has its end."""
        if (protected := self._partitions.get(partition)) and write in protected.waiting:
            protected.waiting[write].answered_s = now_s = steady_s()
            protected.gate.committed(write, now_s)
            self._ask([partition], of_home=True)

    def partitions_of(self, topics: Iterable[str]) -> set[TopicPartition]:
        """Returns the partitions of these topics whose twins are known."""
        at_home = {(topic, home) for topic in topics if (home := self._home_of(topic)) in self._sides}
        wanted = {(self._sides[home].cluster_id, topic) for topic, home in at_home}
        return {
            TopicPartition(topic, number)
            for side in self._sides.values()
            for cluster_id, topic, number in side.log.reached
            if (cluster_id, topic) in wanted
        }

    def protected_partitions(self) -> list[TopicPartition]:
        """Returns the partitions of protected topics whose twins are known."""
        return list(self.partitions_of(topic for topic, protection in self.levels.items() if protection.holds))

    def note_mixing(self, topics: Iterable[str], client_id: str) -> None:
        """The client writes to these topics, and on the same connection to topics without a protection."""
        name, now_s = to_printable(client_id)[:TEXT_CHARS_MAX], steady_s()
        for topic in topics:
            known = self._mixing.setdefault(topic, {})
            known.pop(name, None)
            known[name] = now_s
            if len(known) > MIXING_MAX:
                del known[next(iter(known))]

    # -- reads

    def read_end(self, partition: TopicPartition, cluster: str) -> ReadEnd | None:
        """Returns what consumers of `reads_both` are shown at a cluster; None: all. While a partition is acknowledged
        alone, all that the home has; at the twin, all that it has.
        """
        protected, home = self._protected(partition), self._home_of(partition.topic)
        if protected is None or protected.home != home:
            return ReadEnd()
        if cluster == protected.twin or protected.gate.state is GateState.ALONE:
            return None
        side = self._sides.get(protected.twin)
        if side is not None and (partition.topic, partition.partition) in side.alone:
            return None
        end = protected.gate.read_end
        return end if cluster == home else replace(end, epoch=EPOCH_MAX)  # another twin has epochs of its own

    def awaits(self, partition: TopicPartition) -> None:
        """A consumer lacks records that the home has."""
        if (protected := self._partitions.get(partition)) is not None:
            protected.read_until_s = steady_s() + READ_WAIT_S
            self._poll_for(partition)

    def tick(self) -> None:
        """Call every `TICK_S`."""
        now_s = steady_s()
        for partition, protected in list(self._partitions.items()):
            if self._home_of(partition.topic) != protected.home:
                self._forget(partition, protected)
            else:
                self._do(partition, protected, protected.gate.tick(now_s))
        self._log_states()
        if now_s - self._recorded_s >= RECORD_INTERVAL_S:
            self._recorded_s = now_s
            for topic in {partition.topic for partition in self._partitions}:
                self._record(topic, lambda _: None)
        for queries in self._queries.values():
            queries.tick()
        if now_s - self._asked_all_s >= IDLE_SPACING_S:
            self._asked_all_s = now_s
            self._ask(self._partitions, of_home=False)
            self._ask(self._partitions, of_home=True)
        else:
            self._ask(self._waiting, of_home=True)

    def _log_states(self) -> None:
        changed: dict[tuple[str, GateState, str], list[str]] = {}
        for partition, one in self._partitions.items():
            if one.said is not one.gate.state:
                one.said = one.gate.state
                cause = "" if one.said is GateState.PROTECTED else f" ({one.gate.cause()})"
                since = one.alone_since if one.alone_since >= 0 else one.gate.confirmed_end
                place = f"partition {partition.partition}" + f" from offset {since}" * (since >= 0)
                changed.setdefault((partition.topic, one.said, cause), []).append(place)
        for (topic, state, cause), places in changed.items():
            level = logging.WARNING if cause else logging.INFO
            log.log(level, f"{topic}: {state}{cause}: {join_names(places, NAMED_MAX)}")

    def _poll_for(self, partition: TopicPartition) -> None:
        self._waiting.add(partition)
        if self._polls is None:
            self._polls = self._loop.call_soon(self._poll)

    def _poll(self) -> None:
        """Asks the twins at the short spacing while writes or consumers wait."""
        now_s, known = steady_s(), self._partitions
        self._waiting = {p for p in self._waiting if p in known and known[p].waits(now_s)}
        self._ask(self._waiting, of_home=False)
        self._polls = self._loop.call_later(SPACING_S, self._poll) if self._waiting else None

    def _ask(self, partitions: Iterable[TopicPartition], *, of_home: bool) -> None:
        by_side: dict[str, list[TopicPartition]] = {}
        for partition in partitions:
            if (protected := self._partitions.get(partition)) is not None:
                by_side.setdefault(protected.home if of_home else protected.twin, []).append(partition)
        for name, ours in by_side.items():
            if name in self._queries:  # a partition may be without a twin
                self._queries[name].ask(ours, with_ids=of_home)

    # -- what is learned

    def _take_views(self, name: str, views: Views, with_ids: bool) -> None:
        """Homes are asked with ids, once a twin has what waits."""
        due = []
        for partition, view in views.items():
            protected = self._partitions.get(partition)
            if protected is None:
                continue
            if with_ids and protected.home == name:
                self._do(partition, protected, protected.gate.on_home(view))
            elif not with_ids and protected.twin == name:
                self._do(partition, protected, protected.gate.on_twin(view))
                if protected.gate.awaits_home():
                    due.append(partition)
        self._ask(due, of_home=True)

    def _take_records(self, name: str, found: ProtectionLog, alone: frozenset[tuple[str, int]], asked_s: float) -> None:
        side = self._sides[name]
        side.log, side.alone, side.asked_s = found, alone, asked_s
        self._tried[name] = ""
        levels = current_levels(side.log for side in self._sides.values())
        if levels != self.levels:
            changed = {topic for topic in {*levels, *self.levels} if levels.get(topic) != self.levels.get(topic)}
            self.levels = levels
            self.reads_both = frozenset(topic for topic, level in levels.items() if level.reads_both)
            for partition, protected in list(self._partitions.items()):
                if partition.topic in changed:
                    self._forget(partition, protected)
        for partition, protected in list(self._partitions.items()):
            if protected.twin == name:
                reached = found.reached_of(self._sides[protected.home].cluster_id, partition.topic, partition.partition)
                self._do(partition, protected, protected.gate.on_reached(reached, asked_s, steady_s()))
            elif not protected.twin and protected.home == name:
                self._stand_alone(partition, protected)

    def _protected(self, partition: TopicPartition) -> ProtectedPartition | None:
        """Returns the partition's gate, which begins with its first write; None while its twin is unknown."""
        if (known := self._partitions.get(partition)) is not None:
            if known.home == self._home_of(partition.topic):
                return known
            self._forget(partition, known)  # the topic has moved: its old twin must not confirm its own records
        home, protection = self._home_of(partition.topic), self.levels[partition.topic]
        if home not in self._sides:
            return None
        twins, alone = self._twins_of(partition, home), self._is_alone(partition.topic, home)
        if len(twins) != 1 and not alone:
            return None
        gate = _gate_of(protection, steady_s())
        made = self._partitions[partition] = ProtectedPartition(gate, home, "" if alone else twins[0])
        self._ask([partition], of_home=True)
        if alone:
            self._stand_alone(partition, made)
        else:
            side = self._sides[made.twin]
            reached = side.log.reached_of(self._sides[home].cluster_id, partition.topic, partition.partition)
            gate.on_reached(reached, side.asked_s, steady_s())
        return made

    def _twins_of(self, partition: TopicPartition, home: str) -> list[str]:
        wanted, cluster_id = self.levels[partition.topic].twin, self._sides[home].cluster_id
        return [
            name
            for name, side in self._sides.items()
            if name != home
            and wanted in ("", name)
            and side.log.reached_of(cluster_id, partition.topic, partition.partition)
        ]

    def _is_alone(self, topic: str, home: str) -> bool:
        """Whether the topic has had no twin since a forced switch."""
        is_allowed = self.levels[topic].after_failover is AfterFailover.ALONE
        return is_allowed and self._sides[home].log.is_without_twin(topic)

    def _stand_alone(self, partition: TopicPartition, protected: ProtectedPartition) -> None:
        if self._is_alone(partition.topic, protected.home):
            until_s = self._sides[protected.home].asked_s + REACHED_TTL_S
            self._do(partition, protected, protected.gate.stand_alone(until_s, steady_s()))
        else:
            self._forget(partition, protected)

    def _forget(self, partition: TopicPartition, protected: ProtectedPartition) -> None:
        self._do(partition, protected, protected.gate.reset())
        self._partitions.pop(partition, None)

    # -- commands

    def _do(self, partition: TopicPartition, protected: ProtectedPartition, commands: Iterable[GateCommand]) -> None:
        for command in commands:
            match command:
                case Confirm(write, is_alone):
                    self.counts[partition.topic, "alone" if is_alone else "confirmed"] += 1
                    self._decide(protected, write, Code.none)
                case RefuseWrite(write, code):
                    self.counts[partition.topic, "refused"] += 1
                    self._decide(protected, write, code)
                case WriteAlone() if not protected.twin:
                    pass  # that is written at home
                case WriteAlone(since):
                    if protected.alone_since < 0:  # else the permission is renewed
                        protected.alone_since = since
                    self._write_alone(partition, protected)
                case ClearAlone():
                    protected.alone_since = -1
                    self._record(partition.topic, lambda _: None)
                case AskEpochEnd():
                    answered = partial(self._take_epoch_end, partition, protected, command)
                    self._queries[protected.home].ask_epoch_end(partition, command, answered)
                case ReportProtection(kind, offset):
                    self.counts[partition.topic, kind] += 1
                    log.warning(f"{partition}: {kind} at offset {offset}", extra={"cluster": protected.home})

    def _take_epoch_end(
        self, partition: TopicPartition, protected: ProtectedPartition, question: AskEpochEnd, end: int, heard_s: float
    ) -> None:
        if self._partitions.get(partition) is protected:
            self._do(partition, protected, protected.gate.on_epoch_end(question, end, heard_s))
            self._ask([partition], of_home=True)

    def _decide(self, protected: ProtectedPartition, write: int, code: Code) -> None:
        if (one := protected.waiting.pop(write, None)) is not None:
            if one.answered_s and code is Code.none:
                protected.delays_s.append(steady_s() - one.answered_s)
            one.decided(code)

    def _write_alone(self, partition: TopicPartition, protected: ProtectedPartition) -> None:
        asked_s, gate = steady_s(), protected.gate

        def written(error: Exception | None) -> None:
            if self._partitions.get(partition) is not protected:
                return
            if error is not None or protected.alone_since < 0:  # it has been cleared since
                gate.on_alone_failed(steady_s())
            else:
                self._do(partition, protected, gate.on_alone_written(asked_s, steady_s()))

        self._record(partition.topic, written)

    def _record(self, topic: str, done: Written) -> None:
        """Writes this gate's record of the topic to its twin's cluster."""
        ours = {p.partition: one for p, one in self._partitions.items() if p.topic == topic}
        twins = {one.twin for one in ours.values() if one.twin}
        if not twins:
            return
        ttl_s = max(one.gate.settings.ttl_s for one in ours.values())
        state = max((one.gate.state for one in ours.values()), key=list(GateState).index)
        since_s = min(one.gate.since_s for one in ours.values() if one.gate.state is state)
        waiting = Counter[str]()
        for one in ours.values():
            waiting[one.gate.cause()] += len(one.waiting)
        record = GateRecord(
            self.levels[topic].number,
            {number: one.gate.confirmed_end for number, one in ours.items() if one.gate.confirmed_end >= 0},
            {number: one.alone_since for number, one in ours.items() if one.alone_since >= 0},
            wall_ms(),
            int(1000 * ttl_s),
            tuple(name for name, at_s in self._mixing.get(topic, {}).items() if steady_s() - at_s < MIXING_S),
            state,
            wall_ms() - int(1000 * (steady_s() - since_s)),
            +waiting,  # without zeros
            round(1000 * _delay_s(ours.values()), 1),
        )
        for twin in twins:
            (home,) = {one.home for one in ours.values()}
            with self._unwritten_lock:
                before = self._unwritten.get((twin, topic))
                self._unwritten[twin, topic] = record, [*(before[1] if before else ()), done]
            if before is None:
                self._sides[twin].writer.submit(self._write, (home, twin), topic)

    def _write(self, ends: tuple[str, str], topic: str) -> None:
        """Writes the topic's last record. A slow cluster gets no more of them than it takes."""
        home, twin = ends
        side, error = self._sides[twin], None
        with self._unwritten_lock:
            record, dones = self._unwritten.pop((twin, topic))
        try:
            side.gates.say([gate_line(topic, self._name, record)])
            if record.alone:
                log, home_id = side.read_back.read(), self._sides[home].cluster_id
                if not all(log.reached_of(home_id, topic, number) for number in record.alone):
                    # A forced switch voids the mirror's words, then reads what is alone: perhaps before this record.
                    raise KafkaError(f"the twin of {topic} on {twin} was promoted")
        except Exception as caught:  # it is written again
            error = caught
        for done in dones:
            self._post(partial(done, error))

    def states(self) -> Mapping[TopicPartition, GateState]:
        return {partition: one.gate.state for partition, one in list(self._partitions.items())}

    def waiting(self) -> Counter[tuple[str, WaitCause]]:
        """Returns how many writes wait, by topic and cause."""
        found = Counter[tuple[str, WaitCause]]()
        for partition, one in list(self._partitions.items()):
            if one.waiting:
                found[partition.topic, one.gate.cause()] += len(one.waiting)
        return found


def _delay_s(partitions: Collection[ProtectedPartition]) -> float:
    now_s = steady_s()
    behind = [one.gate.behind_s(now_s) for one in partitions if isinstance(one.gate, LossBoundGate)]
    delays = [delay_s for one in partitions for delay_s in one.delays_s]
    return min(max(behind), BEHIND_S_MAX) if behind else statistics.median(delays or [0.0])


def _gate_of(protection: TopicProtection, now_s: float) -> PartitionGate:
    if not protection.holds:
        return LossBoundGate(protection.loss_at_most_s, now_s)
    return PartitionGate(ProtectionSettings(protection.level, alone_after_s=protection.alone_after_s), now_s)


class HeldCommit:
    """The end of a transaction that wrote to protected partitions, from before it is sent. `code`: why it is not
    confirmed, NONE if it is.
    """

    def __init__(self, keeper: GateKeeper, partitions: Sequence[TopicPartition]) -> None:
        self._keeper, self.code = keeper, Code.none
        self._done: Callable[[], None] | None = None
        self._left = set(partitions)
        self._writes = {
            one: keeper.sent(one, COMMIT_HOLD_S, partial(self._decided, one), has_producer=True) for one in partitions
        }

    def wait(self, done: Callable[[], None]) -> None:
        """The transaction is complete at home. `done` is called once the twins have all of it, or it is refused."""
        self._done = done
        for partition, write in self._writes.items():
            self._keeper.committed(partition, write)
        self._finish_if_decided()

    def close(self) -> None:
        self._done = None
        for partition, write in self._writes.items():
            self._keeper.failed(partition, write)

    def _decided(self, partition: TopicPartition, code: Code) -> None:
        self._left.discard(partition)
        self.code = self.code or code
        self._finish_if_decided()

    def _finish_if_decided(self) -> None:
        if not self._left and self._done is not None:
            done, self._done = self._done, None
            done()
