"""Claims of topics in the store, and home records on the clusters.

In the store, topics are claimed so that no other switch moves them, released by the mirror that replicates them, and
freed at the end.

Home records tell subscribers, and processes without the store, where a topic's home is. Each goes to both homes, if
they answer. At promotion the new home comes first, since its record moves the topics. Records already in place are not
written again.
"""

from __future__ import annotations

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
from twinshore.routing.core.subscribers import SubscriberLog
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

NAMED_MAX = 5
ID_SHOWN = 8


def claim_topics(store: Store, record: SwitchState, names: Collection[str] | None = None) -> tuple[TopicInSwitch, ...]:
    """Claims the topics, or `names` instead. Returns conflicting claims of other switches."""
    pair, now_ms = pair_name(Link(record.old, record.new)), wall_ms()
    rows = [
        TopicInSwitch(pair, name, record.id, record.carrier, MirrorRequest.ANNOUNCED, now_ms)
        for name in (record.names() if names is None else names)
    ]
    ours = store.topics_in_switch.begin(rows)
    return tuple(row for row in {*ours, *_near(store, pair, [row.topic for row in rows])} if row.switch_id != record.id)


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


def describe_other_claims(others: Collection[TopicInSwitch]) -> str:
    if not others:
        return ""
    topics = join_names([row.topic for row in others], NAMED_MAX)
    return f"topic {topics} is in another switch already ({next(iter(others)).switch_id[:ID_SHOWN]})"


def refuse_claimed_topics(store: Store, pair: str, names: Collection[str]) -> RefusedError | None:
    """Returns the error for a plan if a switch has claimed any of these names."""
    rows = _near(store, pair, names)
    if not rows:
        return None
    return RefusedError(
        "switch.topics-claimed",
        topics=join_names([row.topic for row in rows], NAMED_MAX),
        switch=rows[0].switch_id[:ID_SHOWN],
    )


def stop_replication(store: Store, record: SwitchState) -> StepOutcome:
    """Done once the mirror reports for each topic that it sends nothing more."""
    store.topics_in_switch.request(record.id, MirrorRequest.STOP_REPLICATION, wall_ms())
    rows = [row for row in store.topics_in_switch.of_link(record.carrier) if row.switch_id == record.id]
    if len(rows) < len(record.topics):
        return StepFailed("the topics are not in this switch any more: somebody else has ended it")
    if waits := [row.topic for row in rows if not row.stopped_ms]:
        return StepPending(f"the mirror of {record.carrier} still carries {join_names(waits, NAMED_MAX)}")
    return StepDone(record)


def resume_replication(store: Store, record: SwitchState) -> StepOutcome:
    """Lets the mirror continue; the topics stay claimed."""
    store.topics_in_switch.request(record.id, MirrorRequest.ANNOUNCED, wall_ms())
    return StepDone(record)


def release_claims(store: Store, record: SwitchState, clusters: Sequence[KafkaCluster], now_ms: int) -> StepDone:
    """Frees the claims in the store and on these clusters. `now_ms`: by the clock of `SwitchState`."""
    store.topics_in_switch.end(record.id)  # first: a home that is silent must not keep the next switch waiting
    return StepDone(record, release_topics(record, clusters, store, now_ms))


AnnouncedHome = HomeRecord | HomeConflict | None
HOLD_MARGIN_S = 3.0  # the write of the new home's record has arrived by then, or is given up


