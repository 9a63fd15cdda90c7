"""A fresh queue drops while those who drop are killed: what its target lacks is in the ledger, to the record."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from testkit.cluster import RigCluster
from testkit.faults import on_slow_line
from tests.scenarios.mirror_rig import until
from tests.scenarios.test_broadcast import FLAGS, RATE, Place, Three, ended, fresh, has_but_what_the_ledger_names, lost
from twinshore.lab.produce import Workload

WITHIN_S, LINE_BYTES_S, KILLS, PAUSE_S = 120.0, 400_000.0, 4, 5.0


@pytest.fixture(scope="module")
def three() -> Iterator[Three]:
    with (
        RigCluster("london", jvm_flags=FLAGS, via_proxy=True) as london,
        RigCluster("tokyo", jvm_flags=FLAGS) as tokyo,
        RigCluster("paris", jvm_flags=FLAGS, via_proxy=True) as paris,
    ):
        yield london, tokyo, paris


def killed_while_it_drops(place: Place) -> None:
    """All workers several times, and the mirror once, while the last target's line is slow; each time it goes on."""
    paris = place.targets[1]

    def goes_on(before: int) -> None:
        until(lambda: ended(paris, place.topic) > before, WITHIN_S, "Paris gets more", place)

    with Workload(place.london.cluster, place.topic, records_per_s=RATE, value_bytes=1_000) as load:
        with on_slow_line(paris, LINE_BYTES_S):
            until(lambda: lost(place) > 0, WITHIN_S, "something is dropped", place)
            for _ in range(KILLS):
                time.sleep(PAUSE_S)
                for task in place.process.task_processes():
                    with suppress(psutil.Error):
                        task.kill()
                goes_on(ended(paris, place.topic))
            place.process.kill()
            place.process.start()
            goes_on(ended(paris, place.topic))
        time.sleep(PAUSE_S)
        load.stop()


@pytest.mark.long
@pytest.mark.claim(
    "broadcast",
    "fresh-killed",
    "workers and the mirror are killed while a fresh queue drops: nothing is doubled or moved, and all that is missing"
    " is in the ledger",
)
def test_what_a_killed_task_dropped_is_known_to_the_record(three: Three, tmp_path: Path) -> None:
    with fresh(three, tmp_path) as place:
        tokyo, paris = place.targets
        killed_while_it_drops(place)
        place.until_same(tokyo)
        until(
            lambda: ended(paris, place.topic) + lost(place) == ended(place.london, place.topic), WITHIN_S, "all", place
        )
        has_but_what_the_ledger_names(place)
        print(f"told: {KILLS} times all workers and once the mirror; {lost(place):,} records dropped, each named")
