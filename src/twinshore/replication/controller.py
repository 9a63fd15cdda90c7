"""Controls one link: takes the lease, compares both clusters, creates twins, and assigns partitions to tasks."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Container
from contextlib import ExitStack
from functools import partial

from twinshore.config.errors import ConfigError, KafkaError, RefusedError, StoreError, TwinshoreError, WireError
from twinshore.config.grouping import in_slices
from twinshore.config.incident_policy import IncidentKind
from twinshore.config.model import Link
from twinshore.config.sections.mirror import MirrorSettings
from twinshore.config.settings import Settings
from twinshore.replication import stopped_partitions, topic_scanner
from twinshore.replication.adopt import Adopter
from twinshore.replication.coordinator_server import CoordinatorServer, PartitionBalancer
from twinshore.replication.core.filters import admits
from twinshore.replication.core.lease_epoch import LeaseEpoch
from twinshore.replication.core.lineage import describe_doubtful_lineage
from twinshore.replication.core.model import (
    STANDBY,
    STOPPED,
    STOPPED_UNCONFIRMED,
    ActiveLink,
    CarryTopic,
    Create,
    Grow,
    InactiveLink,
    LinkFacts,
    Refuse,
    count_partitions,
)
from twinshore.replication.core.planner import KnownTwin, assign_partitions
from twinshore.replication.heartbeat import HeartbeatTask
from twinshore.replication.incident_watch import (
    AvailabilityWatch,
    HangingTransactionWatch,
    SlowChecks,
    read_state_expiry_ms,
)
from twinshore.replication.link_claim import LinkClaim, ProcessLease, establish_identity
from twinshore.replication.operator_control import OperatorOverrides, RateLimitPublisher, describe_effective_link
from twinshore.replication.ownership_sync import SwitchRequests, TopicHomes
from twinshore.replication.recorder import ProgressRecorder
from twinshore.replication.recovery import LogStartSync
from twinshore.replication.stopped_partitions import RefusedTopics, StoppedPartitions, partitions_added
from twinshore.replication.sync.deletion_guard import SafetyPolicy
from twinshore.replication.sync.syncer import ConfigSync
from twinshore.replication.task.core.messages import TaskConfig
from twinshore.replication.task.lookups import may_write_markers, transactional_id_prefix
from twinshore.replication.task_pool import TaskPool
from twinshore.replication.topic_lineage import TopicLineage
from twinshore.replication.topic_scanner import TopicConflicts, TopicScanner, read_known_twins
from twinshore.runtime.endpoints import LONG_TIMEOUT_CONNECTIONS, LinkClients
from twinshore.runtime.lease_keeper import LeaseKeeper, SeenLease
from twinshore.runtime.logging import LinkLogger, OutageLog
from twinshore.state.store import Store

log = logging.getLogger(__name__)

LOG_START_INTERVAL_S = 30.0
EPOCH_RETRY_PAUSE_S = 1.0


class LinkController:
    """`seen`: the lease as the process first saw it."""

    def __init__(
        self,
        link: Link,
        settings: Settings,
        *,
        store: Store,
        coordinator: CoordinatorServer,
        task_pool: TaskPool,
        recorder: ProgressRecorder,
        owner: str,
        tasks: int,
        outages: OutageLog,
        seen: SeenLease | None = None,
    ) -> None:
        self.link = link
        self._mirror: MirrorSettings = settings.mirror
        self._clients = LinkClients(link, settings, patience_s=10.0, shared=LONG_TIMEOUT_CONNECTIONS)
        self._source, self._target = self._clients.source, self._clients.target
        self._scanner = TopicScanner(link, self._source, self._target)

        def tell_doubts(topics: Collection[str]) -> None:
            sentence = describe_doubtful_lineage(link.source, topics)
            stopped_partitions.report_link_incident(store, link.name, IncidentKind.DOUBTFUL_NOTE, sentence)

        sides = (store, self._source, self._target)
        self._lineage = TopicLineage(lambda: self.link, *sides, tell=tell_doubts)
        self._homes = TopicHomes(lambda: self.link, settings.links, *sides, self._lineage)
        self._switch_requests = SwitchRequests(lambda: self.link, store, coordinator, recorder)
        self._rate_limits, self._conflicts = RateLimitPublisher(link.name, coordinator), TopicConflicts(link, store)
        self._adopter = Adopter(link, self._source, self._target, store, self._conflicts.made)
        self._overrides = OperatorOverrides(link, settings.links, store)
        self._store, self._coordinator, self._task_pool, self._recorder = store, coordinator, task_pool, recorder
        self._tasks, self._log = tasks, LinkLogger(log, link.name)
        times_s = (self._mirror.lease_s, min(5.0, self._mirror.produce_timeout_s))
        lands_s = partial(coordinator.lands_s, link.name)
        self.lease = LeaseKeeper(store, f"link {link.name}", owner, *times_s, lands_s)
        lease = ProcessLease(owner, self.lease.generation, self._mirror.lease_s)
        self._claim = LinkClaim(link, store, self._target, lease)
        self._watch = AvailabilityWatch(link, settings, store, recorder, active=self.is_ours, outages=outages)
        self._slow_checks = SlowChecks(link, settings, store, recorder, active=self.is_ours, outages=outages)
        self._stopped = StoppedPartitions(link.name, store, coordinator, recorder, held=lambda: self._watch.held)
        self._epoch: LeaseEpoch | None = None
        self._surveyed_at_s = self._begin_at_s = self._followed_at_s = self._hindered_at_s = 0.0
        self._sentence = ""
        self._balance = PartitionBalancer(link.name, coordinator, recorder, 1 if link.broadcast else tasks)
        self._leaving: set[str] = set()
        self._safety = SafetyPolicy(settings, link.name)
        given = (lambda: self.link, settings, store, self._safety)
        self._config_sync = ConfigSync(
            *given, active=self.is_ours, outages=outages, leaves=self._switch_requests.leaves
        )
        self._refused_topics = RefusedTopics(link.name, store, recorder, doubt=self._config_sync.doubt)
        after_s, stopped_by = self._mirror.hanging_transaction_s, recorder.stopped
        self._transactions = HangingTransactionWatch(link.name, self._source, store, after_s, stopped=stopped_by)
        self._heartbeat = HeartbeatTask(link, self._source, self._mirror.heartbeat_s, self.is_ours)
        never, doubt = (lambda: self._safety.known.never_delete), self._config_sync.doubt
        self._log_starts = LogStartSync(link, self._target, store, never=never, doubt=doubt)
        self.lease.begin(seen)  # last: a controller that failed to start must not keep the lease from the next one

    # -- the turn

    def turn(self) -> str:
        """Observes, plans and acts once. Returns the link's state in a sentence."""
        generation = self.lease.generation()
        if self._epoch and self._epoch.generation != generation:
            self._end_epoch()
            self._log.warning("the lease is lost; its tasks have stopped")
        if not generation:
            return self._publish_status(InactiveLink(STANDBY, self.lease.sentence()))
        expiry_ms, never_cut = self._slow_checks.state_expiry_ms, self._safety.never_cut
        if self._epoch and (why := self._epoch.outdated(self.link.target, expiry_ms, never_cut=never_cut)):
            self._end_epoch()
            self._log.info(f"{why}; its tasks start again")
        if self._epoch is None and time.monotonic() < self._begin_at_s:
            return self._sentence
        try:
            if self._epoch is None:
                self._begin_epoch(generation)
            self._apply_overrides()
            self._rate_limits.turn(self.link.control, self._tasks)
            self._apply_sync_orders()
            if time.monotonic() - self._surveyed_at_s >= self._refused_topics.pause_s(self._mirror.refresh_s):
                self._survey()
                self._surveyed_at_s = time.monotonic()
            self._follow_log_starts()
            self._balance.turn()
            lag, placed = self._recorder.stats[self.link.name].lag.copy(), self._coordinator.placed(self.link.name)
            self._transactions.look(partition for partition, behind in lag.items() if behind and partition in placed)
        except RefusedError as error:
            if self._epoch:
                self._end_epoch()
            self._publish_status(ActiveLink(0, self._tasks, trouble=str(error)))
            raise
        except (KafkaError, WireError, ConfigError) as error:
            # Malformed bytes and unreadable secrets concern this link alone, and may pass.
            if self._epoch is None:
                self._begin_at_s = time.monotonic() + EPOCH_RETRY_PAUSE_S
            hindered = not isinstance(error, KafkaError) or error.retriable
            return self._publish_status(self._describe_active(str(error), hindered=hindered))
        except StoreError as error:
            self._publish_status(self._describe_active(str(error), hindered=True))
            raise
        return self._publish_status(self._describe_active())

    def _describe_active(self, trouble: str = "", *, hindered: bool = False) -> ActiveLink:
        """Returns what is replicated now. `hindered`: the turn did not complete, and is tried again."""
        name, paused, now_s = self.link.name, self.link.control.paused, time.monotonic()
        self._hindered_at_s = (self._hindered_at_s or now_s) if hindered else 0.0
        if self._epoch is None:
            return ActiveLink(0, self._tasks, paused=paused, trouble=trouble)
        return count_partitions(
            self._coordinator.placed(name).keys(),
            self._coordinator.unmanned(name),
            self._recorder.leaderless(name),
            ActiveLink(
                placed=0,
                tasks=self._tasks,
                resting=len(self._stopped),
                refused=len(self._refused_topics),
                aligning=self._recorder.stats[name].aligning.sentence(),
                paused=paused,
                trouble=trouble,
                elsewhere=len(self._homes.elsewhere),
                homeless=len(self._homes.homeless),
                apart=sum(link == name for link, _ in self._task_pool.apart),
                hindered_s=now_s - self._hindered_at_s if hindered else 0.0,
            ),
        )

    def _publish_status(self, now: LinkFacts) -> str:
        state, sentence = self._recorder.say(self.link.name, now, self._tasks if self._epoch else 0)
        self._sentence = f"{self.link.name}: {state}: {sentence}"
        return self._sentence

    # -- a lease epoch

    def _begin_epoch(self, generation: int) -> None:
        identity = establish_identity(self.link, self._store, self._source, self._target, self._claim)
        expiry = self._slow_checks.state_expiry_ms = read_state_expiry_ms(self._target)
        units = "" if may_write_markers(self._target) else transactional_id_prefix(self.link.name, identity.producer_id)
        self._recorder.settle(self.link.name)
        self._stopped.begin()
        self._refused_topics.begin()
        for state in (self._overrides, self._switch_requests, self._conflicts):
            state.anew()
        self._safety.against()  # a standby may have read the policy long ago
        # Only now: if anything before fails, the next turn begins the epoch again.
        self._epoch = LeaseEpoch(generation, identity, expiry, units, self._safety.never_cut)
        self._rate_limits.forget()
        for task in range(self._tasks):
            self._coordinator.open_task((self.link.name, task), self._mirror.lease_s)
            self._task_pool.open_task((self.link.name, task), partial(self._order, task), together=self.link.broadcast)
        self._log.info(f"replicated by this process as producer {identity.producer_id}")
        if units:
            self._log.info(f"{self.link.target} takes no markers directly: closed units replicate them")

    def _end_epoch(self) -> None:
        self._task_pool.close_link(self.link.name)
        self._coordinator.close_link(self.link.name)
        self._epoch = None
        self._recorder.stats[self.link.name].let_go()
        self._leaving.clear()
        self._surveyed_at_s = 0.0

    # -- everything besides records

    def is_ours(self) -> bool:
        return self._epoch is not None and self.lease.left_s() > 0

    def _apply_sync_orders(self) -> None:
        """Applies the config sync's orders. A topic comes back only after every task has released it."""
        epoch, link = self._epoch, self.link.name
        assert epoch is not None
        self._leaving -= {topic for topic in self._leaving if self._coordinator.withdraw(link, topic)}
        self._config_sync.doubt(self._recorder.doubted(link))
        for order in self._config_sync.endings.orders(partition.topic for partition in self._coordinator.placed(link)):
            epoch.flowing.pop(order.topic, None)
            if order.withdraw:
                self._leaving.add(order.topic)
            if order.forget:
                self._recorder.forget(link, order.topic)
                self._stopped.forget(order.topic)
                self._surveyed_at_s = 0.0
        for topic in self._stopped.turn():
            epoch.flowing.pop(topic, None)
            self._surveyed_at_s = 0.0
        if self._config_sync.rules.news():
            self._surveyed_at_s = 0.0

    # -- operators' overrides

    def _apply_overrides(self) -> None:
        """Applies overrides. Topics that may not be replicated leave their tasks; the next survey finds those that may
        again.
        """
        epoch, name = self._epoch, self.link.name
        assert epoch is not None
        if self._overrides.changed():
            self.link = self._overrides.link
            self._scanner = TopicScanner(self.link, self._source, self._target)
            self._surveyed_at_s = 0.0
            self._config_sync.poll_soon()
            self._log.info(f"in effect now: {describe_effective_link(self.link)}")
        placed = {partition.topic for partition in self._coordinator.placed(name)}
        if self._switch_requests.changed():
            self._surveyed_at_s = 0.0
        away = self._homes.elsewhere | self._homes.doubted | self._switch_requests.leaving
        withdraw = partial(self._coordinator.withdraw, name)
        for topic in self._overrides.take_unwanted_topics(placed, withdraw, away):
            epoch.flowing.pop(topic, None)
            self._log.info(away.get(topic) or self._overrides.parted(topic), extra={"topic": topic})
        self._switch_requests.let_go(active=self.is_ours())
        self._overrides.acknowledge(tasks_left=self._coordinator.closed_tasks_settled(name) and self.is_ours())

    # -- survey and plan

    def _survey(self) -> None:
        epoch = self._epoch
        assert epoch is not None
        self._claim.check()
        self._safety.against()
        self._homes.records.take_up_switches()
        admitted = self._homes.admitted(self._scanner.names())
        self._refused_topics.keep(admitted, self._homes.refused.values(), self._homes.elsewhere)
        self._claim.retract_twins(self._homes.elsewhere)
        self._switch_requests.forget(self._homes.elsewhere, self._stopped)
        names = self._overrides.flowing(self._switch_requests.staying(admitted))
        fresh = [name for name, seen in names.items() if epoch.flowing.get(name) != seen and name not in self._leaving]
        for name in [name for name in epoch.flowing if name not in names]:
            if admits(self.link, name):
                gone = name in self._homes.elsewhere | self._homes.doubted or self._switch_requests.leaves(name)
                self._config_sync.doubt(() if gone else [name])
            else:
                self._log.info(f"topic {name} is no longer admitted", extra={"topic": name})
            del epoch.flowing[name]
        known = read_known_twins(self._store, self.link) if fresh else {}
        for some in in_slices(fresh, 100):
            if self._safety.never_cut and not epoch.never_cut:
                return  # no attempt begins with an outdated config: the next turn ends the epoch
            self._apply_plan(some, known, names)
            self._safety.against()
        self._homes.records.publish_first_homes(epoch.flowing, self._lineage.is_twin)

    def _apply_plan(self, names: list[str], known: dict[str, KnownTwin], seen: dict[str, tuple[str, int]]) -> None:
        epoch = self._epoch
        assert epoch is not None
        steps = self._conflicts.judged(self._scanner.plan(names, known), known)
        ready: list[CarryTopic] = []
        made: list[str] = []

        self._lineage.announce(step for step in steps if isinstance(step, Create))
        refused: list[Refuse] = []
        try_step = partial(topic_scanner.try_step, self._target, self.link.name)
        for step in steps:
            if refusal := step if isinstance(step, Refuse) else try_step(step, self._lineage.retract):
                refused.append(refusal)
            elif isinstance(step, Create):
                made.append(step.topic)
            elif isinstance(step, Grow):
                self._recorder.passed(self.link.name, partitions_added(step))
            elif isinstance(step, CarryTopic):
                ready.append(step)
        if made:
            # Read back, for their topic ids.
            self._refused_topics.made(made)
            again = self._conflicts.judged(self._scanner.plan(made, known), known)
            ready.extend(step for step in again if isinstance(step, CarryTopic))
            refused.extend(step for step in again if isinstance(step, Refuse))
        # Nothing is known yet of topics whose check still runs.
        unchecked = {step.topic for step in ready}
        ready, unruled = self._config_sync.rules.admit(ready, known)
        ready, unproven = self._adopter.adopt(self._conflicts.without_foreign_twins(ready, known))
        unchecked -= {step.topic for step in ready}
        refused += [*unruled, *unproven]
        for refusal in refused:
            self._refused_topics.add(refusal)
        for topic in sorted({step.topic for step in steps} - unchecked - {refusal.topic for refusal in refused}):
            self._refused_topics.over(topic)
        self._assign(epoch, ready, known, seen)

    def _assign(
        self, epoch: LeaseEpoch, steps: list[CarryTopic], known: Container[str], seen: dict[str, tuple[str, int]]
    ) -> None:
        steps = self._homes.kept(self._conflicts.kept(steps, known), known)
        self._lineage.declare(steps)
        found = topic_scanner.build_partition_configs(self._store, self.link, steps, self._conflicts.made)
        configs = {partition: config for partition, config in found.items() if partition not in self._stopped}
        if not found:
            return
        self._claim.tell({step.topic for step in steps})  # before any record of theirs
        rates, placed = self._recorder.stats[self.link.name].rate, self._coordinator.placed(self.link.name)
        fixed = bool(self.link.broadcast)
        tasks = assign_partitions([*placed, *configs], self._tasks, now=placed, rate=rates, fixed=fixed)
        for task in range(self._tasks):
            assigned = [config for partition, config in configs.items() if tasks[partition] == task]
            self._coordinator.assign((self.link.name, task), assigned)
        for step in steps:
            partitions = seen[step.topic][1] if step.topic in seen else step.partitions
            if step.partitions >= partitions and step.topic not in self._refused_topics:
                epoch.flowing[step.topic] = seen.get(step.topic, (step.source_topic_id, step.partitions))

    def _follow_log_starts(self) -> None:
        """Moves the twin's log start to the source's: retention is off on the twin."""
        if time.monotonic() - self._followed_at_s < LOG_START_INTERVAL_S:
            return
        self._followed_at_s = time.monotonic()
        if self._safety.against() and not self._safety.known.never_delete:
            return  # unknown what may be cut
        # Only partitions on tasks are cut: a topic that stopped may be another writer's by now.
        stats, placed = self._recorder.stats[self.link.name], self._coordinator.placed(self.link.name)
        cuts = {partition: at for partition, at in stats.cuts().items() if partition in placed}
        self._log_starts.cut(self._adopter.without_mapped(cuts, stats.lag.copy()), stats.cut_to)

    def _order(self, task: int, run: int) -> TaskConfig:
        token = self._coordinator.token_of((self.link.name, task))  # first: an ended epoch's token fits no later task
        if (epoch := self._epoch) is None:
            raise TwinshoreError("the link's epoch has ended")
        sides = {"source": self._source.cluster, "target": self._target.cluster}
        coordinator = (*self._coordinator.reached_at(), token)
        return epoch.order(self.link, task, run, **sides, coordinator=coordinator, settings=self._mirror)

    def stop(self, deadline_s: float) -> bool:
        """Lets tasks finish. Returns whether all confirmed, and no request can still be appended."""
        self._task_pool.close_link(self.link.name)
        return self._coordinator.finish(self.link.name, deadline_s)

    def left_s(self) -> float:
        """Seconds for which the open tasks' lease epoch holds."""
        epoch = self._epoch  # read once: the coordinator's thread asks while the controller's may end it
        return self.lease.left_s() if epoch and epoch.generation == self.lease.generation() else 0.0

    def close(self, *, clean: bool, now: InactiveLink | None = None) -> None:
        """`now`: the status afterwards; None when the mirror was stopped."""
        if self.lease.left_s() > 0:
            how = "the mirror was stopped in good order" if clean else STOPPED_UNCONFIRMED
            self._publish_status(now or InactiveLink(STOPPED, how))
        with ExitStack() as parts:  # even if one fails, the lease is not renewed for ever; the last first
            parts.callback(self._clients.close)
            parts.callback(self.lease.close, release=clean)
            for one in (self._adopter, self._slow_checks, self._watch, self._config_sync, self._heartbeat):
                parts.callback(one.close)
