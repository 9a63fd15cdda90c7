"""A fail-back and a rebuild ask right before a deletion whether the topic may be deleted: on real clusters, with a real
store, settings file and lease. The plan was made before anything forbade it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from testkit.clients import topic_id
from tests.scenarios.mirror_rig import settings_text
from twinshore.config.settings import Settings, load_settings
from twinshore.kafka.clock import wall_ms
from twinshore.lab.cluster import LabCluster
from twinshore.replication.sync.core.lifecycle import KEEP_TWIN, RECREATE_APPROVAL
from twinshore.replication.sync.deletion_guard import DeletionForbiddenError
from twinshore.runtime import lease_keeper
from twinshore.runtime.endpoints import LinkClients
from twinshore.runtime.lease_keeper import LeaseKeeper, exclusive
from twinshore.state.core.values import LinkStateRow, TwinRow
from twinshore.state.store import Store, open_store
from twinshore.switch.core.steps import (
    StepFailed,
    StepOutcome,
    StepPending,
    SwitchKind,
    SwitchState,
    SwitchStep,
    TopicMove,
    begin_switch,
)
from twinshore.switch.core.unreplicated import UnreplicatedRange, ranges_to_json
from twinshore.switch.operations.run import build_step_executor, links_both_ways

LINK = "east->west"
SWITCH = "f" * 32


class Stage:
    """A topic without records on east and its twin on west, which the switch is about to delete."""

    def __init__(self, settings: Settings, store: Store, topic: str, kind: SwitchKind, ids: tuple[str, str]) -> None:
        self.settings, self.store, self.topic = settings, store, topic
        self.old_id, new_id = ids
        self.store.twins.save([TwinRow(LINK, topic, 0, new_id, self.old_id, 0, 0, 1)])
        moved = TopicMove(topic=topic, old_id=self.old_id, new_id=new_id, term=0, partitions=1, points=(0,), ends=(0,))
        self.record = begin_switch(
            SwitchState(
                id=SWITCH,
                kind=kind,
                old="west",
                new="east",
                link="west->east",
                back=LINK,
                topics=(moved,),
                by="anna",
                begun_ms=1,
                hold_s_max=0.0,
                step=SwitchStep.REBUILD,
                tails=ranges_to_json([UnreplicatedRange(topic, 0, 0, 0)]),
            ),
            1,
        )
        link, back = links_both_ways(self.record, settings, store)
        self.ends = LinkClients(link, settings, patience_s=10.0, call_s=10.0)
        self.lease = exclusive(f"switch {SWITCH}", store, "anna")
        self.held: LeaseKeeper = self.lease.__enter__()
        self.work = build_step_executor(
            self.record, link, back, settings, store, self.ends, lambda: 1, lambda: self.held.left_s() > 0
        )

    def close(self) -> None:
        self.lease.__exit__(None, None, None)
        self.ends.close()

    def once(self, step: SwitchStep = SwitchStep.REBUILD) -> StepOutcome:
        return self.work.once(replace(self.record, step=step))

    def deleted(self) -> bool:
        seen = self.ends.source.metadata([self.topic], refresh=True).topics[self.topic]
        return seen.topic_id.hex() != self.old_id

    def told(self) -> list[str]:
        """What the store says of a deletion: audit rows, and the approval that lets the mirror begin again."""
        rows = [row.kind for row in self.store.audit.rows(LINK)]
        return [*rows, *(row.kind for row in self.store.link_states.of(LINK, RECREATE_APPROVAL))]

    # -- what happens between the plan and the deletion

    def set_never_delete(self) -> None:
        assert self.settings.file is not None
        self.settings.file.write_text(f"{self.settings.file.read_text()}[safety]\nnever_delete = true\n")

    def write_half_a_file(self) -> None:
        assert self.settings.file is not None
        self.settings.file.write_text("[saf")

    def keep(self) -> None:
        self.store.link_states.remember([LinkStateRow(LINK, KEEP_TWIN, self.topic, "", "kept", wall_ms())])

    def lose_the_lease(self) -> None:
        """Another process takes the lease."""
        row = self.store.leases.read(f"switch {SWITCH}")
        assert self.store.leases.take(f"switch {SWITCH}", "bob", 60_000, row=row)
        deadline = time.monotonic() + 20
        while self.held.left_s():
            assert time.monotonic() < deadline
            time.sleep(0.02)


@pytest.fixture(params=[SwitchKind.FAILBACK, SwitchKind.REBUILD])
def stage(
    request: pytest.FixtureRequest,
    east: LabCluster,
    west: LabCluster,
    tmp_path: Path,
    unique_topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Stage]:
    monkeypatch.setattr(lease_keeper, "LEASE_S", 2.0)
    path = tmp_path / "twinshore.toml"
    path.write_text(settings_text(tmp_path, [east.cluster, west.cluster], {LINK: ".*"}))
    for lab in (east, west):
        lab.create_topic(unique_topic)
    ids = topic_id(west.cluster, unique_topic).hex(), topic_id(east.cluster, unique_topic).hex()
    settings = load_settings(path, {})
    with (
        open_store(settings.store.url) as store,
        closing(Stage(settings, store, unique_topic, request.param, ids)) as made,
    ):
        yield made


FORBIDDEN = pytest.mark.parametrize("forbid", [Stage.set_never_delete, Stage.write_half_a_file, Stage.keep])


@FORBIDDEN
def test_a_topic_that_must_not_be_deleted_by_now_stays(stage: Stage, forbid: object) -> None:
    assert callable(forbid)
    forbid(stage)
    assert isinstance(stage.once(), StepPending)
    assert (stage.deleted(), stage.told()) == (False, [])


@FORBIDDEN
def test_before_its_point_of_no_return_the_switch_turns_back(stage: Stage, forbid: object) -> None:
    assert callable(forbid)
    forbid(stage)
    outcome = stage.once(SwitchStep.COMMIT)
    assert isinstance(outcome, StepFailed) and stage.topic in outcome.sentence


def test_a_process_that_has_lost_its_lease_deletes_nothing(stage: Stage) -> None:
    stage.lose_the_lease()
    with pytest.raises(DeletionForbiddenError):
        stage.once()
    assert not stage.deleted()


def test_it_goes_on_once_nothing_forbids_it(stage: Stage) -> None:
    stage.keep()
    stage.once()
    stage.store.link_states.forget([LinkStateRow(LINK, KEEP_TWIN, stage.topic, "", "", 0)])
    assert isinstance(stage.once(), StepPending)
    assert stage.deleted()
    assert sorted(stage.told()) == sorted(["topic", "twin", RECREATE_APPROVAL])
