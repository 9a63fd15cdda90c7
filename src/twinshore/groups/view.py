"""Groups on both sides of a link, side by side (read-only), and an offset translator that uses the store alone."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from twinshore.config.errors import ConfigError, KafkaError
from twinshore.config.model import Link, TopicPartition, target_end
from twinshore.config.schema import did_you_mean
from twinshore.config.settings import Settings
from twinshore.groups import sync as offset_sync
from twinshore.groups.cluster_groups import OffsetClient
from twinshore.groups.core.commit_rules import (
    EXACT_TRANSLATION,
    NO_MEMORY,
    CommitRules,
    GroupSyncStatus,
    OffsetTranslation,
    SyncScope,
    TranslatedOffset,
    decide_commit,
)
from twinshore.groups.core.sync_state import describe_code
from twinshore.groups.sync import GroupSync, build_run_translation, parse_group_names
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.consumer_groups import (
    COORDINATOR_UNAVAILABLE_CODES,
    GroupCoordinators,
    GroupListing,
    GroupListings,
    group_by_coordinator,
)
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.offsets import CommittedOffset, TopicPartitionTuple
from twinshore.state.store import Store

ONLY_ON_TARGET = "only on the target"
PARTLY_ONLY_ON_TARGET = "partly only there"
NO_GROUP = "none"
AWAY_STATE = GroupSyncStatus.AWAY.value
# What the mirror would do, were it not refused.
STATUSES_TO_COMMIT = frozenset(
    {GroupSyncStatus.MOVES, GroupSyncStatus.BEHIND, GroupSyncStatus.SETTING_BACK, GroupSyncStatus.SET_BACK}
)


class UnavailableGroup(NamedTuple):
    """A group with unknown offsets: `state` is what to show, `why` the reason."""

    state: GroupSyncStatus
    why: str


class GroupsSnapshot(NamedTuple):
    """Groups on one side. `listed`: all groups there. `places`: offsets of the requested groups; empty for a group
    without any. `silent`: groups with unknown offsets.
    """

    listed: GroupListings
    places: Mapping[str, Mapping[TopicPartitionTuple, CommittedOffset]]
    silent: Mapping[str, UnavailableGroup]


def read_snapshot(side: OffsetClient, listed: GroupListings, names: Collection[str]) -> GroupsSnapshot:
    """Unlisted groups are asked for too: the coordinator may be down, or hide the group from this user."""
    known = {name: listed.groups[name] for name in sorted(names) if name in listed.groups}
    new = sorted(set(names) - known.keys())
    nodes, errors = side.located(new) if new else GroupCoordinators({}, {})
    nodes = {name: one.coordinator for name, one in known.items() if one.reads_by_offsets} | nodes
    found, away = side.places(group_by_coordinator(nodes), {})
    silent = {name: UnavailableGroup(GroupSyncStatus.REFUSED, str(error)) for name, error in errors.items()}
    silent |= {name: _away(side) for name in new if name not in nodes and name not in errors}
    places: dict[str, Mapping[TopicPartitionTuple, CommittedOffset]] = {}
    for name, node in nodes.items():
        offsets = found.get(name)
        if offsets is None or offsets.error in COORDINATOR_UNAVAILABLE_CODES:
            silent[name] = _away(side, None if offsets else away.get(node))
        elif Code.unstable_offset_commit in offsets.failed.values():
            why = f"an open transaction on {side.name} has sent offsets of it"
            silent[name] = UnavailableGroup(GroupSyncStatus.WAITS, why)
        elif offsets.error:
            why = f"cannot be read on {side.name}: {describe_code(offsets.error)}"
            silent[name] = UnavailableGroup(GroupSyncStatus.REFUSED, why)
        else:
            places[name] = offsets.places
    return GroupsSnapshot(listed, places, silent)


def _away(side: OffsetClient, error: KafkaError | None = None) -> UnavailableGroup:
    because = f" ({error.message})" if error is not None else ""
    why = f"its coordinator on {side.name} does not answer{because}: its committed offsets there are unknown"
    return UnavailableGroup(GroupSyncStatus.AWAY, why)


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition: source offset, its translation, target offset. None: none or unknown. `end`: log end of the twin;
    None if unknown. In a `back` view, `expected` is the target offset on the source, and `end` is that log's end.
    """

    topic: str
    partition: int
    source: int | None
    twin: str
    expected: int | None
    target: int | None
    state: str
    end: int | None = 0

    @property
    def behind(self) -> int | None:
        """Offsets that the target lags; negative: ahead."""
        return self.expected - self.target if self.expected is not None and self.target is not None else None


