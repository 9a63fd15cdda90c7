"""Groups of the newer protocol (KIP-848) through the proxy: real clients, to which real coordinators deal out."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from testkit.errors import mentions, raises
from testkit.jars import fetch_tools_classpath
from tests.conftest import ClusterFactory
from tests.kafka.protocol.serving.java_clients import JavaClients, java_clients
from tests.proxy.served import ProxyProcess, proxy_before
from tests.scenarios.test_following_writers import until
from tests.scenarios.test_proxy import produce, producer_of, values
from twinshore.config.errors import RefusedError
from twinshore.config.model import Cluster
from twinshore.config.settings import load_settings
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.clients import read_group_offsets
from twinshore.lab.cluster import LabCluster
from twinshore.lab.jars import KAFKA_NEWEST, ONE_COMPILER_FLAG
from twinshore.lab.jars import find_java as java_program
from twinshore.proxy.cluster_view import POLL_INTERVAL_S, TOPICS_REFRESH_INTERVAL_S
from twinshore.proxy.operations import groups_move, reset_offsets
from twinshore.state.core.values import HomeRow
from twinshore.state.store import open_store

Part = tuple[str, int]
OWN, TWIN, AWAY = "newer-own", "newer-twin", "newer-away"
HOME = HomeRow("east<>west", TWIN, "west", 1, 1, "test")
NEWER = {"group.protocol": "consumer"}


class Member(Protocol):
    read: list[tuple[str, int, int, str]]

    def poll(self) -> int: ...
    def parts(self) -> set[Part]: ...
    def commit(self) -> None: ...
    def close(self) -> None: ...


class Rdkafka:
    """One of librdkafka."""

    def __init__(self, bootstrap: str, group: str, topics: list[str], settings: dict[str, str]) -> None:
        own = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "log_level": 1}
        self._consumer = Consumer({**own, "enable.auto.commit": False, **settings})
        self._consumer.subscribe(topics)
        self.read: list[tuple[str, int, int, str]] = []

    def poll(self) -> int:
        found = self._consumer.consume(500, 0.2)
        for one in found:
            if (error := one.error()) is not None:
                raise KafkaException(error)
            place = one.topic() or "", one.partition() or 0, one.offset() or 0
            self.read.append((*place, (one.value() or b"").decode()))
        return len(found)

    def parts(self) -> set[Part]:
        return {(one.topic, one.partition) for one in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def commits(self, place: TopicPartition) -> bool:
        """Whether its coordinator is there."""
        try:
            self._consumer.commit(offsets=[place], asynchronous=False)
        except KafkaException as error:
            assert error.args[0].code() == KafkaError.COORDINATOR_LOAD_IN_PROGRESS, error
            return False
        return True

    def close(self) -> None:
        self._consumer.close()


Makes = Callable[[str, str, list[str], dict[str, str]], Member]


@pytest.fixture(scope="module")
def java() -> Iterator[JavaClients]:
    with java_clients(KAFKA_NEWEST) as made:
        yield made


@pytest.fixture(params=["librdkafka", pytest.param("java", marks=pytest.mark.long)])
def makes(request: pytest.FixtureRequest) -> Makes:
    return Rdkafka if request.param == "librdkafka" else request.getfixturevalue("java").member


@pytest.fixture(scope="module")
def proxy(east: LabCluster, west: LabCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    """Groups are at home on east, which has a topic of its own, and the twin of one of west's."""
    east.create_topic(OWN, partitions=2)
    west.create_topic(AWAY, partitions=2)
    for lab in (east, west):
        lab.create_topic(TWIN, partitions=2)
    folder = tmp_path_factory.mktemp("proxy")
    with open_store(f"sqlite:///{folder}/store.db") as store:
        store.homes.settle([HOME])
    with proxy_before(folder, east.cluster, west.cluster) as made:
        yield made


def gather(members: Sequence[Member], parts: set[Part], count: int = 0, within_s: float = 60) -> list[str]:
    """What they have read once all is dealt out among them, once, and so many records have come."""
    until_s = time.monotonic() + within_s
    while True:
        for one in members:
            one.poll()
        shares = [one.parts() for one in members]
        dealt = all(shares) and set().union(*shares) == parts and sum(map(len, shares)) == len(parts)
        read = [value for one in members for _, _, _, value in one.read]
        if dealt and len(read) >= count:
            return read
        assert time.monotonic() < until_s, (shares, len(read))


