"""Links that operators add, change, turn and remove while others flow: within seconds, and nobody else notices.

One pair of clusters has several names in the settings, so that there can be several links between them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest
from typer.testing import CliRunner

from testkit.errors import mentions, raises
from tests.scenarios.mirror_rig import Rig, same_ends, settings_text, spans, until, url_in
from tests.scenarios.test_mirror_basic import fill
from twinshore.cli.app import app, register_verbs
from twinshore.config.errors import RefusedError
from twinshore.config.frozen import HEARTBEATS
from twinshore.config.model import Cluster
from twinshore.lab.cluster import LabCluster
from twinshore.lab.produce import Workload
from twinshore.state.store import open_store

KEPT = {"east-1->west-1": "links-kept-1", "east-2->west-2": "links-kept-2"}
ADDED, FRESH, TURNED = "east-3->west-3", "east-4->west-4", "west-4->east-4"
# A second until the change is seen, one for the lease, one for the first look at both clusters: on a machine that is
# busy with other things three times that. `python -m bench.measure.links` measures how long it takes otherwise.
TAKEN_UP_S = 30.0


def named(cluster: Cluster, number: int) -> Cluster:
    return replace(cluster, name=f"{cluster.name}-{number}")


class Place(Rig):
    """A mirror whose links are changed by words."""

    def link(self, *words: str) -> str:
        register_verbs()
        done = CliRunner().invoke(app, ["link", *words, "--settings", str(self.folder / "links.toml")])
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert done.exit_code == 0, done.output
        return done.output

    def said(self, words: str) -> int:
        return len(re.findall(re.escape(words), self.process.said))

    def twins(self, link: str) -> set[str]:
        with open_store(url_in(self.folder)) as store:
            return {row.topic for row in store.twins.of(link)}

    def terms(self) -> dict[str, tuple[int, bool]]:
        """By link: which term of its lease runs, and whether it was given back."""
        with open_store(url_in(self.folder)) as store:
            rows = {link: store.leases.read(f"link {link}") for link in (*KEPT, ADDED, FRESH, TURNED)}
        return {link: (row.epoch, row.released) for link, row in rows.items() if row}


@pytest.fixture(scope="module")
def place(east: LabCluster, west: LabCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    for topic in (*KEPT.values(), "links-late", "links-later"):
        east.create_topic(topic, partitions=2)
    folder = tmp_path_factory.mktemp("links")
    clusters = [named(one.cluster, number) for number in (1, 2, 3, 4) for one in (east, west)]
    mirror = {"refresh_s": 1, "tasks_per_link": 1}
    text = settings_text(folder, clusters, KEPT, mirror=mirror)
    (folder / "links.toml").write_text(text)
    made = Place(folder, text)
    made.process.start()
    try:
        for link in KEPT:
            made.until_said(f"{link}: replicated by this process", within_s=90)
        for topic in KEPT.values():
            until(partial(same_ends, east.cluster, west.cluster, topic, 2), 60, "its twins", made)
        yield made
    finally:
        made.process.end()


def test_links_come_change_turn_and_go_while_others_flow(place: Place, east: LabCluster, west: LabCluster) -> None:
    one, other = (Workload(east.cluster, topic, records_per_s=100) for topic in KEPT.values())
    with one, other:
        before = place.terms()
        a_link_is_added_and_changed(place, east, west)
        a_link_with_twins_is_not_turned(place)
        a_link_is_turned_before_it_has_carried_anything(place, east, west)
        a_link_is_removed_and_taken_up_again(place, east, west)
        assert one.acked > 100
        assert other.acked > 100
    for topic in KEPT.values():
        until(partial(same_ends, east.cluster, west.cluster, topic, 2), 60, f"all of {topic}", place)
    after = place.terms()
    for link in KEPT:
        assert after[link] == before[link], "its lease was never given back or taken anew"
        assert place.said(f"{link}: replicated by this process") == 1, "its tasks were opened once"
        assert place.said(f"{link} task") == 0, f"nothing befell its tasks:\n{place.process.said[-3000:]}"


def a_link_is_added_and_changed(place: Place, east: LabCluster, west: LabCluster) -> None:
    fill(east, "links-late", 10)
    assert place.link("add", ADDED, 'topics=["links-late"]', "--dry-run") == (
        f'{ADDED}: would be added: topics ["links-late"]\n'
    )
    assert place.link("add", ADDED, 'topics=["links-late"]') == f'{ADDED}: is added: topics ["links-late"]\n'
    until(lambda: spans(west.cluster, "links-late", 1) == [(0, 10)], TAKEN_UP_S, "it is carried", place)
    fill(east, "links-later", 5)
    place.link("set", ADDED, 'topics=["links-late", "links-later"]')
    until(lambda: spans(west.cluster, "links-later", 1) == [(0, 5)], TAKEN_UP_S, "more is carried", place)
    fill(east, "links-late", 10)
    until(lambda: spans(west.cluster, "links-late", 1) == [(0, 20)], TAKEN_UP_S, "and what was goes on", place)
    assert place.said(f"{ADDED}: replicated by this process") == 2


def a_link_with_twins_is_not_turned(place: Place) -> None:
    with pytest.raises(RefusedError, match="has twins on west-3") as caught:
        place.link("reverse", ADDED)
    assert "links-late" in caught.value.message
    assert ADDED in place.link("list")


def a_link_is_turned_before_it_has_carried_anything(place: Place, east: LabCluster, west: LabCluster) -> None:
    place.link("add", FRESH, 'topics=["links-home"]')
    place.until_said(f"{FRESH}: replicated by this process", within_s=TAKEN_UP_S)
    until(lambda: place.twins(FRESH) == {HEARTBEATS}, TAKEN_UP_S, "heartbeats alone have a twin, as ever", place)
    place.link("reverse", FRESH)
    place.until_said(f"{TURNED}: replicated by this process", within_s=TAKEN_UP_S)
    west.create_topic("links-home", partitions=2)
    fill(west, "links-home", 10)
    until(lambda: spans(east.cluster, "links-home", 1) == [(0, 10)], TAKEN_UP_S, "it is carried back", place)
    until(lambda: place.terms()[FRESH][1], TAKEN_UP_S, "the other direction's lease is given back", place)
    until(lambda: place.twins(TURNED) == {HEARTBEATS, "links-home"}, TAKEN_UP_S, "it has its own heartbeats", place)
    assert place.twins(FRESH) == {HEARTBEATS}


def a_link_is_removed_and_taken_up_again(place: Place, east: LabCluster, west: LabCluster) -> None:
    said = place.link("remove", TURNED)
    assert mentions(said, TURNED, "stays on east-4", "2 twins (links-home, twinshore.heartbeats)"), said
    until(lambda: place.terms()[TURNED][1], TAKEN_UP_S, "its lease is given back", place)
    fill(west, "links-home", 10)
    shown = place.verb("status")
    assert f"{TURNED}: was removed by" in shown
    assert re.search(r"stays on east-4: \d twin", shown)
    assert spans(east.cluster, "links-home", 1) == [(0, 10)], "what it wrote stays, and nothing comes behind it"
    with open_store(url_in(place.folder)) as store:
        word = next(one for one in store.links.statuses() if one.link == TURNED)
        assert (word.state, "removed by" in word.sentence) == ("stopped", True)
    with raises(RefusedError, "replication.twins-carried-back", link=FRESH):
        place.link("add", FRESH, 'topics=["links-home"]')
    place.link("add", TURNED, 'topics=["links-home"]')
    until(lambda: spans(east.cluster, "links-home", 1) == [(0, 20)], TAKEN_UP_S, "it goes on where it stood", place)
    until(lambda: "flowing" in status_of(place), TAKEN_UP_S, "and says so", place)


def status_of(place: Place) -> str:
    with open_store(url_in(place.folder)) as store:
        return next(one.state for one in store.links.statuses() if one.link == TURNED)
