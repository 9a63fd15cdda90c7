"""MirrorMaker 2 copies a topic and stops; Twinshore carries the copy on. The stage for tests and for the show."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from testkit.clients import delete_records
from testkit.copiers import CopyJob, MirrorMaker
from testkit.figures import StageError
from testkit.watermarks import close_kept_consumers, read_watermarks
from twinshore.config.model import Cluster, SourceOffset, TargetOffset, TopicPartition
from twinshore.lab import produce
from twinshore.lab.clients import create_log_consumer, create_topic, read_to_end
from twinshore.lab.mirror_process import MirrorProcess, addresses
from twinshore.replication.core.mapping import translate_to_source, translate_to_target
from twinshore.state.store import Store, open_store

STOP_S = 40.0
WAIT_S = 90.0
PARTITIONS = 2
BEFORE = 400


@dataclass(frozen=True, slots=True)
class Moved:
    """What the copy holds in the end, by content, and what the map said of it."""

    records: int
    by_mirror_maker: int
    lost: int
    doubled: int
    reordered: int
    looked_up: int
    wrong: int
    offset_runs: int
    sentences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Move:
    """One move of one topic. `killed`: MirrorMaker ends by kill -9; `kills`: so often does Twinshore."""

    source: Cluster
    target: Cluster
    topic: str
    folder: Path
    records: int = 3_000
    killed: bool = False
    kills: int = 1

    @property
    def job(self) -> CopyJob:
        return CopyJob(self.source, self.target, self.topic, 0)

    @property
    def renamed(self) -> Cluster:
        """The source by the alias that MirrorMaker has for it."""
        return replace(self.source, name=f"{self.source.name}0")

    @property
    def copy(self) -> str:
        return MirrorMaker().target_topic(self.job)

    @property
    def link(self) -> str:
        return f"{self.renamed.name}->{self.target.name}"

    def run(self) -> Moved:
        """Tries it on clusters that run already."""
        create_topic(self.source, self.topic, partitions=PARTITIONS)
        # A log that begins late, so that no offset of the copy is the source's.
        write(self.source, self.topic, 0, BEFORE)
        begins = {TopicPartition(self.topic, number): BEFORE // PARTITIONS for number in range(PARTITIONS)}
        delete_records(self.source, begins)
        write(self.source, self.topic, BEFORE, self.records)
        self._by_mirror_maker()
        by_mirror_maker = sum(len(one) for one in self._read_copy())
        written = BEFORE + 2 * self.records
        write(self.source, self.topic, written, self.records)
        mirror = MirrorProcess(self.folder / "mirror", self.settings())
        try:
            mirror.start()
            for _ in range(self.kills):
                self._until(
                    lambda: self._size(self.target, self.copy) > by_mirror_maker, "nothing was carried on", mirror
                )
                mirror.kill()
                written += self.records
                write(self.source, self.topic, written, self.records)
                by_now = self._size(self.target, self.copy)
                mirror.start()
                self._until(lambda at=by_now: self._size(self.target, self.copy) > at, "not carried on", mirror)  # type: ignore[misc]
            total = self._size(self.source, self.topic)
            self._until(lambda: self._size(self.target, self.copy) >= total, "the copy stays behind", mirror)
            self._until(lambda: self._mapped_to() >= total - by_mirror_maker, "the map stays behind", mirror)
            # Of this topic: heartbeats that others left on the source are carried by every link.
            said = tuple(
                line for line in mirror.said.splitlines() if f"{self.topic}-" in line and " is mapped: " in line
            )
        finally:
            mirror.end()
            close_kept_consumers()
        return self._judge(by_mirror_maker, said)

    def settings(self) -> str:
        section = f"topics = ['{self.topic}']\nnaming = 'prefix'\nmode = 'mapped'"
        clusters = addresses((self.renamed, self.target), {self.link: section}, self.folder / "store.db")
        return f"{clusters}[mirror]\ntask_run_s = 5\nheartbeat_s = 0\n"

    @property
    def _url(self) -> str:
        return f"sqlite:///{self.folder / 'store.db'}"

    def _by_mirror_maker(self) -> None:
        """It copies what is there, then some more while it runs, and is ended in the middle of that."""
        folder = self.folder / "mm2"
        folder.mkdir(parents=True)
        child = MirrorMaker().start(self.job, folder)
        try:
            self._until(lambda: self._size(self.target, self.copy) >= self.records, "MirrorMaker copies nothing")
            write(self.source, self.topic, BEFORE + self.records, self.records)
            least = self.records if self.killed else 2 * self.records
            self._until(lambda: self._size(self.target, self.copy) >= least, "MirrorMaker stays behind")
        finally:
            child.end(patience_s=0.0 if self.killed else STOP_S)
        settled = -1
        while settled != (settled := self._size(self.target, self.copy)):
            time.sleep(1.0)

    def _judge(self, by_mirror_maker: int, said: tuple[str, ...]) -> Moved:
        source, copy = read(self.source, self.topic), self._read_copy()
        lost = doubled = reordered = looked_up = wrong = offset_runs = 0
        with open_store(self._url) as store:
            for number, (theirs, ours) in enumerate(zip(source, copy, strict=True)):
                wanted, found = Counter(value for _, value in theirs), Counter(value for _, value in ours)
                lost += (wanted - found).total()
                doubled += (found - wanted).total()
                reordered += [value for _, value in theirs] != [value for _, value in ours]
                tried, bad = self._look_up(store, number, dict(theirs), dict(ours))
                looked_up, wrong = looked_up + tried, wrong + bad
                offset_runs += len(store.offset_runs.of(self.link, self.topic, number))
        total = sum(len(one) for one in source)
        return Moved(total, by_mirror_maker, lost, doubled, reordered, looked_up, wrong, offset_runs, said)

    def _look_up(self, store: Store, number: int, theirs: dict[int, bytes], ours: dict[int, bytes]) -> tuple[int, int]:
        """Every offset that the map knows, from either side; and how often the record there was another one."""
        tried = wrong = 0
        key = (self.link, self.topic, number)
        first = store.offset_runs.of(*key)[0].source
        for offset in sorted(theirs):
            place = translate_to_target(SourceOffset(offset), *store.offset_runs.around(*key, offset))
            if offset < first or place is None or not place.exact:
                continue
            back = translate_to_source(
                TargetOffset(place.offset), *store.offset_runs.around(*key, place.offset, on_target=True)
            )
            tried += 1
            wrong += ours.get(place.offset) != theirs[offset] or back is None or back.offset != offset
        return tried, wrong

    def _mapped_to(self) -> int:
        with open_store(self._url) as store:
            return sum(
                one.length
                for number in range(PARTITIONS)
                for one in store.offset_runs.of(self.link, self.topic, number)
            )

    def _read_copy(self) -> list[list[tuple[int, bytes]]]:
        return read(self.target, self.copy)

    def _size(self, cluster: Cluster, topic: str) -> int:
        return sum(end - start for start, end in read_watermarks(cluster, topic, PARTITIONS))

    def _until(self, holds: Callable[[], bool], otherwise: str, mirror: MirrorProcess | None = None) -> None:
        deadline = time.monotonic() + WAIT_S
        while not holds():
            if time.monotonic() > deadline or (mirror and not mirror.child.alive()):
                raise StageError(f"{otherwise}: {mirror.said[-2000:] if mirror else ''}")
            time.sleep(0.1)


def write(cluster: Cluster, topic: str, first: int, count: int) -> None:
    """Records with values that say which they are, spread over the partitions."""
    numbers = range(first, first + count)
    produce.produce_records(cluster, topic, ((b"key", b"value %d" % number, number % PARTITIONS) for number in numbers))


def read(cluster: Cluster, topic: str) -> list[list[tuple[int, bytes]]]:
    """Offset and value of every committed record, partition by partition."""
    with closing(create_log_consumer(cluster, committed=True)) as consumer:
        return [
            [(one.offset() or 0, bytes(one.value() or b"")) for one in read_to_end(consumer, topic, number)]
            for number in range(PARTITIONS)
        ]
