"""Announces the home of proxy clients' groups to clusters that lack the record. A cluster that was down while groups
moved has an older one, which only its clients would read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from twinshore.config.errors import KafkaError
from twinshore.config.frozen import GROUPS_HOME
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.routing.core.home_records import HomeLog, HomeRecord
from twinshore.routing.homes_topic import HomesTopic
from twinshore.state.core.values import LinkStateRow
from twinshore.state.store import Store

log = logging.getLogger(__name__)

GROUPS_HOME_KIND = "groups' home"
CHECK_INTERVAL_S = 5.0


def load_home(store: Store) -> HomeRecord | None:
    """Returns the last home record; None if groups have never moved."""
    log = HomeLog()
    for row in store.link_states.of(GROUPS_HOME, GROUPS_HOME_KIND):
        log.take(row.subject.encode(), row.value.encode())
    return log.homes.get(GROUPS_HOME)


def save_home(store: Store, line: HomeRecord) -> None:
    """Saves the record unless a later one is saved, or one that only a newer version can read."""
    before = load_home(store)
    if before is None or (not before.newer and before.word < line.word):
        key, value = line.line()
        row = LinkStateRow(GROUPS_HOME, GROUPS_HOME_KIND, key.decode(), (value or b"").decode(), "", line.since_ms)
        store.link_states.remember([row])


class GroupsHomeAnnouncer:
    """Writes the saved record to these clusters, once for each new record or call of `again`. Use from one thread."""

    def __init__(self, store: Store, clusters: Iterable[KafkaCluster]) -> None:
        self._store = store
        self._notes = {one.name: HomesTopic(one) for one in clusters}
        self._said: dict[str, HomeRecord] = {}
        self._looked_s = float("-inf")

    def again(self) -> None:
        """Call after an outage: the cluster may have an older record."""
        self._said.clear()

    def turn(self, now_s: float) -> None:
        """Checks every few seconds. A silent cluster is retried at the next check."""
        if now_s - self._looked_s < CHECK_INTERVAL_S:
            return
        self._looked_s = now_s
        line = load_home(self._store)
        for name, notes in self._notes.items():
            if line is not None and not line.newer and self._said.get(name) != line:
                try:
                    self._say(name, notes, line)
                except KafkaError as error:
                    if not error.retriable:
                        raise
                    continue
                self._said[name] = line

    def _say(self, name: str, notes: HomesTopic, line: HomeRecord) -> None:
        there = notes.read().get(GROUPS_HOME)
        if there is None or (not there.newer and there.word < line.word):
            notes.make()
            notes.say([line], wall_ms())
            heard = f"{name} hears that groups are at home on {line.home}, in term {line.term}"
            log.info(heard, extra={"cluster": name})
