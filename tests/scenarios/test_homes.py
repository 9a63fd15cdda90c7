"""Two links that carry topics to each other under the same names: each topic goes from its home, and never back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from pathlib import Path

import pytest
from typer.testing import CliRunner

from testkit.clients import topic_id
from testkit.errors import mentions
from tests.scenarios.mirror_rig import Rig, read_all, settings_text, spans, until, url_in
from tests.scenarios.test_mirror_basic import fill
from twinshore.cli.app import app
from twinshore.config.errors import RefusedError
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.clients import create_admin_client
from twinshore.lab.cluster import LabCluster
from twinshore.routing.core.home_records import HomeRecord
from twinshore.routing.homes_topic import HomesTopic
from twinshore.state.core.values import HomeRow
from twinshore.state.store import open_store

THERE, BACK = "east->west", "west->east"
PAIR = "east<>west"
CONTESTED = ("home-both", "home-race")
QUICK = {"tasks_per_link": 1, "refresh_s": 0.5}


@pytest.fixture
def rig(east: LabCluster, west: LabCluster, tmp_path: Path) -> Iterator[Rig]:
    """Of each cluster a topic with records, one that is empty on both, one that both hold records of, and one of which
    east held records alone when a link said so, and west held some too a moment later. One was written on west once,
    was deleted, and is made again on east."""
    for lab, ours in ((east, "home-orders"), (west, "home-bills")):
        lab.create_topic(ours, partitions=2)
        fill(lab, ours, 20, partition=1)
        for shared in ("home-empty", "home-both", "home-race"):
            lab.create_topic(shared)
    for lab, count in ((east, 5), (west, 7)):
        fill(lab, "home-both", count)
        fill(lab, "home-race", count)
    east.create_topic("home-again")
    fill(east, "home-again", 4)
    said = (("home-race", "east", THERE), ("home-again", "west", BACK))
    with open_store(url_in(tmp_path)) as store:
        store.homes.settle([HomeRow(PAIR, topic, home, 1, 1, f"link {link}") for topic, home, link in said])
    clusters = [east.cluster, west.cluster]
    made = Rig(tmp_path, settings_text(tmp_path, clusters, {THERE: "home-.*", BACK: "home-.*"}, mirror=QUICK))
    yield made
    made.process.end()


def homes(rig: Rig) -> dict[str, tuple[str, int]]:
    found = json.loads(rig.verb("link", "homes", "--json"))
    assert not found["unreachable"]
    return {one["topic"]: (one["home"], one["term"]) for one in found["topics"]}


def open_rows(rig: Rig, link: str) -> dict[str, str]:
    return {row.incident.topic: row.incident.kind.value for row in rig.ledger(link) if not row.closed_ms}


def crossed(source: LabCluster, target: LabCluster, topic: str, partitions: int, *ends: int) -> bool:
    found = [end for _, end in spans(target.cluster, topic, partitions)]
    return found == list(ends) == [end for _, end in spans(source.cluster, topic, partitions)]


def alike(source: LabCluster, target: LabCluster, topic: str, partition: int = 0) -> bool:
    return read_all(source.cluster, topic, partition) == read_all(target.cluster, topic, partition)


def test_each_topic_goes_from_its_home_and_nothing_goes_back(rig: Rig, east: LabCluster, west: LabCluster) -> None:
    _plan_says_so(rig)
    before = {place: read_all(place[0].cluster, place[1], 0) for place in product((east, west), CONTESTED)}
    rig.process.start()
    until(lambda: crossed(east, west, "home-orders", 2, 0, 20), 120, "from east", rig)
    until(lambda: crossed(west, east, "home-bills", 2, 0, 20), 120, "from west", rig)
    _what_is_open_is_told(rig)
    _the_first_record_decides(rig, east, west)

    rig.process.end()
    fill(east, "home-orders", 5)
    fill(west, "home-bills", 6, partition=1)
    rig.process.start()
    until(lambda: crossed(east, west, "home-orders", 2, 5, 20), 120, "on after a restart", rig)
    until(lambda: crossed(west, east, "home-bills", 2, 0, 26), 120, "on after a restart", rig)
    assert alike(east, west, "home-orders", 1)
    assert alike(west, east, "home-bills", 1)
    assert homes(rig)["home-empty"] == ("west", 1)
    assert spans(east.cluster, "home-empty", 1) == [(0, 4)]
    assert spans(west.cluster, "home-empty", 1) == [(0, 5)]
    assert {(lab, topic): read_all(lab.cluster, topic, 0) for lab, topic in before} == before, "nothing was written"

    _an_operator_decides(rig, east, west)


def _plan_says_so(rig: Rig) -> None:
    planned = rig.verb("mirror", "plan", "--details")
    assert "east->west: home of home-orders: east" in planned
    assert "west->east: home of home-bills: west" in planned
    assert mentions(planned, "east->west: leave", "home-empty", "empty")
    assert mentions(planned, "refuse", "home-both", "west", "east")
    assert mentions(planned, "west->east: leave", "home-race", "at home on east")
    assert mentions(planned, "refuse", "home-again", "east", "west")
    assert homes(rig)["home-orders"] == ("east", 0), "nobody has written it down yet"


def _what_is_open_is_told(rig: Rig) -> None:
    refused = {"home-both": "home undecided"}
    until(lambda: open_rows(rig, BACK) == refused, 60, "one side's word", rig)
    ours = {**refused, "home-race": "foreign write", "home-again": "home undecided"}
    until(lambda: open_rows(rig, THERE) == ours, 60, "the other's", rig)
    (told,) = [row.incident.sentence for row in rig.ledger(BACK) if row.incident.topic == "home-both"]
    assert "`twinshore link home home-both west`" in told
    rig.until_said("topic home-race is at home on east, where it is written: west->east does not replicate it")
    rig.until_said("topic home-empty of east and west has no home: it is empty on both sides")
    assert homes(rig) == {
        "home-orders": ("east", 1),
        "home-bills": ("west", 1),
        "home-race": ("east", 1),
        "home-again": ("west", 1),
        "home-both": ("", 0),
        "home-empty": ("", 0),
    }
    until(lambda: ", 1 topic without a home yet" in rig.verb("status"), 30, "its status says so", rig)
    assert mentions(rig.verb("topology"), "east<>west", "at home on east", "at home on west")


def _the_first_record_decides(rig: Rig, east: LabCluster, west: LabCluster) -> None:
    fill(west, "home-empty", 3)
    until(lambda: crossed(west, east, "home-empty", 1, 3), 90, "the empty one goes by its first record", rig)
    assert alike(west, east, "home-empty")
    # What is written to a twin all the same is told, and stays where it is.
    fill(east, "home-empty", 1)
    until(lambda: open_rows(rig, BACK).get("home-empty") == "foreign write", 90, "a foreign write is told", rig)
    fill(west, "home-empty", 2)


def _an_operator_decides(rig: Rig, east: LabCluster, west: LabCluster) -> None:
    """What stands in the twin's way is told as ever, and nothing is written over it."""
    dry = rig.verb("link", "home", "home-both", "east", "--dry-run")
    assert mentions(dry, "home-both", "would", "east") and mentions(dry, "home-both", "west")
    assert mentions(rig.verb("link", "home", "home-both", "east"), "home-both", "at home on east")
    until(lambda: "home-both" not in open_rows(rig, BACK), 60, "it is at home elsewhere", rig)
    until(lambda: open_rows(rig, THERE).get("home-both") == "foreign write", 60, "west's are in the way", rig)
    admin = create_admin_client(west.cluster)
    admin.delete_topics(["home-both"], operation_timeout=30)["home-both"].result(timeout=40)
    until(lambda: crossed(east, west, "home-both", 1, 5), 90, "it goes from its home", rig)
    assert alike(east, west, "home-both")

    assert mentions(rig.verb("link", "home", "home-again", "east"), "home-again", "at home on east", "west")
    until(lambda: crossed(east, west, "home-again", 1, 4), 90, "it goes from where it is written by now", rig)
    until(lambda: "home-again" not in open_rows(rig, THERE), 60, "its row is closed", rig)

    asked = ["link", "home", "home-orders", "west", "--settings", str(rig.process.settings)]
    result = CliRunner().invoke(app, asked)
    assert isinstance(result.exception, RefusedError)
    assert (result.exception.code, result.exception.values["link"]) == ("replication.home-needs-switch", "east->west")
    assert homes(rig)["home-orders"] == ("east", 1)


