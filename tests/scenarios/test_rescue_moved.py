"""A rescued file is written again while its topic moves on: to the home that was agreed to, or not at all, and each
record once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from testkit.errors import mentions
from tests.scenarios.test_following_writers import until
from tests.scenarios.test_switched_home import read
from tests.switch.flips import flip_of
from twinshore.config.errors import RefusedError
from twinshore.config.model import TopicPartition
from twinshore.config.settings import Settings, parse_settings
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.record_batch import Record
from twinshore.lab.cluster import LabCluster
from twinshore.state.core.values import LinkStateRow
from twinshore.state.store import Store, open_store
from twinshore.switch.core.unreplicated import (
    BATCH_RECORDS,
    RecordCount,
    ReplayedBatch,
    RescueOrigin,
    TransactionOutcome,
    UnreplicatedRecord,
    count_line,
    header_line,
    offset_runs_of,
    record_line,
    records_to_replay,
    split_into_batches,
)
from twinshore.switch.fencing import append_batch
from twinshore.switch.operations.rescued import REPLAYED_KIND, ReplayRequest, inspect_rescued_file, plan, replay_records
from twinshore.switch.rescue_steps import read_rescued_file

TOPIC, OTHER = "rescue-moved", "rescue-moved-half"
MANY = BATCH_RECORDS + 100


@pytest.fixture
def settings(tmp_path: Path, east: LabCluster, west: LabCluster) -> Settings:
    clusters = "".join(f"[clusters.{one.name}]\nbootstrap = {list(one.bootstrap)}\n" for one in (east, west))
    text = f'[store]\nurl = "sqlite:///{tmp_path / "store.db"}"\n{clusters}'.replace("'", '"')
    return parse_settings(text, name="settings", env={})


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    with open_store(settings.store.url) as opened:
        yield opened


def saved(folder: Path, topic: str, many: int = MANY) -> Path:
    """What east took and never sent, and west is its home since."""
    origin = RescueOrigin("f" * 32, "east", "west", topic, "a" * 32, 0, 10, 10 + many)
    lines = [
        UnreplicatedRecord(Record(10 + one, one, None, b"late %d" % one, ()), TransactionOutcome.COMMITTED)
        for one in range(many)
    ]
    path = folder / origin.file_name()
    texts = [header_line(origin), *map(record_line, lines), count_line(RecordCount(many, many))]
    path.write_text("".join(f"{text}\n" for text in texts))
    return path


def at_home(store: Store, topic: str, home: str, term: int) -> None:
    old = "east" if home == "west" else "west"
    store.topics_in_switch.change_homes([flip_of(topic, old, home, term, (0,))])


def test_what_was_agreed_to_is_looked_at_again(
    settings: Settings, store: Store, tmp_path: Path, east: LabCluster, west: LabCluster
) -> None:
    for lab in (east, west):
        lab.create_topic(TOPIC)
    path = saved(tmp_path, TOPIC)
    at_home(store, TOPIC, "west", 2)
    asked = ReplayRequest([path], TOPIC)
    planned = plan(asked, settings, store)
    assert [one.cluster for one in planned.steps] == ["west"]
    at_home(store, TOPIC, "east", 3)
    with pytest.raises(RefusedError, match=f"{TOPIC} .*east"):
        list(replay_records(planned, settings, store, by="anna"))
    path.write_text(path.read_text().replace('"first": 10', '"first": 9').replace('"first":10', '"first":9'))
    at_home(store, TOPIC, "west", 4)
    with pytest.raises(RefusedError, match="was changed"):
        list(replay_records(planned, settings, store, by="anna"))
    assert read(west, TOPIC, 0, "read_uncommitted") == read(east, TOPIC, 0, "read_uncommitted") == []


@pytest.mark.claim(
    "switch", "reinjected", "a rescued record is written once, and once more where a switch left it behind"
)
def test_each_record_is_written_once_whatever_file_it_is_in_and_whoever_was_killed(
    settings: Settings, store: Store, tmp_path: Path, west: LabCluster
) -> None:
    """A batch was sent and its answer never heard. The next fail-back saves the same records, and some more."""
    west.create_topic(OTHER)
    first, second = saved(tmp_path, OTHER), saved(tmp_path, OTHER, MANY + 50)
    at_home(store, OTHER, "west", 2)
    origin = inspect_rescued_file(first).origin
    cluster = KafkaCluster(settings.cluster("west"))
    try:
        who = cluster.init_producer_id()
        (some, _) = split_into_batches(read_rescued_file(first))
        append_batch(cluster, TopicPartition(OTHER, 0), who, 0, records_to_replay(some, origin))
    finally:
        cluster.close()
    batch = ReplayedBatch(OTHER, "west", 2, *who, 0, offset_runs_of(some), told_ms=wall_ms())
    store.link_states.remember([LinkStateRow("east", REPLAYED_KIND, batch.subject(origin), batch.to_json(), "", 1)])
    for path in (first, second, first):
        asked = ReplayRequest([path], OTHER)
        list(replay_records(plan(asked, settings, store), settings, store, by="anna"))
    assert [value for _, _, value in read(west, OTHER, 0, "read_committed")] == [
        b"late %d" % one for one in range(MANY + 50)
    ]
    assert {ReplayedBatch.from_json(row.value).end for row in store.link_states.of("east", REPLAYED_KIND)} == {
        500,
        MANY,
        MANY + 50,
    }


def is_there(lab: LabCluster, topic: str) -> bool:
    return len(read(lab, topic, 0, "read_committed")) == MANY


@pytest.mark.claim("switch", "rescued-at-once", "one command writes rescued files of several topics")
def test_files_of_several_topics_are_written_to_their_topics_at_once(
    settings: Settings, store: Store, tmp_path: Path, west: LabCluster
) -> None:
    """A shell names those of a switch or a topic. What cannot be written keeps back no other."""
    names = ["rescued-one", "rescued-two", "rescued-nowhere"]
    for name in names[:2]:
        west.create_topic(name)
    planned = plan(ReplayRequest([saved(tmp_path, name) for name in names]), settings, store)
    assert planned.refusal and mentions(planned.refusal.message, "west", "rescued-nowhere")
    assert [step.topic for step in replay_records(planned, settings, store, by="anna")] == names[:2]
    for name in names[:2]:
        until(partial(is_there, west, name), 30, f"{name} is written")
    again = plan(ReplayRequest([tmp_path / step.path.name for step in planned.steps]), settings, store)
    assert (again.steps, len(again.remarks)) == ((), 2), "a second time nothing is written"
