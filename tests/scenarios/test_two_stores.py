"""A link has one store: a second one is refused by what stands on the target, and writes nothing there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from testkit.clients import alter_topic, delete_records, delete_topic, forget_links
from testkit.errors import mentions, raises
from testkit.log_lines import LogLines
from tests.scenarios.mirror_rig import Rig, read_all, same_ends, settings_text, spans, until
from tests.scenarios.test_mirror_basic import fill
from twinshore.config.errors import RefusedError
from twinshore.config.frozen import TWINS_TOPIC
from twinshore.config.model import Link, TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.state_topic import StateTopic
from twinshore.lab.cluster import LabCluster
from twinshore.replication.core.claim_records import CLEANUP_POLICY, LinkClaimState, StoreClaim
from twinshore.replication.link_claim import LinkClaim, ProcessLease
from twinshore.state.core.values import LinkIdentity, TwinRow
from twinshore.state.store import open_store

pytestmark = pytest.mark.claim(
    "topics",
    "second-store",
    "a second store is refused a link by name and writes nothing, also after the notes that say so "
    "were cut away; of two that start at once one goes on",
)

LINK = "east->west"
QUICK = {"heartbeat_s": 0, "tasks_per_link": 1, "lease_s": 4}
STORES = 5
LINKS = 8


@pytest.fixture
def ended() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def rig_of(folder: Path, ended: ExitStack, east: LabCluster, west: LabCluster, topics: str) -> Rig:
    folder.mkdir()
    made = Rig(folder, settings_text(folder, [east.cluster, west.cluster], {LINK: topics}, mirror=QUICK))
    ended.callback(made.process.end)
    return made


def test_a_second_store_is_refused_by_name_and_writes_nothing(
    tmp_path: Path, ended: ExitStack, east: LabCluster, west: LabCluster
) -> None:
    east.create_topic("twice-orders", partitions=2)
    fill(east, "twice-orders", 300)
    first = rig_of(tmp_path / "first", ended, east, west, "twice-.*")
    second = rig_of(tmp_path / "second", ended, east, west, "twice-.*")
    first.process.start()
    until(lambda: same_ends(east.cluster, west.cluster, "twice-orders", 2), 90, "it crosses", first)

    sentence = f"link {LINK} into west is written by store "
    second.process.start()
    assert second.until_ended(90) == 2
    assert sentence in second.process.said
    assert "Traceback" not in second.process.said
    assert not second.told(LINK)
    assert not second.ledger(LINK)

    def refused() -> None:
        with pytest.raises(RefusedError, match=sentence):
            second.verb("mirror", "plan")

    refused()
    # Whoever deletes the notes takes nothing from a link that runs: it writes them anew.
    delete_topic(west.cluster, TWINS_TOPIC)
    first.until_said(f"{LINK}: its records in {TWINS_TOPIC} on west are gone: they are written again", 30)
    with closing(KafkaCluster(west.cluster)) as kafka:
        until(StateTopic(kafka, TWINS_TOPIC).exists, 30, "they are there", first)
    refused()
    # A topic made while the other stood refused is carried by the first alone; its twin is written by one.
    east.create_topic("twice-late")
    fill(east, "twice-late", 50)
    until(lambda: spans(west.cluster, "twice-late", 1) == [(0, 50)], 60, "what came late crosses", first)
    fill(east, "twice-orders", 100, partition=1)
    until(lambda: same_ends(east.cluster, west.cluster, "twice-orders", 2), 60, "it goes on", first)
    assert first.process.end() == 0
    assert not first.ledger(LINK)
    for partition in range(2):
        theirs, ours = (read_all(side.cluster, "twice-orders", partition) for side in (east, west))
        assert theirs == ours
    # Nor is the link anybody's because its mirror stands still: its twins are known to that store.
    refused()
    # The same store, moved and run from another folder, goes on without a question.
    moved = rig_of(tmp_path / "moved", ended, east, west, "twice-.*")
    for file in first.folder.glob("store.db*"):
        (moved.folder / file.name).write_bytes(file.read_bytes())
    fill(east, "twice-late", 7)
    moved.process.start()
    until(lambda: spans(west.cluster, "twice-late", 1) == [(0, 57)], 90, "the moved store goes on", moved)
    assert not moved.ledger(LINK)


def test_of_stores_that_begin_at_once_one_writes_the_link(tmp_path: Path, west: LabCluster) -> None:
    """No topic, no claim, all at the same moment: what the log has first decides, and all see the same."""
    forget_links(west.cluster)
    with ExitStack() as stack, ThreadPoolExecutor(STORES) as pool:
        stores = [stack.enter_context(open_store(f"sqlite:///{tmp_path}/{number}.db")) for number in range(STORES)]
        kafkas = [stack.enter_context(closing(KafkaCluster(west.cluster, patience_s=20))) for _ in stores]
        for number in range(LINKS):
            link = Link(f"east{number}", "west")
            start = threading.Barrier(STORES)

            def begin(one: int, link: Link = link, start: threading.Barrier = start) -> str:
                notes = LinkClaim(link, stores[one], kafkas[one])
                start.wait()
                try:
                    notes.hold("a source")
                except RefusedError as error:
                    return error.message
                return ""

            said = list(pool.map(begin, range(STORES)))
            winner = said.index("")
            assert said.count("") == 1, said
            ours = stores[winner].links.own_id("")
            assert all(f"is written by store {ours[:8]} " in one for one in said if one), said
            told = LinkClaim(link, stores[winner], kafkas[winner]).look("a source")
            assert list(told.claims) == [ours], "who came too late left no claim"


def test_two_mirrors_that_start_at_once_on_an_empty_target_do_not_share_a_twin(
    tmp_path: Path, ended: ExitStack, east: LabCluster, west: LabCluster
) -> None:
    east.create_topic("race-orders")
    fill(east, "race-orders", 500)
    rigs = [rig_of(tmp_path / name, ended, east, west, "race-.*") for name in ("one", "two")]
    for rig in rigs:
        rig.process.start()
    until(lambda: sum(not rig.process.child.alive() for rig in rigs) == 1, 120, "one of them is refused")
    (lost,) = [rig for rig in rigs if not rig.process.child.alive()]
    (won,) = [rig for rig in rigs if rig.process.child.alive()]
    assert "is written by store" in lost.process.said
    assert not lost.told(LINK)
    until(lambda: spans(west.cluster, "race-orders", 1) == [(0, 500)], 60, "the other carries", won)
    assert not won.ledger(LINK)


def test_strangers_lines_neither_end_a_mirror_nor_refuse_it(
    tmp_path: Path, ended: ExitStack, east: LabCluster, west: LabCluster
) -> None:
    """Whoever may write there can write what they like: it comes behind the link's own claim, or is none."""
    forget_links(west.cluster)
    east.create_topic("forged-orders")
    fill(east, "forged-orders", 40)
    rig = rig_of(tmp_path / "rig", ended, east, west, "forged-.*")
    rig.process.start()
    until(lambda: spans(west.cluster, "forged-orders", 1) == [(0, 40)], 90, "it crosses", rig)
    with closing(KafkaCluster(west.cluster)) as kafka, closing(KafkaCluster(east.cluster)) as source:
        told = LinkClaimState(LINK, source.cluster_id())
        claim = b'{"store":"' + b"f" * 32 + b'","host":"a stranger","since_ms":1}'
        key = told.release_line("f" * 32)[0]
        deep = b"[" * 60_000
        StateTopic(kafka, TWINS_TOPIC).append(
            [(key, claim), (deep[:2000], deep), (b"forged-orders", deep), (b"\xff", b"{}"), (key[:-1], b"9" * 9_000)], 5
        )
    fill(east, "forged-orders", 10)
    east.create_topic("forged-late")
    fill(east, "forged-late", 5)
    until(lambda: spans(west.cluster, "forged-late", 1) == [(0, 5)], 60, "it goes on", rig)
    until(lambda: spans(west.cluster, "forged-orders", 1) == [(0, 50)], 60, "it goes on", rig)
    assert not rig.ledger(LINK)