def test_a_mirror_whose_store_was_away_carries_from_where_a_switch_moved_the_home(
    east: LabCluster, west: LabCluster, tmp_path: Path
) -> None:
    """The switch is its line alone, as one leaves it that was made with another store, or with none."""
    topic = "home-moved"
    east.create_topic(topic)
    fill(east, topic, 20)
    text = settings_text(tmp_path, [east.cluster, west.cluster], {THERE: topic, BACK: topic}, mirror=QUICK)
    rig = Rig(tmp_path, text)
    try:
        rig.process.start()
        until(lambda: crossed(east, west, topic, 1, 20), 120, "from east", rig)
        rig.process.end()
        _move_by_a_line(topic, 20, east, west)
        fill(west, topic, 5)
        rig.process.start()
        until(lambda: crossed(west, east, topic, 1, 25), 120, "back from west", rig)
        assert alike(west, east, topic)
        assert homes(rig)[topic] == ("west", 2)
    finally:
        rig.process.end()


def _move_by_a_line(topic: str, point: int, old: LabCluster, new: LabCluster) -> None:
    with closing(KafkaCluster(new.cluster)) as kafka:
        line = HomeRecord(
            topic=topic,
            home="west",
            cluster_id=kafka.cluster_id(),
            term=2,
            source="east",
            since_ms=1,
            set_by="somebody else",
            link=THERE,
            back=BACK,
            source_topic_id=topic_id(new.cluster, topic).hex(),
            target_topic_id=topic_id(old.cluster, topic).hex(),
            points=(point,),
        )
        notes = HomesTopic(kafka)
        notes.make()
        assert notes.say([line], 1) == {topic: line}
