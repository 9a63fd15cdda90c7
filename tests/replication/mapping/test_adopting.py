"""Topics that hold data are proven beside the driver, which is never held up, and no more often than is of use."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from testkit.errors import mentions
from testkit.log_lines import LogLines
from tests.kafka.protocol.strategies import raw_batch
from twinshore.config.errors import KafkaError, WireError
from twinshore.config.model import Link, OffsetMode, OffsetRun, SourceOffset, TargetOffset, TopicPartition
from twinshore.config.settings import parse_settings
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.metadata import ClusterMetadata
from twinshore.kafka.protocol.fetch import FetchedPartitionById
from twinshore.replication import adopt
from twinshore.replication.adopt import (
    AdoptedPartition,
    Adopter,
    AdoptionPlanner,
    OffsetSyncs,
    UnprovenPosition,
)
from twinshore.replication.core.model import CarryTopic, Refuse
from twinshore.replication.topic_scanner import build_partition_configs
from twinshore.state.core.values import TwinRow
from twinshore.state.store import Store, open_store

SETTINGS = """
[clusters.east]
bootstrap = ["127.0.0.1:1"]
[clusters.west]
bootstrap = ["127.0.0.1:2"]
[links."east->west"]
mode = "mapped"
"""
CLUSTERS = parse_settings(SETTINGS, name="test", env={})
LINK = Link("east", "west", mode=OffsetMode.MAPPED)
STEP = CarryTopic("orders", 1, "aa", "bb", mapped=True)


class Logs(KafkaCluster):
    """A cluster of one topic that answers from memory."""

    def __init__(self, name: str, end: int, data: bytes = b"") -> None:
        super().__init__(CLUSTERS.cluster(name))
        self.end, self.data = end, data

    def list_offsets(self, parts: Iterable[TopicPartition], which: OffsetKind) -> dict[TopicPartition, int]:
        return dict.fromkeys(parts, 0 if which is OffsetKind.EARLIEST else self.end)

    def offsets_of_each(
        self, parts: Iterable[TopicPartition], which: OffsetKind
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, KafkaError]]:
        return self.list_offsets(parts, which), {}

    def read_from(self, named: TopicPartition, offset: int, *, bytes_max: int, committed: bool) -> FetchedPartitionById:
        del named, offset, bytes_max, committed  # One log, always answered whole.
        return FetchedPartitionById(b"", 0, 0, self.end, self.end, 0, None, None, [], memoryview(self.data))

    def metadata(self, topics: Sequence[str] | None = None, *, refresh: bool = True) -> ClusterMetadata:
        del topics, refresh
        return ClusterMetadata("", 0, {}, {})


@dataclass
class Stage:
    """An adopter whose proofs are the test's."""

    store: Store
    proof: Callable[[], list[AdoptedPartition]]
    said: LogLines
    ends: tuple[int, ...] = (9, 5)
    proofs: int = 0

    def __post_init__(self) -> None:
        self.target = Logs("west", 5)
        self.made: set[TwinRow] = set()
        self.adopter = Adopter(LINK, Logs("east", 9), self.target, self.store, self.made)

    def of(self, *_: object) -> list[AdoptedPartition]:
        self.proofs += 1
        return self.proof()

    def until(self, holds: Callable[[list[CarryTopic], list[Refuse]], bool]) -> tuple[list[CarryTopic], list[Refuse]]:
        deadline = time.monotonic() + 20
        while not holds(*(found := self.adopter.adopt([STEP]))):
            assert time.monotonic() < deadline, (found, self.said)
            time.sleep(0.01)
        return found


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    found = open_store(f"sqlite:///{tmp_path / 'store.db'}")
    yield found
    found.close()


@pytest.fixture
def stages(
    store: Store, monkeypatch: pytest.MonkeyPatch, log_lines: LogLines
) -> Iterator[Callable[[Callable[[], list[AdoptedPartition]]], Stage]]:
    made: list[Stage] = []

    def make(proof: Callable[[], list[AdoptedPartition]]) -> Stage:
        stage = Stage(store, proof, log_lines)
        monkeypatch.setattr(AdoptionPlanner, "of", lambda _, *asked: stage.of(*asked))
        monkeypatch.setattr(AdoptionPlanner, "ends", lambda *_: stage.ends)
        monkeypatch.setattr(AdoptionPlanner, "notes", lambda _: OffsetSyncs())
        made.append(stage)
        return stage

    yield make
    for stage in made:
        stage.adopter.close()


def proven() -> list[AdoptedPartition]:
    row = TwinRow(LINK.name, "orders", 0, "aa", "bb", 7, 0, 1)
    return [(row, OffsetRun(SourceOffset(7), TargetOffset(5), 0, 0), "as a test says")]


def unproven() -> list[AdoptedPartition]:
    raise UnprovenPosition("orders-0 cannot be proven")


