"""What a switch has left on clusters of which no store knows any more: its claims, and words that hold writers.

A store that was lost with its disk takes the record of an open switch along. The clusters still say that the topics are
in it, so no other switch may have them, and those who follow homes wait for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from twinshore.fleet import ConfigError, Naming, RefusedError
from twinshore.fleet.operations import Plan
from twinshore.fleet.sentences import listed
from twinshore.fleet.settings import Settings
from twinshore.homes.home_lines import HomeLine, HomeState
from twinshore.homes.home_notes import HomeNotes
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.rights import Acl
from twinshore.kafka.rights_requests import read_acls
from twinshore.links.standing import standing
from twinshore.store import Store
from twinshore.switch.acl_fence import shuts_out
from twinshore.switch.hands.debts import unsay
from twinshore.switch.operations.kept import records_of

ASK_S = 5.0
NAMED_MAX = 5
ID_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Free:
    """The switch whose id begins so; it need not be said where only one is unknown."""

    switch: str = ""


@dataclass(frozen=True, slots=True)
class FreeStep:
    """On one cluster."""

    cluster: str
    switch: str
    topics: tuple[str, ...]
    held: tuple[str, ...]

    def sentence(self, *, done: bool) -> str:
        word = "are" if done else "would be"
        held = f"; writers to {listed(self.held, NAMED_MAX)} go on" if self.held else ""
        return (
            f"{self.cluster}: {listed(self.topics, NAMED_MAX)} {word} in switch {self.switch[:ID_SHOWN]} no more{held}"
        )


def plan(asked: Free, settings: Settings, store: Store) -> Plan[FreeStep]:
    """RefusedError for a switch that is known: it is ended by its own verbs. ConfigError where none is meant."""
    links = [one.link for one in standing(settings.links, store).values() if one.link.naming is Naming.SAME]
    known = {row.id for row in store.switches.all()}
    steps: list[FreeStep] = []
    rules: dict[str, tuple[Acl, ...]] = {}
    for name in sorted({link.source for link in links} | {link.target for link in links}):
        with closing(KafkaCluster(settings.cluster(name), patience_s=ASK_S, call_s=ASK_S)) as cluster:
            notes = HomeNotes(cluster)
            lines = notes.read()
            known |= records_of(notes.log).keys()
            steps += _left_on(name, notes, lines)
            rules[name] = tuple(read_acls(cluster) or ())
    meant = _meant(asked, steps, known)
    return replace(meant, remarks=tuple(_denied(meant.steps, rules)))


def _left_on(cluster: str, notes: HomeNotes, lines: Mapping[str, HomeLine]) -> Iterator[FreeStep]:
    held: dict[str, set[str]] = {}
    for topic, line in lines.items():
        if line.switch and line.state is not HomeState.SETTLED:
            held.setdefault(line.switch, set()).add(topic)
    for switch in sorted({*notes.log.switches(), *held}):
        waits = held.get(switch, set())
        yield FreeStep(cluster, switch, tuple(sorted({*notes.log.claimed(switch), *waits})), tuple(sorted(waits)))


def _denied(steps: Sequence[FreeStep], rules: Mapping[str, Sequence[Acl]]) -> Iterator[str]:
    """Who keeps writers from the topics of this switch, wherever; a switch that lives denies its own topics alone."""
    topics = {topic for step in steps for topic in step.topics}
    for cluster, acls in rules.items():
        if denied := sorted({acl.name for acl in acls if shuts_out(acl, topics)}):
            yield (
                f"{cluster} denies Write on {listed(denied, NAMED_MAX)}, perhaps for that switch: take such rules away "
                "by hand, or nobody writes"
            )


def _meant(asked: Free, found: list[FreeStep], known: Collection[str]) -> Plan[FreeStep]:
    meant = [step for step in found if step.switch.startswith(asked.switch)]
    steps = [step for step in meant if step.switch not in known]
    if asked.switch and meant and not steps:
        hint = "`twinshore switch resume` or `switch rollback` ends it"
        raise RefusedError(f"switch {meant[0].switch[:ID_SHOWN]} is known", hint=hint)
    switches = sorted({step.switch for step in steps})
    if not switches:
        of = f"switch {asked.switch}" if asked.switch else "a switch that the store does not know"
        unknown = sorted({step.switch[:ID_SHOWN] for step in found if step.switch not in known})
        hint = f"say which: {', '.join(unknown)}" if unknown else ""
        raise ConfigError(f"no cluster has anything of {of}", hint=hint)
    if len(switches) > 1:
        which = ", ".join(one[:ID_SHOWN] for one in switches)
        raise ConfigError(f"{len(switches)} switches may be meant", hint=f"say which: {which}")
    shown = (
        f"the store knows no switch {switches[0][:ID_SHOWN]}: see that no process of it runs any more, with another "
        "store or without one",
    )
    return Plan(tuple(steps), shown)


def act(planned: Plan[FreeStep], settings: Settings, *, by: str) -> Iterator[FreeStep]:
    """Done twice as done once."""
    for step in planned.steps:
        with closing(KafkaCluster(settings.cluster(step.cluster), patience_s=ASK_S, call_s=ASK_S)) as cluster:
            unsay(cluster, step.switch, step.topics, by)
        yield step
