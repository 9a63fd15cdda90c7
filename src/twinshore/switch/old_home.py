"""What runs beside a link for switches. `OldHomeGuard` announces homes to old homes that a switch left behind, blocks
writers there, and performs deferred cleanups. `HeldWriters` ends a switch whose process is gone while writers are held.

The guard's check repeats every few seconds while a topic's home is elsewhere: an old home may return at any time, and
so may a new right to write there.

A hold of some seconds is reported as an incident. Once the lease of the switch has expired, the switch is rolled back
here, or resumed if past the point of no return.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
from collections.abc import Collection, Iterable
from functools import partial

from twinshore.config.errors import KafkaError
from twinshore.config.incident_policy import IncidentKind
from twinshore.config.model import TwinNaming
from twinshore.config.repeat_filter import RepeatFilter, describe_error
from twinshore.config.sentences import count_phrase, is_or_are
from twinshore.kafka.clock import steady_s, wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.replication import stopped_partitions
from twinshore.replication.core.ownership import pair_name
from twinshore.replication.sync.cluster_comparison import target_principal
from twinshore.routing.homes_topic import HomesTopic
from twinshore.runtime import lease_keeper
from twinshore.runtime.endpoints import LONG_TIMEOUT_CONNECTIONS, LinkClients, LinkContext, LinkService, pin_cluster_ids
from twinshore.runtime.lease_keeper import LeaseKeeper
from twinshore.runtime.logging import LinkLogger
from twinshore.runtime.scheduler import process_scheduler
from twinshore.state.core.values import LinkStateRow
from twinshore.switch.core.acl_rules import (
    DEFERRED_CLEANUP_KIND,
    DeferredCleanup,
    describe_open_old_home,
    may_clean_up,
    missing_home_records,
    topics_blocked_at_home,
    topics_left_to_other_links,
)
from twinshore.switch.core.steps import SwitchState, parse_switch_state, switch_lease
from twinshore.switch.drain import read_topics_left_to_link
from twinshore.switch.operations.run import SwitchCaller, resume, roll_back
from twinshore.switch.write_access import ClusterAclAccess, WriteBlockKeeper, clean_up

log = logging.getLogger(__name__)

HOLD_CHECK_INTERVAL_S = 1.0
REPORT_AFTER_S = 3.0  # most holds are over before
OPERATOR_GRACE_S = 5.0  # an operator who ends it by hand goes first


class HeldWriters:
    """Watches the switches that move topics away from this link's source."""

    def __init__(self, context: LinkContext) -> None:
        self._context, self._link, self._store = context, context.link, context.store
        self._owner = f"link {self._link.name}, process {os.getpid()}, {secrets.token_hex(4)}"
        self._version, self._switches = -1, frozenset[str]()
        self._keepers: dict[str, LeaseKeeper] = {}
        self._since_s: dict[str, float] = {}
        self._ending: dict[str, threading.Thread] = {}  # one that waits for a dead cluster keeps no other waiting
        self._told: str | None = None  # unknown: an earlier process may have told something
        self._log = LinkLogger(log, self._link.name)
        self._trouble = RepeatFilter(self._log)
        ends = (self._link.source, self._link.target)
        self._task = process_scheduler.every(
            f"held writers {self._link.name}", self._turn, asks=ends, last=self._leave_all
        )

    def close(self) -> None:
        """Stops watching. The next process resumes any switch that is being ended."""
        self._task.close()

    def _turn(self) -> float:
        try:
            self._look()
            self._trouble.well("switches that hold writers are checked again")
        except Exception as error:
            self._trouble.say(f"switches that hold writers are not ended now: {describe_error(error)}")
        return HOLD_CHECK_INTERVAL_S

    def _look(self) -> None:
        if not self._context.active():
            self._leave_all()
            return
        held = self._held()
        self._ending = {switch: thread for switch, thread in self._ending.items() if thread.is_alive()}
        for switch in self._keepers.keys() - held.keys():
            self._leave(switch)
        now_s = steady_s()
        self._since_s = {switch: self._since_s.get(switch, now_s) for switch in held}
        for switch in held.keys() - self._keepers.keys() - self._ending.keys():
            name, grace_s = switch_lease(switch), lease_keeper.GRACE_S + OPERATOR_GRACE_S
            self._keepers[switch] = LeaseKeeper(self._store, name, self._owner, lease_keeper.LEASE_S, grace_s).begin()
        self._tell([state for state in held.values() if now_s >= self._since_s[state.id] + REPORT_AFTER_S])
        for switch, switch_state in held.items():
            if switch in self._keepers and self._keepers[switch].generation():
                self._leave(switch)
                ends = threading.Thread(
                    target=self._end, args=(switch_state,), name=f"end of switch {switch[:8]}", daemon=True
                )
                self._ending[switch] = ends
                ends.start()

    def _held(self) -> dict[str, SwitchState]:
        version = self._store.topics_in_switch.version_lately(pair_name(self._link))
        if version != self._version:
            rows = self._store.topics_in_switch.of_link(self._link.name)
            self._version, self._switches = version, frozenset(row.switch_id for row in rows)
        found: dict[str, SwitchState] = {}
        for switch in self._switches:
            row = self._store.switches.of(switch)
            state = parse_switch_state(row.switch_state) if row else None
            if state is not None and state.holds_writers:
                found[switch] = state
        return found

    def _end(self, state: SwitchState) -> None:
        self._log.warning(f"the process of switch {state.id[:8]} is gone while it holds writers: it is ended here")
        caller = SwitchCaller(f"link {self._link.name}", self._log.info, threading.Event())
        try:
            ended = (resume if state.committed else roll_back)(state.id, self._context.settings, self._store, caller)
            self._log.info(ended.verdict())
        except Exception as error:
            self._log.error(f"switch {state.id[:8]} is not ended: {describe_error(error)}")

    def _tell(self, held: list[SwitchState]) -> None:
        said = [f"writers wait for switch {state.id[:8]} of {state.by}: {state.called()}" for state in held]
        sentence = "; ".join(sorted(said))
        if sentence != self._told:
            stopped_partitions.report_link_incident(self._store, self._link.name, IncidentKind.WRITERS_HELD, sentence)
            self._told = sentence

    def _leave(self, switch: str) -> None:
        self._keepers.pop(switch).close(release=True)

    def _leave_all(self) -> None:
        self._told = None
        for switch in list(self._keepers):
            self._leave(switch)


