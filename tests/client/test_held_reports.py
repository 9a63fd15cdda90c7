"""What becomes of calls to protected topics: held reports, topics that wait, switches. librdkafka is played, and so is
what a keeper decides."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message

from tests.client.turning import Stage, stage
from twinshore.client.held_reports import AckedCall
from twinshore.client.producer_routing import DIRECT_SEND_S, ProducerRouter

__all__ = ["stage"]


class Told:
    """What the application was told, by value: the code of an error, or None."""

    def __init__(self) -> None:
        self.found: dict[bytes, int | None] = {}

    def __call__(self, error: KafkaError | None, message: Message | None) -> None:
        value = message.value() if message else None
        assert isinstance(value, bytes)
        self.found[value] = error.code() if error else None


def router_of(stage: Stage) -> ProducerRouter:
    return stage.producer._router


def decides(stage: Stage, error: KafkaError | None = None) -> None:
    """The gate decides on all that is held."""
    for call in router_of(stage).reports.take():
        router_of(stage)._decided(call, error)


def strict(stage: Stage, **named: Any) -> Told:
    """A producer with two acknowledged calls to a strict topic, the second with headers."""
    producer, told = stage.opens("orders", **named), Told()
    stage.producer.poll(0)
    stage.gate.strict.add("orders")
    stage.turn()
    producer.produce("orders", b"one", on_delivery=told)
    producer.produce("orders", b"two", headers={"a": b"b"}, on_delivery=told)
    stage.at("east").answers()
    stage.turn()
    assert producer.poll(0) == 0
    assert told.found == {}
    return told


@pytest.mark.parametrize("error", [None, KafkaError._TIMED_OUT])
def test_a_report_counts_as_outstanding_until_it_is_decided(stage: Stage, error: int | None) -> None:
    told = strict(stage)
    assert (len(stage.producer), stage.producer.flush(0)) == (2, 2)
    decides(stage, None if error is None else KafkaError(error))
    assert stage.producer.flush(0) == 0
    assert told.found == {b"one": error, b"two": error}


def test_no_call_goes_out_while_the_twin_takes_nothing_and_then_all_do_in_order(stage: Stage) -> None:
    producer = stage.opens("orders", "bills")
    stage.gate.shut.add("orders")
    stage.turn()
    sent = len(stage.log("east"))
    for number in range(3):
        producer.produce("orders", b"%d" % number)
    producer.produce("bills", b"goes")
    stage.turn(3)
    assert stage.log("east")[sent:] == [("bills", b"goes")]
    assert producer.where("orders") == "its twin takes no records"
    stage.gate.shut.clear()
    stage.turn()
    assert stage.log("east")[sent + 1 :] == [("orders", b"%d" % number) for number in range(3)]


def test_held_reports_take_room_as_those_that_nobody_polls(stage: Stage) -> None:
    strict(stage, kept_max=1)
    time.sleep(2 * DIRECT_SEND_S)
    with pytest.raises(BufferError, match="twins of protected topics"):
        stage.producer.produce("orders", b"three")
    decides(stage)
    stage.producer.poll(0)
    stage.producer.produce("orders", b"three")


def test_a_held_report_keeps_no_switch_waiting_and_is_told_where_the_new_home_has_the_record(stage: Stage) -> None:
    told = strict(stage)
    stage.hears("east", 1, "orders", step=1, held=True)
    stage.turn()
    assert stage.centre.held() == frozenset(), "the topic is parked"
    sent = stage.log("east")
    # The first was below the common end, the second was not.
    stage.hears("west", 2, "orders", points=(sent.index(("orders", b"two")),))
    stage.turn()
    stage.producer.poll(0)
    assert told.found == {b"one": None}
    assert stage.log("west") == [("orders", b"two")], "it is sent again, as what was never acknowledged"
    stage.at("west").answers()
    stage.turn()
    decides(stage)
    stage.producer.poll(0)
    assert told.found == {b"one": None, b"two": None}


def test_what_no_switch_has_brought_along_is_sent_again_before_what_is_newer(stage: Stage) -> None:
    strict(stage)
    stage.hears("east", 1, "orders", step=1, held=True)
    stage.turn()
    stage.producer.produce("orders", b"three")
    stage.hears("west", 2, "orders")
    stage.turn()
    assert stage.log("west") == [("orders", value) for value in (b"one", b"two", b"three")]
    assert len(stage.producer) == 3


def test_an_acknowledgement_that_comes_while_the_home_is_left_is_not_held_for_ever(stage: Stage) -> None:
    producer, told = stage.opens("orders"), Told()
    stage.gate.strict.add("orders")
    stage.turn()
    producer.produce("orders", b"late", on_delivery=told)
    played = stage.at("east")
    played.meanwhile = played.answers
    stage.hears("west", 2, "orders")
    stage.turn(2)
    assert stage.log("west") == [("orders", b"late")]


@pytest.mark.parametrize("key", ["acks", "request.required.acks"])
def test_a_protected_topic_needs_the_acknowledgement_of_all_replicas(stage: Stage, key: str) -> None:
    producer, told = stage.opens("orders", config={key: 1, "enable.idempotence": False}), Told()
    stage.gate.strict.add("orders")
    stage.turn()
    sent = len(stage.log("east"))
    producer.produce("orders", b"one", on_delivery=told)
    stage.turn(2)
    producer.produce("orders", b"two", on_delivery=told)
    stage.turn(2)
    producer.poll(0)
    assert told.found == dict.fromkeys((b"one", b"two"), KafkaError._INVALID_ARG)
    assert len(stage.log("east")) == sent
    stage.gate.strict.clear()
    stage.turn()
    producer.produce("orders", b"three", on_delivery=told)
    stage.turn()
    assert stage.log("east")[sent:] == [("orders", b"three")]


def test_a_decision_that_comes_after_the_call_was_sent_again_is_no_decision(stage: Stage) -> None:
    told = strict(stage)
    reports = router_of(stage).reports
    (first, *rest) = reports.take()
    again = AckedCall(*first)
    reports.add(again)
    reports._tell([first])
    assert len(reports) == 1
    reports._tell([again, *rest])
    stage.producer.poll(0)
    assert told.found == {b"one": None}
