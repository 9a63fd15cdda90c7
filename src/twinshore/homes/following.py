"""What a client must do by the home lines it has read: write there, or park. Pure: lines and times in, orders out.

A client reads the lines of the clusters that it knows and takes the highest word that it ever heard. It says on those
clusters that it follows (`follower_lines`), and writes only while that holds: for a lease since it last said so, and
since it last read, counted from before it asked. Whoever reaches no cluster for as long parks. After a lapse it says so
first and reads then: so either it hears of a switch that holds the topic, or that switch sees it.

A hold is a lease: it counts for `hold_ms` from when the client heard it. It ends by the first reading that was asked
for after that and finds no higher word. The topic is at home then where the line says.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from twinshore.homes.follower_lines import Follower, covered
from twinshore.homes.home_lines import Clash, HomeLine, HomeState, Word, stands

LEASE_S = 5.0
SAY_AGAIN_S = 1.0
POLL_S = 1.0
SWITCH_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Write:
    """To the topic on this cluster, where it is at home in this term; 0: no line tells of it."""

    cluster: str
    term: int


@dataclass(frozen=True, slots=True)
class Park:
    """Write nothing, and wait until nothing is on its way; then say so. `switch` is the one that wants it, if any."""

    switch: str
    why: str


Order = Write | Park
Told = HomeLine | Clash | None


def order(told: Told, clusters: Mapping[str, str], begin: str) -> Order:
    """What a topic's lines order. `clusters`: those that the client knows, names by cluster id. `begin`: where topics
    are written of which no line tells."""
    match told:
        case None:
            return Write(begin, 0)
        case Clash():
            homes = f"{told.one.home} and {told.other.home}"
            return Park("", f"topic {told.one.topic}: clusters say different things in one word: {homes}")
        case HomeLine(state=HomeState.HELD):
            return Park(told.switch, f"topic {told.topic} is held by a switch")
    name = clusters.get(told.cluster_id)
    if name is None:
        return Park(told.switch, f"topic {told.topic} is at home on {told.home}, which this client has not met")
    return Write(name, told.term)


def poll_s(told: Iterable[Told]) -> float:
    """How soon the lines are read again: often while a switch is under way."""
    quiet = all(one is None or (isinstance(one, HomeLine) and one.state is HomeState.SETTLED) for one in told)
    return POLL_S if quiet else SWITCH_POLL_S


class Following:
    """One client of `topics` (names, or beginnings with a `*`). Times are its own monotonic clock's. `told`: what it
    has heard before, as of other clusters; a lower word counts no more."""

    def __init__(
        self,
        follower_id: str,
        name: str,
        topics: Iterable[str],
        begin: str,
        lease_s: float = LEASE_S,
        told: Mapping[str, HomeLine | Clash] | None = None,
    ) -> None:
        self._id, self._name, self._topics = follower_id, name, tuple(topics)
        self._begin, self._lease_s = begin, lease_s
        self._clusters: dict[str, str] = {}
        self._told = {topic: one for topic, one in (told or {}).items() if covered(topic, self._topics)}
        self._parked: dict[str, Word] = {}
        self._holds: dict[str, tuple[Word, float]] = {}  # the last held word, and until when it counts
        self._busy: tuple[str, ...] = ()
        self._read_s = self._said_s = self._visible_s = -math.inf
        self._last: dict[str, tuple[tuple[dict[str, Word], frozenset[str]], float]] = {}
        self._number = 0

    def met(self, cluster: str, cluster_id: str) -> None:
        """The cluster that the client calls so has this id, and no other one any more."""
        self._clusters = {known: name for known, name in self._clusters.items() if name != cluster}
        self._clusters[cluster_id] = cluster

    def told(self) -> Mapping[str, HomeLine | Clash]:
        """All that it has heard."""
        return dict(self._told)

    def cluster_id(self, cluster: str) -> str:
        """Of the cluster that the client calls so; empty before it was met."""
        return next((known for known, name in self._clusters.items() if name == cluster), "")

    def read(self, lines: Mapping[str, HomeLine], asked_s: float, heard_s: float | None = None) -> None:
        """These lines stand on one of the clusters, which was asked then, and had answered by `heard_s`."""
        for topic, line in lines.items():
            if covered(topic, self._topics):
                before = self._told.get(topic)
                higher = stands([self._in_force(line), *_lines(before)])
                assert higher is not None
                self._told[topic] = higher
                if (
                    isinstance(higher, HomeLine)
                    and higher.hold_ms
                    and self._holds.get(topic, ((0, 0),))[0] < higher.word
                ):
                    self._holds[topic] = higher.word, (asked_s if heard_s is None else heard_s) + higher.hold_ms / 1000
        for topic, (word, until_s) in self._holds.items():
            if until_s <= asked_s:
                self._holds[topic] = word, -math.inf
                told = self._told[topic]
                self._told[topic] = self._in_force(told) if isinstance(told, HomeLine) else told
        self._read_s = max(self._read_s, asked_s)

    def _in_force(self, line: HomeLine) -> HomeLine:
        """The line, or what it leaves behind once its hold has run out here."""
        is_over = self._holds.get(line.topic) == (line.word, -math.inf)
        return replace(line, state=HomeState.SETTLED) if is_over else line

    def parked(self, topic: str) -> None:
        """Nothing is written to the topic, and nothing is on its way, since it was ordered to park."""
        told = self._told.get(topic)
        if isinstance(told, HomeLine) and told.state is HomeState.HELD:
            self._parked[topic] = told.word

    def busy(self, groups: Iterable[str]) -> None:
        """Of these groups there are members who have not gathered."""
        self._busy = tuple(groups)

    def held(self) -> frozenset[str]:
        """Topics that a switch holds, and of which was not said yet that nothing is on its way."""
        lines = [one for one in self._told.values() if isinstance(one, HomeLine)]
        return frozenset(one.topic for one in lines if one.state is HomeState.HELD) - self._state()[1]

    def says(self) -> Follower:
        """What it has to say now, in a line of its own."""
        self._number += 1
        heard, parked = self._state()
        lease_ms = int(self._lease_s * 1000)
        return Follower(self._id, self._name, self._topics, heard, parked, lease_ms, self._number, self._busy)

    def _state(self) -> tuple[dict[str, Word], frozenset[str]]:
        open_words = {
            topic: told.word
            for topic, told in self._told.items()
            if isinstance(told, HomeLine) and told.state is not HomeState.SETTLED
        }
        self._parked = {topic: word for topic, word in self._parked.items() if open_words.get(topic) == word}
        return open_words, frozenset(self._parked)

    def must_say(self, cluster: str, now_s: float) -> bool:
        """Whether it is time to say it there: news, or a second has passed."""
        last, said_s = self._last.get(cluster, (({}, frozenset()), -math.inf))
        return self._state() != last or now_s >= said_s + SAY_AGAIN_S

    def said(self, cluster: str, what: Follower, asked_s: float, done_s: float) -> None:
        """That cluster has it: asked then, answered by now."""
        if done_s >= self._said_s + self._lease_s:
            self._visible_s = done_s
        self._last[cluster] = (dict(what.heard), what.parked), asked_s
        self._said_s = max(self._said_s, asked_s)

    def order(self, topic: str, now_s: float) -> Order:
        """What must be done with the topic now."""
        told = self._told.get(topic)
        if now_s >= self.until_s():
            switch = told.switch if isinstance(told, HomeLine) else ""
            return Park(switch, "no cluster was read, or told that this client follows, for as long as its lease")
        return order(told, self._clusters, self._begin)

    def heard(self, topic: str) -> Order:
        """Where the topic is at home as far as was heard, though that may be a while ago: for whoever reads, and so can
        do no harm where it is at home no more."""
        if self._read_s == -math.inf:
            return Park("", "no cluster was read yet")
        return order(self._told.get(topic), self._clusters, self._begin)

    def line(self, topic: str) -> HomeLine | None:
        """What stands of the topic; None where nothing does, or clusters disagree."""
        told = self._told.get(topic)
        return told if isinstance(told, HomeLine) else None

    def term(self, topic: str) -> int:
        """The highest that it has heard of the topic; 0 where it has heard of none."""
        return max((one.term for one in _lines(self._told.get(topic))), default=0)

    def until_s(self) -> float:
        """How long what it was ordered holds at most; it holds nothing before it was read behind what was said."""
        if self._read_s <= self._visible_s:
            return -math.inf
        return min(self._read_s, self._said_s) + self._lease_s

    def poll_s(self) -> float:
        return poll_s(self._told.values())


def _lines(told: Told) -> tuple[HomeLine, ...]:
    match told:
        case None:
            return ()
        case Clash():
            return told.one, told.other
        case _:
            return (told,)