def test_a_link_without_its_lines_claims_itself_again_and_sees_a_copy_of_its_store(
    tmp_path: Path, west: LabCluster, log_lines: LogLines
) -> None:
    link = Link("east9", "west")
    ids = LinkIdentity(link.name, 7, 0, "a source", west.cluster.name)
    with ExitStack() as stack:
        store, other = (stack.enter_context(open_store(f"sqlite:///{tmp_path}/{name}.db")) for name in "ab")
        kafka = stack.enter_context(closing(KafkaCluster(west.cluster, patience_s=20)))
        notes = LinkClaim(link, store, kafka, ProcessLease("the first process"))

        def begin(again: LinkClaim) -> None:
            again.hold("a source")
            again.publish_writer(ids)
            again.tell()

        begin(notes)
        store.twins.save([TwinRow(link.name, "orders", n, "a" * 32, "b" * 32, 5, 5, 1) for n in range(3)])
        notes.tell()
        forget_links(west.cluster)
        notes.check()
        assert len(log_lines) == 1
        assert "are gone: they are written again" in log_lines[0]
        with raises(RefusedError, "replication.link-of-another-store"):
            LinkClaim(link, other, kafka).hold("a source")
        told = LinkClaim(link, other, kafka).look("a source")
        assert [run.count for note in told.of_topic("orders") for run in note.runs] == [3]
        # A claim that came too late, and whose store died before it took it back, is taken away.
        late = told.claim_line(StoreClaim("9" * 32, "a host", 5))
        StateTopic(kafka, TWINS_TOPIC).append([late], 5)
        notes.check()
        assert list(LinkClaim(link, other, kafka).look("a source").claims) == [store.links.own_id("")]
        begin(LinkClaim(link, store, kafka, ProcessLease("the second process")))
        with raises(RefusedError, "replication.store-copied", process="the second process"):
            notes.check()


