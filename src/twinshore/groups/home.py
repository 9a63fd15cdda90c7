"""Where the groups of proxies' clients are at home, as the store keeps it: said to clusters that do not know it yet.

A cluster that was away while groups moved has an older line, and nobody but its clients would read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from twinshore.config.errors import KafkaError
from twinshore.config.frozen import GROUPS_HOME
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.routing.core.records import HomeLine, HomeLog
from twinshore.routing.topic import HomeNotes
from twinshore.state.core.values import Remembered
from twinshore.state.store import Store

KIND = "groups' home"
LOOK_S = 5.0


def remembered(store: Store) -> HomeLine | None:
    """The line that was said last; None where groups have never moved."""
    log = HomeLog()
    for row in store.memories.of(GROUPS_HOME, KIND):
        log.take(row.subject.encode(), row.value.encode())
    return log.homes.get(GROUPS_HOME)


def remember(store: Store, line: HomeLine) -> None:
    """Keeps the line, unless a later one is kept, or one that only a newer version can read."""
    before = remembered(store)
    if before is None or (not before.newer and before.word < line.word):
        key, value = line.line()
        row = Remembered(GROUPS_HOME, KIND, key.decode(), (value or b"").decode(), "", line.since_ms)
        store.memories.remember([row])


class HomeRelay:
    """Says the kept line to these clusters, once each time that another one is kept or `again` is called. Use it from
    one thread."""

    def __init__(self, store: Store, clusters: Iterable[KafkaCluster], log: Callable[[str], None]) -> None:
        self._store, self._log = store, log
        self._notes = {one.name: HomeNotes(one) for one in clusters}
        self._said: dict[str, HomeLine] = {}
        self._looked_s = float("-inf")

    def again(self) -> None:
        """A cluster was away, and may have an older line."""
        self._said.clear()

    def turn(self, now_s: float) -> None:
        """Looks every few seconds. A cluster that does not answer is asked again with the next look."""
        if now_s - self._looked_s < LOOK_S:
            return
        self._looked_s = now_s
        line = remembered(self._store)
        for name, notes in self._notes.items():
            if line is not None and not line.newer and self._said.get(name) != line:
                try:
                    self._say(name, notes, line)
                except KafkaError as error:
                    if not error.retriable:
                        raise
                    continue
                self._said[name] = line

    def _say(self, name: str, notes: HomeNotes, line: HomeLine) -> None:
        there = notes.read().get(GROUPS_HOME)
        if there is None or (not there.newer and there.word < line.word):
            notes.make()
            notes.say([line], wall_ms())
            self._log(f"{name} hears that groups are at home on {line.home}, in term {line.term}")
