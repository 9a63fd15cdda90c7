"""Places of consumer groups: copied to the new home as they are, since a twin has its source's offsets; and set on
twins so that they follow their home."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from twinshore.fleet import KafkaError, Link
from twinshore.fleet.sentences import listed
from twinshore.fleet.settings import Settings
from twinshore.groups.look import look
from twinshore.groups.operations.move import MEMBERLESS, Step, moved, wishes_forward
from twinshore.groups.place import MARK
from twinshore.groups.rounds import Rounds
from twinshore.store import Store
from twinshore.switch.group_goals import alone_at
from twinshore.switch.record import readable

NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class Copied:
    """`groups` stand on the new home where they stood on the old one; `left` have members there, and `refused` are
    places that the new home did not take. `unheard`: a group of which a side does not say where it stands, and why."""

    groups: tuple[str, ...]
    left: tuple[str, ...]
    refused: tuple[str, ...]
    unheard: tuple[str, str] | None = None


def copy_places(link: Link, settings: Settings, store: Store, topics: Collection[str], by: str) -> Copied:
    """Of every group that the link's filters admit, its places in these topics alone. A group that was moved to the
    new home alone before is there already: where it stood on the old home is of long ago."""
    done: list[str] = []
    left: list[str] = []
    refused: list[str] = []
    before = [record for row in store.switches.all() if (record := readable(row.record))]
    rounds = Rounds(link, settings, store, retention_s=1.0)
    try:
        for view in look(link, settings, store):
            if view.why or view.said_s_ago is not None:
                return Copied((), (), (), (view.group, view.why or "its old home does not answer"))
            ours = replace(view, parts=tuple(one for one in view.parts if one.topic in topics))
            wishes = wishes_forward(ours, "")
            if not ours.parts or alone_at(before, view.group, topics) == link.target:
                continue
            if wishes and view.target_state not in MEMBERLESS:
                left.append(view.group)
                continue
            steps: list[Step] = moved(store, rounds.at_target, link.name, view.group, wishes, by=by, lower=True)
            refused += [step.sentence(done=True) for step in steps if step.refused]
            done.append(view.group)
    finally:
        rounds.close()
    return Copied(tuple(done), tuple(left), tuple(refused))


def follow_home(link: Link, settings: Settings, store: Store, topics: Collection[str], by: str) -> str:
    """The places on twins that groups left for their home follow it from now on; in a sentence which do, and which do
    not yet. A place that is further on than the home's, and a group that has members there, is left alone. Nobody waits
    for a group of which a side says nothing."""
    before = [record for row in store.switches.all() if (record := readable(row.record))]
    followed: list[str] = []
    left: list[str] = []
    rounds = Rounds(link, settings, store, retention_s=1.0)
    try:
        for view in look(link, settings, store):
            ours = replace(view, parts=tuple(one for one in view.parts if one.topic in topics))
            if not ours.parts or alone_at(before, view.group, topics) == link.target:
                continue
            wishes = wishes_forward(ours, MARK if link.groups.marks else "")
            wishes = {where: (has, to) for where, (has, to) in wishes.items() if has is not None and has < to.offset}
            if view.why or (wishes and view.target_state not in MEMBERLESS):
                left.append(view.group)
            elif wishes:
                steps = moved(store, rounds.at_target, link.name, view.group, wishes, by=by)
                (left if any(step.refused for step in steps) else followed).append(view.group)
    except KafkaError as error:
        return f"whether groups follow {link.source} again is not known ({error.message}): see `twinshore groups`"
    finally:
        rounds.close()
    says = [f"group {listed(followed, NAMED_MAX)} follows {link.source} again"] if followed else []
    return "; ".join([*says, *([f"`twinshore groups move` for {listed(left, NAMED_MAX)}"] if left else [])])