@dataclass(frozen=True, slots=True)
class GroupView:
    """`behind_s`: how long the offsets have differed, by the mirror's status; None without a status. `said_s_ago`: set
    if the source is down: age of `state` and `behind`. `why`: set if a side does not report the group; `missing` and
    `behind` are None then.
    """

    link: str
    group: str
    kind: str
    source_state: str
    target_state: str
    state: str
    behind: int | None
    missing: int | None
    behind_s: float | None
    parts: tuple[PartitionView, ...]
    said_s_ago: float | None = None
    why: str = ""


def view_groups(
    link: Link, settings: Settings, store: Store, pattern: str = ".*", *, stable: bool = False, back: bool = False
) -> list[GroupView]:
    """Returns every group whose whole name matches and that the link's filters admit, by name.

    If the source does not answer: the target's offsets, with the mirror's last status. `stable`: offsets that an open
    transaction is about to move count as unknown. `back`: translate target offsets to the source.
    """
    sync = GroupSync(link, settings, store, retention_s=1.0, stable=stable)
    wanted = re.compile(pattern)

    def admits(name: str) -> bool:
        return bool(wanted.fullmatch(name)) and sync.admits(name)

    try:
        gone = not _answers(sync.source)
        sync.begin(time.monotonic(), source_gone=gone)
        reading = GroupListings({}, {}) if gone else sync.source_groups.listed()
        writing = sync.target_groups.listed()
        known = {**reading.groups, **writing.groups}.values()
        names = {one.group for one in known if one.reads_by_offsets and admits(one.group)}
        here = GroupsSnapshot(reading, {}, {}) if gone else read_snapshot(sync.source_groups, reading, names)
        there = read_snapshot(sync.target_groups, writing, names)
        twins = {twin for twin, _ in sync.scope.parts.values()}
        named = {TopicPartition(*twin): twin for twin in twins} if here.places or there.places else {}
        found, _ = sync.target.offsets_of_each(named, OffsetKind.HIGH_WATERMARK)
        ends = {named[tp]: end for tp, end in found.items()}
        word = offset_sync.read_status(store, link.name, fresh=not gone)
        compared = (
            parse_group_names(store.link_states.of(link.name, offset_sync.COMPARED_KIND)) if gone else frozenset()
        )
        views = []
        for name in sorted(here.places.keys() | there.places.keys()):
            rules = sync.rules_for(name, *(side.places.get(name, {}) for side in (here, there)))
            view = _view(link.name, name, (here, there), sync.scope, ends, word, rules)
            if gone:
                state, behind = offset_sync.last_compared_status(word, compared, name)
                age_s = (wall_ms() - word["at_ms"]) / 1000 if word else None
                view = replace(
                    view, source_state=AWAY_STATE, state=state, behind=behind, behind_s=None, said_s_ago=age_s
                )
            elif back and not view.why:
                view = _back(view, sync.scope, sync.source)
            views.append(view)
        return [view for view in views if view.parts]
    finally:
        sync.close()


def _answers(cluster: KafkaCluster) -> bool:
    try:
        cluster.metadata([], refresh=True)
    except KafkaError as error:
        if not error.retriable:
            raise
        return False
    return True


