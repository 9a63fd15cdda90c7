"""Keys that live on in a compacted twin, over real sockets: found whole, in slices, and never while all is in order."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.proof.logs import batched
from tests.proof.small_broker import TOPIC, SmallBroker
from twinshore.config.model import TopicPartition
from twinshore.kafka import log_reader as log_reader
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.record_batch import Record, split_batches
from twinshore.proof.core.keys import HASHES_MAX, KEYS_MAX
from twinshore.proof.core.model import CompareMode, CompareRange, CompareResult, MissingTombstone
from twinshore.proof.prover import KeyComparison, prove_all

COUNT = 300


@pytest.fixture(autouse=True)
def small_fetches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "FETCH_BYTES", 6_000)


def written() -> list[Record]:
    """Sixty keys written again and again, every seventh deleted at last."""
    log = [Record(n, n, b"k%d" % (n % 60), b"value %d" % n) for n in range(COUNT - 20)]
    deletes = [Record(COUNT - 20 + n, n, b"k%d" % (n * 7), None) for n in range(9)]
    rest = [Record(COUNT - 11 + n, n, b"k%d" % ((n * 7 + 1) % 56), b"again") for n in range(11)]
    return log + deletes + rest


def gone(record: Record) -> bool:
    """Its key is deleted in the end."""
    return int((record.key or b"")[1:]) % 7 == 0


def cleaned(log: list[Record]) -> list[Record]:
    """As the source's cleaner leaves it once tombstones are too old."""
    latest = {record.key: record.offset for record in log}
    return [one for one in log if latest[one.key] == one.offset and one.value is not None]


@dataclass
class Pair:
    source: SmallBroker
    target: SmallBroker
    stretch: CompareRange

    def look(self, hashes_max: int = HASHES_MAX, keys_max: int = KEYS_MAX) -> CompareResult:
        source, target = KafkaCluster(self.stretch.source), KafkaCluster(self.stretch.target)
        try:
            return KeyComparison(
                self.stretch, source, target, settle_s=0.05, hashes_max=hashes_max, keys_max=keys_max
            ).run()
        finally:
            source.close()
            target.close()


@contextlib.contextmanager
def pair(source: list[Record], target: list[Record], ends: tuple[int, int] = (COUNT, COUNT)) -> Iterator[Pair]:
    chance = random.Random(5)
    east, west = (
        SmallBroker(name, batched(chance, log, end, first=0))
        for name, log, end in (("east", source, ends[0]), ("west", target, ends[1]))
    )
    with east.serving() as one, west.serving() as other:
        yield Pair(
            east,
            west,
            CompareRange(one, other, TopicPartition(TOPIC, 0), TOPIC, CompareMode.COMPACTED, 0, 0, keys=True),
        )


def missed() -> list[Record]:
    """The twin of one whose tombstones never crossed."""
    return [record for record in written() if record.value is not None]


def owed_of(log: list[Record]) -> dict[bytes, int]:
    return {one.key or b"": one.offset for one in log if gone(one)}


@pytest.mark.parametrize("bounds", [{}, {"hashes_max": 9}, {"keys_max": 3}])
def test_keys_whose_tombstones_never_crossed_are_owed(bounds: dict[str, int]) -> None:
    with pair(cleaned(written()), missed()) as two:
        found = two.look(**bounds)
    want = owed_of(missed())
    assert (found.owed, found.trouble, found.owed_from, found.owed_to) == (
        9,
        "",
        min(want.values()),
        max(want.values()) + 1,
    )
    assert found.owed_keys == tuple(sorted(MissingTombstone(at, key.decode()) for key, at in want.items()))
    assert CompareResult.from_json(found.to_json()) == found


@pytest.mark.parametrize(
    "twin",
    [
        written(),  # its own cleaner has not come yet
        cleaned(written()),
        [one for one in written() if one.value is None or not gone(one)],  # tombstones alone are left
        written()[: COUNT - 30],  # tombstones are on the source, and have not crossed
    ],
    ids=["not cleaned", "cleaned", "half cleaned", "behind"],
)
def test_nothing_is_owed_where_tombstones_crossed_or_still_will(twin: list[Record]) -> None:
    source = written() if len(twin) == COUNT - 30 else cleaned(written())
    with pair(source, twin, (COUNT, twin[-1].offset + 1 if len(twin) == COUNT - 30 else COUNT)) as two:
        assert two.look().owed == 0


def test_a_key_that_was_written_anew_beyond_the_twins_end_is_not_owed() -> None:
    anew = cleaned([*written(), Record(COUNT, 1, b"k7", b"here again")])
    with pair(anew, missed(), (COUNT + 1, COUNT)) as two:
        found = two.look()
    assert found.owed == 8 and "k7" not in {one.key for one in found.owed_keys}


def test_what_lies_below_the_sources_beginning_is_about_to_be_cut_and_not_owed() -> None:
    with pair(cleaned(written()), missed()) as two:
        two.source.start = 240
        found = two.look()
    assert {one.key for one in found.owed_keys} == {key.decode() for key, at in owed_of(missed()).items() if at >= 240}


def append(broker: SmallBroker, record: Record) -> None:
    data = batched(random.Random(1), [record], record.offset + 1, first=broker.end)
    broker.log += [(bytes(view), header) for view, header in split_batches(memoryview(data))]


def late(record: Record) -> Callable[[Pair], None]:
    """The record comes to the twin, or to both sides, while their keys are compared."""

    def play(two: Pair) -> None:
        def comes(position: int) -> None:
            two.target.fetched.append(position)
            if len(two.target.fetched) == 2:
                append(two.target, record)
                if record.value is not None:
                    append(two.source, record)

        two.target.on_fetch = comes

    return play


@pytest.mark.parametrize("value", [None, b"here again"])
def test_a_key_that_is_settled_while_both_sides_are_read_is_not_owed(value: bytes | None) -> None:
    """A tombstone that the task had fetched before the source's cleaner took it, or a new value."""
    with pair(cleaned(written()), missed()) as two:
        late(Record(COUNT, 1, b"k14", value))(two)
        found = two.look()
    assert found.owed == 8 and "k14" not in {one.key for one in found.owed_keys}


def test_records_without_a_key_are_nobodys() -> None:
    with pair(cleaned(written()), [Record(0, 0, None, b"no key"), *cleaned(written())]) as two:
        assert two.look().owed == 0


def test_a_cluster_that_refuses_is_trouble() -> None:
    with pair(cleaned(written()), missed()) as two:
        two.source.faults.extend([int(Code.topic_authorization_failed)] * 9)
        (found,) = prove_all([two.stretch])
    assert found.owed == 0 and "Read on the topic" in found.trouble + found.hint
