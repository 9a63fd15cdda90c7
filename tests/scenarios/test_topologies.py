"""Several links between real clusters: a ring of three, two sources into one target by one process, and both directions
at once, with stores of their own."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from testkit.clients import forget_links
from testkit.errors import mentions
from tests.scenarios.mirror_rig import Rig, same_ends, settings_text, spans, until, url_in
from tests.scenarios.test_mirror_basic import fill
from twinshore.cli.app import app, register_verbs
from twinshore.config.model import Cluster
from twinshore.lab.clients import create_admin_client
from twinshore.lab.cluster import LabCluster
from twinshore.state.store import open_store

Ring = tuple[LabCluster, LabCluster, LabCluster]
FLAGS = ("-XX:TieredStopAtLevel=1",)
QUICK = {"tasks_per_link": 1, "refresh_s": 0.5, "heartbeat_s": 0.5}


@pytest.fixture(scope="module")
def three() -> Iterator[Ring]:
    """Red, green and blue; a test leaves their brokers as it found them, and has topics of its own."""
    with (
        LabCluster("red", jvm_flags=FLAGS) as red,
        LabCluster("green", jvm_flags=FLAGS) as green,
        LabCluster("blue", jvm_flags=FLAGS) as blue,
    ):
        yield red, green, blue


@pytest.fixture
def ring(three: Ring) -> Ring:
    """Each test has a store of its own: who wrote its links before is nobody's affair."""
    for lab in three:
        forget_links(lab.cluster)
        admin = create_admin_client(lab.cluster)
        beats = [name for name in admin.list_topics(timeout=10).topics if "heartbeats" in name]
        for gone in admin.delete_topics(beats, operation_timeout=30).values() if beats else ():
            gone.result(30)
    return three


def chained(text: str) -> str:
    """Every link by prefix, twins carried on."""
    return text.replace("topics = [", 'naming = "prefix"\nchain = true\ntopics = [')


def topics_of(cluster: Cluster, *parts: str) -> set[str]:
    names = create_admin_client(cluster).list_topics(timeout=10).topics
    return {name for name in names if any(part in name for part in parts)}


@pytest.mark.long
@pytest.mark.claim(
    "topics",
    "ring",
    "a ring of three with prefixed names carries everything everywhere once, without a loop",
)
def test_a_chained_ring_of_three_carries_everything_everywhere_once(tmp_path: Path, ring: Ring) -> None:
    """Without provenance each turn of the ring would name every topic anew, for ever."""
    for lab in ring:
        lab.create_topic(f"ring-{lab.name}")
        fill(lab, f"ring-{lab.name}", 20)
    names = [lab.name for lab in ring]
    links = {f"{one}->{other}": "(.*[.])?ring-.*" for one, other in zip(names, [*names[1:], names[0]], strict=True)}
    file = tmp_path / "twinshore.toml"
    file.write_text(chained(settings_text(tmp_path, [lab.cluster for lab in ring], links, mirror=QUICK)))
    rig = Rig(tmp_path, file.read_text())
    rig.process.start()
    try:
        red, green, blue = (lab.cluster for lab in ring)
        wanted = {
            "red": {"ring-red", "blue.ring-blue", "blue.green.ring-green"},
            "green": {"ring-green", "red.ring-red", "red.blue.ring-blue"},
            "blue": {"ring-blue", "green.ring-green", "green.red.ring-red"},
        }
        clusters = {lab.name: lab.cluster for lab in ring}
        until(lambda: all(wanted[n] <= topics_of(clusters[n], "ring-") for n in names), 90, "all twins", rig)
        until(lambda: spans(blue, "green.red.ring-red", 1) == [(0, 20)], 30, "two hops", rig)
        until(lambda: spans(red, "blue.green.ring-green", 1) == [(0, 20)], 30, "two hops", rig)
        until(lambda: spans(green, "red.blue.ring-blue", 1)[0][1] == 20, 30, "two hops", rig)
        time.sleep(6 * QUICK["refresh_s"])
        assert {name: topics_of(clusters[name], "ring-") for name in names} == wanted, "nothing goes round again"
        beats = topics_of(red, "heartbeats")
        assert beats == {
            "twinshore.heartbeats",
            "blue.twinshore.heartbeats",
            "blue.green.twinshore.heartbeats",
        }
        register_verbs()
        said = json.loads(CliRunner().invoke(app, ["topology", "--json", "--settings", str(file)]).output)
        assert {link["link"]: link["state"] for link in said["links"]} == dict.fromkeys(links, "runs")
        assert all(link["age_s"] < 5 for link in said["links"])
        assert ["green", "blue", "red"] in [path["path"] for path in said["paths"]]
        drawn = CliRunner().invoke(app, ["topology", "--settings", str(file)]).output
        assert "red->green (prefix, chain): runs, last heartbeat" in drawn
        assert "\nblue\n└─ red  " in drawn
    finally:
        rig.process.end()


@pytest.mark.long
def test_one_process_carries_two_sources_into_one_target(tmp_path: Path, ring: Ring) -> None:
    red, green, blue = ring
    for source, records in ((red, 20), (green, 30)):
        source.create_topic("fan-orders", partitions=2)
        fill(source, "fan-orders", records, partition=1)
    links = {"red->blue": "fan-.*", "green->blue": "fan-.*"}
    clusters = [lab.cluster for lab in (red, green, blue)]
    text = settings_text(tmp_path, clusters, links, mirror=QUICK)
    rig = Rig(tmp_path, text.replace("topics = [", 'naming = "prefix"\ntopics = ['))
    rig.process.start()
    try:
        for source, records in ((red, 20), (green, 30)):
            twin = f"{source.name}.fan-orders"
            until(lambda twin=twin, n=records: spans(blue.cluster, twin, 2)[1] == (0, n), 90, twin, rig)  # type: ignore[misc]
        red.brokers[0].kill()
        fill(green, "fan-orders", 5)
        until(lambda: spans(blue.cluster, "green.fan-orders", 2)[0] == (0, 5), 30, "the other source goes on", rig)
        red.brokers[0].restart()
        fill(red, "fan-orders", 7)
        until(lambda: spans(blue.cluster, "red.fan-orders", 2) == [(0, 7), (0, 20)], 60, "the first goes on", rig)
        assert topics_of(blue.cluster, "fan-") == {"red.fan-orders", "green.fan-orders"}
    finally:
        rig.process.end()