def _view(
    link: str,
    name: str,
    sides: tuple[GroupsSnapshot, GroupsSnapshot],
    scope: SyncScope,
    ends: Mapping[TopicPartitionTuple, int],
    word: Mapping[str, Any],
    rules: CommitRules,
) -> GroupView:
    here, there = (side.listed.groups.get(name) for side in sides)
    source, target = (side.silent.get(name) for side in sides)
    silence = target or source
    places = [side.places.get(name, {}) for side in sides]
    own, refused = offset_sync.offsets_in(word, name)
    partitions = tuple(_parts(places[0], places[1], scope, ends, rules, own))
    if silence:
        # Only what the answering side reports is known.
        partitions = tuple(
            replace(tp, expected=None if tp.source is None else tp.expected, state=silence.state.value)
            for tp in partitions
        )
    else:
        waits = name in word.get("waits", ())
        partitions = tuple(_with_status(tp, refused, waits=waits) for tp in partitions)
    any_listing = here or there
    since_ms = word.get("differ", {}).get(name, [None, 0, None])[2]
    same = all(tp.state == GroupSyncStatus.SAME for tp in partitions)
    behind_s = None
    if word and not silence:
        behind_s = 0.0 if same or since_ms is None else max(0.0, (wall_ms() - since_ms) / 1000)
    live = there is not None and there.live and not same and not silence
    return GroupView(
        link,
        name,
        any_listing.kind if any_listing else NO_GROUP,
        _state_of(here, source),
        _state_of(there, target),
        GroupSyncStatus.LIVE.value if live else _worst(tp.state for tp in partitions),
        None if silence else sum(tp.behind or 0 for tp in partitions),
        None if silence else sum(tp.target is None for tp in partitions),
        behind_s,
        partitions,
        why=silence.why if silence else "",
    )


def _back(view: GroupView, scope: SyncScope, source: KafkaCluster) -> GroupView:
    """Translates target offsets to the source. Raises KafkaError if a log end is unknown."""
    named = {TopicPartition(tp.topic, tp.partition): tp for tp in view.parts}
    ends = source.list_offsets(named, OffsetKind.HIGH_WATERMARK) if named else {}
    partitions = []
    for where, tp in named.items():
        translation = scope.parts[tp.topic, tp.partition][1]
        spot = translation.back(tp.target) if tp.target is not None else None
        partitions.append(replace(tp, expected=spot.offset if spot else None, end=ends.get(where)))
    return replace(view, parts=tuple(partitions))


def _with_status(tp: PartitionView, refused: Collection[TopicPartitionTuple], *, waits: bool) -> PartitionView:
    """`refused`: offsets that the mirror failed to commit, and which do not move."""
    if (tp.topic, tp.partition) in refused and tp.state in STATUSES_TO_COMMIT:
        return replace(tp, state=GroupSyncStatus.REFUSED.value)
    return replace(tp, state=GroupSyncStatus.WAITS.value) if waits and tp.state == GroupSyncStatus.MOVES else tp


def _parts(
    here: Mapping[TopicPartitionTuple, CommittedOffset],
    there: Mapping[TopicPartitionTuple, CommittedOffset],
    scope: SyncScope,
    ends: Mapping[TopicPartitionTuple, int],
    rules: CommitRules,
    own: Collection[TopicPartitionTuple],
) -> Iterator[PartitionView]:
    for where, (twin, translation) in sorted(scope.parts.items(), key=lambda item: item[0]):
        place, has = here.get(where), there.get(twin)
        if place is None and has is None:
            continue
        target = has.offset if has else None
        if place is None:
            back = translation.back(has.offset) if has else None
            yield PartitionView(*where, None, twin[0], back.offset if back else None, target, ONLY_ON_TARGET)
            continue
        spot = translation.forward(place.offset)
        if spot is None:
            yield PartitionView(*where, place.offset, twin[0], None, target, GroupSyncStatus.UNKNOWN.value)
            continue
        end = ends.get(twin)
        if end is None:
            yield PartitionView(*where, place.offset, twin[0], spot.offset, target, AWAY_STATE, None)
            continue
        # Only the mirror's memory tells who set an offset without a mark.
        memory = NO_MEMORY._replace(own=where in own)
        state = decide_commit(place, spot, end, has, memory, rules).state
        yield PartitionView(*where, place.offset, twin[0], spot.offset, target, state.value, end)


