"""Admin tools come to the proxy as to one cluster: confluent-kafka's AdminClient, and Kafka's own tools."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    ElectionType,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

from testkit.errors import mentions
from tests.conftest import ClusterFactory
from tests.kafka.protocol.serving.java_clients import java_clients
from tests.pages.shell import kafka_tools, play
from tests.proxy.served import ProxyProcess, proxy_before
from tests.scenarios import streams_stage
from tests.scenarios.mirror_rig import until
from twinshore.config.model import Cluster
from twinshore.lab.clients import read_group_offsets
from twinshore.lab.cluster import LabCluster
from twinshore.lab.jars import KAFKA_3, KAFKA_NEWEST

WITHIN_S = 60
RULES = '[proxy.new_topics_by_name]\n"padm-app-*" = "west"\n'
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def proxy(east: LabCluster, west: LabCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    """New topics are made on east, those of an application on west."""
    for lab in (east, west):
        lab.create_topic("padm-shared")
    with proxy_before(tmp_path_factory.mktemp("proxy-admin"), east.cluster, west.cluster, more=RULES) as made:
        yield made


def admin_of(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})


def one(futures: Any) -> Any:
    """What came of the only thing that was asked."""
    (future,) = futures.values() if isinstance(futures, dict) else [futures]
    return future.result(WITHIN_S)


def refused(futures: Any) -> tuple[str, str]:
    """Why the only thing that was asked was not done."""
    with pytest.raises(KafkaException) as caught:
        one(futures)
    error: KafkaError = caught.value.args[0]
    return error.name(), error.str()


def written(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 2})
    for number in range(count):
        producer.produce(topic, str(number), partition=0)
    assert producer.flush(WITHIN_S) == 0


def topics_of(bootstrap: str) -> set[str]:
    return {name for name in admin_of(bootstrap).list_topics(timeout=WITHIN_S).topics if name.startswith("padm-")}


def made(admin: AdminClient, *names: str) -> None:
    """Returns once brokers know of them, a moment after the controller has made them."""
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        future.result(WITHIN_S)
    until_s = time.monotonic() + WITHIN_S
    while not set(names) <= admin.list_topics(timeout=WITHIN_S).topics.keys():
        assert time.monotonic() < until_s
        time.sleep(0.05)


def test_topics_are_made_grown_and_deleted_where_they_belong(
    proxy: ProxyProcess, east: LabCluster, west: LabCluster
) -> None:
    admin = admin_of(proxy.bootstrap)
    one(admin.create_topics([NewTopic("padm-tried", 1, 1)], validate_only=True))
    made(admin, "padm-made", "padm-app-made")
    assert refused(admin.create_topics([NewTopic("padm-app-made", 1, 1)]))[0] == "TOPIC_ALREADY_EXISTS"
    one(admin.create_partitions([NewPartitions("padm-app-made", 3)]))
    assert {"padm-made", "padm-app-made"} <= topics_of(proxy.bootstrap)
    assert topics_of(east.bootstrap[0]) >= {"padm-made"}
    assert topics_of(west.bootstrap[0]) >= {"padm-app-made"}
    assert "padm-tried" not in topics_of(east.bootstrap[0]) | topics_of(west.bootstrap[0])
    assert "padm-made" not in topics_of(west.bootstrap[0])
    until(lambda: partitions_of(west, "padm-app-made") == 3, WITHIN_S, "it has grown")

    assert refused(admin.delete_topics(["padm-shared"]))[0] == "POLICY_VIOLATION", "it is on both"
    for future in admin.delete_topics(["padm-made", "padm-app-made"]).values():
        future.result(WITHIN_S)
    # At once again: what was known of it a moment ago is asked anew.
    made(admin, "padm-made", "padm-app-made")
    assert partitions_of(west, "padm-app-made") == 1


def partitions_of(lab: LabCluster, topic: str) -> int:
    told = admin_of(lab.bootstrap[0]).list_topics(topic, timeout=WITHIN_S)
    return len(told.topics[topic].partitions)


def test_settings_are_told_and_changed_where_they_are(proxy: ProxyProcess, west: LabCluster) -> None:
    admin = admin_of(proxy.bootstrap)
    made(admin, "padm-app-set")
    topic = ConfigResource(ConfigResource.Type.TOPIC, "padm-app-set")
    topic.add_incremental_config(ConfigEntry("retention.ms", "123456", incremental_operation=AlterConfigOpType.SET))
    one(admin.incremental_alter_configs([topic]))
    for bootstrap in (proxy.bootstrap, west.bootstrap[0]):
        asker = admin_of(bootstrap)
        told = one(asker.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, "padm-app-set")]))
        assert told["retention.ms"].value == "123456"
    number = str(proxy.port_of("west", 1) - proxy.port - 1)
    told = one(admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, number)]))
    assert (told["node.id"].value, told["listeners"].value, told["listeners"].is_sensitive) == (number, None, True)
    real = {west.bootstrap[0].rpartition(":")[2], *(one.rpartition(":")[2] for one in west.bootstrap)}
    texts = " ".join(entry.value or "" for entry in told.values())
    assert not any(port in texts for port in real)


def set_back(admin: AdminClient, group: str, places: list[TopicPartition]) -> list[TopicPartition]:
    told = one(admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)]))
    found: list[TopicPartition] = told.topic_partitions
    return found


def test_a_group_over_both_clusters_is_set_back_and_deleted(
    proxy: ProxyProcess, east: LabCluster, west: LabCluster
) -> None:
    admin, group = admin_of(proxy.bootstrap), "padm-group"
    made(admin, "padm-read", "padm-app-read")
    for topic in ("padm-read", "padm-app-read"):
        written(proxy.bootstrap, topic, 10)
    places = [TopicPartition("padm-read", 0, 4), TopicPartition("padm-app-read", 0, 5)]
    until_s = time.monotonic() + WITHIN_S
    while any(place.error for place in set_back(admin, group, places)):
        assert time.monotonic() < until_s, "a coordinator that has just begun loads for a moment"
    told = one(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))
    assert {(place.topic, place.offset) for place in told.topic_partitions} == {("padm-read", 4), ("padm-app-read", 5)}
    assert group in {found.group_id for found in one(admin.list_consumer_groups()).valid}
    one(admin.delete_consumer_groups([group]))
    for lab, topic in ((east, "padm-read"), (west, "padm-app-read")):
        assert all(place < 0 for place in read_group_offsets(lab.cluster, group, topic, [0]))
    assert refused(admin.delete_consumer_groups([group]))[0] == "GROUP_ID_NOT_FOUND"


def test_records_are_deleted_at_the_leader(proxy: ProxyProcess) -> None:
    admin = admin_of(proxy.bootstrap)
    made(admin, "padm-cut", "padm-app-cut")
    for topic in ("padm-cut", "padm-app-cut"):
        written(proxy.bootstrap, topic, 10)
    places = [TopicPartition("padm-cut", 0, 4), TopicPartition("padm-app-cut", 0, 5)]
    found = {place.topic: future.result(WITHIN_S) for place, future in admin.delete_records(places).items()}
    assert {topic: result.low_watermark for topic, result in found.items()} == {"padm-cut": 4, "padm-app-cut": 5}
    offsets: Any = OffsetSpec
    asks = {TopicPartition(topic, 0): offsets.earliest() for topic in ("padm-cut", "padm-app-cut")}
    ends = {place.topic: future.result(WITHIN_S).offset for place, future in admin.list_offsets(asks).items()}
    assert ends == {"padm-cut": 4, "padm-app-cut": 5}


def test_what_is_refused_says_so_in_a_sentence(proxy: ProxyProcess) -> None:
    admin = admin_of(proxy.bootstrap)
    hung_up = proxy.metrics()["twinshore_proxy_connections_closed_total"]
    binding = AclBinding(
        ResourceType.TOPIC,
        "padm-shared",
        ResourcePatternType.LITERAL,
        "User:me",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    name, says = refused(admin.create_acls([binding]))
    assert (name, mentions(says, "ACLs")) == ("POLICY_VIOLATION", True)
    every: Any = None
    rights = (AclOperation.ANY, AclPermissionType.ANY)
    anything = AclBindingFilter(ResourceType.ANY, every, ResourcePatternType.ANY, every, every, *rights)
    assert refused(admin.delete_acls([anything]))[0] == "POLICY_VIOLATION"
    assert refused(admin.describe_user_scram_credentials())[0] == "_UNSUPPORTED_FEATURE", "it is not offered"
    told = one(admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition("padm-shared", 0)]))
    ((_, error),) = told.items()
    assert mentions(error.str(), "leaders")
    assert proxy.metrics()["twinshore_proxy_connections_closed_total"] == hung_up


def test_two_versions_are_administered_as_one_and_a_cluster_that_dies_costs_its_own_alone(
    west: LabCluster, cluster_factory: ClusterFactory, tmp_path: Path
) -> None:
    old = cluster_factory("old", version=KAFKA_3, heap_mb=256)
    rules = '[proxy.new_topics_by_name]\n"padm-app-*" = "west"\n'
    with proxy_before(tmp_path, old.cluster, west.cluster, more=rules) as ours:
        until_s = time.monotonic() + WITHIN_S
        while not ours.metrics().get('twinshore_proxy_cluster_up{cluster="old"}'):
            assert time.monotonic() < until_s, ours.said()
            time.sleep(0.2)
        admin = admin_of(ours.bootstrap)
        made(admin, "padm-old", "padm-app-old")
        assert topics_of(old.bootstrap[0]) == {"padm-old"}
        for topic in ("padm-old", "padm-app-old"):
            told = one(admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]))
            assert "retention.ms" in told
        for future in admin.delete_topics(["padm-old", "padm-app-old"]).values():
            future.result(WITHIN_S)
        until(lambda: topics_of(old.bootstrap[0]) == set(), WITHIN_S, "it is gone")
        # Without the one cluster the other's topics are made and deleted all the same.
        old.brokers[0].kill()
        futures = admin.create_topics([NewTopic(name, 1, 1) for name in ("padm-away", "padm-app-there")])
        futures["padm-app-there"].result(WITHIN_S)
        name, says = refused(futures["padm-away"])
        assert (name, says.startswith("cluster old d")) == ("REQUEST_TIMED_OUT", True)
        one(admin.delete_topics(["padm-app-there"]))


def test_clients_that_tell_of_themselves_send_nothing_and_are_left_alone(proxy: ProxyProcess) -> None:
    """They do so by default where a broker offers it. As it is not offered, they never ask."""
    made(admin_of(proxy.bootstrap), "padm-told")
    before = proxy.metrics()["twinshore_proxy_connections_closed_total"]
    with java_clients(KAFKA_NEWEST) as java:
        java.produce(proxy.bootstrap, "padm-told", ["one"], {"enable.metrics.push": "true"})
        assert java.consume(proxy.bootstrap, "padm-told", 1, 30) == ["one"]
    after = proxy.metrics()
    assert after["twinshore_proxy_connections_closed_total"] == before
    assert not [name for name in after if "Telemetry" in name]


@pytest.mark.long
def test_an_application_of_kafka_streams_has_all_its_topics_on_one_cluster(
    cluster_factory: ClusterFactory, tmp_path: Path
) -> None:
    first, second = cluster_factory("first"), cluster_factory("second")
    for topic in (streams_stage.INPUT, streams_stage.OUTPUT):
        second.create_topic(topic, partitions=2)
    rules = f'[proxy.new_topics_by_name]\n"{streams_stage.APPLICATION}-*" = "second"\n'
    counting = streams_stage.Counting(tmp_path)
    with proxy_before(tmp_path, first.cluster, second.cluster, more=rules) as ours:
        try:
            for rounds in (1, 2):
                counting.start(Cluster("proxy", (ours.bootstrap,)), "at_least_once")
                keyed(ours.bootstrap, streams_stage.INPUT, 200)
                wanted = {str(key): list(range(1, rounds * 50 + 1)) for key in range(4)}
                until_s = time.monotonic() + 120
                while streams_stage.counts(second.cluster) != wanted:
                    assert time.monotonic() < until_s, (streams_stage.counts(second.cluster), counting.said())
                    time.sleep(0.5)
                # What it counted before comes from its changelog.
                counting.stop()
        finally:
            counting.kill()
        assert {streams_stage.REPARTITION, streams_stage.CHANGELOG} <= all_topics_of(second)
        assert not {streams_stage.REPARTITION, streams_stage.CHANGELOG} & all_topics_of(first)


def keyed(bootstrap: str, topic: str, count: int) -> None:
    """Records of four keys in turn."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 2})
    for number in range(count):
        producer.produce(topic, str(number), key=str(number % 4))
    assert producer.flush(WITHIN_S) == 0


