"""Brokers that a lane needs and that give no answer: told of each partition that waits for them. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable

from twinshore.fleet.incidents import IncidentKind
from twinshore.mirror.lane.fetch_book import FetchBook
from twinshore.mirror.lane.orders import Stoppage
from twinshore.mirror.lane.passing import in_vain, unanswered, unheard, unsent
from twinshore.mirror.lane.phase import Phase
from twinshore.mirror.lane.route import NOBODY
from twinshore.mirror.lane.track import Track
from twinshore.mirror.lane.trouble import NONE, TROUBLE_S

ANYBODY = None  # a whole side: nobody there says who leads
AWAY = {"source": IncidentKind.SOURCE_AWAY, "target": IncidentKind.TARGET_AWAY}
SIDES = tuple(AWAY)


class Silence:
    """Of one lane. A line to the source counts as heard once a fetch is answered, one to the target once it is made:
    what a leader there does not answer, each partition knows for itself."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, object], tuple[float, str]] = {}

    def met(self, side: str, key: object, why: str, now_s: float) -> None:
        """No answer there, or no connection. `key`: a node of the target, a line of the source, or ANYBODY."""
        since_s, _ = self._since.get((side, key), (now_s, ""))
        self._since[side, key] = (since_s, why)

    def over(self, side: str, key: object) -> None:
        self._since.pop((side, key), None)

    def asked(self, silent: str, why: str, now_s: float) -> None:
        """Both sides were asked who leads: which did not answer, "" where both did. The source is asked first."""
        if silent != "source":
            self.over("source", ANYBODY)
        if silent:
            self.met(silent, ANYBODY, why, now_s)
        else:
            self.over("target", ANYBODY)

    def told(
        self, tracks: Iterable[Track], fetches: FetchBook, now_s: float, still: Container[int] = ()
    ) -> list[Stoppage]:
        """What is to be told now of partitions that stand. `still`: leaders of twins that throttle us."""
        found: list[Stoppage] = []
        waiting = [track for track in tracks if track.phase is not Phase.STOPPED and not track.leaving]
        if self._since:
            self._keep(waiting, fetches)
        for track in waiting:
            found += self._of_target(track, now_s, still) or self._of_source(track, fetches, now_s)
        return found

    def _keep(self, tracks: Iterable[Track], fetches: FetchBook) -> None:
        """Whoever leads nothing of ours any more may be silent: should it lead again, that is another time."""
        needed: set[tuple[str, object]] = {(side, ANYBODY) for side in SIDES}
        for track in tracks:
            needed |= {("target", track.route.target), ("source", fetches.line_of(track, track.route))}
        self._since = {place: met for place, met in self._since.items() if place in needed}

    def _of_target(self, track: Track, now_s: float, still: Container[int]) -> list[Stoppage]:
        node, troubles = track.route.target, track.troubles
        if track.route == NOBODY:
            for side in SIDES:
                if (side, ANYBODY) in self._since:
                    since_s, why = self._since[side, ANYBODY]
                    return in_vain(track, f"nobody on the {side} says who leads: {why}", now_s, since_s, AWAY[side])
        if ("target", node) in self._since:
            since_s, why = self._since["target", node]
            return in_vain(track, f"its leader, broker {node}, cannot be connected to: {why}", now_s, since_s)
        running = track.phase is Phase.RUNNING
        if running and troubles.vain.since_s != NONE:
            track.rid_of(troubles.vain)
        if track.in_flight and now_s - track.certain.sent_s >= TROUBLE_S:
            return unanswered(track, now_s, throttled=node in still)
        if running and track.waiting and not track.in_flight and node in still:
            return unsent(track, now_s)
        if running and troubles.target.since_s != NONE:
            there = not track.in_flight and track.acked == track.fetched == track.source.end
            if there or not track.failures:
                track.rid_of(troubles.target)  # Answers came late, or what was lost on its way has landed.
        return []

    def _of_source(self, track: Track, fetches: FetchBook, now_s: float) -> list[Stoppage]:
        if not self._since or track.route.source < 0:
            return []
        line = fetches.line_of(track, track.route)
        if ("source", line) not in self._since or not fetches.asks(track, line):
            return []
        since_s, why = self._since["source", line]
        return unheard(track, f"(broker {line[0]}) gives nothing at offset {track.fetched}", why, now_s, since_s)
