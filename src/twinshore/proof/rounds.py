"""A round of proving: scan both sides, compare new ranges, save the results."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
from twinshore.proof.link_scan import LinkScan, LinkScanner, NotCompared, add_offset_runs, link_not_compared
from twinshore.replication.links import effective_links
from twinshore.runtime.endpoints import LinkClients, pin_cluster_ids
from twinshore.state.core.values import IncidentRow, KeyCheckRow, ProofRow, ProofState
from twinshore.state.store import Store

log = logging.getLogger(__name__)

LinkPartition = tuple[str, str, int]
MergeRow = Callable[[LinkPartition, ProofRow | None], ProofRow | None]
# A new leader may show an earlier end until its followers have reported theirs.
SETTLE_S = 10.0
RESCAN_INTERVAL_S = 0.5
STOP_POLL_INTERVAL_S = 0.1
STOPPED_BEFORE_END = "it was stopped before all was compared"
RESUME_HINT = "`twinshore prove` goes on from here, without --again"


def link_partition_of(row: ProofRow) -> LinkPartition:
    return row.link, row.topic, row.partition


class ProofRecorder:
    def __init__(self, store: Store) -> None:
        self._store = store

    def save(self, rows: Mapping[LinkPartition, ProofRow], refold: MergeRow) -> dict[LinkPartition, ProofRow]:
        """Saves each row, unless the stored one has changed since it was read: then what `refold` makes of that (None:
        nothing). Returns the saved rows.
        """
        kept: dict[LinkPartition, ProofRow] = {}
        turn = dict(rows)
        while turn:
            refused = {link_partition_of(row) for row in self._store.proofs.save(list(turn.values()))}
            kept |= {
                place: replace(row, revision=row.revision + 1) for place, row in turn.items() if place not in refused
            }
            turn = self._refolded(self._store, refused, refold)
        self.tell([*rows.values(), *kept.values()])
        for link in {row.link for row in kept.values()}:
            for number in find_resolved_incidents(self._store.incidents.rows(link, open_only=True), kept.values()):
                self._store.incidents.close(number, now_ms=wall_ms())
        return kept

    def tell(self, rows: Collection[ProofRow]) -> None:
        """Logs these rows' differences as incidents, open until a proof passes them."""
        for incident in dict.fromkeys(filter(None, map(incident_of, rows))):
            self._store.incidents.add(incident, now_ms=wall_ms())

    @staticmethod
    def _refolded(store: Store, refused: Collection[LinkPartition], refold: MergeRow) -> dict[LinkPartition, ProofRow]:
        links = sorted({link for link, *_ in refused})
        stands = {link_partition_of(row): row for link in links for row in store.proofs.of(link)}
        found = {place: refold(place, stands.get(place)) for place in refused}
        return {place: row for place, row in found.items() if row is not None}


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
        looks = [look for look in looks if look.way is CompareMode.COMPACTED]
        if not looks:
            return {}
        retentions = self._retentions(link, {look.named.topic for look in looks})
        before = {(row.topic, row.partition): row for row in self.store.key_checks.of(link.name)}
        found: dict[TopicPartition, KeyCheck] = {}
        turn: list[PartitionScan] = []
        for look in looks:
            now_ms = wall_ms()
            old = before.get((look.named.topic, look.named.partition))
            row = update_key_marks(old, look, retentions[look.named.topic], seen_ms, now_ms)
            found[look.named] = KeyCheck(row, lag_age_ms(row, look, now_ms))
            if look.named in forced or is_key_check_due(row, look, now_ms):
                turn.append(look)
        self.store.key_checks.save([keys.row for keys in found.values()])
        self._look(link, turn, found)
        return found

    def _look(self, link: Link, turn: Sequence[PartitionScan], found: dict[TopicPartition, KeyCheck]) -> None:
        clusters = self.settings.cluster(link.source), self.settings.cluster(link.target)
        wishes = ProofOptions(bytes_s=self.bytes_s)
        wanted = [
            replace(build_range(look, clusters, wishes, 0, 0), number=at, keys=True) for at, look in enumerate(turn)
        ]
        for answers in run_bundles(self.run, [[one] for one in wanted], self.tasks, self.stopped):
            for answer in answers:
                look = turn[answer.number]
                found[look.named] = _after(found[look.named], look, answer)
                if found[look.named].looked:
                    self._tell(link, found[look.named].row)

    def _tell(self, link: Link, row: KeyCheckRow) -> None:
        self.store.key_checks.save([row])
        opened = self.store.incidents.rows(link.name, open_only=True)
        for number, came_to in find_outdated_incidents(opened, {(row.link, row.topic, row.partition): row}):
            self.store.incidents.close(number, now_ms=wall_ms(), came_to=came_to)
        incident = missing_tombstones_incident(row)
        if incident is not None:
            self.store.incidents.add(incident, now_ms=wall_ms())

    def _retentions(self, link: Link, topics: Collection[str]) -> dict[str, int]:
        source = KafkaCluster(self.settings.cluster(link.source))
        try:
            settings, _ = source.admin.readable_settings(sorted(topics))
        finally:
            source.close()
        values = {name: settings.get(name, {}).get("delete.retention.ms") for name in topics}
        return {name: parse_delete_retention_ms(value.value if value else None) for name, value in values.items()}


