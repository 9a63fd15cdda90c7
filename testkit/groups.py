"""Groups at every lag on logs of several kinds, moved by a mirror, and what each would read on the other side."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from testkit.clients import commit_group_offsets
from testkit.copiers import CopyJob, MirrorMaker
from testkit.figures import StageError
from testkit.log_kinds import COMPACTED, SOURCE_SETTINGS, compacted, transactional
from testkit.watermarks import close_kept_consumers, read_watermarks
from twinshore.config.model import Cluster
from twinshore.lab.clients import create_log_consumer, read_group_offsets, read_to_end
from twinshore.lab.cluster import LabCluster
from twinshore.lab.mirror_process import MirrorProcess, settings_of
from twinshore.lab.processes import ChildProcess
from twinshore.lab.produce import produce_records

Record = tuple[bytes | str | None, bytes | str | None, int]
MAPPED = "mapped"
KINDS = ("plain", "transactional", "compacted", MAPPED)
EXACT = frozenset({"plain", "transactional", "compacted"})
# The target holds so many records of others before a mapped topic comes.
STRANGERS = 700
# How far each group has read, as a part of the log; "one behind" is one offset before its end.
LAGS = {"at the end": 1.0, "one behind": -1.0, "10 % behind": 0.9, "90 % behind": 0.1, "at the start": 0.0}
CROSSED_WITHIN_S = 120.0
MOVED_WITHIN_S = 40.0
STILL_S = 10.0
RUN = 1


@dataclass(frozen=True, slots=True)
class Moved:
    """A group on the target: records that it would read again there, and that it would never read."""

    kind: str
    lag: str
    again: int
    skipped: int
    placed: bool


@dataclass(frozen=True, slots=True)
class TwoMoves:
    """The same groups moved by both."""

    ours: tuple[Moved, ...]
    theirs: tuple[Moved, ...]


def run_moves(records: int, say: Callable[[str], None]) -> TwoMoves:
    """One source and one target; each mirror in its turn, with groups of its own."""
    with (
        LabCluster("east", settings=SOURCE_SETTINGS) as source,
        LabCluster("west") as target,
        tempfile.TemporaryDirectory(prefix="twinshore-show-") as folder,
    ):
        for kind in KINDS:
            # The writer of transactions deals out to two; the first one is looked at.
            partitions = 2 if kind in ("transactional", MAPPED) else 1
            settings = COMPACTED if kind == "compacted" else {}
            source.create_topic(_topic(kind), partitions=partitions, settings=settings)
        _fill(source.cluster, _topic("plain"), records, "record")
        target.create_topic(_topic(MAPPED), partitions=2)
        _fill(target.cluster, _topic(MAPPED), STRANGERS, "stranger")
        for seed, kind in enumerate(("transactional", MAPPED)):
            transactional(source, _topic(kind), seed=seed)
        compacted(source, _topic("compacted"))
        logs = {kind: _read(source.cluster, _topic(kind), None) for kind in KINDS}
        say(f"logs of {', '.join(f'{len(logs[kind])} records {kind}' for kind in KINDS)}")
        stage = _Stage(source.cluster, target.cluster, logs)
        with _twinshore(source.cluster, target.cluster, Path(folder) / "ours") as mirror:
            ours = stage.play("ours", _topic, mirror.check, EXACT, say)
        maker = MirrorMaker()
        job = CopyJob(source.cluster, target.cluster, _topic(".*"), RUN)
        with _mirror_maker(maker, job, Path(folder) / "theirs") as child:
            name = f"{source.name}{RUN}."
            theirs = stage.play("mm2", lambda kind: name + _topic(kind), lambda: _alive(child), frozenset(), say)
        close_kept_consumers()
        return TwoMoves(ours, theirs)


Log = dict[int, Record]


class _Stage:
    def __init__(self, source: Cluster, target: Cluster, logs: Mapping[str, Log]) -> None:
        self._source, self._target, self._logs = source, target, logs

    def play(
        self,
        who: str,
        called: Callable[[str], str],
        check: Callable[[], None],
        exact: Collection[str],
        say: Callable[[str], None],
    ) -> tuple[Moved, ...]:
        """Commits the groups on the source, waits for them on the target, and reads what they would read there."""
        spots: dict[tuple[str, str], int] = {}
        for kind in KINDS:
            self._crossed(kind, called(kind), check, exact=kind in exact)
            start, end = _span(self._source, _topic(kind))
            for lag, part in LAGS.items():
                spots[kind, lag] = end - 1 if part < 0 else start + int((end - start) * part)
                begins = TopicPartition(_topic(kind), 0, spots[kind, lag])
                commit_group_offsets(self._source, f"{who}-{kind}-{lag.replace(' ', '')}", begins)
        say(f"{who}: {len(spots)} groups wait on the source")
        places = self._places(who, called, spots, exact)
        found = []
        for (kind, lag), offset in spots.items():
            log, place = self._logs[kind], places[kind, lag]
            # Without a place a consumer begins where its reset policy says; by default behind all that is there.
            read = set(_read(self._target, called(kind), place).values()) if place is not None else set()
            again, skipped = compared(log, offset, read)
            # An exact twin's place is the source's own, or it is none.
            placed = place == offset if kind in exact else place is not None
            found.append(Moved(kind, lag, again, skipped, placed))
        return tuple(found)

    def _crossed(self, kind: str, topic: str, check: Callable[[], None], *, exact: bool) -> None:
        wanted = set(self._logs[kind].values())
        end = _span(self._source, _topic(kind))[1]
        deadline_s = time.monotonic() + CROSSED_WITHIN_S
        while True:
            check()
            there = _span(self._target, topic)
            # What another mirror writes is counted, since its offsets are its own.
            if there[1] == end if exact else there[1] >= len(wanted) and self._has(topic, wanted):
                return
            if time.monotonic() > deadline_s:
                raise StageError(f"{topic} on {self._target.name} stands at {there} after {CROSSED_WITHIN_S:.0f} s")
            time.sleep(0.5)

    def _has(self, topic: str, wanted: set[Record]) -> bool:
        return wanted <= set(_read(self._target, topic, 0).values())

    def _places(
        self, who: str, called: Callable[[str], str], spots: Mapping[tuple[str, str], int], exact: Collection[str]
    ) -> dict[tuple[str, str], int | None]:
        """Once they stand still: exact ones at their offsets, all others for some seconds."""
        deadline_s, still_s = time.monotonic() + MOVED_WITHIN_S, time.monotonic()
        before: dict[tuple[str, str], int | None] = {}
        while time.monotonic() < deadline_s:
            now = {
                (kind, lag): _place(self._target, f"{who}-{kind}-{lag.replace(' ', '')}", called(kind))
                for kind, lag in spots
            }
            if now != before:
                before, still_s = now, time.monotonic()
            there = all(now[spot] == offset for spot, offset in spots.items() if spot[0] in exact)
            if there and any(now.values()) and time.monotonic() - still_s > STILL_S:
                break
            time.sleep(1.0)
        return before


def compared(log: Log, offset: int, read: Collection[Record]) -> tuple[int, int]:
    """How many records before the offset are read again, and how many from there on are not. Records that are the same
    in all a consumer sees, on either side of the offset, count for neither: two deletions of a key in one moment."""
    unread = {record for at, record in log.items() if at >= offset}
    already = {record for at, record in log.items() if at < offset}
    seen = set(read)
    return len(seen & (already - unread)), len(unread - seen)


@contextmanager
def _twinshore(source: Cluster, target: Cluster, folder: Path) -> Iterator[MirrorProcess]:
    text = settings_of(source, target, store=folder / "store.db", topics=_topic(".*"), mirror={"tasks_per_link": 1})
    text = text.replace("\n[mirror]", "mode = 'mapped'\nmapped_from = 'start'\n\n[mirror]", 1)
    mirror = MirrorProcess(folder, text)
    mirror.start()
    try:
        yield mirror
    finally:
        mirror.end()


@contextmanager
def _mirror_maker(maker: MirrorMaker, job: CopyJob, folder: Path) -> Iterator[ChildProcess]:
    """With everything on that brings groups across, as often as it can."""
    folder.mkdir()
    link = f"{job.source.name}{job.run}->{job.target.name}"
    child: ChildProcess = maker.start(
        job,
        folder,
        besides={
            f"{link}.topics": job.topic,
            f"{link}.groups": "mm2-.*",
            "emit.checkpoints.enabled": "true",
            "emit.checkpoints.interval.seconds": "1",
            "sync.group.offsets.enabled": "true",
            "sync.group.offsets.interval.seconds": "1",
            "refresh.groups.interval.seconds": "1",
            "checkpoints.topic.replication.factor": "1",
        },
    )
    try:
        yield child
    finally:
        child.end(patience_s=5)


def _alive(child: ChildProcess) -> None:
    if not child.alive():
        raise StageError(f"MirrorMaker ended with code {child.exit_code}")


def _topic(kind: str) -> str:
    return f"move-{kind}"


def _fill(cluster: Cluster, topic: str, records: int, what: str) -> None:
    written = ((b"key %d" % (number % 100), f"{what} {number}".encode(), 0) for number in range(records))
    produce_records(cluster, topic, written, {"linger.ms": 20})


def _span(cluster: Cluster, topic: str) -> tuple[int, int]:
    (span,) = read_watermarks(cluster, topic, 1)
    return span


def _place(cluster: Cluster, group: str, topic: str) -> int | None:
    (offset,) = read_group_offsets(cluster, group, topic, [0])
    return offset if offset >= 0 else None


def _read(cluster: Cluster, topic: str, start: int | None) -> Log:
    """What an ordinary consumer is given of the first partition from there on; None: from the start."""
    with closing(create_log_consumer(cluster, committed=True, settings={"auto.offset.reset": "earliest"})) as consumer:
        return {
            one.offset() or 0: (one.key(), one.value(), one.timestamp()[1])
            for one in read_to_end(consumer, topic, 0, OFFSET_BEGINNING if start is None else start)
        }
