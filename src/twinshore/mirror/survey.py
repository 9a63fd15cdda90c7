"""Both clusters as the planner wants to see them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from twinshore.fleet import Link, NamedPartition
from twinshore.kafka.admin import Setting
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.questions import OffsetKind
from twinshore.mirror.plan import KnownTwin, SourceTopic, Step, TargetTopic, admits, plan_topic
from twinshore.store import Store


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
        """The steps for these topics as both clusters are now."""
        source = self.source_topics(names)
        target = self.target_topics(self._link.twin_of(name) for name in names)
        brokers = self.target_brokers()
        steps: list[Step] = []
        for topic in source:
            twin = target.get(self._link.twin_of(topic.name))
            steps += plan_topic(self._link, topic, twin, known.get(topic.name), target_brokers=brokers)
        return steps

    def source_topics(self, names: Iterable[str]) -> list[SourceTopic]:
        """Everything the planner needs to know of these."""
        wanted = sorted(names)
        seen = self._source.metadata(wanted, refresh=True).topics
        wanted = [name for name in wanted if name in seen and not seen[name].error]
        settings = self._source.admin.topic_settings(wanted)
        parts = [NamedPartition(name, number) for name in wanted for number in range(len(seen[name].partitions))]
        starts = self._source.list_offsets(parts, OffsetKind.EARLIEST)
        return [
            SourceTopic(
                name,
                seen[name].topic_id.hex(),
                max((len(partition.replicas) for partition in seen[name].partitions), default=1),
                tuple(starts[NamedPartition(name, number)] for number in range(len(seen[name].partitions))),
                _values(settings[name]),
            )
            for name in wanted
        ]

    def target_topics(self, names: Iterable[str]) -> dict[str, TargetTopic]:
        """Those of these topics that exist on the target, by what they are called there."""
        wanted = sorted(names)
        seen = self._target.metadata(wanted, refresh=True).topics
        wanted = [name for name in wanted if name in seen and not seen[name].error]
        settings = self._target.admin.topic_settings(wanted)
        parts = [NamedPartition(name, number) for name in wanted for number in range(len(seen[name].partitions))]
        starts = self._target.list_offsets(parts, OffsetKind.EARLIEST)
        ends = self._target.list_offsets(parts, OffsetKind.LOG_END)
        found = {}
        for name in wanted:
            ours = [NamedPartition(name, number) for number in range(len(seen[name].partitions))]
            spans = tuple((starts[named], ends[named]) for named in ours)
            found[name] = TargetTopic(name, seen[name].topic_id.hex(), spans, _values(settings[name]))
        return found


def known_twins(store: Store, link: Link) -> dict[str, KnownTwin]:
    """What the store remembers of each topic's twin."""
    mapped = {topic for topic, _ in store.reached(link.name)}
    return {
        row.topic: KnownTwin(row.source_topic_id, row.target_topic_id, row.topic in mapped)
        for row in store.twins(link.name)
    }


def _values(settings: dict[str, Setting]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, setting.value) for name, setting in settings.items() if setting.value is not None))