class HomeAnnouncer:
    """Announces the homes of one switch between these two clusters. `clock` is monotonic."""

    def __init__(self, old: KafkaCluster, new: KafkaCluster, clock: Callable[[], float]) -> None:
        self._old, self._new, self._clock = old, new, clock
        self._terms: dict[str, int] = {}
        self._notes = {
            cluster.name: HomesTopic(cluster, lambda topic: self._terms.get(topic, 0)) for cluster in (old, new)
        }
        self._followers = SubscriberLog()
        self._hearing = {cluster.name: SubscribersTopic(cluster, self._followers) for cluster in (old, new)}
        self._held_until_s = -inf
        self.left_out: KafkaCluster | None = None  # does not answer, and gets no announcements for now

    def say(self, record: SwitchState, state: HomeState) -> SwitchState:
        """Announces or holds each topic, in the current term. Every record that holds is new: a subscriber is held for
        the full time from when it reads the record.
        """
        began_s = steady_s()
        told = self._told(record)
        self.require_claims(record)
        lines = [self._next(record, one, told[one.topic], state) for one in record.topics]
        for cluster in self.heard(record):
            self._write(cluster, lines)
        if state is HomeState.HELD:
            self._held_until_s = began_s + record.hold_ms / 1000
        return replace(record, said=record.deed)

    def holds(self, margin_s: float = 0.0) -> bool:
        """Returns whether a hold by this process lasts for `margin_s` at every subscriber. Subscribers count from when
        they read the record, this process from before the write.
        """
        return steady_s() + margin_s < self._held_until_s

    def has_promoted(self, record: SwitchState) -> bool:
        there = self._notes[self._new.name].read()
        _must_be_read(self._new, there, record)
        return any(one.term > topic.term for topic in record.topics if (one := _by(there.get(topic.topic), record)))

    def flip(self, record: SwitchState, flips: Sequence[HomeChange]) -> SwitchState:
        """Writes the new homes, first on the new home, where this moves the topics. An unreachable old home is told
        later. Raises KafkaError, and writes nothing, if a hold might expire first.
        """
        cluster_id = self._new.cluster_id()
        lines = [_flipped(record, one, cluster_id) for one in flips]
        self._write(self._new, lines, partial(self._must_hold, record) if record.kind in HOLDS else None)
        if self._old in self.heard(record):
            with suppress(KafkaError):
                self._write(self._old, lines)
        return replace(record, said=record.deed)

    def announce_to_old_home(self, record: SwitchState) -> None:
        there = self._notes[self._new.name].read()
        _must_be_read(self._new, there, record)
        self._write(self._old, [there[topic] for topic in record.names() if topic in there])

    def awaited(self, record: SwitchState, *, parked: bool) -> tuple[str, ...]:
        """Returns subscribers that have not read the last record of a topic they write, or (`parked`) still write."""
        told = self._told(record)
        words = {topic: one.word for topic, one in told.items() if isinstance(one, HomeRecord)}
        for cluster in self.heard(record):
            self._hearing[cluster.name].read()
        now_s = self._clock()
        if parked:
            waits = {one for some in self._followers.awaited(words, now_s).values() for one in some}
        else:
            waits = {
                one
                for one in self._followers.living(now_s)
                for topic, word in words.items()
                if one.writes(topic) and one.heard.get(topic, (0, 0)) < word
            }
        return tuple(sorted(one.name or one.id for one in waits))

    def followed(self, record: SwitchState) -> frozenset[str]:
        for cluster in self.heard(record):
            self._hearing[cluster.name].read()
        living = self._followers.living(self._clock())
        return frozenset(topic for topic in record.names() if any(one.writes(topic) for one in living))

    def claim(self, record: SwitchState) -> str:
        """Why a topic is another switch's by what the clusters say; empty once all are this one's."""
        self._told(record)  # nothing is claimed of a topic whose home is unknown
        for cluster in self.heard(record):
            self._hearing[cluster.name].make()
            if why := claim_on_cluster(cluster, self._notes[cluster.name], record):
                return why
        for topic, there in self._told(record).items():
            if isinstance(there, HomeRecord) and (why := _elsewhere(record, there)):
                return f"topic {topic} {why}"
        return ""

    def tell(self, record: SwitchState) -> str:
        """Writes the current home records to both clusters, for a home that was down. Returns why that is impossible,
        or an empty string.
        """
        told = self._told(record)
        if clashes := [topic for topic, one in told.items() if isinstance(one, HomeConflict)]:
            return f"the clusters do not agree where topic {clashes[0]} is at home"
        lines = [one for one in told.values() if isinstance(one, HomeRecord)]
        for cluster in self.heard(record):
            self._write(cluster, lines)
        return ""

    def require_claims(self, record: SwitchState) -> None:
        """Raises RefusedError if a claim is gone: a stalled process must not hold writers after another has rolled the
        switch back. A rollback frees the claims, and of two records of one step the first in the log wins.
        """
        for cluster in self.heard(record):
            self._notes[cluster.name].read()
            for topic in record.names():
                holder = self._notes[cluster.name].log.holder(topic)
                if holder is None or holder.switch != record.id:
                    raise RefusedError("switch.claim-lost", topic=topic, cluster=cluster.name)

    def heard(self, record: SwitchState) -> list[KafkaCluster]:
        """Returns the clusters to announce on; a forced switch leaves the old home out."""
        both = [self._new] if record.kind is SwitchKind.FORCED else [self._old, self._new]
        return [one for one in both if one is not self.left_out]

    def _told(self, record: SwitchState) -> dict[str, AnnouncedHome]:
        self._terms = {one.topic: one.term for one in record.topics}
        logs = []
        for cluster in self.heard(record):
            logs.append(self._notes[cluster.name].read())
            _must_be_read(cluster, logs[-1], record)
        return {topic: current_home([log.get(topic) for log in logs]) for topic in record.names()}

    def _next(self, record: SwitchState, one: TopicMove, there: AnnouncedHome, state: HomeState) -> HomeRecord:
        """Returns the home record to write; the current one if that already says so."""
        term = max(one.term, FIRST_TERM)
        if isinstance(there, HomeConflict):
            there = there.one  # a later record resolves the conflict
        if there is not None and (there.term > term or (there.term == term and not self._is_old(there, record))):
            raise RefusedError("switch.store-behind", topic=one.topic, home=there.home, term=there.term)
        held = state is HomeState.HELD
        if there is not None and there.term == term and (there.state, there.switch) == (state, record.id) and not held:
            return there
        step = there.step + 1 if there is not None and there.term == term else 0
        lasts = record.hold_ms if held else 0
        if there is not None and there.term == term:
            # Keep what a store needs that was down when the topic came to this home.
            return replace(there, step=step, state=state, switch=record.id, set_by=record.by, hold_ms=lasts)
        return HomeRecord(
            topic=one.topic,
            home=record.old,
            cluster_id=self._old.cluster_id(),
            term=term,
            step=step,
            state=state,
            switch=record.id,
            since_ms=wall_ms(),
            set_by=record.by,
            hold_ms=lasts,
        )

    def _is_old(self, there: HomeRecord, record: SwitchState) -> bool:
        """The writer of the record may use another name for the cluster."""
        return there.home == record.old or there.cluster_id == self._old.cluster_id()

    def _must_hold(self, record: SwitchState) -> None:
        """Checks right before the append: if this process stalled, another may have ended the switch, and a clock may
        have stalled too.
        """
        log = self._notes[self._new.name].log
        for topic in record.names():
            holder = log.holder(topic)
            if holder is None or holder.switch != record.id:
                raise RefusedError("switch.claim-lost", topic=topic, cluster=self._new.name)
        if not self.holds(HOLD_MARGIN_S):
            raise KafkaError("the hold would run out before the new home has the topics", retriable=True)

    def _write(self, cluster: KafkaCluster, lines: Sequence[HomeRecord], may: Callable[[], None] | None = None) -> None:
        notes = self._notes[cluster.name]
        notes.say(lines, wall_ms(), may)
        lost = [line for line in lines if not notes.log.is_current(line)]
        if lost:
            raise KafkaError(
                f"{cluster.name}: somebody else spoke of the home of {lost[0].topic} at this very moment",
                retriable=True,
            )


