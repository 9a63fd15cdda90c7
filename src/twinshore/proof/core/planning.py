"""Plans ranges to compare, applies results, and plans re-reads: disks and elections change proven records. So the part
read longest ago is read next, forever, within a budget of bytes per second.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import NamedTuple

from twinshore.config.model import Cluster
from twinshore.proof.core.model import CompareMode, CompareRange, CompareResult, ProofDifference
from twinshore.proof.core.partition_scan import PartitionScan, advance_reread, extend_proof, narrow_proof, reset_proof
from twinshore.state.core.values import ProofRow, ProofState

SAMPLE_OFFSETS = 20_000
MAPPED_RANGE_OFFSETS_MAX = 100_000
BUNDLE_RANGES_MAX = 64
# An idle partition's proof is renewed at this age, not at each round.
PROOF_REFRESH_INTERVAL_MS = 300_000
OFFSET_MODES = frozenset({CompareMode.EXACT, CompareMode.OFFSET_MAP})
REREADS_MAX = 64
# Assumed bytes of an offset on both sides where unknown.
BYTES_PER_OFFSET_ESTIMATE = 2_000


@dataclass(frozen=True, slots=True)
class ProofOptions:
    """Options of a proof. `sample`: the fraction of offsets to compare; 0: all."""

    range_records: int = 1_000_000
    bytes_s: float = 0.0
    digest: bool = True
    sample: float = 0.0
    seed: int = 0

    def per_task(self, tasks: int) -> ProofOptions:
        """Divides the bound among parallel tasks."""
        return replace(self, bytes_s=self.bytes_s / tasks)


def build_range(
    scan: PartitionScan, clusters: tuple[Cluster, Cluster], options: ProofOptions, start: int, end: int
) -> CompareRange:
    """Returns a range of the partition; `add_offset_runs` adds a mapped twin's runs later."""
    dropped = scan.dropped if scan.mode in OFFSET_MODES else ()
    return CompareRange(
        *clusters,
        scan.partition,
        scan.twin,
        scan.mode,
        start,
        end,
        dropped=tuple(one for one in dropped if one[0] < end and one[1] > start),
        bytes_s=options.bytes_s,
        digest=options.digest,
        cluster_ids=scan.cluster_ids,
        topic_ids=(scan.source_topic_id, scan.target_topic_id),
    )


def range_offsets_max(scan: PartitionScan, options: ProofOptions) -> int:
    """The most offsets of one range. Of a mapped twin each may be a run, all in memory."""
    is_mapped = scan.mode is CompareMode.OFFSET_MAP
    return min(options.range_records, MAPPED_RANGE_OFFSETS_MAX) if is_mapped else options.range_records


def plan_ranges(scan: PartitionScan, source: Cluster, target: Cluster, options: ProofOptions) -> list[CompareRange]:
    """Returns the ranges to compare now; none where nothing can be added."""
    whole = build_range(scan, (source, target), options, scan.start, scan.end)
    if scan.mode is CompareMode.CONTENT:
        return _by_content(scan, whole, options)
    exceeds = scan.target_end > scan.source_end and scan.kept_from >= scan.source_end
    beyond = scan.target_end if scan.mode is not CompareMode.OFFSET_MAP and exceeds else -1
    if scan.mode is CompareMode.COMPACTED:
        asked = whole.start < whole.end or beyond >= 0
        return [replace(whole, end=max(whole.start, whole.end), target_end=beyond, digest=False)] if asked else []
    if options.sample:
        return list(_sampled(replace(whole, start=scan.first), options))
    offset_ranges = _beginning(scan, whole)
    at = whole.start
    if at < min(scan.missing_below, whole.end):  # A range of its own: the twin may be complete behind it.
        offset_ranges.append(sub_range(whole, at, min(scan.missing_below, whole.end)))
        at = offset_ranges[-1].end
    most = range_offsets_max(scan, options)
    offset_ranges += [sub_range(whole, start, min(start + most, whole.end)) for start in range(at, whole.end, most)]
    if beyond >= 0:
        if not offset_ranges or offset_ranges[-1].end != whole.end:
            offset_ranges.append(replace(whole, start=whole.end))
        offset_ranges[-1] = replace(offset_ranges[-1], target_end=beyond)
    return offset_ranges


