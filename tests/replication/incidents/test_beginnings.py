"""Which twins lack their sources' beginnings, and the rows that say so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testkit.errors import mentions
from testkit.log_lines import LogLines
from twinshore.config.errors import KafkaError
from twinshore.config.model import TopicPartition
from twinshore.config.settings import parse_settings
from twinshore.kafka.protocol.error_codes import Code
from twinshore.replication.core.incident_rules import MissingOffsets, find_missing_offsets, select_suspect_twins
from twinshore.replication.incident_watch import LogStartWatch
from twinshore.replication.recorder import LinkStats
from twinshore.state.core.values import IncidentRow, TwinRow
from twinshore.state.store import Store, open_store

LINK = "east->west"
SETTINGS = """
[clusters.east]
bootstrap = ["127.0.0.1:1"]
[clusters.west]
bootstrap = ["127.0.0.1:2"]
[links."east->west"]
topics = ["orders"]
"""
ONE, TWO = TopicPartition("orders", 0), TopicPartition("orders", 1)


def test_only_a_twin_that_begins_later_than_tasks_told_is_looked_into() -> None:
    told = {ONE: 5, TWO: 5}
    assert select_suspect_twins({ONE: 5, TWO: 6}, told, {}) == [TWO]
    assert select_suspect_twins({ONE: 5, TWO: 0}, told, {ONE: MissingOffsets(0, 5)}) == [ONE], "its row may be over"
    assert select_suspect_twins({ONE: 0}, {}, {}) == []


@pytest.mark.parametrize(
    ("twin", "source", "cut", "lack"),
    [
        (100, 0, 0, MissingOffsets(0, 100)),
        (100, 40, 40, MissingOffsets(40, 100)),
        (100, 100, 0, None),
        (100, 120, 0, None),  # the mirror will cut it
        (100, 60, 100, None),  # a new leader of the source begins lower, and the mirror had cut the twin before
        (0, 0, 0, None),
    ],
)
def test_what_a_twin_lacks(twin: int, source: int, cut: int, lack: MissingOffsets | None) -> None:
    assert find_missing_offsets({ONE: twin}, {ONE: source}, {ONE: cut}).get(ONE) == lack
    assert find_missing_offsets({ONE: twin}, {}, {}) == {}, "a source that cannot be asked"


class Log:
    """A cluster that says where its logs begin."""

    def __init__(self, starts: dict[TopicPartition, int]) -> None:
        self.starts, self.asked = starts, list[TopicPartition]()

    def offsets_of_each(
        self, parts: Any, _kind: object
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, KafkaError]]:
        self.asked += parts
        unled = KafkaError("nobody leads it", code=Code.leader_not_available, retriable=True)
        found = {part: self.starts[part] for part in parts if part in self.starts}
        return found, {part: unled for part in parts if part not in self.starts}


class Pumps:
    """What tasks told of the link."""

    def __init__(self) -> None:
        self.live = LinkStats()

    def starts(self, _link: str) -> dict[TopicPartition, int]:
        return self.live.starts

    def cut_to(self, _link: str) -> dict[TopicPartition, int]:
        return self.live.cut_to


class Place:
    def __init__(self, folder: Path, said: LogLines) -> None:
        self.store: Store = open_store(f"sqlite:///{folder}/store.db")
        self.twins = [TwinRow(LINK, "orders", number, "aa", "bb", 0, 0, 1) for number in (0, 1)]
        self.store.twins.save(self.twins)
        self.source = Log({ONE: 0, TWO: 0})
        self.target = Log({ONE: 0, TWO: 0})
        self.tasks = Pumps()
        self.live = self.tasks.live
        self.said = said
        self.watch = self.begun()

    def begun(self) -> LogStartWatch:
        link = parse_settings(SETTINGS, name="settings.toml", env={}).links[0]
        sides: tuple[Any, Any] = (self.source, self.target)
        return LogStartWatch(link, *sides, self.store, self.tasks)

    def open(self) -> list[IncidentRow]:
        return list(self.store.incidents.rows(LINK, open_only=True))

    def ranges(self) -> list[tuple[int, int, int]]:
        return [(r.incident.partition, r.incident.from_offset, r.incident.to_offset) for r in self.open()]


@pytest.fixture
def place(tmp_path: Path, log_lines: LogLines) -> Iterator[Place]:
    made = Place(tmp_path, log_lines)
    yield made
    made.store.close()


def test_a_row_opens_grows_and_closes(place: Place) -> None:
    place.watch.look()
    assert (place.open(), place.source.asked) == ([], []), "twins that begin at 0 lack nothing"
    begins = place.target.starts
    begins[TWO] = 30
    place.watch.look()
    place.watch.look()
    assert place.ranges() == [(1, 0, 30)]
    assert mentions(place.open()[0].incident.sentence, "0 to 29")
    begins[TWO] = 50
    again = place.begun()  # by another process, which finds the row
    again.look()
    assert place.ranges() == [(1, 0, 50)]
    place.source.starts[TWO] = 40
    again.look()
    assert len(place.open()) == 1, "the source has not passed it"
    place.source.starts[TWO] = 50
    again.look()
    assert place.open() == []
    assert len(place.store.incidents.rows(LINK)) == 2


def test_a_side_that_cannot_be_asked_changes_nothing(place: Place) -> None:
    place.target.starts[TWO] = 30
    place.watch.look()
    del place.source.starts[TWO]
    place.watch.look()
    place.target.starts.clear()
    place.watch.look()
    assert place.ranges() == [(1, 0, 30)]


def test_what_the_mirror_cut_is_no_loss_under_a_leader_that_begins_lower(place: Place) -> None:
    place.live.starts[ONE] = 30
    place.target.starts[ONE] = 30
    place.watch.look()
    place.live.starts[ONE] = 10
    place.watch.look()
    assert place.open() == []


def test_a_topic_that_was_made_again_is_not_taken_for_the_one_before(place: Place) -> None:
    for log in (place.source, place.target):
        log.starts = {ONE: 1_000_000, TWO: 0}
    place.live.starts[ONE] = 1_000_000
    place.watch.look()
    for log in (place.source, place.target):
        log.starts = {ONE: 0, TWO: 0}
    place.live.forget("orders")
    place.store.forget_topic(LINK, "orders")
    place.store.twins.save([replace(row, source_topic_id="cc", target_topic_id="dd") for row in place.twins])
    place.watch.look()
    place.target.starts[ONE] = 400_000
    place.watch.look()
    assert place.ranges() == [(0, 0, 400_000)]


def test_a_cluster_that_does_not_answer_is_asked_once(place: Place) -> None:
    many = [TwinRow(LINK, f"topic-{number}", 0, "aa", "bb", 0, 0, 1) for number in range(50)]
    place.store.twins.save(many)
    asked: list[int] = []

    def silent(parts: Any, _kind: object) -> tuple[dict[TopicPartition, int], dict[TopicPartition, KafkaError]]:
        asked.append(len(parts))
        raise KafkaError("east: no answer", retriable=True)

    place.target.offsets_of_each = silent  # type: ignore[method-assign]
    place.watch.look()
    assert asked == [52]
