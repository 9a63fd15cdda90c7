"""Which brokers do not answer a task, and which incidents that gives."""

from __future__ import annotations

from collections.abc import Container, Iterable

from twinshore.replication.task.core.fetching import FetchScheduler
from twinshore.replication.task.core.messages import PartitionIncident
from twinshore.replication.task.core.partition import (
    NEVER_S,
    NO_LEADERS,
    TROUBLE_REPORT_S,
    PartitionReplicator,
    Phase,
)

WHOLE_SIDE = None  # a whole side: no broker there names the leaders
SIDES = ("source", "target")


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
        self,
        replicators: Iterable[PartitionReplicator],
        scheduler: FetchScheduler,
        now_s: float,
        still: Container[int] = (),
    ) -> list[PartitionIncident]:
        """Returns due incidents of stalled partitions. `still`: twin leaders that throttle this task."""
        incidents: list[PartitionIncident] = []
        staying = [replicator for replicator in replicators if not replicator.leaving]
        watched = [replicator for replicator in staying if replicator.phase is not Phase.STOPPED]
        if self._since:
            self._keep(watched, scheduler)
        for replicator in watched:
            incidents += self._of_target(replicator, now_s, still) or self._of_source(replicator, scheduler, now_s)
        return incidents

    def _keep(self, replicators: Iterable[PartitionReplicator], scheduler: FetchScheduler) -> None:
        needed: set[tuple[str, object]] = {(side, WHOLE_SIDE) for side in SIDES}
        for replicator in replicators:
            line = scheduler.line_of(replicator, replicator.leaders)
            needed |= {("target", replicator.leaders.target), ("source", line)}
        self._since = {place: met for place, met in self._since.items() if place in needed}

    def _of_target(
        self, replicator: PartitionReplicator, now_s: float, still: Container[int]
    ) -> list[PartitionIncident]:
        node, troubles = replicator.leaders.target, replicator.troubles
        if replicator.leaders == NO_LEADERS:
            for side in SIDES:
                if (side, WHOLE_SIDE) in self._since:
                    since_s, why = self._since[side, WHOLE_SIDE]
                    sentence = f"no broker of the {side} names the leaders: {why}"
                    return replicator.report_end_unknown(sentence, now_s, since_s, side)
        if ("target", node) in self._since:
            since_s, why = self._since["target", node]
            sentence = f"its leader, broker {node}, cannot be connected to: {why}"
            return replicator.report_end_unknown(sentence, now_s, since_s)
        running = replicator.phase is Phase.RUNNING
        if running and troubles.vain.since_s != NEVER_S:
            replicator.clear_trouble(troubles.vain)
        if replicator.in_flight and now_s - replicator.known_end.sent_s >= TROUBLE_REPORT_S:
            return replicator.report_unanswered(now_s, throttled=node in still)
        if running and replicator.waiting and not replicator.in_flight and node in still:
            return replicator.report_throttled(now_s)
        if running and troubles.target.since_s != NEVER_S:
            there = not replicator.in_flight and replicator.acked == replicator.fetched == replicator.source.end
            if there or not replicator.failures:
                replicator.clear_trouble(troubles.target)  # Responses came late, or lost requests have landed.
        return []

    def _of_source(
        self, replicator: PartitionReplicator, scheduler: FetchScheduler, now_s: float
    ) -> list[PartitionIncident]:
        if not self._since or replicator.leaders.source < 0:
            return []
        line = scheduler.line_of(replicator, replicator.leaders)
        if ("source", line) not in self._since or not scheduler.asks(replicator, line):
            return []
        since_s, why = self._since["source", line]
        did = f"(broker {line[0]}) gives nothing at offset {replicator.fetched}"
        return replicator.report_source_silent(did, why, now_s, since_s)
