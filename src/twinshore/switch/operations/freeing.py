"""Frees what an ended or unknown switch has left on clusters: claims, and home records that hold writers.

If the store's disk is lost, so is the state of an open switch. The clusters still have the claims: no other switch can
take the topics, and subscribers wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from twinshore.config.errors import ConfigError, KafkaError, RefusedError
from twinshore.config.model import Plan, TwinNaming
from twinshore.config.sentences import join_names
from twinshore.config.settings import Settings
from twinshore.kafka.admin import read_acls
from twinshore.kafka.protocol.access_control import Acl
from twinshore.routing.core.home_records import HomeRecord, HomeState
from twinshore.routing.homes_topic import HomesTopic
from twinshore.state.core.values import SwitchRow
from twinshore.state.store import Store
from twinshore.switch.core.acl_rules import (
    DEFERRED_CLEANUP_KIND,
    denies_writing,
    find_unfinished_switches,
    pair_names,
)
from twinshore.switch.core.steps import SwitchState
from twinshore.switch.operations.plan import current_links, open_cluster
from twinshore.switch.operations.run import read_switch_records
from twinshore.switch.write_access import release_topics_on_cluster

PARTLY_FILLED = (
    "if that switch was a fail-back or a rebuild, it may have stopped while it refilled twins, and its claim keeps a "
    "forced switch from moving topics to a part of them: force none before the mirror has refilled them, or rebuild "
    "them (`twinshore mirror rebuild`)"
)
ID_SHOWN = 8


@dataclass(frozen=True, slots=True)
class FreeStep:
    cluster: str
    switch: str
    topics: tuple[str, ...]
    held: tuple[str, ...]

    def sentence(self, *, done: bool) -> str:
        verb = "are" if done else "would be"
        held = f"; writers to {join_names(self.held)} continue" if self.held else ""
        return f"{self.cluster}: {join_names(self.topics)} {verb} in switch {self.switch[:ID_SHOWN]} no more{held}"


@dataclass(slots=True)
class _Seen:
    steps: list[FreeStep] = field(default_factory=list)
    kept: list[SwitchState] = field(default_factory=list)
    rules: dict[str, tuple[Acl, ...]] = field(default_factory=dict)
    silent: dict[str, KafkaError] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)


def plan(switch: str, settings: Settings, store: Store) -> Plan[FreeStep]:
    """`switch`: begin of the id; may be empty if only one switch is unknown. Raises RefusedError for a switch that has
    not ended or has a deferred cleanup, ConfigError if none matches, KafkaError if no cluster answers. A silent cluster
    keeps what it has.
    """
    links = [link for link in current_links(settings, store) if link.naming is TwinNaming.SAME]
    names = sorted({link.source for link in links} | {link.target for link in links})
    seen = _look(names, settings)
    if seen.silent.keys() == set(names) and names:
        raise seen.silent[names[0]]
    rows = store.switches.all()
    owed = [row.subject.partition(" ") for row in store.link_states.of_each(pair_names(links), DEFERRED_CLEANUP_KIND)]
    debts = [(owing, cluster) for owing, _, cluster in owed]
    plan = _meant(switch, seen, find_unfinished_switches(rows, seen.kept, debts), {row.id: row for row in rows})
    denied = _denied(plan.steps, seen.rules)
    return replace(plan, remarks=(PARTLY_FILLED, *denied, *seen.unknown, *_unasked(seen.silent)))


def _look(names: Sequence[str], settings: Settings) -> _Seen:
    seen = _Seen()
    for name in names:
        try:
            with open_cluster(name, settings) as cluster:
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


def _unasked(silent: Mapping[str, KafkaError]) -> Iterator[str]:
    for name, error in silent.items():
        rest = "what is left there stays, and a switch whose record is there is not known here. Free again later"
        yield f"{name} was not asked ({error.message}): {rest}"


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
            denies = f"{cluster} denies Write on {join_names(denied)}, perhaps for that switch"
            yield f"{denies}: remove such rules by hand, or no client can write"


def _meant(beginning: str, seen: _Seen, used: Mapping[str, str], known: Mapping[str, SwitchRow]) -> Plan[FreeStep]:
    meant = [step for step in seen.steps if step.switch.startswith(beginning)]
    steps = [step for step in meant if step.switch not in used]
    if beginning and meant and not steps:
        switch = meant[0].switch
        raise RefusedError("switch.still-needed", switch=switch[:ID_SHOWN], remedy=used[switch])
    switches = sorted({step.switch for step in steps})
    if not switches:
        of = f"switch {beginning}" if beginning else "a switch that has ended or that the store does not know"
        free = sorted({step.switch[:ID_SHOWN] for step in seen.steps if step.switch not in used})
        says = [f"say which: {', '.join(free)}"] if free else []
        says += [f"{join_names(sorted(seen.silent))} does not answer"] if seen.silent else []
        raise ConfigError("switch.nothing-to-free", of=of, remedy="; ".join(says))
    if len(switches) > 1:
        which = ", ".join(one[:ID_SHOWN] for one in switches)
        raise ConfigError("switch.several-switches", count=len(switches), ids=which)
    row, shown_id = known.get(switches[0]), switches[0][:ID_SHOWN]
    ended = f"switch {shown_id} has ended ({row.state})" if row else f"the store knows no switch {shown_id}"
    shown = f"{ended}: see that no process of it runs any more, with another store or without one"
    return Plan(tuple(steps), (shown,))


def free_claims(plan: Plan[FreeStep], settings: Settings, *, by: str) -> Iterator[FreeStep]:
    """Frees the claims. Idempotent. A silent cluster does not delay the others; KafkaError is raised at the end."""
    silent: KafkaError | None = None
    for step in plan.steps:
        try:
            with open_cluster(step.cluster, settings) as cluster:
                release_topics_on_cluster(cluster, step.switch, step.topics, by)
        except KafkaError as error:
            silent = silent or error
            continue
        yield step
    if silent:
        raise silent
