"""One link's knowledge of where topics are at home: rows of the store, and those that it adds where the home is plain.

Two links of a pair may look at the same moment and see different things, as records are written in between. Each adds
what it saw; the store keeps the first row, and both read what stands.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence

from twinshore.fleet import Link, NamedPartition, Naming
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.errors import Code
from twinshore.kafka.questions import OffsetKind
from twinshore.links import homes
from twinshore.links.homes import Birth, Held
from twinshore.links.in_force import in_force
from twinshore.mirror.planned import CarryTopic, Refuse
from twinshore.mirror.topology.descents import Descents, Seen
from twinshore.mirror.topology.yielding import Yielding
from twinshore.service.clock import wall_ms
from twinshore.store import HomeRow, IncidentKind, Store


class Homing:
    """`link` gives the link as it holds now. After `admitted`: `elsewhere` are topics at home on another cluster,
    `homeless` those that have no home yet, each with a sentence; `refused` those that an operator must decide, and of
    these `doubted` those of which the clusters say something else than the store.
    `notes`: whether homes that are plain are written down, and those that the clusters say are taken up."""

    def __init__(
        self,
        link: Callable[[], Link],
        links: Sequence[Link],
        store: Store,
        source: KafkaCluster,
        target: KafkaCluster,
        descents: Descents,
        log: Callable[[str], None],
        *,
        notes: bool = True,
    ) -> None:
        self._now, self._links, self._store = link, links, store
        self._source, self._target, self._descents = source, target, descents
        self._log, self._notes = log, notes
        self._pair = homes.pair_of(link())
        self._yielding = Yielding(link, store, source, target, log)
        self._version, self._rows = -1, dict[str, HomeRow]()
        self._said: dict[str, str] = {}
        self.elsewhere: dict[str, str] = {}
        self.homeless: dict[str, str] = {}
        self.doubted: dict[str, str] = {}
        self.refused: dict[str, Refuse] = {}

    @property
    def at_home(self) -> dict[str, HomeRow]:
        """The topics that are known to be at home on the link's source."""
        return {topic: row for topic, row in self._rows.items() if row.home == self._now().source}

    def take_up_switches(self) -> None:
        """Those that were made while the store was dead."""
        self._yielding.take_up_switches()

    def say_first_words(self, topics: Iterable[str]) -> None:
        """On the target, of topics that the link carries."""
        self._yielding.say_first_words(topics, self._descents.is_twin)

    def admitted(self, names: Seen) -> Seen:
        """Those of the source's topics that the link may carry."""
        link = self._now()
        if link.naming is not Naming.SAME:
            return self._descents.admitted(names)
        doubts = self._yielding.look() if self._notes else {}
        self._read()
        found = self._descents.admitted(names, homes.brought(link, self._rows))
        self.homeless, self.doubted = {}, {name: why for name, why in doubts.items() if name in names}
        self.refused = {
            name: Refuse(name, IncidentKind.HOME_UNDECIDED, why, homes.hint_for(name, link))
            for name, why in self.doubted.items()
        }
        found = {name: seen for name, seen in found.items() if name not in self.doubted}
        self._decide(link, self._undecided(link, found))
        away = {name: row for name, row in homes.elsewhere(link, self._rows).items() if name in names}
        self._ask_for_strays(link, {name: row for name, row in away.items() if name in found})
        self.elsewhere = {
            name: homes.at_home_in_words(name, row, link) for name, row in away.items() if name not in self.refused
        }
        self._tell()
        left = self.elsewhere.keys() | self.homeless.keys() | self.refused.keys()
        return {name: seen for name, seen in found.items() if name not in left}

    def kept(self, steps: Sequence[CarryTopic], known: Container[str]) -> list[CarryTopic]:
        """The steps of topics that are at home on the source still, now that the twins of all are remembered. Whoever
        moves a home looks for twins behind it: of two at once, one sees the other. `known`: twins of before."""
        link = self._now()
        if link.naming is not Naming.SAME or not steps:
            return list(steps)
        gone = homes.elsewhere(link, self._store.homes.now(self._pair, {step.topic for step in steps}))
        for topic in gone:
            self._log(f"{link.name}: {homes.at_home_in_words(topic, gone[topic], link)} now")
            if topic not in known:
                self._store.forget_topic(link.name, topic)
        return [step for step in steps if step.topic not in gone]

    def _read(self) -> None:
        version = self._store.homes.version(self._pair)
        if version != self._version:
            self._rows, self._version = self._store.homes.of(self._pair), version

    def _undecided(self, link: Link, names: Iterable[str]) -> list[str]:
        """Topics that the link the other way admits too, and that have no home."""
        back = homes.counterpart(link, self._links)
        if back is None:
            return []
        both = (back, in_force(back, self._store.controls.of(back.name)).link)
        return [name for name in names if name not in self._rows and homes.shares(name, *both)]

    def _decide(self, link: Link, names: Collection[str]) -> None:
        if not names:
            return
        ours, theirs = (
            {row.topic for row in self._store.twins.carried(name)}
            for name in (link.name, f"{link.target}->{link.source}")
        )
        open_yet = [name for name in names if name not in ours and name not in theirs]
        source, target = (written(cluster, open_yet) for cluster in (self._source, self._target))
        found = {
            name: homes.born(link, Held(source.get(name), target.get(name), name in ours, name in theirs))
            for name in names
        }
        settled = {name: birth for name, birth in found.items() if birth.home}
        self._settle(link, settled)
        for name, birth in found.items():
            sentence = homes.in_words(link, name, birth)
            if birth.contested:
                kind = IncidentKind.HOME_UNDECIDED
                self.refused[name] = Refuse(name, kind, sentence, homes.hint_for(name, link))
            elif not birth.home:
                self.homeless[name] = sentence

    def _ask_for_strays(self, link: Link, away: Mapping[str, HomeRow]) -> None:
        """`away`: topics at home on the target that are no twins here, as far as anybody knows."""
        source, target = (written(cluster, list(away)) for cluster in (self._source, self._target))
        for name, row in away.items():
            if homes.strayed(Held(source[name], target[name])):
                sentence, hint = homes.strayed_in_words(name, row, link), homes.hint_for(name, link)
                self.refused[name] = Refuse(name, IncidentKind.HOME_UNDECIDED, sentence, hint)

    def _settle(self, link: Link, settled: dict[str, Birth]) -> None:
        now_ms = wall_ms()
        rows = [HomeRow(self._pair, name, one.home, 1, now_ms, f"link {link.name}") for name, one in settled.items()]
        stands = self._store.homes.settle(rows) if self._notes and rows else {row.topic: row for row in rows}
        self._rows |= stands
        for name, row in stands.items():
            why = settled[name].why.value if row.home == settled[name].home else f"{row.set_by} was first to say so"
            self._log(f"{link.name}: topic {name} is at home on {row.home}: {why}")

    def _tell(self) -> None:
        """Once of each topic that the link leaves where it is."""
        said = self.elsewhere | self.homeless
        for name, sentence in said.items():
            if self._said.get(name) != sentence:
                self._log(f"{self._now().name}: {sentence}")
        self._said = said


def written(cluster: KafkaCluster, topics: Sequence[str]) -> dict[str, bool | None]:
    """Whether a record was ever written to each of these topics there, also where it is there no more; None where that
    cannot be told now. A topic that is not there holds none."""
    if not topics:
        return {}
    seen = cluster.metadata(sorted(topics), refresh=True).topics
    there = {name: topic for name, topic in seen.items() if not topic.error}
    parts = [NamedPartition(name, part.partition) for name, topic in there.items() for part in topic.partitions]
    ends, _ = cluster.offsets_of_each(parts, OffsetKind.LOG_END)
    found: dict[str, bool | None] = {}
    for name in topics:
        if name in there:
            ours = [ends.get(NamedPartition(name, part.partition)) for part in there[name].partitions]
            found[name] = True if any(ours) else None if None in ours or not ours else False
        else:
            absent = name in seen and seen[name].error == Code.UNKNOWN_TOPIC_OR_PARTITION
            found[name] = False if absent else None
    return found
