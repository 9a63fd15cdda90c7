"""Replicates an unreplicated topic first, records included; then switches the topic like any other.

If no link admits the topic, this happens only when the whole name is given: a pattern without a match may be a typo. A
topic that a link admits but that has no twin yet may be matched by any pattern.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from twinshore.config.errors import ConfigError, KafkaError, RefusedError
from twinshore.config.incident_policy import IncidentKind
from twinshore.config.model import Link, OffsetMode, TopicPartition, TwinNaming
from twinshore.config.sentences import count_phrase, has_or_have, is_or_are, join_names
from twinshore.config.settings import Settings
from twinshore.kafka.clock import steady_s
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.replication.core.filters import admits
from twinshore.replication.links import load_links
from twinshore.runtime.endpoints import LinkClients
from twinshore.state.store import Store
from twinshore.switch.core.steps import STEPS, StepFailed, SwitchKind
from twinshore.switch.drain import (
    MirrorWatch,
    count_missing_offsets,
    find_stopped_partitions,
    format_stopped_partitions,
)
from twinshore.switch.operations import plan as planning
from twinshore.switch.operations import run
from twinshore.switch.operations.plan import (
    TOPIC_NAME_PATTERN,
    MatchedTopics,
    SwitchPlan,
    SwitchPlanRequest,
    current_links,
    escape_topic,
    links_leading_to,
    match_topics,
    match_topics_without_twins,
    open_cluster,
    open_link,
)
from twinshore.switch.operations.run import SwitchCaller
from twinshore.switch.step_runner import PREPARE_LAG_OFFSETS_MAX

MIRROR_RESTART_S = 5.0  # a link that was changed a moment ago has no mirror for so long
POLL_INTERVAL_S = 0.5
REPORT_EVERY_POLLS = 20  # looks
MIRROR_START_S_MAX = 60.0
# A slow cluster delays a twin; the mirror retries on its own.
TRANSIENT_INCIDENT_KINDS = (IncidentKind.SOURCE_AWAY, IncidentKind.TARGET_AWAY)


@dataclass(frozen=True, slots=True)
class CarryFirstPlan(SwitchPlan):
    """`carrier` first replicates the topics `fresh`; `asked` is planned once their twins are nearly level. `topics`:
    all topics that move, including `fresh`.
    """

    request: SwitchPlanRequest | None = None
    carrier: Link | None = None
    fresh: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()


def plan(request: SwitchPlanRequest, settings: Settings, store: Store) -> CarryFirstPlan | None:
    """Returns None if no topic has to be replicated first, or none can be: then the plan of the switch says why."""
    if request.kind is not SwitchKind.PLANNED or request.of:
        return None
    links = current_links(settings, store)
    into, matched = links_leading_to(request.to, request.links, links), match_topics(request, links, store)
    for name, others in matched.dotted.items():
        if _links_with_topics(into, [name], settings):
            raise ConfigError("switch.name-is-expression", topic=name, to=request.to, others=join_names(others))
    unborn = find_topics_without_twin(request, into, matched, settings)
    born = {topic for held in unborn.values() for topic in held}
    lacking = [pattern for pattern in matched.lacking if not any(re.fullmatch(pattern, topic) for topic in born)]
    named = tuple(pattern.replace("\\", "") for pattern in lacking if TOPIC_NAME_PATTERN.fullmatch(pattern))
    found = _links_with_topics(into, named, settings) if len(named) == len(lacking) else {}
    if lacking and not found:
        return None
    found = {link: found.get(link, 0) + sum(unborn.get(link, {}).values()) for link in {**found, **unborn}}
    fresh = (*named, *sorted(born.difference(named)))
    if len(found) > 1:
        names = join_names(sorted(link.name for link in found))
        raise ConfigError("switch.several-links", topics=join_names(fresh), links=names)
    if not found:
        return None
    ((carrier, held),) = found.items()
    with open_cluster(request.to, settings) as target:
        twins = {row.topic for row in store.twins.of(carrier.name)}  # the link replicated these before
        # Records that retention has deleted were its own as well.
        own = sum(ends for topic, ends in _held(target, fresh, whole=True).items() if topic not in twins)
    if own:
        offsets, topics = count_phrase(own, "offset"), join_names(fresh)
        refusal = RefusedError("switch.target-has-offsets", cluster=request.to, offsets=offsets, topics=topics)
        return CarryFirstPlan(refusal=refusal)
    return CarryFirstPlan(
        STEPS[request.kind],
        tuple(_shown(request, carrier, fresh, held)),
        request=request,
        carrier=carrier,
        fresh=fresh,
        topics=(*sorted({row.topic for rows in matched.rows.values() for row in rows}), *fresh),
    )


def carry_and_plan(planned: CarryFirstPlan, settings: Settings, store: Store, caller: SwitchCaller) -> SwitchPlan:
    """Returns the plan of the switch, once the twins are nearly level. A stop before that leaves the link as it is: the
    topics have twins then, and nothing was switched.
    """
    assert planned.carrier is not None and planned.request is not None
    _must_run(planned.carrier, settings, store, caller)
    if new := [topic for topic in planned.fresh if not admits(planned.carrier, topic)]:
        run.ensure_link_carries(planned.carrier.name, new, settings, store, caller)
    _wait(planned.carrier, planned.fresh, settings, store, caller)
    as_they_are = settings.with_links(load_links(settings, store).links)
    return refuse_other_topics(planned, planning.plan(planned.request, as_they_are, store, by=caller.by))


def refuse_other_topics(planned: CarryFirstPlan, found: SwitchPlan) -> SwitchPlan:
    """Refuses a plan that would move other topics than the operator confirmed: a pattern may match more by now."""
    others = sorted(set(found.state.names() if found.state else ()).difference(planned.topics))
    refusal = RefusedError("switch.more-topics", topics=join_names(others))
    return replace(found, state=None, refusal=refusal) if others else found


def describe_left_out(request: SwitchPlanRequest, settings: Settings, store: Store, *, answers: bool) -> str:
    """Describes matched topics that stay behind, as they have no twin. `answers`: whether their home does."""
    links = current_links(settings, store)
    request = replace(request, topics=request.topics or [".*"])
    into, matched = links_leading_to(request.to, request.links, links), match_topics(request, links, store)
    if {row.topic for rows in matched.rows.values() for row in rows}.issuperset(request.topics):
        return ""
    if not answers:
        return f"topics without a twin on {request.to} are left out; which is not known, as their home is silent"
    found = [topic for held in find_topics_without_twin(request, into, matched, settings).values() for topic in held]
    return f"left out, as they have no twin on {request.to} yet: {join_names(sorted(found))}" if found else ""


def find_topics_without_twin(
    request: SwitchPlanRequest, into: Sequence[Link], matched: MatchedTopics, settings: Settings
) -> dict[Link, dict[str, int]]:
    """Returns matched topics with records that a link admits and that have no twin yet, with their number of offsets.
    Skips sources that do not answer.
    """
    found: dict[Link, dict[str, int]] = {}
    names = {row.topic for rows in matched.rows.values() for row in rows}
    for link in into if not names.issuperset(request.topics) else ():
        if link.naming is not TwinNaming.SAME or link.mode is OffsetMode.MAPPED:
            continue
        try:
            with open_cluster(link.source, settings) as source:
                topics = match_topics_without_twins(request, link, matched, source.metadata(refresh=True).topics)
                held = {topic: count for topic, count in _held(source, topics).items() if count} if topics else {}
        except KafkaError as error:
            if not error.retriable:
                raise
            continue
        if held:
            found[link] = held
    return found


def _links_with_topics(into: Sequence[Link], topics: Sequence[str], settings: Settings) -> dict[Link, int]:
    """Returns the links that may replicate these topics, with the offsets that their source holds."""
    found: dict[Link, int] = {}
    for link in into if topics else ():
        widened = replace(link, topics=(*link.topics, *map(escape_topic, topics)))
        if link.naming is not TwinNaming.SAME or link.mode is OffsetMode.MAPPED:
            continue
        if not all(admits(widened, topic) for topic in topics):
            continue
        with open_cluster(link.source, settings) as source:
            held = _held(source, topics)
        if len(held) == len(topics):
            found[link] = sum(held.values())
    return found


def _held(cluster: KafkaCluster, topics: Sequence[str], *, whole: bool = False) -> dict[str, int]:
    """Returns how many offsets the cluster holds of each existing topic; `whole`: has ever held."""
    there = cluster.metadata(sorted(topics), refresh=True).topics
    found = {name: topic for name, topic in there.items() if not topic.error}
    partitions = [TopicPartition(name, tp.partition) for name, topic in found.items() for tp in topic.partitions]
    ends, starts = (cluster.list_offsets(partitions, kind) for kind in (OffsetKind.LOG_END, OffsetKind.EARLIEST))
    held = dict.fromkeys(found, 0)
    for partition in partitions:
        held[partition.topic] += ends[partition] - (0 if whole else starts[partition])
    return held


def _shown(request: SwitchPlanRequest, carrier: Link, fresh: Sequence[str], held: int) -> Iterator[str]:
    # A mirror that has just started has no twins yet.
    begins = all(admits(carrier, topic) for topic in fresh)
    why = f"has no twin on {carrier.target} yet" if begins else "is replicated by no link"
    offsets = f"the {count_phrase(held, 'offset')} that {carrier.source} holds"
    yield f"{join_names(fresh)} {why}: {carrier.name} replicates {offsets} first"
    near = f"the twins are less than {PREPARE_LAG_OFFSETS_MAX:,} offsets behind"
    yield (
        f"the switch of {join_names(request.topics)} to {request.to} is planned once {near}; until then no writer is "
        "held, and Ctrl-C leaves the topics where they are"
    )


def _must_run(carrier: Link, settings: Settings, store: Store, caller: SwitchCaller) -> None:
    """Raises RefusedError if no mirror runs the link, before the link is changed."""
    mirror, began_s = MirrorWatch(store, carrier.name, settings.mirror.lease_s), steady_s()
    while outcome := mirror.check_alive():
        is_gone = isinstance(outcome, StepFailed) and steady_s() >= began_s + MIRROR_RESTART_S
        if is_gone or caller.stop.wait(POLL_INTERVAL_S):
            raise RefusedError("switch.no-mirror", cause=outcome.sentence)


def _wait(carrier: Link, fresh: Sequence[str], settings: Settings, store: Store, caller: SwitchCaller) -> None:
    """Raises RefusedError if a twin stops, the mirror does not return after the change of the link, or the wait is
    stopped.
    """
    began_s, looks, told = steady_s(), 0, ""
    mirror = MirrorWatch(store, carrier.name, settings.mirror.lease_s)
    with open_link(carrier, settings) as clients:
        while not caller.stop.wait(POLL_INTERVAL_S):
            waits = describe_twin_lag(carrier, fresh, clients, store)
            if not waits:
                return
            # The mirror restarts the link for the change; until then none runs it.
            outcome = mirror.check_alive() if steady_s() - began_s > MIRROR_START_S_MAX else None
            if isinstance(outcome, StepFailed):
                raise RefusedError("switch.no-mirror", cause=outcome.sentence)
            if looks % REPORT_EVERY_POLLS == 0 and waits != told:
                told = waits
                caller.tell(f"waits: {waits}")
            looks += 1
    raise RefusedError("switch.stopped-before", link=carrier.name, topics=join_names(fresh))


def describe_twin_lag(carrier: Link, fresh: Sequence[str], clients: LinkClients, store: Store) -> str:
    """Returns what the twins lack. Raises RefusedError if one has stopped for good."""
    rows = [row for row in store.twins.active(carrier.name) if row.topic in fresh]
    rest = find_stopped_partitions(carrier, fresh, store)
    lasting = {name: kind for name, kind in rest.items() if kind not in TRANSIENT_INCIDENT_KINDS}
    if stopped := format_stopped_partitions(lasting):
        raise RefusedError("switch.link-stopped", link=carrier.name, partitions=join_names(stopped))
    if rest:
        why = join_names(sorted({str(kind) for kind in rest.values()}))
        return f"{join_names(sorted(rest))} {is_or_are(rest)} tried again by {carrier.name}: {why}"
    if without := sorted(set(fresh) - {row.topic for row in rows}):
        return f"{join_names(without)} {has_or_have(without)} no twin on {carrier.target} yet"
    moved = [planning.topic_move_of(topic, rows, carrier, store) for topic in fresh]
    away = count_missing_offsets(clients.source, clients.target, moved)
    return f"the twins are {count_phrase(away, 'offset')} behind" if away > PREPARE_LAG_OFFSETS_MAX else ""
