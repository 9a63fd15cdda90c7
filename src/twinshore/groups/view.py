"""Both sides of a link's groups as they are now, side by side: asks both clusters and changes nothing.

Offsets of one side in terms of the other, for one's own use: asks the store alone, no cluster.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from twinshore.config.errors import ConfigError, KafkaError
from twinshore.config.model import Link, NamedPartition
from twinshore.config.schema import did_you_mean
from twinshore.config.settings import Settings
from twinshore.groups.cluster_groups import ClusterGroups
from twinshore.groups.core.progress import words_of
from twinshore.groups.core.rules import AS_IS, NOTHING, Rules, Scope, Spot, State, Translation, decide
from twinshore.groups.sync import WORST_FIRST, Rounds, extents_of, names_in
from twinshore.groups.task import COMPARED_KIND, last_said, own_in, refused_in, waits_in, word_in
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.groups import NOT_THERE, GroupListing, Listed, Located
from twinshore.kafka.protocol.errors import Code
from twinshore.kafka.protocol.offsets import GroupPlaces, Place, Where
from twinshore.kafka.questions import OffsetKind
from twinshore.state.store import Store

ONLY_THERE = "only on the target"
PARTLY_THERE = "partly only there"
NONE = "none"
AWAY = State.AWAY.value
# What the mirror would do, were it not refused.
DOING = frozenset({State.MOVES, State.BEHIND, State.SETTING_BACK, State.SET_BACK})


class Silence(NamedTuple):
    """Nothing is known of a group there: `state` says how it is shown, `why` the reason."""

    state: State
    why: str


class Sight(NamedTuple):
    """What one side of a link says of groups, and of which of them it says nothing: that is not the same as no place.
    `listed`: every group that the side names. `places`: those of the groups that were asked for; a group without any
    has an empty table. `silent`: the groups whose places the side does not say."""

    listed: Listed
    places: Mapping[str, Mapping[Where, Place]]
    silent: Mapping[str, Silence]


def sight_of(side: ClusterGroups, listed: Listed, names: Iterable[str]) -> Sight:
    """What the cluster says of these groups. A group that the cluster does not list is asked for all the same: its
    coordinator may be away, or may hide the group from this user."""
    silent: dict[str, Silence] = {}
    wanted: dict[int, dict[str, None]] = {}
    names = sorted(names)
    new = [name for name in names if name not in listed.groups]
    nodes, refused = side.located(new) if new else Located({}, {})
    for name in names:
        one = listed.groups.get(name)
        if one is not None:
            if one.reads_by_offsets:
                wanted.setdefault(one.coordinator, {})[name] = None
        elif name in nodes:
            wanted.setdefault(nodes[name], {})[name] = None
        elif name in refused:
            silent[name] = Silence(State.REFUSED, str(refused[name]))
        else:
            silent[name] = _away(side)
    found, away = side.places(wanted, {})
    places: dict[str, Mapping[Where, Place]] = {}
    for node, groups in wanted.items():
        for name in groups:
            said = found.get(name)
            silence = _silence(side, said, away.get(node))
            if silence is not None:
                silent[name] = silence
            elif said is not None:
                places[name] = said.places
    return Sight(listed, places, silent)


def _silence(side: ClusterGroups, said: GroupPlaces | None, error: KafkaError | None) -> Silence | None:
    if said is None:
        return _away(side, error)
    if said.error in NOT_THERE:
        return _away(side)
    if Code.UNSTABLE_OFFSET_COMMIT in said.failed.values():
        return Silence(State.WAITS, f"a transaction is open on {side.name} that has sent offsets of it")
    return Silence(State.REFUSED, f"cannot be read on {side.name}: {words_of(said.error)}") if said.error else None


def _away(side: ClusterGroups, error: KafkaError | None = None) -> Silence:
    because = f" ({error.message})" if error is not None else ""
    return Silence(
        State.AWAY, f"its coordinator on {side.name} does not answer{because}: its places there are not known"
    )


@dataclass(frozen=True, slots=True)
class PartView:
    """One partition: the source's place, the same on the target, what the target has. None: no place, or unknown.
    `end`: where the twin ends, which may be unknown too. Where it was looked `back`, `expected` is the target's place
    on the source, and `end` where that log ends."""

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
        """Offsets that the target's place is behind; below 0: ahead."""
        return self.expected - self.target if self.expected is not None and self.target is not None else None


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group on both sides. `behind_s`: for how long its places have differed, by the mirror's word; None: no word.
    `said_s_ago`: set where the source is away: what `state` and `behind` say was true then. `why`: set where one side
    does not say where the group stands there; `missing` and `behind` are None then."""

    link: str
    group: str
    kind: str
    source_state: str
    target_state: str
    state: str
    behind: int | None
    missing: int | None
    behind_s: float | None
    parts: tuple[PartView, ...]
    said_s_ago: float | None = None
    why: str = ""


def look(
    link: Link, settings: Settings, store: Store, pattern: str = ".*", *, stable: bool = False, back: bool = False
) -> list[GroupView]:
    """Every group whose whole name matches and that the link's filters admit, by name.

    Where the source does not answer, the target's side, and how both stood when the mirror last compared them.
    `stable`: of a group whose offsets an open transaction is about to move nothing is known. `back`: where
    places of the target would be on the source."""
    rounds = Rounds(link, settings, store, retention_s=1.0, stable=stable)
    wanted = re.compile(pattern)

    def admits(name: str) -> bool:
        return bool(wanted.fullmatch(name)) and rounds.admits(name)

    try:
        gone = not _answers(rounds.source)
        rounds.begin(time.monotonic(), source_gone=gone)
        reading = Listed({}, {}) if gone else rounds.at_source.listed()
        writing = rounds.at_target.listed()
        known = {**reading.groups, **writing.groups}.values()
        names = {one.group for one in known if one.reads_by_offsets and admits(one.group)}
        here = Sight(reading, {}, {}) if gone else sight_of(rounds.at_source, reading, names)
        there = sight_of(rounds.at_target, writing, names)
        twins = {twin for twin, _ in rounds.scope.parts.values()}
        named = {NamedPartition(*twin): twin for twin in twins} if here.places or there.places else {}
        found, _ = rounds.target.offsets_of_each(named, OffsetKind.HIGH_WATERMARK)
        ends = {named[one]: end for one, end in found.items()}
        word = word_in(store, link.name, fresh=not gone)
        compared = names_in(store.memories.of(link.name, COMPARED_KIND)) if gone else frozenset()
        views = []
        for name in sorted(here.places.keys() | there.places.keys()):
            rules = rounds.rules_for(name, *(side.places.get(name, {}) for side in (here, there)))
            view = _view(link.name, name, (here, there), rounds.scope, ends, word, rules)
            if back and not gone and not view.why:
                view = _back(view, rounds.scope, rounds.source)
            views.append(_as_last_said(view, word, compared) if gone else view)
        return [view for view in views if view.parts]
    finally:
        rounds.close()


def _answers(cluster: KafkaCluster) -> bool:
    try:
        cluster.metadata([], refresh=True)
    except KafkaError as error:
        if not error.retriable:
            raise
        return False
    return True


def _as_last_said(view: GroupView, word: Mapping[str, Any], compared: Collection[str]) -> GroupView:
    state, behind = last_said(word, compared, view.group)
    age_s = (wall_ms() - word["at_ms"]) / 1000 if word else None
    return replace(view, source_state=AWAY, state=state, behind=behind, behind_s=None, said_s_ago=age_s)


def _view(
    link: str,
    name: str,
    sides: tuple[Sight, Sight],
    scope: Scope,
    ends: Mapping[Where, int],
    word: Mapping[str, Any],
    rules: Rules,
) -> GroupView:
    here, there = (side.listed.groups.get(name) for side in sides)
    source, target = (side.silent.get(name) for side in sides)
    silence = target or source
    places = [side.places.get(name, {}) for side in sides]
    parts = tuple(_parts(places[0], places[1], scope, ends, rules, own_in(word, name)))
    refused = refused_in(word, name)
    parts = tuple(_not_known(part, silence) if silence else _as_refused(part, refused) for part in parts)
    parts = tuple(map(_as_waiting, parts)) if waits_in(word, name) else parts
    any_listing = here or there
    since_ms = word.get("differ", {}).get(name, [None, 0, None])[2]
    same = all(part.state == State.SAME for part in parts)
    behind_s = None
    if word and not silence:
        behind_s = 0.0 if same or since_ms is None else max(0.0, (wall_ms() - since_ms) / 1000)
    live = there is not None and there.live and not same and not silence
    return GroupView(
        link,
        name,
        any_listing.kind if any_listing else NONE,
        _state_of(here, source),
        _state_of(there, target),
        State.LIVE.value if live else _worst(part.state for part in parts),
        None if silence else sum(part.behind or 0 for part in parts),
        None if silence else sum(part.target is None for part in parts),
        behind_s,
        parts,
        why=silence.why if silence else "",
    )


def _back(view: GroupView, scope: Scope, source: KafkaCluster) -> GroupView:
    """Where its places on the target would be on the source. KafkaError where a log's end is not told."""
    named = {NamedPartition(part.topic, part.partition): part for part in view.parts}
    ends = source.list_offsets(named, OffsetKind.HIGH_WATERMARK) if named else {}
    parts = []
    for where, part in named.items():
        translation = scope.parts[part.topic, part.partition][1]
        spot = translation.back(part.target) if part.target is not None else None
        parts.append(replace(part, expected=spot.offset if spot else None, end=ends.get(where)))
    return replace(view, parts=tuple(parts))


