"""A source's groups, some held back until the output of their consumers is replicated."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Mapping, Sequence
from typing import NamedTuple, Protocol

from twinshore.config.errors import KafkaError
from twinshore.config.model import Link, TopicPartition
from twinshore.config.sections.links import unmatched_outputs
from twinshore.config.sentences import join_names
from twinshore.groups.cluster_groups import GroupsByCoordinator, OffsetReader
from twinshore.groups.core import commit_rules
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.offsets import GroupOffsets, TopicPartitionTuple
from twinshore.replication.core.filters import admits

# The awaited ends are read again after this: a source can lose records.
ENDS_REFRESH_INTERVAL_S = 30.0
NAMES_SHOWN_MAX = 3
NOT_REPLICATED = "that has not crossed"
UNKNOWN_END = "the source does not say where that ends"
NO_TWIN = "the link keeps no twin of that now, or its leader does not answer"


class OutputWait(NamedTuple):
    """`in_vain`: replication alone will not end the wait."""

    since_s: float
    words: str
    in_vain: bool


class OutputReplication(Protocol):
    def scope(self) -> commit_rules.SyncScope:
        """Returns the current twins."""

    def topics(self) -> Mapping[str, int]:
        """Returns the partition counts of source topics that the link may replicate; 0 if the topic's home is
        elsewhere, so that its records need no replication.
        """

    def ends(self, parts: Sequence[TopicPartitionTuple]) -> dict[TopicPartitionTuple, int]:
        """Returns current log ends on the source; without those that cannot be read."""

    def crossed(self, parts: Sequence[TopicPartitionTuple]) -> dict[TopicPartitionTuple, int]:
        """Returns how far each partition with a twin is replicated, by the twin's end and the progress."""


