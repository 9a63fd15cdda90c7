"""What becomes of each known topic: both clusters are looked at, and `lifecycle` decides. Nothing is changed here.

The follower does what is decided, `mirror plan` says it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from twinshore.fleet import Link, is_heartbeats
from twinshore.kafka.cluster import KafkaCluster
from twinshore.links.standing import standing
from twinshore.mirror.follow import lifecycle
from twinshore.mirror.follow.acts import Act, AskSpans
from twinshore.mirror.follow.hands import now_ms
from twinshore.mirror.follow.last_resort import objection, too_many
from twinshore.mirror.follow.lifecycle import Memory, Presence, SeenTopic, TopicLook, TopicRules
from twinshore.mirror.follow.memories import memories_of
from twinshore.mirror.follow.reading import sides, spans
from twinshore.mirror.follow.safety_now import SafetyNow
from twinshore.store import Store, TwinRow


class Judged(NamedTuple):
    """A topic as it was seen, what is remembered of it, and what holds for it now."""

    look: TopicLook
    memory: Memory
    rules: TopicRules

    @property
    def is_plain(self) -> bool:
        """Whether both sides are what the store knows, and of one shape, and nothing is remembered of an end."""
        seen = self.look
        ids = (seen.source.topic_id, seen.target.topic_id)
        same = ids == (seen.known_source_id, seen.known_target_id)
        return same and seen.target.partitions <= seen.source.partitions and self.memory == Memory()


class Judging:
    """One thread's. `links`: all of the settings. `link` gives names and policies, which no operator's word changes;
    what operators said is asked of the store at each look and each deletion."""

    def __init__(
        self,
        link: Link,
        source: KafkaCluster,
        target: KafkaCluster,
        store: Store,
        *,
        links: Sequence[Link],
        safety: SafetyNow,
    ) -> None:
        self._link, self._source, self._target, self._store = link, source, target, store
        self._links, self._safety = links, safety
        self._missed: dict[str, int] = {}

    def look(self, doubted: Collection[str] = ()) -> dict[str, Judged]:
        """Every topic that has, or had, a twin. `doubted`: where a pump stopped."""
        known: dict[str, TwinRow] = {}
        for row in self._store.twins.of(self._link.name):
            known.setdefault(row.topic, row)
        # The target first: a topic that grows in between must not look as if its twin had grown.
        target = sides(self._target, [self._link.twin_of(topic) for topic in known])
        source = sides(self._source, known)
        looks = [
            self._one(row, source[topic], target[self._link.twin_of(topic)], doubted=topic in doubted)
            for topic, row in known.items()
        ]
        return self._judged(looks)

    def objections(self, topics: Sequence[str]) -> dict[str, str]:
        """Why nothing may delete the twins of these topics, as settings and operators say at this moment."""
        if not topics:
            return {}
        now = standing(self._links, self._store)[self._link.name]
        kept = {row.subject for row in self._store.memories.of(self._link.name, lifecycle.KEEP)}
        never = self._safety.against()
        return {topic: objection(now.link, topic, never=never, kept=kept, troubles=now.troubles) for topic in topics}

    def decide(self, one: Judged, at_ms: int) -> list[Act]:
        """What is to be done at this moment; the target is asked what the twin holds where that matters."""
        look, memory, rules = one
        acts = lifecycle.decide(look, memory, rules, None, at_ms)
        if AskSpans(look.topic) not in acts:
            return acts
        held = spans(self._target, look.topic, look.twin, look.target, self._store.receipts.positions(self._link.name))
        return lifecycle.decide(look, memory, rules, held, at_ms)

    def _one(self, row: TwinRow, source: SeenTopic, target: SeenTopic, *, doubted: bool) -> TopicLook:
        topic = row.topic
        missed = self._missed.get(topic, 0) + 1 if source.presence is Presence.GONE else 0
        self._missed[topic] = missed
        twin = self._link.twin_of(topic)
        return TopicLook(topic, twin, row.source_topic_id, row.target_topic_id, source, target, missed, doubted)

    def _judged(self, looks: Sequence[TopicLook]) -> dict[str, Judged]:
        memories = memories_of(self._store.memories.of(self._link.name))
        mapped = {topic for topic, _ in self._store.extents.reached(self._link.name)}
        against = self.objections([look.topic for look in looks if lifecycle.is_lost(look)])
        found = {}
        for look in looks:
            rules = TopicRules(self._link.follow, against.get(look.topic, ""))
            one = look, memories.get(look.topic, Memory()), rules
            found[look.topic] = Judged(*(lifecycle.for_mapped(*one) if look.topic in mapped else one))
        ours = [one for topic, one in found.items() if not is_heartbeats(topic)]
        waiting = sum(lifecycle.would_delete(*one, now_ms()) for one in ours)
        lost = sum(lifecycle.is_lost(one.look) for one in ours)
        many = too_many(waiting, lost, len(ours), self._safety.known.deletions_at_once_max)
        if not many:
            return found
        return {topic: one._replace(rules=replace(one.rules, many=many)) for topic, one in found.items()}
