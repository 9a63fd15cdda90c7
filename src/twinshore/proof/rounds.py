"""A round of proving: scan both sides, compare new ranges, save the results."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace

from twinshore.config.errors import KafkaError
from twinshore.config.model import Link, TopicPartition
from twinshore.config.settings import Settings
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.proof.core.compare import NOT_COMPARED_KIND, not_compared_row
from twinshore.proof.core.keys import (
    KeyCheck,
    find_outdated_incidents,
    is_key_check_due,
    lag_age_ms,
    mark_keys_checked,
    missing_tombstones_incident,
    parse_delete_retention_ms,
    update_key_marks,
)
from twinshore.proof.core.model import CompareMode, CompareRange, CompareResult
from twinshore.proof.core.partition_scan import (
    DELETED_BY_RETENTION,
    DIVERGENCE_KINDS,
    PartitionScan,
    difference_of,
    find_expired_incidents,
    find_resolved_incidents,
    incident_of,
)
from twinshore.proof.core.planning import (
    OFFSET_MODES,
    ProofOptions,
    apply_results,
    apply_sample_results,
    build_range,
    bundle_ranges,
    plan_ranges,
    rebase_scan,
    refresh_idle_proof,
)
from twinshore.proof.jobs import RunBundle, run_bundles
from twinshore.proof.link_scan import LinkScan, LinkScanner, NotCompared, add_offset_runs
from twinshore.replication.links import effective_links
from twinshore.runtime.endpoints import LinkClients, pin_cluster_ids
from twinshore.state.core.values import IncidentRow, KeyCheckRow, PartitionKey, ProofRow, ProofState, key_of
from twinshore.state.store import Store

log = logging.getLogger(__name__)

MergeRow = Callable[[PartitionKey, ProofRow | None], ProofRow | None]
# A new leader may show an earlier end until its followers have reported theirs.
SETTLE_S = 10.0
RESCAN_INTERVAL_S = 0.5
STOP_POLL_INTERVAL_S = 0.1
STOPPED_BEFORE_END = "it was stopped before all was compared"
RESUME_HINT = "`twinshore prove` goes on from here, without --again"


class ProofRecorder:
    def __init__(self, store: Store) -> None:
        self._store = store

    def save(self, rows: Mapping[PartitionKey, ProofRow], refold: MergeRow) -> dict[PartitionKey, ProofRow]:
        """Saves each row, unless the stored one has changed since it was read: then what `refold` makes of that (None:
        nothing). Returns the saved rows.
        """
        kept: dict[PartitionKey, ProofRow] = {}
        turn = dict(rows)
        while turn:
            refused = {key_of(row) for row in self._store.proofs.save(list(turn.values()))}
            kept |= {key: replace(row, revision=row.revision + 1) for key, row in turn.items() if key not in refused}
            stored = {key_of(row): row for link in {key[0] for key in refused} for row in self._store.proofs.of(link)}
            turn = {key: row for key in refused if (row := refold(key, stored.get(key))) is not None}
        self.tell([*rows.values(), *kept.values()])
        for link in {row.link for row in kept.values()}:
            for number in find_resolved_incidents(self._store.incidents.rows(link, open_only=True), kept.values()):
                self._store.incidents.close(number, now_ms=wall_ms())
        return kept

    def tell(self, rows: Collection[ProofRow]) -> None:
        """Logs these rows' differences as incidents, open until a proof passes them."""
        for incident in dict.fromkeys(filter(None, map(incident_of, rows))):
            self._store.incidents.add(incident, now_ms=wall_ms())


