"""What is seen of real clusters: weaknesses that were made there, and what a user without rights is told."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from testkit.access import LabSecurity
from testkit.clients import add_acl, commit_group_offsets
from testkit.cluster import RigCluster
from testkit.errors import raises
from tests.conftest import ClusterFactory
from tests.scenarios.mirror_rig import settings_text
from twinshore.advisor import collect
from twinshore.advisor.collect import CollectScope, collect_cluster
from twinshore.advisor.core.advice_report import Advice
from twinshore.advisor.core.model import ClusterSnapshot
from twinshore.advisor.operations.advice_on_cluster import (
    AdviceRequest,
    AdviceResult,
    advice_as_values,
    advise_on_cluster,
    describe_result,
)
from twinshore.config.errors import ConfigError, KafkaError
from twinshore.config.model import Cluster
from twinshore.config.settings import Settings, parse_settings
from twinshore.kafka.clock import wall_ms
from twinshore.lab.clients import client_settings
from twinshore.lab.jars import KAFKA_3, KAFKA_NEWEST

HOUR_MS = 3_600_000


def settings_for(folder: Path, *clusters: Cluster) -> Settings:
    return parse_settings(settings_text(folder, clusters, {}), name="settings", env={})


def asked_of(
    folder: Path, cluster: Cluster, *topics: str, since: Path | None = None, policy: Path | None = None
) -> AdviceResult:
    """Both looks at once: who wants to know whether groups move says it himself."""
    asked = AdviceRequest(cluster.name, topics, since=since, policy=policy, apart_s=0)
    return advise_on_cluster(asked, settings_for(folder, cluster), clock=wall_ms, wait=time.sleep)


def at(advice: Advice, subject: str) -> dict[str, str]:
    """Rule and evidence of all that was found there."""
    return {one.rule: one.evidence for one in advice.findings if one.subject == subject}


def write(cluster: Cluster, topic: str, count: int, at_ms: int = 0) -> None:
    producer = Producer(client_settings(cluster))
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=0, timestamp=at_ms)
    assert producer.flush(30) == 0


@pytest.fixture
def lagging(east: RigCluster, unique_topic: str) -> str:
    """A topic of 100 records, 30 hours old; the group of its name stands at 10."""
    east.create_topic(unique_topic, settings={"retention.ms": str(40 * HOUR_MS), "max.message.bytes": "2000000"})
    write(east.cluster, unique_topic, 100, wall_ms() - 30 * HOUR_MS)
    commit_group_offsets(east.cluster, unique_topic, TopicPartition(unique_topic, 0, 10))
    return unique_topic


def test_what_was_made_weak_is_found(east: RigCluster, lagging: str, tmp_path: Path) -> None:
    answer = asked_of(tmp_path, east.cluster, lagging)
    of_topic, of_group = at(answer.advice, f"topic {lagging}"), at(answer.advice, f"group {lagging} on {lagging}")
    assert of_topic.keys() == {"single-copy", "message-size"}
    assert of_group.keys() == {"group-abandoned", "group-retention"}
    told = "no members, and 90 records to read; the oldest is 30.0 h old, and retention.ms is 40.0 h"
    assert of_group["group-abandoned"] == told
    left = of_group["group-retention"]
    assert f"will lose records from 10.0 h on: {lagging}-0 at 10 has 90 to read" in left
    assert [one.topic for one in answer.advice.profiles] == [lagging]
    assert answer.exit_code == 1
    assert at(answer.advice, "topic __consumer_offsets").keys() == {"offsets-topic"}
    assert answer.advice.unseen == ()
    whole = "\n".join(describe_result(answer, everything=False))
    assert f"  topic {lagging}: one replica of partition 0" in whole


def test_a_topic_that_is_none_is_told(east: RigCluster, lagging: str, tmp_path: Path) -> None:
    with raises(ConfigError, "advisor.no-topic-matches", pattern=f"{lagging}x", cluster="east"):
        asked_of(tmp_path, east.cluster, lagging, f"{lagging}x")


def test_a_marker_is_no_record_to_read(east: RigCluster, unique_topic: str, tmp_path: Path) -> None:
    """Whoever commits behind the last record of a transaction stands before its marker, and has read everything."""
    east.create_topic(unique_topic)
    producer = Producer({**client_settings(east.cluster), "transactional.id": unique_topic})
    producer.init_transactions(60)
    for _ in range(2):
        producer.begin_transaction()
        for number in range(3):
            producer.produce(unique_topic, b"%d" % number, partition=0)
        producer.commit_transaction(60)
    done, behind = f"{unique_topic}-done", f"{unique_topic}-behind"
    commit_group_offsets(east.cluster, done, TopicPartition(unique_topic, 0, 7))
    commit_group_offsets(east.cluster, behind, TopicPartition(unique_topic, 0, 6))
    advice = asked_of(tmp_path, east.cluster, unique_topic).advice
    assert at(advice, f"group {behind} on {unique_topic}") == {}, "its record is seconds old"
    (tmp_path / "policy.toml").write_text("[limits]\nwaited = 0\n")
    advice = asked_of(tmp_path, east.cluster, unique_topic, policy=tmp_path / "policy.toml").advice
    assert at(advice, f"group {done} on {unique_topic}") == {}
    assert at(advice, f"group {behind} on {unique_topic}")["group-abandoned"] == "no members, and 1 record to read"


def test_where_more_would_have_to_be_read_than_is_that_is_told(
    east: RigCluster, lagging: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "AGED_BATCHES_MAX", 0)
    unseen = {one.what: one.why for one in asked_of(tmp_path, east.cluster, lagging).advice.unseen}
    why = unseen[f"whether records or markers are left to a group in {lagging}-0"]
    assert "0 logs" in why
    assert unseen[f"the age of the next record of a group in {lagging}-0"]


def test_a_group_that_hangs_before_its_first_commit(east: RigCluster, unique_topic: str, tmp_path: Path) -> None:
    east.create_topic(unique_topic)
    write(east.cluster, unique_topic, 1)
    settings = {"group.id": unique_topic, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({**client_settings(east.cluster), **settings})
    consumer.subscribe([unique_topic])
    deadline = time.monotonic() + 60
    while not consumer.assignment():
        consumer.poll(0.2)
        assert time.monotonic() < deadline
    try:
        advice = asked_of(tmp_path, east.cluster, unique_topic).advice
    finally:
        consumer.close()
    assert at(advice, f"group {unique_topic}") == {
        "group-unplaced": f"no committed offset in {unique_topic}-0, which hold records"
    }


def test_an_earlier_advice_says_what_has_changed_and_whether_a_group_moves(
    east: RigCluster, lagging: str, tmp_path: Path
) -> None:
    before = tmp_path / "before.json"
    before.write_text(json.dumps(advice_as_values(asked_of(tmp_path, east.cluster, lagging))))
    commit_group_offsets(east.cluster, lagging, TopicPartition(lagging, 0, 100))
    answer = asked_of(tmp_path, east.cluster, lagging, since=before)
    assert answer.changed is not None
    assert {one.rule for one in answer.changed.gone} == {"group-abandoned", "group-retention"}
    assert not any(one.subject.endswith(lagging) for one in answer.changed.new)
    assert any("gone: group-abandoned" in line for line in describe_result(answer, everything=False))
    values = json.loads(before.read_text())
    before.write_text(json.dumps({**values, "cluster_id": "another"}))
    with raises(ConfigError, "advisor.other-cluster"):
        asked_of(tmp_path, east.cluster, lagging, since=before)


def test_a_group_with_members_that_commits_nothing(east: RigCluster, lagging: str) -> None:
    settings = {"group.id": lagging, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    consumer = Consumer({**client_settings(east.cluster), **settings})
    try:
        consumer.subscribe([lagging])
        deadline = time.monotonic() + 60
        while consumer.poll(0.2) is None:
            assert time.monotonic() < deadline
        waited: list[float] = []
        wanted = CollectScope((lagging,), apart_s=3)
        seen = collect_cluster(east.cluster, wanted, clock=wall_ms, wait=waited.append)
    finally:
        consumer.close()
    (group,) = [one for one in seen.groups if one.name == lagging]
    (place,) = group.places
    assert group.live and waited == [3]
    assert place.before is not None
    assert (place.offset, place.before.offset, place.log_end, place.waits) == (10, 10, 100, True)


def test_what_is_wrong_is_told_before_any_cluster_is_asked(tmp_path: Path) -> None:
    here = Cluster("here", ("127.0.0.1:1",))
    there = Cluster("there", ("127.0.0.1:1",))
    both = settings_for(tmp_path, here, there)

    def asks(settings: Settings, asked: AdviceRequest) -> None:
        advise_on_cluster(asked, settings, clock=wall_ms, wait=time.sleep)

    with raises(ConfigError, "advisor.several-clusters", clusters="here, there"):
        asks(both, AdviceRequest())
    with raises(ConfigError, "config.unknown-cluster", cluster="her", near="; did you mean here?"):
        asks(both, AdviceRequest("her"))
    with raises(ConfigError, "config.invalid-pattern", option="--topic"):
        asks(both, AdviceRequest("here", ("(",)))
    with raises(ConfigError, "config.unreadable-file"):
        asks(both, AdviceRequest("here", policy=tmp_path / "none.toml"))
    (tmp_path / "bad.json").write_text("{")
    with raises(ConfigError, "advisor.not-advice"):
        asks(both, AdviceRequest("here", since=tmp_path / "bad.json"))
    with pytest.raises(KafkaError, match="no answer about metadata"):
        asks(both, AdviceRequest("here", within_s=1))


def test_a_user_without_rights_is_told_what_was_not_seen(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    kind = LabSecurity.SASL_SCRAM_256
    cluster = cluster_factory("guarded", security=kind, authorizer=True, users=("reader",), heap_mb=256)
    cluster.create_topic("orders", settings={"unclean.leader.election.enable": "true"})
    write(cluster.cluster, "orders", 10, wall_ms() - HOUR_MS)
    commit_group_offsets(cluster.cluster, "billing", TopicPartition("orders", 0, 0))
    add_acl(cluster.cluster, "reader", "DESCRIBE", "topic", "orders")
    reader = asked_of(tmp_path, cluster.cluster_as("reader")).advice
    unseen = {one.what: one for one in reader.unseen}
    assert "DescribeConfigs" in unseen["settings of topic orders"].hint
    assert "Describe " in unseen["which partitions are on the move"].hint
    assert "DescribeConfigs" in unseen["settings of broker 1"].hint
    assert [one.kind for one in reader.profiles] == ["unknown"]
    rules = {one.rule for one in reader.findings}
    assert "single-copy" in rules and "unclean-election" not in rules
    whole = asked_of(tmp_path, cluster.cluster).advice
    assert "unclean-election" in at(whole, "topic orders")
    assert "group-abandoned" in at(whole, "group billing on orders")
    # Kafka says nothing of what it leaves out.
    assert len(whole.unseen) == 1
    assert "kafka-configs.sh --bootstrap-server" in str(whole.findings) and "--command-config" in str(whole.findings)


def versions_of(seen: ClusterSnapshot) -> tuple[set[int], int]:
    return {one.supports for one in seen.brokers}, seen.finalized


@pytest.mark.long
@pytest.mark.parametrize(("version", "level"), [(KAFKA_3, 21), (KAFKA_NEWEST, 0)])
def test_an_older_kafka_and_the_newest_tell_all_that_is_asked(
    version: str, level: int, cluster_factory: ClusterFactory
) -> None:
    cluster = cluster_factory("old", version=version)
    cluster.create_topic("orders")
    seen = collect_cluster(cluster.cluster, CollectScope(apart_s=0), clock=wall_ms, wait=time.sleep)
    assert seen.unseen == ()
    (broker,) = seen.brokers
    assert broker.supports == seen.finalized > 20
    assert not level or seen.finalized == level
    assert broker.settings is not None
    asked = {"auto.create.topics.enable", "offsets.retention.minutes", "replica.fetch.max.bytes"}
    assert asked <= broker.settings.keys()
    assert seen.topics[-1].says("min.insync.replicas") == "1"
