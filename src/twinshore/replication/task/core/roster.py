"""The partitions of a task: which are replicated, which brokers lead them, and which stop."""

from __future__ import annotations

from collections.abc import Container, Iterable, Set

from twinshore.config.incident_policy import IncidentKind
from twinshore.config.model import QueueRules, TopicPartition
from twinshore.replication.task.core import position as answers
from twinshore.replication.task.core.batches import ParsedFetch, PartitionStopped
from twinshore.replication.task.core.config import (
    NO_EPOCH_OFFSET,
    Handoff,
    PartitionConfig,
    PartitionIncident,
    PartitionProgress,
    TaskLimits,
    append_incident,
    dropped_incident,
)
from twinshore.replication.task.core.fetching import FetchScheduler, FetchStream
from twinshore.replication.task.core.known_end import UNKNOWN_S
from twinshore.replication.task.core.partition import (
    NEVER_S,
    NO_LEADERS,
    TROUBLE_REPORT_S,
    PartitionLeaders,
    PartitionReplicator,
    Phase,
    make_replicator,
    report_end_unknown,
    report_source_silent,
    report_throttled,
    report_unanswered,
)
from twinshore.replication.task.core.shared_read import (
    SharedFetch,
    SharedFetchMember,
    describe_age_limit,
    drop_next,
    drop_old_batches,
    find_transactional,
    oldest_kept_ms,
)

WHOLE_SIDE = None  # a whole side: no broker there names the leaders
AWAY_KINDS = {"source": IncidentKind.SOURCE_AWAY, "target": IncidentKind.TARGET_AWAY}
SIDES = tuple(AWAY_KINDS)
UNKNOWN_POSITION = -1
ABSENCES_MAX = 20  # Half a second apart: longer than a new topic takes to reach all brokers.

NO_TRANSACTIONS_REASON = (
    "it holds records of transactions, and a fresh queue may drop a part of one: give the link's queue "
    "transactions = true, or leave the topic to a link that keeps"
)


