"""Where MirrorMaker stopped is found or refused, and never guessed: logs that lost their beginnings, records that come
again, transactions that were aborted and repeated."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from twinshore.config.model import Cluster, Link, MappedStart, OffsetMode, TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.protocol.fetch import FetchedPartitionById
from twinshore.kafka.protocol.record_batch import (
    CONTROL_FLAG,
    LOG_APPEND_TIME_FLAG,
    TRANSACTIONAL_FLAG,
    Record,
    decode_batch,
    encode_batch,
    split_batches,
)
from twinshore.replication import adopt
from twinshore.replication.adopt import AdoptionPlanner, UnprovenPosition
from twinshore.replication.core.mapping import TAIL_RECORDS, OffsetSync
from twinshore.replication.core.model import CarryTopic
from twinshore.state.store import Store, open_store

NAMED = TopicPartition("orders", 0)
NOW_MS = 1_800_000_000_000


class Log(KafkaCluster):
    """A partition that answers from memory."""

    def __init__(self, name: str) -> None:
        super().__init__(Cluster(name, ("127.0.0.1:1",)))
        self.data, self.start, self.end = b"", 0, 0
        self.aborted: list[tuple[int, int]] = []
        self.markers: dict[int, int] = {}  # of each aborted transaction, by its first offset
        self.latest: list[tuple[int, int]] = []

    def write(self, values: Iterable[str], at_ms: int = NOW_MS, *, by_broker: bool = False) -> Log:
        """One batch; each record a millisecond after the last, or all at their append."""
        records = [Record(self.end + n, at_ms + n, b"k", value.encode(), ()) for n, value in enumerate(values)]
        return self._put(records, LOG_APPEND_TIME_FLAG if by_broker else 0)

    def transaction(self, values: Iterable[str], at_ms: int = NOW_MS, *, commit: bool) -> Log:
        records = [Record(self.end + n, at_ms + n, b"k", value.encode(), ()) for n, value in enumerate(values)]
        first = self.end
        self._put(records, TRANSACTIONAL_FLAG)
        if not commit:
            self.aborted.append((9, first))
            self.markers[first] = self.end
        key, value = struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 0)
        return self._put([Record(self.end, at_ms, key, value, ())], TRANSACTIONAL_FLAG | CONTROL_FLAG)

    def _put(self, records: list[Record], attributes: int) -> Log:
        self.data += bytes(encode_batch(records, base_offset=self.end, producer_id=9, attributes=attributes))
        self.latest += [(record.offset, record.timestamp) for record in records]
        self.end += len(records)
        return self

    def cut(self, start: int) -> Log:
        self.start = start
        return self

    def list_offsets(self, parts: Iterable[TopicPartition], which: OffsetKind) -> dict[TopicPartition, int]:
        return dict.fromkeys(parts, self.start if which is OffsetKind.EARLIEST else self.end)

    def first_since(self, named: TopicPartition, timestamp_ms: int) -> int:
        del named
        return next((at for at, told_ms in self.latest if at >= self.start and told_ms >= timestamp_ms), -1)

    def read_from(self, named: TopicPartition, offset: int, *, bytes_max: int, committed: bool) -> FetchedPartitionById:
        del named, bytes_max
        found = split_batches(memoryview(self.data))
        data = b"".join(bytes(view) for view, header in found if header.last_offset >= max(offset, self.start))
        # As a broker, which names no transaction that ended below what is fetched.
        aborted = [(who, first) for who, first in self.aborted if committed and self.markers[first] >= offset]
        return FetchedPartitionById(b"", 0, 0, self.end, self.end, self.start, None, None, aborted, memoryview(data))


@dataclass
class Stage:
    store: Store
    source: Log = field(default_factory=lambda: Log("east"))
    copy: Log = field(default_factory=lambda: Log("west"))

    def goes_on(
        self, *notes: OffsetSync, stated: MappedStart = MappedStart.MIRRORMAKER, partitions: int = 1
    ) -> tuple[int, str]:
        link = Link("east", "west", mode=OffsetMode.MAPPED, mapped_from=stated)
        step = CarryTopic("orders", partitions, "aa", "bb", mapped=True)
        ((_, offset_run, how),) = AdoptionPlanner(link, self.source, self.copy, self.store).of(
            step, [0], {NAMED: list(notes)}
        )
        assert offset_run.target == self.copy.end
        return int(offset_run.source), how


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        yield Stage(store)


@pytest.mark.parametrize("later_ms", [0, 86_400_000], ids=["at the same time", "later"])
def test_one_record_that_is_left_is_not_taken_for_one_that_came_again(stage: Stage, later_ms: int) -> None:
    stage.copy.write(["limit", "on"]).cut(1)
    stage.source.write(["limit", "on", "off", "limit"]).cut(2)
    stage.source.write(["on"], NOW_MS + 1 + later_ms)
    for notes in ((), (OffsetSync(0, 0),)):
        with pytest.raises(UnprovenPosition):
            stage.goes_on(*notes)


def test_a_few_records_prove_where_the_source_still_has_all_that_it_ever_had(stage: Stage) -> None:
    stage.copy.write(["a", "b"])
    stage.source.write(["a", "b", "c"])
    assert stage.goes_on()[0] == 2
    stage.source.write(["a", "b"])
    with pytest.raises(UnprovenPosition, match="holds orders-0's last 2 records of orders-0 2 times"):
        stage.goes_on()


def test_records_without_time_stamps_of_the_source_prove_only_behind_a_note(stage: Stage) -> None:
    stage.source.write(["a", "b", "c"])
    stage.copy.write(["a", "b"], NOW_MS + 99, by_broker=True)
    assert stage.goes_on(OffsetSync(0, 0))[0] == 2
    with pytest.raises(UnprovenPosition, match="no timestamps"):
        stage.goes_on()


def test_a_note_below_the_sources_beginning_contradicts(stage: Stage) -> None:
    values = [f"{n}" for n in range(TAIL_RECORDS)]
    stage.copy.write(["gone"] * 50).write(values).cut(50)
    stage.source.write(["gone"] * 50).write(["more"] * 20).cut(60)
    stage.source.write(values).write(["next"])
    at = 70 + TAIL_RECORDS
    assert stage.goes_on()[0] == at, "nothing speaks against it"
    assert stage.goes_on(OffsetSync(20, 0))[0] == at, "as many offsets as records since the note"
    with pytest.raises(UnprovenPosition, match="sync of 5 contradicts"):
        stage.goes_on(OffsetSync(5, 49))  # It would have copied fewer records since than the source holds.
    with pytest.raises(UnprovenPosition, match="sync of 59 contradicts"):
        stage.goes_on(OffsetSync(59, 0))  # It would have copied more.


def test_what_was_not_searched_is_not_called_the_only_place(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    values = [f"{n}" for n in range(TAIL_RECORDS)]
    stage.copy.write(values)
    stage.source.write(["before"] * 300, NOW_MS - 1000).write(values).write(["behind"] * 300, NOW_MS + 1000)
    monkeypatch.setattr(adopt, "SEARCH_RECORDS_MAX", 420)
    assert stage.goes_on()[0] == 300 + TAIL_RECORDS, "what is older than the tail needs no search"
    monkeypatch.setattr(adopt, "SEARCH_RECORDS_MAX", 380)
    with pytest.raises(UnprovenPosition, match="more than 380 records of orders-0"):
        stage.goes_on()


def test_a_copy_that_is_gone_begins_nothing_anew(stage: Stage) -> None:
    values = [f"{n}" for n in range(50)]
    stage.source.write(values).write(["next"])
    stage.copy.write(values).cut(50)
    with pytest.raises(UnprovenPosition, match="held 50 records"):
        stage.goes_on()
    with pytest.raises(UnprovenPosition, match="nothing tells"):
        stage.goes_on(OffsetSync(40, 40))
    assert stage.goes_on(OffsetSync(40, 40), OffsetSync(49, 49))[0] == 50
    assert stage.goes_on(stated=MappedStart.END)[0] == 51
    assert stage.goes_on(stated=MappedStart.START)[0] == 0


def test_a_new_partition_of_a_topic_that_is_carried_begins_at_its_beginning(stage: Stage) -> None:
    stage.source.write(["a"])
    assert stage.goes_on(stated=MappedStart.END, partitions=2)[0] == 0
    assert stage.goes_on(stated=MappedStart.END)[0] == 1, "the whole topic only from now on"
    assert stage.goes_on()[0] == 0


@pytest.mark.parametrize("notes", [(), (OffsetSync(0, 0),)], ids=["by its tail", "behind a note"])
def test_a_transaction_that_was_aborted_and_repeated_is_gone_behind_or_refused(
    stage: Stage, notes: tuple[OffsetSync, ...]
) -> None:
    stage.source.write(["a"]).transaction(["b", "c"], commit=False).transaction(["b", "c"], commit=True)
    stage.source.write(["d"])
    stage.copy.write(["a"]).write(["b", "c"])
    with pytest.raises(UnprovenPosition):
        stage.goes_on(*notes)


def test_the_time_of_the_repetition_tells_it_from_what_was_aborted(stage: Stage) -> None:
    stage.source.write(["a"]).transaction(["b", "c"], commit=False).transaction(["b", "c"], NOW_MS + 500, commit=True)
    stage.source.write(["d"])
    stage.copy.write(["a"]).write(["b", "c"], NOW_MS + 500)
    assert stage.goes_on(OffsetSync(0, 0))[0] in (6, 7), "behind the commit's marker or before it"
    stage.copy.write(["d"])
    assert stage.goes_on(OffsetSync(0, 0))[0] == 8


def test_a_copy_that_was_begun_again_is_not_taken_for_records_that_are_the_same(stage: Stage) -> None:
    for value in ("a", "b", "c", "a", "a"):
        stage.source.write([value])  # all of one millisecond
    # The first one twice, as after a restart, and not the last two.
    stage.copy.write(["a"]).write(["a"])
    with pytest.raises(UnprovenPosition, match="more than once"):
        stage.goes_on()


@pytest.mark.parametrize("part", range(4))
def test_what_is_found_is_true(stage: Stage, part: int) -> None:
    seed = random.SystemRandom().randrange(1 << 30)
    proven = 0
    for number in range(60):
        print(f"seed {seed} part {part} number {number}")
        chance = random.Random(f"{seed} {part} {number}")
        played = Stage(stage.store)
        truth, notes = history(chance, played)
        try:
            found, _ = played.goes_on(*notes)
        except UnprovenPosition:
            continue
        proven += 1
        low, high = sorted((found, truth))
        source, copy = (seen(one, committed=True) for one in (played.source, played.copy))
        between = [one for at, one in source.items() if max(low, played.source.start) <= at < high]
        # What MirrorMaker copied twice may stand for a record that is the same to a byte.
        twice = {(one.value, one.timestamp) for one in copy.values()} if found > truth else set()
        assert not [one for one in between if (one.value, one.timestamp) not in twice], (found, truth)
    assert proven, "something can be proven"


def seen(log: Log, *, committed: bool) -> dict[int, Record]:
    """What consumers see of the whole log, also below its beginning."""
    found: dict[int, Record] = {}
    hidden = {first for _, first in log.aborted} if committed else set()
    for view, header in split_batches(memoryview(log.data)):
        if not header.attributes & CONTROL_FLAG and header.base_offset not in hidden:
            found |= {record.offset: record for record in decode_batch(view, header)}
    return found


def history(chance: random.Random, stage: Stage) -> tuple[int, list[OffsetSync]]:
    """A source whose records come again and again, what MirrorMaker made of it in a life or two, and what retention
    left of both. Where the copy really stands, and the notes."""
    source = stage.source
    for _ in range(chance.randint(1, 8)):
        values = [chance.choice("ab") for _ in range(chance.randint(1, 3))]
        # Clocks that stand, and clocks that go.
        at_ms = NOW_MS + (source.end if chance.random() < 0.5 else 0)
        match chance.randrange(3):
            case 0:
                source.transaction(values, at_ms, commit=chance.random() < 0.5)
            case _:
                source.write(values, at_ms)
    read = sorted(seen(source, committed=chance.random() < 0.5).items())
    stop = chance.randint(0, len(read))
    truth, notes = 0, []
    begin = 0
    for _ in range(chance.randint(1, 2)):
        begin = chance.randint(0, begin)
        for index, (at, record) in enumerate(read[begin:stop]):
            if index == 0 or chance.random() < 0.3:
                notes.append(OffsetSync(at, stage.copy.end))
            stage.copy._put([record._replace(offset=stage.copy.end)], 0)
            truth = at + 1
        begin = max(begin, stop - 1)
    notes = notes if chance.random() < 0.7 else []
    source.cut(chance.choice([0, 0, chance.randint(0, source.end)]))
    stage.copy.cut(chance.choice([0, 0, chance.randint(0, stage.copy.end)]))
    return truth, notes
