"""Rows of transactions that hold twins back: they close when the source says that these have ended, and only then."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from confluent_kafka import Producer

from twinshore.config.model import TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.clients import client_settings, create_admin_client
from twinshore.lab.cluster import LabCluster
from twinshore.replication.core.incident_rules import HANGING_KIND
from twinshore.replication.core.progress_rows import to_incident
from twinshore.replication.incident_watch import POLL_S_MIN, TOPIC_GONE, HangingTransactionWatch
from twinshore.replication.task.core.messages import PartitionIncident
from twinshore.state.store import Store, open_store

LINK = "east->west"
AFTER_S, WITHIN_S = 1.0, 20.0


def held_by(store: Store, source: KafkaCluster) -> HangingTransactionWatch:
    """As a mirror that begins has it."""

    def stopped(link: str, stoppage: PartitionIncident) -> None:
        store.incidents.add(to_incident(link, stoppage), now_ms=1)

    return HangingTransactionWatch(LINK, source, store, AFTER_S, stopped=stopped)


def in_a_transaction(cluster: LabCluster, topic: str) -> Producer:
    """Has written one record to the topic, which it makes, and has not ended."""
    cluster.create_topic(topic)
    producer = Producer({**client_settings(cluster.cluster), "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(30)
    return producer


def until(holds: Callable[[], bool], held: HangingTransactionWatch, *behind: TopicPartition) -> None:
    until_s = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < until_s
        held.look(behind)
        time.sleep(POLL_S_MIN / 5)


def test_a_restart_closes_no_row_of_a_transaction_that_is_open(
    east: LabCluster, unique_topic: str, tmp_path: Path
) -> None:
    """Nothing lags yet in the eyes of a mirror that has just begun."""
    named = TopicPartition(unique_topic, 0)
    producer = in_a_transaction(east, unique_topic)
    with closing(KafkaCluster(east.cluster)) as source, open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:

        def open_rows() -> list[str]:
            return [
                row.incident.topic
                for row in store.incidents.rows(LINK, open_only=True)
                if row.incident.kind == HANGING_KIND
            ]

        until(lambda: open_rows() == [unique_topic], held_by(store, source), named)
        again = held_by(store, source)
        again.look(())
        assert open_rows() == [unique_topic]
        producer.commit_transaction(30)
        until(lambda: not open_rows(), again)


def test_the_row_closes_with_its_topic(east: LabCluster, unique_topic: str, tmp_path: Path) -> None:
    """It asked for the end of a transaction that nobody could end any more."""
    named = TopicPartition(unique_topic, 0)
    _producer = in_a_transaction(east, unique_topic)  # it lives on
    with closing(KafkaCluster(east.cluster)) as source, open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        held = held_by(store, source)
        until(lambda: bool(store.incidents.rows(LINK)), held, named)
        admin = create_admin_client(east.cluster)
        admin.delete_topics([unique_topic])[unique_topic].result(30)
        until(lambda: not store.incidents.rows(LINK, open_only=True), held)
        (row,) = store.incidents.rows(LINK)
        assert row.incident.sentence.endswith(TOPIC_GONE)
