"""What clusters say of the home of groups, and who has heard it: read and written on both, by one who moves it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf

from twinshore.fleet import GROUPS_HOME, KafkaError, RefusedError, StoreError
from twinshore.fleet.terms import FIRST_TERM
from twinshore.groups.home_line import remember, remembered
from twinshore.homes.follower_lines import FollowerLog
from twinshore.homes.home_lines import Clash, HomeLine, HomeState, stands
from twinshore.homes.home_notes import FollowerNotes, HomeNotes
from twinshore.kafka.clock import steady_s, wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.store import Store

Told = HomeLine | Clash | None
# So many words a silent cluster may have heard.
UNHEARD_TERMS = 16
MARGIN_S = 3.0  # a request for the next word has landed by then, or is given up


class GroupWords:
    """On these clusters. `first`: where groups are at home before anybody has said anything.
    `store`: keeps where groups have moved."""

    def __init__(self, clusters: Sequence[KafkaCluster], first: str, store: Store | None = None) -> None:
        self._first, self._store = first, store
        self._clusters = {one.name: one for one in clusters}
        self._notes = {one.name: HomeNotes(one) for one in clusters}
        self._heard: set[str] = set()
        self._followers = FollowerLog()
        self._hearing = {one.name: FollowerNotes(one, self._followers) for one in clusters}
        self._held_until_s = inf

    def told(self) -> tuple[Told, dict[str, KafkaError]]:
        """What stands, and which clusters do not answer. What the store keeps counts where clusters are silent."""
        lines, silent = list[HomeLine | None](), dict[str, KafkaError]()
        with suppress(StoreError):
            lines.append(remembered(self._store) if self._store is not None else None)
        for name, notes in self._notes.items():
            try:
                lines.append(notes.read().get(GROUPS_HOME))
                self._heard.add(name)
            except KafkaError as error:
                silent[name] = error
        return stands(lines), silent

    def next(self, told: Told, state: HomeState, switch: str, by: str, hold_s: float = 0.0) -> HomeLine:
        """The next word of the home that stands. `hold_s`: proxies end by themselves what it asks for, so long after
        they heard it."""
        hold_ms = int(hold_s * 1000)
        now_ms = wall_ms()
        if isinstance(told, Clash):
            told = told.one  # a higher word ends the clash
        if told is None:
            home_id = self._clusters[self._first].cluster_id()
            return HomeLine(
                topic=GROUPS_HOME,
                home=self._first,
                cluster_id=home_id,
                term=FIRST_TERM,
                step=0,
                state=state,
                switch=switch,
                source="",
                since_ms=now_ms,
                set_by=by,
                hold_ms=hold_ms,
            )
        step = told.step + 1
        return replace(told, step=step, state=state, switch=switch, since_ms=now_ms, set_by=by, hold_ms=hold_ms)

    def moved(self, told: Told, to: str, switch: str, by: str) -> HomeLine:
        """The first word of the new home. Where it is the home that stands, a silent cluster may have heard of
        others, and this one counts more."""
        if isinstance(told, Clash):
            told = told.one
        term, source = (told.term, told.home) if told is not None else (FIRST_TERM, self._first)
        home_id = self._clusters[to].cluster_id()
        return HomeLine(
            topic=GROUPS_HOME,
            home=to,
            cluster_id=home_id,
            term=term + (1 if source != to else UNHEARD_TERMS),
            switch=switch,
            source=source,
            since_ms=wall_ms(),
            set_by=by,
        )

    def say(self, line: HomeLine, names: Sequence[str], may: Callable[[], None] | None = None) -> None:
        """On these clusters. RefusedError where somebody else has said something meanwhile. `may`: as `HomeNotes`."""
        began_s = steady_s()
        for name in names:
            notes = self._notes[name]
            notes.make()
            notes.say([line], wall_ms(), may)
            if not notes.log.won(line):
                raise RefusedError(
                    f"somebody else moves the groups at this very moment, as {name} says",
                    hint="`twinshore proxy groups` shows where they are",
                )
        self._held_until_s = began_s + line.hold_ms / 1000 if line.hold_ms else inf

    def must_hold(self) -> None:
        """RefusedError where a proxy may have ended by itself what the last word asked for. Proxies count from when
        they heard it, and this process from before it said so."""
        if steady_s() + MARGIN_S > self._held_until_s:
            raise RefusedError("it took too long: members go on where they were", hint="nothing has moved; try again")

    def move(self, line: HomeLine, to: str, names: Sequence[str]) -> None:
        """The new home first: once it is said there groups are there, whatever becomes of the rest. The mirror
        says it to clusters that are silent now, as the store keeps it."""
        self.say(line, [to], self.must_hold)
        if self._store is not None:
            remember(self._store, line)
        with suppress(KafkaError, RefusedError):
            self.say(line, [name for name in names if name != to])

    def lacking(self, told: HomeLine) -> list[str]:
        """Clusters that answered, and have another line."""
        return [
            name for name, notes in self._notes.items() if name in self._heard and notes.homes.get(GROUPS_HOME) != told
        ]

    def gathering(self, line: HomeLine) -> list[str]:
        """Groups with members who have not gathered since this word, and proxies that have not heard it; some."""
        self._hear()
        late = self._followers.gathering(GROUPS_HOME, line.word, steady_s())
        return sorted({name for one in late for name in one.busy or (one.name or one.id,)})

    def _hear(self) -> None:
        for hearing in self._hearing.values():
            if hearing.exists():
                hearing.read()

    def awaited(self, line: HomeLine) -> list[str]:
        """Proxies that may still commit places at the old home."""
        self._hear()
        waits: Mapping[str, Sequence[object]] = self._followers.awaited({GROUPS_HOME: line.word}, steady_s())
        return sorted(getattr(one, "name", "") or getattr(one, "id", "") for one in waits.get(GROUPS_HOME, ()))