def test_notes_that_are_cut_away_or_would_expire_are_missed_and_written_anew(
    tmp_path: Path, west: LabCluster, log_lines: LogLines
) -> None:
    """The topic stays that topic, and lets its lines go: neither store may believe what it has in memory."""
    forget_links(west.cluster)
    west.create_topic(TWINS_TOPIC, settings={CLEANUP_POLICY: "delete"})
    link = Link("east8", "west")
    ids = LinkIdentity(link.name, 7, 0, "a source", west.cluster.name)
    place = TopicPartition(TWINS_TOPIC, 0)
    with ExitStack() as stack:
        store, other = (stack.enter_context(open_store(f"sqlite:///{tmp_path}/{name}.db")) for name in "ab")
        kafka = stack.enter_context(closing(KafkaCluster(west.cluster, patience_s=20)))
        notes = LinkClaim(link, store, kafka, ProcessLease("the first process"))
        store.twins.save([TwinRow(link.name, "orders", n, "a" * 32, "b" * 32, 5, 5, 1) for n in range(3)])
        notes.hold("a source")
        notes.publish_writer(ids)
        notes.tell()
        assert mentions(log_lines.pop(), "delete", "compact")
        until(
            lambda: kafka.admin.topic_settings([TWINS_TOPIC])[TWINS_TOPIC][CLEANUP_POLICY].value == "compact",
            30,
            "mended",
        )
        alter_topic(
            west.cluster, TWINS_TOPIC, {CLEANUP_POLICY: "compact,delete"}
        )  # Of a compacted topic nothing is cut.
        _, end = StateTopic(kafka, TWINS_TOPIC).bounds()
        until(lambda: delete_records(west.cluster, {place: end}) == {place: end}, 30, "the log is empty")
        notes.check()
        assert mentions(log_lines[0], "twinshore.twins", "west", "gone")
        assert mentions(log_lines[1], "compact,delete")
        with raises(RefusedError, "replication.link-of-another-store", store=store.links.own_id("")[:8]):
            LinkClaim(link, other, kafka).hold("a source")
        told = LinkClaim(link, other, kafka).look("a source")
        assert told.writer
        assert [run.count for note in told.of_topic("orders") for run in note.runs] == [3]
