"""Key looks while both sides are written, carried and cleaned: what is told is true, and what is true is told."""

from __future__ import annotations

import random

import pytest

from tests.proof.logs import batched
from tests.proof.small_broker import TOPIC, SmallBroker
from twinshore.config.model import TopicPartition
from twinshore.kafka import log_reader as log_reader
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.record_batch import Record, split_batches
from twinshore.proof.core.model import CompareMode, CompareRange
from twinshore.proof.prover import KeyComparison

KEYS, STEPS_KEPT = 200, 3


class Log:
    """One side as its cleaner leaves it: the latest of each key below the last records, which are never cleaned, and
    tombstones for some steps after they were first met."""

    def __init__(self, name: str) -> None:
        self.records: list[Record] = []
        self.end = 0
        self.broker = SmallBroker(name, b"")
        self._met: dict[int, int] = {}

    def take(self, records: list[Record], end: int) -> None:
        self.records += records
        self.end = end

    def clean(self, chance: random.Random, step: int) -> None:
        upto = chance.randrange(self.end) if self.end else 0
        latest = {one.key: one.offset for one in self.records if one.offset < upto}
        kept: list[Record] = []
        for one in self.records:
            if one.offset < min(upto, self.end - 3):
                if latest[one.key] != one.offset:
                    continue
                if one.value is None and step - self._met.setdefault(one.offset, step) >= STEPS_KEPT:
                    continue
            kept.append(one)
        self.records = kept

    def show(self, chance: random.Random) -> None:
        if self.records:
            data = batched(chance, self.records, self.end, first=0, most=4)
            self.broker.log = [(bytes(view), header) for view, header in split_batches(memoryview(data))]


class World:
    """A source that is written and cleaned, a twin that is carried, sometimes not for long, and cleaned."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(f"world {seed}")
        self.source, self.target = Log("east"), Log("west")
        self.history: list[Record] = []
        self.step = 0
        self.paused_until = 0
        self._flying: tuple[list[Record], int] | None = None

    def play(self) -> None:
        """One step of everything."""
        chance, self.step = self.chance, self.step + 1
        for _ in range(chance.randrange(16)):
            at = len(self.history)
            value = None if chance.random() < 0.35 else b"value %d " % at * 8
            self.history.append(Record(at, at, b"k%d" % chance.randrange(KEYS), value))
            self.source.take(self.history[-1:], at + 1)
        if self._flying:
            self.target.take(*self._flying)
            self._flying = None
        if self.step >= self.paused_until:
            if chance.random() < 0.1:
                self.paused_until = self.step + 5 * STEPS_KEPT
            end = min(self.source.end, self.target.end + chance.randrange(24))
            self._flying = [one for one in self.source.records if self.target.end <= one.offset < end], end
        for log in (self.source, self.target):
            if chance.random() < 0.4:
                log.clean(chance, self.step)
            log.show(chance)

    def owed(self) -> set[bytes]:
        """Keys that were deleted, of which the source holds nothing, and whose value is the latest that the twin has or
        is about to have."""
        held = {one.key for one in self.source.records}
        flying = self._flying[0] if self._flying else []
        latest = {one.key: one.value for one in [*self.target.records, *flying]}
        return {key for key, value in latest.items() if key is not None and value is not None and key not in held}


@pytest.mark.parametrize("seed", range(24))
def test_what_is_told_is_true_and_what_is_true_is_told(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "FETCH_BYTES", 1_500)
    world = World(seed)
    for _ in range(80):
        world.play()
    settled = [world.owed()]

    def goes_on(_: int) -> None:
        if world.chance.random() < 0.4:
            world.play()
        settled.append(world.owed())

    world.source.broker.on_fetch = world.target.broker.on_fetch = goes_on
    with world.source.broker.serving() as one, world.target.broker.serving() as other:
        source, target = KafkaCluster(one), KafkaCluster(other)
        try:
            stretch = CompareRange(one, other, TopicPartition(TOPIC, 0), TOPIC, CompareMode.COMPACTED, 0, 0, keys=True)
            found = KeyComparison(stretch, source, target, settle_s=0.0).run()
        finally:
            source.close()
            target.close()
    told = {one.key.encode() for one in found.owed_keys}
    assert told <= set().union(*settled), "never owed while it was looked at"
    assert set.intersection(*settled) <= told, "owed all the time, and not told"
