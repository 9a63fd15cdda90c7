"""What a producer does at a move, turn by turn: which calls go where, in which order, and what is said of it."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message

from testkit.errors import mentions
from tests.client.turning import CLUSTERS, Stage, fault, stage
from twinshore.client import producer_routing
from twinshore.client.spool import Spool
from twinshore.kafka.clock import steady_s

__all__ = ["stage"]


def test_a_forced_switch_of_two_topics_sends_again_what_a_dead_home_did_not_acknowledge(stage: Stage) -> None:
    producer = stage.opens("orders", "payments")
    stage.at("east").lives = False
    for topic in ("orders", "payments"):
        producer.produce(topic, b"never acknowledged")
    stage.hears("west", 2, "orders", "payments")
    stage.turn(2)
    for topic in ("orders", "payments"):
        producer.produce(topic, b"later")
    assert sorted(stage.at("west").log) == [
        *(("orders", b"later"), ("orders", b"never acknowledged")),
        *(("payments", b"later"), ("payments", b"never acknowledged")),
    ]
    stage.at("west").answers()
    assert len(producer) == 0


@pytest.mark.claim("client", "given-up-late", "what was given up counts as on its way until it can arrive no more")
def test_a_topic_on_a_client_which_was_given_up_is_parked_once_nothing_of_it_can_arrive(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = stage.opens("orders", "payments")
    stage.at("east").lives = False
    producer.produce("orders", b"never acknowledged")
    stage.hears("west", 2, "orders")
    stage.hears("east", 1, "payments", step=1, held=True)
    stage.turn(2)
    assert "payments" in stage.centre.held(), "what the old client had sent may still arrive"
    assert stage.at("west").log == [("orders", b"never acknowledged")]
    monkeypatch.setattr(producer_routing, "steady_s", lambda: steady_s() + producer_routing.LATE_WRITES_S)
    stage.turn()
    assert "payments" not in stage.centre.held()


def test_what_is_on_its_way_of_a_topic_that_stays_is_not_sent_twice_for_one_that_moves(stage: Stage) -> None:
    producer = stage.opens("orders", "payments")
    stage.hears("east", 1, "orders", step=1, held=True)
    stage.turn()
    producer.produce("orders", b"held")
    stage.at("east").lives = False
    producer.produce("payments", b"on its way")
    stage.hears("west", 2, "orders")
    stage.turn(2)
    assert stage.log("west") == [("orders", b"held")]
    assert stage.log("east").count(("payments", b"on its way")) == 1
    assert stage.at("east").purged == 0


def test_a_call_made_while_the_new_homes_client_is_made_does_not_stay_on_its_way_to_the_old_one(stage: Stage) -> None:
    """A librdkafka client takes milliseconds to make; by force no switch has held the topic before."""
    producer = stage.opens("orders")
    make = producer._router.client

    def slowly(cluster: str) -> object:
        if cluster == "west":
            producer.produce("orders", b"meanwhile")
        return make(cluster)

    producer._router.client = slowly  # type: ignore[method-assign, assignment]
    stage.at("east").lives = False
    stage.hears("west", 2, "orders")
    stage.turn(2)
    assert stage.log("east") == [("orders", b"first")]
    assert (b"meanwhile" in dict(stage.log("west")).values(), stage.at("east").flying) == (True, [])


def test_kept_calls_stay_where_a_client_does_not_take_them_and_only_one_that_is_at_fault_is_set_aside(
    stage: Stage,
) -> None:
    producer = stage.opens("orders", "payments")
    stage.hears("east", 1, "orders", "payments", step=1, held=True)
    stage.turn()
    heard: list[tuple[int, str | None, bytes | str | None]] = []

    def hears(error: KafkaError | None, message: Message | None) -> None:
        assert error is not None
        assert message is not None, "as whoever is told by librdkafka itself may count on"
        assert (message.error(), message.partition(), message.offset()) == (error, None, None)
        heard.append((error.code(), message.topic(), message.value()))

    producer.produce("orders", b"1")
    producer.produce("orders", b"2")
    producer.produce("payments", b"too large", on_delivery=hears)
    producer.produce("payments", b"too large, and nobody is to be told")
    east = stage.at("east")
    east.refuses = {"orders": fault(KafkaError._STATE), "payments": fault(KafkaError.MSG_SIZE_TOO_LARGE)}
    stage.hears("east", 1, "orders", "payments", step=2)
    stage.turn(3)
    assert producer.poll() == 1
    assert heard == [(KafkaError.MSG_SIZE_TOO_LARGE, "payments", b"too large")]
    assert len(producer) == 2
    refused, waits = sorted(stage.said)
    assert mentions(refused, "payments", "Message size too large")
    assert mentions(waits, "orders", "Erroneous state")
    east.refuses = {}
    stage.turn()
    assert east.log[-2:] == [("orders", b"1"), ("orders", b"2")]


@pytest.mark.parametrize("kept", [False, True])
def test_a_client_that_met_a_fatal_error_is_replaced_and_nothing_is_lost(stage: Stage, kept: bool) -> None:
    producer = stage.opens("orders")
    dead = stage.at("east")
    producer.produce("orders", b"on its way")
    if kept:
        stage.hears("west", 1, "orders", step=1, held=True)
        dead.lives = False
        stage.turn()
    dead.refuses["orders"] = fault(KafkaError._FATAL)
    producer.produce("orders", b"later")
    if kept:
        stage.hears("east", 1, "orders", step=2)
    stage.turn(2)
    assert stage.at("east") is not dead
    assert stage.at("east").log == [("orders", b"on its way"), ("orders", b"later")]
    assert [mentions(one, "east") for one in stage.said if "fatal" in one] == [True]
    stage.turn(2)
    assert len(stage.at("east").log) == 2


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize(
    ("error", "call"),
    [
        (TypeError, {"headers": [("trace", 5)]}),
        (TypeError, {"headers": [(b"trace", b"as bytes")]}),
        (TypeError, {"headers": 5}),
        (ValueError, {"headers": {"\ud800": b""}}),
        (ValueError, {"headers": {"x" * 70_000: b""}}),
        (ValueError, {"value": "\ud800"}),
        (TypeError, {"key": bytearray(b"key")}),
        (TypeError, {"timestamp": 1.5}),
        (ValueError, {"timestamp": 1 << 63}),
        (TypeError, {"partition": "1"}),
        (ValueError, {"partition": 1 << 31}),
        (ValueError, {"topic": "orders\0"}),
        (ValueError, {"topic": "x" * 70_000}),
        (TypeError, {"topic": b"orders"}),
    ],
)
def test_what_no_record_can_be_is_told_to_whoever_calls_whether_its_topic_is_held_or_not(
    stage: Stage, call: dict[str, Any], error: type[Exception], held: bool
) -> None:
    producer = stage.opens("orders")
    if held:
        stage.hears("east", 1, "orders", step=1, held=True)
        stage.turn()
    with pytest.raises(error):
        producer.produce(**({"topic": "orders", "value": b"x"} | call))
    assert len(producer) == 0


def test_a_kept_call_that_no_client_takes_keeps_nobody_waiting(stage: Stage) -> None:
    producer = stage.opens("orders", "payments")
    stage.hears("east", 1, "orders", "payments", step=1, held=True)
    stage.turn()
    for topic in ("orders", "payments"):
        producer.produce(topic, b"held")
    stage.at("east").refuses["orders"] = OverflowError("too large")
    stage.hears("east", 1, "orders", "payments", step=2)
    stage.turn(2)
    assert (stage.at("east").log[-1], len(producer)) == (("payments", b"held"), 1)
    assert ["too large" in one for one in stage.said] == [True]


def test_a_switch_that_is_heard_of_in_the_middle_of_a_turn_is_told_no_sooner_than_nothing_is_sent(stage: Stage) -> None:
    producer = stage.opens("orders")
    producer.produce("orders", b"on its way")

    def comes() -> None:
        stage.centre.meanwhile = lambda: None
        stage.hears("east", 1, "orders", step=1, held=True)

    def calls() -> None:
        stage.at("east").meanwhile = lambda: None
        producer.produce("orders", b"meanwhile")

    stage.centre.meanwhile, stage.at("east").meanwhile = comes, calls
    for _ in range(3):
        stage.turn()
        if not stage.centre.held():
            assert (stage.at("east").flying, producer._router.routes) == ([], {})
    assert not stage.centre.held()


def test_a_switch_that_is_heard_of_right_before_kept_calls_are_sent_keeps_them(stage: Stage) -> None:
    """The first switch has let it go, and a second one has it when it would be sent."""
    producer = stage.opens("orders")
    stage.hears("east", 1, "orders", step=1, held=True)
    stage.turn()
    producer.produce("orders", b"held")
    stage.hears("east", 1, "orders", step=2)
    asked: list[int] = []

    def comes() -> None:
        asked.append(1)
        if len(asked) == 1:
            stage.hears("east", 1, "orders", step=3, held=True)

    stage.centre.meanwhile = comes
    stage.turn()
    assert stage.log("east") == [("orders", b"first")]
    assert stage.centre.held() == {"orders"}
    stage.turn()
    assert not stage.centre.held()


def test_nothing_that_was_kept_is_sent_once_the_lease_is_over(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine may sleep between the look at the home and the call."""
    producer = stage.opens("orders")
    stage.hears("east", 1, "orders", step=1, held=True)
    stage.turn()
    producer.produce("orders", b"held")
    stage.hears("east", 1, "orders", step=2)

    def sleeps() -> None:
        monkeypatch.setattr("twinshore.client.producer_routing.steady_s", lambda: steady_s() + 3600)

    stage.centre.meanwhile = sleeps
    stage.turn()
    assert stage.log("east") == [("orders", b"first")]
    assert len(producer) == 1


