"""The pump's slow errands, in threads of their own: dialling, asking who leads, looking at twins.

Results come back as values through `take`; a socket wakes the pump's loop. A peer that hangs costs its own errand only.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from queue import SimpleQueue

from twinshore.fleet import KafkaError, NamedPartition
from twinshore.fleet.sentences import followed
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.connection import Connection
from twinshore.kafka.metadata import ClusterMetadata, TopicMetadata
from twinshore.kafka.questions import OffsetKind
from twinshore.mirror.lane.fresh import aged
from twinshore.mirror.lane.history import NOWHERE, Stand
from twinshore.mirror.lane.mapped_track import reaches
from twinshore.mirror.lane.observe import Observation
from twinshore.mirror.lane.orders import TideOrder, TrackOrder
from twinshore.mirror.lane.reach import Reach
from twinshore.mirror.lane.track import Route, Track
from twinshore.mirror.mapping.look import look_at_mapped
from twinshore.mirror.pump.probing import KEPT, not_cut
from twinshore.mirror.pump.twin_look import look_at
from twinshore.mirror.pump.units import Closed, Units
from twinshore.service.clock import wall_ms

THREADS_MAX = 6
PATIENCE_S = 3.0
CALL_S = 3.0
LOOK_MAX = 250


@dataclass(frozen=True, slots=True)
class Dialled:
    side: str
    key: object
    connection: Connection | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Routes:
    """`silent`: the side that did not answer, with its `error`; "" where both did."""

    routes: dict[NamedPartition, Route]
    error: str = ""
    silent: str = ""


Seen = Observation | KafkaError | None


@dataclass(frozen=True, slots=True)
class Looked:
    """None where a closed unit of ours must be over first."""

    seen: dict[NamedPartition, Seen]


Report = Dialled | Routes | Looked | Closed


class Scout:
    """Runs errands for one pump; `close` lets go of every connection it holds."""

    def __init__(self, order: TideOrder, holds: Callable[[], bool]) -> None:
        """`holds`: whether the partitions may still be written."""
        self._clusters = {"source": (order.source, order.source_id), "target": (order.target, order.target_id)}
        self._producer_id = order.producer_id
        # Below which age a fresh queue takes records; 0: of any.
        self._max_age_ms = int(order.queue.max_age_s * 1000) if order.queue.fresh else 0
        self._twins: dict[NamedPartition, NamedPartition] = {}
        self._ids: dict[str, bytes] = {}
        self._own = threading.local()
        self._opened: list[KafkaCluster] = []
        self._guard = threading.Lock()
        self._reports: SimpleQueue[Report] = SimpleQueue()
        self._pool = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="scout")
        # Looks may wait long for the one or the other broker; dials and questions about routes must not wait for them.
        self._looks = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="scout's look")
        self.wake_socket, self._bell = socket.socketpair()
        self.wake_socket.setblocking(False)
        self._bell.setblocking(False)
        # Who writes markers where they may not be written directly.
        self.units = (
            Units(order.target, order.units, order.lane, holds=holds, report=self._tell, cluster_id=order.target_id)
            if order.units
            else None
        )

    def take(self) -> list[Report]:
        """Everything reported since the last call."""
        with contextlib.suppress(BlockingIOError):
            while self.wake_socket.recv(4096):
                pass
        found = []
        while not self._reports.empty():
            found.append(self._reports.get())
        return found

    def learn(self, orders: Iterable[TrackOrder]) -> None:
        """What the twins of these partitions are called; all else speaks of them by their sources' names."""
        for order in orders:
            self._ids[order.twin_named.topic] = bytes.fromhex(order.target_topic_id)
            if order.twin:
                self._twins[order.named] = order.twin_named

    # An errand answers whatever happens: the pump waits for it.

    def dial(self, side: str, node: int, key: object) -> None:
        """Opens a separate connection to a broker, for the pump to drive."""

        def errand() -> Report:
            try:
                return Dialled(side, key, self._cluster(side).dial(node))
            except Exception as error:
                return Dialled(side, key, None, str(error))

        self._send(errand)

    def ask_routes(self, tracks: Iterable[Track]) -> None:
        """Who leads these partitions on both sides, and whether their topics are still the same."""
        wanted = {track.named: (track.source_key[0], track.target_id) for track in tracks}

        def errand() -> Report:
            seen = {}
            for side in ("source", "target"):
                topics = {(named if side == "source" else self._twins.get(named, named)).topic for named in wanted}
                try:
                    seen[side] = self._cluster(side).metadata(sorted(topics), refresh=True)
                except Exception as error:
                    return Routes({}, str(error) or type(error).__name__, side)
            return Routes(self._routes(wanted, seen["source"], seen["target"]))

        self._send(errand)

    def look(self, partitions: Iterable[NamedPartition], tracks: Mapping[NamedPartition, Track]) -> None:
        """Where the twins of these partitions end, and what the source holds; leader by leader, so many at a time."""
        by_node: dict[int, list[NamedPartition]] = {}
        for named in partitions:
            by_node.setdefault(tracks[named].route.target if named in tracks else -1, []).append(named)
        for group in by_node.values():
            for start in range(0, len(group), LOOK_MAX):
                self._look_at_led(group[start : start + LOOK_MAX], tracks)

    def _look_at_led(self, partitions: list[NamedPartition], tracks: Mapping[NamedPartition, Track]) -> None:
        """By the same leader; mapped ones each by itself."""
        mapped = reaches(tracks, partitions)
        exact = [named for named in partitions if named not in mapped]
        stands = {named: tracks[named].told.stand for named in partitions if named in tracks}
        inherited = {named: tracks[named].order.inherited for named in partitions if named in tracks}
        if exact:
            self._send(lambda: Looked(self._look(exact, stands, inherited)), self._looks)
        for named, reach in mapped.items():
            drops = tracks[named].order.may_lack(reach)
            look = partial(self._look_mapped, named, reach, stands.get(named, NOWHERE), drops=drops)
            self._send(lambda n=named, look=look: Looked({n: look()}), self._looks)  # type: ignore[misc]

    def cut(self, before: dict[NamedPartition, int], tracks: Mapping[NamedPartition, Track]) -> None:
        """Cuts the twins of these partitions below the offsets. If it fails, the driver does it within a minute."""

        if not before:
            return
        ids = {self._twins.get(named, named).topic: tracks[named].target_id for named in before}

        def errand() -> Report:
            with contextlib.suppress(KafkaError):
                self._cluster("target").cut_logs({self._twins.get(n, n): at for n, at in before.items()}, ids)
            return Looked({})

        self._send(errand)

    def close(self) -> None:
        if self.units:
            self.units.close()
        for pool in (self._pool, self._looks):
            pool.shutdown(wait=False, cancel_futures=True)
        with self._guard:
            for cluster in self._opened:
                cluster.close()
        for report in self.take():
            if isinstance(report, Dialled) and report.connection:
                report.connection.close()
        self.wake_socket.close()
        self._bell.close()

    def _send(self, errand: Callable[[], Report], pool: ThreadPoolExecutor | None = None) -> None:
        def run() -> None:
            self._tell(errand())

        (pool or self._pool).submit(run)

    def _tell(self, report: Report) -> None:
        self._reports.put(report)
        with contextlib.suppress(BlockingIOError, OSError):
            self._bell.send(b"!")

    def _cluster(self, side: str) -> KafkaCluster:
        """A client of this thread's own, so that one slow broker never blocks another errand."""
        mine: dict[str, KafkaCluster] | None = getattr(self._own, "clusters", None)
        if mine is None:
            mine = self._own.clusters = {}
        if side not in mine:
            cluster, cluster_id = self._clusters[side]
            mine[side] = KafkaCluster(
                cluster, client_id="twinshore-scout", cluster_id=cluster_id, patience_s=PATIENCE_S, call_s=CALL_S
            )
            with self._guard:
                self._opened.append(mine[side])
        return mine[side]

    def _routes(
        self, wanted: dict[NamedPartition, tuple[bytes, bytes]], source: ClusterMetadata, target: ClusterMetadata
    ) -> dict[NamedPartition, Route]:
        found = {}
        for named, (source_id, target_id) in wanted.items():
            theirs, ours = source.topics.get(named.topic), target.topics.get(self._twins.get(named, named).topic)
            if not _there(theirs, named) or not _there(ours, named) or not theirs or not ours:
                found[named] = Route(absent="target" if _there(theirs, named) else "source")
                continue
            if theirs.topic_id != source_id or ours.topic_id != target_id:
                found[named] = Route(recreated="source" if theirs.topic_id != source_id else "target")
                continue
            leader, twin = theirs.partitions[named.partition], ours.partitions[named.partition]
            found[named] = Route(leader.leader, leader.leader_epoch, twin.leader, target_epoch=twin.leader_epoch)
        return found

    def _mute(self, twins: Mapping[NamedPartition, NamedPartition]) -> dict[NamedPartition, KafkaError]:
        """Partitions that nobody can be asked about now, on either side: the others do not wait for them."""
        _, here = self._cluster("source").offsets_of_each(twins, OffsetKind.EARLIEST)
        _, there = self._cluster("target").offsets_of_each(twins.values(), OffsetKind.EARLIEST)
        return here | {named: there[twin] for named, twin in twins.items() if twin in there}

    def _uncut(self, found: Mapping[NamedPartition, Observation]) -> dict[NamedPartition, Seen]:
        """Those of the looks that must say more: offsets are to be filled, and the twin's log cut behind them."""
        due = {named: seen for named, seen in found.items() if seen.log_end < seen.source_start}
        if not due:
            return {}
        twins = {named: self._twins.get(named, named) for named in due}
        starts = {twins[named]: seen.log_start for named, seen in due.items()}
        ids = {twin.topic: self._ids[twin.topic] for twin in starts}
        failed = not_cut(self._cluster("target"), starts, ids)
        seen_again: dict[NamedPartition, Seen] = {}
        for named, seen in due.items():
            if error := failed.get(twins[named]):
                kept = error.code in KEPT
                seen_again[named] = replace(seen, uncut=followed(error.message, error.hint)) if kept else _told(error)
        return seen_again

    def _aged(self, found: dict[NamedPartition, Observation]) -> dict[NamedPartition, Observation]:
        """The looks with where records begin that are young enough, where the queue asks for that."""
        if not self._max_age_ms or not found:
            return found
        source = self._cluster("source")
        # What lies above the high watermark is not looked at by its time: who is asked has not seen it.
        high, _ = source.offsets_of_each(found, OffsetKind.HIGH_WATERMARK)
        young, _ = source.first_since_each(found, wall_ms() - self._max_age_ms)
        known = {named: young[named] if young[named] >= 0 else high[named] for named in young.keys() & high.keys()}
        for named, at in known.items():
            # What is dropped is of a history, too: the epoch of its last record tells later whether that still holds.
            due = at > max(found[named].log_end, found[named].source_start)
            below = source.read_batch(named, at - 1) if due else None
            found[named] = aged(found[named], at, below[1] if below else None)
        return found

    def _look_mapped(self, named: NamedPartition, reach: Reach, stand: Stand, *, drops: bool) -> Seen:
        clusters, twin = (self._cluster("source"), self._cluster("target")), self._twins.get(named, named)
        try:
            seen = look_at_mapped(*clusters, self._producer_id, named, twin, reach, stand, drops=drops)
            return self._aged({named: seen})[named]
        except Exception as error:
            return _told(error)

    def _look(
        self,
        partitions: list[NamedPartition],
        stands: dict[NamedPartition, Stand],
        inherited: dict[NamedPartition, int],
    ) -> dict[NamedPartition, Seen]:
        """One bad partition must not hide the others: on its error the group is halved until it stands alone."""
        try:
            twins = {named: self._twins.get(named, named) for named in partitions}
            due = self.units.settled() if self.units else set()
            early = [named for named in partitions if twins[named] in due]
            if early:
                rest = [named for named in partitions if twins[named] not in due]
                return dict.fromkeys(early, None) | (self._look(rest, stands, inherited) if rest else {})
            mute = self._mute(twins)
            led = {named: twin for named, twin in twins.items() if named not in mute}
            clusters = self._cluster("source"), self._cluster("target")
            found = look_at(*clusters, self._producer_id, led, stands, inherited) if led else {}
            return {**found, **self._uncut(found), **{named: _told(error) for named, error in mute.items()}}
        except Exception as error:
            away = isinstance(error, KafkaError) and error.retriable
            if away or len(partitions) == 1:
                return dict.fromkeys(partitions, _told(error))
            half = len(partitions) // 2
            first, second = partitions[:half], partitions[half:]
            return self._look(first, stands, inherited) | self._look(second, stands, inherited)


def _told(error: Exception) -> KafkaError:
    return error if isinstance(error, KafkaError) else KafkaError(f"{error} ({type(error).__name__})", retriable=True)


def _there(topic: TopicMetadata | None, named: NamedPartition) -> bool:
    return topic is not None and named.partition < len(topic.partitions)
