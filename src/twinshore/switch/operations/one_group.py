"""Plans the move of one group: whether and where. Changes nothing."""

from __future__ import annotations

import secrets

from twinshore.config.errors import ConfigError, RefusedError
from twinshore.config.model import Link
from twinshore.config.sentences import count_phrase, join_names
from twinshore.config.settings import Settings
from twinshore.groups.core.goals import GroupOnBothSides, OffsetGoal, describe_ahead, describe_short_logs
from twinshore.groups.offset_move import inspect_group, links_between
from twinshore.groups.operations import is_literal_name
from twinshore.kafka.clock import wall_ms
from twinshore.replication.core.ownership import pair_name
from twinshore.replication.links import effective_links
from twinshore.state.store import Store
from twinshore.switch.announce import refuse_claimed_topics
from twinshore.switch.core.steps import STEPS, SwitchKind, SwitchState, TopicMove
from twinshore.switch.group import group_claim_name
from twinshore.switch.operations.plan import SwitchPlan, SwitchPlanRequest

NAMED_MAX = 5


def plan(request: SwitchPlanRequest, settings: Settings, store: Store, *, by: str = "") -> SwitchPlan:
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
