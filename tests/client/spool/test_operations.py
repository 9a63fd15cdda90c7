"""What an operator does with a spool whose producer does not come back."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from testkit.errors import mentions, raises
from testkit.log_lines import LogLines
from tests.client.spool.spooling import numbers, put, record, segments, taken
from twinshore.client.spool import Spool
from twinshore.client.spool_admin import (
    DropTopic,
    SendSpool,
    drop_topic,
    inspect_spool,
    plan_drop,
    plan_send,
    send_spool,
)
from twinshore.config.errors import ConfigError, RefusedError
from twinshore.config.frozen import CALL_HEADER
from twinshore.config.model import Cluster, TopicPartition
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.lab.clients import client_settings
from twinshore.lab.cluster import LabCluster

NOWHERE = {"away": Cluster("away", ("127.0.0.1:1",))}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With three records of orders and two of bills, the first of orders done."""
    spool = Spool(tmp_path)
    for number in range(3):
        put(spool, record(number))
    put(spool, record(10, "bills"), record(11, "bills"))
    spool.done("orders", taken(spool, most=1)[0].number)
    spool.close()
    return tmp_path


def damaged(folder: Path) -> Path:
    """The second of orders is."""
    (path,) = segments(folder)
    text = path.read_bytes()
    at = text.index(b"value 1")
    path.write_bytes(text[:at] + b"V" + text[at + 1 :])
    return path


def test_a_look_changes_nothing_and_names_all(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    seen = inspect_spool(folder)
    assert [(one.topic, one.records, one.oldest_ms) for one in seen.topics] == [
        ("bills", 2, 5_010),
        ("orders", 2, 5_001),
    ]
    head, bills, _ = seen.sentences()
    assert head.startswith(f"{folder}: 4 records of 2 topics to send, ")
    assert head.endswith("; no producer holds it")
    assert bills.startswith("bills: 2 records, ")
    assert bills.endswith(" bytes, kept since 1970-01-01 00:00:05 UTC")
    assert seen.as_values()["records"] == 4
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_while_its_producer_runs_it_may_be_looked_at_and_no_more(folder: Path) -> None:
    spool = Spool(folder)
    assert "; the producer in process " in inspect_spool(folder).sentences()[0]
    with raises(RefusedError, "client.spool-in-use", folder=str(folder)):
        plan_send(SendSpool(folder), NOWHERE)
    with raises(RefusedError, "client.spool-in-use", folder=str(folder)):
        plan_drop(DropTopic(folder, "orders"))
    spool.close()


def test_where_there_is_none_it_says_so(folder: Path, tmp_path: Path) -> None:
    with raises(ConfigError, "client.no-such-spool"):
        inspect_spool(tmp_path / "elsewhere")
    with raises(ConfigError, "client.spool-without-topic", topic="clicks"):
        plan_drop(DropTopic(folder, "clicks"))
    with raises(ConfigError, "client.no-such-cluster", cluster="west"):
        plan_send(SendSpool(folder, first="west"), NOWHERE)


def test_one_topic_is_dropped_and_the_other_stays(folder: Path) -> None:
    asked = DropTopic(folder, "orders")
    planned = plan_drop(asked)
    assert [step.sentence(done=False)[-16:] for step in planned.steps] == ["would be dropped"]
    assert inspect_spool(folder).records == 4, "a plan changes nothing"
    assert [step.topic.records for step in drop_topic(planned, asked)] == [2]
    assert [(one.topic, one.records) for one in inspect_spool(folder).topics] == [("bills", 2)]
    asked = DropTopic(folder, "bills")
    list(drop_topic(plan_drop(asked), asked))
    assert (inspect_spool(folder).records, segments(folder)) == (0, [])


def test_damage_is_told_and_given_up_only_on_request(folder: Path) -> None:
    damaged(folder)
    seen = inspect_spool(folder)
    assert seen.records == 3
    assert ["are lost" in one for one in seen.damage] == [True]
    with raises(RefusedError, "client.spool-damaged"):
        plan_send(SendSpool(folder), NOWHERE)
    with raises(RefusedError, "client.spool-damaged"):
        plan_drop(DropTopic(folder, "orders"))
    assert plan_send(SendSpool(folder, past_damage=True), NOWHERE).shown[0].startswith("given up: ")


def test_what_is_there_is_sent_in_order_and_what_cannot_be_stays(
    east: LabCluster, folder: Path, unique_topic: str
) -> None:
    asked = SendSpool(folder, ["bills"])
    planned = plan_send(asked, NOWHERE)
    with raises(RefusedError, "client.spool-not-sent", seconds=0.2) as refused:
        list(send_spool(planned, asked, NOWHERE, within_s=0.2))
    assert mentions(refused.value.message, "bills", "2 records")
    assert inspect_spool(folder).records == 4
    spool = Spool(folder)
    put(spool, *(record(100 + number, unique_topic) for number in range(50)))
    spool.close()
    east.create_topic(unique_topic)
    asked = SendSpool(folder, [unique_topic], first="east")
    clusters = {**NOWHERE, "east": east.cluster}
    planned = plan_send(asked, clusters)
    assert [step.topic.topic for step in send_spool(planned, asked, clusters, within_s=60)] == [unique_topic]
    spool = Spool(folder)
    assert spool.topics() == {"orders": 2, "bills": 2}
    assert numbers(taken(spool)) == [1, 2]
    spool.close()


def test_what_its_producer_had_sent_before_it_was_killed_is_not_sent_again(
    east: LabCluster, tmp_path: Path, unique_topic: str, log_lines: LogLines
) -> None:
    """By calls that bear a header for it; the first was kept before they did."""
    east.create_topic(unique_topic)
    made = [
        record(number, unique_topic)._replace(
            headers=((CALL_HEADER, b"before-%d" % number),) if number else (), timestamp=wall_ms() - number * 60_000
        )
        for number in range(20)
    ]
    spool = Spool(tmp_path)
    put(spool, *made)
    spool.close()
    before = Producer(client_settings(east.cluster))
    for one in made[:15]:
        before.produce(unique_topic, one.value, headers=list(one.headers), timestamp=one.timestamp)
    assert before.flush(60) == 0
    asked, clusters = SendSpool(tmp_path, [unique_topic]), {"east": east.cluster}
    planned = plan_send(asked, clusters)
    assert len(list(send_spool(planned, asked, clusters, within_s=60))) == 1
    here = KafkaCluster(east.cluster, patience_s=10)
    assert here.list_offsets([TopicPartition(unique_topic, 0)], OffsetKind.LOG_END) == {
        TopicPartition(unique_topic, 0): 15 + 1 + 5
    }, "only what bears no header is there twice"
    here.close()
    assert (log_lines, inspect_spool(tmp_path).records) == ([], 0)
