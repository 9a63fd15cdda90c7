"""A round's report, for people and as JSON."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from twinshore.config.sentences import count_phrase
from twinshore.proof.core.keys import KeyCheck, missing_tombstones_incident
from twinshore.proof.core.model import CompareMode, RecordPreview
from twinshore.proof.core.partition_scan import difference_of
from twinshore.proof.rounds import PartitionReport, ProofReport

IDENTICAL, DIFFERS, CANNOT_TELL = 0, 1, 2
VERDICTS = ("identical", "NOT identical", "cannot tell")
NO_DIFFERENCE = "no difference in samples"
KEYS_SHOWN, BEHIND_SHOWN = 20, 3
# What only the next proof needs.
_PASS = ("reread_offset", "reread_target", "reread_end", "reread_ms")
FIELDS_NOT_REPORTED = ("sentence", "last_incident_id", "bytes_read", "oldest_ms", "revision", *_PASS)


def exit_code(report: ProofReport) -> int:
    """Returns 0: the same as far as both go, or no sample differs; 1: they differ; 2: unknown for part of what was
    asked, or the source is too far ahead.
    """
    if report.differs:
        return DIFFERS
    return CANNOT_TELL if report.incomplete else IDENTICAL


def verdict(report: ProofReport) -> str:
    code = exit_code(report)
    word = NO_DIFFERENCE if report.sampled and code == IDENTICAL else VERDICTS[code]
    links = [lack for lack in report.lacks if not lack.topic]
    if links and not report.partitions:
        return f"{word}: {'; '.join(f'{lack.place}: {lack.sentence}' for lack in links)}"
    differ = sum(partition.differs for partition in report.partitions)
    unknown = sum(partition.unknown for partition in report.partitions)
    same = "alike" if report.sampled else "identical"
    counts = [f"{len(report.partitions) - differ - unknown:,} of {len(report.partitions):,} partitions {same}"]
    counts += [f"{differ:,} differ"] if differ else []
    identical = [one for one in report.partitions if not one.differs and not one.unknown]
    if mapped := sum(partition.row.mode == CompareMode.OFFSET_MAP for partition in identical):
        counts += [f"{mapped:,} of them by the map of their offsets"]
    if dropped := sum(partition.dropped for partition in report.partitions):
        counts += [f"but for {count_phrase(dropped, 'offset')} that a fresh queue dropped"]
    counts += [f"{unknown:,} cannot be told"] if unknown else []
    counts += [f"{count_phrase(len(links), 'link')} cannot be looked at"] if links else []
    others = len(report.lacks) - len(links)
    named = "topic or partition" if others == 1 else "topics or partitions"
    counts += [f"{others:,} {named} cannot be compared"] if others else []
    counts += [_behind(report)] if report.behind else []
    records = sum(partition.compared for partition in report.partitions)
    mb = sum(partition.bytes for partition in report.partitions) / 1e6
    rate = f", {mb / report.seconds:,.0f} MB/s" if report.seconds else ""
    return f"{word}: {', '.join(counts)}; {records:,} records compared now in {report.seconds:.1f} s{rate}"


def _behind(report: ProofReport) -> str:
    """Counts source offsets not compared, since the twin ends before them."""
    by_topic: Counter[str] = Counter()
    for partition in report.partitions:
        by_topic[partition.row.topic] += partition.behind
    most = [(topic, behind) for topic, behind in by_topic.most_common(BEHIND_SHOWN) if behind]
    named = ", ".join(f"{topic} {behind:,}" for topic, behind in most)
    more = ", ..." if sum(behind for _, behind in most) < report.behind else ""
    asked = f", more than {report.behind_max:,}" if 0 <= report.behind_max < report.behind else ""
    offsets = count_phrase(report.behind, "offset")
    return f"beyond what both have the source has {offsets} not compared{asked} ({named}{more})"


def describe_report(report: ProofReport, *, everything: bool = False) -> Iterator[str]:
    """Yields the verdict, differences, then unknowns; with `everything` identical partitions too."""
    yield verdict(report)
    for partition in report.partitions:
        if partition.differs:
            yield from _partition(partition)
    for lack in report.lacks:
        if lack.topic or report.partitions:  # Otherwise the verdict names the link.
            yield f"{lack.place}: not compared: {lack.sentence}"
    for partition in report.partitions:
        if partition.unknown:
            yield from _partition(partition)
    for partition in report.partitions:
        yield from _stands(partition)
    if not report.partitions and not report.lacks:
        yield "nothing to compare: the links' filters admit no topic that is on both sides"
    if everything:
        for partition in report.partitions:
            if not partition.differs and not partition.unknown:
                yield from _partition(partition)


def _partition(report: PartitionReport) -> Iterator[str]:
    row, difference = report.row, difference_of(report.row)
    place = f"{row.link}: {row.topic}-{row.partition}"
    digest = f", digest {row.digest}" if row.digest else ""
    when = datetime.datetime.fromtimestamp(row.proven_ms / 1000, datetime.UTC)
    behind = f", {row.source_end - row.to_offset:,} behind the source" if row.source_end > row.to_offset else ""
    behind += f", without {count_phrase(report.dropped, 'offset')} that a fresh queue dropped" if report.dropped else ""
    if report.nothing:
        yield f"{place}: nothing was compared ({row.mode}){_why_nothing(report)}"
    elif report.sampled:
        yield f"{place}: {report.compared:,} records in samples, {'they differ' if difference else 'all the same'}"
    else:
        identical = f"{place}: {_stretch(report)}, {row.records:,} records ({row.mode}){digest}"
        yield f"{identical}, as of {when:%Y-%m-%d %H:%M:%S}Z{behind}"
    if report.keys is not None:
        yield from _keys(report.keys)
    if difference is not None:
        yield f"  DIFFERS at offset {difference.offset}: {difference.kind}: {difference.sentence}"
        yield f"    source: {_record(difference.source)}"
        yield f"    target: {_record(difference.target)}"
    for opened in report.opened:
        incident = opened.incident
        yield f"  NOT called identical from offset {incident.from_offset} on, by open incident {opened.id}:"
        yield f"    {incident.kind}{f' ({incident.proof_mode})' if incident.proof_mode else ''}: {incident.sentence}"
    for trouble, hint in report.troubles:
        yield f"  could not go on: {trouble}"
        if hint:
            yield f"    try: {hint}"


def _why_nothing(report: PartitionReport) -> str:
    row, scan = report.row, report.scan
    if row.source_end > row.from_offset:
        # A trouble explains this already.
        asks = "" if report.troubles else ": is the target filled yet?"
        return f", though the source has offsets {row.from_offset} to {row.source_end - 1}{asks}"
    if scan is not None and scan.uncarried:
        before = "what both sides hold before was there when the link began, and is compared with --mode content"
        return f": nothing is replicated yet, from offset {row.from_offset} on; {before}"
    return ": only the target holds records"


def _stretch(report: PartitionReport) -> str:
    """Describes the identical range; the row's end is the first offset outside."""
    row = report.row
    if row.to_offset > row.from_offset:
        word = "the same but for deletions" if report.owed else "identical"
        return f"{word} from {row.from_offset} through offset {row.to_offset - 1}"
    if report.differs:
        return f"identical nowhere from offset {row.from_offset} on"
    scan = report.scan
    if scan is None or not (scan.source_holds or scan.target_holds):
        return "identical: both sides are empty"
    if scan.source_holds:
        return f"identical: of what was replicated below offset {row.from_offset} the twin holds nothing any more"
    return "identical: the source holds nothing"


