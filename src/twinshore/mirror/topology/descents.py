"""One link's knowledge of where topics came from: what is told on its source, and what it tells on its target.

Each target holds `twinshore.twins`, a compacted topic with a line for each twin on it. A twin is announced there before
it is made and named by its topic id afterwards, so that whoever sees the twin can already read what it is, whichever
mirror made it and wherever that keeps its store. Topic settings cannot say it (Kafka takes no unknown ones), record
headers must not be touched, and a name says nothing surely. Where the rights for that topic are missing, the link's own
store knows the twins that its own mirror made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from twinshore.fleet import KafkaError, Link
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.notes import Notebook
from twinshore.mirror.link_notes import JOURNAL_SETTINGS
from twinshore.mirror.plan import TWINS_TOPIC, CarryTopic, Create
from twinshore.mirror.topology.provenance import ORIGINAL, Descent, Hop, descent_of, why_it_stays
from twinshore.store import Store

Seen = dict[str, tuple[str, int]]


class Descents:
    """`log` hears once of each topic that stays, and of rights that are missing."""

    def __init__(
        self,
        link: Link,
        links: Sequence[Link],
        store: Store,
        source: KafkaCluster,
        target: KafkaCluster,
        log: Callable[[str], None],
    ) -> None:
        self._link, self._links, self._store = link, links, store
        self._source, self._target = source, target
        self._log = log
        self._journals = {side: Notebook(cluster, TWINS_TOPIC) for side, cluster in self._sides()}
        self._read_to = dict.fromkeys(self._journals, 0)
        self._told: dict[str, dict[str, Descent]] = {side: {} for side in self._journals}
        self._judged: dict[tuple[str, str], str] = {}
        self._descents: dict[str, Descent] = {}
        self._blind: set[str] = set()
        self.staying: dict[str, str] = {}

    def _sides(self) -> tuple[tuple[str, KafkaCluster], ...]:
        return ("source", self._source), ("target", self._target)

    def admitted(self, names: Seen) -> Seen:
        """Those of the source's topics that the link may carry on."""
        fresh = {name: seen for name, seen in names.items() if (name, seen[0]) not in self._judged}
        if fresh:
            self._judge(fresh)
        return {name: seen for name, seen in names.items() if not self._judged[name, seen[0]]}

    def announce(self, steps: Iterable[Create]) -> None:
        """Before twins are made."""
        self._tell({step.twin or step.topic: self._onward(step.topic, "") for step in steps})

    def declare(self, steps: Iterable[CarryTopic]) -> None:
        """Once twins have topic ids; what stands there already is not told again."""
        twins = {step.twin or step.topic: self._onward(step.topic, step.target_topic_id) for step in steps}
        if twins:
            self._read("target")
            known = self._told["target"]
            self._tell({name: descent for name, descent in twins.items() if known.get(name) != descent})

    def _onward(self, topic: str, topic_id: str) -> Descent:
        hop = Hop(self._source.cluster_id(), self._link.source)
        return self._descents.get(topic, ORIGINAL).onward(hop, topic_id)

    def _judge(self, fresh: Seen) -> None:
        told = self._own_twins()
        self._read("source")
        target_id = self._target.cluster_id()
        for name, (topic_id, _) in fresh.items():
            descent = descent_of(name, topic_id, self._told["source"])
            if not descent.path:
                descent = told.get(topic_id, ORIGINAL)
            self._descents[name] = descent
            reason = why_it_stays(self._link, name, descent, target_id)
            self._judged[name, topic_id] = reason
            if reason:
                self.staying[name] = reason
                self._log(f"{self._link.name}: {reason}")
            else:
                self.staying.pop(name, None)

    def _own_twins(self) -> dict[str, Descent]:
        """Twins on the source that this store knows, by topic id."""
        origins: dict[tuple[str, str], tuple[Hop, str]] = {}
        for link in self._links:
            identity = self._store.link_identity(link.name)
            for row in self._store.twins(link.name) if identity else ():
                assert identity is not None
                hop = Hop(identity.source_cluster_id, link.source)
                origins[identity.target_cluster_id, row.target_topic_id] = (hop, row.source_topic_id)
        found = {}
        here = self._source.cluster_id()
        for cluster_id, topic_id in origins:
            if cluster_id == here:
                found[topic_id] = Descent(topic_id, _path(origins, cluster_id, topic_id))
        return found

    def _read(self, side: str) -> None:
        journal, cluster = self._journals[side], dict(self._sides())[side]
        try:
            if not journal.exists():
                return
            notes, self._read_to[side] = journal.read(self._read_to[side])
        except KafkaError as error:
            self._missing(error, f"what is a twin on {cluster.name} is known from the store alone")
            return
        told = self._told[side]
        for note in notes:
            name = (note.key or b"").decode("utf-8", "replace")
            descent = Descent.from_json(note.value) if note.value else None
            if descent:
                told[name] = descent
            else:
                told.pop(name, None)

    def _tell(self, twins: dict[str, Descent]) -> None:
        if not twins:
            return
        journal = self._journals["target"]
        try:
            if not journal.exists():
                journal.make(JOURNAL_SETTINGS, lasting=True)
            lines = [(name.encode(), descent.to_json(self._link.name)) for name, descent in twins.items()]
            journal.append(lines, int(time.time() * 1000))
        except KafkaError as error:
            self._missing(
                error, f"mirrors with other stores do not see that its twins on {self._target.name} are twins"
            )

    def _missing(self, error: KafkaError, what: str) -> None:
        if error.retriable:
            raise error
        if what not in self._blind:
            self._blind.add(what)
            self._log(f"{self._link.name}: {what}: {error.message} (try: {error.hint})")


def _path(origins: dict[tuple[str, str], tuple[Hop, str]], cluster_id: str, topic_id: str) -> tuple[Hop, ...]:
    path: list[Hop] = []
    place = (cluster_id, topic_id)
    while place in origins and len(path) <= len(origins):
        hop, topic_id = origins[place]
        path.append(hop)
        place = (hop.cluster_id, topic_id)
    return tuple(reversed(path))