@dataclass(frozen=True, slots=True)
class KeyCheckRounds:
    """Key checks of compacted topics, in a round of proving."""

    settings: Settings
    store: Store
    run: RunBundle
    bytes_s: float
    tasks: int
    stopped: Callable[[], bool]

    def round(
        self, link: Link, looks: Sequence[PartitionScan], seen_ms: int, forced: Collection[TopicPartition]
    ) -> dict[TopicPartition, KeyCheck]:
        """Checks partitions that are due or `forced`; returns the state of all compacted ones. Ends were read at
        `seen_ms` or later.
        """
        looks = [scan for scan in looks if scan.mode is CompareMode.COMPACTED]
        if not looks:
            return {}
        retentions = self._retentions(link, {scan.partition.topic for scan in looks})
        before = {(row.topic, row.partition): row for row in self.store.key_checks.of(link.name)}
        found: dict[TopicPartition, KeyCheck] = {}
        scans: list[PartitionScan] = []
        for scan in looks:
            now_ms = wall_ms()
            old = before.get((scan.partition.topic, scan.partition.partition))
            row = update_key_marks(old, scan, retentions[scan.partition.topic], seen_ms, now_ms)
            found[scan.partition] = KeyCheck(row, lag_age_ms(row, scan, now_ms))
            if scan.partition in forced or is_key_check_due(row, scan, now_ms):
                scans.append(scan)
        self.store.key_checks.save([keys.row for keys in found.values()])
        self._look(link, scans, found)
        return found

    def _look(self, link: Link, scans: Sequence[PartitionScan], found: dict[TopicPartition, KeyCheck]) -> None:
        clusters = self.settings.cluster(link.source), self.settings.cluster(link.target)
        options = ProofOptions(bytes_s=self.bytes_s)
        offset_ranges = [
            replace(build_range(scan, clusters, options, 0, 0), number=at, keys=True) for at, scan in enumerate(scans)
        ]
        for results in run_bundles(self.run, [[one] for one in offset_ranges], self.tasks, self.stopped):
            for result in results:
                scan = scans[result.number]
                found[scan.partition] = _after(found[scan.partition], scan, result)
                if found[scan.partition].looked:
                    self._tell(link, found[scan.partition].row)

    def _tell(self, link: Link, row: KeyCheckRow) -> None:
        self.store.key_checks.save([row])
        opened = self.store.incidents.rows(link.name, open_only=True)
        for number, came_to in find_outdated_incidents(opened, {key_of(row): row}):
            self.store.incidents.close(number, now_ms=wall_ms(), came_to=came_to)
        incident = missing_tombstones_incident(row)
        if incident is not None:
            self.store.incidents.add(incident, now_ms=wall_ms())

    def _retentions(self, link: Link, topics: Collection[str]) -> dict[str, int]:
        with closing(KafkaCluster(self.settings.cluster(link.source))) as source:
            settings, _ = source.admin.readable_settings(sorted(topics))
        values = {name: settings.get(name, {}).get("delete.retention.ms") for name in topics}
        return {name: parse_delete_retention_ms(value.value if value else None) for name, value in values.items()}


def _after(keys: KeyCheck, scan: PartitionScan, result: CompareResult) -> KeyCheck:
    if result.trouble:
        return replace(keys, trouble=(f"its keys were not compared: {result.trouble}", result.hint))
    return replace(keys, row=mark_keys_checked(keys.row, scan, result, wall_ms()), looked=True, keys=result.owed_keys)


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """One partition's round. `troubles`: why the proof `row` does not reach further. `opened`: open incidents about
    offsets that would otherwise count as identical. `answered`: ranges compared without trouble.
    """

    row: ProofRow
    compared: int
    bytes: int
    cpu_s: float
    troubles: tuple[tuple[str, str], ...] = ()
    sampled: bool = False
    opened: tuple[IncidentRow, ...] = ()
    keys: KeyCheck | None = None
    answered: int = 0
    scan: PartitionScan | None = None

    @property
    def dropped(self) -> int:
        """The number of proven offsets that a fresh queue dropped."""
        row, some = self.row, self.scan.dropped if self.scan is not None and self.scan.mode in OFFSET_MODES else ()
        return sum(max(0, min(end, row.to_offset) - max(begin, row.from_offset)) for begin, end in some)

    @property
    def behind(self) -> int:
        """Source offsets beyond the compared part: the twin ends before, or a transaction is open. 0 where the report
        says something worse, and for a sample.
        """
        if self.sampled or self.differs or self.unknown:
            return 0
        high = self.scan.source_high if self.scan is not None else -1
        return max(0, max(self.row.source_end, high) - self.row.to_offset)

    @property
    def owed(self) -> int:
        """Missing tombstones at the last key check."""
        return self.keys.row.missing_tombstones if self.keys else 0

    @property
    def differs(self) -> bool:
        parted = any(row.incident.kind in DIVERGENCE_KINDS for row in self.opened)
        return self.row.state == "differs" or parted or bool(self.owed)

    @property
    def unknown(self) -> bool:
        """Whether no difference was found, but not all is identical."""
        return not self.differs and bool(self.troubles or self.opened or self.nothing)

    @property
    def nothing(self) -> bool:
        """Whether a side holds records, but none was ever compared."""
        row, scan = self.row, self.scan
        begun = self.compared or row.to_offset > row.from_offset or row.state == "differs"
        begun = begun or (self.sampled and self.answered > 0)
        vain = scan is not None and (scan.uncarried or scan.one_sided)
        return not begun and (row.source_end > row.from_offset or vain)