def _keys(keys: KeyCheck) -> Iterator[str]:
    incident = missing_tombstones_incident(keys.row)
    if incident is not None:
        yield f"  DELETIONS OWED: {incident.sentence}"
        shown = keys.keys[:KEYS_SHOWN]
        yield from (f"    offset {key.offset}, key {key.key}" for key in shown)
        if keys.row.missing_tombstones > len(shown):
            yield f"    and {keys.row.missing_tombstones - len(shown):,} more"


def _stands(report: PartitionReport) -> Iterator[str]:
    """Warns before a source's cleaner removes tombstones that are not replicated."""
    if report.keys is None or not report.keys.warns:
        return
    row = report.keys.row
    stands, limit = (datetime.timedelta(seconds=ms // 1000) for ms in (report.keys.stands_ms, row.retention_ms))
    lacks = f"{row.link}: {row.topic}-{row.partition}: the twin has lacked records for {stands}"
    yield f"{lacks}; after {limit} (delete.retention.ms) deletions may be missed"


def _record(shown: RecordPreview | None) -> str:
    if shown is None:
        return "no record"
    headers = "".join(f" {name}={content}" for name, content in shown.headers)
    return f"offset {shown.offset}, time {shown.timestamp}, key {shown.key}, value {shown.value}{headers}"


def as_values(report: ProofReport) -> dict[str, Any]:
    code = exit_code(report)
    return {
        "state": "sampled" if report.sampled and code == IDENTICAL else ("identical", "differs", "could not")[code],
        "says": verdict(report),
        "seconds": round(report.seconds, 3),
        "records": sum(partition.compared for partition in report.partitions),
        "behind": report.behind,
        "dropped": sum(partition.dropped for partition in report.partitions),
        "bytes": sum(partition.bytes for partition in report.partitions),
        "partitions": [_partition_values(partition) for partition in report.partitions],
        "not_compared": [asdict(lack) for lack in report.lacks],
    }


def _partition_values(partition: PartitionReport) -> dict[str, Any]:
    row, difference, keys = partition.row, difference_of(partition.row), partition.keys
    return {name: value for name, value in asdict(row).items() if name not in FIELDS_NOT_REPORTED} | {
        "difference": asdict(difference) if difference else None,
        "behind": max(0, row.source_end - row.to_offset),
        **{name: getattr(partition, name) for name in ("compared", "dropped", "bytes", "sampled")},
        "cpu_s": round(partition.cpu_s, 3),
        "missing_tombstones": partition.owed,
        "stands_s": keys.stands_ms // 1000 if keys else 0,
        "missing_tombstone_keys": [key._asdict() for key in keys.keys] if keys else [],
        "nothing_compared": partition.nothing,
        "read_whole_ms": row.read_ms,
        "open_rows": [{"id": one.id, **asdict(one.incident)} for one in partition.opened],
        "troubles": [{"sentence": sentence, "hint": hint} for sentence, hint in partition.troubles],
    }