def _beginning(scan: PartitionScan, whole: CompareRange) -> list[CompareRange]:
    """Returns the proven part below a twin's late log start, to see whether it held records."""
    row = scan.resumable_proof
    if row is None or not scan.begins_late or row.to_offset <= scan.first:
        return []
    return [replace(whole, start=scan.first, end=min(row.to_offset, scan.target_start), digest=False)]


def _by_content(scan: PartitionScan, whole: CompareRange, options: ProofOptions) -> list[CompareRange]:
    """Returns one range, whose end tells where the next starts on the target."""
    row = scan.resumable_proof
    target_start = row.target_offset if row else -1
    if whole.start >= whole.end and (target_start < 0 or target_start >= scan.target_end):
        return []
    if whole.end - whole.start > options.range_records:
        return [replace(whole, end=whole.start + options.range_records, target_start=target_start)]
    return [replace(whole, target_start=target_start, target_end=scan.target_end)]


def _sampled(whole: CompareRange, options: ProofOptions) -> Iterator[CompareRange]:
    """Yields windows that depend on the seed alone."""
    chance = Random(f"{options.seed} {whole.partition}")
    windows = range(whole.start, whole.end, SAMPLE_OFFSETS)
    count = min(len(windows), max(1, round(len(windows) * options.sample))) if windows else 0
    for at in sorted(chance.sample(windows, count)):
        yield sub_range(whole, at, min(at + SAMPLE_OFFSETS, whole.end))


def sub_range(whole: CompareRange, start: int, end: int) -> CompareRange:
    dropped = tuple(one for one in whole.dropped if one[0] < end and one[1] > start)
    return replace(whole, start=start, end=end, dropped=dropped)


def bundle_ranges(offset_ranges: Iterable[CompareRange], records: int) -> Iterator[list[CompareRange]]:
    """Groups short ranges, so that a thousand idle partitions are not a thousand jobs."""
    bundle: list[CompareRange] = []
    size = 0
    for offset_range in offset_ranges:
        length = offset_range.end - offset_range.start
        if bundle and (size + length > records or len(bundle) == BUNDLE_RANGES_MAX):
            yield bundle
            bundle, size = [], 0
        bundle.append(offset_range)
        size += length
    if bundle:
        yield bundle


def apply_results(
    scan: PartitionScan, offset_ranges: Sequence[CompareRange], results: Sequence[CompareResult], now_ms: int
) -> ProofRow:
    """Returns the proof after these results, perhaps not all. A known difference stays until a proof has passed it, or
    finds nothing more to compare there.
    """
    row = _come_to(scan, offset_ranges, results, now_ms)
    known = scan.known_difference(row.to_offset)
    if row.state is ProofState.DIFFERS or known is None:
        return row
    if known.offset >= scan.source_end and _whole(offset_ranges, {result.number: result for result in results}):
        return row
    return replace(row, state=ProofState.DIFFERS, sentence=json.dumps(asdict(known)))


def rebase_scan(scan: PartitionScan, row: ProofRow | None) -> PartitionScan | None:
    """Returns the scan based on another process's newer row, with its ends if that has proven more. None: the row does
    not fit.
    """
    if row is None or not scan.matches_row(row):
        return None
    before = scan.stored or scan.remembered
    if before is None or not scan.matches_row(before) or row.to_offset > before.to_offset:
        ends = max(scan.source_end, row.source_end), max(scan.target_end, row.target_offset)
        scan = replace(scan, source_end=ends[0], target_end=ends[1], seen_to=row.to_offset)
    scan = replace(scan, stored=row, remembered=None)
    return scan if scan.resumable_proof is not None else None