class SilenceTracker:
    """Which brokers do not answer one task. A source connection counts as silent until a fetch is answered, a target
    connection until it is open; each partition tracks its own requests.
    """

    def __init__(self) -> None:
        self._since: dict[tuple[str, object], tuple[float, str]] = {}

    def met(self, side: str, key: object, why: str, now_s: float) -> None:
        """Notes a missing answer or connection. `key`: a node of the target, a fetch stream of the source, or
        WHOLE_SIDE.
        """
        since_s, _ = self._since.get((side, key), (now_s, ""))
        self._since[side, key] = (since_s, why)

    def over(self, side: str, key: object) -> None:
        self._since.pop((side, key), None)

    def asked(self, silent: str, why: str, now_s: float) -> None:
        """Takes a leader lookup, which asks the source first. `silent`: the side that did not answer, or ""."""
        if silent != "source":
            self.over("source", WHOLE_SIDE)
        if silent:
            self.met(silent, WHOLE_SIDE, why, now_s)
        else:
            self.over("target", WHOLE_SIDE)

    def told(
        self, tracks: Iterable[PartitionReplicator], fetches: FetchScheduler, now_s: float, still: Container[int] = ()
    ) -> list[PartitionIncident]:
        """Returns due incidents of stalled partitions. `still`: twin leaders that throttle this task."""
        found: list[PartitionIncident] = []
        waiting = [track for track in tracks if track.phase is not Phase.STOPPED and not track.leaving]
        if self._since:
            self._keep(waiting, fetches)
        for track in waiting:
            found += self._of_target(track, now_s, still) or self._of_source(track, fetches, now_s)
        return found

    def _keep(self, tracks: Iterable[PartitionReplicator], fetches: FetchScheduler) -> None:
        needed: set[tuple[str, object]] = {(side, WHOLE_SIDE) for side in SIDES}
        for track in tracks:
            needed |= {("target", track.route.target), ("source", fetches.line_of(track, track.route))}
        self._since = {place: met for place, met in self._since.items() if place in needed}

    def _of_target(self, track: PartitionReplicator, now_s: float, still: Container[int]) -> list[PartitionIncident]:
        node, troubles = track.route.target, track.troubles
        if track.route == NO_LEADERS:
            for side in SIDES:
                if (side, WHOLE_SIDE) in self._since:
                    since_s, why = self._since[side, WHOLE_SIDE]
                    return report_end_unknown(
                        track, f"nobody on the {side} says who leads: {why}", now_s, since_s, AWAY_KINDS[side]
                    )
        if ("target", node) in self._since:
            since_s, why = self._since["target", node]
            return report_end_unknown(
                track, f"its leader, broker {node}, cannot be connected to: {why}", now_s, since_s
            )
        running = track.phase is Phase.RUNNING
        if running and troubles.vain.since_s != NEVER_S:
            track.clear_trouble(troubles.vain)
        if track.in_flight and now_s - track.known_end.sent_s >= TROUBLE_REPORT_S:
            return report_unanswered(track, now_s, throttled=node in still)
        if running and track.waiting and not track.in_flight and node in still:
            return report_throttled(track, now_s)
        if running and troubles.target.since_s != NEVER_S:
            there = not track.in_flight and track.acked == track.fetched == track.source.end
            if there or not track.failures:
                track.clear_trouble(troubles.target)  # Responses came late, or lost requests have landed.
        return []

    def _of_source(self, track: PartitionReplicator, fetches: FetchScheduler, now_s: float) -> list[PartitionIncident]:
        if not self._since or track.route.source < 0:
            return []
        line = fetches.line_of(track, track.route)
        if ("source", line) not in self._since or not fetches.asks(track, line):
            return []
        since_s, why = self._since["source", line]
        return report_source_silent(
            track, f"(broker {line[0]}) gives nothing at offset {track.fetched}", why, now_s, since_s
        )


def make_handoff(track: PartitionReplicator, now_s: float) -> Handoff | None:
    """Returns where the twin ends, if certain. If not, and requests may still land, returns only that: otherwise a
    successor would wait too briefly, or mistake them for its own. Else None.
    """
    strays = track.strays
    stands = track.phase is Phase.RUNNING and not track.in_flight
    if not stands or track.acked < max(track.write_from, track.old.end):
        if strays.still_s(now_s) <= 0:
            return None
        # Only an inspection tells where a mapped twin's sequences continue: they may be of other offsets then.
        moved = track.mapped or strays.may_have_moved(track.stamp.sequence)
        return _of(track, UNKNOWN_POSITION, now_s, calm=False, moved=moved)
    return _of(track, track.acked, now_s, calm=not strays.until_s, moved=strays.may_have_moved(track.stamp.sequence))


def _of(track: PartitionReplicator, position: int, now_s: float, *, calm: bool, moved: bool) -> Handoff:
    target, target_epoch = track.led
    return Handoff(
        topic=track.order.topic,
        partition=track.order.partition,
        position=position,
        leader_epoch=track.source.epoch,
        armed_until_ms=track.known_end.armed_until_ms,
        calm=calm,
        next_sequence=track.stamp.sequence(track.acked),
        target=target,
        target_epoch=target_epoch,
        source_led=track.source.led,
        stray_epoch=track.strays.epoch,
        strays_s=track.strays.still_s(now_s),
        strays_moved=moved,
    )


def accept_handoff(track: PartitionReplicator, entry: Handoff, now_s: float) -> bool:
    """Applies the previous task's report, and returns whether that spares an inspection; not after a broken connection.
    Requests that may still land count in any case.
    """
    if track.phase not in (Phase.UNVERIFIED, Phase.VERIFYING):
        return False
    fits = (
        entry.position != UNKNOWN_POSITION
        and track.phase is Phase.UNVERIFIED
        and not track.doubted
        and track.fits(entry)
    )
    if fits or not entry.calm:
        until_s = UNKNOWN_S if entry.strays_s < 0 else now_s + entry.strays_s
        track.strays.left(entry.stray_epoch, until_s, calm=entry.calm, moved=entry.strays_moved)
    if fits:
        track.take_over(entry)
        track.on_leader_change()
    return fits


