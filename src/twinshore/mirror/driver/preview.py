"""What running a link would do, without doing any of it: no lease is taken, nothing is made or changed."""

from __future__ import annotations

from collections.abc import Callable

from twinshore.fleet import Link, NamedPartition, is_heartbeats
from twinshore.fleet.sentences import copies, counted
from twinshore.fleet.settings import Settings
from twinshore.mirror.control.ruling import Ruling
from twinshore.mirror.driver.link_notes import LinkNotes
from twinshore.mirror.driver.others import Others
from twinshore.mirror.driver.survey import Surveyor, known_twins
from twinshore.mirror.incidents.standing import retries, stopping
from twinshore.mirror.mapping.cost import Cost
from twinshore.mirror.mapping.forecast import forecast
from twinshore.mirror.mapping.positions import Positions
from twinshore.mirror.planned import AtHome, CarryTopic, Create, Grow, Refuse, Rest, Settle, Stay, Step
from twinshore.mirror.pump.probing import may_write_markers
from twinshore.mirror.topology.descents import Descents
from twinshore.mirror.topology.homing import Homing
from twinshore.service.connections import Shared
from twinshore.service.ends import Ends
from twinshore.service.identity import recognise
from twinshore.store import Store

TOPICS_AT_ONCE = 100
PATIENCE_S = 10.0


def holding(link: Link, settings: Settings, store: Store, log: Callable[[str], None]) -> Link:
    """The link as it would run now: its settings, and what operators have said since."""
    ruling = Ruling(link, settings.links, store, log, notes=False)
    ruling.changed()
    return ruling.link


def preview(
    link: Link, settings: Settings, store: Store, shared: Shared, rate_bytes_s: float = 0.0
) -> list[Step | Cost]:
    """Every step of the link, topic by topic, and what it will take; raises where the link must not run at all."""
    with Ends(link, settings, patience_s=PATIENCE_S, shared=shared) as ends:
        source, target = ends.source, ends.target
        recognise(link, store, source, target)
        LinkNotes(link, store, target).refuse_another(source.cluster_id())
        surveyor = Surveyor(link, source, target)
        known = known_twins(store, link)
        ends_of = (settings.links, store, source, target)
        descents = Descents(lambda: link, *ends_of, log=lambda _: None)
        homing = Homing(lambda: link, *ends_of, descents, log=lambda _: None, notes=False)
        names = [name for name in homing.admitted(surveyor.names()) if not is_heartbeats(name)]
        chunks = [names[at : at + TOPICS_AT_ONCE] for at in range(0, len(names), TOPICS_AT_ONCE)]
        steps = Others(link, store).judged([step for chunk in chunks for step in surveyor.plan(chunk, known)], known)
        staying = descents.staying | homing.homeless | homing.elsewhere
        stay = [Stay(name, why) for name, why in sorted(staying.items()) if not is_heartbeats(name)]
        at_home = [AtHome(name, row.home) for name, row in sorted(homing.at_home.items()) if name in names]
        steps = [*at_home, *homing.refused.values(), *steps]
        steps, paused = _without_paused(link, steps)
        rows, unproven = Positions(link, source, target, store).propose(
            [step for step in steps if isinstance(step, CarryTopic) and step.mapped]
        )
        failed = {why.topic for why in unproven}
        steps = [*(step for step in steps if step.topic not in failed), *unproven]
        adopted = {NamedPartition(row.topic, row.partition): extent for row, extent, _ in rows}
        closed_units = not may_write_markers(target)
        steps, rests = _without_resting(link, steps, store)
        costs = forecast(link, steps, adopted, source, store, rate_bytes_s, closed_units=closed_units)
        return [*steps, *rests, *paused, *stay, *costs]


def _without_paused(link: Link, steps: list[Step]) -> tuple[list[Step], list[Step]]:
    """The steps of topics that flow, and why the others do not."""
    held = sorted({step.topic for step in steps if link.control.pauses(step.topic)})
    why = "its link is paused" if link.control.paused else "it is paused"
    stay: list[Step] = [Stay(name, f"topic {name}: {why}, see `twinshore link list`") for name in held]
    return [step for step in steps if step.topic not in held], stay


def _without_resting(link: Link, steps: list[Step], store: Store) -> tuple[list[Step], list[Step]]:
    """The steps as far as no open incident keeps partitions from being carried, and which these are."""
    known = {step.topic for step in steps if isinstance(step, CarryTopic)}
    stopped = {named: rows for named, rows in stopping(store, link.name).items() if named.topic in known}
    rests: list[Step] = []
    for named, rows in sorted(stopped.items()):
        one = rows[0].incident
        rests.append(Rest(named.topic, named.partition, rows[0].id, one.kind, one.sentence, retries(rows)))
    whole = {topic for topic in known if all(NamedPartition(topic, n) in stopped for n in _numbers(steps, topic))}
    return [step for step in steps if not (isinstance(step, CarryTopic) and step.topic in whole)], rests


def _numbers(steps: list[Step], topic: str) -> range:
    return range(max(step.partitions for step in steps if isinstance(step, CarryTopic) and step.topic == topic))


def in_words(step: Step | Cost) -> str:
    """The step as an operator reads it."""
    match step:
        case Create(topic, partitions, replication, settings, twin):
            shape = f"{counted(partitions, 'partition')}, {copies(replication)}"
            return f"create twin {called(topic, twin)}: {shape}, {_pairs(settings)}; carry it"
        case Grow(topic, partitions, _, twin):
            return f"grow twin {twin or topic} to {partitions} partitions"
        case Settle(topic, settings, _, twin):
            return f"settle twin {twin or topic}: {_pairs(settings)}"
        case CarryTopic(topic, partitions, _, _, twin):
            how = ", mapped: behind what it holds, at offsets of its own" if step.mapped else ""
            return f"carry {called(topic, twin)}: {partitions} partitions{how}"
        case Refuse(_, _, sentence, hint):
            return f"refuse: {sentence} (try: {hint})"
        case Rest(topic, partition, incident, kind, sentence):
            then = "it is tried again by itself" if step.retries else "then `twinshore mirror resume`"
            return f"do not carry {topic}-{partition}: incident {incident} stops it, {kind}: {sentence}; {then}"
        case AtHome(topic, home):
            return f"home of {topic}: {home}"
        case Stay(_, sentence):
            return f"leave: {sentence}"
        case Cost():
            return str(step)


def called(topic: str, twin: str) -> str:
    """The twin, and whose it is where that is another name."""
    return f"{twin} of {topic}" if twin else topic


def _pairs(settings: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings)