def _come_to(
    scan: PartitionScan, offset_ranges: Sequence[CompareRange], results: Sequence[CompareResult], now_ms: int
) -> ProofRow:
    before = scan.resumable_proof
    if before is not None and not offset_ranges:
        return replace(before, source_end=scan.source_end)
    by_number = {result.number: result for result in results}
    proven_to = before.to_offset if before else 0
    again = [one for one in offset_ranges if one.end <= scan.missing_below and one.start < proven_to]
    first = by_number.get(again[0].number) if again else None
    if before is not None and first is not None and first.trouble:
        return replace(before, source_end=scan.source_end)
    row = replace(before or _nothing(scan, now_ms), state=ProofState.IDENTICAL, sentence="", source_end=scan.source_end)
    lacking, rest = _lacking(scan, offset_ranges, by_number), offset_ranges[len(again) :]
    if lacking is not None:
        # The part behind the twin's start is proven separately.
        edge = min(scan.missing_below, max(scan.first, scan.end))
        is_within = edge <= row.to_offset
        row = narrow_proof(row, max(row.from_offset, edge), row.to_offset) if is_within else reset_proof(row, edge)
        rest = [offset_range for offset_range in offset_ranges if offset_range.start >= edge]
    row, found = _grown(row, scan, rest, by_number)
    if found is not None or lacking is not None:
        row = replace(row, state=ProofState.DIFFERS, sentence=_in_json(lacking, found))
    elif row.to_offset == scan.start and not _whole(offset_ranges, by_number):
        # Trouble renews no date: a stuck proof must grow old visibly.
        now_ms = scan.stored.proven_ms if scan.stored else now_ms
    if before is not None and row.to_offset == before.to_offset and row.state is ProofState.IDENTICAL:
        row = replace(before, source_end=scan.source_end)  # No difference was passed.
    return replace(row, proven_ms=now_ms)


def _grown(
    row: ProofRow, scan: PartitionScan, offset_ranges: Sequence[CompareRange], by_number: Mapping[int, CompareResult]
) -> tuple[ProofRow, ProofDifference | None]:
    """Returns the proof extended without a gap, and the difference that stops this."""
    for offset_range in offset_ranges:
        result = by_number.get(offset_range.number)
        if offset_range.start < row.to_offset:  # Another process has proven this, at least in part.
            if result is not None and result.difference is not None:
                return narrow_proof(row, row.from_offset, min(row.to_offset, result.to)), result.difference
            if offset_range.end <= row.to_offset:
                continue
            break
        if result is None or offset_range.start > row.to_offset:
            break
        if result.start > row.to_offset:  # After the source's retention the proof starts again here.
            row = reset_proof(row, result.start)
        if result.to > result.start:
            row = extend_proof(row, offset_range, result, scan.looked_ms)
        row = replace(row, target_offset=max(row.target_offset, result.target_to))
        if result.difference is not None or result.trouble or result.to < offset_range.end:
            return row, result.difference
    return row, None


def _lacking(
    scan: PartitionScan, offset_ranges: Sequence[CompareRange], by_number: Mapping[int, CompareResult]
) -> ProofDifference | None:
    """Returns the first record missing since the twin's log starts late."""
    results = [by_number.get(one.number) for one in offset_ranges if one.end <= scan.missing_below]
    return next((result.difference for result in results if result and result.difference), None)


def _in_json(lacking: ProofDifference | None, behind: ProofDifference | None) -> str:
    """Returns the first difference as stored, mentioning the one behind the twin's log start."""
    if lacking is not None and behind is not None:
        more = f"; at offset {behind.offset} both sides part too: {behind.kind}: {behind.sentence}"
        lacking = replace(lacking, sentence=lacking.sentence + more)
    first = lacking or behind
    return json.dumps(asdict(first)) if first is not None else ""


def _whole(offset_ranges: Sequence[CompareRange], by_number: Mapping[int, CompareResult]) -> bool:
    """Whether there were ranges, and all were compared."""
    results = [(one, by_number.get(one.number)) for one in offset_ranges]
    return bool(results) and all(result and not result.trouble and result.to >= one.end for one, result in results)