class OutputAwareGroups:
    """Wraps `reader`, and holds back offsets of some groups. Use from one thread. `waiting`: since when each group
    waits, and why. `unmatched`: patterns of the rules that matched no topic.
    """

    def __init__(
        self,
        reader: OffsetReader,
        rules: commit_rules.OutputRules,
        crossing: OutputReplication,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reader, self._rules, self._crossing, self._clock = reader, rules, crossing, clock
        self.waiting: dict[str, OutputWait] = {}
        self.unmatched: dict[str, str] = {}
        self._scope = commit_rules.EMPTY_SCOPE
        self._bound: dict[str, bool] = {}
        self._raw: dict[str, GroupOffsets] = {}
        self._taken: dict[str, GroupOffsets] = {}
        self._moments: dict[str, commit_rules.OffsetSnapshot] = {}
        self._released: dict[str, GroupOffsets] = {}
        self._given: dict[str, GroupOffsets] = {}

    @property
    def name(self) -> str:
        return self._reader.name

    def places(
        self, wanted: GroupsByCoordinator, known: Mapping[str, GroupOffsets]
    ) -> tuple[dict[str, GroupOffsets], dict[int, KafkaError]]:
        """A group that waits for its output gets earlier offsets; without any, the group is left out."""
        if not self._rules:
            return self._reader.places(wanted, known)
        self._forget({name for groups in wanted.values() for name in groups})
        self._rescope(self._crossing.scope())
        # The offsets of a waiting group differ from the released ones.
        said_before = {name: said for name, said in known.items() if not self._is_bound(name)} | self._raw
        found, away = self._reader.places(wanted, said_before)
        bound = {name: said for name, said in found.items() if not said.error and self._is_bound(name)}
        self._raw.update(bound)
        now_s = self._clock()
        try:
            self._take({name: said for name, said in bound.items() if name not in self._moments}, now_s)
            self._look(now_s)
        except KafkaError as error:
            # Groups without output go on.
            for name in self._moments.keys() | (bound.keys() - self._taken.keys()):
                since_s = self.waiting[name].since_s if name in self.waiting else now_s
                self.waiting[name] = OutputWait(since_s, f"its places wait: {error.message}", in_vain=False)
        free = {name: said for name, said in found.items() if name not in bound}
        known_now = {name: self._known(said) for name, said in bound.items() if name in self._released}
        return free | known_now, away

    def lag_of(self, group: str) -> int:
        """Returns by how many records released offsets lag the group's own. Offsets never released do not count: where
        the target would begin is unknown.
        """
        raw, given = self._raw.get(group), self._given.get(group)
        if raw is None or given is None:
            return 0
        both = raw.places.keys() & given.places.keys()
        return sum(max(0, raw.places[where].offset - given.places[where].offset) for where in both)

    def _forget(self, names: set[str]) -> None:
        self._bound = {name: bound for name, bound in self._bound.items() if name in names}
        for kept in (self._raw, self._taken, self._moments, self._released, self._given, self.waiting):
            for name in kept.keys() - names:
                del kept[name]

    def _rescope(self, scope: commit_rules.SyncScope) -> None:
        """Drops released and waiting offsets of groups in topics that came or went: others may have moved these groups.
        They are released again once their current output is replicated.
        """
        topics = commit_rules.added_topics(self._scope, scope) | commit_rules.added_topics(scope, self._scope)
        self._scope = scope
        said = (self._raw, self._taken, self._released) if topics else ()
        names = {name for some in said for name, one in some.items() if any(topic in topics for topic, _ in one.places)}
        for kept in (self._taken, self._moments, self._released, self._given, self.waiting):
            for name in names & kept.keys():
                del kept[name]

    def _is_bound(self, group: str) -> bool:
        known = self._bound.get(group)
        if known is None:
            known = self._bound[group] = bool(commit_rules.output_patterns(self._rules, group))
        return known

    def _take(self, groups: Mapping[str, GroupOffsets], now_s: float) -> None:
        new = {name: said for name, said in groups.items() if self._taken.get(name) is not said}
        if not new:
            return
        topics = self._crossing.topics()
        self.unmatched = dict(unmatched_outputs(self._rules, topics.keys()))
        written = {name: commit_rules.output_topics(self._rules, name, topics) for name in new}
        every = {topic for some in written.values() for topic in some}
        parts = [(topic, number) for topic in sorted(every) for number in range(topics[topic])]
        ends = self._crossing.ends(parts) if parts else {}
        for name, said in new.items():
            ours = [(topic, number) for topic in written[name] for number in range(topics[topic])]
            mute = [where for where in ours if where not in ends]
            if mute:
                self._waits(name, mute, UNKNOWN_END, now_s)
                continue
            self._taken[name] = said
            # An empty log needs no wait.
            self._moments[name] = commit_rules.OffsetSnapshot(
                said, {where: ends[where] for where in ours if ends[where]}, now_s
            )

    def _look(self, now_s: float) -> None:
        old = {name: one for name, one in self._moments.items() if now_s - one.asked_s >= ENDS_REFRESH_INTERVAL_S}
        if old:
            topics = self._crossing.topics()
            parts = sorted({where for one in old.values() for where in one.ends})
            there = {where for where in parts if where[1] < topics.get(where[0], 0)}
            ends = self._crossing.ends(sorted(there)) if there else {}
            self._moments |= {
                name: commit_rules.lower_ends(one, {**one.ends, **ends}, there, now_s) for name, one in old.items()
            }
        parts = sorted({where for one in self._moments.values() for where in one.ends})
        crossed = self._crossing.crossed(parts) if parts else {}
        for name, moment in list(self._moments.items()):
            left = self._moments[name] = commit_rules.drop_replicated(moment, crossed)
            if left.ends:
                without = [where for where in left.ends if where not in crossed]
                why = NO_TWIN if without else NOT_REPLICATED
                self._waits(name, without or list(left.ends), why, now_s, in_vain=bool(without))
            else:
                self._released[name] = moment.said
                del self._moments[name]
                self.waiting.pop(name, None)

    def _known(self, said: GroupOffsets) -> GroupOffsets:
        released = self._released[said.group]
        places = commit_rules.releasable_offsets(released, said)
        if places != released.places:
            # A group that was reset writes its output again, so its offset rises only with that.
            self._released[said.group] = released._replace(places=places)
        given = self._given.get(said.group)
        if given is None or given.places != places:
            given = self._given[said.group] = GroupOffsets(said.group, 0, places, said.failed, said.raw)
        return given

    def _waits(
        self, name: str, parts: Sequence[TopicPartitionTuple], why: str, now_s: float, *, in_vain: bool = True
    ) -> None:
        since_s = self.waiting[name].since_s if name in self.waiting else now_s
        topics = join_names(sorted({topic for topic, _ in parts}), NAMES_SHOWN_MAX)
        self.waiting[name] = OutputWait(
            since_s, f"its places wait for what its readers wrote to {topics}: {why}", in_vain
        )


class LinkOutputReplication:
    """By the log ends of both clusters and the stored progress. `link` and `scope` return current values. `receipted`:
    progress by partition. `elsewhere`: topics whose home is the target.
    """

    def __init__(
        self,
        source: KafkaCluster,
        target: KafkaCluster,
        link: Callable[[], Link],
        scope: Callable[[], commit_rules.SyncScope],
        receipted: Callable[[], Mapping[TopicPartitionTuple, int]],
        elsewhere: Callable[[], Container[str]] = frozenset,
    ) -> None:
        self._source, self._target = source, target
        self._link, self._scope, self._receipted, self._elsewhere = link, scope, receipted, elsewhere
        self._ids: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def scope(self) -> commit_rules.SyncScope:
        return self._scope()

    def topics(self) -> Mapping[str, int]:
        """Includes known topics that are hidden from this user, or that do not answer."""
        topics = self._source.metadata(None, refresh=True).topics
        found = {name: topic for name, topic in topics.items() if not topic.error and admits(self._link(), name)}
        counts = {name: len(topic.partitions) for name, topic in found.items()}
        for topic, number in self._scope().parts:
            self._counts[topic] = max(self._counts.get(topic, 0), number + 1)
        unseen = sorted(name for name in self._counts.keys() - counts.keys() if admits(self._link(), name))
        # A listing leaves out hidden topics; a request by name reports them.
        asked = self._source.metadata(unseen, refresh=True).topics if unseen else {}
        for name in unseen:
            if name in asked and asked[name].error == Code.unknown_topic_or_partition:
                del self._counts[name]
            else:
                counts[name] = self._counts[name]
        self._counts |= counts
        self._ids |= {name: topic.topic_id.hex() for name, topic in found.items()}
        self._ids = {name: one for name, one in self._ids.items() if name in counts}
        away = self._elsewhere()
        return {name: 0 if name in away else count for name, count in counts.items()}

    def ends(self, parts: Sequence[TopicPartitionTuple]) -> dict[TopicPartitionTuple, int]:
        # The log end, not the high watermark: wait for all written records, on all replicas or not.
        return _ends(self._source, {where: where for where in parts}, OffsetKind.LOG_END)

    def crossed(self, parts: Sequence[TopicPartitionTuple]) -> dict[TopicPartitionTuple, int]:
        scope = self._scope()
        same = {topic for topic, _, source_id, _ in scope.names if self._ids.get(topic) == source_id}
        kept = [where for where in parts if where in scope.parts and where[0] in same]
        exact = {
            where: scope.parts[where][0]
            for where in kept
            if not isinstance(scope.parts[where][1], commit_rules.RunTranslation)
        }
        receipted = self._receipted()
        found = {where: receipted.get(where, 0) for where in kept if where not in exact}
        # Nothing below the last stable offset waits for the end of a transaction. Records past the link's progress
        # are foreign.
        ends = _ends(self._target, exact, OffsetKind.LAST_STABLE)
        return found | {where: min(end, receipted.get(where, 0)) for where, end in ends.items()}


def _ends(
    cluster: KafkaCluster, parts: Mapping[TopicPartitionTuple, TopicPartitionTuple], kind: OffsetKind
) -> dict[TopicPartitionTuple, int]:
    """`parts` maps each key of the result to its name on that cluster."""
    named = {TopicPartition(*there): where for where, there in parts.items()}
    found, _ = cluster.offsets_of_each(list(named), kind) if named else ({}, {})
    return {named[partition]: end for partition, end in found.items()}
