"""One link as the monitor knows it: what is waiting, how each place stands, when it was last read and judged. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from twinshore.delay.alarms import AlarmKey, Sign
from twinshore.delay.arrival import Arrivals, Sighting, look
from twinshore.delay.readings import BEATS, GROUPS, PARTS, Axis, Place, Reading, View
from twinshore.delay.signs import Judged, blind_signs, heartbeat_signs, part_signs, recovery_signs, unjudged_signs
from twinshore.store.values import DelayPlace

FORGET_MS = 60_000
# Groups are read once a period, which may be an hour.
FORGET_GROUPS_MS = 7_200_000
# The windows need four readings for a first verdict, and Spark a moment.
PERIODS_UNJUDGED = 6
# What is read once a period is asked for once more before it counts as unreadable.
PERIODS_UNREAD = 2


@dataclass(slots=True)
class LinkState:
    """Readings in, signs out. `began_ms` stands for every moment that has not been yet."""

    link: str
    began_ms: int
    arrivals: dict[Place, Arrivals] = field(default_factory=dict)
    views: dict[Place, View] = field(default_factory=dict)
    seen_ms: dict[str, int] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)
    # Since when a part cannot be read, and why; None while it can.
    parts: dict[str, tuple[int, str] | None] = field(default_factory=dict)
    beat_offset: int = -1
    beat_seen_ms: int = 0
    beat_late_ms: int = 0
    beat_alive: bool = False
    beat_hushed: bool = False
    judged_ms: int = 0
    rulings: int = 0
    why: str = ""
    samples: int = 0
    ever_read: bool = False

    def __post_init__(self) -> None:
        self.seen_ms.setdefault("", self.began_ms)
        self.judged_ms = self.judged_ms or self.began_ms

    def restore(self, rows: Iterable[DelayPlace]) -> None:
        """Takes over what an earlier monitor saw first, so that a backlog does not look young after a restart."""
        for row in rows:
            if not row.group:
                waiting = tuple(Sighting(*pair) for pair in json.loads(row.waiting))
                self.arrivals[Place(row.link, row.topic, row.partition)] = Arrivals(waiting, row.source_end)

    def anew(self, now_ms: int, moved_ms: int) -> LinkState:
        """As after a restart, for a clock that has moved: backlogs are as old as before, all else is not known yet."""
        found = LinkState(self.link, now_ms)
        for place, one in self.arrivals.items():
            waiting = tuple(seen._replace(at_ms=seen.at_ms + moved_ms) for seen in one.waiting)
            found.arrivals[place] = one._replace(waiting=waiting)
        return found

    def take(self, readings: Iterable[Reading], failures: Mapping[str, str], now_ms: int) -> None:
        """After a sample."""
        self.samples += 1
        self.failures = {topic: why for topic, why in failures.items() if topic not in PARTS}
        self.beat_hushed = False
        for reading in readings:
            place = reading.place
            if place.group:
                self.views[place] = _group_view(reading)
                continue
            self.arrivals[place], self.views[place] = look(self.arrivals.get(place, Arrivals()), reading)
            self.seen_ms[place.topic] = reading.at_ms
        if "" not in failures:
            self.seen_ms[""], self.ever_read = now_ms, True
        self._forget(now_ms)

    def asked_parts(self, failures: Mapping[str, str], now_ms: int) -> None:
        """After a sample at a tick, which asks for groups and heartbeats too, unless the link could not be read."""
        for part in PARTS if "" not in failures else ():
            since_ms, _ = self.parts.get(part) or (now_ms, "")
            self.parts[part] = (since_ms, failures[part]) if part in failures else None

    def heard(self, offset: int, written_ms: int, now_ms: int) -> None:
        """After a look at the newest heartbeat on the target."""
        if offset != self.beat_offset:
            # The first that is found may be the last one that ever came.
            self.beat_alive = self.beat_offset >= 0
            self.beat_offset, self.beat_seen_ms, self.beat_late_ms = offset, now_ms, max(0, now_ms - written_ms)

    def unheard(self, now_ms: int) -> None:
        """While a link is paused no heartbeat is expected; the silence counts from its end."""
        self.beat_seen_ms, self.beat_hushed = now_ms if self.beat_seen_ms else 0, True

    def ruled(self, judged: Iterable[Judged], now_ms: int) -> None:
        """After verdicts of the windows."""
        for one in judged:
            self.why = one.why or self.why
            if one.verdict.judged:
                self.judged_ms = now_ms
                self.rulings += 1

    def signs(
        self, now_ms: int, bound_s: Callable[[str], float], *, heartbeat_s: float, blind_s: float, period_s: float
    ) -> list[Sign]:
        """Everything that can be said now, the windows' verdicts apart; nothing is well of which nothing is known."""
        silent_ms = now_ms - self.beat_seen_ms if self.beat_seen_ms else 0
        fresh = [view for view in self.views.values() if view.at_ms == self.seen_ms.get(view.place.topic)]
        # With nothing to judge (no topics, all of them paused, no reading at all) the windows are not to blame.
        blind = not self.ever_read or now_ms - self.seen_ms[""] > blind_s * 500
        idle = not any(view.state != "paused" for view in fresh)
        if blind or idle:
            self.judged_ms = now_ms
        unjudged_s, well = max(blind_s, PERIODS_UNJUDGED * period_s), not blind and (idle or self.rulings > 0)
        # Heartbeats that cannot be read have not stopped, for all that is known.
        alive = self.beat_alive or self.beat_hushed
        beats = [] if self.parts.get(BEATS) else heartbeat_signs(self.link, silent_ms, heartbeat_s, alive=alive)
        return [
            *recovery_signs(self.link, fresh, bound_s),
            *beats,
            *part_signs(self.link, self.parts, now_ms, max(blind_s, PERIODS_UNREAD * period_s)),
            *blind_signs(self.link, self.seen_ms, self.failures, now_ms, blind_s, ever=self.ever_read),
            *unjudged_signs(self.link, now_ms - self.judged_ms, unjudged_s, self.why, well=well),
        ]

    def knows_no_more(self, key: AlarmKey, now_ms: int) -> bool:
        """Whether an alarm is of a topic or group of this link that is gone, and so can never be right again."""
        if key.link != self.link or not key.topic or self.failures or now_ms - self.began_ms < FORGET_MS:
            return False
        if key.topic not in self.seen_ms:
            return now_ms - self.seen_ms[""] < FORGET_MS
        if not key.group or self.parts.get(GROUPS):
            return False
        seen = [
            view.at_ms for place, view in self.views.items() if (place.topic, place.group) == (key.topic, key.group)
        ]
        return now_ms - max(seen, default=0) > FORGET_GROUPS_MS

    def rows(self) -> list[DelayPlace]:
        """For the store."""
        return [
            DelayPlace(
                *(view.place.link, view.place.topic, view.place.partition, view.place.group),
                *(view.at_ms, view.source_end, view.target_end, view.lag_records, view.recovery_point_ms),
                *(view.axis.value, view.state, json.dumps(self._waiting(view.place), separators=(",", ":"))),
            )
            for view in self.views.values()
        ]

    def _waiting(self, place: Place) -> list[list[int]]:
        known = self.arrivals.get(place)
        return [list(one) for one in known.waiting] if known and not place.group else []

    def _forget(self, now_ms: int) -> None:
        """Topics that are gone from either side, once other readings have come without them for a minute."""
        if now_ms - self.seen_ms[""] > FORGET_MS or self.failures:
            return
        gone = {topic for topic, at_ms in self.seen_ms.items() if topic and now_ms - at_ms > FORGET_MS}
        for topic in gone:
            del self.seen_ms[topic]
        old = {place: now_ms - view.at_ms for place, view in self.views.items()}
        for place in [place for place in old if old[place] > (FORGET_GROUPS_MS if place.group else FORGET_MS)]:
            self.views.pop(place)
            self.arrivals.pop(place, None)


def _group_view(reading: Reading) -> View:
    source = reading.source_commit or 0
    # A group without a place there begins where it likes: nothing is known of it.
    target = -1 if reading.target_commit is None else reading.target_commit
    behind = max(0, source - max(0, target)) if reading.axis is Axis.EXACT else 0
    state = "paused" if reading.paused else "watched"
    return View(reading.place, reading.at_ms, source, target, behind, 0, reading.axis, state)
