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
from twinshore.switch.operations.plan import SwitchPlan, SwitchPlanRequest, SwitchPlanStep

NAMED_MAX = 5


def plan(asked: SwitchPlanRequest, settings: Settings, store: Store, *, by: str = "") -> SwitchPlan:
    """Raises ConfigError if no group matches; obstacles are `refused`."""
    settings.cluster(asked.to)
    if asked.topics:
        raise ConfigError("switch.group-or-topics")
    if not is_literal_name(asked.group):
        raise ConfigError("switch.group-not-a-name", group=asked.group)
    if asked.kind is not SwitchKind.PLANNED:
        raise ConfigError("switch.group-planned-only")
    found = _seen(asked, settings, store)
    if not found:
        raise ConfigError("switch.no-such-group", group=asked.group, to=asked.to)
    live = {name: one for name, one in found.items() if one.old_live}
    if len(found) > 1 and len(live) != 1:
        where = join_names(sorted(found), NAMED_MAX)
        raise ConfigError("switch.group-on-several-clusters", group=asked.group, clusters=where)
    old, seen = next(iter((live or found).items()))
    if refused := _refused(asked, old, seen, store):
        return SwitchPlan(refused=refused)
    links = {link.source: link.name for link in links_between(settings, store, old, asked.to)}
    topics = tuple(
        TopicMove(topic=topic, old_id="", new_id="", term=0, partitions=_partitions(seen, topic))
        for topic in seen.topics()
    )
    record = SwitchState(
        id=secrets.token_hex(16),
        kind=SwitchKind.GROUP,
        old=old,
        new=asked.to,
        link=links.get(old, ""),
        back=links.get(asked.to, ""),
        topics=topics,
        by=by,
        begun_ms=wall_ms(),
        hold_s_max=asked.hold_s,
        deed=STEPS[SwitchKind.GROUP][0],
        group=asked.group,
    )
    count = f"{count_phrase(len(seen.goals), 'place')} of {join_names(seen.topics(), NAMED_MAX)}"
    shown = (
        f"group {asked.group} alone would read on on {asked.to}, and no more on {old}: {count}",
        *(f"  {_sentence(one, old, asked.to)}" for one in seen.goals[:NAMED_MAX]),
    )
    remarks = [f"its topics stay at home where they are; stop its consumers on {old}, and start them on {asked.to}"]
    if seen.old_live:
        remarks.append(f"group {asked.group} has members on {old} now: the switch waits until they are gone")
    if short := describe_short_logs(seen.goals):
        remarks.append(f"{asked.to}: {short}; the switch waits for them")
    return SwitchPlan(
        tuple(SwitchPlanStep(deed) for deed in STEPS[SwitchKind.GROUP]), shown, tuple(remarks), record=record
    )


def _seen(asked: SwitchPlanRequest, settings: Settings, store: Store) -> dict[str, GroupOnBothSides]:
    found: dict[str, GroupOnBothSides] = {}
    known = [at.link for at in effective_links(settings.links, store).values()]
    others = {
        link.source if link.target == asked.to else link.target
        for link in known
        if asked.to in (link.source, link.target)
    }
    for old in sorted(others):
        links = [
            link
            for link in links_between(settings, store, old, asked.to)
            if not asked.links or link.name in asked.links
        ]
        seen = inspect_group(links, settings, store, asked.group, asked.to)
        if seen.goals or seen.lost or seen.unheard:
            found[old] = seen
    return found


def _refused(asked: SwitchPlanRequest, old: str, seen: GroupOnBothSides, store: Store) -> RefusedError | None:
    if seen.unheard:
        return RefusedError("switch.group-offsets-unknown", group=asked.group, cause=seen.unheard)
    if seen.lost:
        where = join_names(seen.lost, NAMED_MAX)
        return RefusedError("switch.group-offsets-lost", group=asked.group, to=asked.to, partitions=where)
    if seen.new_live:
        return RefusedError("switch.group-active", group=asked.group, to=asked.to)
    if why := describe_ahead(seen.goals, old, asked.to):
        return RefusedError("switch.group-ahead", group=asked.group, why=why, source=old)
    return refuse_claimed_topics(store, pair_name(Link(old, asked.to)), {group_claim_name(asked.group), *seen.topics()})


def _partitions(seen: GroupOnBothSides, topic: str) -> int:
    return sum(topic == (one.topic if one.back else one.left_topic) for one in seen.goals)


def _sentence(one: OffsetGoal, old: str, new: str) -> str:
    has = "no place" if one.has is None else str(one.has)
    there = f"{one.topic}-{one.partition} on {new}: {has} -> {one.to}"
    return f"{one.left_topic}-{one.partition} on {old} at {one.left}; {there}"