def _nothing(scan: PartitionScan, now_ms: int) -> ProofRow:
    place = scan.link, scan.partition.topic, scan.partition.partition, scan.mode.value
    spans = scan.start, scan.start, -1, scan.source_end, 0
    ids = scan.source_topic_id, scan.target_topic_id
    revision = scan.stored.revision if scan.stored else 0
    row = ProofRow(*place, ProofState.IDENTICAL, *spans, "", "", *ids, now_ms)
    return replace(row, last_incident_id=scan.last_incident_id, revision=revision)


def mark_differing(row: ProofRow, result: CompareResult, now_ms: int) -> ProofRow:
    """Returns the proof after a difference in it or behind it; keeps the first."""
    if row.state is ProofState.DIFFERS and row.to_offset <= result.to:
        return row
    left = narrow_proof(row, row.from_offset, min(row.to_offset, max(row.from_offset, result.to)))
    sentence = json.dumps(asdict(result.difference)) if result.difference else ""
    return replace(left, state=ProofState.DIFFERS, sentence=sentence, proven_ms=now_ms)


def refresh_idle_proof(scan: PartitionScan, now_ms: int) -> ProofRow | None:
    """Returns the row redated if neither side has grown, or a new row if the source is empty. None: no update."""
    row = scan.resumable_proof
    if row is None and scan.source_end <= scan.first and not scan.open_incidents:
        return _nothing(scan, now_ms)
    if row is None or row.state != ProofState.IDENTICAL or row.to_offset != scan.source_end or scan.open_incidents:
        return None
    target_to = row.target_offset if row.target_offset >= 0 else row.to_offset if scan.mode is CompareMode.EXACT else 0
    if scan.target_end < target_to or now_ms - row.proven_ms < PROOF_REFRESH_INTERVAL_MS:
        return None
    return replace(row, source_end=scan.source_end, proven_ms=now_ms)


def apply_sample_results(scan: PartitionScan, results: Sequence[CompareResult], now_ms: int) -> ProofRow | None:
    """Returns the row after a difference in a sample; None without one."""
    found = min((result for result in results if result.difference), key=lambda result: result.to, default=None)
    if found is None:
        return None
    return mark_differing(scan.resumable_proof or apply_results(scan, [], [], now_ms), found, now_ms)


class Reread(NamedTuple):
    """A proven range to read again. `read_ms`: every part of its proof was read then or later."""

    scan: PartitionScan
    offset_range: CompareRange
    read_ms: int


def plan_rereads(
    looks: Iterable[PartitionScan],
    clusters: tuple[Cluster, Cluster],
    options: ProofOptions,
    *,
    size_max: float,
    before_ms: int,
    skip: Collection[tuple[str, int]] = (),
) -> list[Reread]:
    """Returns one link's next re-reads, longest unread first, of `size_max` bytes. Skips proofs read whole since
    `before_ms`, and failed parts (`skip`), by partition and offset.
    """
    waiting = []
    for scan in looks:
        row = scan.resumable_proof
        if row is None or row.to_offset <= row.from_offset or row.read_ms >= before_ms:
            continue
        if (f"{scan.link} {scan.partition}", _next(row)) not in skip:
            waiting.append((row, scan))
    found: list[Reread] = []
    for row, scan in sorted(waiting, key=lambda one: (one[0].read_ms, one[0].topic, one[0].partition)):
        offset_range, size = _stretch(scan, row, clusters, options, size_max)
        found.append(Reread(scan, offset_range, row.read_ms))
        size_max -= size
        if size_max <= 0 or len(found) == REREADS_MAX:
            break
    return found


def _next(row: ProofRow) -> int:
    return row.reread_offset if row.reread_offset >= 0 else row.from_offset