def _not_known(part: PartView, silence: Silence) -> PartView:
    """A place of a group of which one side says nothing: only what the other says is true."""
    return replace(part, expected=None if part.source is None else part.expected, state=silence.state.value)


def _as_refused(part: PartView, refused: Collection[Where]) -> PartView:
    """What the mirror tried in vain does not move."""
    if (part.topic, part.partition) in refused and part.state in DOING:
        return replace(part, state=State.REFUSED.value)
    return part


def _as_waiting(part: PartView) -> PartView:
    """What the mirror holds back does not move before what the group's readers wrote has crossed."""
    return replace(part, state=State.WAITS.value) if part.state == State.MOVES else part


def _parts(
    here: Mapping[Where, Place],
    there: Mapping[Where, Place],
    scope: Scope,
    ends: Mapping[Where, int],
    rules: Rules,
    own: Collection[Where],
) -> Iterator[PartView]:
    for where, (twin, translation) in sorted(scope.parts.items(), key=lambda item: item[0]):
        place, has = here.get(where), there.get(twin)
        if place is None and has is None:
            continue
        target = has.offset if has else None
        if place is None:
            back = translation.back(has.offset) if has else None
            yield PartView(*where, None, twin[0], back.offset if back else None, target, ONLY_THERE)
            continue
        spot = translation.forward(place.offset)
        if spot is None:
            yield PartView(*where, place.offset, twin[0], None, target, State.UNKNOWN.value)
            continue
        end = ends.get(twin)
        if end is None:
            yield PartView(*where, place.offset, twin[0], spot.offset, target, AWAY, None)
            continue
        # What the mirror's memory alone tells: whose a place is that carries no mark.
        memory = NOTHING._replace(own=where in own)
        state = decide(place, spot, end, has, memory, rules).state
        yield PartView(*where, place.offset, twin[0], spot.offset, target, state.value, end)


