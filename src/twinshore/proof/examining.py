"""An examination: all that a link carries, read whole on both sides, for traces of what nobody saw when it happened.

It believes nothing that was proven before, compares also where the ledger holds something open, and changes nothing:
neither a cluster nor the store.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from twinshore.fleet import KafkaError, Link, NamedPartition
from twinshore.fleet.settings import Settings
from twinshore.kafka.cluster import KafkaCluster, OffsetKind
from twinshore.links.standing import standing
from twinshore.mirror.lane.marking import is_marker_id
from twinshore.proof.borders import PartitionLook, difference_of
from twinshore.proof.job import RunBundle, run_bundles
from twinshore.proof.key_looks import Keys
from twinshore.proof.key_rounds import KeyRounds
from twinshore.proof.mapped import mapped
from twinshore.proof.planning import Wishes, bundled, outcome, stretch_of, stretches
from twinshore.proof.surveying import Lack, Surveyor, away
from twinshore.proof.traces import Examined, Finding, Writer, lost_beginning, other_records, owed
from twinshore.proof.values import Difference, Proven, Stretch, Way
from twinshore.service.clock import wall_ms
from twinshore.service.ends import Ends
from twinshore.service.identity import hold_to
from twinshore.store import Store
from twinshore.wire.batch import CONTROL


@dataclass(slots=True)
class _Part:
    """One partition: as it is, from where both sides hold it, and what was asked and found. `receipted` is through
    which offset the link says that it was carried, -1: nobody knows."""

    look: PartitionLook
    held: PartitionLook
    receipted: int = -1
    beginning: Stretch | None = None
    asked: list[Stretch] = field(default_factory=list)
    results: list[Proven] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Examination:
    """`stopped` ends it between two stretches."""

    settings: Settings
    store: Store
    run: RunBundle
    wishes: Wishes
    tasks: int
    stopped: Callable[[], bool] = lambda: False

    def look(self, links: Sequence[Link], topics: Iterable[str] = ()) -> Examined:
        """Of these topics, or of all that the links carry."""
        began_s = time.monotonic()
        asked = tuple(topics)
        findings: list[Finding] = []
        lacks: list[Lack] = []
        parts: list[_Part] = []
        for link in links:
            try:
                parts += self._look(link, asked, findings, lacks)
            except KafkaError as error:
                lacks.append(away(link.name, error))
        results = [one for part in parts for one in part.results]
        lacking = {(lack.link, lack.topic, lack.partition) for lack in lacks}
        places = [(part.look.link, part.look.named.topic, part.look.named.partition) for part in parts]
        return Examined(
            tuple(findings),
            tuple(lacks),
            sum(place not in lacking for place in places),
            sum(one.records for one in results),
            sum(one.bytes for one in results),
            time.monotonic() - began_s,
        )

    def _look(self, link: Link, topics: Sequence[str], findings: list[Finding], lacks: list[Lack]) -> list[_Part]:
        seen_ms = wall_ms()
        with Ends(link, self.settings) as ends:
            source, target = ends.source, ends.target
            hold_to(link, self.store, source, target)
            # Before the target's ends, so that a twin which holds all that was carried reaches them.
            receipted = {(one.topic, one.partition): one.to_offset for one in self.store.receipts.positions(link.name)}
            links = self.settings.links
            survey = Surveyor(
                standing(links, self.store)[link.name].link, self.store, source, target, links=links
            ).look(topics)
            lacks += survey.lacks
            lacks += _not_carried(survey.looks)
            looks = [look for look in survey.looks if look.way is not Way.CONTENT]
            parts = [_part(look, receipted.get((look.named.topic, look.named.partition), -1)) for look in looks]
            self._compare(link, parts)
            keys = self._keys(link, parts, seen_ms)
            identity = self.store.links.identity(link.name)
            ours = identity.producer_id if identity else -1
            for part in parts:
                findings += _findings(part, keys.get(part.look.named), ours, source, target)
                lacks += _troubles(part, keys.get(part.look.named), stopped=self.stopped())
            lacks += self._not_there(parts, target)
        return parts

    def _not_there(self, parts: Sequence[_Part], target: KafkaCluster) -> list[Lack]:
        """Twins that end below what was carried. An open transaction hides the end of one that does not."""
        short = [part for part in parts if _absent(part)]
        twins = {part.look.named: NamedPartition(part.look.twin, part.look.named.partition) for part in short}
        ends = target.list_offsets(twins.values(), OffsetKind.HIGH_WATERMARK) if twins else {}
        found = []
        for part in short:
            look, absent = part.look, _absent(part)
            start = max(absent[0], ends[twins[look.named]]) if look.way is not Way.EXTENTS else absent[0]
            if start < absent[1]:
                sentence = f"not there: offsets {start} to {absent[1] - 1} of the source are not on the twin"
                carried = ", though they were carried" if part.receipted >= absent[1] else ""
                found.append(Lack(look.link, look.named.topic, look.named.partition, sentence + carried))
        return found

    def _compare(self, link: Link, parts: Sequence[_Part]) -> None:
        source, target = (self.settings.cluster(name) for name in (link.source, link.target))
        owners: list[_Part] = []
        wanted: list[Stretch] = []
        for part in parts:
            whole = stretches(part.held, source, target, self.wishes)
            if part.held.source_start > part.look.source_start:
                start, end = part.look.source_start, min(part.held.source_start, part.look.source_end)
                before = stretch_of(part.look, (source, target), self.wishes, start, end)
                part.beginning = replace(before, way=Way.EXACT, digest=False, number=len(wanted))
                wanted.append(part.beginning)
                owners.append(part)
            for stretch in whole:
                part.asked.append(replace(stretch, number=len(wanted)))
                wanted.append(part.asked[-1])
                owners.append(part)
        known = (mapped(self.store, link.name, stretch) for stretch in wanted)
        for answers in run_bundles(self.run, bundled(known, self.wishes.stretch_records), self.tasks, self.stopped):
            for answer in answers:
                owners[answer.number].results.append(answer)

    def _keys(self, link: Link, parts: Sequence[_Part], seen_ms: int) -> dict[NamedPartition, Keys]:
        rounds = KeyRounds(self.settings, None, self.run, self.wishes.bytes_s, self.tasks, self.stopped)
        return rounds.round(link, [part.held for part in parts], seen_ms, {part.look.named for part in parts})


def _not_carried(looks: Iterable[PartitionLook]) -> Iterator[Lack]:
    """Nobody knows who filled these, so no trace in them says anything of the link."""
    for link, topic in dict.fromkeys((look.link, look.named.topic) for look in looks if look.way is Way.CONTENT):
        yield Lack(link, topic, -1, "it is not carried by this link: `twinshore prove` compares it by content")


def _absent(part: _Part) -> tuple[int, int]:
    """From which offset of the source up to, not including, which the twin lacks what was carried; one that is behind
    lacks nothing. One that holds nothing at all lacks all, whether or not anybody knows what was carried."""
    look = part.held
    nothing = look.end <= look.first and part.beginning is None
    if look.way is Way.EXTENTS and not nothing:
        return 0, 0  # The end of its map need not be the end of what was carried: others write there too.
    upto = look.source_end if nothing else min(look.source_end, part.receipted)
    return max(look.first, min(look.reach, look.source_end)), upto


def _part(look: PartitionLook, receipted: int = -1) -> _Part:
    """Nothing that is known of it counts; behind a beginning that the twin lost, the rest is looked at all the same."""
    held = replace(look, stored=None, told=())
    if held.begins_late:
        held = replace(held, source_start=min(held.target_start, held.source_end))
    return _Part(look, held, receipted)


def _findings(
    part: _Part, keys: Keys | None, ours: int, source: KafkaCluster, target: KafkaCluster
) -> Iterator[Finding]:
    begun = [one for one in part.results if part.beginning is not None and one.number == part.beginning.number]
    lost = lost_beginning(part.look, begun[0].difference if begun else None)
    if lost is not None:
        yield lost
    difference = difference_of(outcome(part.held, part.asked, part.results, 0))
    if difference is not None:
        yield other_records(part.look, difference, _writer(part.look, difference, source, target), ours)
    owes = owed(part.look, keys)
    if owes is not None:
        yield owes


def _writer(look: PartitionLook, difference: Difference, source: KafkaCluster, target: KafkaCluster) -> Writer:
    """Who wrote what the twin holds there. It only explains, so a cluster that does not answer spoils nothing."""
    if look.way is Way.EXTENTS:
        return Writer()
    found = []
    for kafka, named in ((target, NamedPartition(look.twin, look.named.partition)), (source, look.named)):
        try:
            batch = kafka.read_batch(named, difference.offset)
        except KafkaError:
            batch = None
        found.append(batch[1] if batch and batch[1].last_offset >= difference.offset else None)
    twin, ours = found
    if twin is not None and twin.attributes & CONTROL and not is_marker_id(twin.producer_id):
        twin = None  # The ids of closed units change, so nobody can say whose it was.
    return Writer(twin.producer_id if twin else None, ours.leader_epoch if ours else -1)


def _troubles(part: _Part, keys: Keys | None, *, stopped: bool) -> Iterator[Lack]:
    sentences = [f"{one.trouble} (try: {one.hint})" if one.hint else one.trouble for one in part.results if one.trouble]
    sentences += [keys.trouble[0]] if keys and keys.trouble[0] else []
    unread = list(_unread(part))
    if unread:
        why = "it was stopped before all was read" if stopped else "not all was read"
        sentences.append(f"{why}: offsets {', '.join(f'{start} to {end - 1}' for start, end in unread)}")
    for sentence in dict.fromkeys(sentences):
        yield Lack(part.look.link, part.look.named.topic, part.look.named.partition, sentence)


def _unread(part: _Part) -> Iterator[tuple[int, int]]:
    """What was asked for and neither compared nor said to be trouble, in runs."""
    by_number = {one.number: one for one in part.results}
    run: tuple[int, int] | None = None
    for one in [*([part.beginning] if part.beginning else []), *part.asked]:
        got = by_number.get(one.number)
        if got is not None and (got.difference or got.trouble or got.to >= one.end):
            continue
        if got is not None and (got.owed):
            continue  # A compacted log was read whole; its keys say what stands in the way, and are looked at as such.
        start = got.to if got is not None else one.start
        if run is not None and run[1] == start:
            run = run[0], one.end
            continue
        if run is not None:
            yield run
        run = start, one.end
    if run is not None:
        yield run