def _after(keys: KeyCheck, look: PartitionScan, answer: CompareResult) -> KeyCheck:
    if answer.trouble:
        return replace(keys, trouble=(f"its keys were not compared: {answer.trouble}", answer.hint))
    return replace(keys, row=mark_keys_checked(keys.row, look, answer, wall_ms()), looked=True, keys=answer.owed_keys)


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
    look: PartitionScan | None = None

    @property
    def dropped(self) -> int:
        """The number of proven offsets that a fresh queue dropped."""
        row, some = self.row, self.look.dropped if self.look is not None and self.look.way in OFFSET_MODES else ()
        return sum(max(0, min(end, row.to_offset) - max(begin, row.from_offset)) for begin, end in some)

    @property
    def behind(self) -> int:
        """Source offsets beyond the compared part: the twin ends before, or a transaction is open. 0 where the report
        says something worse, and for a sample.
        """
        if self.sampled or self.differs or self.unknown:
            return 0
        high = self.look.source_high if self.look is not None else -1
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
        row, look = self.row, self.look
        begun = (
            (self.sampled and self.answered)
            or self.compared
            or row.to_offset > row.from_offset
            or row.state == "differs"
        )
        vain = look is not None and (look.uncarried or look.one_sided)
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
        return sum(one.behind for one in self.partitions)

    @property
    def sampled(self) -> bool:
        return any(one.sampled for one in self.partitions)

    @property
    def differs(self) -> bool:
        return any(one.differs for one in self.partitions)

    @property
    def incomplete(self) -> bool:
        """Whether something could not be compared, nothing was there, or the source is too far ahead."""
        if bool(self.lacks) or not self.partitions or any(one.unknown for one in self.partitions):
            return True
        return 0 <= self.behind_max < self.behind