def _must_be_read(cluster: KafkaCluster, lines: Mapping[str, HomeRecord], record: SwitchState) -> None:
    """Raises RefusedError if the home of a topic of the switch is unknown."""
    for topic in record.names():
        if (there := lines.get(topic)) is not None and there.newer:
            raise RefusedError("routing.newer-home", topic=topic, version=there.newer, place=homes_place(cluster.name))


def claim_on_cluster(cluster: KafkaCluster, notes: HomesTopic, record: SwitchState) -> str:
    """Returns why another switch has one of the topics, or an empty string."""
    notes.make()
    for topic, holder in notes.claim(record.names(), record.id, record.by, wall_ms()).items():
        if holder.switch != record.id:
            return f"topic {topic} is in switch {holder.switch[:8]} of {holder.by}, as {cluster.name} says"
    return ""


def _elsewhere(record: SwitchState, there: HomeRecord) -> str:
    """Returns why the topic's home is newer than the plan of this switch, or an empty string."""
    (term,) = (one.term for one in record.topics if one.topic == there.topic)
    if there.term <= max(term, FIRST_TERM) or there.switch == record.id:
        return ""
    return (
        f"is at home on {there.home} in term {there.term} by now, as the clusters say: the store is behind, and a "
        "mirror that runs takes it up"
    )


def _by(line: HomeRecord | None, record: SwitchState) -> HomeRecord | None:
    return line if line is not None and line.switch == record.id and line.home == record.new else None


def _flipped(record: SwitchState, one: HomeChange, cluster_id: str) -> HomeRecord:
    return HomeRecord(
        topic=one.topic,
        home=one.home,
        cluster_id=cluster_id,
        term=one.term,
        switch=record.id,
        source=record.old,
        since_ms=one.since_ms,
        set_by=one.set_by,
        pair=one.pair,
        link=one.link,
        back=one.back,
        source_topic_id=one.source_topic_id,
        target_topic_id=one.target_topic_id,
        points=one.points,
        how=PLANNED_SWITCH if record.kind in HOLDS else FORCED_SWITCH,
    )
