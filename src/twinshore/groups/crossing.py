"""How far the topics of a link have crossed: by the ends that both clusters tell now, and by the store's receipts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from twinshore.fleet import Link, NamedPartition
from twinshore.groups.scope import Scope
from twinshore.groups.translation import ByExtents
from twinshore.kafka.cluster import KafkaCluster, OffsetKind
from twinshore.kafka.errors import Code
from twinshore.links.filters import admits
from twinshore.wire.group_places import Where


class LinkCrossing:
    """`link` and `scope` give what holds now; `receipted`: how far each partition has crossed, by the store."""

    def __init__(
        self,
        source: KafkaCluster,
        target: KafkaCluster,
        link: Callable[[], Link],
        scope: Callable[[], Scope],
        receipted: Callable[[], Mapping[Where, int]],
    ) -> None:
        self._source, self._target = source, target
        self._link, self._scope, self._receipted = link, scope, receipted
        self._ids: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def scope(self) -> Scope:
        return self._scope()

    def topics(self) -> Mapping[str, int]:
        """Also those that are hidden from this user, or that nobody answers for, as far as they are known."""
        seen = self._source.metadata(None, refresh=True).topics
        found = {name: one for name, one in seen.items() if not one.error and admits(self._link(), name)}
        counts = {name: len(one.partitions) for name, one in found.items()}
        for topic, number in self._scope().parts:
            self._counts[topic] = max(self._counts.get(topic, 0), number + 1)
        unseen = sorted(name for name in self._counts.keys() - counts.keys() if admits(self._link(), name))
        # A list leaves out what one may not see; of a name it is said.
        asked = self._source.metadata(unseen, refresh=True).topics if unseen else {}
        for name in unseen:
            if name in asked and asked[name].error == Code.UNKNOWN_TOPIC_OR_PARTITION:
                del self._counts[name]
            else:
                counts[name] = self._counts[name]
        self._counts |= counts
        self._ids |= {name: one.topic_id.hex() for name, one in found.items()}
        self._ids = {name: one for name, one in self._ids.items() if name in counts}
        return counts

    def ends(self, parts: Sequence[Where]) -> dict[Where, int]:
        # The end of the log, not the high watermark: what is written is to be waited for, replicated or not.
        return _ends(self._source, {where: where for where in parts}, OffsetKind.LOG_END)

    def crossed(self, parts: Sequence[Where]) -> dict[Where, int]:
        scope = self._scope()
        same = {topic for topic, _, source_id, _ in scope.names if self._ids.get(topic) == source_id}
        kept = [where for where in parts if where in scope.parts and where[0] in same]
        exact = {where: scope.parts[where][0] for where in kept if not isinstance(scope.parts[where][1], ByExtents)}
        receipted = self._receipted()
        found = {where: receipted.get(where, 0) for where in kept if where not in exact}
        # Nothing below the last stable offset waits for the end of a transaction. What lies beyond our receipts is
        # somebody else's.
        ends = _ends(self._target, exact, OffsetKind.LAST_STABLE)
        return found | {where: min(end, receipted.get(where, 0)) for where, end in ends.items()}


def _ends(cluster: KafkaCluster, parts: Mapping[Where, Where], which: OffsetKind) -> dict[Where, int]:
    """By each name, the end of the log that is called as its value there."""
    named = {NamedPartition(*there): where for where, there in parts.items()}
    found, _ = cluster.offsets_of_each(list(named), which) if named else ({}, {})
    return {named[one]: end for one, end in found.items()}
