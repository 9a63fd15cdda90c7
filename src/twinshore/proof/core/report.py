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
    links = [not_compared for not_compared in report.lacks if not not_compared.topic]
    if links and not report.partitions:
        return f"{word}: {'; '.join(f'{not_compared.place}: {not_compared.sentence}' for not_compared in links)}"
    differ = sum(partition_report.differs for partition_report in report.partitions)
    unknown = sum(partition_report.unknown for partition_report in report.partitions)
    same = "alike" if report.sampled else "identical"
    counts = [f"{len(report.partitions) - differ - unknown:,} of {len(report.partitions):,} partitions {same}"]
    counts += [f"{differ:,} differ"] if differ else []
    if mapped := sum(
        partition_report.row.mode == CompareMode.OFFSET_MAP
        for partition_report in report.partitions
        if not partition_report.differs and not partition_report.unknown
    ):
        counts += [f"{mapped:,} of them by the map of their offsets"]
    if dropped := sum(partition_report.dropped for partition_report in report.partitions):
        counts += [f"but for {count_phrase(dropped, 'offset')} that a fresh queue dropped"]
    counts += [f"{unknown:,} cannot be told"] if unknown else []
    counts += [f"{count_phrase(len(links), 'link')} cannot be looked at"] if links else []
    others = len(report.lacks) - len(links)
    named = "topic or partition" if others == 1 else "topics or partitions"
    counts += [f"{others:,} {named} cannot be compared"] if others else []
    counts += [_behind(report)] if report.behind else []
    records = sum(partition_report.compared for partition_report in report.partitions)
    mb = sum(partition_report.bytes for partition_report in report.partitions) / 1e6
    rate = f", {mb / report.seconds:,.0f} MB/s" if report.seconds else ""
    return f"{word}: {', '.join(counts)}; {records:,} records compared now in {report.seconds:.1f} s{rate}"


def _behind(report: ProofReport) -> str:
    """Counts source offsets not compared, since the twin ends before them."""
    by_topic: Counter[str] = Counter()
    for partition_report in report.partitions:
        by_topic[partition_report.row.topic] += partition_report.behind
    most = [(topic, behind) for topic, behind in by_topic.most_common(BEHIND_SHOWN) if behind]
    named = ", ".join(f"{topic} {behind:,}" for topic, behind in most)
    more = ", ..." if sum(behind for _, behind in most) < report.behind else ""
    asked = f", more than {report.behind_max:,}" if 0 <= report.behind_max < report.behind else ""
    return (
        f"beyond what both have the source has {count_phrase(report.behind, 'offset')} not compared{asked} "
        f"({named}{more})"
    )


def describe_report(report: ProofReport, *, everything: bool = False) -> Iterator[str]:
    """Yields the verdict, differences, then unknowns; with `everything` identical partitions too."""
    yield verdict(report)
    for partition_report in report.partitions:
        if partition_report.differs:
            yield from _partition(partition_report)
    for not_compared in report.lacks:
        if not_compared.topic or report.partitions:  # Otherwise the verdict names the link.
            yield f"{not_compared.place}: not compared: {not_compared.sentence}"
    for partition_report in report.partitions:
        if partition_report.unknown:
            yield from _partition(partition_report)
    for partition_report in report.partitions:
        yield from _stands(partition_report)
    if not report.partitions and not report.lacks:
        yield "nothing to compare: the links' filters admit no topic that is on both sides"
    if everything:
        for partition_report in report.partitions:
            if not partition_report.differs and not partition_report.unknown:
                yield from _partition(partition_report)


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
        yield (
            f"{place}: {_stretch(report)}, {row.records:,} records"
            f" ({row.mode}){digest}, as of {when:%Y-%m-%d %H:%M:%S}Z{behind}"
        )
    if report.keys is not None:
        yield from _keys(report.keys)
    if difference is not None:
        yield f"  DIFFERS at offset {difference.offset}: {difference.kind}: {difference.sentence}"
        yield f"    source: {_record(difference.source)}"
        yield f"    target: {_record(difference.target)}"
    for opened in report.opened:
        incident = opened.incident
        yield f"  NOT called identical from offset {incident.from_offset} on, by open row {opened.id} of the ledger:"
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
        return f": nothing is carried yet, from offset {row.from_offset} on; {before}"
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
        return f"identical: of what was carried below offset {row.from_offset} the twin holds nothing any more"
    return "identical: the source holds nothing"


def _keys(keys: KeyCheck) -> Iterator[str]:
    incident = missing_tombstones_incident(keys.row)
    if incident is not None:
        yield f"  DELETIONS OWED: {incident.sentence}"
        for one in keys.keys[:KEYS_SHOWN]:
            yield f"    offset {one.offset}, key {one.key}"
        if keys.row.missing_tombstones > len(keys.keys[:KEYS_SHOWN]):
            yield f"    and {keys.row.missing_tombstones - len(keys.keys[:KEYS_SHOWN]):,} more"


def _stands(report: PartitionReport) -> Iterator[str]:
    """Warns before a source's cleaner removes tombstones that are not replicated."""
    if report.keys is None or not report.keys.warns:
        return
    row = report.keys.row
    stands, limit = (datetime.timedelta(seconds=ms // 1000) for ms in (report.keys.stands_ms, row.retention_ms))
    yield (
        f"{row.link}: {row.topic}-{row.partition}: the twin has lacked records for {stands}; after {limit}"
        " (delete.retention.ms) deletions may be missed"
    )


def _record(shown: RecordPreview | None) -> str:
    if shown is None:
        return "no record"
    headers = "".join(f" {name}={content}" for name, content in shown.headers)
    return f"offset {shown.offset}, time {shown.timestamp}, key {shown.key}, value {shown.value}{headers}"


def as_values(report: ProofReport) -> dict[str, Any]:
    partitions, code = [], exit_code(report)
    for partition_report in report.partitions:
        values = asdict(partition_report.row)
        for name in FIELDS_NOT_REPORTED:
            del values[name]
        difference = difference_of(partition_report.row)
        partitions.append(
            values
            | {
                "difference": asdict(difference) if difference else None,
                "behind": max(0, partition_report.row.source_end - partition_report.row.to_offset),
                "compared": partition_report.compared,
                "dropped": partition_report.dropped,
                "bytes": partition_report.bytes,
                "cpu_s": round(partition_report.cpu_s, 3),
                "missing_tombstones": partition_report.owed,
                "stands_s": partition_report.keys.stands_ms // 1000 if partition_report.keys else 0,
                "missing_tombstone_keys": [key._asdict() for key in partition_report.keys.keys]
                if partition_report.keys
                else [],
                "sampled": partition_report.sampled,
                "nothing_compared": partition_report.nothing,
                "read_whole_ms": partition_report.row.read_ms,
                "open_rows": [{"id": row.id, **asdict(row.incident)} for row in partition_report.opened],
                "troubles": [{"sentence": sentence, "hint": hint} for sentence, hint in partition_report.troubles],
            }
        )
    return {
        "state": "sampled" if report.sampled and code == IDENTICAL else ("identical", "differs", "could not")[code],
        "says": verdict(report),
        "seconds": round(report.seconds, 3),
        "records": sum(partition_report.compared for partition_report in report.partitions),
        "behind": report.behind,
        "dropped": sum(partition_report.dropped for partition_report in report.partitions),
        "bytes": sum(partition_report.bytes for partition_report in report.partitions),
        "partitions": partitions,
        "not_compared": [asdict(not_compared) for not_compared in report.lacks],
    }
