"""What a consumer of prefix pairs does with its places, and what its callbacks may do; librdkafka is played."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_INVALID, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientTopicPartition

from testkit.errors import mentions
from testkit.log_lines import LogLines
from twinshore.client.core.pushes import PushedSettings
from twinshore.client.log_ends import LogEndAnswer
from twinshore.client.paired_consumer import ASSIGNMENT_STRATEGY, FailoverPairConsumer
from twinshore.client.sites import sites_of
from twinshore.config.model import TopicPartition
from twinshore.kafka.clock import steady_s

CLUSTERS = {"east": {"bootstrap.servers": "127.0.0.1:1"}, "west": {"bootstrap.servers": "127.0.0.1:2"}}
GROUP = 5  # the group's place in either log
OWN, TWIN = ("orders", 0), ("west.orders", 0)
Logs = dict[tuple[str, int], int]


class Fetched:
    def __init__(self, topic: str, offset: int) -> None:
        self._topic, self._offset = topic, offset

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def error(self) -> None:
        return None

    def key(self) -> bytes:
        return b"key"

    def value(self) -> bytes:
        return b"%d" % self._offset

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_000 + self._offset


class Played:
    """It is dealt both logs at once. `fetches` is what polls bring, `answers` is set while its cluster answers."""

    def __init__(self, settings: dict[str, Any], stage: Stage) -> None:
        self.settings, self.stage = settings, stage
        self.assigned: list[ClientTopicPartition] = []
        self.names: list[str] = []
        self.paused: set[str] = set()
        self.sought: list[tuple[str, int]] = []
        self.fetches: list[Fetched] = []
        self.has_stopped = False
        stage.made.append(self)

    def subscribe(self, topics: list[str], on_assign: Any, on_revoke: Any, on_lost: Any) -> None:
        self.names, self.on_assign, self.on_revoke, self.on_lost = topics, on_assign, on_revoke, on_lost

    def poll(self, _: float) -> Fetched | None:
        if not self.assigned and self.names:
            self.on_assign(self, [ClientTopicPartition(one, 0, OFFSET_INVALID) for one in self.names])
        return self.fetches.pop(0) if self.fetches else None

    def assign(self, partitions: list[ClientTopicPartition]) -> None:
        self.assigned = partitions

    def assignment(self) -> list[ClientTopicPartition]:
        return self.assigned

    def committed(self, partitions: list[ClientTopicPartition], _: float) -> list[ClientTopicPartition]:
        return [ClientTopicPartition(one.topic, one.partition, GROUP) for one in partitions]

    def pause(self, partitions: list[ClientTopicPartition]) -> None:
        self.paused |= {one.topic for one in partitions}

    def resume(self, partitions: list[ClientTopicPartition]) -> None:
        self.paused -= {one.topic for one in partitions}

    def seek(self, place: ClientTopicPartition) -> None:
        assert place.topic in self.paused
        if self.has_stopped:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.sought.append((place.topic, place.offset))

    def commit(self, offsets: list[ClientTopicPartition], **_: object) -> None:
        self.stage.answers.wait()
        self.stage.commits.append({one.topic: one.offset for one in offsets})

    def list_topics(self, **_: object) -> Any:
        return type("Metadata", (), {"topics": {}})

    def close(self) -> None:
        self.stage.answers.wait()
        if self.assigned:
            self.on_revoke(self, self.assigned)


class Ends:
    def __init__(self) -> None:
        self.found: list[LogEndAnswer] = []

    def want(self, *_: object) -> None:
        pass

    def take_answers(self) -> list[LogEndAnswer]:
        found, self.found = self.found, []
        return found

    def silent_s(self, *_: object) -> float:
        return 0.0

    def refusal(self) -> None:
        pass

    start = end = stop = refusal


class Stage:
    def __init__(self, said: LogLines) -> None:
        self.made: list[Played] = []
        self.commits: list[dict[str, int]] = []
        self.said = said
        self.answers = threading.Event()
        self.answers.set()
        self.ends = Ends()

    def reads(self, told: dict[str, Any] | None = None, config: dict[str, Any] | None = None) -> FailoverPairConsumer:
        settings = {"group.id": "ours", **(config or {})}
        consumer = FailoverPairConsumer(settings, clusters=CLUSTERS, cluster="east")
        consumer.subscribe(["orders"], **(told or {}))
        return consumer

    @property
    def at(self) -> Played:
        return self.made[-1]

    def end_at(self, cluster: str, name: str, offset: int) -> None:
        self.ends.found.append(LogEndAnswer(cluster, TopicPartition(name, 0), offset, steady_s()))

    def takes(self, consumer: FailoverPairConsumer, *offsets: int) -> list[int]:
        """These of orders, where nothing is to come of west's."""
        self.at.fetches += [Fetched("orders", one) for one in offsets]
        looks(consumer)
        self.end_at("west", "orders", GROUP)
        return [one.offset() or 0 for one in consumer.consume(100, 0.2)]


