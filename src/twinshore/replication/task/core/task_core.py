"""Everything that a task decides: which requests to send to which broker and in what order, when to connect, when to
give up.

Events are methods. Those with effects yield commands; carry out each before taking the next, which may depend on it.
`now_s` is monotonic, `now_ms` the wall clock.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping

from twinshore.config.errors import KafkaError
from twinshore.config.model import TopicPartition
from twinshore.kafka.protocol.fetch import FetchResponseById
from twinshore.replication.task.core.connections import (
    CloseConnection,
    CompletedRequest,
    DeleteTwinRecords,
    DetachBuffers,
    EndOffsetConnectionKey,
    InspectTwins,
    LearnTwinNames,
    LookUpLeaders,
    OpenConnection,
    PollSocket,
    SourceFetcher,
    TargetProducer,
    TaskCommand,
)
from twinshore.replication.task.core.known_end import UnresolvedRequests
from twinshore.replication.task.core.markers import MarkerOutcome
from twinshore.replication.task.core.messages import (
    Assign,
    CoordinatorMessage,
    Finish,
    LearntQuota,
    LeaseGranted,
    Release,
    Released,
    StartWriting,
    Stop,
    TakeOver,
    TaskFinished,
    TaskProgress,
    TaskRateLimits,
    TaskReady,
    ThrottleUsage,
)
from twinshore.replication.task.core.partition import PartitionLeaders
from twinshore.replication.task.core.partitions import TaskPartitions, take_due_cuts
from twinshore.replication.task.core.position import TargetState
from twinshore.replication.task.core.resync import PendingMarkers
from twinshore.replication.task.core.shared_read import FetchStream
from twinshore.replication.task.core.throttle import quota_figures

REDIAL_S_MIN = 0.1
REDIAL_S_MAX = 2.0
DIAL_TIMEOUT_S = 30.0  # After that a connect is tried again. If the first succeeds after all, the second is dropped.
REDIAL_DOUBLINGS_MAX = 5
TIMER_INTERVAL_S = 0.02
CONGESTED_AFTER_S = 0.5
LEADERS_REFRESH_S = 30.0
ABSENT_RETRY_S = 0.5
FINISH_S_MAX = 5.0
USAGE_INTERVAL_S = 0.5
STANDBY_S_MAX = 600.0
LATENCIES_KEPT = 2048  # of produce requests between two reports


class DialBackoff:
    """When connections may be opened, and opened again. A key is a node or fetch stream of a side."""

    def __init__(self) -> None:
        # Time of the next attempt, and the number of failures.
        self._next: dict[tuple[str, object], tuple[float, int]] = {}

    def due(self, side: str, key: object, now_s: float) -> bool:
        """Whether to connect now; then the attempt counts as under way."""
        at_s, times = self._next.get((side, key), (0.0, 0))
        if now_s >= at_s:
            self._next[side, key] = (now_s + DIAL_TIMEOUT_S, times)
        return now_s >= at_s

    def failed(self, side: str, key: object, now_s: float) -> None:
        times = self._next.get((side, key), (0.0, 0))[1] + 1
        wait_s = min(REDIAL_S_MAX, REDIAL_S_MIN * 2 ** min(times, REDIAL_DOUBLINGS_MAX))
        self._next[side, key] = (now_s + wait_s, times)

    def made(self, side: str, key: object) -> None:
        self._next.pop((side, key), None)

    def all_tried(self) -> bool:
        """Whether each missing connection was tried."""
        return bool(self._next) and all(times > 0 for _, times in self._next.values())


class WriteLease:
    """A task's permission to write, counted from before the request. The coordinator counts from after its response,
    and longer.
    """

    def __init__(self) -> None:
        self.until_s = 0.0

    def extend(self, asked_s: float, grant_s: float) -> None:
        """Extends the lease from `asked_s`, when the answered request was made. Several may be under way."""
        self.until_s = max(self.until_s, asked_s + grant_s)

    def anew(self) -> None:
        """Ends the lease until the first response: how long StartWriting was under way is unknown."""
        self.until_s = 0.0

    def holds(self, now_s: float) -> bool:
        return now_s < self.until_s

    def ran_out(self, now_s: float) -> bool:
        return 0.0 < self.until_s <= now_s


class TaskCore:
    """The decisions of one task. `ended`: why the task must end, or empty."""

    def __init__(
        self, partitions: TaskPartitions, lease: WriteLease, now_s: float, *, report_s: float, by_units: bool = False
    ) -> None:
        """`by_units`: markers are written by empty transactions."""
        self.partitions, self.lease = partitions, lease
        self.sources: dict[FetchStream, SourceFetcher] = {}
        self.targets: dict[int, TargetProducer] = {}
        self.going, self.ended = False, ""
        self.timers_at_s = 0.0
        self._report_s, self._by_units = report_s, by_units
        self._standby_until_s = now_s + STANDBY_S_MAX
        self._dials = DialBackoff()
        self._congested: set[int] = set()
        self._ready_said = self._asking_routes = self._assigned = False
        self._beat_at_s = self._finish_by_s = self._used_at_s = self._routes_at_s = self._lands_until_s = 0.0
        self._produce_s: deque[float] = deque(maxlen=LATENCIES_KEPT)

    # -- timers

    def timers(self, now_s: float) -> Iterator[TaskCommand]:
        """Call once `timers_at_s` has passed."""
        if self.ended:
            return
        self.timers_at_s = now_s + TIMER_INTERVAL_S
        partitions = self.partitions
        due = partitions.stale_routes or now_s >= self._routes_at_s
        if due and partitions.replicators and not self._asking_routes:
            partitions.stale_routes, self._asking_routes = False, True
            self._routes_at_s = now_s + LEADERS_REFRESH_S
            yield LookUpLeaders()
        yield from self._keep_lines(now_s)
        partitions.scheduler.refill(now_s)
        if self.going:
            yield from self._going_timers(now_s)
        elif now_s > self._standby_until_s:
            self.ended = "was a standby for too long"

    def _going_timers(self, now_s: float) -> Iterator[TaskCommand]:
        partitions = self.partitions
        if self.lease.ran_out(now_s):
            self.ended = "the write lease ended"
            return
        if wanted := [] if partitions.finishing else partitions.take_due_inspections(now_s, self.targets):
            yield InspectTwins(wanted)
        if before := take_due_cuts(partitions.replicators.values()):
            yield DeleteTwinRecords(before)
        yield from self._deadlines(now_s)
        if now_s >= self._beat_at_s:
            self._beat_at_s = now_s + self._report_s
            yield self._beat(now_s)
        if now_s >= self._used_at_s:
            self._used_at_s = now_s + USAGE_INTERVAL_S
            if (used := partitions.scheduler.buckets.report(now_s)) is not None:
                yield ThrottleUsage(used)
        released = partitions.released(now_s)
        if released and partitions.incidents:
            yield self._beat(now_s)  # Losses are reported before the positions.
        for row in released:
            yield Released(*row)
        if partitions.finishing and (partitions.settled() or now_s >= self._finish_by_s):
            yield from self._done(now_s)

    def _keep_lines(self, now_s: float) -> Iterator[TaskCommand]:
        sources, targets = self.partitions.lines()
        for line in sorted(sources - self.sources.keys()):
            yield from self._dial("source", line[0], line, now_s)
        for node in sorted(targets - self.targets.keys()):
            yield from self._dial("target", node, node, now_s)
        for node in [node for node, producer in self.targets.items() if producer.lacks_asker]:
            yield from self._dial("target", node, EndOffsetConnectionKey(node), now_s)
        for line in sorted(self.sources.keys() - sources):
            yield from self.lost(self.sources[line], now_s)
        for node in [node for node in sorted(self.targets.keys() - targets) if not self.targets[node].in_flight]:
            yield from self.lost(self.targets[node], now_s)
        # An empty task changes over as any other: without TaskReady another attempt would start again and again.
        routed = not self._asking_routes and not self.partitions.stale_routes
        if not self._ready_said and self._assigned and (routed or not self.partitions.replicators):
            missing = (sources - self.sources.keys()) or (targets - self.targets.keys())
            if not missing or self._dials.all_tried():
                self._ready_said = True
                yield TaskReady()

    def _dial(self, side: str, node: int, key: object, now_s: float) -> Iterator[TaskCommand]:
        if self._dials.due(side, key, now_s):
            yield OpenConnection(side, node, key)

    def _deadlines(self, now_s: float) -> Iterator[TaskCommand]:
        for dozing in [producer for producer in self.targets.values() if producer.defers_wakeups]:
            yield PollSocket(dozing)
        for source in list(self.sources.values()):
            if source.late(now_s):
                yield PollSocket(source)
            if (source.late(now_s) or now_s > source.expires_s) and self.sources.get(source.key) is source:
                yield from self.lost(source, now_s, "a fetch was not answered in time")
        for target in list(self.targets.values()):
            if target.producer and target.producer.over(now_s):
                yield from self.lost(target.producer, now_s)
            if target.over(now_s):
                yield from self.lost(target, now_s)
            elif target.node not in self._congested and target.silent_s(now_s) > CONGESTED_AFTER_S:
                self._congested.add(target.node)
                yield DetachBuffers(target)
                target.detached()
                self.partitions.congested(target.node)

    def _beat(self, now_s: float) -> TaskProgress:
        partitions = self.partitions
        still = {node for node, target in self.targets.items() if target.quota.held}
        replicators = partitions.replicators.values()
        partitions.incidents += partitions.silence.told(replicators, partitions.scheduler, now_s, still)
        carried, incidents = partitions.accounts(now_s), list(partitions.incidents)
        partitions.incidents.clear()
        return TaskProgress(carried, incidents, self._speed(now_s), now_s)

    def _speed(self, now_s: float) -> dict[str, float]:
        times = sorted(self._produce_s)
        self._produce_s.clear()
        figures: dict[str, float] = {}
        if times:
            figures["produce_p50_ms"] = 1000 * times[len(times) // 2]
            figures["produce_p99_ms"] = 1000 * times[int(len(times) * 0.99)]
        if member := self.partitions.scheduler.member:
            figures |= member.told()
        return figures | quota_figures(self.targets.values(), self.sources.values(), now_s, self._lands_until_s)

    def _done(self, now_s: float) -> Iterator[TaskCommand]:
        if self.ended:
            return
        for target in [producer for producer in self.targets.values() if producer.owed]:
            yield from self.lost(target, now_s)
        partitions = self.partitions
        for replicator in partitions.replicators.values():
            replicator.set_back()
        carried, incidents = partitions.accounts(now_s), list(partitions.incidents)
        unread_s = max(0.0, self._lands_until_s - now_s)
        paces = list(self._paces(now_s))
        yield TaskFinished(carried, incidents, partitions.handovers(now_s), self._speed(now_s), unread_s, paces)
        self.ended = "finished"

    def _paces(self, now_s: float) -> Iterator[LearntQuota]:
        for key, source in self.sources.items():
            if learnt := source.quota.learnt(now_s):
                yield LearntQuota("source", *key, learnt)
        for node, target in self.targets.items():
            if learnt := target.quota.learnt(now_s):
                yield LearntQuota("target", node, -1, learnt)

    # -- requests and responses

    def flow(self, now_s: float, now_ms: int) -> Iterator[TaskCommand]:
        """Yields what each connection may send now. Queued data goes first: a fetch costs time and frees nothing."""
        if self.lease.holds(now_s):
            for target in list(self.targets.values()):
                yield from target.serve(self.partitions, now_s, now_ms)
        for source in list(self.sources.values()):
            if source.free(now_s) and (order := self.partitions.fetch_order(source.key)):
                yield source.ask(order, now_s)

    def fetched(self, source: SourceFetcher, answer: FetchResponseById, size: int, now_s: float, now_ms: int) -> None:
        """Takes a fetch response of `size` bytes, in the buffer that the fetch named."""
        buffer, far = source.answered(answer, size, now_s)
        self.partitions.fetched(source.key, answer, buffer, now_s, now_ms)
        if far:
            self.partitions.scheduler.widen(answer)

    def answered(self, target: TargetProducer, answer: CompletedRequest, now_s: float) -> None:
        """Takes a response of the target, already interpreted by `target`."""
        target.answered_s = now_s
        if not answer.flight.asking:
            self._produce_s.append(now_s - answer.flight.sent_s)
        answer.tell(self.partitions, now_s)
        if target.node in self._congested and target is self.targets.get(target.node):
            self._congested.discard(target.node)
            self.partitions.scheduler.hold(target.node, held=False)

    # -- results of blocking calls

    def dialled(
        self, side: str, key: object, now_s: float, *, version: int, expires_s: float = math.inf
    ) -> SourceFetcher | TargetProducer | None:
        """Takes a new connection with API version `version`. None if no longer needed, as when an earlier one came
        late.
        """
        if key in self.sources or key in self.targets:
            return None
        flow: SourceFetcher | TargetProducer
        if isinstance(key, EndOffsetConnectionKey):
            leading, flow = self.targets.get(key.node), self._target(key.node, version, expires_s)
            if leading is None or not leading.lacks_asker:
                self.failed(side, key, "the connection that needed it is gone", now_s)
                return None
            leading.lend(flow)
        elif isinstance(key, tuple):
            flow = self.sources[key] = SourceFetcher(key, self.partitions.limits, expires_s=expires_s)
        else:
            assert isinstance(key, int), "a leader on the target"
            flow = self.targets[key] = self._target(key, version, expires_s)
            self.partitions.silence.over(side, key)
        self._dials.made(side, key)
        return flow

    def _target(self, node: int, version: int, expires_s: float) -> TargetProducer:
        limits = self.partitions.limits
        return TargetProducer(node, limits, version=version, by_units=self._by_units, expires_s=expires_s)

    def failed(self, side: str, key: object, why: str, now_s: float) -> None:
        """A connection could not be opened. Ignored if another attempt has opened one."""
        if key in self.sources or key in self.targets:
            return
        self._dials.failed(side, key, now_s)
        self.partitions.silence.met(side, key, why, now_s)
        self.partitions.stale_routes = True

    def routed(self, routes: Mapping[TopicPartition, PartitionLeaders], silent: str, error: str, now_s: float) -> None:
        """Takes the current leaders. `silent`: the side that did not answer, or empty; `error`: why."""
        self._asking_routes = False
        for partition, leaders in routes.items():
            self.partitions.routed(partition, leaders)
        self.partitions.silence.asked(silent, error, now_s)
        self.partitions.stale_routes |= bool(silent)
        if any(leaders.absent for leaders in routes.values()):
            self._routes_at_s = now_s + ABSENT_RETRY_S

    def looked(self, seen: Mapping[TopicPartition, TargetState | KafkaError | None], now_s: float, now_ms: int) -> None:
        """Takes inspections. None: an empty transaction of this task must end first."""
        for partition, result in seen.items():
            self.partitions.on_inspected(partition, result, now_s, now_ms)
            self.partitions.stale_routes |= result is None

    def closed(self, marks: list[PendingMarkers], answers: list[MarkerOutcome], now_s: float) -> None:
        """Takes markers that empty transactions have finished."""
        self.partitions.marked(marks, answers, now_s)

    # -- messages of the coordinator

    def hear(self, message: CoordinatorMessage, now_s: float) -> Iterator[TaskCommand]:
        """Applies a coordinator message, in order of arrival. Apply all before `timers`, which check the lease."""
        match message:
            case Assign(configs):
                self._assigned = True
                yield LearnTwinNames(configs)
                self.partitions.assign(configs)
            case StartWriting():
                yield from self._go(message, now_s)
            case LeaseGranted(asked_s, grant_s):
                self.lease.extend(asked_s, grant_s)
            case Release(partition):
                self._release(partition)
            case TaskRateLimits():
                self.partitions.scheduler.bound(*message)
            case TakeOver(handoffs):
                self.partitions.take_over(handoffs, now_s)
            case Finish():
                yield from self._finish(now_s)
            case Stop():
                self.ended = "told to stop"

    def _release(self, partition: TopicPartition) -> None:
        if self.going:
            self.partitions.release(partition)
        else:
            # A standby attempt has started nothing: forget at once, or a later assignment would look the same.
            self.partitions.keep_only(self.partitions.replicators.keys() - {partition})

    def _go(self, go: StartWriting, now_s: float) -> Iterator[TaskCommand]:
        """Starts to write, with the quotas that the previous task learnt for the same leaders."""
        self.lease.anew()
        self.partitions.keep_only(go.told.keys())
        for partition, replicator in self.partitions.replicators.items():
            replicator.progress_log.epoch, replicator.progress_log.to = go.told[partition]
            if partition not in go.untouched:
                replicator.zombies = UnresolvedRequests(epoch=replicator.progress_log.epoch)
        self.partitions.take_over(go.handoffs, now_s, go.reached)
        for pace in go.paces:
            line = self.targets.get(pace.node) if pace.side == "target" else self.sources.get((pace.node, pace.stream))
            if line is not None:
                line.quota.follow(pace.learnt, now_s)
        self.going = True
        self._beat_at_s = now_s + self._report_s
        yield self._beat(now_s)

    def _finish(self, now_s: float) -> Iterator[TaskCommand]:
        self.partitions.finish()
        self._finish_by_s = now_s + FINISH_S_MAX
        if self.going and self.partitions.settled():
            yield from self._done(now_s)

    # -- losses

    def lost(self, flow: SourceFetcher | TargetProducer, now_s: float, why: str = "") -> Iterator[TaskCommand]:
        """Drops a connection. `why`: a source connection broke or did not answer."""
        if isinstance(flow, SourceFetcher):
            if self.sources.get(flow.key) is flow:
                yield from self._lost_source(flow, now_s, why)
            return
        leading = self.targets.get(flow.node)
        if leading is not None and flow in (leading, leading.producer):
            yield from self._lost_target(leading, now_s, asker_alone=flow is not leading)

    def _lost_source(self, source: SourceFetcher, now_s: float, why: str) -> Iterator[TaskCommand]:
        if why:
            self.partitions.silence.met("source", source.key, why, now_s)
        yield CloseConnection(source)
        self.sources.pop(source.key, None)
        self.partitions.source_lost(source.key)

    def _lost_target(self, target: TargetProducer, now_s: float, *, asker_alone: bool) -> Iterator[TaskCommand]:
        if target.producer:
            yield CloseConnection(target.producer)
            target.part(self.partitions, now_s)
        if asker_alone:
            return
        yield CloseConnection(target)
        del self.targets[target.node]
        self._congested.discard(target.node)
        self.partitions.marked(target.take_unwritten(), [], now_s)
        lands_until_s, unanswered = target.quota.lands_until_s(now_s), target.close()
        self._lands_until_s = max(self._lands_until_s, lands_until_s if unanswered else 0.0)
        self.partitions.lost(target.node, unanswered, now_s, lands_until_s)
