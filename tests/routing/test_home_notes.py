"""Home lines on real brokers: who wrote what stands, whatever others write, and a cluster that does not answer."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from threading import Thread

import pytest

from testkit.errors import raises
from twinshore.config.errors import KafkaError, RefusedError
from twinshore.config.frozen import FOLLOWERS_TOPIC, HOMES_TOPIC
from twinshore.config.model import Cluster
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.state_topic import StateTopic
from twinshore.lab.clients import create_admin_client
from twinshore.lab.cluster import LabCluster
from twinshore.routing.core.home_records import PART_BYTES, PARTITIONS_MAX, HomeRecord, HomeState
from twinshore.routing.core.subscribers import HomeSubscriber, unsubscribe_record
from twinshore.routing.homes_topic import READ_BACK_MS, HomesTopic, SubscribersTopic

ONE, TWO = "1" * 32, "2" * 32
EAST = HomeRecord(topic="orders", home="east", cluster_id="id-e", term=1, step=1, state=HomeState.ANNOUNCED, switch=ONE)
WEST = HomeRecord(topic="orders", home="west", cluster_id="id-w", term=2, switch=ONE, points=(5, 7))


@pytest.fixture
def kafka(east: LabCluster) -> Iterator[KafkaCluster]:
    forget(east, HOMES_TOPIC, FOLLOWERS_TOPIC)
    with closing(KafkaCluster(east.cluster, patience_s=20)) as cluster:
        yield cluster
    forget(east, HOMES_TOPIC, FOLLOWERS_TOPIC)


def forget(lab: LabCluster, *topics: str) -> None:
    admin = create_admin_client(lab.cluster)
    there = [topic for topic in topics if topic in admin.list_topics(timeout=10).topics]
    for future in admin.delete_topics(there).values() if there else ():
        future.result(timeout=30)
    while any(topic in admin.list_topics(timeout=10).topics for topic in there):
        time.sleep(0.05)


def test_what_one_writes_another_reads(kafka: KafkaCluster) -> None:
    ours, theirs = HomesTopic(kafka), HomesTopic(kafka)
    assert (ours.exists(), ours.read()) == (False, {})
    ours.make()
    ours.make()
    assert ours.say([EAST, replace(EAST, topic="bills")], 5) == {"orders": EAST, "bills": replace(EAST, topic="bills")}
    assert theirs.read()["orders"] == EAST
    assert ours.say([WEST], 6) == {"orders": WEST}
    assert theirs.read()["orders"] == WEST, "it reads on where it stood"


def test_who_loses_learns_it_and_what_stands_is_the_last_line(kafka: KafkaCluster) -> None:
    ours, theirs = HomesTopic(kafka), HomesTopic(kafka)
    ours.make()
    ours.say([EAST], 1)
    theirs.read()
    assert ours.say([WEST], 2)["orders"] == WEST
    rival = replace(WEST, switch=TWO)
    # They have not read on, so they write before they know.
    theirs._append([rival.line()], 3)
    assert theirs.say([rival], 4) == {"orders": WEST}
    assert (theirs.log.is_current(rival), theirs.log.is_current(WEST)) == (False, True)
    anew = HomesTopic(kafka)
    anew.read()
    assert (anew.homes, anew.log.mending()) == ({"orders": WEST}, [])


def test_two_that_claim_a_topic_at_once_agree_on_one(kafka: KafkaCluster) -> None:
    HomesTopic(kafka).make()
    found = {}

    def claim(switch: str) -> None:
        found[switch] = HomesTopic(kafka).claim(["orders", "bills"], switch, "somebody", 5)

    threads = [Thread(target=claim, args=(switch,)) for switch in (ONE, TWO)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[ONE] == found[TWO]
    (winner,) = {one.switch for one in found[ONE].values()}
    loser = TWO if winner == ONE else ONE
    notes = HomesTopic(kafka)
    notes.read()
    assert (notes.log.claimed(winner), notes.log.claimed(loser)) == (["bills", "orders"], [])
    notes.release(["orders", "bills"], winner, 6)
    assert notes.claim(["orders"], loser, "somebody", 7)["orders"].switch == loser


def test_a_record_and_a_topic_of_many_partitions_cross_the_brokers_bound_of_a_message(kafka: KafkaCluster) -> None:
    ours, theirs = HomesTopic(kafka), HomesTopic(kafka)
    ours.make()
    wide = [replace(WEST, topic=f"wide-{n}", points=tuple(range(9, PARTITIONS_MAX + 9))) for n in range(12)]
    assert len(ours.say(wide, 1)) == 12
    record = {"state": "held", "points": "x" * (5 * PART_BYTES)}
    seen = ours.save(ONE, {"state": "begun"}, "", 2)
    ours.save(ONE, record, seen, 2)
    ours.save(TWO, {"state": "begun"}, "", 2)
    ours.claim(["orders"], ONE, "somebody", 2)
    theirs.read()
    assert theirs.homes == {line.topic: line for line in wide}
    assert (theirs.log.records.record(ONE), theirs.log.records.switches()) == (record, [ONE, TWO])
    ours.forget(ONE, 3)
    theirs.read()
    assert (theirs.log.records.record(ONE), theirs.log.records.switches()) == (None, [TWO])
    assert theirs.log.claimed(ONE) == ["orders"]


def test_of_two_who_go_on_with_a_switch_the_other_one_is_told(kafka: KafkaCluster) -> None:
    ours, theirs = HomesTopic(kafka), HomesTopic(kafka)
    ours.make()
    first = ours.save(ONE, {"by": "anna"}, "", 1)
    assert ours.save(ONE, {"by": "anna"}, "", 1) == first, "as after an answer that was lost"
    theirs.save(ONE, {"by": "bob"}, first, 2)
    with raises(RefusedError, "routing.switch-taken", switch="11111111"):
        ours.save(ONE, {"by": "anna", "step": "flip"}, first, 3)
    theirs.forget(ONE, 4)
    with pytest.raises(RefusedError):
        ours.save(ONE, {"by": "anna", "step": "flip"}, first, 5)
    assert ours.read() == {}
    assert ours.log.records.switches() == []


def test_a_topic_that_was_made_again_is_read_anew(kafka: KafkaCluster, east: LabCluster) -> None:
    ours = HomesTopic(kafka)
    ours.make()
    ours.say([WEST], 1)
    forget(east, HOMES_TOPIC)
    time.sleep(1.1)
    assert ours.read() == {}
    ours.make()
    assert ours.say([EAST], 2) == {"orders": EAST}


def test_a_topic_that_would_expire_is_made_compact(kafka: KafkaCluster, east: LabCluster) -> None:
    east.create_topic(HOMES_TOPIC, partitions=1)
    HomesTopic(kafka).make()
    assert kafka.admin.topic_settings([HOMES_TOPIC])[HOMES_TOPIC]["cleanup.policy"].value == "compact"


def test_followers_are_heard_and_their_goodbye(kafka: KafkaCluster) -> None:
    ours, theirs = SubscribersTopic(kafka), SubscribersTopic(kafka)
    ours.make()
    one = HomeSubscriber(ONE, "billing", ("orders",), said=1)
    now_ms = wall_ms()
    ours.say(one.line(), now_ms)
    assert theirs.read().living(time.monotonic()) == [one]
    two = replace(one, heard={"orders": (1, 2)}, parked=frozenset({"orders"}), said=2)
    ours.say(two.line(), now_ms + 1)
    assert theirs.read().awaited({"orders": (1, 2)}, time.monotonic()) == {}
    ours.say(unsubscribe_record(ONE), now_ms + 2)
    assert theirs.read().living(time.monotonic()) == []


@pytest.mark.claim("client", "silent-follower", "A switch waits for a silent client however much others have said.")
def test_a_silent_follower_with_a_long_lease_is_known_behind_many_lines_of_others(kafka: KafkaCluster) -> None:
    """400 clients for a minute."""
    ours, now_ms = SubscribersTopic(kafka), wall_ms()
    ours.make()
    notebook = StateTopic(kafka, FOLLOWERS_TOPIC)
    gone = HomeSubscriber(TWO, "gone", ("orders",), lease_ms=60_000, said=1)
    notebook.append([gone.line()], now_ms - READ_BACK_MS - 60_000)
    silent = HomeSubscriber(ONE, "silent", ("orders",), lease_ms=60_000, said=1)
    notebook.append([silent.line()], now_ms - 55_000)
    for second in range(55):
        others = [HomeSubscriber(f"{one:032x}", f"c{one}", ("other",), said=second + 1).line() for one in range(400)]
        notebook.append(others, now_ms - 55_000 + second * 1000)
    found = ours.read()
    assert found.awaited({"orders": (1, 2)}, time.monotonic()) == {"orders": [silent]}
    assert len(found.living(time.monotonic())) == 401


def test_lines_of_followers_that_are_all_old_are_passed_over(kafka: KafkaCluster) -> None:
    ours = SubscribersTopic(kafka)
    ours.make()
    ours.say(HomeSubscriber(ONE, "gone", ("orders",), said=1).line(), wall_ms() - READ_BACK_MS - 60_000)
    assert ours.read().living(time.monotonic()) == []
    ours.say(HomeSubscriber(TWO, "new", ("orders",), said=1).line(), wall_ms())
    assert [one.name for one in ours.read().living(time.monotonic())] == ["new"]


@pytest.mark.parametrize("silent", [False, True], ids=["nobody there", "silent"])
def test_a_cluster_that_does_not_answer_is_an_error_within_the_bound_that_was_given(
    silent: bool, unused_tcp_ports: tuple[int, int]
) -> None:
    gone, mute = unused_tcp_ports
    address = f"127.0.0.1:{mute if silent else gone}"
    with closing(KafkaCluster(Cluster("east", (address,)), patience_s=0.3)) as away:
        notes, followers = HomesTopic(away), SubscribersTopic(away)
        for ask in (
            notes.read,
            notes.make,
            lambda: notes.say([WEST], 1),
            lambda: notes.claim(["orders"], ONE, "somebody", 1),
            lambda: notes.save(ONE, {}, "", 1),
            lambda: followers.say(unsubscribe_record(ONE), 1),
            followers.read,
        ):
            began_s = time.monotonic()
            with pytest.raises(KafkaError):
                ask()
            assert time.monotonic() - began_s < 3.0


@pytest.fixture
def unused_tcp_ports() -> Iterator[tuple[int, int]]:
    """One at which nobody listens, and one at which somebody does who never answers."""
    with socket.socket() as mute, socket.socket() as gone:
        mute.bind(("127.0.0.1", 0))
        mute.listen(50)
        gone.bind(("127.0.0.1", 0))
        yield gone.getsockname()[1], mute.getsockname()[1]