def joining(make: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
    """Makes members; other consumers are only made to see whether librdkafka takes their settings."""
    return lambda settings: make(settings) if ASSIGNMENT_STRATEGY in settings else SimpleNamespace(close=lambda: None)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch, log_lines: LogLines) -> Iterator[Stage]:
    made = Stage(log_lines)
    monkeypatch.setattr("twinshore.client.paired_consumer.Consumer", joining(lambda settings: Played(settings, made)))
    monkeypatch.setattr("twinshore.client.paired_consumer.LogEndPoller", lambda *_: made.ends)
    monkeypatch.setattr("twinshore.client.group_member.LEAVE_TIMEOUT_S", 0.2)
    yield made
    made.answers.set()


def looks(consumer: FailoverPairConsumer) -> list[Any]:
    """Whatever it did just before."""
    consumer._served_s = 0.0
    return consumer.consume(1, 0)


def offsets(places: list[ClientTopicPartition]) -> list[int]:
    return [one.offset for one in places]


def revoked(do: Callable[[FailoverPairConsumer], object]) -> dict[str, Any]:
    return {"on_revoke": lambda consumer, _: do(consumer)}


def test_a_cluster_that_does_not_answer_keeps_nobody_from_the_other_one(stage: Stage) -> None:
    told: list[str] = []
    consumer = stage.reads({"on_revoke": lambda *_: told.append("revoked"), "on_lost": lambda *_: told.append("lost")})
    assert stage.takes(consumer, 5, 6) == [5, 6]
    stage.answers.clear()
    began_s = steady_s()
    consumer.move("west")
    assert steady_s() < began_s + 5
    assert (consumer.where(), told) == ("west", ["lost"])
    assert stage.said == ["ours leaves east, which does not answer"]
    stage.answers.set()
    consumer.close()


def test_what_is_committed_of_another_cluster_s_log_is_not(stage: Stage) -> None:
    with stage.reads(config={"enable.auto.commit": False}) as consumer:
        assert stage.takes(consumer, 5, 6) == [5, 6]
        consumer.move("west")
        looks(consumer)
        consumer.commit(offsets=[ClientTopicPartition("orders", 0, 300), ClientTopicPartition("east.orders", 0, 7)])
        assert stage.commits == [{"east.orders": 7}]
        assert [mentions(one, "ours", "orders-0", 300, "west") for one in stage.said] == [True]


def test_a_callback_has_the_places_of_what_was_handed_out_and_commits_them(stage: Stage) -> None:
    """What is held back is none of them."""
    found = list[int]()

    def commits(consumer: FailoverPairConsumer) -> None:
        parts = consumer.assignment()
        found.extend(offsets(consumer.position(parts)))
        consumer.commit(offsets=consumer.position(parts), asynchronous=False)

    consumer = stage.reads(revoked(commits), {"enable.auto.commit": False})
    assert stage.takes(consumer, 5, 6) == [5, 6]
    stage.at.fetches += [Fetched("orders", 7)]
    assert looks(consumer) == [], "west may have an older one"
    consumer.close()
    assert found == [7, GROUP]
    assert stage.commits == [{"orders": 7, "west.orders": GROUP}]


@pytest.mark.parametrize("whose", ["close", "move"])
def test_what_a_callback_raises_is_heard_once_and_the_cluster_is_left(stage: Stage, whose: str) -> None:
    raised = ValueError("of the application's own")

    def raises(_: object) -> None:
        raise raised

    consumer = stage.reads(revoked(raises))
    assert stage.takes(consumer, 5, 6) == [5, 6]
    with pytest.raises(ValueError, match="own"):
        consumer.close() if whose == "close" else consumer.move("west")
    assert stage.commits == [{"orders": 7, "west.orders": GROUP}]
    if whose == "move":
        assert consumer.where() == "west"
        looks(consumer)
        assert {one.topic: one.offset for one in stage.at.assigned} == {"east.orders": 7, "orders": GROUP}


def test_an_assignment_that_a_callback_raises_at_is_read_all_the_same(stage: Stage) -> None:
    def raises(*_: object) -> None:
        raise ValueError("of the application's own")

    with stage.reads({"on_assign": raises}) as consumer:
        with pytest.raises(ValueError, match="own"):
            looks(consumer)
        assert stage.takes(consumer, 5, 6) == [5, 6]


@pytest.mark.parametrize("calls", [True, False])
def test_the_beginning_is_read_from_where_it_is_asked_for(stage: Stage, calls: bool) -> None:
    def back(consumer: FailoverPairConsumer, partitions: list[ClientTopicPartition]) -> None:
        for one in partitions:
            one.offset = OFFSET_BEGINNING
        if calls:
            consumer.assign([ClientTopicPartition(one.topic, one.partition, one.offset) for one in partitions])

    with stage.reads({"on_assign": back}) as consumer:
        looks(consumer)
        assert offsets(stage.at.assigned) == [OFFSET_BEGINNING] * 2


