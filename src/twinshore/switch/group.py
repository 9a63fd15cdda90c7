"""One consumer group moves alone, to read on at the other cluster: which hand does which deed.

Its topics stay at home where they are. Its consumers are stopped on the one side and started on the other by whoever
runs them; in between its places are brought over, once the logs there hold all that it has read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from twinshore.config.model import Link
from twinshore.config.sentences import counted, listed
from twinshore.config.settings import Settings
from twinshore.groups import offset_move
from twinshore.groups.core.goals import GroupSeen, from_json, further_on, moved_on, short_of, to_json
from twinshore.groups.offset_move import DONE, Step
from twinshore.kafka.clock import wall_ms
from twinshore.replication.core.ownership import pair_of
from twinshore.state.core.values import AuditRow
from twinshore.state.store import Store
from twinshore.switch.announce import claim, give_back
from twinshore.switch.core.steps import Cannot, Deed, Done, Outcome, SwitchState, Wait
from twinshore.switch.runner import ByDeed

NAMED_MAX = 5
SILENT_MS_MAX = 15_000  # what cannot be set back for so long is left to the operator
KEY_MAX = 200


def claim_of(group: str) -> str:
    """What is claimed of a group, beside topics; no topic's name has a space."""
    name = f"group {group}"
    return name if len(name) <= KEY_MAX else f"group {hashlib.sha256(group.encode()).hexdigest()}"


class OneGroup(ByDeed):
    """`links` lead between its two clusters; `now_ms` is the clock by which the record says since when a deed is tried.
    Whatever fails in a deed is raised, and may pass."""

    def __init__(self, links: Sequence[Link], settings: Settings, store: Store, now_ms: Callable[[], int]) -> None:
        self._links, self._settings, self._store, self._now_ms = links, settings, store, now_ms
        self._doing = {
            Deed.CLAIM: self._claim,
            Deed.LEAVE: self._leave,
            Deed.REACH: self._reach,
            Deed.SET: self._set,
            Deed.COMMIT: self._commit,
            Deed.FOLLOW: self._follow,
            Deed.RELEASE: self._release,
        }
        self._undoing = {
            Deed.CLAIM: self._release,
            Deed.SET: self._set_back,
        }

    def _see(self, record: SwitchState) -> GroupSeen:
        return offset_move.see(self._links, self._settings, self._store, record.group, record.new)

    def _claim(self, record: SwitchState) -> Outcome:
        pair = pair_of(Link(record.old, record.new))
        if others := claim(self._store, record, [claim_of(record.group)]):
            return Cannot(f"group {record.group} is in another switch already ({others[0].switch_id[:8]})")
        busy = sorted({one.topic for one in self._store.switching.of(pair)} & set(record.names()))
        if busy:
            return Cannot(f"{listed(busy, NAMED_MAX)}, which it reads, is in a switch: try again once that has ended")
        return Done(record)

    def _leave(self, record: SwitchState) -> Outcome:
        seen = self._see(record)
        if seen.unheard:
            return Wait(seen.unheard, unanswered=True)
        if seen.new_live:
            return Cannot(f"group {record.group} has members on {record.new} already: stop them first")
        if seen.old_live:
            return Wait(f"stop the consumers of group {record.group} on {record.old}: it has members there")
        return Done(record, f"group {record.group} has no members on {record.old}")

    def _reach(self, record: SwitchState) -> Outcome:
        """Its places are noted once nobody moves them any more: with those it had on the other side until then."""
        seen = self._see(record)
        if why := self._why_not(record, seen):
            return why
        if not seen.goals:
            return Cannot(f"group {record.group} has no place on {record.old} in a topic that these links carry")
        if seen.lost:
            return Cannot(f"nobody knows where it would stand on {record.new} in {listed(seen.lost, NAMED_MAX)}")
        if why_not := further_on(seen.goals, record.old, record.new):
            return Cannot(f"group {record.group} {why_not}")
        if short := short_of(seen.goals):
            return Wait(f"{record.new}: {short}")
        return Done(replace(record, places=to_json(seen.goals)), f"{record.new} holds all that it has read")

    def _set(self, record: SwitchState) -> Outcome:
        goals = from_json(record.places)
        moves = {record.group: [one for one in goals if one.moves]}
        steps = offset_move.set_places(self._links, self._settings, self._store, moves, record.by)
        if failed := _failed(steps):
            return Wait(failed)
        return Done(record, f"{counted(len(goals), 'place')} stand on {record.new} as on {record.old}")

    def _commit(self, record: SwitchState) -> Outcome:
        """Nobody went on meanwhile: who reads without membership cannot be seen otherwise."""
        seen = self._see(record)
        if why := self._why_not(record, seen):
            return why
        if why_not := moved_on(from_json(record.places), seen.goals, record.old, record.new):
            return Cannot(why_not)
        return Done(record, f"group {record.group} continues on {record.new}")

    def _why_not(self, record: SwitchState, seen: GroupSeen) -> Outcome | None:
        if seen.unheard:
            return Wait(seen.unheard, unanswered=True)
        if seen.old_live:
            return Cannot(f"consumers of group {record.group} have come back on {record.old}")
        if seen.new_live:
            return Cannot(f"consumers of group {record.group} have begun on {record.new} too early")
        return None

    def _follow(self, record: SwitchState) -> Outcome:
        goals = from_json(record.places)
        steps = offset_move.follow_again(self._links, self._settings, self._store, {record.group: goals}, record.by)
        row = (wall_ms(), self._links[0].name, "group", f"{record.group} alone", record.old, record.new, DONE)
        self._store.audit.add([AuditRow(*row, record.by, "", record.group)])
        if failed := _failed(steps):
            return Done(record, f"`twinshore groups move` has it followed again on {record.old}: {failed}")
        stays = (
            f"its places on {record.old} follow it again" if steps else f"its places on {record.old} stay as they are"
        )
        return Done(record, stays)

    def _release(self, record: SwitchState) -> Outcome:
        return give_back(self._store, record, (), self._now_ms())

    def _set_back(self, record: SwitchState) -> Outcome:
        goals = from_json(record.places)
        steps = offset_move.set_back(self._links, self._settings, self._store, {record.group: goals}, record.by)
        failed = _failed(steps)
        if failed and not record.tried_for(SILENT_MS_MAX, self._now_ms()):
            return Wait(failed)
        if failed:
            return Done(record, f"set by hand what could not be set back: {failed}")
        return Done(record, f"its places on {record.new} are what they were")


def _failed(steps: Mapping[str, Sequence[Step]]) -> str:
    """What became of places that are not set; empty where all are."""
    failed = [step.sentence(done=True) for some in steps.values() for step in some if step.outcome != DONE]
    return "; ".join(failed[:NAMED_MAX])