@dataclass(slots=True)
class _Work:
    """A partition during its round. `begun`: `asked` has the ranges to compare now. `revision`: the stored row's.
    `barred`: another process has found a difference, which only a later scan may pass. `overtaken`: the stored row is
    of other topics or another mode.
    """

    look: PartitionScan
    row: ProofRow
    revision: int = 0
    asked: list[CompareRange] = field(default_factory=list)
    results: list[CompareResult] = field(default_factory=list)
    earlier: list[CompareResult] = field(default_factory=list)
    keys: KeyCheck | None = None
    begun: bool = False
    barred: bool = False
    overtaken: bool = False

    @property
    def counted(self) -> list[CompareResult]:
        """The results that apply to the stored row."""
        return [one for one in self.results if one.difference] if self.barred else self.results

    def meets(self, stands: ProofRow | None) -> bool:
        """Continues from another process's row; False where these results cannot be added to that."""
        look = rebase_scan(self.look, stands)
        self.overtaken = look is None or stands is None
        if look is None or stands is None:
            return False
        self.look, self.revision = look, stands.revision
        self.barred = self.barred or stands.state is ProofState.DIFFERS
        self.row = apply_results(look, [], [], stands.proven_ms)
        return True

    def goes_on(self) -> bool:
        """Whether there is a next range in content mode, which the last one's end determines."""
        if self.barred or self.overtaken:
            return False
        whole = [one for one in self.asked if one.target_end < 0 and one.way is CompareMode.CONTENT]
        return bool(whole) and [one.to for one in self.results if not one.difference] == [one.end for one in whole]

    def report(self, *, sampled: bool, stopped: bool) -> PartitionReport:
        found = self.earlier + self.results
        short = stopped and (not self.begun or len(self.results) < len(self.asked))
        troubles = [(one.trouble, one.hint) for one in found] + ([self.keys.trouble] if self.keys else [])
        troubles += [(STOPPED_BEFORE_END, RESUME_HINT)] if short else []
        return PartitionReport(
            self.row,
            sum(one.records for one in found),
            sum(one.bytes for one in found),
            sum(one.cpu_s for one in found),
            tuple(dict.fromkeys(trouble for trouble in troubles if trouble[0])),
            sampled,
            self.look.open_incidents,
            self.keys,
            sum(not one.trouble for one in found),
            self.look,
        )


