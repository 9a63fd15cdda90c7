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
from twinshore.switch.core.steps import StepDone, StepFailed, StepOutcome, StepPending, SwitchState
from twinshore.switch.step_runner import StepExecutor

NAMED_MAX = 5
UNREACHABLE_MS_MAX = 15_000  # what cannot be set back for so long is left to the operator
CLAIM_CHARS_MAX = 200


def group_claim_name(group: str) -> str:
    """Returns the name under which a group is claimed, beside topics. No topic name has a space."""
    name = f"group {group}"
    return name if len(name) <= CLAIM_CHARS_MAX else f"group {hashlib.sha256(group.encode()).hexdigest()}"


class GroupSwitchSteps(StepExecutor):
    """`links` connect the two clusters. `now_ms`: the clock of `SwitchState.step_ms`. Errors of a step are raised, and
    may be temporary.
    """

    def __init__(self, links: Sequence[Link], settings: Settings, store: Store, now_ms: Callable[[], int]) -> None:
        self._links, self._settings, self._store, self._now_ms = links, settings, store, now_ms

    def _see(self, state: SwitchState) -> GroupOnBothSides:
        return offset_move.inspect_group(self._links, self._settings, self._store, state.group, state.new)

    def do_claim(self, state: SwitchState) -> StepOutcome:
        pair = pair_name(Link(state.old, state.new))
        if others := claim_topics(self._store, state, [group_claim_name(state.group)]):
            return StepFailed(f"group {state.group} is in another switch already ({others[0].switch_id[:8]})")
        busy = sorted({switch.topic for switch in self._store.topics_in_switch.of(pair)} & set(state.names()))
        if busy:
            return StepFailed(
                f"{join_names(busy, NAMED_MAX)}, which it reads, is in a switch: try again once that has ended"
            )
        return StepDone(state)

    def do_wait_empty(self, state: SwitchState) -> StepOutcome:
        group = self._see(state)
        if group.unheard:
            return StepPending(group.unheard, unanswered=True)
        if group.new_live:
            return StepFailed(f"group {state.group} has members on {state.new} already: stop them first")
        if group.old_live:
            return StepPending(f"stop the consumers of group {state.group} on {state.old}: it has members there")
        return StepDone(state, f"group {state.group} has no members on {state.old}")

    def do_wait_replicated(self, state: SwitchState) -> StepOutcome:
        group = self._see(state)
        if why := self._why_not(state, group):
            return why
        if not group.goals:
            return StepFailed(f"group {state.group} has no place on {state.old} in a topic that these links carry")
        if group.lost:
            return StepFailed(
                f"nobody knows where it would stand on {state.new} in {join_names(group.lost, NAMED_MAX)}"
            )
        if why_not := describe_ahead(group.goals, state.old, state.new):
            return StepFailed(f"group {state.group} {why_not}")
        if short := describe_short_logs(group.goals):
            return StepPending(f"{state.new}: {short}")
        return StepDone(replace(state, places=goals_to_json(group.goals)), f"{state.new} holds all that it has read")

    def do_commit_offsets(self, state: SwitchState) -> StepOutcome:
        goals = goals_from_json(state.places)
        moves = {state.group: [goal for goal in goals if goal.moves]}
        steps = offset_move.set_offsets(self._links, self._settings, self._store, moves, state.by)
        if failed := _failed(steps):
            return StepPending(failed)
        return StepDone(state, f"{count_phrase(len(goals), 'place')} stand on {state.new} as on {state.old}")

    def do_commit(self, state: SwitchState) -> StepOutcome:
        """Fails if any offset moved: a reader without membership shows only in this way."""
        group = self._see(state)
        if why := self._why_not(state, group):
            return why
        if why_not := describe_changes(goals_from_json(state.places), group.goals, state.old, state.new):
            return StepFailed(why_not)
        return StepDone(state, f"group {state.group} continues on {state.new}")

    def _why_not(self, state: SwitchState, group: GroupOnBothSides) -> StepOutcome | None:
        if group.unheard:
            return StepPending(group.unheard, unanswered=True)
        if group.old_live:
            return StepFailed(f"consumers of group {state.group} have come back on {state.old}")
        if group.new_live:
            return StepFailed(f"consumers of group {state.group} have begun on {state.new} too early")
        return None

    def do_let_offsets_follow(self, state: SwitchState) -> StepOutcome:
        goals = goals_from_json(state.places)
        steps = offset_move.resume_sync(self._links, self._settings, self._store, {state.group: goals}, state.by)
        row = (wall_ms(), self._links[0].name, "group", f"{state.group} alone", state.old, state.new, DONE)
        self._store.audit.add([AuditRow(*row, state.by, "", state.group)])
        if failed := _failed(steps):
            return StepDone(state, f"`twinshore groups move` has it followed again on {state.old}: {failed}")
        stays = f"its places on {state.old} follow it again" if steps else f"its places on {state.old} stay as they are"
        return StepDone(state, stays)

    def do_release(self, state: SwitchState) -> StepOutcome:
        return release_claims(self._store, state, (), self._now_ms())

    undo_claim = do_release

    def undo_commit_offsets(self, state: SwitchState) -> StepOutcome:
        goals = goals_from_json(state.places)
        steps = offset_move.restore_offsets(self._links, self._settings, self._store, {state.group: goals}, state.by)
        failed = _failed(steps)
        if failed and not state.tried_for(UNREACHABLE_MS_MAX, self._now_ms()):
            return StepPending(failed)
        if failed:
            return StepDone(state, f"set by hand what could not be set back: {failed}")
        return StepDone(state, f"its places on {state.new} are what they were")


def _failed(steps: Mapping[str, Sequence[OffsetStep]]) -> str:
    failed = [step.sentence(done=True) for some in steps.values() for step in some if step.outcome != DONE]
    return "; ".join(failed[:NAMED_MAX])
