"""Rescued records in the topic of their home: whole or not at all; and what is saved again before a topic goes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from testkit.clients import delete_records
from tests.scenarios.test_following_writers import until
from twinshore.config.errors import WireError
from twinshore.config.frozen import RESCUED_TOPIC
from twinshore.config.model import TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.record_batch import Record as KafkaRecord
from twinshore.kafka.state_topic import StateTopic
from twinshore.lab.cluster import LabCluster
from twinshore.state.store import temporary_store
from twinshore.switch import rescue_steps
from twinshore.switch.core.steps import SwitchKind, SwitchState, SwitchStep, TopicMove
from twinshore.switch.core.unreplicated import (
    RecordCount,
    RescueCopies,
    RescueCopy,
    RescueOrigin,
    TransactionOutcome,
    UnreplicatedRange,
    UnreplicatedRecord,
    count_line,
    header_line,
    ranges_from_json,
    ranges_to_json,
    record_line,
    rescue_key,
)
from twinshore.switch.rescue_steps import TOPIC_SETTINGS, RescuedTopic, export, read_origin, read_rescued_file

ORIGIN = RescueOrigin("f" * 32, "east", "west", "orders", "a" * 32, 0, 10, 40)


def some(records: int, size: int = 10) -> list[UnreplicatedRecord]:
    endings = (TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED)
    return [
        UnreplicatedRecord(
            KafkaRecord(10 + one, one, b"key", bytes([one % 251]) * size, ((b"kind", None),)), endings[one % 2]
        )
        for one in range(records)
    ]


@pytest.fixture
def home(west: LabCluster) -> Iterator[KafkaCluster]:
    cluster = KafkaCluster(west.cluster)
    yield cluster
    cluster.close()


def test_what_was_saved_is_counted_listed_and_exported(home: KafkaCluster, tmp_path: Path) -> None:
    rescued, saved = RescuedTopic(home), some(30, size=50_000)
    copy, count = rescued.save(ORIGIN, saved)
    again, _ = rescued.save(ORIGIN, saved)
    assert (count, rescued.count(copy), rescued.count(again)) == (RecordCount(30, 15),) * 3
    empty, _ = rescued.save(replace(ORIGIN, partition=1), [])
    assert rescued.count(empty) == RecordCount()
    assert rescued.copies()[ORIGIN] == (again, RecordCount(30, 15)) and copy != again
    path = tmp_path / "folder" / ORIGIN.file_name()
    export(rescued.read(copy), path)
    assert (read_origin(path), list(read_rescued_file(path))) == (ORIGIN, saved)


def test_nothing_in_the_topic_expires(home: KafkaCluster) -> None:
    rescued = RescuedTopic(home)
    rescued.save(ORIGIN, some(1))
    topic_id = home.metadata([RESCUED_TOPIC], refresh=True).topics[RESCUED_TOPIC].topic_id
    home.admin.alter_topic_settings(RESCUED_TOPIC, {"retention.ms": "1000"}, topic_id=topic_id)

    def standing() -> dict[str, str | None]:
        stands = home.admin.topic_settings([RESCUED_TOPIC])[RESCUED_TOPIC]
        return {name: stands[name].value for name in TOPIC_SETTINGS}

    until(lambda: standing()["retention.ms"] == "1000", 30, "brokers learn of a setting some time later")
    rescued.save(ORIGIN, some(1))
    until(lambda: standing() == TOPIC_SETTINGS, 30, "the settings are restored")


def test_two_attempts_at_once_and_half_a_copy_are_told_apart() -> None:
    lines = [header_line(ORIGIN), *map(record_line, some(2)), count_line(RecordCount(2, 1))]
    first, second, cut = (rescue_key(ORIGIN, attempt) for attempt in ("a", "b", "c"))
    log = [(key, line.encode()) for line in lines for key in (first, second)] + [(cut, lines[0].encode())]
    log += [(b"a stranger", b"x"), (cut, lines[1].encode()), (cut, lines[3].encode())]
    found = RescueCopies()
    for offset, (key, line) in enumerate(log):
        found.take(offset, key, line)
    assert found.whole == {ORIGIN: (RescueCopy(1, second), RecordCount(2, 1))}, "one record of the third is missing"


@pytest.mark.claim(
    "switch", "delete-looks-again", "no topic is deleted that has grown or whose rescued records are gone"
)
def test_what_is_not_saved_as_it_is_now_is_saved_before_its_topic_goes(
    home: KafkaCluster, east: LabCluster, west: LabCluster, tmp_path: Path
) -> None:
    topic = "saved-again"
    east.create_topic(topic, partitions=2)
    old = KafkaCluster(east.cluster)
    StateTopic(old, topic).append([(b"key", b"late %d" % one) for one in range(30)], 1)
    moved = TopicMove(topic=topic, old_id="a" * 32, new_id="b" * 32, term=2, partitions=2, points=(10, 0))
    found = (
        UnreplicatedRange(topic, 0, 10, 20, records=10, committed=10, file="/the/disk/of/another/host"),
        UnreplicatedRange(topic, 1, 0, 0),
    )
    record = SwitchState(
        id="f" * 32,
        kind=SwitchKind.FAILBACK,
        old="east",
        new="west",
        link="east->west",
        back="west->east",
        topics=(moved,),
        by="anna",
        begun_ms=1,
        hold_s_max=0.0,
        step=SwitchStep.REBUILD,
        tails=ranges_to_json(found),
        folder=str(tmp_path),
    )

    def unsaved(now: SwitchState, end: int) -> tuple[UnreplicatedRange, ...]:
        return rescue_steps.find_unsaved_ranges(now, [UnreplicatedRange(topic, 0, 10, end)], topic, home)

    with temporary_store("saved-again") as store:
        assert unsaved(record, 20) == found[:1], "no copy is in the topic"
        waits = rescue_steps.save_more_ranges(record, unsaved(record, 30), old, home, store)
        assert waits.state is not None
        assert [(one.first, one.end, one.records) for one in ranges_from_json(waits.state.tails)] == [
            (0, 0, 0),
            (10, 20, 10),
            (20, 30, 10),
        ], "nothing is saved twice"
        saved = {one.where: one for one in ranges_from_json(waits.state.tails)}
        assert list(read_rescued_file(Path(saved[topic, 0].file)))[-1].record.value == b"late 29"
        assert unsaved(waits.state, 30) == ()
        assert unsaved(waits.state, 31) == (UnreplicatedRange(topic, 0, 30, 31),), "it has grown since"
        delete_records(west.cluster, {TopicPartition(RESCUED_TOPIC, 0): saved[topic, 0].saved_at + 5})
        assert [one.first for one in unsaved(waits.state, 30)] == [10, 20], "no copy is whole"
    with pytest.raises(WireError):
        RescuedTopic(home).count(rescue_steps.copy_of(saved[topic, 0]))
    old.close()