def all_topics_of(lab: LabCluster) -> set[str]:
    return set(admin_of(lab.bootstrap[0]).list_topics(timeout=WITHIN_S).topics)


@pytest.fixture
def stage(cluster_factory: ClusterFactory, west: LabCluster, tmp_path: Path) -> Iterator[tuple[ProxyProcess, Path]]:
    """A first cluster that has ACLs, beside the second one."""
    guarded = cluster_factory("guarded", settings=AUTHORIZER)
    for lab in (guarded, west):
        lab.create_topic("padm-both")
    guarded.create_topic("padm-app-there")
    with ExitStack() as opened:
        yield opened.enter_context(proxy_before(tmp_path, guarded.cluster, west.cluster, more=RULES)), tmp_path


@pytest.mark.long
def test_kafka_s_own_tools_work_as_on_one_cluster(stage: tuple[ProxyProcess, Path], west: LabCluster) -> None:
    ours, folder = stage
    tools = kafka_tools(folder / "tools")
    where = f"--bootstrap-server {ours.bootstrap}"

    def run(line: str) -> str:
        return play(line.replace("WHERE", where), folder, tools)

    run("kafka-topics.sh WHERE --create --topic padm-tool --partitions 2")
    run("kafka-topics.sh WHERE --create --topic padm-app-tool --partitions 1")
    assert "already exists" in run("! kafka-topics.sh WHERE --create --topic padm-app-tool")
    assert "already exists, on cluster guarded" in run("! kafka-topics.sh WHERE --create --topic padm-app-there")
    run("kafka-topics.sh WHERE --alter --topic padm-app-tool --partitions 2")
    told = run("kafka-topics.sh WHERE --describe --topic 'padm-.*tool'")
    assert f"Topic: padm-app-tool\tPartition: 1\tLeader: {ours.port_of('west', 1) - ours.port - 1}" in told
    run("kafka-configs.sh WHERE --alter --topic padm-app-tool --add-config retention.ms=1234567")
    assert "retention.ms=1234567" in run("kafka-configs.sh WHERE --describe --topic padm-app-tool")

    for topic in ("padm-tool", "padm-app-tool"):
        written(ours.bootstrap, topic, 50)
    told = run("kafka-get-offsets.sh WHERE --topic-partitions 'padm-.*tool:0'")
    assert {"padm-tool:0:50", "padm-app-tool:0:50"} <= set(told.split())
    topics = "--topic padm-tool:0 --topic padm-app-tool:0"
    run(f"kafka-consumer-groups.sh WHERE --reset-offsets --to-offset 3 --group padm-tools {topics} --execute")
    told = run("kafka-consumer-groups.sh WHERE --describe --group padm-tools")
    lags = {line.split()[1]: line.split()[3:6] for line in told.splitlines() if line.startswith("padm-tools ")}
    assert lags == {topic: ["3", "50", "47"] for topic in ("padm-tool", "padm-app-tool")}
    run("kafka-consumer-groups.sh WHERE --delete-offsets --group padm-tools --topic padm-app-tool:0")
    assert "padm-app-tool" not in run("kafka-consumer-groups.sh WHERE --describe --group padm-tools")
    run("kafka-consumer-groups.sh WHERE --delete --group padm-tools")
    assert "padm-tools" not in run("kafka-consumer-groups.sh WHERE --list")

    cut = [{"topic": topic, "partition": 0, "offset": 2} for topic in ("padm-tool", "padm-app-tool")]
    (folder / "cut.json").write_text(json.dumps({"partitions": cut, "version": 1}))
    told = run("kafka-delete-records.sh WHERE --offset-json-file cut.json")
    assert told.count("low_watermark: 2") == 2
    assert "from brokers" in run("kafka-log-dirs.sh WHERE --describe --topic-list padm-tool,padm-app-tool")

    run("kafka-acls.sh WHERE --list")
    line = "--add --allow-principal User:me --operation Read --topic padm-tool"
    assert mentions(run(f"! kafka-acls.sh WHERE {line}"), "ACLs", "own address")
    told = run("! kafka-leader-election.sh WHERE --election-type preferred --topic padm-tool --partition 0")
    assert mentions(told, "leaders", "own address")
    assert "padm-tool" in run("kafka-transactions.sh WHERE find-hanging --broker-id 1; kafka-topics.sh WHERE --list")
    told = run("! kafka-topics.sh WHERE --delete --topic padm-both")
    assert mentions(told, "padm-both", "mirrored", "guarded", "west")
    run("kafka-topics.sh WHERE --delete --topic 'padm-.*tool'")
    until(lambda: "padm-app-tool" not in topics_of(west.bootstrap[0]), WITHIN_S, "it is gone")
