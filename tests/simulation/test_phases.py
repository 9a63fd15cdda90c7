"""The phases of a partition follow on each other as the table says, whatever goes wrong."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.world import run_seed
from twinshore.replication.task.core.partition import TRANSITIONS, PartitionReplicator, Phase

SEEDS = 20


class Watched:
    """A track's phase that keeps who followed on whom."""

    def __init__(self) -> None:
        self.member = PartitionReplicator.__dict__["phase"]
        self.moves: set[tuple[Phase, Phase]] = set()

    def __get__(self, track: PartitionReplicator | None, _kind: Any = None) -> Any:
        return self if track is None else self.member.__get__(track)

    def __set__(self, track: PartitionReplicator, phase: Phase) -> None:
        before = self._before(track)
        if before not in (None, phase):
            self.moves.add((before, phase))
        self.member.__set__(track, phase)

    def _before(self, track: PartitionReplicator) -> Any:
        try:
            return self.member.__get__(track)
        except AttributeError:
            return None


def test_the_simulation_sees_each_move_of_the_table_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched()
    monkeypatch.setattr(PartitionReplicator, "phase", watched)
    for seed in range(SEEDS):
        run_seed(seed)
    told = {(before, after) for before, after, _ in TRANSITIONS}
    assert watched.moves <= told, f"not in the table: {watched.moves - told}"
    often = {(before, after) for before, after in told if after is not Phase.STOPPED}
    assert often <= watched.moves, f"never seen: {often - watched.moves}"


def test_what_stopped_stays_so_and_anything_may_stop() -> None:
    assert {before for before, after, _ in TRANSITIONS if after is Phase.STOPPED} == set(Phase) - {Phase.STOPPED}
    assert Phase.STOPPED not in {before for before, _, _ in TRANSITIONS}