def both(*topics: str) -> set[Part]:
    return {(topic, number) for topic in topics for number in range(2)}


def ids(cluster: Cluster) -> dict[str, bytes]:
    with closing(KafkaCluster(cluster)) as kafka:
        return {name: topic.topic_id for name, topic in kafka.metadata().topics.items()}


def refusal_of(member: Member, within_s: float = 20) -> str:
    """What the member's application is told."""
    until_s = time.monotonic() + within_s
    while time.monotonic() < until_s:
        try:
            member.poll()
        except KafkaException as error:
            return str(error)
        except Py4JJavaError as error:
            return str(error.java_exception)
    raise AssertionError("nobody refused it")


def test_members_share_out_a_topic_and_a_twin_commit_and_read_on(
    proxy: ProxyProcess, east: LabCluster, west: LabCluster, makes: Makes
) -> None:
    """The coordinator on east deals out the partitions of the twin, and they are read on west."""
    group = f"shared-{time.monotonic_ns()}"
    producer = producer_of(proxy.bootstrap)
    with ExitStack() as stack:

        def joins() -> Member:
            made = makes(proxy.bootstrap, group, [OWN, TWIN], NEWER)
            return stack.enter_context(closing(made))

        first = joins()
        before = len(gather([first], both(OWN, TWIN)))
        second = joins()
        gather([first, second], both(OWN, TWIN))
        for topic in (OWN, TWIN):
            produce(producer, topic, values(f"{group}-{topic}", 50))
        wanted = {*values(f"{group}-{OWN}", 50), *values(f"{group}-{TWIN}", 50)}
        gather([first, second], both(OWN, TWIN), before + 100)
        until(
            lambda: wanted <= {one[3] for some in (first, second) for one in some.read if some.poll() >= 0}, 30, "all"
        )
        for one in (first, second):
            one.commit()
    admin = AdminClient({"bootstrap.servers": proxy.bootstrap})
    told = admin.describe_consumer_groups([group])[group].result(20)
    assert told.state.name == "EMPTY"
    places = {topic: read_group_offsets(east.cluster, group, topic, [0, 1]) for topic in (OWN, TWIN)}
    ends = {topic: sum(max(0, place) for place in some) for topic, some in places.items()}
    assert min(ends.values()) >= 50, "places are kept where groups are at home"
    with closing(makes(proxy.bootstrap, group, [OWN, TWIN], NEWER)) as third:
        produce(producer, TWIN, [f"{group} more"])
        assert gather([third], both(OWN, TWIN), 1) == [f"{group} more"], "nothing comes again"
    assert ids(Cluster("proxy", (proxy.bootstrap,)))[TWIN] == ids(east.cluster)[TWIN] != ids(west.cluster)[TWIN]


def test_who_reads_a_topic_without_a_twin_is_refused_and_the_topic_is_named(proxy: ProxyProcess, makes: Makes) -> None:
    for topics in ([AWAY], [OWN, AWAY]):
        with closing(makes(proxy.bootstrap, "refused", topics, NEWER)) as member:
            said = refusal_of(member)
            assert "nvalid request" in said or f"cannot read {AWAY}" in said, said
    why = f"a client is refused: group refused cannot read {AWAY}: groups are at home on east, which does not have it"
    until(lambda: proxy.has_said(why), 5, "the log says it")


def test_a_pattern_is_served_where_it_means_nothing_that_is_elsewhere_alone(proxy: ProxyProcess) -> None:
    with closing(Rdkafka(proxy.bootstrap, "by-pattern", ["^newer-ow.*", "^newer-twin"], NEWER)) as member:
        gather([member], both(OWN, TWIN))
    with closing(Rdkafka(proxy.bootstrap, "by-wide-pattern", ["^newer-.*"], NEWER)) as member:
        assert "Invalid request" in refusal_of(member)
    why = f"group by-wide-pattern cannot read by the pattern (^newer-.*), which may mean {AWAY}"
    until(lambda: proxy.has_said(why), 5, "the log says it")


