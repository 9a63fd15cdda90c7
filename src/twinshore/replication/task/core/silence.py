"""Which brokers do not answer a task, and which incidents that gives."""

from __future__ import annotations

from collections.abc import Container, Iterable

from twinshore.config.incident_policy import IncidentKind
from twinshore.replication.task.core.config import (
    PartitionIncident,
)
from twinshore.replication.task.core.fetching import FetchScheduler
from twinshore.replication.task.core.partition import (
    NEVER_S,
    NO_LEADERS,
    TROUBLE_REPORT_S,
    PartitionReplicator,
    Phase,
    report_end_unknown,
    report_source_silent,
    report_throttled,
    report_unanswered,
)

WHOLE_SIDE = None  # a whole side: no broker there names the leaders
AWAY_KINDS = {"source": IncidentKind.SOURCE_AWAY, "target": IncidentKind.TARGET_AWAY}
SIDES = tuple(AWAY_KINDS)


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