class ProofRounds:
    """Rounds over links. `stopped` ends a round between two ranges."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        run: RunBundle,
        *,
        wishes: ProofOptions,
        tasks: int,
        way: CompareMode | None = None,
        stopped: Callable[[], bool] = lambda: False,
        settle_s: float = SETTLE_S,
    ) -> None:
        self._settings, self._store, self._run, self._way = settings, store, run, way
        self._wishes = wishes.per_task(tasks)
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
                self._link(self._as_it_holds(link), asked, works, lacking, again=again)
            except KafkaError as error:
                # Report a silent cluster for this link, and prove the others.
                lacking.append(link_not_compared(link.name, error))
            lacks += lacking
            stopped = self._stopped()
            if not asked and not stopped:
                self._tell_lacking(link.name, lacking)
            reports += [work.report(sampled=self._samples(work), stopped=stopped) for work in works]
        return ProofReport(tuple(reports), tuple(lacks), time.monotonic() - began_s)

    def _as_it_holds(self, link: Link) -> Link:
        """Returns the link with operators' overrides."""
        return effective_links(self._settings.links, self._store)[link.name].link

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
        with LinkClients(link, self._settings, sleep=self._wait) as ends:
            pin_cluster_ids(link, self._store, ends.source, ends.target)
            links = self._settings.links
            surveyor = LinkScanner(link, self._store, ends.source, ends.target, self._way, links)
            survey = self._survey(surveyor, asked)
        self._seen[link.name] = link, survey.looks
        self._store.link_states.remember(survey.cleaned)
        lacks += survey.lacks
        looks = list(survey.looks)
        if again:  # Compare all from the start; a known difference stays until that has passed it.
            looks = [replace(look, stored=None, remembered=look.resumable_proof) for look in looks]
        before = [look.stored for look in survey.looks]
        works += (
            _Work(look, apply_results(look, [], [], wall_ms()), row.revision if row else 0)
            for look, row in zip(looks, before, strict=True)
        )
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
        return [(link, look) for link, looks in self._seen.values() for look in looks]

    def _survey(self, surveyor: LinkScanner, asked: Sequence[str]) -> LinkScan:
        """Scans the link; again where a log seems to end before its proven part."""
        survey, until_s = surveyor.look(asked), time.monotonic() + self._settle_s
        while any(look.log_shrunk for look in survey.looks) and time.monotonic() < until_s and not self._stopped():
            time.sleep(RESCAN_INTERVAL_S)
            survey = surveyor.look(asked)
        return survey

    def _look_at_keys(self, link: Link, works: Sequence[_Work], seen_ms: int, *, again: bool) -> None:
        """Checks due keys, keys that a comparison met without a tombstone, and all with `again`."""
        met = {work.look.named for work in works if any(one.owed for one in work.earlier + work.results)}
        forced = {work.look.named for work in works} if again else met
        bytes_s, looks = self._wishes.bytes_s, [work.look for work in works]
        rounds = KeyCheckRounds(self._settings, self._store, self._run, bytes_s, self._tasks, self._stopped)
        found = rounds.round(link, looks, seen_ms, forced)
        for work in works:
            work.keys = found.get(work.look.named)

    def _prove(self, link: Link, works: Sequence[_Work]) -> None:
        self._tell_gone(link, works)
        turn = works
        while turn and not self._stopped():
            self._turn(link, turn)
            turn = [work for work in turn if work.goes_on()]
            for work in turn:
                work.look = replace(work.look, stored=work.row)
                work.earlier += work.results
                work.asked, work.results, work.begun = [], [], False

    def _turn(self, link: Link, works: Sequence[_Work]) -> None:
        source, target = (self._settings.cluster(name) for name in (link.source, link.target))
        owners: list[_Work] = []
        wanted: list[CompareRange] = []
        for work in works:
            work.begun = True
            for stretch in plan_ranges(work.look, source, target, self._wishes):
                work.asked.append(replace(stretch, number=len(wanted)))
                wanted.append(work.asked[-1])
                owners.append(work)
        # An idle partition's proof stays fresh: the scan found nothing new.
        quiet = [work for work in works if not work.asked and not self._samples(work)]
        self._save(quiet, lambda work: refresh_idle_proof(work.look, wall_ms()))
        known = (add_offset_runs(self._store, link.name, stretch) for stretch in wanted)
        bundles = bundle_ranges(known, self._wishes.stretch_records)
        for answers in run_bundles(self._run, bundles, self._tasks, self._stopped):
            touched = {}
            for answer in answers:
                work = owners[answer.number]
                work.results.append(answer)
                touched[id(work)] = work
                if answer.difference is not None and not _known(work.look.stored, answer):
                    where = f"{work.look.named} at offset {answer.difference.offset}"
                    text = f"{link.name}: {where}: {answer.difference.kind}: {answer.difference.sentence}"
                    log.error(text, extra={"link": link.name, **asdict(work.look.named)})
            self._save(touched.values(), self._outcome)

    def _save(self, works: Collection[_Work], row_of: Callable[[_Work], ProofRow | None]) -> None:
        """Saves rows, merged with what other proofs have found in between."""
        ours = {link_partition_of(work.row): work for work in works if not work.overtaken}

        def refold(place: LinkPartition, stands: ProofRow | None) -> ProofRow | None:
            return found(ours[place]) if ours[place].meets(stands) else None

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
            return apply_sample_results(work.look, work.counted, wall_ms())
        return apply_results(work.look, work.asked, work.counted, wall_ms())

    def _tell_gone(self, link: Link, works: Sequence[_Work]) -> None:
        """Narrows proofs to what still exists, and closes differences that both sides have lost."""
        looks = [work.look for work in works]
        below = {(link.name, look.named.topic, look.named.partition): look.gone_below for look in looks}
        for number in find_expired_incidents(self._store.incidents.rows(link.name, open_only=True), below):
            self._store.incidents.close(number, now_ms=wall_ms(), came_to=DELETED_BY_RETENTION)
        self._save(works, lambda work: work.row if work.look.proof_invalidated else None)

    def _samples(self, work: _Work) -> bool:
        return bool(self._wishes.sample) and work.look.way in OFFSET_MODES


def _known(stored: ProofRow | None, answer: CompareResult) -> bool:
    told = difference_of(stored) if stored is not None else None
    if stored is None or told is None or answer.difference is None:
        return False
    return stored.to_offset == answer.to or told.offset == answer.difference.offset
