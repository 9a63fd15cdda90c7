"""All groups of a proxy's clients move to another cluster: gently, and away from one that is gone."""

from __future__ import annotations

import re
import time
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from testkit.errors import mentions, raises
from tests.conftest import ClusterFactory
from tests.scenarios.mirror_rig import Rig, settings_text, spans
from tests.scenarios.plain_clients import PlainReader, TransactionalWriter, written
from tests.scenarios.switch_rig import QUICK, SwitchRig, carried
from tests.scenarios.test_following_writers import until
from tests.scenarios.test_mirror_basic import fill
from tests.scenarios.test_proxy_switch import loaded, moved, paused, proxies
from twinshore.config.errors import RefusedError
from twinshore.config.settings import load_settings
from twinshore.lab.clients import read_group_offsets
from twinshore.lab.cluster import LabCluster
from twinshore.proxy.operations.groups_move import GroupsMoveStage, MoveGroups, act, plan
from twinshore.state.store import open_store

pytestmark = pytest.mark.usefixtures("no_topics_before")


def move_groups(rig: SwitchRig, to: str, *, force: bool = False, gather_s: float = 30.0) -> list[GroupsMoveStage]:
    settings = load_settings(rig.settings, {})
    asked = MoveGroups(to, force, gather_s)
    with open_store(settings.store.url) as store:
        meant = plan(asked, settings, store)
        if meant.refusal:
            raise meant.refusal
        return [step.stage for step in act(asked, meant, settings, store, "test")]


@pytest.mark.long
@pytest.mark.claim("proxy", "groups-move", "all groups move to another cluster with their members: nothing read again")
def test_groups_move_with_their_members_and_read_nothing_again(
    east: LabCluster, west: LabCluster, tmp_path: Path
) -> None:
    with carried(east, west, "proxy-groups", tmp_path) as rig, proxies(rig, 1) as some, loaded(rig, some) as load:
        said = move_groups(rig, "west")
        assert said[-1] is GroupsMoveStage.MOVE, said
        load.reads(500)
        assert min(read_group_offsets(west.cluster, load.topic, load.topic, range(3))) > 100
        with pytest.raises(RefusedError, match="on west, which answers"):
            move_groups(rig, "east", force=True)
        moved(rig, "west", some)
        load.reads(500)
        acked = load.end()
        assert (load.reader.errors, load.reader.again()) == ([], 0)
        rig.same()
        found = written(west, load.topic, acked, rig.partitions)
        assert (found.records, found.wrong) == (len(acked), 0), found
        print(f"told: {found.records} records, 0 read again; members joined {load.reader.assigned} times")