def test_a_topic_that_is_made_elsewhere_under_a_member_ends_it(proxy: ProxyProcess, west: LabCluster) -> None:
    """Brokers let a member wait for a topic that is not there yet. Its coordinator would never hear of this one."""
    with closing(Rdkafka(proxy.bootstrap, "early", [OWN, "newer-late"], NEWER)) as member:
        gather([member], both(OWN))
        west.create_topic("newer-late")
        assert "Invalid request" in refusal_of(member, 30)
    until(lambda: proxy.has_said("group early cannot read newer-late"), 5, "the log says it")


def test_a_topic_changes_its_home_under_members_who_stay(
    proxy: ProxyProcess, east: LabCluster, west: LabCluster, makes: Makes
) -> None:
    """As a mirror would have it, both clusters have the same records."""
    topic = f"newer-moves-{time.monotonic_ns()}"
    for lab in (east, west):
        lab.create_topic(topic, partitions=2)
    row = replace(HOME, topic=topic, home="east")
    with open_store(proxy.url) as store:
        store.homes.settle([row])
    time.sleep(TOPICS_REFRESH_INTERVAL_S + POLL_INTERVAL_S)
    sent = [producer_of(one) for one in (proxy.bootstrap, west.bootstrap[0])]
    with closing(makes(proxy.bootstrap, f"group-{topic}", [topic], NEWER)) as member:
        gather([member], both(topic))
        for producer in sent:
            for number in range(2):
                for value in values(f"before {number}", 20):
                    producer.produce(topic, value, partition=number)
            assert producer.flush(30) == 0
        gather([member], both(topic), 40)
        parts, told = member.parts(), ids(Cluster("proxy", (proxy.bootstrap,)))[topic]
        with open_store(proxy.url) as store:
            assert store.homes.move(replace(row, home="west"), seen=1) is not None
        time.sleep(2 * POLL_INTERVAL_S)
        produce(sent[0], topic, values("after"))
        read = gather([member], both(topic), 240)
        assert sorted(read) == sorted([*values("before 0", 20), *values("before 1", 20), *values("after")])
        member.commit()
        assert member.parts() == parts
    assert ids(Cluster("proxy", (proxy.bootstrap,)))[topic] == told == ids(east.cluster)[topic]
    assert sum(read_group_offsets(east.cluster, f"group-{topic}", topic, [0, 1])) == 240


def test_a_member_commits_a_place_in_a_topic_that_is_elsewhere_and_only_as_a_member(
    proxy: ProxyProcess, west: LabCluster
) -> None:
    member = Rdkafka(proxy.bootstrap, "places", [OWN], NEWER)
    with closing(member):
        gather([member], both(OWN))
        until(lambda: member.commits(TopicPartition(AWAY, 0, 7)), 30, "west has a coordinator, as of its first group")
        assert read_group_offsets(west.cluster, "places", AWAY, [0]) == [7]
        outside = Consumer({"bootstrap.servers": proxy.bootstrap, "group.id": "places", "log_level": 1})
        with pytest.raises(KafkaException, match="UNKNOWN_MEMBER_ID"):
            outside.commit(offsets=[TopicPartition(OWN, 0, 1)], asynchronous=False)
        outside.close()


def test_classic_members_of_topics_elsewhere_and_newer_ones_are_kept_apart(proxy: ProxyProcess) -> None:
    classic = {"session.timeout.ms": "10000", "heartbeat.interval.ms": "500"}
    with closing(Rdkafka(proxy.bootstrap, "mixed", [OWN, AWAY], classic)) as old:
        gather([old], both(OWN, AWAY))
        with closing(Rdkafka(proxy.bootstrap, "mixed", [OWN], NEWER)) as new:
            assert "Invalid request" in refusal_of(new)
        until(
            lambda: proxy.has_said(f"group mixed cannot have members of both protocols: classic ones read {AWAY}"),
            5,
            "",
        )
        gather([old], both(OWN, AWAY))
    with closing(Rdkafka(proxy.bootstrap, "mixed-2", [OWN], NEWER)) as new:
        gather([new], both(OWN))
        with closing(Rdkafka(proxy.bootstrap, "mixed-2", [OWN, AWAY], classic)) as old:
            assert "protocol" in refusal_of(old, 30)
        # Where all topics are there an application is moved to the new protocol one member after another.
        with closing(Rdkafka(proxy.bootstrap, "mixed-3", [OWN, TWIN], classic)) as first:
            gather([first], both(OWN, TWIN))
            with closing(Rdkafka(proxy.bootstrap, "mixed-3", [OWN, TWIN], NEWER)) as second:
                gather([first, second], both(OWN, TWIN))


