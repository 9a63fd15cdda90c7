"""Frees what an ended or unknown switch has left on clusters: claims, and home records that hold writers.

If the store's disk is lost, so is the state of an open switch. The clusters still have the claims: no other switch can
take the topics, and subscribers wait.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

from twinshore.config.errors import ConfigError, KafkaError, RefusedError
from twinshore.config.model import Plan, TopicPartition, TwinNaming
from twinshore.config.sentences import join_names
from twinshore.config.settings import Settings
from twinshore.kafka.admin import read_acls
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.protocol.access_control import Acl
from twinshore.replication.links import effective_links
from twinshore.routing.core.home_records import HomeRecord, HomeState
from twinshore.routing.homes_topic import HomesTopic
from twinshore.state.core.values import SwitchRow
from twinshore.state.store import Store
from twinshore.switch.core.acl_rules import (
    DEFERRED_CLEANUP_KIND,
    TopicLogEnds,
    denies_writing,
    describe_partly_filled,
    find_unfinished_switches,
    pair_names,
)
from twinshore.switch.core.steps import SwitchState
from twinshore.switch.operations.run import read_switch_records
from twinshore.switch.rescue_steps import TOPIC_ABSENT_CODES
from twinshore.switch.write_access import release_topics_on_cluster

REQUEST_TIMEOUT_S = 5.0
NAMED_MAX = 5
ID_SHOWN = 8


@dataclass(frozen=True, slots=True)
class FreeRequest:
    """`switch`: begin of the id; may be empty if only one switch is unknown."""

    switch: str = ""


@dataclass(frozen=True, slots=True)
class FreeStep:
    cluster: str
    switch: str
    topics: tuple[str, ...]
    held: tuple[str, ...]

    def sentence(self, *, done: bool) -> str:
        word = "are" if done else "would be"
        held = f"; writers to {join_names(self.held, NAMED_MAX)} go on" if self.held else ""
        return (
            f"{self.cluster}: {join_names(self.topics, NAMED_MAX)} {word} in switch {self.switch[:ID_SHOWN]} no "
            f"more{held}"
        )


@dataclass(slots=True)
class _Seen:
    steps: list[FreeStep] = field(default_factory=list)
    kept: list[SwitchState] = field(default_factory=list)
    rules: dict[str, tuple[Acl, ...]] = field(default_factory=dict)
    silent: dict[str, KafkaError] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)


def plan(request: FreeRequest, settings: Settings, store: Store) -> Plan[FreeStep]:
    """Raises RefusedError for a switch that has not ended or has a deferred cleanup, ConfigError if none matches,
    KafkaError if no cluster answers. A silent cluster keeps what it has.
    """
    links = [
        effective.link
        for effective in effective_links(settings.links, store).values()
        if effective.link.naming is TwinNaming.SAME
    ]
    names = sorted({link.source for link in links} | {link.target for link in links})
    seen = _look(names, settings)
    if seen.silent.keys() == set(names) and names:
        raise seen.silent[names[0]]
    rows = store.switches.all()
    owed = [row.subject.partition(" ") for row in store.link_states.of_each(pair_names(links), DEFERRED_CLEANUP_KIND)]
    debts = [(switch, cluster) for switch, _, cluster in owed]
    plan = _meant(request, seen, find_unfinished_switches(rows, seen.kept, debts), {row.id: row for row in rows})
    topics = {topic for step in plan.steps for topic in step.topics}
    answering = [name for name in names if name not in seen.silent]
    ends = _ends(answering, topics, settings)
    unknown = [f"how far these topics reach on {name} is not known" for name in answering if name not in ends]
    denied = (*_denied(plan.steps, seen.rules), *seen.unknown)
    return replace(
        plan, remarks=(*describe_partly_filled(links, topics, ends), *unknown, *denied, *_unasked(seen.silent))
    )


def _look(names: Sequence[str], settings: Settings) -> _Seen:
    seen = _Seen()
    for name in names:
        try:
            with closing(
                KafkaCluster(settings.cluster(name), patience_s=REQUEST_TIMEOUT_S, call_s=REQUEST_TIMEOUT_S)
            ) as cluster:
                homes_topic = HomesTopic(cluster)
                records = homes_topic.read()
                try:
                    seen.rules[name] = tuple(read_acls(cluster) or ())
                except KafkaError as error:
                    seen.unknown.append(f"whether {name} denies Write on these topics is not known ({error.message})")
        except KafkaError as error:
            seen.silent[name] = error
            continue
        seen.kept += [record.state for record in read_switch_records(homes_topic.log).values()]
        seen.steps += _left_on(name, homes_topic, records)
    return seen


def _ends(names: Sequence[str], topics: Collection[str], settings: Settings) -> dict[str, TopicLogEnds]:
    found: dict[str, TopicLogEnds] = {}
    for name in names:
        try:
            with closing(
                KafkaCluster(settings.cluster(name), patience_s=REQUEST_TIMEOUT_S, call_s=REQUEST_TIMEOUT_S)
            ) as cluster:
                there = cluster.metadata(sorted(topics), refresh=True).topics
                if any(
                    topic_metadata.error and topic_metadata.error not in TOPIC_ABSENT_CODES
                    for topic_metadata in there.values()
                ):
                    continue
                partitions = [
                    TopicPartition(topic, number)
                    for topic, topic_metadata in there.items()
                    if not topic_metadata.error
                    for number in range(len(topic_metadata.partitions))
                ]
                told = cluster.list_offsets(partitions, OffsetKind.HIGH_WATERMARK) if partitions else {}
        except KafkaError:
            continue
        ends: dict[str, dict[int, int]] = {}
        for partition, end in told.items():
            ends.setdefault(partition.topic, {})[partition.partition] = end
        found[name] = ends
    return found


def _unasked(silent: Mapping[str, KafkaError]) -> Iterator[str]:
    for name, error in silent.items():
        yield (
            f"{name} was not asked ({error.message}): what is left there stays, and a switch whose record stands there "
            "is not known here. Say the same again once it answers"
        )


def _left_on(cluster: str, homes_topic: HomesTopic, records: Mapping[str, HomeRecord]) -> Iterator[FreeStep]:
    held: dict[str, set[str]] = {}
    for topic, record in records.items():
        if record.switch and record.state is not HomeState.SETTLED:
            held.setdefault(record.switch, set()).add(topic)
    for switch in sorted({*homes_topic.log.switches(), *held}):
        waits = held.get(switch, set())
        yield FreeStep(cluster, switch, tuple(sorted({*homes_topic.log.claimed(switch), *waits})), tuple(sorted(waits)))


def _denied(steps: Sequence[FreeStep], rules: Mapping[str, Sequence[Acl]]) -> Iterator[str]:
    """Warns of denials of these topics on any cluster; a live switch denies only its own topics."""
    topics = {topic for step in steps for topic in step.topics}
    for cluster, acls in rules.items():
        if denied := sorted({acl.name for acl in acls if denies_writing(acl, topics)}):
            yield (
                f"{cluster} denies Write on {join_names(denied, NAMED_MAX)}, perhaps for that switch: take such "
                "rules away "
                "by hand, or nobody writes"
            )


def _meant(
    request: FreeRequest, seen: _Seen, used: Mapping[str, str], known: Mapping[str, SwitchRow]
) -> Plan[FreeStep]:
    meant = [step for step in seen.steps if step.switch.startswith(request.switch)]
    steps = [step for step in meant if step.switch not in used]
    if request.switch and meant and not steps:
        switch = meant[0].switch
        raise RefusedError("switch.still-needed", switch=switch[:ID_SHOWN], remedy=used[switch])
    switches = sorted({step.switch for step in steps})
    if not switches:
        of = f"switch {request.switch}" if request.switch else "a switch that has ended or that the store does not know"
        free = sorted({step.switch[:ID_SHOWN] for step in seen.steps if step.switch not in used})
        says = [f"say which: {', '.join(free)}"] if free else []
        says += [f"{join_names(sorted(seen.silent), NAMED_MAX)} does not answer"] if seen.silent else []
        raise ConfigError("switch.nothing-to-free", of=of, remedy="; ".join(says))
    if len(switches) > 1:
        which = ", ".join(one[:ID_SHOWN] for one in switches)
        raise ConfigError("switch.several-switches", count=len(switches), ids=which)
    row = known.get(switches[0])
    whose = f"switch {switches[0][:ID_SHOWN]} has ended ({row.state})" if row else ""
    whose = whose or f"the store knows no switch {switches[0][:ID_SHOWN]}"
    shown = f"{whose}: see that no process of it runs any more, with another store or without one"
    return Plan(tuple(steps), (shown,))


def free_claims(plan: Plan[FreeStep], settings: Settings, *, by: str) -> Iterator[FreeStep]:
    """Frees the claims. Idempotent. A silent cluster does not delay the others; KafkaError is raised at the end."""
    silent: KafkaError | None = None
    for step in plan.steps:
        try:
            with closing(
                KafkaCluster(settings.cluster(step.cluster), patience_s=REQUEST_TIMEOUT_S, call_s=REQUEST_TIMEOUT_S)
            ) as cluster:
                release_topics_on_cluster(cluster, step.switch, step.topics, by)
        except KafkaError as error:
            silent = silent or error
            continue
        yield step
    if silent:
        raise silent
