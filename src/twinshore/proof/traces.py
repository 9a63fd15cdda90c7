"""What an older version, or nobody's watch, may have left in twins: each trace, what it means, what to do. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from twinshore.mirror.lane.marking import marker_id
from twinshore.proof.borders import PartitionLook
from twinshore.proof.key_looks import Keys, incident_of
from twinshore.proof.surveying import Lack
from twinshore.proof.values import Difference, DifferenceKind, OwedKey, Shown
from twinshore.store.values import LedgerRow

FOUND, NOTHING, COULD_NOT = 1, 0, 2
KEYS_SHOWN = 20
ANEW = "begin the twin anew (docs/incidents.md#begin-a-twin-anew)"


class Trace(StrEnum):
    OTHER_HISTORY = "other history"
    FOREIGN_WRITE = "foreign write"
    DIFFERENT = "different"
    LOST_BEGINNING = "lost beginning"
    DELETIONS_OWED = "deletions owed"


DO = {
    Trace.OTHER_HISTORY: (
        "the source has lost the end of its log since, as in an unclean election, and written other records there. "
        f"Save what the twin alone holds if anybody needs it, then {ANEW}; or stay with the twin and exclude the topic"
    ),
    Trace.FOREIGN_WRITE: f"find the writer by its producer id and take the right to write from it; then {ANEW}",
    Trace.DIFFERENT: f"look at both records with `twinshore prove`, and at both brokers' disks; then {ANEW}",
    Trace.LOST_BEGINNING: (
        "look who set a retention on the twin, or deleted records there, and end it; then, while the source still "
        f"holds them, {ANEW}"
    ),
    Trace.DELETIONS_OWED: (
        f"if these keys must go, as personal data must: {ANEW}. Raise delete.retention.ms on the source above the "
        "longest time that the mirror may stand (docs/any-log.md#deletions-that-are-owed)"
    ),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """A trace in one partition: from this offset of the source on, up to, not including, `to_offset`, -1: nobody knows.
    `rows` are the open rows of the ledger that speak of this partition."""

    link: str
    topic: str
    partition: int
    trace: Trace
    from_offset: int
    to_offset: int
    sentence: str
    difference: Difference | None = None
    keys: tuple[OwedKey, ...] = ()
    rows: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Examined:
    """What became of an examination of some links."""

    findings: tuple[Finding, ...]
    lacks: tuple[Lack, ...]
    partitions: int
    records: int
    bytes: int
    seconds: float

    @property
    def exit_code(self) -> int:
        """1: something was found; 2: nothing was, and not all could be read, or nothing was there to be read; 0:
        nothing was found."""
        return FOUND if self.findings else COULD_NOT if self.lacks or not self.partitions else NOTHING


@dataclass(frozen=True, slots=True)
class Writer:
    """Who wrote the twin's batch at some offset: None: nobody knows, -1: a producer without an id. And the leader epoch
    of the source's batch there, -1: unknown."""

    producer_id: int | None = None
    source_epoch: int = -1


def lost_beginning(look: PartitionLook, found: Difference | None) -> Finding | None:
    """Where a twin begins above its source and lacks records for it."""
    if found is None or found.kind is DifferenceKind.CORRUPT:
        return None
    sentence = (
        f"the twin begins at offset {look.target_start}, the source at {look.source_start}: the twin lacks records from"
        f" offset {found.offset} on"
    )
    return _finding(look, Trace.LOST_BEGINNING, found.offset, look.target_start, sentence)


def other_records(look: PartitionLook, found: Difference, writer: Writer, ours: int) -> Finding:
    """Where both sides hold different records: whose doing that is, by the producer id in the twin's log."""
    trace, why = Trace.DIFFERENT, ""
    if found.kind is not DifferenceKind.CORRUPT and writer.producer_id is not None:
        if ours >= 0 and writer.producer_id in (ours, marker_id(ours)):
            trace = Trace.OTHER_HISTORY
            why = ". This link wrote what the twin holds there, so the source held the same once"
            if writer.source_epoch >= 0:
                why += f"; what it holds now was written in its leader epoch {writer.source_epoch}"
        else:
            trace, why = Trace.FOREIGN_WRITE, f". {_who(writer.producer_id)} wrote what the twin holds there"
    return _finding(look, trace, found.offset, -1, f"{found.kind}: {found.sentence}{why}", found)


def _who(producer_id: int) -> str:
    return "A producer without an id" if producer_id < 0 else f"Producer id {producer_id}, which is not this link's,"


def owed(look: PartitionLook, keys: Keys | None) -> Finding | None:
    """Where a compacted twin still shows what its source has deleted."""
    told = incident_of(keys.row) if keys else None
    if keys is None or told is None:
        return None
    return _finding(look, Trace.DELETIONS_OWED, told.from_offset, told.to_offset, told.sentence, None, keys.keys)


def _finding(
    look: PartitionLook,
    trace: Trace,
    start: int,
    end: int,
    sentence: str,
    difference: Difference | None = None,
    keys: tuple[OwedKey, ...] = (),
) -> Finding:
    rows = tuple(_ids(row for row in look.told if row.closed_ms is None))
    place = (look.link, look.named.topic, look.named.partition)
    return Finding(*place, trace, start, end, sentence, difference, keys, rows)


def _ids(rows: Iterable[LedgerRow]) -> Iterator[int]:
    return (row.id for row in rows)


def in_words(examined: Examined) -> Iterator[str]:
    """The verdict, then each finding with what to do, then what could not be read."""
    places = {(one.link, one.topic, one.partition) for one in examined.findings}
    said = f"{examined.partitions:,} partitions read whole, {examined.records:,} records in {examined.seconds:.1f} s"
    if examined.findings:
        yield f"FOUND traces in {len(places):,} partitions; {said}"
    else:
        links = [lack for lack in examined.lacks if not lack.topic]
        if links and not examined.partitions:
            said = "; ".join(f"{lack.place}: {lack.sentence}" for lack in links)
        yield f"{'nothing found' if examined.exit_code == NOTHING else 'cannot tell of all'}: {said}"
    for one in examined.findings:
        yield f"{one.link}: {one.topic}-{one.partition}: {one.trace}, from offset {one.from_offset} on: {one.sentence}"
        if one.difference is not None:
            yield f"  source: {_record(one.difference.source)}"
            yield f"  target: {_record(one.difference.target)}"
        for key in one.keys[:KEYS_SHOWN]:
            yield f"  offset {key.offset}, key {key.key}"
        if len(one.keys) > KEYS_SHOWN:
            yield "  and more: --json lists up to 1,000"
        if one.rows:
            yield f"  open in the ledger: {', '.join(f'row {row}' for row in one.rows)}"
        yield f"  what to do: {DO[one.trace]}"
    for lack in examined.lacks:
        yield f"{lack.place}: not examined: {lack.sentence}"


def _record(shown: Shown | None) -> str:
    return "no record" if shown is None else f"offset {shown.offset}, key {shown.key}, value {shown.value}"


def as_values(examined: Examined) -> dict[str, Any]:
    """The same for programs."""
    findings = []
    for one in examined.findings:
        keys = [key._asdict() for key in one.keys]
        findings.append(asdict(one) | {"keys": keys, "do": DO[one.trace]})
    return {
        "state": ("nothing found", "found", "could not")[examined.exit_code],
        "partitions": examined.partitions,
        "records": examined.records,
        "bytes": examined.bytes,
        "seconds": round(examined.seconds, 3),
        "findings": findings,
        "not_examined": [asdict(lack) for lack in examined.lacks],
    }
