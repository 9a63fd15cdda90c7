"""A twin is deleted last of all, on real brokers: announced, and not against anybody's word or with others' records."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from testkit.clients import delete_topic
from testkit.errors import mentions, raises
from tests.scenarios.mirror_rig import Rig, same_ends, settings_text, spans, until
from twinshore.config.errors import RefusedError
from twinshore.config.model import Cluster
from twinshore.lab.clients import client_settings, create_admin_client
from twinshore.lab.cluster import LabCluster
from twinshore.state.core.values import IncidentRow

pytestmark = pytest.mark.claim(
    "topics",
    "deletions",
    "a twin is deleted only at an announced time, and never while paused, left out, kept by a word, "
    "written to by others, or with all the others at once; never_delete that is set while the mirror "
    "runs is heard at once, and `mirror plan` says of such a topic what the mirror decides",
)

LINK = "east->west"
DELAY_S = 25
FOLLOW = f"""
[links."{LINK}".follow]
every_s = 0.5
deleted = "delete"
delete_after_s = """


class DeletionRig(Rig):
    """A mirror that deletes the twins of deleted topics soon, between two shared clusters."""

    def __init__(self, folder: Path, east: LabCluster, west: LabCluster, stem: str, delay_s: float = DELAY_S) -> None:
        text = settings_text(folder, [east.cluster, west.cluster], {LINK: f"{stem}.*"}, mirror={"tasks_per_link": 1})
        super().__init__(folder, f"{text}{FOLLOW}{delay_s}\n")
        self.east, self.west = east, west

    def told(self, topic: str, kind: str) -> IncidentRow | None:  # type: ignore[override]
        """The open row of this kind."""
        rows = [row for row in self.ledger(LINK) if row.closed_ms is None]
        return next((r for r in rows if (r.incident.topic, r.incident.kind) == (topic, kind)), None)

    def until_told(self, topic: str, words: str, kind: str = "deleted topic", within_s: float = 60.0) -> IncidentRow:
        """The open row of this kind, once it says so."""
        deadline = time.monotonic() + within_s
        while (row := self.told(topic, kind)) is None or words not in row.incident.sentence:
            assert self.process.child.alive(), f"the mirror has ended: {self.process.said[-3000:]}"
            assert time.monotonic() < deadline, f"{kind} of {topic} never said {words!r}: {self.ledger(LINK)}"
            time.sleep(0.1)
        return row

    def planned(self, topic: str) -> str:
        """What a plan says that becomes of the topic."""
        return "\n".join(line for line in self.verb("mirror", "plan").splitlines() if f": topic {topic}: " in line)

    def there(self, topic: str) -> bool:
        return topic in create_admin_client(self.west.cluster).list_topics(timeout=10).topics


def produce(cluster: Cluster, topic: str, count: int, word: str) -> None:
    producer = Producer({**client_settings(cluster), "acks": "all"})
    for number in range(count):
        producer.produce(topic, f"{word} {number}".encode(), partition=0)
    assert producer.flush(30) == 0


@pytest.fixture
def stem(unique_topic: str) -> str:
    return unique_topic[-30:]


@pytest.fixture
def rig(tmp_path: Path, east: LabCluster, west: LabCluster, stem: str) -> Iterator[DeletionRig]:
    made = DeletionRig(tmp_path, east, west, stem)
    yield made
    made.process.end()


def carried(rig: DeletionRig, topics: list[str]) -> None:
    """The mirror runs, and has carried and receipted these."""
    for topic in topics:
        rig.east.create_topic(topic)
        produce(rig.east.cluster, topic, 100, "carried")
    rig.process.start()
    for topic in topics:
        crossed = lambda topic=topic: same_ends(rig.east.cluster, rig.west.cluster, topic, 1)  # noqa: E731
        until(crossed, 240, f"{topic} crossed", rig)
    # What a topic's end has no receipt for when it is deleted was not carried, as far as anybody knows.
    until(lambda: all(Rig.told(rig, LINK).get((topic, 0)) == 100 for topic in topics), 60, "all is receipted", rig)


@pytest.mark.timeout(600)
def test_a_twin_goes_when_its_time_is_over_and_only_where_filters_admit_it(
    tmp_path: Path, east: LabCluster, west: LabCluster, stem: str
) -> None:
    orders, left_out, pay = topics = [f"{stem}.{name}" for name in ("orders", "left-out", "pay")]
    rig = DeletionRig(tmp_path, east, west, stem, delay_s=3)
    try:
        carried(rig, topics)
        rig.verb("link", "filter", LINK, "--exclude", left_out)
        delete_topic(east.cluster, left_out)
        delete_topic(east.cluster, orders)
        until(lambda: not rig.there(orders), 120, "its time is over", rig)
        assert mentions(rig.verb("audit"), "deleted", f"{orders}-0 0 to 99")
        assert rig.there(left_out)
        assert rig.there(pay)
    finally:
        rig.process.end()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_twin_is_deleted_last_of_all(rig: DeletionRig, stem: str) -> None:
    orders, left_out, pay, *rest = topics = [f"{stem}.{name}" for name in ("orders", "left-out", "pay", "x1", "x2")]
    carried(rig, topics)

    # Announced with its time; a pause takes that back, and so does leaving a topic out.
    rig.verb("link", "filter", LINK, "--exclude", left_out)
    delete_topic(rig.east.cluster, left_out)
    delete_topic(rig.east.cluster, orders)
    announced = rig.until_told(orders, "twin is deleted on ")
    assert "twin is deleted on " in rig.planned(orders)
    rig.verb("link", "pause", LINK)
    rig.until_told(orders, "the twin is kept: the link is paused")
    assert "the twin is kept: the link is paused" in rig.planned(orders)
    time.sleep(DELAY_S + 3)
    assert rig.there(orders), "paused"
    assert rig.there(left_out), "its filters do not admit it"
    rig.verb("link", "resume", LINK)
    again = rig.until_told(orders, "twin is deleted on ")
    assert again.opened_ms - announced.opened_ms > DELAY_S * 1000

    # A verb says no, for as long as it stands.
    rig.verb("mirror", "keep", orders)
    rig.until_told(orders, "the twin is kept: an operator said")
    assert "the twin is kept: an operator said" in rig.planned(orders)
    began_s = time.monotonic()
    what_others_wrote_needs_a_word_of_its_own(rig, pay)
    time.sleep(max(0.0, DELAY_S + 3 - (time.monotonic() - began_s)))
    assert rig.there(orders)
    rig.verb("mirror", "keep", orders, "--undo")
    rig.until_told(orders, "twin is deleted on ")
    until(lambda: not rig.there(orders), DELAY_S + 60, "nothing speaks against it any more", rig)
    assert mentions(rig.verb("audit"), "deleted", f"{orders}-0 0 to 99")
    assert rig.there(left_out)

    # All that are left go at once: each waits for a word.
    for topic in (pay, *rest):
        delete_topic(rig.east.cluster, topic)
    for topic in (pay, *rest):
        rig.until_told(topic, "topics of the link are gone from the source at once", "deletion held", DELAY_S + 60)
    assert all(rig.there(topic) for topic in (pay, *rest))
    rig.verb("mirror", "delete", pay)
    until(lambda: not rig.there(pay), 60, "it was agreed to", rig)
    time.sleep(3)
    assert all(rig.there(topic) for topic in (left_out, *rest)), "nobody agreed to these"
    what_the_settings_forbid_is_heard_at_once(rig, left_out, f"{stem}.fresh")


def what_the_settings_forbid_is_heard_at_once(rig: DeletionRig, announced: str, fresh: str) -> None:
    """`never_delete` written while the mirror runs; what is carried goes on by tasks that may cut nothing."""
    rig.east.create_topic(fresh)
    until(lambda: rig.there(fresh), 120, f"{fresh} has a twin", rig)
    rig.verb("link", "reset", LINK, "--name", "exclude")
    rig.until_told(announced, "the twin is deleted on ")
    assert "never_delete" not in rig.verb("status")
    with rig.process.settings.open("a") as file:
        file.write("\n[safety]\nnever_delete = true\n")
    rig.until_told(announced, "the twin is kept: [safety] never_delete is set")
    assert "[safety] never_delete is set: no twin is deleted, no record cut off" in rig.verb("status")
    rig.until_said("no record may be cut off from now on; its tasks start again")
    produce(rig.east.cluster, fresh, 10, "since")
    until(lambda: same_ends(rig.east.cluster, rig.west.cluster, fresh, 1), 120, f"{fresh} goes on", rig)
    assert rig.there(announced)


def what_others_wrote_needs_a_word_of_its_own(rig: DeletionRig, pay: str) -> None:
    """Applications wrote to a twin whose topic was made again: the plan shows it, and begins again only so agreed."""
    delete_topic(rig.east.cluster, pay)
    until(
        lambda: pay not in create_admin_client(rig.east.cluster).list_topics(timeout=10).topics, 30, "it is gone", rig
    )
    rig.east.create_topic(pay)
    produce(rig.east.cluster, pay, 3, "new")
    rig.until_told(pay, "made again on the source", "recreated topic")
    produce(rig.west.cluster, pay, 500, "of the target's own")
    with raises(RefusedError, "replication.twin-last-copy", topic=pay):
        rig.verb("mirror", "recreate", pay)
    plan = rig.verb("mirror", "recreate", pay, "--even-unreplicated", "--dry-run")
    assert f"its twin holds {pay}-0 0 to 599" in plan
    assert mentions(plan, f"{pay}-0 100 to 599")
    time.sleep(3)
    assert spans(rig.west.cluster, pay, 1) == [(0, 600)], "nothing was agreed to"
    rig.verb("mirror", "recreate", pay, "--even-unreplicated")
    until(lambda: spans(rig.west.cluster, pay, 1) == [(0, 3)], 60, "it began again", rig)
