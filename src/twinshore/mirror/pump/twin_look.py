"""Looks at twins: where they end, who wrote that, what their leaders remember of the link, what the sources hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from twinshore.fleet import KafkaError, NamedPartition, WireError
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.questions import OffsetKind, ProducerState
from twinshore.logs.looks import contents, lacking, last_record, seen_runs
from twinshore.mirror.lane.history import NOWHERE, UNKNOWN, EpochEnd, Stand, compared
from twinshore.mirror.lane.marking import is_marker_id, marker_id
from twinshore.mirror.lane.observe import Observation, Tail, first_unlike, last_unlike, unlike
from twinshore.wire.batch import CONTROL, BatchHeader

# Offsets of a twin that are read to learn what crossed untold and is gone from its source.
UNTOLD_MAX = 200_000


def look_at(
    source: KafkaCluster,
    target: KafkaCluster,
    producer_id: int,
    twins: Mapping[NamedPartition, NamedPartition],
    stands: Mapping[NamedPartition, Stand] = MappingProxyType({}),
    inherited: Mapping[NamedPartition, int] = MappingProxyType({}),
) -> dict[NamedPartition, Observation]:
    """One look at each partition, by its twin. All or nothing: the first that cannot be read is a KafkaError. `stands`:
    as far as known, which history of the source was carried. `inherited`: below which offsets the twins' logs are their
    topics' own, of when they were at home there."""
    partitions, there = list(twins), list(twins.values())
    start = target.list_offsets(there, OffsetKind.EARLIEST)
    high = target.list_offsets(there, OffsetKind.HIGH_WATERMARK)
    end = target.list_offsets(there, OffsetKind.LOG_END)
    producers = target.describe_producers(there)
    again = target.list_offsets(there, OffsetKind.LOG_END)
    source_start = source.list_offsets(partitions, OffsetKind.EARLIEST)
    source_high = source.list_offsets(partitions, OffsetKind.HIGH_WATERMARK)
    source_end = source.list_offsets(partitions, OffsetKind.LOG_END)
    found, here = {}, {}
    for named, twin in twins.items():
        # Who writes between two readings makes them disagree, and no more than that.
        still = end[twin] == again[twin]
        tail = _tail(target, twin, start[twin], high[twin], end[twin]) if still else None
        last = end[twin] - 1
        shared = tail is not None and source_start[named] <= last < source_end[named]
        shown = shared and last < source_high[named]
        low = max(start[twin], source_start[named])
        other: bool | None = None if shared else False
        theirs = source.read_batch(named, last) if shown else None
        here[named] = Stand(theirs[1].leader_epoch if theirs else UNKNOWN, end[twin])
        own = inherited.get(named, 0)  # What was aborted there crossed as markers, and consumers see neither.
        hidden = theirs is not None and last < own and theirs[1].attributes & CONTROL
        if shown and tail and (tail[1].attributes & CONTROL or hidden):
            last, other = _below_markers(source, target, named, twin, low, last, own)
        elif shown:
            # All that both last batches hold: who wrote lost records once more may have changed only some of them.
            at = last_unlike(theirs, tail, last)
            last, other = (at, True) if at >= 0 else (last, False)
        ours = [seen for seen in producers[twin] if seen.producer_id == producer_id]
        found[named] = Observation(
            start[twin],
            high[twin],
            again[twin],
            _described(tail, unit=_by_unit(target, twin, start[twin], tail, producer_id, producers[twin])),
            (ours[0].last_sequence, ours[0].last_timestamp) if ours else None,
            source_start[named],
            source_end[named],
            _fence(producers[twin], producer_id),
            other,
            _parting(source, target, named, twin, low, last) if other else -1,
            producer_epoch=ours[0].epoch if ours else -1,
            open_from=_open_from(producers[twin]) if own else -1,
        )
    told = {n: max(inherited.get(n, 0), stand.end) for n, stand in stands.items() if n in found}
    found |= {n: _with_untold(target, twins[n], found[n], told_to) for n, told_to in told.items()}
    return _with_histories(source, found, here, stands)


