"""A twin's leadership goes to a broker that lagged, acknowledged records are lost, and it comes back to the first.

The pump's line to that one holds all the while. No leader epoch guards markers, so nothing but the question before them
keeps them from the shorter log; and where only markers were lost, the records behind them fit it by their sequence.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulation.plans import Plan
from tests.simulation.source_log import Style
from tests.simulation.twin_log import Violation
from tests.simulation.world import World
from twinshore.kafka.protocol.record_batch import Codec
from twinshore.replication.task.core import connections, known_end
from twinshore.replication.task.core.known_end import LOG_END_TTL_S, KnownLogEnd
from twinshore.replication.task.core.markers import MarkerOutcome
from twinshore.replication.task.core.resync import PendingMarkers

SEEDS = range(60)
# So many that some have the one moment in which it matters.
GONE_SEEDS = range(200)
KNOWN, KNOWN_UNASKED = 89, 4358
AWAY_S = (LOG_END_TTL_S + 0.1, 1.0, 1.5)
SOON_S = 0.2
TRANSACTIONS = Style(0.0, 0, transactions=True, append_time=False, codecs=(Codec.NONE,), records_max=3, large_part=0.0)


def one_partition(plan: Plan) -> Plan:
    """A transactional one with two copies of its twin, and nothing goes wrong by itself."""
    quiet = replace(plan, faults={}, errand_fails=0.0, store_fails=0.0, expiry_ms=600_000, anchor_sequence=0)
    quiet = replace(quiet, tasks=1, task_run_s=30.0, chaos_s=20.0, write_every_s=0.5)
    return replace(quiet, styles={"a": (1, TRANSACTIONS)}, copies=(1, 2))


def gone_and_back(seed: int) -> None:
    """Plays it from the tenth second of a seed on. Violation when a marker or a record comes to lie elsewhere."""
    world = World(str(seed), changed=one_partition)
    (pair,) = world.clusters.pairs.values()
    twin, schedule = pair.twin, world.schedule
    first = twin.leader
    (lagging,) = (node for node in twin.nodes if node != first)

    def lag() -> None:
        world.lagging["target", pair.named, lagging] = schedule.now_s + 3.0
        twin.drop_from_sync(lagging)
        schedule.after(2.0, go)

    def go() -> None:
        world.elect(pair, "target", lagging)
        schedule.after(SOON_S, come_back)

    def come_back() -> None:
        twin.replicate(first, whole=True)
        world.elect(pair, "target", first)

    schedule.after(10.0, lag)
    world.run()


def markers_gone(seed: int, away_s: float) -> None:
    """As soon as the twin ends in markers: the leadership goes to a broker that has all but those, and comes back."""
    world = World(str(seed), changed=lambda plan: replace(one_partition(plan), write_every_s=1.5))
    (pair,) = world.clusters.pairs.values()
    twin, schedule = pair.twin, world.schedule
    until_s = schedule.now_s + 25.0
    first = twin.leader
    (lagging,) = (node for node in twin.nodes if node != first)

    def lag() -> None:
        world.lagging["target", pair.named, lagging] = until_s
        twin.drop_from_sync(lagging)
        watch()

    def watch() -> None:
        if not twin.entries or not twin.entries[-1].marker or pair.source.end != twin.end:
            if schedule.now_s < until_s:
                schedule.after(0.02, watch)
            return
        twin.ends[lagging] = max((entry.end for entry in twin.entries if not entry.marker), default=twin.start)
        world.elect(pair, "target", lagging)
        schedule.after(away_s, come_back)

    def come_back() -> None:
        twin.replicate(first, whole=True)
        world.elect(pair, "target", first)

    schedule.after(10.0, lag)
    world.run()


@pytest.fixture
def quickly_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was seen of an end counts for less time than the leadership is away. Else records behind markers that go
    within that time after a look have nothing that keeps them from the shorter log: some three seeds of 200 show it."""
    monkeypatch.setattr(known_end, "LOG_END_TTL_S", SOON_S / 2)


@pytest.mark.long
@pytest.mark.usefixtures("quickly_stale")
def test_markers_stay_away_from_a_log_that_lost_its_end() -> None:
    for seed in GONE_SEEDS:
        gone_and_back(seed)


@pytest.mark.long
def test_records_behind_lost_markers_stay_away_too() -> None:
    for seed in SEEDS:
        for away_s in AWAY_S:
            markers_gone(seed, away_s)


def test_unsure_they_would_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KnownLogEnd, "stale", lambda _self, _now_s: False)
    with pytest.raises(Violation, match="at offset"):
        for seed in (KNOWN, *GONE_SEEDS):  # some one of 400 plays shows it
            for away_s in AWAY_S:
                markers_gone(seed, away_s)


@pytest.mark.usefixtures("quickly_stale")
def test_unasked_they_would_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def standing(
        asked: list[PendingMarkers], _ends: list[MarkerOutcome]
    ) -> tuple[list[PendingMarkers], list[PendingMarkers]]:
        return asked, []

    monkeypatch.setattr(connections, "split_by_log_end", standing)
    with pytest.raises(Violation, match="at offset"):
        for seed in (KNOWN_UNASKED, *GONE_SEEDS):  # some one of 2,000 plays shows it
            gone_and_back(seed)
