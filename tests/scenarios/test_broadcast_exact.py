"""A fresh queue of twins that keep their source's offsets: markers take those of what is dropped."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.scenarios.mirror_rig import read_all, spans, until
from tests.scenarios.test_broadcast import (
    CUT_S,
    FLAGS,
    FRESH,
    MAX_AGE_S,
    PARTITIONS,
    RATE,
    WITHIN_S,
    Place,
    Three,
    begun,
    commit,
    ended,
    lost,
)
from tests.scenarios.test_broadcast_killed import KILLS, killed_while_it_drops
from twinshore.fleet import RefusedError
from twinshore.lab import LabCluster, Workload
from twinshore.lab.clients import committed


@pytest.fixture(scope="module")
def three() -> Iterator[Three]:
    with (
        LabCluster("london", jvm_flags=FLAGS, via_proxy=True) as london,
        LabCluster("tokyo", jvm_flags=FLAGS) as tokyo,
        LabCluster("paris", jvm_flags=FLAGS, via_proxy=True) as paris,
    ):
        yield london, tokyo, paris


@contextmanager
def exact(three: Three, folder: Path) -> Iterator[Place]:
    """Tokyo keeps all, Paris what is fresh, each record at its own offset."""
    place = begun(folder, three, f"{FRESH}exact = true\n")
    try:
        yield place
    finally:
        place.process.end()


def has_but_what_the_ledger_names(place: Place) -> None:
    """Paris, each record where Tokyo has it. What was dropped is told a moment later than its markers stand there."""
    paris = place.targets[1]

    def held() -> int:
        return sum(len(read_all(paris.cluster, place.topic, partition)) for partition in range(PARTITIONS))

    until(lambda: held() + lost(place) == ended(place.london, place.topic), WITHIN_S, "all is told", place)
    dropped = place.dropped()
    for partition in range(PARTITIONS):
        gone = {offset for begin, end in dropped.get(partition, ()) for offset in range(begin, end)}
        theirs = read_all(place.london.cluster, place.topic, partition)
        kept = [record for record in theirs if record[0] not in gone]
        assert read_all(paris.cluster, place.topic, partition) == kept


def test_behind_an_outage_only_what_is_young_is_sent_each_record_at_its_offset(three: Three, tmp_path: Path) -> None:
    with exact(three, tmp_path) as place:
        paris = place.targets[1]
        with Workload(place.london.cluster, place.topic, records_per_s=RATE, value_bytes=1_000) as load:
            until(lambda: load.acked > RATE, WITHIN_S, "records flow", place)
            paris.proxy(0).cut()
            time.sleep(CUT_S)
            paris.proxy(0).heal()
            until(lambda: lost(place) > RATE * (CUT_S - MAX_AGE_S - 2.0), WITHIN_S, "what was old is dropped", place)
            until(lambda: place.behind(paris) < RATE / 2, WITHIN_S, "it keeps up again", place)
            load.stop()
        place.until_same()
        has_but_what_the_ledger_names(place)
        theirs = [end for _, end in spans(place.london.cluster, place.topic, PARTITIONS)]
        group, stands = f"{place.topic}-readers", {n: some[0][0] + 3 for n, some in place.dropped().items()}
        commit(place.london, group, place.topic, stands)
        until(
            lambda: committed(paris.cluster, group, place.topic, sorted(stands)) == [stands[n] for n in sorted(stands)],
            WITHIN_S,
            "a group stands where it stood, also in what was dropped",
            place,
        )
        proved = place.verb("prove", "--here", "--link", "london->paris", "--topic", place.topic)
        assert proved.startswith("identical"), proved
        assert f"but for {lost(place):,} offsets that a fresh queue dropped" in proved, proved
        with pytest.raises(RefusedError, match="its twin on paris lacks what was dropped"):
            place.verb("switch", "plan", place.topic, "--to", "paris")
        assert ended(paris, place.topic) == sum(theirs)
        assert place.process.end() == 0
        for file in place.folder.glob("store.db*"):
            file.unlink()
        place.verb("link", "recover", "london->paris")
        with pytest.raises(RefusedError, match="its twin on paris lacks what was dropped"):
            place.verb("switch", "plan", place.topic, "--to", "paris")
        print(f"told: {lost(place):,} records dropped, each named, and its offset taken by a marker")


@pytest.mark.long
def test_a_twin_that_ends_in_markers_goes_on_when_its_queue_keeps_again(three: Three, tmp_path: Path) -> None:
    """Its source has records where they are: that is no other history. And it still lacks them."""
    with exact(three, tmp_path) as place:
        paris = place.targets[1]
        paris.proxy(0).cut()
        place.produce(30 * PARTITIONS)
        time.sleep(MAX_AGE_S + 2.0)
        paris.proxy(0).heal()
        place.until_same()
        until(lambda: lost(place) == 30 * PARTITIONS, WITHIN_S, "all of it is dropped", place)
        place.verb("link", "set", "london->paris", "--unset", "queue")
        place.produce(10 * PARTITIONS)
        place.until_same()
        place.process.end()
        place.process.start()
        place.produce(10 * PARTITIONS)
        place.until_same()
        has_but_what_the_ledger_names(place)
        assert lost(place) == 30 * PARTITIONS, "nothing more"
        proved = place.verb("prove", "--here", "--link", "london->paris", "--topic", place.topic)
        assert proved.startswith("identical"), proved
        assert f"but for {lost(place):,} offsets that a fresh queue dropped" in proved, proved
        with pytest.raises(RefusedError, match="its twin on paris lacks what was dropped"):
            place.verb("switch", "plan", place.topic, "--to", "paris")


@pytest.mark.long
@pytest.mark.claim(
    "broadcast",
    "fresh-exact",
    "on request a fresh queue's twin keeps the source's offsets: while workers and the mirror are killed each record"
    " that is sent has its own, and all that is missing is in the ledger",
)
def test_what_a_killed_pump_dropped_is_known_to_the_record(three: Three, tmp_path: Path) -> None:
    with exact(three, tmp_path) as place:
        killed_while_it_drops(place)
        place.until_same()
        has_but_what_the_ledger_names(place)
        proved = place.verb("prove", "--here", "--link", "london->paris", "--topic", place.topic)
        assert proved.startswith("identical"), proved
        assert f"but for {lost(place):,} offsets that a fresh queue dropped" in proved, proved
        print(f"told: {KILLS} times all workers and once the mirror; {lost(place):,} records dropped, each named")
