"""Links from a cluster, by a store and two real clusters: what their twins lack, and what could not be seen."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer

from testkit.clients import topic_id
from testkit.cluster import RigCluster
from tests.pages.shell import kafka_tools, play
from tests.scenarios.loss_stage import until
from tests.scenarios.mirror_rig import settings_text, url_in
from tests.scenarios.rights_stage import acl, client, guarded, may_read
from twinshore.advisor.core.model import Finding
from twinshore.advisor.operations.advice_on_cluster import AdviceRequest, AdviceResult, advise_on_cluster
from twinshore.config.model import Cluster
from twinshore.config.settings import parse_settings
from twinshore.kafka.admin import create_acls
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.protocol.access_control import AclOperation
from twinshore.lab.clients import client_settings
from twinshore.state.core.values import ProgressRecord, TwinRow
from twinshore.state.store import open_store

LINK = "east->west"


def asked(folder: Path, east: Cluster, west: Cluster, topic: str) -> AdviceResult:
    settings = parse_settings(settings_text(folder, [east, west], {LINK: topic}), name="settings", env={})
    return advise_on_cluster(AdviceRequest("east", (topic,), apart_s=0), settings, clock=wall_ms, wait=time.sleep)


def test_what_twins_lack_is_found(east: RigCluster, west: RigCluster, unique_topic: str, tmp_path: Path) -> None:
    east.create_topic(unique_topic, settings={"segment.ms": "7200000"})
    west.create_topic(unique_topic)
    producer = Producer(client_settings(east.cluster))
    for number in range(1_100):
        producer.produce(unique_topic, b"%d" % number, partition=0)
    assert producer.flush(30) == 0
    source_id, target_id = (topic_id(side.cluster, unique_topic).hex() for side in (east, west))
    with open_store(url_in(tmp_path)) as store:
        store.twins.save([TwinRow(LINK, unique_topic, 0, source_id, target_id, 0, 0, 1)])
        store.progress.record(
            [
                ProgressRecord(
                    link=LINK,
                    topic=unique_topic,
                    partition=0,
                    from_offset=0,
                    to_offset=60,
                    records=60,
                    bytes=600,
                    batches=3,
                    source_end=1_040,
                    first_ms=5,
                    last_ms=9,
                    lag_records=40,
                )
            ]
        )
    found = {one.rule: one for one in asked(tmp_path, east.cluster, west.cluster, unique_topic).advice.findings}
    assert found["twin-behind"].evidence.endswith(f"{unique_topic} 1,040")
    assert found["link-not-running"].subject == "link east->west"
    differs = found["twin-differs"]
    assert differs.subject == f"twin {unique_topic} of {LINK}"
    assert differs.evidence == "segment.ms is Kafka's default, it should be 7200000"
    assert f"--bootstrap-server {west.bootstrap[0]} --alter" in differs.commands[0]

    away = asked(tmp_path, east.cluster, replace(west.cluster, bootstrap=("127.0.0.1:1",)), unique_topic).advice
    assert f"settings of twins of {LINK}" in {one.what for one in away.unseen}
    assert "twin-differs" not in {one.rule for one in away.findings}


def test_without_a_store_there_is_no_link_to_miss(
    east: RigCluster, west: RigCluster, unique_topic: str, tmp_path: Path
) -> None:
    east.create_topic(unique_topic)
    advice = asked(tmp_path, east.cluster, west.cluster, unique_topic).advice
    assert not [one for one in advice.findings if one.subject.startswith(("link", "twin"))]
    assert advice.unseen == ()


@pytest.mark.long
def test_acls_that_a_twin_lacks_are_found_and_the_printed_line_gives_them(unique_topic: str, tmp_path: Path) -> None:
    with guarded("east", "anna") as east, guarded("west", "anna") as west:
        for side in (east, west):
            side.create_topic(unique_topic)
        written = Producer(client_settings(west.cluster))
        written.produce(unique_topic, b"1", partition=0)
        assert written.flush(30) == 0
        with client(east) as kafka:
            create_acls(kafka, [acl(unique_topic, AclOperation.READ)])
        source_id, target_id = (topic_id(side.cluster, unique_topic).hex() for side in (east, west))
        with open_store(url_in(tmp_path)) as store:
            store.twins.save([TwinRow(LINK, unique_topic, 0, source_id, target_id, 0, 0, 1)])

        def rights() -> list[Finding]:
            advice = asked(tmp_path, east.cluster, west.cluster, unique_topic).advice
            assert not [one for one in advice.unseen if "ACLs of" in one.what]
            return [one for one in advice.findings if one.rule == "twin-rights"]

        (found,) = rights()
        assert found.evidence == f"lacking there: allow User:anna read on topic {unique_topic}"
        assert not may_read(west.cluster_as("anna"), unique_topic)
        sasl = west.cluster.security
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        secret = sasl.password.read()
        (tmp_path / "client.properties").write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
            f'sasl.jaas.config={module} required username="{sasl.username}" password="{secret}";\n'
        )
        for line in found.commands:
            play(line, tmp_path, kafka_tools(tmp_path / "tools"))
        assert rights() == []
        until(lambda: may_read(west.cluster_as("anna"), unique_topic), "the user may read there", 30.0)