@pytest.mark.long
@pytest.mark.claim(
    "topics",
    "one-link-a-topic",
    "two processes of one store that were started with other settings never carry one topic to one "
    "twin: both follow the settings that were taken last, and a link takes a topic only once the "
    "other one has let it go",
)
def test_two_processes_that_read_other_settings_never_carry_one_topic(tmp_path: Path, ring: Ring) -> None:
    """The settings were edited, and only one process was started with them. Both follow these, as links are rows of the
    store: the link that had `same-x`, whose twin is empty as yet, lets go of it before the other one takes it."""
    red, green, blue = ring
    for source in (red, green):
        source.create_topic("same-x")
    green.create_topic("same-b")
    fill(green, "same-x", 10)
    fill(green, "same-b", 5)
    clusters, rigs = [lab.cluster for lab in (red, green, blue)], list[Rig]()
    for name, links in (
        ("old", {"red->blue": "same-[ax]"}),
        ("new", {"red->blue": "same-a", "green->blue": "same-[bx]"}),
    ):
        folder = tmp_path / name
        folder.mkdir()
        text = settings_text(folder, clusters, links, mirror=QUICK, store=url_in(tmp_path))
        rigs.append(Rig(folder, text, store=url_in(tmp_path)))
    old, new = rigs
    try:
        old.process.start()
        with open_store(url_in(tmp_path)) as store:
            until(lambda: "same-x" in {row.topic for row in store.twins.of("red->blue")}, 90, "its twin is made", old)
        new.process.start()
        until(lambda: spans(blue.cluster, "same-b", 1) == [(0, 5)], 90, "what is its own crosses", new)
        until(lambda: spans(blue.cluster, "same-x", 1) == [(0, 10)], 90, "who has it now goes on", new)
        fill(red, "same-x", 7)
        fill(green, "same-x", 5)
        until(lambda: spans(blue.cluster, "same-x", 1) == [(0, 15)], 60, "and nobody else", old)
        with open_store(url_in(tmp_path)) as store:
            assert "same-x" not in {one.topic for one in store.progress.positions("red->blue") if one.records}
            rows = [row for link in ("red->blue", "green->blue") for row in store.incidents.rows(link)]
        # It was told at most that the topic had to wait, until that was over.
        assert all(mentions(row.incident.sentence, "same-x", "blue", "red->blue") for row in rows)
        assert all(row.closed_ms is not None for row in rows)
    finally:
        for rig in rigs:
            rig.process.end()


@pytest.mark.claim(
    "topics",
    "both-ways",
    "both directions at once with heartbeats, by mirrors that share no store: nothing goes round",
)
def test_both_directions_at_once_by_two_mirrors_that_share_no_store(
    tmp_path: Path, east: LabCluster, west: LabCluster
) -> None:
    east.create_topic("both-orders", partitions=2)
    west.create_topic("both-orders", partitions=2)
    fill(east, "both-orders", 30)
    fill(west, "both-orders", 10)
    for lab, other in ((east, "west"), (west, "east")):
        # Of an earlier mirror with a store of its own: this one would refuse to go on with it.
        admin = create_admin_client(lab.cluster)
        for name in topics_of(lab.cluster, f"{other}.twinshore.heartbeats"):
            admin.delete_topics([name], operation_timeout=30)[name].result(timeout=40)
    rigs = []
    try:
        for link in ("east->west", "west->east"):
            folder = tmp_path / link[:4]
            folder.mkdir()
            text = settings_text(folder, [east.cluster, west.cluster], {link: "(.*[.])?both-.*"}, mirror=QUICK)
            rigs.append(Rig(folder, chained(text)))
            rigs[-1].process.start()
        until(lambda: spans(west.cluster, "east.both-orders", 1) == [(0, 30)], 90, "east's orders", rigs[0])
        until(lambda: spans(east.cluster, "west.both-orders", 1) == [(0, 10)], 90, "west's orders", rigs[1])
        rigs[0].until_said("west.both-orders on east came by west and does not go back to west", 30)
        rigs[1].until_said("east.both-orders on west came by east and does not go back to east", 30)
        for lab, other in ((east, "west"), (west, "east")):
            assert topics_of(lab.cluster, "both-") == {"both-orders", f"{other}.both-orders"}
        fill(east, "both-orders", 5, partition=1)
        until(lambda: spans(west.cluster, "east.both-orders", 2)[1] == (0, 5), 30, "it goes on", rigs[0])
        assert not same_ends(east.cluster, west.cluster, "both-orders", 1), "two topics of one name stay two"
        for lab, other, rig in ((west, "east", rigs[0]), (east, "west", rigs[1])):
            beats = partial(spans, lab.cluster, f"{other}.twinshore.heartbeats", 1)
            (_, before) = beats()[0]
            until(lambda beats=beats, before=before: beats()[0][1] > max(0, before), 30, f"{other} beats", rig)  # type: ignore[misc]
    finally:
        for rig in rigs:
            rig.process.end()