@pytest.mark.long
@pytest.mark.claim(
    "proxy", "forced", "the old home is killed: producers and groups go on at the new one, and see no error"
)
def test_behind_a_dead_home_producers_and_groups_go_on(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    """It is the groups' home as well. What was acknowledged and had not crossed is on the dead home alone."""
    east, west = (cluster_factory(name, heap_mb=256) for name in ("east", "west"))
    topic = "proxy-forced"
    east.create_topic(topic, partitions=3)
    for number in range(3):
        fill(east, topic, 10, partition=number)
    links = {"east->west": topic, "west->east": topic}
    made = Rig(tmp_path, settings_text(tmp_path, [east.cluster, west.cluster], links, mirror=QUICK))
    made.process.start()
    try:
        until(lambda: spans(west.cluster, topic, 3) == [(0, 10)] * 3, 120, "carried")
        rig = SwitchRig(made, topic, east, west)
        with proxies(rig, 1) as some, loaded(rig, some) as load:
            until(lambda: min(read_group_offsets(west.cluster, topic, topic, range(3))) > 20, 60, "places cross")
            for broker in east.brokers:
                broker.kill()
            time.sleep(2)
            before = {(one.key, one.number) for writer in load.writers for one in list(writer.acked)}
            said = rig.move("west", "--force")
            assert said.code == 0, said.text
            assert move_groups(rig, "west", force=True) == [GroupsMoveStage.MOVE]
            load.reads(500)
            acked = [one for writer in load.writers for one in writer.stop()]
            found = written(west, topic, acked, 3)
            after = [one for one in acked if (one.key, one.number) not in before]
            there = written(west, topic, after, 3)
            until(lambda: len({place for place, _, _ in load.reader.read}) >= there.records, 60, "it reads all")
            unsure = some[0].metrics()["twinshore_proxy_possible_duplicate_records_total"]
        assert [writer.failed for writer in load.writers] == [[], []], some[0].said()
        assert (there.lost, there.reordered) == (0, 0), there
        assert found.doubled <= unsure, "mirror and store live: what had crossed is known"
        print(
            f"told: {len(after)} acknowledged behind the kill, 0 lost; {found.lost} acknowledged before had not"
            f" crossed, {found.doubled} are there twice; {load.reader.again()} of {found.records} read again"
        )
    finally:
        made.process.end()


@pytest.mark.long
@pytest.mark.claim(
    "proxy",
    "groups-right-behind",
    "After a switch, and after groups move right behind it, the other cluster knows within 3 s where groups are",
)
def test_groups_that_move_right_behind_a_switch_are_known_on_both_clusters(
    east: LabCluster, west: LabCluster, tmp_path: Path
) -> None:
    with (
        carried(east, west, "proxy-groups-behind", tmp_path) as rig,
        proxies(rig, 1) as some,
        loaded(rig, some) as load,
    ):

        def places(lab: LabCluster) -> int:
            return sum(read_group_offsets(lab.cluster, load.topic, load.topic, range(3)))

        def known_on(home: LabCluster, other: LabCluster) -> None:
            """Not of before: what the group reads from now on."""
            load.reads(200)
            reached = places(home)
            until(lambda: places(other) >= reached, 3, f"{other.cluster.name} knows what was read a moment ago")

        moved(rig, "west", some)
        known_on(east, west)
        began_s = time.monotonic()
        assert move_groups(rig, "west")[-1] is GroupsMoveStage.MOVE
        took_s = time.monotonic() - began_s
        known_on(west, east)
        load.end()
        assert (load.reader.errors, load.reader.again()) == ([], 0)
        print(f"told: groups moved in {took_s:.1f} s; the other cluster knew of both homes within 3 s")


@pytest.mark.long
@pytest.mark.claim(
    "proxy",
    "groups-along",
    "`switch run --groups` moves topics and all groups in one command; a transactional producer aborts once at most",
)
def test_groups_go_along_with_a_switch_in_one_command(east: LabCluster, west: LabCluster, tmp_path: Path) -> None:
    with carried(east, west, "proxy-groups-along", tmp_path) as rig, proxies(rig, 1) as some, loaded(rig, some) as load:
        transactions = TransactionalWriter(some[0].bootstrap, rig.topic)
        try:
            until(lambda: len(transactions.committed_s) > 20, 60, "transactions are committed")
            load.reader.longest_pause_s = 0.0
            said = rig.move("west", "--groups")
            assert said.code == 0, said.text
            assert mentions(said.text, "groups", "at home on west")
            load.reads(500)
            count = len(transactions.committed_s) + 20
            until(lambda: len(transactions.committed_s) > count, 60, "transactions are committed on west")
        finally:
            transactions.stop()
        load.end()
        assert (load.reader.errors, load.reader.again()) == ([], 0)
        assert [writer.failed for writer in load.writers] == [[], []]
        assert set(transactions.aborted) <= {KafkaError.INVALID_PRODUCER_ID_MAPPING}, "it is given an id on west"
        rig.same()
        read_s, committed_s = load.reader.longest_pause_s, transactions.longest_pause_s()
        print(
            f"told: topics and groups moved, 0 records read again; {paused(load)}, two commits of a transactional one"
            f" {committed_s:.1f} s, two reads {read_s:.1f} s"
        )


@pytest.mark.long
@pytest.mark.claim(
    "proxy",
    "groups-again",
    "What groups would read again, if a cluster died now, is a second's worth (median), before and behind a switch",
)
def test_groups_would_read_a_second_again_if_a_cluster_died(east: LabCluster, west: LabCluster, tmp_path: Path) -> None:
    def worth_s(to: str) -> float:
        """Of the cluster where more would be read again, by the records that are written in a second."""
        found = [
            max(int(one.replace(",", "")) for one in re.findall(r"([\d,]+) records?(?: again)? if", said.text))
            for said in (rig.switch("plan", rig.topic, "--to", to) for _ in range(5))
        ]
        return sorted(found)[2] / (2 * 500)

    with carried(east, west, "proxy-groups-again", tmp_path) as rig, proxies(rig, 1) as some, loaded(rig, some) as load:
        before_s = worth_s("west")
        moved(rig, "west", some)
        load.reads(500)
        behind_s = worth_s("east")
        load.end()
        print(f"told: {before_s:.1f} s of records before the switch, {behind_s:.1f} s behind it")
        assert max(before_s, behind_s) <= 1.5


@pytest.mark.claim(
    "proxy",
    "groups-pending",
    "Groups do not move while an open transaction has sent offsets of them; then they move behind it",
)
def test_groups_do_not_move_while_a_transaction_has_offsets_pending(
    east: LabCluster, west: LabCluster, tmp_path: Path
) -> None:
    with carried(east, west, "proxy-groups-pending", tmp_path) as rig:
        names = {"bootstrap.servers": east.bootstrap[0], "group.id": "pending"}
        with closing(Consumer(names)) as consumer:
            consumer.commit(offsets=[TopicPartition(rig.topic, 0, 3)], asynchronous=False)
            meta = consumer.consumer_group_metadata()
            producer = Producer({**names, "transactional.id": "pending-tx"})
            producer.init_transactions(60)
            producer.begin_transaction()
            producer.send_offsets_to_transaction([TopicPartition(rig.topic, 0, 7)], meta, 30)

            def is_refused_for_it() -> bool:
                """The first rounds of the link may not have seen the group yet, which is refused too."""
                with pytest.raises(RefusedError) as why:
                    move_groups(rig, "west")
                return "an open transaction on east" in why.value.message

            until(is_refused_for_it, 60, "the transaction keeps groups where they are")
            producer.commit_transaction(30)
        assert move_groups(rig, "west")[-1] is GroupsMoveStage.MOVE
        assert read_group_offsets(west.cluster, "pending", rig.topic, [0]) == [7]


def test_a_group_that_came_past_the_proxies_is_named_and_nothing_is_done(
    east: LabCluster, west: LabCluster, tmp_path: Path
) -> None:
    with carried(east, west, "proxy-groups-plan", tmp_path) as rig:
        reader = PlainReader(west.bootstrap[0], "direct", [rig.topic])
        try:
            until(lambda: reader.assigned > 0 and len(reader.read) == 30, 60, "it reads on west")
            time.sleep(1)
            with raises(RefusedError, "proxy.target-has-members", cluster="west", groups="direct"):
                move_groups(rig, "west")
        finally:
            reader.stop()
