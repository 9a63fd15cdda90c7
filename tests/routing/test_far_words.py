"""A forged home line far above what is known leads nobody, and no switch is shut out by it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from testkit.clients import forget_links
from twinshore.config.frozen import HOMES_TOPIC
from twinshore.config.incident_policy import IncidentKind
from twinshore.config.model import TERM_MAX, Link
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.state_topic import StateTopic
from twinshore.lab.cluster import LabCluster
from twinshore.replication import ownership_sync
from twinshore.replication.core.ownership import compare_home_records
from twinshore.replication.ownership_sync import HomeRecordSync
from twinshore.routing.core.home_records import (
    STEPS_AHEAD_MAX,
    TERMS_AHEAD_MAX,
    HomeLog,
    HomeRecord,
    describe_implausible,
)
from twinshore.routing.core.subscribers import HomeSubscription, WriteTo
from twinshore.routing.homes_topic import HomesTopic
from twinshore.state.core.values import HomeRow
from twinshore.state.store import open_store

TOPIC, PAIR, LINK = "far-orders", "east<>west", Link("east", "west")
EAST = HomeRecord(topic=TOPIC, home="east", cluster_id="E", term=1, step=9)
FORGED = HomeRecord(topic=TOPIC, home="west", cluster_id="W", term=TERM_MAX)
by_switches = pytest.mark.claim(
    "switch", "forged-words", "a forged home line far above all that is known moves nothing, and is an incident"
)
by_clients = pytest.mark.claim(
    "client", "forged-words", "a forged home line far above all that is known leads no client away"
)


def told(*lines: HomeRecord, known: Callable[[str], int] = lambda _: 0) -> HomeLog:
    log = HomeLog(known=known)
    for line in lines:
        log.take(*line.line())
    return log


@by_switches
def test_what_is_far_above_all_that_is_known_is_passed_over_and_told_of() -> None:
    for lines in ((FORGED,), (FORGED, EAST), (EAST, FORGED)):
        log = told(*lines)
        assert log.homes == ({TOPIC: EAST} if EAST in lines else {})
    assert (log.far, log.mending()) == ({TOPIC: FORGED}, [EAST.line()]), "compaction would keep the forged line alone"
    log.take(*EAST.line())
    assert (log.far, log.mending()) == ({}, []), "what stands lies behind it again"
    log.take(*FORGED.line())
    assert f"{TOPIC} on west in term 30000" in describe_implausible("west", log.far.values())
    log.take(FORGED.line()[0], None)
    assert (log.far, log.homes) == ({}, {})
    later = replace(EAST, term=2, home="west")
    assert told(EAST, FORGED, later).homes == {TOPIC: later}, "a switch goes on above what stands"


def test_a_reader_that_missed_many_switches_takes_what_it_finds() -> None:
    one = replace(EAST, term=TERMS_AHEAD_MAX, step=STEPS_AHEAD_MAX)
    assert told(one).homes == {TOPIC: one}
    assert told(replace(one, term=TERMS_AHEAD_MAX + 1)).homes == {}
    assert told(replace(one, step=STEPS_AHEAD_MAX + 1)).homes == {}
    for line in (replace(one, term=one.term + TERMS_AHEAD_MAX, step=3), replace(one, step=2 * STEPS_AHEAD_MAX)):
        assert told(one, line).homes == {TOPIC: line}


def test_what_a_store_or_another_cluster_knows_counts_when_it_is_known() -> None:
    known: dict[str, int] = {}
    line = replace(EAST, term=1_500)
    log = told(line, known=lambda topic: known.get(topic, 0))
    log.accept_plausible()
    assert log.homes == {}
    known[TOPIC] = 1_400
    log.accept_plausible()
    assert (log.homes, log.far) == ({TOPIC: line}, {})
    assert told(line, known=lambda _: 1_400).homes == {TOPIC: line}


@by_clients
def test_a_client_is_not_led_away() -> None:
    client = HomeSubscription("b" * 32, "pay", [TOPIC], ["east"], "east")
    client.met("east", "E")
    says = client.says()
    client.said("east", says, 100.0, 100.0)
    client.read("east", told(EAST).homes, 100.05, 100.1)
    client.read("east", told(FORGED).homes, 100.15, 100.2)
    assert client.order(TOPIC, 100.3) == WriteTo("east", 1)
    assert client.term(TOPIC) == 1


@by_switches
def test_a_store_takes_up_nothing_of_it() -> None:
    row = HomeRow(PAIR, TOPIC, "east", 1, 1, "link east->west")
    found = compare_home_records(LINK, ("E", "W"), [{}, told(FORGED).homes], {TOPIC: row})
    assert (found.records, found.doubts) == ({}, {})


@pytest.fixture
def both(east: LabCluster, west: LabCluster) -> Iterator[tuple[KafkaCluster, KafkaCluster]]:
    with closing(KafkaCluster(east.cluster)) as source, closing(KafkaCluster(west.cluster)) as target:
        yield source, target
    for lab in (east, west):
        forget_links(lab.cluster)


@by_switches
def test_a_mirror_says_so_and_writes_what_stands_again(
    both: tuple[KafkaCluster, KafkaCluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ownership_sync, "POLL_INTERVAL_S", 0.0)
    source, target = both
    east_id, west_id = (cluster.cluster_id() for cluster in both)
    real = replace(EAST, cluster_id=east_id)
    forged = replace(FORGED, cluster_id=west_id)
    notes = HomesTopic(target)
    notes.make()
    notes.say([real], 1)
    StateTopic(target, HOMES_TOPIC).append([forged.line()], 2)
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        store.homes.settle([HomeRow(PAIR, TOPIC, "east", 1, 1, "link east->west")])
        ours = HomeRecordSync(lambda: LINK, store, source, target)
        assert TOPIC not in ours.look()
        rows = [
            row.incident for row in store.incidents.rows(LINK.name) if row.incident.kind is IncidentKind.DOUBTFUL_HOME
        ]
        assert [f"{TOPIC} on west in term 30000" in row.sentence for row in rows] == [True]
        assert store.homes.of(PAIR)[TOPIC].home == "east"
        until_s = time.monotonic() + 30
        while any(
            row.incident.kind is IncidentKind.DOUBTFUL_HOME for row in store.incidents.rows(LINK.name, open_only=True)
        ):
            assert time.monotonic() < until_s, "what stands lies behind the forged line again"
            ours.look()
    assert notes.read()[TOPIC] == real
    flipped = replace(forged, term=2)
    notes.say([flipped], 3)
    assert notes.log.is_current(flipped), "a switch goes on"