def test_of_two_moves_with_nothing_dealt_out_between_them_the_places_are_carried(stage: Stage) -> None:
    with stage.reads(config={"enable.auto.commit": False}) as consumer:
        assert stage.takes(consumer, 5, 6) == [5, 6]
        consumer.move("west")
        consumer.move("east")
        assert offsets(consumer.position([ClientTopicPartition("orders", 0)])) == [7]
        looks(consumer)
        assert {one.topic: one.offset for one in stage.at.assigned} == {"orders": 7, "west.orders": GROUP}


@pytest.mark.parametrize("named", ["", "east"])
def test_a_pushed_pair_that_cannot_join_for_a_moment_joins_as_soon_as_it_can(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    """Nothing that it has read is forgotten meanwhile, and poll raises nothing."""
    monkeypatch.setattr("twinshore.client.paired_consumer.REJOIN_DELAY_S", 0.05)
    with stage.reads(config={"enable.auto.commit": False}) as consumer:
        assert stage.takes(consumer, 5, 6) == [5, 6]
        made = 0

        def fails_twice(settings: dict[str, Any]) -> Played:
            nonlocal made
            made += 1
            if made < 3:
                raise KafkaException(KafkaError(KafkaError._INVALID_ARG, "ssl.ca.location failed: No such file"))
            return Played(settings, stage)

        monkeypatch.setattr("twinshore.client.paired_consumer.Consumer", joining(fails_twice))
        pushed = {**CLUSTERS, named or "west": {"bootstrap.servers": "127.0.0.1:3"}}
        consumer._discovery._push(PushedSettings(sites_of(pushed, {"group.id": "ours"}), "west", "another one"))
        assert consumer.consume(1, 0) == []
        assert (consumer.assignment(), offsets(consumer.position([ClientTopicPartition("east.orders", 0)]))) == (
            [],
            [7],
        )
        with pytest.raises(RuntimeError, match=r"ours has not joined .* west"):
            consumer.commit()
        until_s = steady_s() + 10
        while len(stage.made) < 2 and steady_s() < until_s:
            assert consumer.consume(1, 0.01) == []
        looks(consumer)
        assert {one.topic: one.offset for one in stage.at.assigned} == {"east.orders": 7, "orders": GROUP}
        assert [mentions(one, "ours", "west", "ssl.ca.location failed") for one in stage.said] == [True]


def test_a_place_that_has_crossed_is_sought(stage: Stage) -> None:
    """Where it had not, librdkafka may have gone elsewhere, or nowhere."""
    with stage.reads() as consumer:
        looks(consumer)
        assert (stage.at.paused, stage.at.sought) == ({"west.orders"}, [])
        stage.end_at("east", "west.orders", GROUP - 1)
        looks(consumer)
        assert stage.at.paused == {"west.orders"}
        stage.end_at("east", "west.orders", GROUP)
        looks(consumer)
        assert (stage.at.paused, stage.at.sought) == (set(), [("west.orders", GROUP)])


def test_a_place_that_librdkafka_has_given_up_is_assigned_anew_with_all(stage: Stage) -> None:
    with stage.reads() as consumer:
        assert stage.takes(consumer, 5, 6) == [5, 6]
        stage.at.has_stopped = True
        stage.end_at("east", "west.orders", GROUP)
        looks(consumer)
        assert {one.topic: one.offset for one in stage.at.assigned} == {"orders": 7, "west.orders": GROUP}
        assert stage.at.paused == set()


def test_a_topic_that_was_made_anew_is_read_from_its_beginning(stage: Stage) -> None:
    with stage.reads() as consumer:
        assert stage.takes(consumer, 5, 6) == [5, 6]
        assert stage.takes(consumer, 0, 1) == [0, 1]
        assert offsets(consumer.position([ClientTopicPartition("orders", 0)])) == [2]
        assert [mentions(one, "ours", "orders-0", "offset 0") for one in stage.said] == [True]


def test_what_was_not_taken_is_committed_again(stage: Stage) -> None:
    with stage.reads(config={"auto.commit.interval.ms": 0}) as consumer:
        assert stage.takes(consumer, 5, 6) == [5, 6]
        consumer.consume(1, 0.2)
        assert stage.commits[-1]["orders"] == 7
        stage.commits.clear()
        consumer.consume(1, 0.2)
        assert [one for one in stage.commits if one] == []
        stage.at.settings["on_commit"](KafkaError(KafkaError._TIMED_OUT), [ClientTopicPartition("orders", 0, 7)])
        consumer.consume(1, 0.2)
        assert [one for one in stage.commits if one] == [{"orders": 7}]
