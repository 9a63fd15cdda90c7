"""The task against modelled brokers: whatever a network and two clusters do, the twin stays a prefix of its source.

A failure names its seed; TWINSHORE_SEED="mixed 17" runs that one alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.replication.task.model_world import World
from twinshore.kafka.protocol.fetch import FetchedPartitionById, FetchResponseById
from twinshore.replication.task.core import partition as track_module
from twinshore.replication.task.core.batches import OutgoingBatch, SequenceMap
from twinshore.replication.task.core.fetching import FetchScheduler
from twinshore.replication.task.core.partition import PartitionReplicator
from twinshore.replication.task.core.position import PositionVerdict, TargetState, judge_position
from twinshore.replication.task.core.shared_read import FetchStream

KINDS = ("fresh", "old", "mixed")
SEEDS = 100
STEPS = 300
LONG_STEPS = 1500


def seeds(count: int) -> list[tuple[str, int]]:
    """What to run: one seed from the environment, or the first of each kind."""
    asked = os.environ.get("TWINSHORE_SEED", "").split()
    if len(asked) == 2:
        return [(asked[0], int(asked[1]))]
    return [(kind, seed) for kind in KINDS for seed in range(count)]


def run(kind: str, seed: int) -> World:
    """One run; its failure says how to have it again."""
    world = World(seed, kind)
    try:
        world.run(LONG_STEPS if seed % 10 == 9 else STEPS)
    except Exception as error:
        raise AssertionError(f'TWINSHORE_SEED="{kind} {seed}": {error}') from error
    return world


def test_the_twin_is_a_prefix_whatever_happens_and_all_arrives() -> None:
    for kind, seed in seeds(SEEDS):
        world = run(kind, seed)
        assert not world.stopped(), f'TWINSHORE_SEED="{kind} {seed}": {world.standing()}'
        for named, twin in world.targets.items():
            accounts = world.told[named]
            assert sum(entry.to_offset - entry.from_offset for entry in accounts) == twin.end
            assert sum(entry.records for entry in accounts) == twin.end
            told = [batch for entry in accounts for batch in entry.producers]
            for producer_id in (7, 8):
                wrote = [batch for batch in twin.source.producers if batch[0] == producer_id]
                assert [batch for batch in told if batch[0] == producer_id][-5:] == wrote[-5:]


def test_the_same_seed_is_the_same_run() -> None:
    first, second = run("mixed", 3), run("mixed", 3)
    assert first.now_s == second.now_s
    assert first.told == second.told


def deaf_to_the_high_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes what a leader holds for what its replicas hold."""

    def hasty(seen: TargetState, stamp: SequenceMap, inherited: int = 0, *, carried: bool = True) -> PositionVerdict:
        high = {"high_watermark": seen.log_end}
        values = {name: getattr(seen, name) for name in TargetState.__slots__}
        if seen.high_watermark != seen.log_end:
            values["last_batch"] = None
            values["log_start"] = seen.log_end  # Its tail cannot be read either: believe it.
        return judge_position(TargetState(**{**values, **high}), stamp, inherited, carried=carried)

    monkeypatch.setattr(track_module, "judge_position", hasty)


def pipelining_though_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sends on though the broker may have forgotten us."""

    def always(self: PartitionReplicator, batch: OutgoingBatch, now_s: float, now_ms: int, kept_ms: int) -> bool:
        del self, batch, now_s, now_ms, kept_ms
        return True

    monkeypatch.setattr(PartitionReplicator, "may_send", always)


def arming_by_the_youngest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Believes in the youngest time stamp ever sent, where a broker goes by the last."""
    honest = PartitionReplicator.may_send

    def proud(self: PartitionReplicator, batch: OutgoingBatch, now_s: float, now_ms: int, kept_ms: int) -> bool:
        before = self.known_end.armed_until_ms
        allowed = honest(self, batch, now_s, now_ms, kept_ms)
        self.known_end.armed_until_ms = max(before, self.known_end.armed_until_ms, batch.max_timestamp + kept_ms)
        return allowed

    monkeypatch.setattr(PartitionReplicator, "may_send", proud)


def taking_any_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes an answer for where the partition stands now, wherever it stood when it was asked."""
    monkeypatch.setattr(FetchScheduler, "answered", answered_blindly)


def answered_blindly(
    self: FetchScheduler, line: FetchStream, answer: FetchResponseById
) -> list[tuple[PartitionReplicator, FetchedPartitionById]] | None:
    session = self._sessions[line]
    if answer.error:
        self.reset(line)
        return []
    session.answered(answer.session_id)
    if answer.session_id == 0:
        self.reset(line)
    return [(self._replicators[part.topic_id, part.partition], part) for part in answer.partitions]


def blind_to_strays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forgets that a request on a lost connection may still land."""
    honest = PartitionReplicator.may_send

    def forgetful(self: PartitionReplicator, batch: OutgoingBatch, now_s: float, now_ms: int, kept_ms: int) -> bool:
        self.zombies.until_s = 0.0
        return honest(self, batch, now_s, now_ms, kept_ms)

    monkeypatch.setattr(PartitionReplicator, "may_send", forgetful)


MUTANTS = [
    (deaf_to_the_high_watermark, "what the twin does not hold"),
    (pipelining_though_forgotten, "the twin got"),
    (arming_by_the_youngest, "the twin got"),
    (blind_to_strays, "the twin got"),
    (taking_any_answer, "the twin got markers"),
]


@pytest.mark.parametrize(("mutant", "harm"), MUTANTS)
def test_the_model_sees_what_a_careless_task_does(
    mutant: Callable[[pytest.MonkeyPatch], None], harm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    for kind, seed in [(kind, seed) for seed in range(400) for kind in ("mixed", "old", "fresh")]:
        try:
            World(seed, kind).run(STEPS)
        except AssertionError as error:
            if harm in str(error):
                return
    raise AssertionError(f"1200 runs and nobody noticed: {mutant.__doc__}")
