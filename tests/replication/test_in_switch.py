"""What one link does when a switch asks for its topics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.errors import mentions
from testkit.log_lines import LogLines
from twinshore.config.model import Link
from twinshore.replication.coordinator_server import CoordinatorServer
from twinshore.replication.core.coordinator import TaskReport
from twinshore.replication.ownership_sync import SwitchRequests
from twinshore.replication.recorder import ProgressRecorder
from twinshore.replication.task.core.messages import PartitionConfig, PartitionProgress
from twinshore.state.core.values import HomeChange, MirrorRequest, TopicInSwitch
from twinshore.state.store import Store, open_store

LINK, PAIR = "east->west", "east<>west"
SWITCH = "5" * 32
ROW = TopicInSwitch(PAIR, "orders", SWITCH, LINK, MirrorRequest.ANNOUNCED, 1)


class Stage:
    def __init__(self, store: Store, said: LogLines) -> None:
        self.store = store
        self.said = said
        self.recorder = ProgressRecorder(store, "here", 60.0)
        self.coordinator = CoordinatorServer("127.0.0.1", allowed_s=lambda _: 9.0, take=self.recorder.take)
        self.coordinator.open_task((LINK, 0), 2.0)
        link = Link("east", "west", ("orders", "bills"), ())
        self.ear = SwitchRequests(lambda: link, store, self.coordinator, self.recorder)

    def let_go(self) -> bool:
        return all(row.stopped_ms for row in self.store.topics_in_switch.of(PAIR))


@pytest.fixture
def stage(tmp_path: Path, log_lines: LogLines) -> Iterator[Stage]:
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        made = Stage(store, log_lines)
        yield made
        made.coordinator.close()
        made.recorder.close()


def test_a_topic_is_let_go_once_that_is_asked_and_what_was_told_of_it_is_written_first(stage: Stage) -> None:
    order = PartitionConfig("orders", 0, "a" * 32, "b" * 32)
    stage.coordinator.assign((LINK, 0), [order])
    assert not stage.ear.changed(), "nothing was asked"
    stage.store.topics_in_switch.begin([ROW])
    assert stage.ear.changed()
    stage.ear.let_go(active=True)
    assert stage.ear.staying({"orders": 1, "bills": 2}) == {"orders": 1, "bills": 2}, "it is announced, and goes on"

    stage.store.topics_in_switch.request(SWITCH, MirrorRequest.STOP_REPLICATION, 2)
    assert stage.ear.changed()
    assert not stage.ear.changed()
    assert stage.ear.staying({"orders": 1, "bills": 2}) == {"bills": 2}
    assert stage.ear.leaves("orders")
    stage.ear.let_go(active=False)
    assert not stage.let_go(), "the lease is another's"
    carried = PartitionProgress("orders", 0, 0, 7, 7, 70, 1, 7, 0, 1, 2)
    stage.recorder.take(TaskReport(LINK, 0, (carried,), (), {}))
    stage.ear.let_go(active=True)
    assert stage.let_go()
    assert [at.to_offset for at in stage.store.progress.positions(LINK)] == [7]
    assert stage.coordinator.placed(LINK) == {}
    assert [mentions(one, LINK, "orders", "no task writes") for one in stage.said] == [True]


def test_a_switch_that_turns_back_gives_the_topic_back(stage: Stage) -> None:
    stage.store.topics_in_switch.begin([ROW])
    stage.store.topics_in_switch.request(SWITCH, MirrorRequest.STOP_REPLICATION, 2)
    assert not stage.ear.changed(), "the first look is no change"
    assert stage.ear.leaves("orders")
    stage.ear.let_go(active=True)
    stage.store.topics_in_switch.request(SWITCH, MirrorRequest.ANNOUNCED, 3)
    stage.ear.changed()
    assert not stage.ear.leaves("orders")
    stage.store.topics_in_switch.end(SWITCH)
    assert stage.ear.changed()
    stage.ear.anew()
    assert not stage.ear.changed()
    assert stage.ear.leaving == {}


def test_a_flip_is_heard_at_once(stage: Stage) -> None:
    stage.ear.changed()
    to, of = "a" * 32, "b" * 32
    stage.store.topics_in_switch.change_homes(
        [
            HomeChange(
                pair=PAIR,
                topic="bills",
                home="east",
                term=2,
                link="west->east",
                back=LINK,
                source_topic_id=to,
                target_topic_id=of,
                points=(9,),
                since_ms=1,
                set_by="anna",
            )
        ]
    )
    assert stage.ear.changed()