def _state_of(listing: GroupListing | None, silence: Silence | None) -> str:
    if listing is not None:
        return listing.state
    return silence.state.value if silence else NONE


def _worst(states: Iterable[str]) -> str:
    """The group as a whole. What differs on one partition comes before what is the same on all others."""
    seen = set(states)
    if seen == {State.SAME.value, ONLY_THERE}:
        return PARTLY_THERE
    return next((state.value for state in WORST_FIRST if state.value in seen), ONLY_THERE)


class Translator:
    """`parts`: how each partition of the source translates. Topics are called as on the side whose offset is given."""

    def __init__(self, link: Link, parts: dict[Where, Translation]) -> None:
        self.link = link
        self._parts = parts
        self._twins = {(link.twin_of(topic), partition): (topic, partition) for topic, partition in parts}

    def forward(self, topic: str, partition: int, offset: int) -> Spot | None:
        """An offset of the source, on the target; None before the first record that the link carried."""
        return self._parts[self._known((topic, partition), self._parts, self.link.source)].forward(offset)

    def back(self, topic: str, partition: int, offset: int) -> Spot | None:
        """An offset of the target, on the source."""
        return self._parts[self._twins[self._known((topic, partition), self._twins, self.link.target)]].back(offset)

    def source_topic(self, twin: str) -> str:
        """What a twin's topic is called on the source."""
        for (name, _), (topic, _) in self._twins.items():
            if name == twin:
                return topic
        raise ConfigError(f"link {self.link.name} keeps no twin called {twin}")

    def _known(self, where: Where, known: Iterable[Where], side: str) -> Where:
        if where not in known:
            topics = sorted({topic for topic, _ in known})
            nearest = did_you_mean(where[0], topics).removeprefix("; ") if where[0] not in topics else ""
            raise ConfigError(
                f"link {self.link.name} knows no {where[0]}-{where[1]} on {side}",
                hint=nearest or "has the mirror carried it yet?",
            )
        return where


def open_translator(settings: Settings, link_name: str, store: Store) -> Translator:
    """The link's, by what its mirror left in the store. Keep the store open as long as you use it."""
    link = settings.link(link_name)
    mapped = store.extents.reached(link.name)
    parts: dict[Where, Translation] = {}
    for row in store.twins.of(link.name):
        where = (row.topic, row.partition)
        parts[where] = AS_IS
        if where in mapped:
            parts[where] = extents_of(store, link.name, where, partial(_crossed, store, link.name, where))
    return Translator(link, parts)


def _crossed(store: Store, link: str, where: Where) -> int:
    known = store.receipts.positions(link)
    return next((one.to_offset for one in known if (one.topic, one.partition) == where), 0)


def known_ends(store: Store, link: Link, *, back: bool) -> dict[Where, int]:
    """Where each log of the source ended when the mirror last said so; `back`: how far it has carried each twin."""
    known = store.receipts.positions(link.name)
    if not back:
        return {(one.topic, one.partition): one.source_end for one in known}
    mapped = store.extents.reached(link.name)
    ends: dict[Where, int] = {}
    for one in known:
        last = mapped.get((one.topic, one.partition))
        ends[link.twin_of(one.topic), one.partition] = last.target + last.length if last else one.to_offset
    return ends
