"""What one side of a link says of groups, and of which of them it says nothing: that is not the same as no place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from twinshore.fleet import KafkaError
from twinshore.groups.place import State
from twinshore.groups.refusals import words_of
from twinshore.groups.sides import ClusterGroups
from twinshore.kafka.errors import Code
from twinshore.kafka.groups import NOT_THERE, Listed, Located
from twinshore.wire.group_places import GroupPlaces, Place, Where


class Silence(NamedTuple):
    """Nothing is known of a group there: `state` says how it is shown, `why` the reason."""

    state: State
    why: str


class Sight(NamedTuple):
    """`listed`: every group that the side names. `places`: those of the groups that were asked for; a group without any
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