def test_a_group_with_members_neither_moves_nor_is_set_to_other_places(proxy: ProxyProcess) -> None:
    settings = load_settings(proxy.settings, {})
    asked = reset_offsets.parse_reset_request("stays", [f"{OWN}:0"], offset=0)
    producer = producer_of(proxy.bootstrap)
    producer.produce(OWN, "to be read twice", partition=0)
    assert producer.flush(30) == 0
    with open_store(proxy.url) as store:
        with closing(Rdkafka(proxy.bootstrap, "stays", [OWN], NEWER)) as member:
            gather([member], both(OWN), 1)
            moves = groups_move.plan(groups_move.MoveGroups("west"), settings, store)
            # Members whose client has ended with an error count for a while as well.
            assert isinstance(moves.refusal, RefusedError) and moves.refusal.code == "proxy.move-needs-empty-groups"
            assert mentions(moves.refusal.message, "stays")
            with raises(RefusedError, "proxy.reset-needs-empty-group", group="stays"):
                reset_offsets.plan(asked, settings, store)
            member.commit()
        meant = reset_offsets.plan(asked, settings, store)
        assert meant.refusal is None
        done = [step.sentence(done=True) for step in reset_offsets.act(asked, meant, settings, store, "test")]
    assert done[-1].startswith("members rejoin"), done
    with closing(Rdkafka(proxy.bootstrap, "stays", [OWN], NEWER)) as member:
        gather([member], both(OWN), 1)
        assert ("newer-own", 0, 0) in {one[:3] for one in member.read}, "it reads on from the new place"


def set_feature(bootstrap: str, *words: str) -> None:
    command = [
        java_program(),
        ONE_COMPILER_FLAG,
        "-cp",
        fetch_tools_classpath(),
        "org.apache.kafka.tools.FeatureCommand",
    ]
    subprocess.run([*command, "--bootstrap-server", bootstrap, *words], check=True, capture_output=True, timeout=60)


def test_a_cluster_may_get_such_groups_while_the_proxy_runs(
    east: LabCluster, cluster_factory: ClusterFactory, tmp_path: Path
) -> None:
    own = cluster_factory("own", heap_mb=256)
    set_feature(own.bootstrap[0], "downgrade", "--feature", "group.version=0")
    east.create_topic("newer-raised", partitions=2)
    with proxy_before(tmp_path, east.cluster, own.cluster) as ours:
        with closing(Rdkafka(ours.bootstrap, "raised", ["newer-raised"], NEWER)) as member:
            assert "version not supported" in refusal_of(member)
        set_feature(own.bootstrap[0], "upgrade", "--feature", "group.version=1")
        time.sleep(TOPICS_REFRESH_INTERVAL_S + 3 * POLL_INTERVAL_S)
        with closing(Rdkafka(ours.bootstrap, "raised", ["newer-raised"], NEWER)) as member:
            gather([member], both("newer-raised"))


def test_before_an_older_cluster_such_groups_are_refused(
    east: LabCluster, cluster_factory: ClusterFactory, tmp_path: Path, java: JavaClients
) -> None:
    old = cluster_factory("old", version="3.9.2", heap_mb=256)
    with proxy_before(tmp_path, east.cluster, old.cluster) as ours:
        east.create_topic("newer-before-old")
        for makes in (Rdkafka, java.member):
            with closing(makes(ours.bootstrap, "g", ["newer-before-old"], NEWER)) as member:
                said = refusal_of(member)
                assert "version not supported" in said or "UnsupportedVersion" in said, said
        why = "group g is of the new protocol, which old does not have: set group.protocol=classic"
        until(lambda: ours.has_said(why), 5, "the log says it")
