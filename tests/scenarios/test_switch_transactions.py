"""Transactions that are open when a switch holds writers: it waits for them, or turns back and names them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.scenarios.mirror_rig import until
from tests.scenarios.switch_rig import SwitchRig, carried, ended, transactional, turned_back
from twinshore.config.model import TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.transactional_ids import TransactionalIds
from twinshore.lab.cluster import LabCluster

TOPIC = "transactions-orders"


@pytest.fixture(scope="module")
def rig(east: LabCluster, west: LabCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SwitchRig]:
    with carried(east, west, TOPIC, tmp_path_factory.mktemp("transactions")) as made:
        yield made


@pytest.mark.claim("switch", "transactions", "open transactions, with records or with none, end before anything moves")
def test_an_open_transaction_is_waited_for_and_moves(rig: SwitchRig) -> None:
    home, twin = rig.sides()
    before = rig.level()
    producer = transactional(home, "transactions-open")
    producer.begin_transaction()
    producer.produce(TOPIC, b"decided late", partition=0)
    producer.flush(10)
    child, log = rig.begin("run", TOPIC, "--to", twin.name, "--yes")
    until(lambda: "transaction open" in log.read_text(encoding="utf-8"), 30, "it waits for the transaction")
    producer.commit_transaction(10)
    assert ended(child, log) == 0, log.read_text(encoding="utf-8")
    print("told:", log.read_text(encoding="utf-8"))
    assert rig.level() == [before[0] + 3, before[1] + 1, before[2] + 1]
    rig.same("read_committed")


@pytest.mark.long
@pytest.mark.claim("switch", "transactions", "open transactions, with records or with none, end before anything moves")
def test_a_transaction_that_has_written_nothing_is_waited_for(rig: SwitchRig) -> None:
    home, twin = rig.sides()
    before = rig.level()
    with closing(KafkaCluster(home.cluster)) as kafka:
        asker = TransactionalIds(kafka, patience_s=10.0, go=lambda: None)
        writer = asker.acquire("transactions-nothing", 60)
        assert not asker.begin(writer, [TopicPartition(TOPIC, 2)])
        child, log = rig.begin("run", TOPIC, "--to", twin.name, "--yes")
        until(lambda: "transaction open" in log.read_text(encoding="utf-8"), 30, "it waits for the transaction")
        asker.abort(writer)
        asker.complete(writer)
    assert ended(child, log) == 0, log.read_text(encoding="utf-8")
    assert rig.level() == [before[0] + 1, before[1] + 1, before[2] + 2]
    rig.same()


@pytest.mark.claim("switch", "hanging", "a transaction that hangs, with records or none, is named, and turns it back")
@pytest.mark.parametrize("writes", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_transaction_that_hangs_turns_the_switch_back(rig: SwitchRig, writes: bool) -> None:
    (home, twin), before = rig.sides(), rig.home()
    name = f"transactions-hangs-{writes}"
    with closing(KafkaCluster(home.cluster)) as kafka:
        producer = transactional(home, name)
        asker = TransactionalIds(kafka, patience_s=10.0, go=lambda: None)
        if writes:
            producer.begin_transaction()
            producer.produce(TOPIC, b"undecided", partition=0)
            producer.flush(10)
        else:
            asker.begin(asker.acquire(name, 60), [TopicPartition(TOPIC, 0)])
        began = time.monotonic()
        said = rig.move(twin.name, "--hold-s", "3")
        took_s = time.monotonic() - began
        held_s = rig.record()["held_s"]
        print(f"told: turned back after {took_s:.1f} s, held {held_s} s: {said.last}")
        assert name in said.last, said.text
        assert 3.0 <= held_s < 5.0
        asker.acquire(name, 60)  # ends what hangs
    turned_back(rig, said, before, f"{TOPIC}-0")
