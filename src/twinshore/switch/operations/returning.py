"""What a fail-back would rescue and delete on an old home that has returned: looked at, and nothing done."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from twinshore.config.errors import ConfigError, RefusedError, TwinshoreError
from twinshore.config.frozen import RESCUED_TOPIC
from twinshore.config.model import Link, Naming, is_heartbeats
from twinshore.config.sentences import are, counted, have, listed
from twinshore.config.settings import Settings
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.replication.core.ownership import pair_of
from twinshore.replication.links import standing
from twinshore.replication.sync.clusters import NEVER
from twinshore.replication.sync.core.lifecycle import KEEP, objection
from twinshore.runtime.endpoints import Ends, recognise
from twinshore.state.core.values import TwinRow
from twinshore.state.store import Store
from twinshore.switch import rescue
from twinshore.switch.announce import taken
from twinshore.switch.core.steps import DEEDS, Kind, Moved, SwitchState
from twinshore.switch.core.unreplicated import Stood, Tail, differ, kept_back, tails, to_json, topics_of, unseen
from twinshore.switch.drain import answers, changed, filled_in_part
from twinshore.switch.failback import unfit
from twinshore.switch.handover import places_in
from twinshore.switch.operations.plan import DeedStep, SwitchPlan, cramped, left_open, must_be_expressions
from twinshore.switch.rescue import origin_of, stood

NAMED_MAX = 5
ASK_S = 5.0
FOLDER = "rescued"


@dataclass(frozen=True, slots=True)
class FailBack:
    """Topics whose whole names match one of these expressions become twins on `old`, where they were at home. `folder`:
    for what is rescued; without it beside the settings. `mapped`: nothing is deleted, twins go on behind."""

    topics: Sequence[str]
    old: str
    links: Sequence[str] = ()
    folder: Path | None = None
    mapped: bool = False


def folder_of(settings: Settings, said: Path | None = None) -> Path:
    """Where rescued tails are kept."""
    return said.absolute() if said else (settings.file or Path.cwd() / "twinshore.toml").parent / FOLDER


def plan(asked: FailBack, settings: Settings, store: Store, *, by: str = "") -> SwitchPlan:
    """ConfigError where no topic is meant; what stands in the way is `refused`, in one sentence."""
    settings.cluster(asked.old)
    must_be_expressions(asked.topics)
    back, topics = _link_of(asked, [one.link for one in standing(settings.links, store).values()], store)
    if mapped := sorted({topic for topic, _ in store.extents.reached(back.name)} & {one.topic for one in topics}):
        gone_on = f"the twin of {listed(mapped, NAMED_MAX)} on {asked.old} goes on mapped, behind what never crossed"
        return SwitchPlan(refused=RefusedError(gone_on, hint="there is nothing to bring home any more"))
    link = Link(back.target, back.source)
    with Ends(link, settings, patience_s=ASK_S, call_s=ASK_S) as ends:
        for cluster in (ends.source, ends.target):
            if away := answers(cluster):
                silent = RefusedError(f"{cluster.name} does not answer: {away}", hint="wait until it does")
                return SwitchPlan(refused=silent)
        recognise(back, store, ends.target, ends.source)
        if other := changed(ends.source, topics, new=False):
            return SwitchPlan(refused=RefusedError(other, hint="save its records, and delete it there by hand"))
        seen = stood(ends.source, ends.target, store, back.name, topics)
        found = tails(seen)
        kind = Kind.MAPPED if asked.mapped else Kind.FAILBACK
        record = record_of(kind, back, topics, by, str(folder_of(settings, asked.folder)))
        shown = tuple(_shown(record, found, ends.source, ends.target, store))
        refused = _unmappable(found, record, ends.source, store) if asked.mapped else None
        _, live = places_in(ends.source, topics_of(found)) if found and not asked.mapped else ({}, ())
        room = cramped(ends.source, record.names(), settings)
        guarded = left_open(ends.source, record.names(), "")
    if others := kept_back(seen, topics_of(found)):
        refused = RefusedError(
            differ(others, record.old, record.new), hint="docs/switch.md, A twin that is spoilt, says how"
        )
    refused = refused or _refused(found, live, back, settings, store, deletes=not asked.mapped) or room.refused()
    if refused:
        return SwitchPlan(shown=shown, refused=refused)
    steps = tuple(DeedStep(deed) for deed in DEEDS[kind])
    part = filled_in_part(back) if found and not asked.mapped else ""
    remarks = (*_remarks(seen, record), *filter(None, (room.words, part)), guarded)
    return SwitchPlan(steps, shown, remarks, record=record)


def _link_of(asked: FailBack, links: Sequence[Link], store: Store) -> tuple[Link, tuple[Moved, ...]]:
    """The one link that leads to the old home, and the topics that a switch has left to it."""
    wanted = [re.compile(pattern) for pattern in asked.topics]
    found: dict[str, list[TwinRow]] = {}
    for link in links:
        if link.target != asked.old or link.naming is not Naming.SAME or (asked.links and link.name not in asked.links):
            continue
        rows = [row for row in store.twins.of(link.name) if row.epoch and not is_heartbeats(row.topic)]
        if ours := [row for row in rows if any(one.fullmatch(row.topic) for one in wanted)]:
            found[link.name] = ours
    if not found:
        raise ConfigError(
            f"no switch has moved {listed(list(asked.topics), NAMED_MAX)} away from {asked.old}",
            hint="`twinshore switch history` lists switches, `twinshore link homes` where topics are at home",
        )
    if len(found) > 1:
        raise ConfigError(f"several links carry these topics: {listed(sorted(found), NAMED_MAX)}", hint="say --link")
    ((name, rows),) = found.items()
    back = next(one for one in links if one.name == name)
    homes = store.homes.of(pair_of(back))
    away = sorted({row.topic for row in rows if row.topic not in homes or homes[row.topic].home != back.source})
    if away:
        raise RefusedError(f"{listed(away, NAMED_MAX)} {are(away)} not at home on {back.source}")
    return back, tuple(twin_of(rows, topic, homes[topic].term) for topic in sorted({row.topic for row in rows}))


def twin_of(rows: Sequence[TwinRow], topic: str, term: int) -> Moved:
    """The topic's twin by its rows; its points are where the log stops being the topic's own."""
    ours = sorted((row for row in rows if row.topic == topic), key=lambda row: row.partition)
    points = tuple(row.inherited for row in ours)
    return Moved(
        topic=topic,
        old_id=ours[0].target_topic_id,
        new_id=ours[0].source_topic_id,
        term=term,
        partitions=len(ours),
        points=points,
    )


def record_of(kind: Kind, carrier: Link, topics: tuple[Moved, ...], by: str, folder: str) -> SwitchState:
    """`carrier` fills the twins. Its target is the old home, or has always held twins."""
    return SwitchState(
        id=secrets.token_hex(16),
        kind=kind,
        old=carrier.target,
        new=carrier.source,
        link=f"{carrier.target}->{carrier.source}",
        back=carrier.name,
        topics=topics,
        by=by,
        begun_ms=wall_ms(),
        hold_s_max=0.0,
        deed=DEEDS[kind][0],
        folder=folder,
    )


def _shown(
    record: SwitchState, found: Sequence[Tail], old: KafkaCluster, new: KafkaCluster, store: Store
) -> Iterator[str]:
    if not found:
        yield f"nothing diverged: {record.old} holds nothing that {record.new} lacks"
        yield "nothing is rescued, nothing is deleted"
        return
    for tail in found:
        home = rescue.known_home(record.back, tail, new, store, 0) if tail.beside else None
        count = rescue.counted_tail(old, origin_of(record, tail), home)
        some = f"{counted(count.records, 'record')}, {count.committed} of them committed"
        if tail.gone:
            offsets = f"{counted(tail.gone, 'offset')} of {tail.topic}-{tail.partition}"
            yield f"lost: {offsets} were deleted on {record.old} before anybody saw them"
        if tail.end <= tail.first:
            continue
        if tail.beside:
            lacks = f"{record.new} lacks of {tail} of {record.old}"
            yield f"to be rescued: {some}: all that {lacks}; where both part is not known"
            continue
        yield f"to be rescued: {tail} of {record.old}, {some}"
    if any(tail.end > tail.first for tail in found):
        yield f"rescued to {RESCUED_TOPIC} on {record.new}, and exported to {record.folder}"
    for topic in topics_of(found):
        if record.kind is Kind.MAPPED:
            yield f"goes on behind that, mapped, and nothing is deleted: topic {topic} on {record.old}"
            continue
        yield f"to be deleted, and filled again from {record.new}: topic {topic} on {record.old}"


def _refused(
    found: Sequence[Tail], live: Sequence[str], back: Link, settings: Settings, store: Store, *, deletes: bool
) -> TwinshoreError | None:
    if others := taken(store, pair_of(back), topics_of(found)):
        return others
    if live:
        return RefusedError(
            f"group {listed(live, NAMED_MAX)} {have(live)} members on {back.target}, which read what is to be deleted",
            hint=f"stop these consumers, or point them to {back.source}; one that is gone without a word is a"
            " member until its session times out",
        )
    return kept_from_deletion(topics_of(found), back, settings, store) if deletes else None


def kept_from_deletion(topics: Sequence[str], link: Link, settings: Settings, store: Store) -> TwinshoreError | None:
    """What forbids that a twin of these topics is deleted."""
    never = NEVER if settings.safety.never_delete else ""
    kept = {row.subject for row in store.memories.of(link.name, KEEP)}
    now = standing(settings.links, store)[link.name]
    for topic in topics:
        if why := objection(now.link, topic, never=never, kept=kept, troubles=now.troubles):
            return RefusedError(
                f"topic {topic} on {link.target} is not deleted: {why}", hint="docs/deletes.md says what forbids it"
            )
    return None


def _unmappable(found: Sequence[Tail], record: SwitchState, old: KafkaCluster, store: Store) -> TwinshoreError | None:
    why = unfit(replace(record, tails=to_json(found)), old, store) if found else ""
    return RefusedError(why, hint="without --mapped the topic is deleted, and filled again") if why else None


def _remarks(seen: Sequence[Stood], record: SwitchState) -> Iterator[str]:
    if waits := [f"{one.topic}-{one.partition}" for one in seen if unseen(one)]:
        yield f"the mirror of {record.back} has not looked at {listed(waits, NAMED_MAX)} yet; it must run"