def test_a_refusal_by_a_switchs_rules_is_no_answer_though_it_is_heard_once_the_topic_has_moved(stage: Stage) -> None:
    producer = stage.opens("orders")
    east, heard = stage.at("east"), list[object]()
    producer.produce("orders", b"refused for now", on_delivery=lambda error, _: heard.append(error))
    stage.hears("west", 2, "orders")
    east.meanwhile = lambda: east.answers(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    stage.turn(2)
    assert stage.at("west").log == [("orders", b"refused for now")]
    producer.produce("orders", b"refused for good", on_delivery=lambda error, _: heard.append(error))
    stage.at("west").answers(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    stage.turn()
    producer.poll()
    assert (heard, len(producer)) == ([], 2), "a switch may have begun there"
    producer.produce("orders", b"behind it")
    stage.turn()
    stage.hears("west", 2, "orders")
    stage.turn(2)
    producer.poll()
    assert [isinstance(one, KafkaError) for one in heard] == [True, True]
    assert stage.at("west").log[-1] == ("orders", b"behind it")


@pytest.mark.claim("client", "refused-early", "a refusal that comes before the word of the hold is no error")
def test_a_refusal_that_is_heard_before_the_hold_is_sent_again_at_the_new_home(stage: Stage) -> None:
    producer, heard = stage.opens("orders"), list[object]()
    for value in (b"one", b"two"):
        producer.produce("orders", value, on_delivery=lambda error, _: heard.append(error))
    stage.at("east").answers(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    stage.turn()
    producer.produce("orders", b"three", on_delivery=lambda error, _: heard.append(error))
    stage.turn()
    assert stage.at("east").flying == [], "nothing may overtake what was refused"
    stage.hears("east", 1, "orders", step=2, held=True)
    stage.turn(2)
    assert stage.centre.held() == frozenset(), "nothing is on its way"
    stage.hears("west", 2, "orders")
    stage.turn(3)
    stage.at("west").answers()
    producer.poll()
    assert heard == [None, None, None]
    assert [value for _, value in stage.at("west").log] == [b"one", b"two", b"three"]
    assert stage.said == []


@pytest.mark.claim("client", "refused-orphaned", "rules that a dead switch left behind its hold make no call fail")
def test_a_refusal_behind_a_hold_that_ran_out_waits_until_the_switch_is_ended(stage: Stage) -> None:
    producer, heard = stage.opens("orders"), list[object]()
    stage.hears("east", 1, "orders", step=2, held=True, hold_ms=1)
    time.sleep(0.01)
    stage.hears("east", 1, "orders", step=2, held=True, hold_ms=1)
    producer.produce("orders", b"one", on_delivery=lambda error, _: heard.append(error))
    stage.turn(2)
    stage.at("east").answers(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    for _ in range(2):
        stage.hears("east", 1, "orders", step=2, held=True, hold_ms=1)
        stage.turn()
        assert (heard, stage.at("east").flying) == ([], []), "the rules stay until somebody ends the switch"
    stage.hears("east", 1, "orders", step=3)
    stage.turn(3)
    stage.at("east").answers()
    producer.poll()
    assert heard == [None]
    assert len(stage.said) == 1 and "hold ran out" in stage.said[0]


def test_a_refusal_is_told_to_whoever_called_and_else_to_an_operator(stage: Stage) -> None:
    producer = stage.opens("orders")
    east, heard = stage.at("east"), list[object]()
    for headers in (None, [("trace", b"1")]):  # straight, and the longer way
        producer.produce("orders", b"nobody is to be told", headers=headers)
    producer.produce("orders", b"told", on_delivery=lambda error, _: heard.append(error))
    east.answers(KafkaError.MSG_SIZE_TOO_LARGE)
    stage.turn()
    producer.poll()
    assert (len(heard), len(producer)) == (1, 0)
    assert [mentions(one, "orders", "east", "Message size too large") for one in stage.said] == [True]
    producer.produce("orders", b"on its way as the producer is closed")
    east.lives = False
    assert producer.close(0) == 1, "which tells of it"
    assert len(stage.said) == 1


def test_a_push_makes_a_producer_forget_no_switch(stage: Stage) -> None:
    """The old home answers first, and was not told yet that the topic has left it."""
    producer = stage.opens("orders")
    stage.hears("west", 2, "orders")
    stage.turn()
    stage.pushes("east", {**CLUSTERS, "east": {**CLUSTERS["east"], "linger.ms": 5}})
    stage.turn()
    assert producer.where("orders") == "west"
    stage.pushes("stage", {"stage": {"bootstrap.servers": "127.0.0.1:3"}})
    stage.turn()
    assert mentions(producer.where("orders"), "orders", "west")


def test_whoever_is_warned_may_call_the_producer(stage: Stage, request: pytest.FixtureRequest) -> None:
    """And what it raises ends no thread."""
    asked: list[int] = []

    class Asks(logging.Handler):
        def emit(self, _: logging.LogRecord) -> None:
            asked.append(len(producer))
            raise BrokenPipeError

    producer, handler, log = stage.opens("orders"), Asks(), logging.getLogger("twinshore.client")
    log.addHandler(handler)
    request.addfinalizer(lambda: log.removeHandler(handler))
    stage.hears("east", 1, "orders", step=1, held=True)
    stage.turn()
    producer.produce("orders", b"too large")
    stage.at("east").refuses["orders"] = fault(KafkaError.MSG_SIZE_TOO_LARGE)
    stage.hears("east", 1, "orders", step=2)
    stage.turn()
    assert asked == [0]


def test_a_producer_is_closed_though_whom_it_tells_of_an_answer_raises(stage: Stage, tmp_path: Path) -> None:
    def raises(*_: object) -> None:
        raise LookupError("the application's own")

    producer = stage.opens("orders", spool=tmp_path)
    producer.produce("orders", b"answered", on_delivery=raises)
    stage.at("east").answers()
    producer.produce("orders", b"on its way")
    with pytest.raises(LookupError), producer:
        pass
    assert stage.centre.goodbyes == 1
    with pytest.raises(RuntimeError, match="is closed"):
        producer.produce("orders", b"later")
    spool = Spool(tmp_path)
    assert spool.topics() == {"orders": 1}, "its lock is free, and what was on its way is there"
    spool.close(mark=False)


def test_a_producer_that_is_closed_while_it_takes_up_a_push_ends_in_good_order(stage: Stage, tmp_path: Path) -> None:
    producer = stage.opens("orders", spool=tmp_path)
    producer.produce("orders", b"on its way")
    east = stage.at("east")
    east.lives = False
    flushes: list[int] = []

    def meanwhile() -> None:
        flushes.append(1)
        if len(flushes) == 3:
            producer._router.stopping.set()

    east.meanwhile = meanwhile
    before = stage.centre
    stage.pushes("west", CLUSTERS)
    stage.turn()
    assert len(flushes) == 3, "it does not wait for what is on its way as long as it else would"
    assert stage.centre is before, "nobody else is asked where topics are at home: whom would they wait for?"
    producer._router.stopping.clear()
    east.meanwhile = lambda: None
    assert producer.close(0) == 1
    assert before.goodbyes == 1
