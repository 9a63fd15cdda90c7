"""What a rebuild of spoilt twins would rescue, delete and fill again: looked at, and nothing done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from twinshore.config.errors import ConfigError, RefusedError, TwinshoreError
from twinshore.config.frozen import RESCUED_TOPIC
from twinshore.config.incidents import Effect
from twinshore.config.model import Link, Mode, Naming, is_heartbeats
from twinshore.config.schema import did_you_mean
from twinshore.config.sentences import are, counted, have, listed
from twinshore.config.settings import Settings, with_arrow
from twinshore.replication.core.ownership import pair_of
from twinshore.replication.links import standing
from twinshore.runtime.endpoints import Ends, recognise
from twinshore.state.core.values import TwinRow
from twinshore.state.store import Store
from twinshore.switch import rescue
from twinshore.switch.announce import taken
from twinshore.switch.core.steps import DEEDS, Kind, SwitchState
from twinshore.switch.core.unreplicated import doubtful
from twinshore.switch.drain import answers, changed, filled_in_part, log_ends
from twinshore.switch.handover import places_in
from twinshore.switch.operations.plan import DeedStep, SwitchPlan, adopting, cramped
from twinshore.switch.operations.returning import folder_of, kept_from_deletion, record_of, twin_of
from twinshore.switch.rescue import origin_of, stood

NAMED_MAX = 5
ASK_S = 5.0


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The twins of these topics on the link's target are deleted and filled again. `folder`: for what is rescued;
    without it beside the settings. `anyway`: also while somebody reads or writes there."""

    link: str
    topics: Sequence[str]
    folder: Path | None = None
    anyway: bool = False


def plan(asked: Rebuilt, settings: Settings, store: Store, *, by: str = "") -> SwitchPlan:
    """ConfigError where the link knows no such topic; what stands in the way is `refused`, in one sentence."""
    link = standing(settings.links, store)[settings.link(with_arrow(asked.link)).name].link
    rows = _rows(link, asked.topics, store)
    if refused := _unfit(link, asked.topics, store):
        return SwitchPlan(refused=refused)
    homes = store.homes.of(pair_of(link))
    topics = tuple(
        twin_of(rows, topic, homes[topic].term if topic in homes else 0) for topic in sorted(set(asked.topics))
    )
    folder = str(folder_of(settings, asked.folder))
    record = replace(record_of(Kind.REBUILD, link, topics, by, folder), anyway=asked.anyway)
    with Ends(link, settings, patience_s=ASK_S, call_s=ASK_S) as ends:
        for cluster in (ends.source, ends.target):
            if away := answers(cluster):
                silent = RefusedError(f"{cluster.name} does not answer: {away}", hint="wait until it does")
                return SwitchPlan(refused=silent)
        recognise(link, store, ends.source, ends.target)
        if other := changed(ends.target, topics, new=False) or changed(ends.source, topics, new=True):
            hint = "`twinshore mirror begin-again` is for topics that are others by now"
            return SwitchPlan(refused=RefusedError(other, hint=hint))
        shown = tuple(_shown(record, ends, store))
        places, live = places_in(ends.target, record.names())
        room = cramped(ends.target, record.names(), settings)
    refused = _refused(record, () if asked.anyway else live, link, settings, store) or room.refused()
    if refused:
        return SwitchPlan(shown=shown, refused=refused)
    steps = tuple(DeedStep(deed) for deed in DEEDS[Kind.REBUILD])
    remarks = (*_remarks(record, sorted(places), live, store), *filter(None, (room.words, filled_in_part(link))))
    return SwitchPlan(steps, shown, remarks, record=record)


def _rows(link: Link, topics: Sequence[str], store: Store) -> list[TwinRow]:
    rows = [row for row in store.twins.of(link.name) if not is_heartbeats(row.topic)]
    known = {row.topic for row in rows}
    for topic in topics:
        if topic not in known:
            raise ConfigError(f"{link.name} has no twin of topic {topic}{did_you_mean(topic, sorted(known))}")
    return rows


def _unfit(link: Link, topics: Sequence[str], store: Store) -> TwinshoreError | None:
    if link.naming is not Naming.SAME:
        return RefusedError(
            f"{link.name} gives its twins other names, and they are not rebuilt yet",
            hint="stop the mirror, delete the twin, `twinshore mirror forget` the topic, start the mirror",
        )
    mapped = sorted({topic for topic, _ in store.extents.reached(link.name)} & set(topics))
    if link.mode is Mode.MAPPED and not mapped:
        return adopting(link, "rebuilt")
    if mapped:
        return RefusedError(f"mapped twins hold data of others, and are not rebuilt: {listed(mapped, NAMED_MAX)}")
    homes = store.homes.of(pair_of(link))
    away = sorted(topic for topic in set(topics) if topic in homes and homes[topic].home != link.source)
    return RefusedError(f"{listed(away, NAMED_MAX)} {are(away)} not at home on {link.source}") if away else None


def _shown(record: SwitchState, ends: Ends, store: Store) -> Iterator[str]:
    twins, homes = (log_ends(cluster, record.topics).ends for cluster in (ends.target, ends.source))
    for one in record.topics:
        held, there = (counted(sum(side[one.topic]), "offset") for side in (twins, homes))
        partitions = counted(one.partitions, "partition")
        yield (
            f"deleted on {record.old} and filled again from {record.new}: topic {one.topic}, {partitions}, "
            f"{held} now, {there} then"
        )
    for tail in doubtful(stood(ends.target, ends.source, store, record.back, record.topics, every=True)):
        home = rescue.known_home(record.back, tail, ends.source, store, tail.first)
        count = rescue.counted_tail(ends.target, origin_of(record, tail), home)
        if count.records:
            some = f"{counted(count.records, 'record')} that {record.new} lacks, {count.committed} of them committed"
            yield f"to be rescued: {some}, of {tail}, to {RESCUED_TOPIC} on {record.new} and to {record.folder}"


def _refused(
    record: SwitchState, live: Sequence[str], link: Link, settings: Settings, store: Store
) -> TwinshoreError | None:
    if others := taken(store, pair_of(link), record.names()):
        return others
    if live:
        return RefusedError(
            f"group {listed(live, NAMED_MAX)} {have(live)} members on {record.old}, which read what is to be deleted",
            hint="stop these consumers; --anyway deletes it under them",
        )
    return kept_from_deletion(record.names(), link, settings, store)


def _remarks(record: SwitchState, groups: Sequence[str], live: Sequence[str], store: Store) -> Iterator[str]:
    rows = [row.incident for row in store.ledger.rows(record.back, open_only=True)]
    for topic in record.names():
        told = [one for one in rows if one.topic == topic and (one.policy.stops or one.policy.effect is Effect.TOPIC)]
        if not told:
            yield f"nothing is known to be wrong with the twin of {topic}"
    if groups:
        yield f"groups are put back on {record.old} where they stand: {listed(groups, NAMED_MAX)}"
    if live:
        yield f"group {listed(live, NAMED_MAX)} has members there now, and loses what it reads"
