"""Mistakes that the shipped mirror does not make, one by one: the simulation must catch each within so many seeds.

A mutant patches shipped code, so it lives in a process of its own: `python -m tests.simulation --mutant NAME`.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable
from typing import Any

from twinshore.config.model import TopicPartition
from twinshore.kafka.protocol.fetch import FetchedPartitionById
from twinshore.replication.core import incident_rules
from twinshore.replication.core.coordinator import Coordinator, TaskOwnership
from twinshore.replication.task.core import error_actions, resync
from twinshore.replication.task.core import position as observe
from twinshore.replication.task.core.batches import OffsetGap, OutgoingBatch, PartitionStopped
from twinshore.replication.task.core.known_end import UnresolvedRequests
from twinshore.replication.task.core.markers import MarkerOutcome
from twinshore.replication.task.core.messages import PartitionProgress, Released
from twinshore.replication.task.core.partition import PartitionReplicator
from twinshore.replication.task.core.partitions import TaskPartitions
from twinshore.replication.task.core.position import PositionVerdict, ResumeAt, StopAt, TargetState
from twinshore.replication.task.core.task_core import WriteLease
from twinshore.state.core.lease_watch import LeaseWatch
from twinshore.state.core.values import LeaseRow


@dataclasses.dataclass(frozen=True, slots=True)
class Mutant:
    """`seeds`: from 0 on, so many are enough to catch it. `known`: one that did when this was written, which is tried
    first. `cheap`: within seconds, or half a minute where the code has moved so far that `known` does no more."""

    name: str
    says: str
    seeds: int
    apply: Callable[[], None]
    cheap: bool = True
    known: int = 0


def everywhere(shipped: Callable[..., Any], changed: Callable[..., Any]) -> None:
    """Also where a module imported it by name."""
    name = shipped.__name__
    for module in [one for key, one in sys.modules.items() if key.startswith("twinshore.")]:
        if vars(module).get(name) is shipped:
            setattr(module, name, changed)


def trust_a_markers_answer() -> None:
    def landed(answer: MarkerOutcome | None, _gap: OffsetGap) -> bool:
        return answer is not None and answer.error == 0

    everywhere(resync.markers_landed, landed)


def ignore_strays() -> None:
    def seen(self: UnresolvedRequests, _looked_at_s: float, _confirm_s: float, _epoch: int = -1) -> None:
        self.until_s = 0.0

    UnresolvedRequests.seen = seen  # type: ignore[assignment, method-assign]


def keep_going_under_a_new_leader() -> None:
    PartitionReplicator.on_leader_change = lambda _self: None  # type: ignore[assignment, method-assign]
    PartitionReplicator.doubt = lambda _self, _now_s: None  # type: ignore[assignment, method-assign]


def send_behind_markers() -> None:
    shipped = PartitionReplicator.may_send

    def may_send(self: PartitionReplicator, batch: OutgoingBatch, now_s: float, now_ms: int, kept_ms: int) -> bool:
        self.known_end.bare = False
        return shipped(self, batch, now_s, now_ms, kept_ms)

    PartitionReplicator.may_send = may_send  # type: ignore[method-assign]


def skip_diverging_epochs() -> None:
    shipped = error_actions.judge_source_error

    def source_error(part: FetchedPartitionById, position: int, failures: int = 0) -> PartitionStopped | None:
        return None if part.diverging_epoch else shipped(part, position, failures)

    everywhere(shipped, source_error)
    compare_no_last_record()  # else the look that follows finds it


def compare_no_last_record() -> None:
    shipped = observe.judge_position

    def judge(seen: TargetState, *known: Any, **more: Any) -> PositionVerdict:
        return shipped(dataclasses.replace(seen, unlike=False), *known, **more)

    everywhere(shipped, judge)


def forget_the_epoch_at_a_look() -> None:
    shipped = PartitionReplicator.resume

    def resume(self: PartitionReplicator, resume: ResumeAt, state: TargetState, **known: int) -> None:
        shipped(self, resume, dataclasses.replace(state, source_epoch=-1, wrote_epoch=-1), **known)

    PartitionReplicator.resume = resume  # type: ignore[method-assign]
    PartitionReplicator._source_unsure = lambda _self: False  # type: ignore[assignment, method-assign]


def notice_no_lost_beginning() -> None:
    incident_rules.find_missing_offsets = lambda *_places: {}


def take_any_lease() -> None:
    def observe_lease(_self: LeaseWatch, _row: LeaseRow | None, _now_s: float) -> bool:
        return True

    LeaseWatch.observe = observe_lease  # type: ignore[assignment, method-assign]


def believe_brokers_never_forget() -> None:
    def may_send(self: PartitionReplicator, _batch: OutgoingBatch, now_s: float, _now_ms: int, _kept_ms: int) -> bool:
        if self.known_end.bare and self.in_flight:
            return False
        self.known_end.sent(now_s, bare=False)
        return True

    PartitionReplicator.may_send = may_send  # type: ignore[assignment, method-assign]


def believe_any_base_offset() -> None:
    def misplaced(self: TaskPartitions, track: PartitionReplicator, batch: OutgoingBatch, _base: int) -> None:
        self._arrived(track, batch.end)

    TaskPartitions._misplaced = misplaced  # type: ignore[assignment, method-assign]


def account_for_what_is_sent() -> None:
    shipped = PartitionReplicator.account

    def account(self: PartitionReplicator, now_s: float) -> PartitionProgress | None:
        acked, self.acked = self.acked, self.sent
        try:
            return shipped(self, now_s)
        finally:
            self.acked = acked

    PartitionReplicator.account = account  # type: ignore[method-assign]


def go_on_after_a_foreign_write() -> None:
    shipped = observe.judge_position

    def judge(seen: TargetState, *known: Any, **more: Any) -> PositionVerdict:
        found = shipped(seen, *known, **more)
        if isinstance(found, StopAt) and found.kind == "foreign write" and seen.producer:
            return ResumeAt(seen.log_end, seen.producer[1], seen.producer[0] + 1)
        return found

    everywhere(shipped, judge)


def write_on_without_a_grant() -> None:
    WriteLease.holds = lambda self, _now_s: self.until_s > 0.0  # type: ignore[assignment, method-assign]
    WriteLease.ran_out = lambda _self, _now_s: False  # type: ignore[assignment, method-assign]


def believe_a_lost_line_is_a_lost_task() -> None:
    def free(self: TaskOwnership, now_s: float) -> bool:
        self._lapse(now_s)
        return self.holder is None

    TaskOwnership.free = free  # type: ignore[method-assign]


def forget_tasks_of_closed_tasks() -> None:
    shipped = Coordinator.close_link

    def close_link(self: Coordinator, link: str) -> None:
        shipped(self, link)
        self._past.clear()

    Coordinator.close_link = close_link  # type: ignore[method-assign]


def give_away_before_it_is_let_go() -> None:
    shipped = Coordinator.move

    def move(self: Coordinator, link: str, partition: TopicPartition, task: int) -> bool:
        asked = shipped(self, link, partition, task)
        for post in [one for _, one in self._of(link) if partition in one.moving]:
            self._released(link, post, Released(partition, None, None), 0.0)
        return asked

    Coordinator.move = move  # type: ignore[method-assign]


MUTANTS = {
    one.name: one
    for one in (
        Mutant(
            "marker-answer",
            "believes a marker is in because its answer says no error",
            600,
            trust_a_markers_answer,
            known=139,
        ),
        Mutant("strays", "forgets that a lost request may still land", 1000, ignore_strays, cheap=False),
        Mutant(
            "new-leader",
            "goes on under another leader of a twin without a look",
            50,
            keep_going_under_a_new_leader,
            known=16,
        ),
        Mutant(
            "behind-markers",
            "sends records behind markers that are not seen to be in",
            1000,
            send_behind_markers,
            cheap=False,
            known=4,
        ),
        Mutant(
            "diverging-epoch",
            "reads on where the source says that histories part",
            600,
            skip_diverging_epochs,
            cheap=False,
            known=280,
        ),
        Mutant(
            "last-record",
            "compares no last record when it looks at a twin",
            600,
            compare_no_last_record,
            cheap=False,
            known=280,
        ),
        Mutant(
            "look-epoch",
            "fetches on without the source's last epoch after a look",
            600,
            forget_the_epoch_at_a_look,
            known=413,
        ),
        Mutant("beginnings", "never compares where twins begin", 60, notice_no_lost_beginning, known=1),
        Mutant("lease", "takes a lease that somebody may still hold", 1000, take_any_lease, cheap=False, known=3),
        Mutant(
            "forgetful-brokers",
            "believes that brokers never forget a producer",
            50,
            believe_brokers_never_forget,
            known=16,
        ),
        Mutant(
            "lost-line",
            "gives a partition to another task though the task that is lost may still write",
            160,
            believe_a_lost_line_is_a_lost_task,
            known=83,
        ),
        Mutant(
            "past",
            "opens tasks anew and forgets that tasks of before may still write",
            300,
            forget_tasks_of_closed_tasks,
            known=17,
        ),
        Mutant(
            "early-move",
            "gives a partition to another task before the one that it is on has let go of it",
            60,
            give_away_before_it_is_let_go,
            known=27,
        ),
        Mutant("grant", "writes on when its grant has run out", 60, write_on_without_a_grant, known=3),
        Mutant(
            "base-offset",
            "believes that a batch lies where it should",
            1500,
            believe_any_base_offset,
            cheap=False,
            known=144,
        ),
        Mutant("receipts", "tells what is sent, not what is acknowledged", 20, account_for_what_is_sent),
        Mutant("foreign-write", "goes on behind what somebody else wrote", 250, go_on_after_a_foreign_write, known=165),
    )
}


def caught_at(name: str, seeds: Iterable[int], attempt: Callable[[int], str]) -> tuple[int, str] | None:
    """Applies the mutant to this process for good. The first seed that fails, and how. One that cannot run at all, as
    what it patches has changed, is no catch."""
    MUTANTS[name].apply()
    for seed in seeds:
        error = attempt(seed)
        if any(kind.__name__ in error for kind in (TypeError, AttributeError, NameError)):
            raise RuntimeError(f"mutant {name} cannot run: {error}")
        if error:
            return seed, error
    return None
