"""Both clusters as the planner wants to see them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from twinshore.fleet import KafkaError, Link, NamedPartition
from twinshore.kafka.admin import Setting
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.metadata import TopicMetadata
from twinshore.kafka.questions import OffsetKind
from twinshore.links.filters import admits
from twinshore.mirror.driver.plan import KnownTwin, SourceTopic, TargetTopic, plan_topic
from twinshore.mirror.lane.answers import RIGHTS
from twinshore.mirror.planned import Refuse, Step
from twinshore.store import IncidentKind, Store


@dataclass(frozen=True, slots=True)
class _Seen:
    """A topic of either cluster. `spans`: where each log begins and, on the target, ends; 0 where that is not known."""

    name: str
    topic: TopicMetadata
    spans: tuple[tuple[int, int], ...]
    settings: tuple[tuple[str, str], ...]


class Surveyor:
    """Asks about what is new; a topic that flows already is asked again only when it changed."""

    def __init__(self, link: Link, source: KafkaCluster, target: KafkaCluster) -> None:
        self._link = link
        self._source = source
        self._target = target

    def names(self) -> dict[str, tuple[str, int]]:
        """Topics of the source that the link admits: topic id and partitions."""
        seen = self._source.metadata(None, refresh=True)
        return {
            name: (topic.topic_id.hex(), len(topic.partitions))
            for name, topic in sorted(seen.topics.items())
            if not topic.error and not topic.internal and admits(self._link, name)
        }

    def target_brokers(self) -> int:
        return len(self._target.metadata([], refresh=True).brokers)

    def plan(self, names: Sequence[str], known: Mapping[str, KnownTwin]) -> list[Step]:
        """The steps for these topics as both clusters are now. One that cannot be looked at now is refused for now, and
        hinders no other; KafkaError where a cluster does not answer at all."""
        source, away = self._seen(self._source, names, known, IncidentKind.SOURCE_AWAY)
        called = {self._link.twin_of(name): name for name in names}
        twins = {twin: known[name] for twin, name in called.items() if name in known}
        target, mute = self._seen(self._target, called, twins, IncidentKind.TARGET_AWAY)
        refused = away | {called[twin]: why for twin, why in mute.items()}
        brokers = self.target_brokers()
        steps: list[Step] = [replace(why, topic=topic) for topic, why in sorted(refused.items())]
        for seen in source.values():
            if seen.name not in refused:
                topic, there = _as_source(seen), target.get(self._link.twin_of(seen.name))
                twin = _as_target(there) if there else None
                steps += plan_topic(self._link, topic, twin, known.get(topic.name), target_brokers=brokers)
        return steps

    def _seen(
        self, cluster: KafkaCluster, names: Iterable[str], known: Container[str], kind: IncidentKind
    ) -> tuple[dict[str, _Seen], dict[str, Refuse]]:
        """Those of these topics that are there, and why others of them cannot be told. Where the logs of a `known` twin
        begin and end is its pump's affair: a partition that has no leader does not hold its topic up."""
        there = {
            name: topic
            for name, topic in cluster.metadata(sorted(names), refresh=True).topics.items()
            if not topic.error
        }
        settings, hidden = cluster.admin.readable_settings(sorted(there))
        refused = {name: _refused(name, error, kind, f"topic {name}") for name, error in hidden.items()}
        parts = [NamedPartition(name, part.partition) for name in settings for part in there[name].partitions]
        starts, unled = cluster.offsets_of_each(parts, OffsetKind.EARLIEST)
        ends, mute = cluster.offsets_of_each(parts, OffsetKind.LOG_END) if cluster is self._target else (starts, {})
        for named, error in (unled | mute).items():
            if named.topic not in known:
                refused.setdefault(named.topic, _refused(named.topic, error, kind, str(named)))
        found = {}
        for name in sorted(settings.keys() - refused.keys()):
            ours = [NamedPartition(name, number) for number in range(len(there[name].partitions))]
            spans = tuple((starts.get(named, 0), ends.get(named, 0)) for named in ours)
            found[name] = _Seen(name, there[name], spans, _values(settings[name]))
        return found, refused


def known_twins(store: Store, link: Link) -> dict[str, KnownTwin]:
    """What the store remembers of each topic's twin."""
    mapped = {topic for topic, _ in store.extents.reached(link.name)}
    return {
        row.topic: KnownTwin(row.source_topic_id, row.target_topic_id, row.topic in mapped)
        for row in store.twins.of(link.name)
    }


def _as_source(seen: _Seen) -> SourceTopic:
    copies = max((len(partition.replicas) for partition in seen.topic.partitions), default=1)
    starts = tuple(start for start, _ in seen.spans)
    return SourceTopic(seen.name, seen.topic.topic_id.hex(), copies, starts, seen.settings)


def _as_target(seen: _Seen) -> TargetTopic:
    return TargetTopic(seen.name, seen.topic.topic_id.hex(), seen.spans, seen.settings)


def _refused(topic: str, error: KafkaError, kind: IncidentKind, place: str) -> Refuse:
    """For as long as it cannot be told: the next survey asks again. A leader that cannot be dialled says nothing of
    what it was to be asked for."""
    sentence = error.message if topic in error.message else f"{place}: {error.message}"
    if error.retriable:
        return Refuse(topic, kind, sentence, error.hint or "it goes on by itself once that is over")
    return Refuse(
        topic,
        IncidentKind.RIGHTS_LOST if error.code in RIGHTS else IncidentKind.REFUSED,
        sentence,
        error.hint,
        kind.side,
    )


def _values(settings: dict[str, Setting]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, setting.value) for name, setting in settings.items() if setting.value is not None))
