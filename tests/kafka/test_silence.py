"""A cluster that answers nobody is asked by one at a time, and holds nobody else."""

from __future__ import annotations

import threading
import time
from contextlib import closing

import pytest

from tests.kafka.peers import peer, silent
from twinshore.config.errors import KafkaError
from twinshore.config.model import Cluster
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.pool import (
    PROBE_INTERVAL_S,
    UNAVAILABLE_AFTER_S,
    ClusterAvailability,
    ClusterUnavailableError,
    ConnectionPool,
)

AWAY = KafkaError("east 127.0.0.1:1: cannot connect", retriable=True, hint="is it up?")


class Machine:
    now_s = 100.0


def fail(silence: ClusterAvailability, error: Exception = AWAY) -> None:
    with pytest.raises(type(error)) as caught, silence.asking():
        raise error
    assert caught.value is error


def test_after_some_seconds_one_asks_for_all_and_an_answer_frees_them() -> None:
    machine = Machine()
    silence = ClusterAvailability(lambda: machine.now_s)
    fail(silence)
    machine.now_s += UNAVAILABLE_AFTER_S - 0.1
    silence.check()
    fail(silence)
    machine.now_s += 0.2
    with pytest.raises(ClusterUnavailableError) as caught:
        silence.check()
    assert (caught.value.message, caught.value.hint, caught.value.retriable) == (AWAY.message, AWAY.hint, True)
    fail(silence)  # whoever comes first asks
    with pytest.raises(ClusterUnavailableError), silence.asking():
        pytest.fail("it was asked again at once")
    machine.now_s += PROBE_INTERVAL_S
    heard: list[type[Exception]] = []

    def other() -> None:
        try:
            with silence.asking():
                heard.append(Exception)
        except ClusterUnavailableError:
            heard.append(ClusterUnavailableError)

    with silence.asking():
        silence.check()  # who asks may go on asking
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert heard == [ClusterUnavailableError]
    silence.check()
    fail(silence)
    machine.now_s += UNAVAILABLE_AFTER_S - 0.1
    silence.check()


def test_an_answer_that_refuses_is_an_answer_and_what_is_no_answer_leaves_it_as_it_was() -> None:
    machine = Machine()
    silence = ClusterAvailability(lambda: machine.now_s)
    fail(silence)
    machine.now_s += UNAVAILABLE_AFTER_S
    fail(silence, ValueError("a bug"))
    with pytest.raises(ClusterUnavailableError):
        silence.check()
    machine.now_s += PROBE_INTERVAL_S
    fail(silence, KafkaError("east: it refuses", code=29))
    silence.check()


def test_of_many_askers_of_a_silent_cluster_all_but_one_hear_at_once() -> None:
    pool = ConnectionPool(2, spares=True)
    with peer(silent) as address:
        cluster = Cluster("east", (f"{address[0]}:{address[1]}",))
        askers = [KafkaCluster(cluster, pool=pool, patience_s=1.0, call_s=1.0) for _ in range(40)]
        with closing(askers[0]) as first:
            until_s = time.monotonic() + 30
            while time.monotonic() < until_s:
                with pytest.raises(KafkaError) as caught:
                    first.metadata([])
                if isinstance(caught.value.__cause__, ClusterUnavailableError):
                    break
            began_s = time.monotonic()
            for asker in askers[1:]:
                with pytest.raises(KafkaError), closing(asker):
                    asker.metadata([])
            took_s = time.monotonic() - began_s
    assert took_s < 20, f"39 questions took {took_s:.0f} s, and each has a second"


def test_an_asker_that_shares_nothing_waits_as_long_as_it_may() -> None:
    with (
        peer(silent) as address,
        closing(KafkaCluster(Cluster("east", (f"{address[0]}:{address[1]}",)), patience_s=0.5, call_s=0.5)) as kafka,
    ):
        for _ in range(3):
            began_s = time.monotonic()
            with pytest.raises(KafkaError, match=r"metadata within 0\.5 s"):
                kafka.metadata([])
            assert time.monotonic() - began_s > 0.05
