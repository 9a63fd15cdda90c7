"""Several tasks that read one source together, each with a target of its own: the lane's model, once for each."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tests.replication.task.model_brokers import SourceBroker, TargetLog
from tests.replication.task.model_world import EXPIRY_MS, LIMITS, NODES, TASK_ID, World
from twinshore.config.model import TopicPartition
from twinshore.replication.task.core.messages import PartitionConfig
from twinshore.replication.task.core.partition import Phase
from twinshore.replication.task.core.partitions import TaskPartitions
from twinshore.replication.task.core.shared_read import SharedFetch

HIGH_BYTES = 12_000
# A turn cuts a few batches at a time, and the rest in others.
SHARED_LIMITS = replace(LIMITS, work_max=3)


@dataclass(slots=True)
class MemberWorld(World):
    """One member's part. `brought`: bytes of records that its own fetches brought."""

    reading: SharedFetch = field(default_factory=lambda: SharedFetch(LIMITS, HIGH_BYTES))
    brought: int = 0

    def new_task(self) -> TaskPartitions:
        if hasattr(self, "task"):
            self.task.leave()
        task = TaskPartitions(TASK_ID, 0, state_expiry_ms=EXPIRY_MS, limits=SHARED_LIMITS, shared_fetch=self.reading)
        topic_id, twin_id = bytes([7] * 16).hex(), bytes([8] * 16).hex()
        told = {number: self.told_to(TopicPartition("t", number)) for number in range(self.partitions)}
        task.assign(PartitionConfig("t", number, topic_id, twin_id, to) for number, to in told.items())
        return task

    def answer_fetch(self) -> None:
        before = dict(self.fetches)
        World.answer_fetch(self)
        for line, fetch in before.items():
            if line not in self.fetches and fetch.answer is not None:
                self.brought += sum(len(part.records) for part in fetch.answer.partitions)

    def look(self) -> None:
        """As the pump's, which asks where a twin ends once more behind its other questions."""
        for look in self.looks:
            if look.ends is not None and look.ends[2] != self.targets[look.named].end:
                look.ends = None
        World.look(self)

    def runs(self) -> bool:
        return all(track.phase is Phase.RUNNING for track in self.task.replicators.values())

    def turn(self) -> None:
        """What a pump's loop does in each turn, whether anything has come or not."""
        self.task.scheduler.refill(self.now_s)
        self.task.go_on(self.now_s, self.now_ms)


class SharedWorld:
    """`members` tasks; what time it is, and what the source holds, is the same for all."""

    def __init__(self, seed: int, kind: str = "fresh", members: int = 3, high_bytes: int = HIGH_BYTES) -> None:
        self.chance = random.Random(f"shared {kind} {seed}")
        self.reading = SharedFetch(LIMITS, high_bytes)
        self.members = [MemberWorld(seed * 100 + number, kind, reading=self.reading) for number in range(members)]
        first = self.members[0]
        for one in self.members[1:]:
            one.sources = first.sources
            one.brokers = {node: SourceBroker(node, first.sources, one.chance) for node in NODES}
            for named, twin in list(one.targets.items()):
                source = next(log for log in first.sources.values() if log.partition == named.partition)
                one.targets[named] = TargetLog(source, "t", twin.leader, EXPIRY_MS)
        self.held_max = 0

    @property
    def written(self) -> int:
        return sum(len(data) for log in self.members[0].sources.values() for _, _, data in log.batches)

    @property
    def brought(self) -> int:
        return sum(one.brought for one in self.members)

    def step(self, one: MemberWorld, actions: list[Callable[[], None]], weights: list[float]) -> None:
        """One thing happens at one member; its clock goes on for all."""
        before_s = one.now_s
        one.step(actions, weights)
        one.turn()
        now_s = before_s + (one.now_s - before_s) / len(self.members)
        for other in self.members:
            other.now_s = now_s
        self.held_max = max(self.held_max, self.reading.bytes)

    def run(self, steps: int, *, trouble: bool, settled_first: bool = False) -> None:
        """So many steps, then calm until all has arrived everywhere; raises when it never does."""
        for one in self.members:
            one.calm = not trouble
        if settled_first:
            self._calm(steps)
        works = [(one, _work(one)) for one in self.members]
        for _ in range(steps):
            one, work = self.chance.choice(works)
            self.step(one, *work[trouble])
        self._calm(steps)

    def _calm(self, steps: int) -> None:
        for one in self.members:
            one.calm = True
        works = [(one, _work(one, writes=False)) for one in self.members]
        for _ in range(60 * steps):
            if all(one.arrived() and one.runs() for one in self.members):
                return
            one, work = self.chance.choice(works)
            self.step(one, *work[False])
        raise AssertionError("never arrived: " + "; ".join(one.standing() for one in self.members))


def _work(one: MemberWorld, *, writes: bool = True) -> dict[bool, tuple[list[Callable[[], None]], list[float]]]:
    """By whether there is trouble: what may happen at a member, and how likely."""
    work: list[tuple[Callable[[], None], float]] = [
        *((act, 4.0) for act in (one.fetch, one.send, one.process, one.answer_produce)),
        (one.answer_fetch, 6.0),
        *((act, 2.0) for act in (one.refresh_routes, one.look, one.settle_highs, one.time_out)),
        (one.account, 1.0),
    ]
    if writes:
        work.append((one.write, 1.0))
    trouble: list[tuple[Callable[[], None], float]] = [
        (one.sweep, 1.5),
        (one.move_leader, 0.1),
        (one.fail_node, 0.25),
        (lambda: one.lose_source(one.chance.choice(NODES)), 0.2),
        (lambda: one.lose_target(one.chance.choice(NODES)), 0.2),
        (one.crash, 0.08),
        (one.hand_over, 0.08),
    ]
    return {
        False: tuple(map(list, zip(*work, strict=True))),  # type: ignore[dict-item]
        True: tuple(map(list, zip(*work, *trouble, strict=True))),  # type: ignore[dict-item]
    }