@dataclass(frozen=True, slots=True)
class ProofReport:
    """One round over some links."""

    partitions: tuple[PartitionReport, ...]
    lacks: tuple[NotCompared, ...]
    seconds: float
    # The most offsets that the source may have beyond the compared part; below 0: any number.
    behind_max: int = -1

    @property
    def behind(self) -> int:
        return sum(report.behind for report in self.partitions)

    @property
    def sampled(self) -> bool:
        return any(report.sampled for report in self.partitions)

    @property
    def differs(self) -> bool:
        return any(report.differs for report in self.partitions)

    @property
    def incomplete(self) -> bool:
        """Whether something could not be compared, nothing was there, or the source is too far ahead."""
        if bool(self.lacks) or not self.partitions or any(report.unknown for report in self.partitions):
            return True
        return 0 <= self.behind_max < self.behind


@dataclass(slots=True)
class _Work:
    """A partition during its round. `begun`: `asked` has the ranges to compare now. `revision`: the stored row's.
    `barred`: another process has found a difference, which only a later scan may pass. `overtaken`: the stored row is
    of other topics or another mode.
    """

    scan: PartitionScan
    row: ProofRow
    revision: int = 0
    offset_ranges: list[CompareRange] = field(default_factory=list)
    results: list[CompareResult] = field(default_factory=list)
    earlier: list[CompareResult] = field(default_factory=list)
    keys: KeyCheck | None = None
    begun: bool = False
    barred: bool = False
    overtaken: bool = False

    @property
    def counted(self) -> list[CompareResult]:
        """The results that apply to the stored row."""
        return [result for result in self.results if result.difference] if self.barred else self.results

    def meets(self, proof_row: ProofRow | None) -> bool:
        """Continues from another process's row; False where these results cannot be added to that."""
        scan = rebase_scan(self.scan, proof_row)
        self.overtaken = scan is None or proof_row is None
        if scan is None or proof_row is None:
            return False
        self.scan, self.revision = scan, proof_row.revision
        self.barred = self.barred or proof_row.state is ProofState.DIFFERS
        self.row = apply_results(scan, [], [], proof_row.proven_ms)
        return True

    def goes_on(self) -> bool:
        """Whether there is a next range in content mode, which the last one's end determines."""
        if self.barred or self.overtaken:
            return False
        is_content = self.scan.mode is CompareMode.CONTENT
        ends = [one.end for one in self.offset_ranges if one.target_end < 0 and is_content]
        return bool(ends) and [result.to for result in self.results if not result.difference] == ends

    def report(self, *, sampled: bool, stopped: bool) -> PartitionReport:
        found = self.earlier + self.results
        short = stopped and (not self.begun or len(self.results) < len(self.offset_ranges))
        troubles = [(result.trouble, result.hint) for result in found] + ([self.keys.trouble] if self.keys else [])
        troubles += [(STOPPED_BEFORE_END, RESUME_HINT)] if short else []
        return PartitionReport(
            self.row,
            sum(result.records for result in found),
            sum(result.bytes for result in found),
            sum(result.cpu_s for result in found),
            tuple(dict.fromkeys(trouble for trouble in troubles if trouble[0])),
            sampled,
            self.scan.open_incidents,
            self.keys,
            sum(not result.trouble for result in found),
            self.scan,
        )