def _with_histories(
    source: KafkaCluster,
    found: Mapping[NamedPartition, Observation],
    here: Mapping[NamedPartition, Stand],
    stands: Mapping[NamedPartition, Stand],
) -> dict[NamedPartition, Observation]:
    """Asks the source where the epochs end that its records below the twins' ends have, and those that were carried."""
    said: dict[NamedPartition, dict[int, EpochEnd]] = {named: {} for named in found}
    for known in (here, stands):
        wanted = {n: at.epoch for n, at in known.items() if n in found and at.epoch >= 0 and at.epoch not in said[n]}
        for named, answer in (source.epoch_ends(wanted) if wanted else {}).items():
            said[named][wanted[named]] = EpochEnd(*answer)
    judged = {named: compared(stands.get(named, NOWHERE), here[named], said[named]) for named in found}
    return {
        n: replace(seen, source_epoch=judged[n][0], parted=judged[n][1], wrote_epoch=here[n].epoch)
        for n, seen in found.items()
    }


def _tail(
    target: KafkaCluster, named: NamedPartition, start: int, high: int, end: int
) -> tuple[bytes, BatchHeader] | None:
    if end <= start or high != end:
        return None
    found = target.read_batch(named, end - 1)
    if found is None:
        raise KafkaError(f"{named}: the twin's last batch could not be read", retriable=True)
    return found


def _fence(producers: Iterable[ProducerState], ours: int) -> int:
    """The highest coordinator epoch of our markers; -1 where there are none."""
    marks = marker_id(ours)
    return max((one.coordinator_epoch for one in producers if one.producer_id == marks), default=-1)


def _open_from(producers: Iterable[ProducerState]) -> int:
    """Where the first transaction begins that is open; -1 where none is."""
    return min((one.current_txn_start for one in producers if one.current_txn_start >= 0), default=-1)


def _below_markers(
    source: KafkaCluster,
    target: KafkaCluster,
    named: NamedPartition,
    twin: NamedPartition,
    low: int,
    last: int,
    own: int,
) -> tuple[int, bool]:
    """Which offset tells whether both have the same history where the twin ends in markers, which every log may have;
    and whether they differ there. The source shows a record where a marker is, or the last record is another.
    `own`: up to where the log is its topic's own, whose records of aborted transactions are passed over."""
    try:
        if any(contents(source, named, last, last + 1, committed=True)):
            return last, True
        at = last_record(target, twin, low, last, committed=own > 0)
        if at >= 0:
            return at, unlike(source.read_batch(named, at), target.read_batch(twin, at), at)
    except WireError:
        pass  # Damage is found when it is fetched.
    return last, False


def _with_untold(target: KafkaCluster, twin: NamedPartition, seen: Observation, told_to: int) -> Observation:
    """Also with where the twin shows no record of what nobody told of and the source has no more: it never crossed, or
    nobody ever saw it. Of what lies too far back, or is damaged, nothing else is known."""
    end = min(seen.high_watermark, seen.log_end, seen.source_start)
    begin = max(told_to, seen.log_start, end - UNTOLD_MAX)
    if told_to >= end:
        return seen
    try:
        shown = lacking(seen_runs(target, twin, begin), [(begin, end)], begin, end) if begin < end else []
    except WireError:
        shown = [(begin, end)]
    before = [(told_to, min(begin, end))] if told_to < begin else []
    return replace(seen, unseen=(*before, *shown))


def _parting(
    source: KafkaCluster, target: KafkaCluster, named: NamedPartition, twin: NamedPartition, low: int, last: int
) -> int:
    """From where on both hold other records, `last` being one of them."""

    def unlike_at(offset: int) -> bool:
        try:
            return unlike(source.read_batch(named, offset), target.read_batch(twin, offset), offset)
        except WireError:
            return False

    return first_unlike(unlike_at, low, last)


def _by_unit(
    target: KafkaCluster,
    twin: NamedPartition,
    start: int,
    batch: tuple[bytes, BatchHeader] | None,
    ours: int,
    producers: Iterable[ProducerState],
) -> bool:
    """Whether the tail may be a closed unit's marker. The ids of units change, when coordinators forget them; what
    never does is that they write no records."""
    if batch is None:
        return False
    tail = batch[1]
    if not tail.attributes & CONTROL or is_marker_id(tail.producer_id):
        return False
    if any(one.producer_id == tail.producer_id and one.last_sequence >= 0 for one in producers):
        return False
    before = target.read_tail_batch(twin, tail.base_offset - 1) if tail.base_offset > start else None
    return before is None or bool(before.attributes & CONTROL) or before.producer_id == ours


def _described(batch: tuple[bytes, BatchHeader] | None, *, unit: bool) -> Tail | None:
    if batch is None:
        return None
    header = batch[1]
    control = bool(header.attributes & CONTROL)
    return Tail(header.base_offset, header.last_offset, header.producer_id, header.base_sequence, unit, control)
