"""Two clusters, a link's driver and its tasks in virtual time: chaos first, then calm, in which all must arrive."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tests.simulation.clusters import NODES, Clusters, Pair
from tests.simulation.connections import SourceWire, TargetWire
from tests.simulation.driver_model import DriverModel
from tests.simulation.faults import Faults
from tests.simulation.plans import Plan, plan_of
from tests.simulation.pump_model import PumpModel
from tests.simulation.schedule import Schedule
from tests.simulation.store_model import StoreModel
from tests.simulation.twin_log import TwinLog, Violation
from twinshore.config.model import TopicPartition
from twinshore.replication.core import incident_rules
from twinshore.replication.task.core.messages import PartitionConfig

CALM_S_MAX = 240.0
STEPS_MAX = 400_000
REPLICATE_S = 0.05
SWEEP_S = 2.0
FOLLOW_S = 3.0
CHECK_S = 0.25
EPOCH_TURNED = 3


class World:
    """`run` raises Violation when an invariant breaks; `changed` alters the plan that the seed gives, `prepare`
    what both clusters hold before the first driver begins."""

    def __init__(
        self,
        seed: str,
        *,
        changed: Callable[[Plan], Plan] | None = None,
        listener: Callable[[str], None] | None = None,
        prepare: Callable[[World], None] = lambda _: None,
    ) -> None:
        self.schedule = Schedule(seed, listener)
        plan = plan_of(self.schedule.chance)
        self.plan = plan = changed(plan) if changed else plan
        self.clusters = Clusters(self.schedule, plan.styles, copies=plan.copies, expiry_ms=plan.expiry_ms)
        self.clusters.errand_fails, self.clusters.store_fails = plan.errand_fails, plan.store_fails
        # The ids that this link began with: a topic that is recreated has others.
        self.ids = dict(self.clusters.topic_ids)
        self.store = StoreModel()
        # Of topics that a switch brought back: below where their twins' logs are their own.
        self.inherited: dict[TopicPartition, int] = {}
        self.given: set[TopicPartition] = set()  # to the tasks of any term
        self.tasks: list[PumpModel] = []
        self.lagging: dict[tuple[str, TopicPartition, int], float] = {}
        self.calm = False
        prepare(self)
        self.drivers = 0
        self.driver = self._new_driver()
        self.faults = Faults(self)
        self.schedule.say(f"seed {seed}: {plan.sentence()}")

    # -- processes

    def _new_driver(self) -> DriverModel:
        self.drivers += 1
        return DriverModel(
            self.clusters,
            self.store,
            name=f"driver {self.drivers}",
            tasks=self.plan.tasks,
            task_run_s=self.plan.task_run_s,
            orders=self._orders,
            started=self.tasks.append,
        )

    def _orders(self) -> list[PartitionConfig]:
        new = self.clusters.pairs.keys() - self.given - self.inherited.keys()
        self.given |= self.clusters.pairs.keys()
        return [
            PartitionConfig(
                named.topic,
                named.partition,
                self.ids["source", named.topic].hex(),
                self.ids["target", named.topic].hex(),
                self.store.to_offset(named),
                self.inherited.get(named, 0),
                0 if named in self.inherited else self.plan.anchor_sequence,
                receipt_epoch=self.store.stand(named).epoch,
                inherited=self.inherited.get(named, 0),
                epoch=EPOCH_TURNED if named in self.inherited else 0,
                untouched=named in new,
            )
            for named in self.clusters.pairs
            if not self.store.rests(named)
        ]

    def kill_driver(self, *, heard: bool) -> None:
        self.driver.die(heard=heard)
        self.driver = self._new_driver()

    def rogue(self, for_s: float) -> None:
        """A task that no coordinator knows and that no grant holds."""
        task = PumpModel(self.clusters, self.driver, None, -1 - len(self.tasks), name=f"rogue {len(self.tasks)}")
        self.tasks.append(task)
        task.break_the_law(self._orders())
        self.schedule.say(f"{task.name} begins to write")
        self.schedule.after(for_s, lambda: task.end("killed"))

    # -- brokers

    def elect(self, pair: Pair, side: str, node: int) -> None:
        """Another leader; what it never had is lost, and may stop the partition where that had been acknowledged."""
        pair.moved(side, self.schedule.now_s + self.schedule.chance.uniform(0.0, 0.5))
        if side == "source":
            acknowledged = pair.source.high
            lost_from = pair.source.elect(node)
            if lost_from < acknowledged:
                pair.excuses.update(("truncation", "position disagreement"))
        else:
            acknowledged = pair.twin.high
            lost_from = pair.twin.lead(node, self.clusters.broker_ms)
            if lost_from < acknowledged:
                for wire in [wire for task in self.tasks for wire in (*task.closed, *task.targets.values())]:
                    wire.refuse_markers(pair.named)
        self.excuse_gap(pair)
        self.schedule.say(
            f"{side} {pair.named}: leader {node}, its log ends at {lost_from}, acknowledged {acknowledged}"
        )

    @staticmethod
    def excuse_gap(pair: Pair) -> None:
        if pair.source.start > pair.twin.end:
            pair.excuses.add("retention gap")

    def stop_node(self, side: str, node: int, for_s: float) -> None:
        """It crashes and comes back; partitions that it led go to others in sync, where there are any."""
        clusters = self.clusters
        clusters.down[side, node] = self.schedule.now_s + for_s
        self.schedule.say(f"{side} {node} is down for {for_s:.1f} s")
        self.break_lines(side, node)
        self.schedule.after(self.schedule.chance.uniform(0.0, 0.5), lambda: self._replace(side, node))

    def _replace(self, side: str, node: int) -> None:
        if self.clusters.up(side, node):
            return
        for pair in self.clusters.pairs.values():
            log = pair.source if side == "source" else pair.twin
            if log.leader != node:
                log.drop_from_sync(node)
                continue
            choices = [one for one in log.in_sync if one != node and self.clusters.up(side, one)]
            if choices:
                self.elect(pair, side, self.schedule.chance.choice(choices))
                log.drop_from_sync(node)

    def break_lines(self, side: str, node: int) -> None:
        """Its process ends: whatever it had not done yet is forgotten, and every peer hears of it."""
        if side == "source":
            self.clusters.brokers[node].forget_sessions()
        for task in self.tasks:
            if side == "target":
                for wire in [*task.closed, *task.targets.values()]:
                    if wire.node == node:
                        wire.strays.clear()
                if node in task.targets and not task.ended:
                    task.targets[node].forget()
                    self.cut_line(task, side, node)
            elif not task.ended:
                for line in [line for line in task.sources if line[0] == node]:
                    self.cut_line(task, side, line)

    def cut_line(self, task: PumpModel, side: str, key: object) -> None:
        """A connection is gone; the task hears of it a moment later, unless it is gone itself."""
        lines: Mapping[Any, SourceWire | TargetWire] = task.sources if side == "source" else task.targets
        wire = lines.get(key)

        def act() -> None:
            if wire is not None:
                task.broken(wire)

        self.schedule.after(self.schedule.lag(0.002), lambda: task.hear(act))

    def recreate(self, side: str, topic: str) -> None:
        """The topic is deleted and made again: test_a_recreated_topic_refuses_the_old_id."""
        clusters = self.clusters
        self.schedule.say(f"{side} topic {topic} is recreated")
        clusters.topic_ids[side, topic] = clusters.new_id()
        for named, pair in clusters.pairs.items():
            if named.topic != topic:
                continue
            # Where it is looked at before its leaders are asked for again, all that shows is a shorter log.
            pair.excuses.update(("recreated topic", "truncation"))
            if side == "source":
                del clusters.logs[pair.source.topic_id, named.partition]
                pair.source = clusters.new_source(named, pair.source.style)
            else:
                before: TwinLog = pair.twin
                pair.twin = clusters.new_twin(named, before.source)
                pair.twin.confirmed = before.confirmed

    # -- the clusters' own life

    def _every(self, typical_s: float, act: Callable[[], None]) -> None:
        def again() -> None:
            act()
            self.schedule.after(self.schedule.chance.uniform(0.3, 1.7) * typical_s, again)

        self.schedule.after(self.schedule.chance.uniform(0.0, 1.0) * typical_s, again)

    def _write(self) -> None:
        if self.calm:
            return
        pair = self.schedule.chance.choice(list(self.clusters.pairs.values()))
        if self.clusters.leads("source", pair) and self.schedule.now_s >= pair.quiet_until_s:
            pair.source.write(self.schedule.now_ms)
            if self.schedule.odds(0.3):
                pair.source.end_transaction(self.schedule.now_ms)

    def _replicate(self) -> None:
        now_s, chance = self.schedule.now_s, self.schedule.chance
        for pair in self.clusters.pairs.values():
            for side, log in (("source", pair.source), ("target", pair.twin)):
                if len(log.nodes) == 1 or not self.clusters.up(side, log.leader):
                    continue
                for node in log.nodes:
                    if node == log.leader or not self.clusters.up(side, node):
                        continue
                    if self.lagging and now_s < self.lagging.get((side, pair.named, node), 0.0):
                        if chance.random() < 0.05:
                            log.drop_from_sync(node)
                        continue
                    if self.calm or chance.random() < 0.6:
                        log.replicate(node, whole=self.calm or chance.random() < 0.8)

    def _sweep(self) -> None:
        for pair in self.clusters.pairs.values():
            pair.twin.memory.sweep(self.clusters.broker_ms)

    def _follow_log_starts(self) -> None:
        """As the driver does: the twin begins where its source begins, as far as it is accounted for."""
        for named, pair in self.clusters.pairs.items():
            pair.twin.cut(min(pair.source.start, self.store.to_offset(named)))
        self._watch_beginnings()

    def _watch_beginnings(self) -> None:
        """As `incidents.beginning_watch`: what twins lack at their beginning is in the ledger, and nothing else."""
        pairs = self.clusters.pairs
        told = {named: self.store.source_start(named) for named in pairs}
        # A topic that was made again has a row of its own.
        same = {named: pair for named, pair in pairs.items() if "recreated topic" not in pair.excuses}
        twins = {named: pair.twin.start for named, pair in same.items() if self.clusters.leads("target", pair)}
        asked = incident_rules.select_suspect_twins(twins, told, self.store.lacks)
        sources = {named: pairs[named].source.start for named in asked if self.clusters.leads("source", pairs[named])}
        lacks = incident_rules.find_missing_offsets(twins, sources, {})
        for named in sources:
            self.store.lacks.pop(named, None)
        self.store.lacks.update(lacks)
        for named, lack in lacks.items():
            if not pairs[named].beheaded:
                raise Violation(f"{named}: nobody deleted what the twin is said to lack: {lack}")

    # -- a run

    def run(self) -> None:
        plan, schedule = self.plan, self.schedule
        self._every(plan.write_every_s, self._write)
        self._every(REPLICATE_S, self._replicate)
        self._every(SWEEP_S, self._sweep)
        self._every(FOLLOW_S, self._follow_log_starts)
        for name, rate in plan.faults.items():
            self._fault(name, rate)
        until_s = schedule.now_s + plan.chaos_s
        while schedule.now_s < until_s:
            schedule.step()
        self._begin_calm()
        until_s = schedule.now_s + CALM_S_MAX
        check_s = 0.0
        while schedule.now_s < until_s and schedule.steps < STEPS_MAX:
            schedule.step()
            if schedule.now_s >= check_s:
                check_s = schedule.now_s + CHECK_S
                if all(self._settled(pair) for pair in self.clusters.pairs.values()):
                    return
        raise Violation(f"stuck: {self.standing()}")

    def _fault(self, name: str, rate: float) -> None:
        def act() -> None:
            if not self.calm:
                self.schedule.say(f"fault: {name}")
                self.faults.act(name)
                self._fault(name, rate)

        self.schedule.after(self.schedule.chance.expovariate(rate), act)

    def _begin_calm(self) -> None:
        self.calm = True
        self.schedule.say("calm")
        clusters = self.clusters
        clusters.errand_fails = clusters.store_fails = 0.0
        clusters.down.clear()
        clusters.slow_s.clear()
        clusters.unmarking.clear()
        self.lagging.clear()
        for pair in clusters.pairs.values():
            pair.source.end_transaction(self.schedule.now_ms, every=True)

    def _settled(self, pair: Pair) -> bool:
        """It has all arrived and is told; or it stopped for a cause."""
        if self.stopped(pair):
            return True
        source, twin = pair.source, pair.twin
        if not source.end == source.stable == twin.end == twin.high:
            return False
        # Receipts end beyond what both sides have lost.
        told_to = self.store.to_offset(pair.named)
        if told_to < source.end or (told_to > source.end and not pair.excuses):
            return False
        if twin.source is not source or twin.spoiled_at is not None:
            return False
        if (twin.start > source.start) is not (pair.named in self.store.lacks):
            return False
        if not twin.follows():
            return False
        lacks = twin.lacks()
        if lacks:
            raise Violation(f"{pair.named}: the twin lacks the records at {lacks[:5]}")
        return True

    def stopped(self, pair: Pair) -> bool:
        """The ledger says that it rests, and for something that was done to it."""
        told = [one.kind for one in self.store.ledger.get(pair.named, []) if not one.policy]
        if any(kind not in pair.excuses for kind in told):
            raise Violation(f"{pair.named} stopped for {told}, excused are {sorted(pair.excuses)}")
        return bool(told)

    def standing(self) -> str:
        """Where each partition stands, for people."""
        lines = [f"calm since {CALM_S_MAX:.0f} s" if self.calm else "in chaos"]
        for named, pair in self.clusters.pairs.items():
            source, twin = pair.source, pair.twin
            lines.append(
                f"{named}: source {source.start} to {source.stable}/{source.end} led by {source.leader},"
                f" twin {twin.start} to {twin.high}/{twin.end} led by {twin.leader},"
                f" receipts to {self.store.to_offset(named)},"
                f" ledger {[one.kind for one in self.store.ledger.get(named, [])][-2:]}"
            )
            for task in self.tasks:
                track = task.task.replicators.get(named)
                if not task.ended and track:
                    state = "paused" if task.paused else "going" if task.going else "standing by"
                    lines.append(
                        f"  {task.name} {state}: {track.phase}, {track.in_flight} in flight,"
                        f" {len(track.waiting)} waiting, fetched {track.fetched}, sent {track.sent},"
                        f" acked {track.acked}, told {track.progress_log.to}"
                    )
        return "\n".join(lines)


def run_seed(seed: int, *, listener: Callable[[str], None] | None = None) -> World:
    """One run; its failure says how to have it again."""
    world = World(str(seed), listener=listener)
    try:
        world.run()
    except Exception as error:
        said = str(error) if isinstance(error, Violation) else f"{type(error).__name__}: {error}"
        raise Violation(f"make simulate SEED={seed}: step {world.schedule.steps}: {said}") from error
    return world


__all__ = ["NODES", "World", "replace", "run_seed"]
