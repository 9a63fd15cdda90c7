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
from twinshore.kafka.cluster import KafkaCluster
from twinshore.mirror.passage.marking import is_marker_id
from twinshore.proof.borders import Side
from twinshore.proof.job import Run, run_bundles
from twinshore.proof.key_looks import Keys
from twinshore.proof.key_rounds import KeyRounds
from twinshore.proof.planning import Wishes, bundled, outcome, stretches
from twinshore.proof.surveying import Lack, Surveyor
from twinshore.proof.telling import difference_of
from twinshore.proof.traces import Examined, Finding, Writer, lost_beginning, other_records, owed
from twinshore.proof.values import Difference, Proven, Stretch, Way
from twinshore.store import Store
from twinshore.wire.batch import CONTROL


@dataclass(slots=True)
class _Part:
    """One partition: as it is, from where both sides hold it, and what was asked and found."""

    side: Side
    held: Side
    beginning: Stretch | None = None
    asked: list[Stretch] = field(default_factory=list)
    results: list[Proven] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Examination:
    """`stopped` ends it between two stretches."""

    settings: Settings
    store: Store
    run: Run
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
            found = self._look(link, asked, findings, lacks)
            parts += found
        results = [one for part in parts for one in part.results]
        return Examined(
            tuple(findings),
            tuple(lacks),
            len(parts),
            sum(one.records for one in results),
            sum(one.bytes for one in results),
            time.monotonic() - began_s,
        )

    def _look(self, link: Link, topics: Sequence[str], findings: list[Finding], lacks: list[Lack]) -> list[_Part]:
        source, target = (KafkaCluster(self.settings.cluster(name)) for name in (link.source, link.target))
        seen_ms = int(time.time() * 1000)
        try:
            survey = Surveyor(link, self.store, source, target).look(topics)
            lacks += survey.lacks
            sides = [side for side in survey.sides if side.way is not Way.CONTENT]
            parts = [_part(side) for side in sides]
            self._compare(link, parts)
            keys = self._keys(link, parts, seen_ms)
            identity = self.store.link_identity(link.name)
            ours = identity.producer_id if identity else -1
            for part in parts:
                findings += _findings(part, keys.get(part.side.named), ours, source, target)
                lacks += _troubles(part, keys.get(part.side.named), stopped=self.stopped())
        finally:
            source.close()
            target.close()
        return parts

    def _compare(self, link: Link, parts: Sequence[_Part]) -> None:
        source, target = (self.settings.cluster(name) for name in (link.source, link.target))
        owners: list[_Part] = []
        wanted: list[Stretch] = []
        for part in parts:
            whole = stretches(part.held, source, target, self.wishes)
            if part.held.source_start > part.side.source_start:
                start, end = part.side.source_start, min(part.held.source_start, part.side.source_end)
                before = Stretch(source, target, part.side.named, part.side.twin, Way.EXACT, start, end, digest=False)
                part.beginning = replace(before, bytes_s=self.wishes.bytes_s, number=len(wanted))
                wanted.append(part.beginning)
                owners.append(part)
            for stretch in whole:
                part.asked.append(replace(stretch, number=len(wanted)))
                wanted.append(part.asked[-1])
                owners.append(part)
        for answers in run_bundles(self.run, bundled(wanted, self.wishes.stretch_records), self.tasks, self.stopped):
            for answer in answers:
                owners[answer.number].results.append(answer)

    def _keys(self, link: Link, parts: Sequence[_Part], seen_ms: int) -> dict[NamedPartition, Keys]:
        rounds = KeyRounds(self.settings, None, self.run, self.wishes.bytes_s, self.tasks, self.stopped)
        return rounds.round(link, [part.held for part in parts], seen_ms, {part.side.named for part in parts})


def _part(side: Side) -> _Part:
    """Nothing that is known of it counts; behind a beginning that the twin lost, the rest is looked at all the same."""
    held = replace(side, stored=None, told=())
    if held.begins_late:
        held = replace(held, source_start=min(held.target_start, held.source_end))
    return _Part(side, held)


def _findings(
    part: _Part, keys: Keys | None, ours: int, source: KafkaCluster, target: KafkaCluster
) -> Iterator[Finding]:
    begun = [one for one in part.results if part.beginning is not None and one.number == part.beginning.number]
    lost = lost_beginning(part.side, begun[0].difference if begun else None)
    if lost is not None:
        yield lost
    difference = difference_of(outcome(part.held, part.asked, part.results, 0))
    if difference is not None:
        yield other_records(part.side, difference, _writer(part.side, difference, source, target), ours)
    owes = owed(part.side, keys)
    if owes is not None:
        yield owes


def _writer(side: Side, difference: Difference, source: KafkaCluster, target: KafkaCluster) -> Writer:
    """Who wrote what the twin holds there. It only explains, so a cluster that does not answer spoils nothing."""
    if side.way is Way.EXTENTS:
        return Writer()
    found = []
    for kafka, named in ((target, NamedPartition(side.twin, side.named.partition)), (source, side.named)):
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
    if stopped and len(part.results) < len(part.asked):
        sentences.append("it was stopped before all was read")
    for sentence in dict.fromkeys(sentences):
        yield Lack(part.side.link, part.side.named.topic, part.side.named.partition, sentence)
