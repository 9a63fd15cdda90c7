"""The move of one client: of a consumer group to the other cluster, or why a producer cannot move alone.

The group's topics keep their homes. Operators stop its consumers on one cluster and start them on the other. In
between, the committed offsets are copied, once the logs there hold all that the group has read.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from twinshore.config.errors import ConfigError, KafkaError, RefusedError
from twinshore.config.model import Link, TwinNaming
from twinshore.config.sentences import count_phrase, join_names
from twinshore.config.settings import Settings
from twinshore.groups import offset_move
from twinshore.groups.core.goals import (
    GroupOnBothSides,
    OffsetGoal,
    describe_ahead,
    describe_changes,
    describe_short_logs,
    goals_from_json,
    goals_to_json,
)
from twinshore.groups.offset_move import DONE, OffsetStep, inspect_group, links_between
from twinshore.groups.operations import is_literal_name
from twinshore.kafka.admin import read_acls
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.access_control import Acl, AclOperation, AclPermission
from twinshore.replication.core.ownership import pair_name
from twinshore.replication.links import effective_links
from twinshore.routing.core.subscribers import SubscriberLog
from twinshore.routing.homes_topic import SubscribersTopic
from twinshore.state.core.values import AuditRow
from twinshore.state.store import Store
from twinshore.switch.announce import claim_topics, refuse_claimed_topics, release_claims
from twinshore.switch.core.steps import (
    STEPS,
    StepDone,
    StepFailed,
    StepOutcome,
    StepPending,
    SwitchKind,
    SwitchState,
    TopicMove,
)
from twinshore.switch.operations.plan import SwitchPlan, SwitchPlanRequest, carrier_of, open_link
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


def plan_group(request: SwitchPlanRequest, settings: Settings, store: Store, *, by: str = "") -> SwitchPlan:
    """Raises ConfigError if no group matches; obstacles are `refused`."""
    settings.cluster(request.to)
    if request.topics:
        raise ConfigError("switch.group-or-topics")
    if not is_literal_name(request.group):
        raise ConfigError("switch.group-not-a-name", group=request.group)
    if request.kind is not SwitchKind.PLANNED:
        raise ConfigError("switch.group-planned-only")
    found = _seen(request, settings, store)
    if not found:
        raise ConfigError("switch.no-such-group", group=request.group, to=request.to)
    live = {name: group_on_both_sides for name, group_on_both_sides in found.items() if group_on_both_sides.old_live}
    if len(found) > 1 and len(live) != 1:
        where = join_names(sorted(found), NAMED_MAX)
        raise ConfigError("switch.group-on-several-clusters", group=request.group, clusters=where)
    old, group = next(iter((live or found).items()))
    if refused := _refused(request, old, group, store):
        return SwitchPlan(refusal=refused)
    links = {link.source: link.name for link in links_between(settings, store, old, request.to)}
    topics = tuple(
        TopicMove(topic=topic, old_id="", new_id="", term=0, partitions=_partitions(group, topic))
        for topic in group.topics()
    )
    state = SwitchState(
        id=secrets.token_hex(16),
        kind=SwitchKind.GROUP,
        old=old,
        new=request.to,
        link=links.get(old, ""),
        back=links.get(request.to, ""),
        topics=topics,
        by=by,
        begun_ms=wall_ms(),
        hold_s_max=request.hold_s,
        step=STEPS[SwitchKind.GROUP][0],
        group=request.group,
    )
    count = f"{count_phrase(len(group.goals), 'place')} of {join_names(group.topics(), NAMED_MAX)}"
    shown = (
        f"group {request.group} alone would read on on {request.to}, and no more on {old}: {count}",
        *(f"  {_sentence(goal, old, request.to)}" for goal in group.goals[:NAMED_MAX]),
    )
    remarks = [f"its topics stay at home where they are; stop its consumers on {old}, and start them on {request.to}"]
    if group.old_live:
        remarks.append(f"group {request.group} has members on {old} now: the switch waits until they are gone")
    if short := describe_short_logs(group.goals):
        remarks.append(f"{request.to}: {short}; the switch waits for them")
    return SwitchPlan(STEPS[SwitchKind.GROUP], shown, tuple(remarks), state=state)


def _seen(request: SwitchPlanRequest, settings: Settings, store: Store) -> dict[str, GroupOnBothSides]:
    found: dict[str, GroupOnBothSides] = {}
    known = [effective.link for effective in effective_links(settings.links, store).values()]
    others = {
        link.source if link.target == request.to else link.target
        for link in known
        if request.to in (link.source, link.target)
    }
    for old in sorted(others):
        links = [
            link
            for link in links_between(settings, store, old, request.to)
            if not request.links or link.name in request.links
        ]
        group = inspect_group(links, settings, store, request.group, request.to)
        if group.goals or group.lost or group.unheard:
            found[old] = group
    return found


def _refused(request: SwitchPlanRequest, old: str, group: GroupOnBothSides, store: Store) -> RefusedError | None:
    if group.unheard:
        return RefusedError("switch.group-offsets-unknown", group=request.group, cause=group.unheard)
    if group.lost:
        where = join_names(group.lost, NAMED_MAX)
        return RefusedError("switch.group-offsets-lost", group=request.group, to=request.to, partitions=where)
    if group.new_live:
        return RefusedError("switch.group-active", group=request.group, to=request.to)
    if why := describe_ahead(group.goals, old, request.to):
        return RefusedError("switch.group-ahead", group=request.group, why=why, source=old)
    return refuse_claimed_topics(
        store, pair_name(Link(old, request.to)), {group_claim_name(request.group), *group.topics()}
    )


def _partitions(group: GroupOnBothSides, topic: str) -> int:
    return sum(topic == (goal.topic if goal.back else goal.left_topic) for goal in group.goals)


def _sentence(goal: OffsetGoal, old: str, new: str) -> str:
    has = "no place" if goal.has is None else str(goal.has)
    there = f"{goal.topic}-{goal.partition} on {new}: {has} -> {goal.to}"
    return f"{goal.left_topic}-{goal.partition} on {old} at {goal.left}; {there}"


PRODUCERS_NAMED_MAX = 8
WRITE_OPERATIONS = frozenset({AclOperation.WRITE, AclOperation.ALL})


def plan_producer(request: SwitchPlanRequest, settings: Settings, store: Store) -> SwitchPlan:
    """Always refuses, with the obstacle or with instructions. Raises ConfigError if no topic matches."""
    settings.cluster(request.to)
    if not request.topics or request.group or request.wave:
        raise ConfigError("switch.producer-needs-topics")
    link, topics = carrier_of(replace(request, group=""), settings, store)
    if link.naming is not TwinNaming.SAME:
        return SwitchPlan(refusal=_both_sides(request, link, topics))
    with open_link(link, settings) as clients:
        others = _others(clients.source, request.producer, topics)
    names = join_names(topics, PRODUCERS_NAMED_MAX)
    also = f"; there also write, or may write: {join_names(others, PRODUCERS_NAMED_MAX)}" if others else ""
    ends = {"producer": request.producer, "source": link.source, "target": link.target}
    refusal = RefusedError("switch.producer-not-alone", topics=names, others=also, topic=topics[0], **ends)
    return SwitchPlan(refusal=refusal)


def _both_sides(request: SwitchPlanRequest, link: Link, topics: Sequence[str]) -> RefusedError:
    names, twins = (
        join_names(each, PRODUCERS_NAMED_MAX) for each in (topics, [link.twin_of(topic) for topic in topics])
    )
    ends = {"producer": request.producer, "source": link.source, "target": link.target}
    return RefusedError("switch.producer-moves-alone", link=link.name, topics=names, twins=twins, **ends)


def _others(home: KafkaCluster, producer: str, topics: Sequence[str]) -> list[str]:
    log = SubscriberLog()
    notes = SubscribersTopic(home, log)
    try:
        if notes.exists():
            notes.read()
        acls = read_acls(home) or frozenset()
    except KafkaError as error:
        return [f"which clients is not known: {error.message}"]
    living = log.living(time.monotonic())
    clients = {one.name or one.id for one in living if any(one.writes(topic) for topic in topics)}
    return sorted((clients | writers_by_rule(acls, topics)) - {producer, f"User:{producer}"})


def writers_by_rule(acls: Iterable[Acl], topics: Sequence[str]) -> set[str]:
    return {
        acl.principal
        for acl in acls
        if acl.permission is AclPermission.ALLOW
        and acl.operation in WRITE_OPERATIONS
        and any(acl.covers(topic) for topic in topics)
    }