def _state_of(listing: GroupListing | None, silence: UnavailableGroup | None) -> str:
    if listing is not None:
        return listing.state
    return silence.state.value if silence else NO_GROUP


def _worst(states: Iterable[str]) -> str:
    """Returns the group's status. A difference on one partition outweighs equality on all others."""
    seen = set(states)
    if seen == {GroupSyncStatus.SAME.value, ONLY_ON_TARGET}:
        return PARTLY_ONLY_ON_TARGET
    return next((state.value for state in GroupSyncStatus if state.value in seen), ONLY_ON_TARGET)


class OffsetTranslator:
    """`parts`: translation by source partition. Topic names are those of the given offset's side."""

    def __init__(self, link: Link, parts: dict[TopicPartitionTuple, OffsetTranslation]) -> None:
        self.link = link
        self._parts = parts
        self._twins = {(link.twin_of(topic), partition): (topic, partition) for topic, partition in parts}

    def forward(self, topic: str, partition: int, offset: int) -> TranslatedOffset | None:
        """Translates a source offset to the target; None before the first record that the link replicated."""
        return self._parts[_known((topic, partition), self._parts, self.link, self.link.source)].forward(offset)

    def back(self, topic: str, partition: int, offset: int) -> TranslatedOffset | None:
        """Translates a target offset to the source."""
        twin = _known((topic, partition), self._twins, self.link, self.link.target)
        return self._parts[self._twins[twin]].back(offset)

    def source_topic(self, twin: str) -> str:
        return next(topic for (name, _), (topic, _) in self._twins.items() if name == twin)


def _known(
    where: TopicPartitionTuple, known: Collection[TopicPartitionTuple], link: Link, cluster: str
) -> TopicPartitionTuple:
    if where in known:
        return where
    topics = sorted({topic for topic, _ in known})
    hint = did_you_mean(where[0], topics).removeprefix("; ") if where[0] not in topics else ""
    hint, name = hint or "has the mirror replicated it yet?", f"{where[0]}-{where[1]}"
    raise ConfigError("groups.unknown-partition", link=link.name, partition=name, cluster=cluster, hint=hint)


def open_translator(settings: Settings, link_name: str, store: Store) -> OffsetTranslator:
    """Returns the link's translator, by the store. Keep the store open while using it."""
    link = settings.link(link_name)
    mapped = store.offset_runs.reached(link.name)
    parts: dict[TopicPartitionTuple, OffsetTranslation] = {}
    for row in store.twins.of(link.name):
        where, exact = (row.topic, row.partition), (row.topic, row.partition) not in mapped
        crossed = partial(_replicated, store, link, where)
        parts[where] = EXACT_TRANSLATION if exact else build_run_translation(store, link.name, where, crossed)
    return OffsetTranslator(link, parts)


def _replicated(store: Store, link: Link, where: TopicPartitionTuple) -> int:
    positions = store.progress.positions(link.name)
    return next((position.to_offset for position in positions if (position.topic, position.partition) == where), 0)


def stored_log_ends(store: Store, link: Link, *, back: bool) -> dict[TopicPartitionTuple, int]:
    """Returns source log ends that the mirror last saw; `back`: how far each twin is replicated."""
    positions = store.progress.positions(link.name)
    if not back:
        return {(position.topic, position.partition): position.source_end for position in positions}
    mapped = store.offset_runs.reached(link.name)
    ends: dict[TopicPartitionTuple, int] = {}
    for position in positions:
        last = mapped.get((position.topic, position.partition))
        ends[link.twin_of(position.topic), position.partition] = target_end(last) if last else position.to_offset
    return ends