def _stretch(
    scan: PartitionScan, row: ProofRow, clusters: tuple[Cluster, Cluster], options: ProofOptions, size_max: float
) -> tuple[CompareRange, float]:
    """Returns the pass's next range, as large as allowed, and its estimated bytes."""
    at, end = _next(row), row.reread_end if row.reread_offset >= 0 else row.to_offset
    per_offset = row.bytes_read / (row.to_offset - row.from_offset) if row.bytes_read else BYTES_PER_OFFSET_ESTIMATE
    if scan.mode is CompareMode.COMPACTED:
        # Which record of a key is the latest is known only at the end.
        whole = build_range(scan, clusters, options, at, max(scan.end, row.to_offset))
        return replace(whole, digest=False), per_offset * (end - at)
    count = min(end - at, range_offsets_max(scan, options), max(1, int(size_max / per_offset)))
    offset_range = build_range(scan, clusters, options, at, at + count)
    return replace(offset_range, target_start=row.reread_target), count * per_offset


def apply_reread(row: ProofRow, errand: Reread, result: CompareResult, read_ms: int, now_ms: int) -> ProofRow | None:
    """Returns `row`, perhaps changed in between, after a re-read that began at `read_ms`; None: unchanged."""
    scan, offset_range, _ = errand
    if not scan.matches_row(row):
        return None
    if result.difference is not None:
        within = row.from_offset <= result.to < row.to_offset
        return mark_differing(row, result, now_ms) if within else None
    left = row
    if result.start > offset_range.start:  # Retention has removed records.
        left = narrow_proof(row, min(max(row.from_offset, result.start), row.to_offset), row.to_offset)
    left = advance_reread(left, offset_range, result, read_ms)
    return left if left != row else None


class RereadPass(NamedTuple):
    """The partition unread longest, since when (0: unknown), and the duration of a pass over all proofs."""

    place: str
    read_ms: int
    size: int
    seconds: float


def measure_reread_pass(rows: Sequence[ProofRow], bytes_s: float) -> RereadPass | None:
    """Returns the pass; None without proofs. `seconds` is 0 without re-reads."""
    held = [row for row in rows if row.to_offset > row.from_offset]
    if not held:
        return None
    oldest = min(held, key=lambda row: (row.read_ms, row.topic, row.partition))
    size = sum(row.bytes_read or BYTES_PER_OFFSET_ESTIMATE * (row.to_offset - row.from_offset) for row in held)
    return RereadPass(f"{oldest.topic}-{oldest.partition}", oldest.read_ms, size, size / bytes_s if bytes_s else 0.0)


def describe_reread_pass(
    rows: Sequence[ProofRow], bytes_s: float, asked_h: float, now_ms: int, *, going: bool = True
) -> Iterator[str]:
    """Yields when all was read, the duration of a pass, and whether that meets the wanted age. `going`: a continuous
    proof runs. Yields nothing if none runs and no age is wanted.
    """
    found = measure_reread_pass(rows, bytes_s)
    if found is None or not (going or asked_h):
        return
    ago = f"was last read whole {format_duration((now_ms - found.read_ms) / 1000)} ago"
    since = ago if found.read_ms else "is not known to have been read whole"
    size = f"about {found.size / 1e6:,.0f} MB of both sides"
    if not bytes_s:
        yield f"what is proven is not read again (reread_mb_s = 0): {size}; {found.place} {since}"
        return
    reads = "what is proven is read again" if going else "a continuous proof would read what is proven again"
    pace = f"in {format_duration(found.seconds)} at {bytes_s / 1e6:g} MB/s"
    yield f"{reads}, {size} {pace}: {found.place} waits longest, it {since}"
    refused = explain_unreachable_age(found, bytes_s, asked_h)
    if refused:
        yield refused


def explain_unreachable_age(found: RereadPass, bytes_s: float, asked_h: float) -> str:
    """Returns why the wanted age cannot be met; empty if it can."""
    if not asked_h or found.seconds <= asked_h * 3600:
        return ""
    least = found.size / (asked_h * 3600) / 1e6
    return (
        f"read_again_h = {asked_h:g} cannot be kept: a pass takes {found.seconds / 3600:,.1f} h at reread_mb_s ="
        f" {bytes_s / 1e6:g}; it takes at least {least:,.3g} MB/s"
    )


def format_duration(seconds: float) -> str:
    for unit, length in (("days", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