class ProofRounds:
    """Rounds over links. `stopped` ends a round between two ranges."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        run: RunBundle,
        *,
        options: ProofOptions,
        tasks: int,
        mode: CompareMode | None = None,
        stopped: Callable[[], bool] = lambda: False,
        settle_s: float = SETTLE_S,
    ) -> None:
        self._settings, self._store, self._run, self._mode = settings, store, run, mode
        self._options = options.per_task(tasks)
        self._tasks, self._stopped, self._settle_s = tasks, stopped, settle_s
        self._keeping = ProofRecorder(store)
        self.keep = self._keeping.save
        self._seen: dict[str, tuple[Link, tuple[PartitionScan, ...]]] = {}

    def round(self, links: Sequence[Link], topics: Iterable[str] = (), *, again: bool = False) -> ProofReport:
        """Compares what partitions have gained since the last proof; with `again`, all that they hold."""
        began_s = time.monotonic()
        asked = tuple(topics)
        reports: list[PartitionReport] = []
        lacks: list[NotCompared] = []
        for link in links:
            works: list[_Work] = []
            lacking: list[NotCompared] = []
            try:
                now = effective_links(self._settings.links, self._store)[link.name].link
                self._link(now, asked, works, lacking, again=again)
            except KafkaError as error:
                # Report a silent cluster for this link, and prove the others.
                lacking.append(NotCompared(link.name, "", -1, str(error)))
            lacks += lacking
            stopped = self._stopped()
            if not asked and not stopped:
                self._tell_lacking(link.name, lacking)
            reports += [work.report(sampled=self._samples(work), stopped=stopped) for work in works]
        return ProofReport(tuple(reports), tuple(lacks), time.monotonic() - began_s)

    def _tell_lacking(self, link: str, lacks: Sequence[NotCompared]) -> None:
        """Saves what was not compared, for status pages."""
        row = not_compared_row(link, lacks, wall_ms())
        if lacks:
            self._store.link_states.remember([row])
        elif self._store.link_states.of(link, NOT_COMPARED_KIND):
            self._store.link_states.forget([row])

    def _link(
        self, link: Link, asked: Sequence[str], works: list[_Work], lacks: list[NotCompared], *, again: bool
    ) -> None:
        """Proves one link, and adds to both lists."""
        if self._stopped():
            raise KafkaError(STOPPED_BEFORE_END, hint=RESUME_HINT)
        seen_ms = wall_ms()
        with LinkClients(link, self._settings, sleep=self._wait) as clients:
            pin_cluster_ids(link, self._store, clients.source, clients.target)
            sides = clients.source, clients.target
            survey = self._survey(LinkScanner(link, self._store, *sides, self._mode, self._settings.links), asked)
        self._seen[link.name] = link, survey.looks
        self._store.link_states.remember(survey.cleaned)
        lacks += survey.lacks
        looks = list(survey.looks)
        if again:  # Compare all from the start; a known difference stays until that has passed it.
            looks = [replace(scan, stored=None, remembered=scan.resumable_proof) for scan in looks]
        before = [scan.stored for scan in survey.looks]
        for scan, row in zip(looks, before, strict=True):
            works.append(_Work(scan, apply_results(scan, [], [], wall_ms()), row.revision if row else 0))
        self._prove(link, works)
        self._look_at_keys(link, works, seen_ms, again=again)

    def _wait(self, pause_s: float) -> None:
        """Stops waiting for a silent cluster once `stopped`."""
        until_s = time.monotonic() + pause_s
        while (left_s := until_s - time.monotonic()) > 0:
            if self._stopped():
                raise KafkaError(STOPPED_BEFORE_END, hint=RESUME_HINT)
            time.sleep(min(STOP_POLL_INTERVAL_S, left_s))

    def seen(self) -> list[tuple[Link, PartitionScan]]:
        """The partitions that the last round could compare."""
        return [(link, scan) for link, looks in self._seen.values() for scan in looks]

    def _survey(self, surveyor: LinkScanner, asked: Sequence[str]) -> LinkScan:
        """Scans the link; again where a log seems to end before its proven part."""
        survey, until_s = surveyor.look(asked), time.monotonic() + self._settle_s
        while any(scan.log_shrunk for scan in survey.looks) and time.monotonic() < until_s and not self._stopped():
            time.sleep(RESCAN_INTERVAL_S)
            survey = surveyor.look(asked)
        return survey

    def _look_at_keys(self, link: Link, works: Sequence[_Work], seen_ms: int, *, again: bool) -> None:
        """Checks due keys, keys that a comparison met without a tombstone, and all with `again`."""
        met = {work.scan.partition for work in works if any(result.owed for result in work.earlier + work.results)}
        forced = {work.scan.partition for work in works} if again else met
        options = self._settings, self._store, self._run, self._options.bytes_s, self._tasks, self._stopped
        found = KeyCheckRounds(*options).round(link, [work.scan for work in works], seen_ms, forced)
        for work in works:
            work.keys = found.get(work.scan.partition)

    def _prove(self, link: Link, works: Sequence[_Work]) -> None:
        self._tell_gone(link, works)
        turn = works
        while turn and not self._stopped():
            self._turn(link, turn)
            turn = [work for work in turn if work.goes_on()]
            for work in turn:
                work.scan = replace(work.scan, stored=work.row)
                work.earlier += work.results
                work.offset_ranges, work.results, work.begun = [], [], False

    def _turn(self, link: Link, works: Sequence[_Work]) -> None:
        source, target = (self._settings.cluster(name) for name in (link.source, link.target))
        owners: list[_Work] = []
        offset_ranges: list[CompareRange] = []
        for work in works:
            work.begun = True
            for offset_range in plan_ranges(work.scan, source, target, self._options):
                work.offset_ranges.append(replace(offset_range, number=len(offset_ranges)))
                offset_ranges.append(work.offset_ranges[-1])
                owners.append(work)
        # An idle partition's proof stays fresh: the scan found nothing new.
        quiet = [work for work in works if not work.offset_ranges and not self._samples(work)]
        self._save(quiet, lambda work: refresh_idle_proof(work.scan, wall_ms()))
        known = (add_offset_runs(self._store, link.name, offset_range) for offset_range in offset_ranges)
        bundles = bundle_ranges(known, self._options.range_records)
        for answers in run_bundles(self._run, bundles, self._tasks, self._stopped):
            touched = {}
            for result in answers:
                work = owners[result.number]
                work.results.append(result)
                touched[id(work)] = work
                if result.difference is not None and not _known(work.scan.stored, result):
                    where = f"{work.scan.partition} at offset {result.difference.offset}"
                    text = f"{link.name}: {where}: {result.difference.kind}: {result.difference.sentence}"
                    log.error(text, extra={"link": link.name, **asdict(work.scan.partition)})
            self._save(touched.values(), self._outcome)

    def _save(self, works: Collection[_Work], row_of: Callable[[_Work], ProofRow | None]) -> None:
        """Saves rows, merged with what other proofs have found in between."""
        ours = {key_of(work.row): work for work in works if not work.overtaken}

        def refold(place: PartitionKey, proof_row: ProofRow | None) -> ProofRow | None:
            return found(ours[place]) if ours[place].meets(proof_row) else None

        def found(work: _Work) -> ProofRow | None:
            row = row_of(work)
            return replace(row, revision=work.revision) if row is not None else None

        rows = {place: row for place, work in ours.items() if (row := found(work)) is not None}
        for place, row in self.keep(rows, refold).items():
            ours[place].row, ours[place].revision = row, row.revision
        for work in works:
            if work.overtaken and (row := row_of(work)) is not None:
                work.row = row
                self._keeping.tell([row])

    def _outcome(self, work: _Work) -> ProofRow | None:
        if self._samples(work):
            return apply_sample_results(work.scan, work.counted, wall_ms())
        return apply_results(work.scan, work.offset_ranges, work.counted, wall_ms())

    def _tell_gone(self, link: Link, works: Sequence[_Work]) -> None:
        """Narrows proofs to what still exists, and closes differences that both sides have lost."""
        looks = [work.scan for work in works]
        below = {scan.key: scan.gone_below for scan in looks}
        for number in find_expired_incidents(self._store.incidents.rows(link.name, open_only=True), below):
            self._store.incidents.close(number, now_ms=wall_ms(), came_to=DELETED_BY_RETENTION)
        self._save(works, lambda work: work.row if work.scan.proof_invalidated else None)

    def _samples(self, work: _Work) -> bool:
        return bool(self._options.sample) and work.scan.mode in OFFSET_MODES


def _known(stored: ProofRow | None, result: CompareResult) -> bool:
    difference = difference_of(stored) if stored is not None else None
    if stored is None or difference is None or result.difference is None:
        return False
    return stored.to_offset == result.to or difference.offset == result.difference.offset