class TaskPartitionsBase:
    """`incidents`: those to report. `stale_routes`: whether leaders must be looked up."""

    def __init__(
        self,
        producer: tuple[int, int],
        fence: int,
        limits: TaskLimits,
        reading: SharedFetch | None = None,
        queue: QueueRules | None = None,
    ) -> None:
        self.limits, self.producer, self._fence = limits, producer, fence
        self.tracks: dict[TopicPartition, PartitionReplicator] = {}
        self.fetches = FetchScheduler(limits)
        if reading:
            self.fetches.seat = SharedFetchMember(reading, self.fetches.wake, queue or QueueRules())
        self.silence = SilenceTracker()
        # By leader: twins with data to send.
        self._ready: dict[int, dict[PartitionReplicator, None]] = {}
        self.incidents: list[PartitionIncident] = []
        self._early: list[PartitionProgress] = []
        self.stale_routes = True

    def assign(self, orders: Iterable[PartitionConfig]) -> None:
        """Adds partitions; each twin is inspected before the first write."""
        for order in orders:
            if order.named in self.tracks:
                continue
            track = make_replicator(order, self.producer, self._fence, self.limits.partition_bytes_max)
            self.tracks[order.named] = track
            self.fetches.add(track)
            self.stale_routes = True

    def release(self, named: TopicPartition) -> None:
        """Stops fetching and sending a partition; `released` returns it once idle."""
        track = self.tracks.get(named)
        if track is not None:
            track.set_back()
            track.leaving = True
            self.fetches.remove(track)

    def released(self, now_s: float) -> list[tuple[TopicPartition, Handoff | None, PartitionProgress | None]]:
        """Removes released partitions that are idle, and returns handoffs and last progress.

        No other task may start while a broker may accept requests of a lost connection, which only this task knows, or
        while progress is unreported.
        """
        found = []
        for track in [one for one in self.tracks.values() if one.leaving and not one.in_flight]:
            early = any(TopicPartition(one.topic, one.partition) == track.named for one in self._early)
            if track.strays.until_s > now_s or early:
                continue
            found.append((track.named, make_handoff(track, now_s), track.account(now_s)))
            self._tell_drops(track)
            del self.tracks[track.named]
            self._ready.get(track.route.target, {}).pop(track, None)
        return found

    def keep_only(self, named: Set[TopicPartition]) -> None:
        """Before the start of writing: forgets partitions that another task has got."""
        for track in [track for track in self.tracks.values() if track.named not in named]:
            self.fetches.remove(track)
            del self.tracks[track.named]

    def routed(self, named: TopicPartition, route: PartitionLeaders) -> None:
        """Applies leaders from metadata. A new leader never breaks the order, as the twin is inspected again."""
        track = self.tracks.get(named)
        if track is None or track.phase is Phase.STOPPED:
            return
        track.absences = track.absences + 1 if route.absent else 0
        gone = route.recreated or (route.absent if track.absences >= ABSENCES_MAX else "")
        if gone:
            self._stop(track, answers.stop_for_missing_topic(named, track.acked, gone, recreated=bool(route.recreated)))
            return
        if track.route == route:
            return
        before, track.route = track.route, route
        if self.fetches.line_of(track, before) != self.fetches.line_of(track, route):
            self.fetches.forget(track, before)
        if before.target != route.target:
            self._ready.get(before.target, {}).pop(track, None)
        track.on_leader_change()
        self.wake(track)

    def lines(self) -> tuple[set[FetchStream], set[int]]:
        """Returns the connections that running partitions need: source streams, target nodes."""
        running = [t for t in self.tracks.values() if t.phase is not Phase.STOPPED]
        sources = {self.fetches.line_of(t, t.route) for t in running if t.route.source >= 0}
        return sources, {t.route.target for t in running if t.route.target >= 0}

    def _halt(self, track: PartitionReplicator, halt: PartitionStopped) -> None:
        track.stop_after = halt
        self.fetches.forget(track, track.route)
        if not (track.waiting or track.in_flight):
            self._stop(track, halt)

    def refuses(self, track: PartitionReplicator, cut: ParsedFetch) -> bool:
        """Whether a drop-oldest queue must refuse `cut`; then the partition stops."""
        seat = self.fetches.seat
        found = find_transactional(cut) if seat and not seat.rules.transactions else None
        if found:
            self._halt(track, PartitionStopped(IncidentKind.REFUSED, found.base, found.end, NO_TRANSACTIONS_REASON))
        return found is not None

    def drop_too_old(self, track: PartitionReplicator, now_ms: int) -> None:
        """Drops what an inspection found too old for a drop-oldest queue, once the twin's content is reported."""
        seat, (epoch, to) = self.fetches.seat, track.old
        if not seat or not seat.drops(track) or track.phase is not Phase.RUNNING or track.fetched < track.write_from:
            return
        track.old = NO_EPOCH_OFFSET
        if to > track.fetched and seat.rules.max_age_s:
            drop_next(track, to, epoch, describe_age_limit(seat.rules), now_ms)
            self.wake(track)

    def without_too_old(self, track: PartitionReplicator, done: ParsedFetch, now_ms: int) -> ParsedFetch:
        """The part of the task's own read for a drop-oldest queue."""
        seat = self.fetches.seat
        if not seat or not seat.drops(track) or done.halt:
            return done
        if not seat.rules.transactions and (found := find_transactional(done)):
            halt = PartitionStopped(IncidentKind.REFUSED, found.base, found.end, NO_TRANSACTIONS_REASON)
            return done._replace(parcels=[], end=track.fetched, carried=[], blanks=[], halt=halt)
        if not seat.rules.max_age_s or track.fetched < track.write_from:
            return done
        begin = track.fetched
        kept, to = drop_old_batches(done, begin, oldest_kept_ms(seat.rules, now_ms))
        if to >= 0:
            track.dropped.append(dropped_incident(track.named, begin, to, describe_age_limit(seat.rules)))
        return kept

    # -- progress

    def accounts(self, now_s: float) -> list[PartitionProgress]:
        found, self._early = self._early, []
        found += [carried for track in self.tracks.values() if (carried := track.account(now_s))]
        for track in self.tracks.values():
            self._tell_drops(track)
        return found

    def report_early(self, track: PartitionReplicator, now_s: float) -> None:
        """Saves progress before an inspection, which forgets unreported offsets and may take long."""
        self._early += [carried] if (carried := track.account(now_s)) else []

    def handovers(self, now_s: float) -> list[Handoff]:
        return [entry for track in self.tracks.values() if (entry := make_handoff(track, now_s))]

    def settled(self) -> bool:
        return not any(track.in_flight for track in self.tracks.values())

    def _tell_drops(self, track: PartitionReplicator) -> None:
        for row in track.drops() if track.dropped else ():
            append_incident(self.incidents, row)

    def _stop(self, track: PartitionReplicator, halt: PartitionStopped) -> None:
        track.waiting.drop()
        track.enter(Phase.STOPPED)
        self.fetches.forget(track, track.route)
        self._ready.get(track.route.target, {}).pop(track, None)
        self.incidents.append(answers.to_partition_incident(track.named, halt))

    def wake(self, track: PartitionReplicator) -> None:
        """Checks the partition with the next fetch of its stream, and sends waiting batches."""
        self.fetches.wake(track)
        if track.waiting and track.route.target >= 0:
            self._ready.setdefault(track.route.target, {})[track] = None