CHECK_INTERVAL_S = 5.0
IDLE_INTERVAL_S = 10.0  # where no switch has left a topic to the link
REQUEST_TIMEOUT_S = 5.0


class OldHomeGuard:
    """For a link whose target was the home of topics which the link now replicates."""

    def __init__(self, context: LinkContext) -> None:
        self._context, self._link, self._store = context, context.link, context.store
        self._guards = WriteBlockKeeper(self._store, f"link {self._link.name}")
        self._clients: LinkClients | None = None
        self._homes_topics: dict[str, HomesTopic] = {}
        self._may_be_told = True  # by an earlier process
        self._log = LinkLogger(log, self._link.name)
        self._trouble, self._remarks, self._unpaid = (RepeatFilter(self._log) for _ in range(3))
        ends = (self._link.source, self._link.target)
        self._task = process_scheduler.every(f"old home {self._link.name}", self._turn, asks=ends, last=self._let_go)

    def close(self) -> None:
        """Waits for the current check, which may be changing rules."""
        self._task.close()

    def _let_go(self) -> None:
        if self._clients is not None:
            self._clients.close()
            self._clients = None
            self._homes_topics.clear()

    def _turn(self) -> float:
        try:
            return CHECK_INTERVAL_S if self._look() else IDLE_INTERVAL_S
        except Exception as error:
            self._trouble.say(f"old homes are not checked now: {describe_error(error)}")
        return CHECK_INTERVAL_S

    def _look(self) -> bool:
        topics, active = self._left(), self._context.active()
        debts = self._store.link_states.of_each((pair_name(self._link), self._link.name), DEFERRED_CLEANUP_KIND)
        if not active:
            self._let_go()
            # A link without a target cannot begin, so no process owns it: report it all the same.
            if open_yet := frozenset(topics) - self._guards.known(self._link.target).up:
                self._tell(self._silent(open_yet))
        elif topics or debts or self._guarded_at_home():
            self._let_in()
            self._tell(self._shut(topics) if topics else "")
            self._pay(debts)
        else:
            self._let_go()
            if self._may_be_told:
                self._tell("")
        self._may_be_told = bool(topics) or not active
        self._trouble.well("old homes are checked again")
        return bool(topics or debts)

    def _left(self) -> tuple[str, ...]:
        """Call again before each change: a switch may have begun."""
        return read_topics_left_to_link(self._link, self._store)

    def _shut(self, topics: Collection[str]) -> str:
        """Returns why the old home is still open to writers; empty if it is not, or if no rule can block them. A
        blocked home that stops answering stays blocked.
        """
        clients = self._dialled()
        try:
            if not pin_cluster_ids(self._link, self._store, clients.source, clients.target):
                return describe_open_old_home(self._link, topics, "the link has not begun yet")
            self._tell_home(clients.source, clients.target, topics)
            self._guard(clients.target, topics)
            block = self._guards.known(self._link.target)
            if left_open := block.left_open.intersection(topics):
                return describe_open_old_home(self._link, left_open, "; ".join(block.plan.remarks))
        except KafkaError as error:
            if not error.retriable:
                return describe_open_old_home(self._link, topics, str(error))
            # Not by what this process saw: others change write blocks as well.
            still = frozenset(topics) - self._guards.known(self._link.target).up
            return self._silent(still) if still else ""
        return ""

    def _dialled(self) -> LinkClients:
        self._clients = self._clients or LinkClients(
            self._link,
            self._context.settings,
            patience_s=REQUEST_TIMEOUT_S,
            call_s=REQUEST_TIMEOUT_S,
            shared=LONG_TIMEOUT_CONNECTIONS,
        )
        return self._clients

    def _silent(self, topics: Collection[str]) -> str:
        """Uses the same sentence each time, else each attempt would add an incident row."""
        return describe_open_old_home(self._link, topics, f"{self._link.target} was not reached since")

    def _tell_home(self, new: KafkaCluster, old: KafkaCluster, topics: Collection[str]) -> None:
        here, there = (self._homes_topics.setdefault(cluster.name, HomesTopic(cluster)) for cluster in (new, old))
        homes = self._store.homes.of(pair_name(self._link))
        lines = missing_home_records(topics, homes, new.cluster_id(), here.read(), there.read())
        if lines:
            there.make()
            there.say(lines, wall_ms())
            self._log.info(f"{old.name} has heard that {lines[0].home} is the home of {len(lines)} of its topics")

    def _guard(self, old: KafkaCluster, topics: Collection[str]) -> None:
        us, rules = target_principal(self._link, old), ClusterAclAccess(old)
        if self._guards.stands(rules, us, topics):
            return
        self._guards.add(rules, us, self._left)
        plan = self._guards.known(old.name).plan
        if plan.open_to_all:
            self._remarks.say("; ".join(plan.remarks))
        else:
            self._log.info(f"only this link writes to its twins on {old.name}, as far as rules can keep others out")

    def _stands(self, topics: Collection[str]) -> bool:
        """Returns whether the cluster itself blocks writers of these twins now."""
        clients = self._dialled()
        return pin_cluster_ids(self._link, self._store, clients.source, clients.target) and self._guards.stands(
            ClusterAclAccess(clients.target), target_principal(self._link, clients.target), topics
        )

    def _guarded_at_home(self) -> tuple[str, ...]:
        pair = pair_name(self._link)
        guarded = self._guards.known(self._link.target).topics
        if not guarded:
            return ()
        in_switch = {row.topic for row in self._store.topics_in_switch.of(pair)}
        found = topics_blocked_at_home(self._link, self._store.homes.of(pair), guarded, in_switch)
        if not found:
            return ()
        others = topics_left_to_other_links(self._link, self._store.homes.everywhere(found), self._store.twins.begun)
        return tuple(topic for topic in found if topic not in others)

    def _let_in(self) -> None:
        topics = self._guarded_at_home()
        if not topics:
            return
        clients = self._dialled()
        try:
            if pin_cluster_ids(self._link, self._store, clients.source, clients.target):
                self._guards.drop(ClusterAclAccess(clients.target), self._guarded_at_home)
                these = f"{count_phrase(len(topics), 'topic')} {is_or_are(topics)}"
                self._log.info(f"{these} at home on {clients.target.name} again: no writer is kept out any more")
        except KafkaError as error:
            if not error.retriable:
                self._unpaid.say(f"the guard of topics that are at home on {clients.target.name} still stands: {error}")

    def _pay(self, debts: Iterable[LinkStateRow]) -> None:
        """Performs deferred cleanups. A write block is up before a denial is removed."""
        for row in debts:
            cleanup = DeferredCleanup.from_json(row.value)
            try:
                self._must_be_free(cleanup)
                # Read after the other check: a switch may have ended in between.
                homes = self._store.homes.of(pair_name(self._link))
                moved = {topic for topic, home in homes.items() if home.home != self._link.source}
                if not may_clean_up(cleanup, self._link, moved, self._left(), self._stands):
                    continue
                clients = self._dialled()
                if pin_cluster_ids(self._link, self._store, clients.source, clients.target):
                    if cleanup.old == self._link.target:
                        self._tell_home(clients.source, clients.target, cleanup.topics)
                    old = clients.target if cleanup.old == self._link.target else clients.source
                    clean_up(old, cleanup, f"link {self._link.name}", partial(self._must_be_free, cleanup))
                    self._store.link_states.forget([row])
                    self._log.info(f"what switch {cleanup.switch[:8]} had left on {cleanup.old} is undone")
            except KafkaError as error:
                if not error.retriable:
                    self._unpaid.say(f"what switch {cleanup.switch[:8]} left on {cleanup.old} is not undone: {error}")

    def _must_be_free(self, cleanup: DeferredCleanup) -> None:
        """Raises KafkaError if a switch has begun in between: it may rely on rules that the cleanup would remove."""
        if any(row.topic in cleanup.topics for row in self._store.topics_in_switch.of(pair_name(self._link))):
            raise KafkaError(f"topics of switch {cleanup.switch[:8]} are in another switch", retriable=True)

    def _tell(self, sentence: str) -> None:
        stopped_partitions.report_link_incident(self._store, self._link.name, IncidentKind.OLD_HOME_OPEN, sentence)


class SwitchServices:
    """Runs `OldHomeGuard` and `HeldWriters` beside links whose topics can switch."""

    def __init__(self, context: LinkContext) -> None:
        kinds = (OldHomeGuard, HeldWriters) if context.link.naming is TwinNaming.SAME else ()
        self._each = [kind(context) for kind in kinds]

    def close(self) -> None:
        for one in self._each:
            one.close()


def start_switch_services(context: LinkContext) -> LinkService:
    return SwitchServices(context)
