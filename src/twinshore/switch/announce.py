"""Claims of topics in the store, and home records on the clusters.

In the store, topics are claimed so that no other switch moves them, released by the mirror that replicates them, and
freed at the end.

Home records tell subscribers, and processes without the store, where a topic's home is. Each goes to both homes, if
they answer. At promotion the new home comes first, since its record moves the topics. Records already in place are not
written again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf

from twinshore.config.errors import KafkaError, RefusedError
from twinshore.config.model import FIRST_TERM, Link
from twinshore.config.sentences import join_names
from twinshore.kafka.clock import steady_s, wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.replication.core.ownership import PAIR_SEPARATOR, find_home_row, pair_name
from twinshore.routing.core.home_records import (
    FORCED_SWITCH,
    PLANNED_SWITCH,
    HomeConflict,
    HomeRecord,
    HomeState,
    current_home,
    homes_place,
)
from twinshore.routing.core.subscribers import HomeSubscriber, SubscriberLog
from twinshore.routing.homes_topic import HomesTopic, SubscribersTopic
from twinshore.state.core.values import HomeChange, HomeRow, MirrorRequest, TopicInSwitch
from twinshore.state.store import Store
from twinshore.switch.core.steps import (
    HOLDS,
    StepDone,
    StepFailed,
    StepOutcome,
    StepPending,
    SwitchKind,
    SwitchState,
    TopicMove,
)
from twinshore.switch.write_access import release_topics

ID_SHOWN = 8


def claim_topics(store: Store, state: SwitchState, names: Collection[str] | None = None) -> tuple[TopicInSwitch, ...]:
    """Claims the topics, or `names` instead. Returns conflicting claims of other switches."""
    pair, now_ms = pair_name(Link(state.old, state.new)), wall_ms()
    rows = [
        TopicInSwitch(pair, name, state.id, state.carrier, MirrorRequest.ANNOUNCED, now_ms)
        for name in (state.names() if names is None else names)
    ]
    ours = store.topics_in_switch.begin(rows)
    return tuple(row for row in {*ours, *_near(store, pair, [row.topic for row in rows])} if row.switch_id != state.id)


def _near(store: Store, pair: str, names: Collection[str]) -> list[TopicInSwitch]:
    """Returns claims of these topics by switches from or to either cluster of the pair."""
    clusters = set(pair.split(PAIR_SEPARATOR))
    found = store.topics_in_switch.everywhere(names)
    return [row for row in found if clusters.intersection(row.pair.split(PAIR_SEPARATOR))]


def read_homes(store: Store, link: Link, topics: Collection[str]) -> dict[str, HomeRow]:
    rows: dict[str, list[HomeRow]] = {}
    for row in store.homes.everywhere(topics):
        rows.setdefault(row.topic, []).append(row)
    found = {topic: find_home_row(pair_name(link), some) for topic, some in rows.items()}
    return {topic: row for topic, row in found.items() if row is not None}


def describe_other_claims(others: Sequence[TopicInSwitch]) -> str:
    topics = join_names([row.topic for row in others])
    return f"topic {topics} is in another switch already ({others[0].switch_id[:ID_SHOWN]})" if others else ""


def refuse_claimed_topics(store: Store, pair: str, names: Collection[str]) -> RefusedError | None:
    """Returns the error for a plan if a switch has claimed any of these names."""
    rows = _near(store, pair, names)
    if not rows:
        return None
    topics = join_names([row.topic for row in rows])
    return RefusedError("switch.topics-claimed", topics=topics, switch=rows[0].switch_id[:ID_SHOWN])


def stop_replication(store: Store, state: SwitchState) -> StepOutcome:
    """Done once the mirror reports for each topic that it sends nothing more."""
    store.topics_in_switch.request(state.id, MirrorRequest.STOP_REPLICATION, wall_ms())
    rows = [row for row in store.topics_in_switch.of_link(state.carrier) if row.switch_id == state.id]
    if len(rows) < len(state.topics):
        return StepFailed("the topics are not in this switch any more: another process has ended it")
    if waits := [row.topic for row in rows if not row.stopped_ms]:
        return StepPending(f"the mirror of {state.carrier} still replicates {join_names(waits)}")
    return StepDone(state)


def resume_replication(store: Store, state: SwitchState) -> None:
    """Lets the mirror continue; the topics stay claimed."""
    store.topics_in_switch.request(state.id, MirrorRequest.ANNOUNCED, wall_ms())


def release_claims(store: Store, state: SwitchState, clusters: Sequence[KafkaCluster], now_ms: int) -> StepDone:
    """Frees the claims in the store and on these clusters. `now_ms`: by the clock of `SwitchState`."""
    store.topics_in_switch.end(state.id)  # first: a home that is silent must not keep the next switch waiting
    return StepDone(state, release_topics(state, clusters, store, now_ms))


AnnouncedHome = HomeRecord | HomeConflict | None
HOLD_MARGIN_S = 3.0  # the write of the new home's record has arrived by then, or is given up


class HomeAnnouncer:
    """Announces the homes of one switch between these two clusters."""

    def __init__(self, old: KafkaCluster, new: KafkaCluster) -> None:
        self._old, self._new = old, new
        self._terms: dict[str, int] = {}
        self._homes_topics = {
            cluster.name: HomesTopic(cluster, lambda topic: self._terms.get(topic, 0)) for cluster in (old, new)
        }
        self._followers = SubscriberLog()
        self._hearing = {cluster.name: SubscribersTopic(cluster, self._followers) for cluster in (old, new)}
        self._held_until_s = -inf
        self.left_out: KafkaCluster | None = None  # does not answer, and gets no announcements for now

    def say(self, state: SwitchState, home_state: HomeState) -> SwitchState:
        """Announces or holds each topic, in the current term. Every record that holds is new: a subscriber is held for
        the full time from when it reads the record.
        """
        began_s = steady_s()
        homes = self._told(state)
        self.require_claims(state)
        records = [self._next(state, move, homes[move.topic], home_state) for move in state.topics]
        for cluster in self.heard(state):
            self._write(cluster, records)
        if home_state is HomeState.HELD:
            self._held_until_s = began_s + state.hold_ms / 1000
        return replace(state, said=state.step)

    def holds(self, margin_s: float = 0.0) -> bool:
        """Returns whether a hold by this process lasts for `margin_s` at every subscriber. Subscribers count from when
        they read the record, this process from before the write.
        """
        return steady_s() + margin_s < self._held_until_s

    def has_promoted(self, state: SwitchState) -> bool:
        there = self._homes_topics[self._new.name].read()
        _must_be_read(self._new, there, state)
        return any(
            record.term > move.term and (record.switch, record.home) == (state.id, state.new)
            for move in state.topics
            if (record := there.get(move.topic))
        )

    def flip(self, state: SwitchState, flips: Sequence[HomeChange]) -> SwitchState:
        """Writes the new homes, first on the new home, where this moves the topics. An unreachable old home is told
        later. Raises KafkaError, and writes nothing, if a hold might expire first.
        """
        cluster_id = self._new.cluster_id()
        records = [_flipped(state, change, cluster_id) for change in flips]
        self._write(self._new, records, partial(self._must_hold, state) if state.kind in HOLDS else None)
        if self._old in self.heard(state):
            with suppress(KafkaError):
                self._write(self._old, records)
        return replace(state, said=state.step)

    def announce_to_old_home(self, state: SwitchState) -> None:
        there = self._homes_topics[self._new.name].read()
        _must_be_read(self._new, there, state)
        self._write(self._old, [there[topic] for topic in state.names() if topic in there])

    def awaited(self, state: SwitchState, *, parked: bool) -> tuple[str, ...]:
        """Returns subscribers that have not read the last record of a topic they write, or (`parked`) still write."""
        told = self._told(state)
        words = {topic: one.word for topic, one in told.items() if isinstance(one, HomeRecord)}
        for cluster in self.heard(state):
            self._hearing[cluster.name].read()
        now_s = time.monotonic()
        if parked:
            waits = set[HomeSubscriber]().union(*self._followers.awaited(words, now_s).values())
        else:
            waits = {
                subscriber
                for subscriber in self._followers.living(now_s)
                for topic, word in words.items()
                if subscriber.writes(topic) and subscriber.heard.get(topic, (0, 0)) < word
            }
        return tuple(sorted(subscriber.name or subscriber.id for subscriber in waits))

    def followed(self, state: SwitchState) -> frozenset[str]:
        for cluster in self.heard(state):
            self._hearing[cluster.name].read()
        living = self._followers.living(time.monotonic())
        return frozenset(topic for topic in state.names() if any(subscriber.writes(topic) for subscriber in living))

    def claim(self, state: SwitchState) -> str:
        """Why a topic is another switch's by what the clusters say; empty once all are this one's."""
        self._told(state)  # nothing is claimed of a topic whose home is unknown
        for cluster in self.heard(state):
            self._hearing[cluster.name].make()
            if why := claim_on_cluster(cluster, self._homes_topics[cluster.name], state):
                return why
        for topic, there in self._told(state).items():
            if isinstance(there, HomeRecord) and (why := _elsewhere(state, there)):
                return f"topic {topic} {why}"
        return ""

    def tell(self, state: SwitchState) -> str:
        """Writes the current home records to both clusters, for a home that was down. Returns why that is impossible,
        or an empty string.
        """
        told = self._told(state)
        if clashes := [topic for topic, one in told.items() if isinstance(one, HomeConflict)]:
            return f"the clusters do not agree where topic {clashes[0]} is at home"
        records = [one for one in told.values() if isinstance(one, HomeRecord)]
        for cluster in self.heard(state):
            self._write(cluster, records)
        return ""

    def require_claims(self, state: SwitchState) -> None:
        """Raises RefusedError if a claim is gone: a stalled process must not hold writers after another has rolled the
        switch back. A rollback frees the claims, and of two records of one step the first in the log wins.
        """
        for cluster in self.heard(state):
            self._homes_topics[cluster.name].read()
            self._require_claims(state, cluster)

    def _require_claims(self, state: SwitchState, cluster: KafkaCluster) -> None:
        for topic in state.names():
            claim = self._homes_topics[cluster.name].log.holder(topic)
            if claim is None or claim.switch != state.id:
                raise RefusedError("switch.claim-lost", topic=topic, cluster=cluster.name)

    def heard(self, state: SwitchState) -> list[KafkaCluster]:
        """Returns the clusters to announce on; a forced switch leaves the old home out."""
        both = [self._new] if state.kind is SwitchKind.FORCED else [self._old, self._new]
        return [cluster for cluster in both if cluster is not self.left_out]

    def _told(self, state: SwitchState) -> dict[str, AnnouncedHome]:
        self._terms = {move.topic: move.term for move in state.topics}
        logs = []
        for cluster in self.heard(state):
            logs.append(self._homes_topics[cluster.name].read())
            _must_be_read(cluster, logs[-1], state)
        return {topic: current_home([log.get(topic) for log in logs]) for topic in state.names()}

    def _next(self, state: SwitchState, move: TopicMove, there: AnnouncedHome, home_state: HomeState) -> HomeRecord:
        """Returns the home record to write; the current one if that already says so."""
        term, held = max(move.term, FIRST_TERM), home_state is HomeState.HELD
        if isinstance(there, HomeConflict):
            there = there.one  # a later record resolves the conflict
        if there is not None and (there.term > term or (there.term == term and not self._is_old(there, state))):
            raise RefusedError("switch.store-behind", topic=move.topic, home=there.home, term=there.term)
        hold_ms = state.hold_ms if held else 0
        if there is None or there.term != term:
            return HomeRecord(
                topic=move.topic,
                home=state.old,
                cluster_id=self._old.cluster_id(),
                term=term,
                state=home_state,
                switch=state.id,
                since_ms=wall_ms(),
                set_by=state.by,
                hold_ms=hold_ms,
            )
        if (there.state, there.switch) == (home_state, state.id) and not held:
            return there
        # Keep what a store needs that was down when the topic came to this home.
        step = there.step + 1
        return replace(there, step=step, state=home_state, switch=state.id, set_by=state.by, hold_ms=hold_ms)

    def _is_old(self, there: HomeRecord, state: SwitchState) -> bool:
        """The writer of the record may use another name for the cluster."""
        return there.home == state.old or there.cluster_id == self._old.cluster_id()

    def _must_hold(self, state: SwitchState) -> None:
        """Checks right before the append: if this process stalled, another may have ended the switch, and a clock may
        have stalled too.
        """
        self._require_claims(state, self._new)
        if not self.holds(HOLD_MARGIN_S):
            raise KafkaError("the hold would run out before the new home has the topics", retriable=True)

    def _write(self, cluster: KafkaCluster, lines: Sequence[HomeRecord], may: Callable[[], None] | None = None) -> None:
        homes_topic = self._homes_topics[cluster.name]
        homes_topic.say(lines, wall_ms(), may)
        if lost := [record.topic for record in lines if not homes_topic.log.is_current(record)]:
            raise KafkaError(f"{cluster.name}: another process changed the home of {lost[0]} just now", retriable=True)


def _must_be_read(cluster: KafkaCluster, records: Mapping[str, HomeRecord], state: SwitchState) -> None:
    """Raises RefusedError if the home of a topic of the switch is unknown."""
    for topic in state.names():
        if (there := records.get(topic)) is not None and there.newer:
            raise RefusedError("routing.newer-home", topic=topic, version=there.newer, place=homes_place(cluster.name))


def claim_on_cluster(cluster: KafkaCluster, homes_topic: HomesTopic, state: SwitchState) -> str:
    """Returns why another switch has one of the topics, or an empty string."""
    homes_topic.make()
    for topic, claim in homes_topic.claim(state.names(), state.id, state.by, wall_ms()).items():
        if claim.switch != state.id:
            return f"topic {topic} is in switch {claim.switch[:8]} of {claim.by}, as {cluster.name} says"
    return ""


def _elsewhere(state: SwitchState, there: HomeRecord) -> str:
    """Returns why the topic's home is newer than the plan of this switch, or an empty string."""
    (term,) = (move.term for move in state.topics if move.topic == there.topic)
    if there.term <= max(term, FIRST_TERM) or there.switch == state.id:
        return ""
    where = f"is at home on {there.home} in term {there.term} by now, as the clusters say"
    return f"{where}: the store is behind, and a mirror that runs updates it"


def _flipped(state: SwitchState, change: HomeChange, cluster_id: str) -> HomeRecord:
    return HomeRecord(
        topic=change.topic,
        home=change.home,
        cluster_id=cluster_id,
        term=change.term,
        switch=state.id,
        source=state.old,
        since_ms=change.since_ms,
        set_by=change.set_by,
        pair=change.pair,
        link=change.link,
        back=change.back,
        source_topic_id=change.source_topic_id,
        target_topic_id=change.target_topic_id,
        points=change.points,
        how=PLANNED_SWITCH if state.kind in HOLDS else FORCED_SWITCH,
    )