def test_a_new_twin_is_untouched_and_one_that_holds_something_may_not_be(
    stages: Callable[[Callable[[], list[AdoptedPartition]]], Stage], store: Store
) -> None:
    for target in (0, 5):
        row = TwinRow(LINK.name, "orders", 0, "aa", f"b{target}", 7, 0, 1)
        offset_run = OffsetRun(SourceOffset(7), TargetOffset(target), 0, 0)
        stage = stages(lambda: [(row, offset_run, "as a test says")])  # noqa: B023
        stage.target.end = target
        stage.until(lambda ready, _: bool(ready))
        step = replace(STEP, target_topic_id=row.target_topic_id)
        (order,) = build_partition_configs(store, LINK, [step], stage.made).values()
        assert order.reached is not None
        assert order.untouched is (target == 0)
        store.forget_topic(LINK.name, "orders")


def test_a_proof_that_takes_long_holds_up_nobody_and_its_result_comes_later(
    stages: Callable[[Callable[[], list[AdoptedPartition]]], Stage], store: Store
) -> None:
    go_on = threading.Event()

    def slow() -> list[AdoptedPartition]:
        assert go_on.wait(20)
        return proven()

    stage = stages(slow)
    plain = CarryTopic("plain", 1, "cc", "dd")
    began = time.monotonic()
    for _ in range(5):
        assert stage.adopter.adopt([STEP, plain]) == ([plain], [])
    assert time.monotonic() - began < 5
    assert store.offset_runs.reached(LINK.name) == {}
    go_on.set()
    ready, refused = stage.until(lambda ready, _: bool(ready))
    assert (ready, refused, stage.proofs) == ([STEP], [], 1)
    assert store.offset_runs.reached(LINK.name)[("orders", 0)].source == 7
    assert any("orders-0 is mapped: continues with 7 of the source at 5 of the twin" in said for said in stage.said)


def test_a_close_does_not_wait_for_a_proof(stages: Callable[[Callable[[], list[AdoptedPartition]]], Stage]) -> None:
    over = threading.Event()

    def endless() -> list[AdoptedPartition]:
        over.wait(20)
        return []

    stage = stages(endless)
    stage.adopter.adopt([STEP])
    began = time.monotonic()
    stage.adopter.close()
    assert time.monotonic() - began < adopt.CLOSE_TIMEOUT_S + 3
    over.set()


def test_a_twin_that_was_written_to_since_is_proven_anew(
    stages: Callable[[Callable[[], list[AdoptedPartition]]], Stage], store: Store
) -> None:
    stage = stages(proven)
    stage.target.end = 6
    deadline = time.monotonic() + 20
    while stage.proofs < 2:
        assert stage.adopter.adopt([STEP]) == ([], [])
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert store.offset_runs.reached(LINK.name) == {}


def test_what_cannot_be_proven_is_tried_again_ever_more_rarely_until_a_log_moves(
    stages: Callable[[Callable[[], list[AdoptedPartition]]], Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adopt, "RETRY_INTERVAL_S", 0.02)
    monkeypatch.setattr(adopt, "RETRY_INTERVAL_S_MAX", 1000.0)
    stage = stages(unproven)
    _, (refused,) = stage.until(lambda _, refused: bool(refused))
    assert refused.sentence == "orders-0 cannot be proven"
    until_s = time.monotonic() + 1.5
    while time.monotonic() < until_s:
        assert stage.adopter.adopt([STEP]) == ([], [refused]), "it is refused all the while"
        time.sleep(0.005)
    assert 2 <= stage.proofs <= 8
    before = stage.proofs
    stage.proof, stage.ends = proven, (9, 6)
    stage.until(lambda ready, _: bool(ready))
    assert stage.proofs == before + 1


def test_a_cluster_that_does_not_answer_is_told_once_and_asked_again(
    stages: Callable[[Callable[[], list[AdoptedPartition]]], Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adopt, "AWAY_RETRY_S", 0.02)
    failures = iter([True, True, True])

    def away_first() -> list[AdoptedPartition]:
        if next(failures, False):
            raise KafkaError("east does not answer", retriable=True)
        return proven()

    stage = stages(away_first)
    ready, refused = stage.until(lambda ready, _: bool(ready))
    assert (ready, refused, stage.proofs) == ([STEP], [], 4)
    assert sum("adoptions wait: east does not answer" in said for said in stage.said) == 1


@pytest.mark.parametrize("data", [raw_batch(0, 5, magic=1), raw_batch(0, 5, b"?" * 40)], ids=["old", "damaged"])
def test_bytes_that_nobody_understands_refuse_their_topic_and_no_other(store: Store, data: bytes) -> None:
    source, target = Logs("east", 9), Logs("west", 5, data)
    found: tuple[Collection[AdoptedPartition], list[Refuse]] = AdoptionPlanner(LINK, source, target, store).propose(
        [STEP]
    )
    rows, (refused,) = found
    assert not rows
    assert (refused.topic, refused.kind) == ("orders", "position disagreement")


def test_notes_that_nobody_understands_refuse_what_needs_them(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(_: AdoptionPlanner) -> Mapping[TopicPartition, list[object]]:
        raise WireError("damaged")

    monkeypatch.setattr(AdoptionPlanner, "notes", damaged)
    rows, (refused,) = AdoptionPlanner(LINK, Logs("east", 9), Logs("west", 5), store).propose([STEP])
    assert rows == [] and mentions(refused.sentence, "orders", "damaged")
