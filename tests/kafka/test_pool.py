"""Connections that many askers share: a few to each address, none behind a question that hangs, none left over."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from tests.kafka.peers import answer, greet, peer, read_request
from tests.kafka.test_connection import PRODUCER_ID, ask_id, id_body
from twinshore.config.errors import KafkaError
from twinshore.config.model import Security
from twinshore.kafka.connection import Connection, open_connection
from twinshore.kafka.pool import ConnectionPool

Address = tuple[str, int]


@contextmanager
def answering(gate: threading.Event) -> Iterator[Address]:
    """A broker that answers each question once the gate is open."""

    def serve(connection: socket.socket) -> None:
        greet(connection, PRODUCER_ID)
        while True:
            _, _, correlation_id = read_request(connection)
            gate.wait(20)
            answer(connection, correlation_id, id_body(correlation_id))

    with peer(serve) as address:
        yield address


@pytest.fixture
def gate() -> threading.Event:
    return threading.Event()


def lent(pool: ConnectionPool, address: Address, asker: object) -> Connection:
    return pool.lend((address, Security()), asker, lambda: open_connection(address, Security()))


def until(holds: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


def test_a_free_connection_is_lent_and_new_ones_only_up_to_the_bound(gate: threading.Event) -> None:
    pool, askers = ConnectionPool(2), [object() for _ in range(6)]
    with answering(gate) as address:
        first = lent(pool, address, askers[0])
        assert lent(pool, address, askers[1]) is first, "nobody waits on it"
        found: list[int] = []
        asking = [threading.Thread(target=lambda one=one: found.append(ask_id(one))) for one in (first, first)]
        for thread in asking:
            thread.start()
        until(lambda: len(first.callers) == 2)
        second = lent(pool, address, askers[2])
        assert second is not first
        assert lent(pool, address, askers[3]) is second, "the other one has two who wait"
        asking.append(threading.Thread(target=lambda: found.append(ask_id(second))))
        asking[-1].start()
        until(lambda: len(second.callers) == 1)
        assert lent(pool, address, askers[4]) is second
        gate.set()
        for thread in asking:
            thread.join(20)
        assert len(found) == 3
        for asker in askers:
            pool.leave(asker)
        assert first.closed
        assert second.closed


def test_who_waits_for_a_turn_behind_one_that_hangs_waits_no_longer_than_for_an_answer(gate: threading.Event) -> None:
    pool = ConnectionPool(1)
    with answering(gate) as address:
        line = lent(pool, address, "hangs")
        hangs = threading.Thread(target=partial(ask_id, line, 20.0))
        hangs.start()
        until(lambda: line.callers)
        began_s = time.monotonic()
        with pytest.raises(KafkaError, match="InitProducerId in time") as caught:
            ask_id(lent(pool, address, "looks"), 0.3)
        assert caught.value.retriable
        assert time.monotonic() - began_s < 5
        assert not line.closed, "the other question goes on"
        gate.set()
        hangs.join(20)
        assert ask_id(lent(pool, address, "looks")) > 0
        pool.leave("looks")
        assert not line.closed
        pool.leave("hangs")
        assert line.closed


def test_a_lost_connection_is_replaced_and_another_user_has_his_own(gate: threading.Event) -> None:
    gate.set()
    pool = ConnectionPool(4)
    with answering(gate) as address:
        line = lent(pool, address, "first")
        line.close()
        fresh = lent(pool, address, "first")
        assert fresh is not line
        other = Security(username="somebody else")
        theirs = pool.lend((address, other), "second", lambda: open_connection(address, Security()))
        assert theirs is not fresh
        pool.leave("first", but=[address])
        assert not fresh.closed
        pool.leave("first")
        assert fresh.closed
        assert not theirs.closed
        pool.leave("second")


def test_who_leaves_while_it_is_dialled_for_him_gets_an_error_and_leaves_nothing_behind(gate: threading.Event) -> None:
    gate.set()
    pool = ConnectionPool(1)
    dialled: list[Connection] = []
    with answering(gate) as address:

        def dial() -> Connection:
            dialled.append(open_connection(address, Security()))
            pool.leave("gone")
            return dialled[0]

        with pytest.raises(KafkaError, match="this client was closed"):
            pool.lend((address, Security()), "gone", dial)
        assert dialled[0].closed


def test_a_dial_that_fails_leaves_room_for_the_next_one(gate: threading.Event) -> None:
    gate.set()
    pool = ConnectionPool(1)

    def fails() -> Connection:
        raise KafkaError("nobody is there", retriable=True)

    with answering(gate) as address:
        for _ in range(3):
            with pytest.raises(KafkaError, match="nobody is there"):
                pool.lend((address, Security()), "first", fails)
        assert not lent(pool, address, "first").closed
        pool.leave("first")
