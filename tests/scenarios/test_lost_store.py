"""A store is lost, its twins are not: they are put back from what the target says, and nothing is copied again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from testkit.clients import delete_records
from testkit.errors import mentions, raises
from testkit.log_kinds import seen, transactional
from tests.scenarios.mirror_rig import Rig, same_ends, settings_text, spans, until
from tests.scenarios.test_mirror_basic import fill
from twinshore.cli.app import app, register_verbs
from twinshore.config.errors import RefusedError
from twinshore.config.model import Link, Secret, TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.cluster import LabCluster
from twinshore.replication.link_claim import LinkClaim
from twinshore.replication.operations.recover import Recoverer
from twinshore.state.core.values import LinkIdentity, ReplicatedPosition, TwinRow
from twinshore.state.store import open_store

pytestmark = pytest.mark.claim(
    "topics",
    "lost-store",
    "a lost store is recovered from its target, nothing is copied again, and the logs stay equal",
)

LINK = "east->west"
QUICK = {"heartbeat_s": 0, "tasks_per_link": 1, "lease_s": 4}
EXACT = {"lost-orders": 2, "lost-late": 1, "lost-tx": 2, "lost-empty": 3}


@pytest.fixture
def ended() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def rig_of(folder: Path, ended: ExitStack, east: LabCluster, west: LabCluster, topics: str) -> Rig:
    folder.mkdir()
    text = settings_text(folder, [east.cluster, west.cluster], {LINK: topics}, mirror=QUICK)
    made = Rig(folder, text.replace("topics = [", 'mode = "mapped"\nmapped_from = "start"\ntopics = ['))
    ended.callback(made.process.end)
    return made


def asked(rig: Rig, *words: str) -> tuple[int, str]:
    """Exit code and all that the command said."""
    register_verbs()
    done = CliRunner().invoke(app, [*words, "--settings", str(rig.process.settings)])
    return done.exit_code, done.output + (str(done.exception) if done.exception else "")


def positions(rig: Rig) -> dict[tuple[str, int], ReplicatedPosition]:
    with open_store(f"sqlite:///{rig.folder / 'store.db'}", Secret()) as store:
        return {(at.topic, at.partition): at for at in store.progress.positions(LINK)}


def level(east: LabCluster, west: LabCluster) -> bool:
    return all(same_ends(east.cluster, west.cluster, topic, count) for topic, count in EXACT.items())


def made_topics(east: LabCluster, west: LabCluster) -> None:
    for topic, count in EXACT.items():
        east.create_topic(topic, partitions=count)
    for number in range(3):
        fill(east, "lost-orders", 100 + number)
    fill(east, "lost-late", 80)
    delete_records(east.cluster, {TopicPartition("lost-late", 0): 30})
    transactional(east, "lost-tx", seed=7, steps=30)
    for side, records in ((east, 20), (west, 5)):
        side.create_topic("lost-mapped")
        fill(side, "lost-mapped", records)


def test_a_lost_store_is_recovered_without_copying_anything_again(
    tmp_path: Path, ended: ExitStack, east: LabCluster, west: LabCluster
) -> None:
    made_topics(east, west)
    rig = rig_of(tmp_path / "rig", ended, east, west, "lost-(orders|late|tx|empty|mapped)")
    assert mentions(asked(rig, "link", "recover", LINK, "--dry-run")[1], "west", LINK)
    rig.process.start()
    until(lambda: level(east, west), 120, "all crosses", rig)
    until(lambda: spans(west.cluster, "lost-mapped", 1) == [(0, 25)], 60, "the mapped one crosses too", rig)
    code, said = asked(rig, "link", "recover", LINK)
    assert code != 0
    assert mentions(said, "a mirror runs it")
    assert rig.process.end() == 0
    for more in ((), ("--dry-run",)):
        code, said = asked(rig, "link", "recover", LINK, *more)
        assert code == 0 and mentions(said, "nothing is lost"), said
        assert "lost for good" not in said and "restored" not in said
    ends = {topic: spans(west.cluster, topic, count) for topic, count in EXACT.items()}

    for file in rig.folder.glob("store.db*"):
        file.unlink()
    fill(east, "lost-orders", 11)
    rig.process.start()
    assert rig.until_ended(90) == 2
    assert f'`twinshore link recover "{LINK}" --dry-run`' in rig.process.said

    code, said = asked(rig, "link", "recover", LINK, "--dry-run")
    assert code == 0, said
    end = ends["lost-orders"][0][1]
    assert f"would be restored: lost-orders-0 ends at {end}, the source at {end + 11}" in said
    assert mentions(said, "lost-mapped is mapped")
    assert "lost for good" in said and "orders of `twinshore mirror keep`" in said and "delete the twin" not in said
    for file in rig.folder.glob("store.db*"):
        file.unlink()
    for words in (("link", "recover", LINK, "--dry-run"), ("mirror", "plan")):
        said = asked(rig, *words)[1]
        assert mentions(said, rig.folder / "store.db") and "empty.db" not in said, said
    assert not positions(rig), "a dry run changes nothing"
    assert asked(rig, "link", "recover", LINK)[0] == 0
    code, said = asked(rig, "link", "recover", LINK)
    assert code == 0 and mentions(said, "nothing is lost"), said
    assert ": restored" not in said and "not restored: lost-mapped is mapped" in said, said
    found = positions(rig)
    assert {place[0] for place in found} == set(EXACT)

    fill(east, "lost-late", 9)
    rig.process.start()
    until(lambda: level(east, west), 90, "it goes on", rig)
    until(lambda: positions(rig)["lost-late", 0].records == 9, 30, "receipts are written", rig)
    assert not [row for row in rig.ledger(LINK) if row.incident.topic in EXACT]
    for topic, count in EXACT.items():
        for partition in range(count):
            at = positions(rig)[topic, partition]
            assert at.start_offset == ends[topic][partition][1], "receipts begin where the twin stood"
            fresh = {"lost-orders": 11 * (partition == 0), "lost-late": 9}.get(topic, 0)
            assert at.records == fresh, "only what is new was carried"
            committed = [seen(side, topic, partition, committed=True) for side in (east, west)]
            assert committed[0] == committed[1]


@pytest.mark.long
def test_a_link_is_taken_over_on_purpose_and_its_old_mirror_ends(
    tmp_path: Path, ended: ExitStack, east: LabCluster, west: LabCluster
) -> None:
    east.create_topic("taken-orders")
    fill(east, "taken-orders", 60)
    old, new = (rig_of(tmp_path / name, ended, east, west, "taken-.*") for name in ("old", "new"))
    old.process.start()
    until(lambda: spans(west.cluster, "taken-orders", 1) == [(0, 60)], 90, "it crosses", old)
    code, said = asked(new, "link", "recover", LINK)
    assert code == 0, said
    assert "taken over from store" in said
    assert old.until_ended(60) == 2
    assert "is written by store" in old.process.said
    fill(east, "taken-orders", 40)
    new.process.start()
    until(lambda: spans(west.cluster, "taken-orders", 1) == [(0, 100)], 90, "the new store goes on", new)
    assert seen(east, "taken-orders", 0) == seen(west, "taken-orders", 0)
    assert not new.ledger(LINK)
    assert not old.ledger(LINK)


def test_a_link_is_taken_from_a_store_that_never_began_and_back(
    tmp_path: Path, east: LabCluster, west: LabCluster
) -> None:
    """As where the first store's user had no right to write."""
    link = Link("east", "west")
    with (
        open_store(f"sqlite:///{tmp_path}/a.db") as first,
        open_store(f"sqlite:///{tmp_path}/b.db") as second,
        closing(KafkaCluster(east.cluster)) as source,
        closing(KafkaCluster(west.cluster)) as target,
    ):
        LinkClaim(link, first, target).hold(source.cluster_id())
        recoverer = Recoverer(link, second, source, target)
        seen = recoverer.look()
        assert seen.claim
        assert seen.claim.store == first.links.own_id("")
        assert seen.identity is None
        recoverer.recover(seen, "a test")
        LinkClaim(link, second, target).hold(source.cluster_id())
        with raises(RefusedError, "replication.link-of-another-store", store=second.links.own_id("")[:8]):
            LinkClaim(link, first, target).hold(source.cluster_id())
        assert second.links.identity(link.name) is None
        assert [row.kind for row in second.audit.rows(link.name)] == ["recover"]
        # One that has twins of its own takes the link back as it was, whoever began it meanwhile.
        ids = source.cluster_id(), target.cluster_id()
        mine = first.links.save_identity(LinkIdentity(link.name, 4_711, 0, *ids))
        first.twins.save([TwinRow(link.name, "orders", 0, "a" * 32, "b" * 32, 0, 0, 1)])
        begun = LinkClaim(link, second, target)
        begun.hold(ids[0])
        begun.publish_writer(LinkIdentity(link.name, 4_712, 0, *ids))
        recoverer = Recoverer(link, first, source, target)
        seen = recoverer.look()
        assert (seen.kept, seen.identity, seen.found) == (mine, None, ())
        recoverer.recover(seen, "a test")
        LinkClaim(link, first, target).hold(ids[0])
        assert first.links.identity(link.name) == mine
