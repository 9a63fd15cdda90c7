"""The driver of a link round the shipped coordinator and lease rules: when it looks, launches task runs, moves,
pauses and writes.

The store is one object that outlives drivers. A driver that dies takes with it what it had not written yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.simulation.clusters import Clusters
from tests.simulation.pump_model import PumpModel
from tests.simulation.store_model import StoreModel
from tests.simulation.twin_log import Violation
from twinshore.config.model import TopicPartition
from twinshore.replication.core.coordinator import (
    Coordinator,
    DisconnectTask,
    RecordReport,
    SendToTask,
    TaskReport,
    TaskSession,
)
from twinshore.replication.task.core.messages import (
    PartitionConfig,
    PartitionIncident,
    PartitionProgress,
    TaskMessage,
    TaskRateLimits,
)
from twinshore.state.core.lease_watch import HeldLease, LeaseWatch
from twinshore.state.core.values import LeaseRow

LINK = "link"
LEASE_S = 3.0
GRACE_S = 3.0
WRITE_S = 0.4
TICK_S = 0.05


@dataclass(slots=True)
class Tides:
    """A lane's, in one term."""

    launched_s: float = -100.0
    next_run: int = 0


class DriverModel:
    """`orders` gives the partitions of the link as the store and the clusters have them when a term begins."""

    def __init__(
        self,
        clusters: Clusters,
        store: StoreModel,
        *,
        name: str,
        tasks: int,
        task_run_s: float,
        orders: Callable[[], list[PartitionConfig]],
        started: Callable[[PumpModel], None],
    ) -> None:
        self.clusters, self.schedule, self.store, self.name = clusters, clusters.schedule, store, name
        self.tasks, self.task_run_s, self._orders, self._started = tasks, task_run_s, orders, started
        self.coordinator = Coordinator()
        self._tasks: dict[TaskSession, PumpModel] = {}
        self._runs: dict[int, Tides] = {}
        self._terms = 0
        self.held: HeldLease | None = None
        # Partitions of paused topics, those that are leaving their tasks, and those that shall come back then.
        self.resting: set[TopicPartition] = set()
        self._leaving: set[TopicPartition] = set()
        self._returning: set[TopicPartition] = set()
        self._watch = LeaseWatch(LEASE_S, GRACE_S)
        self.dead = self.paused = False
        self._unwritten: list[tuple[TopicPartition, PartitionProgress]] = []
        self._unledgered: list[tuple[TopicPartition, PartitionIncident]] = []
        self._backlog: list[Callable[[], None]] = []
        self._beat()
        self._tick()
        self._write()

    # -- the lease

    def left_s(self) -> float:
        return max(0.0, self.held.valid_until_s - self.schedule.now_s) if self.held else 0.0

    def _beat(self) -> None:
        if self.dead:
            return
        self.schedule.after(LEASE_S * 0.1 * self.schedule.chance.uniform(0.5, 1.5), self._beat)
        if self.paused or self.schedule.odds(self.clusters.store_fails):
            return
        now_s, row = self.schedule.now_s, self.store.lease
        if self.held:
            if self.held.renewal_due(now_s):
                if row is not None and row.epoch == self.held.row.epoch:
                    self.store.lease = row = replace(row, renewals=row.renewals + 1)
                    self.held = self.held.renewed(row, now_s)
                else:
                    self._end_term()
            elif self.left_s() <= 0:
                self._end_term()
        elif self._watch.observe(row, now_s):
            generation = row.epoch + 1 if row else 1
            self.store.lease = LeaseRow("link", self.name, generation, 0, int(LEASE_S * 1000))
            self.held = HeldLease(self.store.lease, now_s, LEASE_S)
            self._begin_term()

    def _begin_term(self) -> None:
        self.schedule.say(f"{self.name} has the lease")
        self._terms += 1
        self._runs = {task: Tides() for task in range(self.tasks)}
        for task in self._runs:
            self.coordinator.open_task((LINK, task), LEASE_S, f"{self.name}, term {self._terms}")
        self._returning.clear()
        self._leaving.clear()
        for order in self._orders():
            if order.named not in self.resting:
                self._place(order)

    def _place(self, order: PartitionConfig) -> None:
        self.coordinator.assign((LINK, self.schedule.chance.randrange(self.tasks)), [order], self.schedule.now_s)
        self._do_wanted()

    def _end_term(self) -> None:
        self.schedule.say(f"{self.name} has lost the lease")
        self.held = None
        self._hang_up()

    def _hang_up(self) -> None:
        self.coordinator.close_link(LINK)
        self._runs = {}
        self._do_wanted()

    def die(self, *, heard: bool) -> None:
        """Killed; its tasks hear of it, or, where a whole machine went, they do not."""
        self.schedule.say(f"{self.name} dies, {len(self._unwritten)} receipts unwritten")
        self.dead = True
        if heard:
            self._hang_up()

    def reopen(self, *, heard: bool, after_s: float) -> None:
        """The link is closed and opened anew under the same lease, as where an operator changes it; its tasks hear of
        it, or, where networks fail just then, they do not."""
        if self.dead or self.paused or not self.held or not self._runs:
            return
        self.schedule.say(f"{self.name} closes the link{'' if heard else ', which no task hears'}")
        for task in [] if heard else list(self._tasks.values()):
            self.departed(task)
        self._hang_up()
        self.schedule.after(after_s, self._open_again)

    def _open_again(self) -> None:
        if self.held and not (self.dead or self._runs):
            self._begin_term()

    def pause(self, for_s: float) -> None:
        self.schedule.say(f"{self.name} is paused for {for_s:.1f} s")
        self.paused = True
        self.schedule.after(for_s, self._resume)

    def _resume(self) -> None:
        """What tasks said meanwhile lies in its sockets and is read now."""
        self.paused = False
        waiting, self._backlog = self._backlog, []
        for act in waiting:
            self._listen(act)

    # -- task runs

    def _tick(self) -> None:
        if self.dead:
            return
        self.schedule.after(TICK_S * self.schedule.chance.uniform(0.5, 1.5), self._tick)
        if self.paused or not self.held:
            return
        now_s = self.schedule.now_s
        self.coordinator.tick(now_s, {link: self.left_s() for link in self.coordinator.awaited()})
        self._withdraw(now_s)
        self._do_wanted()
        for task, runs in self._runs.items():
            self._launch_if_due(task, runs, now_s)
        self._supply()

    def rest(self, named: TopicPartition) -> None:
        """An operator pauses it."""
        self.resting.add(named)
        self._returning.discard(named)

    def give_back(self, named: TopicPartition) -> None:
        """The pause is over."""
        self.resting.discard(named)
        self._returning.add(named)

    def _supply(self) -> None:
        """What has left its task and may flow again goes to any task."""
        if not (self._returning and self._runs):
            return
        placed = self.coordinator.placed(LINK)
        orders = {order.named: order for order in self._orders()}
        for named in sorted(self._returning, key=str):
            if named not in placed:
                self._returning.discard(named)
                if named in orders:
                    self._place(orders[named])
            elif named not in self._leaving:
                self._returning.discard(named)

    def _withdraw(self, now_s: float) -> None:
        """Partitions that rest are taken from their task: asked again until no task writes them."""
        rest = {named for named in self.clusters.pairs if named in self.resting or self.store.rests(named)}
        if not rest and not self._leaving:
            return
        placed = self.coordinator.placed(LINK)
        self._leaving = {named for named in placed if named in rest or named in self._leaving}
        for named in placed:
            if named in self._leaving and self.coordinator.withdraw(LINK, named.topic, named.partition, now_s):
                self._leaving.discard(named)

    def _launch_if_due(self, task: int, runs: Tides, now_s: float) -> None:
        holder, age_s, heir = self.coordinator.holding((LINK, task), now_s)
        if heir or now_s - runs.launched_s < 2.0:
            return
        if holder is None or age_s >= self.task_run_s:
            runs.launched_s = now_s
            run, runs.next_run = runs.next_run, runs.next_run + 1
            token = self.coordinator.token_of((LINK, task))
            soon_s = self.schedule.chance.uniform(0.05, 0.4)
            self.schedule.after(soon_s, lambda: self._launch(task, run, token))

    def _launch(self, task: int, run: int, token: str) -> None:
        """Its first word reaches the coordinator at once. One whose term is over is not let in, and ends."""
        session = None if self.dead else self.coordinator.arrive((LINK, task), run, token)
        if session is None:
            return
        generation = self.held.row.epoch if self.held else 0
        name = f"{self.name} task {task} task run {run}"
        model = self._tasks[session] = PumpModel(self.clusters, self, session, run, name=name, generation=generation)
        self.schedule.say(f"{model.name} starts")
        self._started(model)
        self._do_wanted()

    # -- the coordinator

    def hear(self, task: PumpModel, word: TaskMessage) -> None:
        """A pump's message has come."""
        self._listen(lambda: self._hear(task, word))

    def departs(self, task: PumpModel) -> None:
        """Its connection has ended, which comes behind what it said."""
        self._listen(lambda: self.departed(task))

    def _listen(self, act: Callable[[], None]) -> None:
        if self.paused:
            self._backlog.append(act)
        elif not self.dead:
            act()

    def _hear(self, task: PumpModel, word: TaskMessage) -> None:
        if task.session:
            self.coordinator.hear(task.session, word, self.schedule.now_s, self.left_s())
            self._do_wanted()

    def departed(self, task: PumpModel) -> None:
        """The coordinator has lost it."""
        if task.session:
            self._tasks.pop(task.session, None)
            self.coordinator.depart(task.session, self.schedule.now_s, self.left_s())
            self._do_wanted()

    def move(self) -> None:
        """Some partition shall change tasks."""
        choices = list(self.coordinator.placed(LINK).items())
        if not choices or self.tasks < 2 or self.paused:
            return
        named, task = self.schedule.chance.choice(choices)
        if self.coordinator.move(LINK, named, (task + 1) % self.tasks):
            self.schedule.say(f"{self.name} moves {named} from task {task}")
            self._do_wanted()

    def throttle(self, bytes_s: float) -> None:
        """Every task fetches so much in a second from now on; 0: as much as it can."""
        for task in self._runs:
            self.coordinator.bound((LINK, task), TaskRateLimits(bytes_s, {}, {}))
        self._do_wanted()

    def _do_wanted(self) -> None:
        """Sooner or later a task hears what it is told, or that the coordinator is gone."""
        for command in self.coordinator.wanted():
            match command:
                case SendToTask(session, word):
                    if session in self._tasks:
                        self._tasks[session].told(word)
                case RecordReport(account):
                    self._keep(account)
                case DisconnectTask(session):
                    if task := self._tasks.pop(session, None):
                        self._lose(task)

    def _lose(self, task: PumpModel) -> None:
        self.schedule.after(self.schedule.lag(0.01), lambda: task.hear(lambda: task.end("the driver is gone")))

    # -- what is written

    def _keep(self, account: TaskReport) -> None:
        for entry in account.carried:
            named = TopicPartition(entry.topic, entry.partition)
            self._honest(named, entry)
            self._unwritten.append((named, entry))
        for stopped in account.incidents:
            named = TopicPartition(stopped.topic, stopped.partition)
            self.schedule.say(f"{self.name}: {named} stopped: {stopped.kind}: {stopped.sentence}")
            self._unledgered.append((named, stopped))

    def _honest(self, named: TopicPartition, entry: PartitionProgress) -> None:
        """A receipt claims only what could be read on the twin once, and was the source's. What befell it since, while
        the word was on its way, the ledger tells."""
        pair = self.clusters.pairs[named]
        # Markers go by name: those that reached a topic that was made anew are on it, and are told of.
        bound = max(pair.twin.confirmed, pair.twin.high if "recreated topic" in pair.excuses else 0)
        if entry.from_offset > entry.to_offset or entry.to_offset > max(bound, entry.from_offset):
            raise Violation(
                f"{named}: a receipt claims [{entry.from_offset}, {entry.to_offset}), the twin holds {bound}"
            )

    def _write(self) -> None:
        """The recorder: a few times a second, when the store is there."""
        if self.dead:
            return
        self.schedule.after(WRITE_S * self.schedule.chance.uniform(0.5, 1.5), self._write)
        if not self.paused and not self.schedule.odds(self.clusters.store_fails):
            for named, entry in self._unwritten:
                self.store.record(entry, named)
            self._unwritten.clear()
            for named, stopped in self._unledgered:
                self.store.ledger.setdefault(named, []).append(stopped)
            self._unledgered.clear()
