"""The steps that move one consumer group to the other cluster.

The group's topics keep their homes. Operators stop its consumers on one cluster and start them on the other. In
between, the committed offsets are copied, once the logs there hold all that the group has read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from twinshore.config.model import Link
from twinshore.config.sentences import count_phrase, join_names
from twinshore.config.settings import Settings
from twinshore.groups import offset_move
from twinshore.groups.core.goals import (
    GroupOnBothSides,
    describe_ahead,
    describe_changes,
    describe_short_logs,
    goals_from_json,
    goals_to_json,
)
from twinshore.groups.offset_move import DONE, OffsetStep
from twinshore.kafka.clock import wall_ms
from twinshore.replication.core.ownership import pair_name
from twinshore.state.core.values import AuditRow
from twinshore.state.store import Store
from twinshore.switch.announce import claim_topics, release_claims
from twinshore.switch.core.steps import StepDone, StepFailed, StepOutcome, StepPending, SwitchState, SwitchStep
from twinshore.switch.step_runner import StepExecutor

NAMED_MAX = 5
UNREACHABLE_MS_MAX = 15_000  # what cannot be set back for so long is left to the operator
CLAIM_CHARS_MAX = 200


def group_claim_name(group: str) -> str:
    """Returns the name under which a group is claimed, beside topics. No topic name has a space."""
    name = f"group {group}"
    return name if len(name) <= CLAIM_CHARS_MAX else f"group {hashlib.sha256(group.encode()).hexdigest()}"


class GroupSwitchSteps(StepExecutor):
    """`links` connect the two clusters. `now_ms`: the clock of `SwitchState.deed_ms`. Errors of a step are raised, and
    may be temporary.
    """

    def __init__(self, links: Sequence[Link], settings: Settings, store: Store, now_ms: Callable[[], int]) -> None:
        self._links, self._settings, self._store, self._now_ms = links, settings, store, now_ms
        self._doing = {
            SwitchStep.CLAIM: self._claim,
            SwitchStep.WAIT_EMPTY: self._leave,
            SwitchStep.WAIT_REPLICATED: self._reach,
            SwitchStep.COMMIT_OFFSETS: self._set,
            SwitchStep.COMMIT: self._commit,
            SwitchStep.LET_OFFSETS_FOLLOW: self._follow,
            SwitchStep.RELEASE: self._release,
        }
        self._undoing = {
            SwitchStep.CLAIM: self._release,
            SwitchStep.COMMIT_OFFSETS: self._set_back,
        }

    def _see(self, record: SwitchState) -> GroupOnBothSides:
        return offset_move.inspect_group(self._links, self._settings, self._store, record.group, record.new)

    def _claim(self, record: SwitchState) -> StepOutcome:
        pair = pair_name(Link(record.old, record.new))
        if others := claim_topics(self._store, record, [group_claim_name(record.group)]):
            return StepFailed(f"group {record.group} is in another switch already ({others[0].switch_id[:8]})")
        busy = sorted({one.topic for one in self._store.topics_in_switch.of(pair)} & set(record.names()))
        if busy:
            return StepFailed(
                f"{join_names(busy, NAMED_MAX)}, which it reads, is in a switch: try again once that has ended"
            )
        return StepDone(record)

    def _leave(self, record: SwitchState) -> StepOutcome:
        seen = self._see(record)
        if seen.unheard:
            return StepPending(seen.unheard, unanswered=True)
        if seen.new_live:
            return StepFailed(f"group {record.group} has members on {record.new} already: stop them first")
        if seen.old_live:
            return StepPending(f"stop the consumers of group {record.group} on {record.old}: it has members there")
        return StepDone(record, f"group {record.group} has no members on {record.old}")

    def _reach(self, record: SwitchState) -> StepOutcome:
        seen = self._see(record)
        if why := self._why_not(record, seen):
            return why
        if not seen.goals:
            return StepFailed(f"group {record.group} has no place on {record.old} in a topic that these links carry")
        if seen.lost:
            return StepFailed(
                f"nobody knows where it would stand on {record.new} in {join_names(seen.lost, NAMED_MAX)}"
            )
        if why_not := describe_ahead(seen.goals, record.old, record.new):
            return StepFailed(f"group {record.group} {why_not}")
        if short := describe_short_logs(seen.goals):
            return StepPending(f"{record.new}: {short}")
        return StepDone(replace(record, places=goals_to_json(seen.goals)), f"{record.new} holds all that it has read")

    def _set(self, record: SwitchState) -> StepOutcome:
        goals = goals_from_json(record.places)
        moves = {record.group: [one for one in goals if one.moves]}
        steps = offset_move.set_offsets(self._links, self._settings, self._store, moves, record.by)
        if failed := _failed(steps):
            return StepPending(failed)
        return StepDone(record, f"{count_phrase(len(goals), 'place')} stand on {record.new} as on {record.old}")

    def _commit(self, record: SwitchState) -> StepOutcome:
        """Fails if any offset moved: a reader without membership shows only in this way."""
        seen = self._see(record)
        if why := self._why_not(record, seen):
            return why
        if why_not := describe_changes(goals_from_json(record.places), seen.goals, record.old, record.new):
            return StepFailed(why_not)
        return StepDone(record, f"group {record.group} continues on {record.new}")

    def _why_not(self, record: SwitchState, seen: GroupOnBothSides) -> StepOutcome | None:
        if seen.unheard:
            return StepPending(seen.unheard, unanswered=True)
        if seen.old_live:
            return StepFailed(f"consumers of group {record.group} have come back on {record.old}")
        if seen.new_live:
            return StepFailed(f"consumers of group {record.group} have begun on {record.new} too early")
        return None

    def _follow(self, record: SwitchState) -> StepOutcome:
        goals = goals_from_json(record.places)
        steps = offset_move.resume_sync(self._links, self._settings, self._store, {record.group: goals}, record.by)
        row = (wall_ms(), self._links[0].name, "group", f"{record.group} alone", record.old, record.new, DONE)
        self._store.audit.add([AuditRow(*row, record.by, "", record.group)])
        if failed := _failed(steps):
            return StepDone(record, f"`twinshore groups move` has it followed again on {record.old}: {failed}")
        stays = (
            f"its places on {record.old} follow it again" if steps else f"its places on {record.old} stay as they are"
        )
        return StepDone(record, stays)

    def _release(self, record: SwitchState) -> StepOutcome:
        return release_claims(self._store, record, (), self._now_ms())

    def _set_back(self, record: SwitchState) -> StepOutcome:
        goals = goals_from_json(record.places)
        steps = offset_move.restore_offsets(self._links, self._settings, self._store, {record.group: goals}, record.by)
        failed = _failed(steps)
        if failed and not record.tried_for(UNREACHABLE_MS_MAX, self._now_ms()):
            return StepPending(failed)
        if failed:
            return StepDone(record, f"set by hand what could not be set back: {failed}")
        return StepDone(record, f"its places on {record.new} are what they were")


def _failed(steps: Mapping[str, Sequence[OffsetStep]]) -> str:
    failed = [step.sentence(done=True) for some in steps.values() for step in some if step.outcome != DONE]
    return "; ".join(failed[:NAMED_MAX])
