from random import Random

import pytest

from twinshore.kafka.clock import delay_s
from twinshore.kafka.protocol.error_codes import Code, error_kind, kafka_error, shorten_broker_message


def test_the_table_calls_codes_by_kafkas_own_names() -> None:
    for code in Code:
        assert error_kind(int(code)).name == code.name.upper()


def test_codes_of_tomorrow_have_a_name_and_count_as_passing() -> None:
    kind = error_kind(9999)
    assert "9999" in kind.name
    assert kind.retriable


def test_a_refusal_names_place_code_and_remedy() -> None:
    error = kafka_error(Code.invalid_replication_factor, "west: topic orders")
    assert str(error) == (
        "west: topic orders: the replication factor is larger than the number of brokers available "
        "(INVALID_REPLICATION_FACTOR, code 38) (choose a smaller replication factor or start more brokers)"
    )
    assert error.code == 38
    assert not error.retriable


def test_waits_double_are_spread_and_bounded() -> None:
    rng = Random(7)
    assert delay_s(0, rng) == 0.0
    for failures in range(1, 200):
        waits = [delay_s(failures, rng, first_s=0.1, longest_s=3.0) for _ in range(50)]
        ceiling_s = min(3.0, 0.1 * 2 ** (failures - 1))
        assert ceiling_s / 10 <= min(waits) < max(waits) <= ceiling_s


@pytest.mark.parametrize(
    ("said", "brief"),
    [
        ("Deletion of topic(s) is off", "Deletion of topic(s) is off"),
        ("Session@45e1b9e2 has expired", "Session has expired"),
        (
            "Request Request(processor=2, connectionId=10.0.0.1:9092-10.0.0.7:5432-0-3, session=Session@25291750, "
            "listenerName=ListenerName(SASL), buffer=null, envelope=Some(Request(processor=-1, buffer="
            "java.nio.HeapByteBuffer[pos=0 lim=7 cap=9]))) needs ALTER permission.",
            "Request needs ALTER permission.",
        ),
        ("Request Request(processor=2, session=Session(User", "Request"),
        ("x" * 1000, "x" * 240 + " ..."),
    ],
)
def test_of_what_a_broker_says_the_objects_of_its_program_are_left_out(said: str, brief: str) -> None:
    """They are others in each answer, so that no two sentences would be equal."""
    assert shorten_broker_message(said) == brief
    assert kafka_error(Code.cluster_authorization_failed, "west", detail=said).message.endswith(f": {brief}")
