"""Runs the steps of a planned or forced switch: execute a step, decide, save the state, repeat.

The state is saved before and after each step, so a process that resumes after a crash repeats the step that was under
way.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

from twinshore.config.errors import KafkaError, RefusedError, StoreError, TwinshoreError, WireError
from twinshore.config.model import FIRST_TERM, Link, next_term, written_epoch
from twinshore.config.sentences import Tell, count_phrase, has_or_have, is_or_are, join_names
from twinshore.config.settings import Settings
from twinshore.kafka.admin import may_alter_acls, read_acls
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.replication.core.ownership import pair_name
from twinshore.replication.sync.deletion_guard import DeletionGuard
from twinshore.routing.core.home_records import HomeState
from twinshore.runtime.endpoints import verify_cluster_ids
from twinshore.state.core.values import AuditRow, HomeChange
from twinshore.state.store import Store
from twinshore.switch import drain, handover
from twinshore.switch.announce import (
    HOLD_MARGIN_S,
    HomeAnnouncer,
    claim_topics,
    describe_other_claims,
    read_homes,
    release_claims,
    resume_replication,
    stop_replication,
)
from twinshore.switch.core.steps import (
    HOLDS,
    MustRollBack,
    StepDone,
    StepFailed,
    StepOutcome,
    StepPending,
    SwitchKind,
    SwitchState,
    SwitchStatus,
    SwitchStep,
    TopicMove,
    apply_outcome,
    begin_rollback,
    explain_hold_overrun,
    repeat_hold,
)
from twinshore.switch.drain import MirrorWatch, describe_stopped_partitions, describe_topic_changes
from twinshore.switch.fencing import FencedProducer, check_twins_settled, write_fence
from twinshore.switch.protected_topics import GatePromises
from twinshore.switch.write_access import UNREACHABLE_MS_MAX, WriterAccess, defer_cleanup, end_holds

POLL_INTERVAL_S = 0.05
UNANSWERED_INTERVAL_S = 0.5


@dataclass(slots=True)
class StepRunner:
    """`save` raises if another process has resumed the switch. `stop`: roll back while that is possible; past the point
    of no return the switch goes on. `before_hold` is called once, before the first announcement; if it raises, the
    switch rolls back. `behind_flip` is called once the saved state has new homes.
    """

    once: Callable[[SwitchState], StepOutcome]
    save: Callable[[SwitchState], None]
    now_ms: Callable[[], int]
    tell: Tell
    stop: threading.Event
    before_hold: Callable[[], None] = lambda: None
    behind_flip: Callable[[], None] = lambda: None
    _announces: bool = False

    def run(self, state: SwitchState) -> SwitchState:
        """Returns the state at the end."""
        state = self._saved(state)
        while not state.ended:
            before, outcome = state, None
            if self.stop.is_set():
                state = begin_rollback(state, "it was stopped", self.now_ms())
            if not state.ended:
                outcome = self._tried(state)
                state = apply_outcome(state, outcome, self.now_ms())
            self._say(before, state)
            if state != before:
                state = self._saved(state)
            if before.step is SwitchStep.PROMOTE is not state.step and state.state is SwitchStatus.RUNNING:
                self.behind_flip()
            if not state.ended and (state.step, state.state) == (before.step, before.state):
                unanswered = isinstance(outcome, StepPending) and outcome.unanswered
                time.sleep(UNANSWERED_INTERVAL_S if unanswered else POLL_INTERVAL_S)
        return state

    def _say(self, before: SwitchState, now: SwitchState) -> None:
        count = len(before.history)
        grown = now.history[:count] == before.history
        for entry in now.history[count:] if grown else now.history[-1:]:
            self.tell(entry.sentence)

    def _saved(self, state: SwitchState) -> SwitchState:
        """Returns the state once it is saved.

        While the store is down, this waits as long as `save` permits: no step may run on an unsaved state. Writers wait
        no longer than for any other step, nor after a stop: they are released without the store. A process that resumes
        from the last saved state holds them again.
        """
        told = False
        while True:
            try:
                self.save(state)
                return state
            except StoreError as error:
                if not told:
                    self.tell(f"{state.step.words}: away: {error.message}")
                told, before = True, state
                state = self._release_writers(state, error)
                self._say(before, state)
                (time.sleep if self.stop.is_set() else self.stop.wait)(UNANSWERED_INTERVAL_S)

    def _release_writers(self, state: SwitchState, error: StoreError) -> SwitchState:
        stopped = "it was stopped" if self.stop.is_set() else ""
        if why := stopped or explain_hold_overrun(state, self.now_ms()):
            state = begin_rollback(state, f"{why}: {error.message}", self.now_ms())
        if state.state is SwitchStatus.ROLLING_BACK and state.step is SwitchStep.HOLD:
            return apply_outcome(state, self._tried(state), self.now_ms())
        if stopped and not state.committed:
            raise RefusedError("switch.stopped-while-held", switch=state.id[:8], cause=error.message)
        return state

    def _tried(self, state: SwitchState) -> StepOutcome:
        try:
            if state.step is SwitchStep.ANNOUNCE and state.state is SwitchStatus.RUNNING and not self._announces:
                self.before_hold()
                self._announces = True
            return self.once(state)
        except KafkaError as error:
            return StepPending(error.message, unanswered=True) if error.retriable else StepFailed(error.message)
        except (StoreError, WireError) as error:
            return StepPending(error.message, unanswered=True)
        except TwinshoreError as error:
            return StepFailed(error.message)


def continue_switch(state: SwitchState, by: str, now_ms: int) -> SwitchState:
    return repeat_hold(state, now_ms).tell(now_ms, f"{by} goes on with the switch")


class StepExecutor:
    """Runs the method `do_<step>`, or `undo_<step>` during a rollback."""

    def once(self, state: SwitchState) -> StepOutcome:
        verb = "undo" if state.state is SwitchStatus.ROLLING_BACK else "do"
        outcome: StepOutcome = getattr(self, f"{verb}_{state.step.name.lower()}")(state)
        return outcome


@dataclass
class ClusterSteps(StepExecutor):
    """Steps on two clusters. `link` replicates from `old` to `new`, `back` in reverse. `now_ms`: the clock of
    `SwitchState.step_ms`, never set back. `guard`: of twins of `back`. Errors of a step may be temporary.
    """

    link: Link
    back: Link
    settings: Settings
    store: Store
    old: KafkaCluster
    new: KafkaCluster
    now_ms: Callable[[], int]
    guard: DeletionGuard

    def watch_mirror(self, link: Link) -> MirrorWatch:
        return MirrorWatch(self.store, link.name, self.settings.mirror.lease_s)

    def topic_changes(self, state: SwitchState) -> str:
        """Returns what differs from the plan on either cluster; empty if nothing."""
        return describe_topic_changes(self.old, state.topics, new=False) or describe_topic_changes(
            self.new, state.topics, new=True
        )


PREPARE_LAG_OFFSETS_MAX = 5_000  # what is replicated within the hold
START_REVERSE_MS_MAX = 60_000  # the topics have moved already, and no writer waits for this
OPEN_TRANSACTION_MS_MAX = 5_000  # writers wait; later offsets of an open transaction are read again
STOP_REPLICATION_MS_MAX = 4_000  # for a mirror that may be gone with the old home


@dataclass
class SwitchSteps(ClusterSteps):
    """The steps of a planned or forced switch."""

    def __post_init__(self) -> None:
        self.announcer = HomeAnnouncer(self.old, self.new)
        self.writers = WriterAccess(self.old, self.new, self.link, self.back, self.store)
        self.mirror = self.watch_mirror(self.link)
        self.held_again = False

    @cached_property
    def promises(self) -> GatePromises:
        return GatePromises(self.new)

    def once(self, state: SwitchState) -> StepOutcome:
        """Before a step that cannot be undone, checks that the logs still end at the topics' points."""
        undoes_not = state.step in (SwitchStep.FENCE, SwitchStep.PROMOTE)
        if undoes_not and state.kind in HOLDS and state.state is SwitchStatus.RUNNING:
            return self._not_held(state) or super().once(state)
        return super().once(state)

    # -- before the point of no return

    def do_claim(self, state: SwitchState) -> StepOutcome:
        if why := describe_other_claims(claim_topics(self.store, state)) or self.announcer.claim(state):
            return StepFailed(why)
        # Read only now: another switch may have ended before the claim.
        homes = read_homes(self.store, self.link, state.names())
        for move in state.topics:
            home = homes.get(move.topic)
            if home is None:
                continue
            stays = home.home == state.old or (state.kind is SwitchKind.FORCED and home.home != state.new)
            if not stays or home.term != max(move.term, FIRST_TERM):
                return StepFailed(f"topic {move.topic} is at home on {home.home} in term {home.term} by now")
        if state.kind is SwitchKind.FORCED and not state.kept:
            state = handover.record_last_known_settings(self.store, state)
        return StepDone(state)

    def do_prepare(self, state: SwitchState) -> StepOutcome:
        verify_cluster_ids(self.link, self.store, self.old, self.new)
        if why := self.topic_changes(state) or self._missing_right():
            return StepFailed(why)
        if stopped := describe_stopped_partitions(self.link, state.names(), self.store):
            return StepFailed(f"{join_names(stopped)} {has_or_have(stopped)} stopped: `twinshore status` says why")
        behind = drain.count_missing_offsets(self.old, self.new, state.topics)
        if behind > PREPARE_LAG_OFFSETS_MAX:
            return StepPending(f"the twins are {count_phrase(behind, 'offset')} behind")
        if waits := self.mirror.check_alive():
            return waits
        state = handover.record_home_settings(self.old, state)
        return handover.prove_twins(self.link, self.settings, self.store, state, whole=False)

    def do_announce(self, state: SwitchState) -> StepOutcome:
        if state.said != SwitchStep.ANNOUNCE:
            state = self.announcer.say(state, HomeState.ANNOUNCED)
        if waits := self.announcer.awaited(state, parked=False):
            return StepPending(f"{join_names(waits)} {has_or_have(waits)} not read the announcement yet", state)
        return StepDone(state)

    def do_hold(self, state: SwitchState) -> StepOutcome:
        if state.said != SwitchStep.HOLD or not self.announcer.holds():
            state = self.announcer.say(state, HomeState.HELD)
        # Subscribers finish their requests in flight first: an earlier rule would refuse these.
        if writing := self.announcer.awaited(state, parked=True):
            return StepPending(f"{join_names(writing)} still writes", state)
        self.announcer.require_claims(state)  # before each change of rights: the switch may have been ended
        denied = self.writers.deny(state)
        if isinstance(denied, StepDone) and (writing := self.announcer.awaited(state, parked=True)):
            return StepPending(f"{join_names(writing)} still writes", state)
        return denied

    def do_drain(self, state: SwitchState) -> StepOutcome:
        return drain.drain(self.old, state)

    def do_catch_up(self, state: SwitchState) -> StepOutcome:
        if state.kind is not SwitchKind.FORCED:
            return drain.check_twins_level(self.new, state)
        producer = self._fenced_producer(state)
        if isinstance(producer, StepPending):
            return producer
        settled = check_twins_settled(self.new, state, producer)
        if not isinstance(settled, StepDone):
            return settled
        return self.promises.waited(settled, self.store.links.identity(state.link))

    def do_prove(self, state: SwitchState) -> StepOutcome:
        proven = handover.prove_twins(self.link, self.settings, self.store, state, whole=True)
        if state.kind is not SwitchKind.DRILL or not isinstance(proven, StepDone):
            return proven
        return drain.finish_drill(self.old, self.announcer, proven, self.now_ms())

    def do_stop_replication(self, state: SwitchState) -> StepOutcome:
        if state.kept:
            return StepDone(state, f"no mirror of {state.link} can be asked; the fence shuts out its late requests")
        outcome = stop_replication(self.store, state)
        late = state.kind is SwitchKind.FORCED and state.tried_for(STOP_REPLICATION_MS_MAX, self.now_ms())
        if late and isinstance(outcome, StepPending):
            return StepDone(state, f"no mirror of {state.link} answers; the fence shuts out its late requests")
        return outcome

    def do_commit(self, state: SwitchState) -> StepOutcome:
        """Checks that the switch still has its claims, and that no client wrote: some writers cannot be held."""
        self.announcer.require_claims(state)
        if state.kind in HOLDS and not self.announcer.holds(HOLD_MARGIN_S):
            return StepFailed("the hold has nearly run out")
        if state.kind in HOLDS and (why := self.topic_changes(state) or self._writes_since(state)):
            return StepFailed(why)
        return StepDone(state, "from here on the switch goes on")

    def _writes_since(self, state: SwitchState) -> str:
        return drain.describe_writes_since(self.old, state) or drain.describe_writes_since(self.new, state)

    # -- past it

    def _not_held(self, state: SwitchState) -> StepOutcome | None:
        """Returns None while the hold lasts. A hold that has nearly expired, or was another process's, is renewed. If
        clients wrote on the old home in between, the switch rolls back: the new home was not announced yet.
        """
        if (self.announcer.holds(HOLD_MARGIN_S) and not self.held_again) or self.announcer.has_promoted(state):
            return None
        away = bool(drain.why_unreachable(self.old))
        self.announcer.left_out = self.old if away else None
        try:
            if not self.announcer.holds(HOLD_MARGIN_S):
                self.announcer.say(state, HomeState.HELD)
                self.held_again = True
            if writing := self.announcer.awaited(state, parked=True):
                return StepPending(f"writers are held again: {join_names(writing)} still writes")
        finally:
            self.announcer.left_out = None
        if not away and (why := drain.describe_writes_since(self.old, state)):
            remedy = f"if {state.new} has the fence already, `twinshore mirror rebuild` refills its twins"
            return MustRollBack(f"{why}, as the hold had run out; {remedy}")
        self.held_again = False
        return None

    def do_fence(self, state: SwitchState) -> StepOutcome:
        producer = self._fenced_producer(state)
        return producer if isinstance(producer, StepPending) else write_fence(self.new, state, producer)

    def _fenced_producer(self, state: SwitchState) -> FencedProducer | StepPending:
        identity = self.store.links.identity(state.link)
        if identity is None:
            return StepPending(f"the store does not know the producer of {state.link}")
        twins = self.store.twins.of(state.link)
        epochs = {row.topic: written_epoch(identity.producer_epoch, row.epoch) for row in twins}
        if lacking := [topic for topic in state.names() if topic not in epochs]:
            return StepPending(f"the store has no twin of {join_names(lacking)} any more")
        return FencedProducer(identity.producer_id, epochs)

    def do_apply_settings(self, state: SwitchState) -> StepOutcome:
        """Rights that Twinshore lacks on the new home are reported, for operators to grant: writers must not wait."""
        refused: list[str] = []
        for part in (
            self.writers.apply_rights,
            lambda state: handover.apply_topic_settings(self.new, self.link, state),
        ):
            try:
                part(state)
            except KafkaError as error:
                if error.retriable:
                    raise
                refused.append(str(error))
        if refused:
            return StepDone(state, f"set by hand what {state.new} refused: {'; '.join(refused)}")
        if state.kept:
            return StepDone(state, "the store alone knows which settings and rights were held back from the twins")
        return StepDone(state, f"the topics have their settings and rights on {state.new}")

    def do_copy_offsets(self, state: SwitchState) -> StepOutcome:
        if state.kind is SwitchKind.FORCED:
            return StepDone(state, "groups keep the committed offsets that the mirror last synced")
        if away := drain.why_unreachable(self.old):
            why = f"groups keep the committed offsets that the mirror last synced: {away}"
            return StepDone(replace(state, unfollowed=True), why)
        stable = not state.tried_for(OPEN_TRANSACTION_MS_MAX, self.now_ms())
        return handover.copy_group_offsets(self.link, self.settings, self.store, state, stable=stable)

    def do_promote(self, state: SwitchState) -> StepOutcome:
        now_ms, pair = wall_ms(), pair_name(self.link)
        changes = tuple(home_change_of(state, move, pair, now_ms) for move in state.topics)
        state = self.announcer.flip(state, changes)  # on the new home: from then on it is done
        links, how = [state.link, state.back], f"by {state.by}"
        if state.kind is SwitchKind.DATALESS:
            links, how = [self.link.name], f"{how}, without its data"
        rows = [
            AuditRow(now_ms, link, "home", topic, state.old, state.new, how, state.by, topic)
            for topic in state.names()
            for link in links
        ]
        done = {change.topic for change in self.store.topics_in_switch.change_homes(changes, rows)}
        if lacking := [topic for topic in state.names() if topic not in done]:
            return StepPending(f"the store has another home of {join_names(lacking)}", state)
        names = state.names()
        return StepDone(state, f"{join_names(names)} {is_or_are(names)} at home on {state.new}; writers continue there")

    def do_start_reverse(self, state: SwitchState) -> StepOutcome:
        self.announcer.announce_to_old_home(state)
        self.writers.guard(state)
        progress = {(row.topic, row.partition): row.to_offset for row in self.store.progress.positions(state.back)}
        waits = [
            f"{move.topic}-{number}"
            for move in state.topics
            for number, point in enumerate(move.points)
            if progress.get((move.topic, number), -1) <= point
        ]
        if waits and state.tried_for(START_REVERSE_MS_MAX, self.now_ms()):
            return StepDone(state, f"{state.back} does not replicate the topics yet: `twinshore status` says why")
        if waits:
            return StepPending(f"{state.back} does not replicate {join_names(waits)} yet")
        return StepDone(state, f"{state.back} replicates the topics to {state.old}")

    def do_release(self, state: SwitchState) -> StepOutcome:
        return release_claims(self.store, state, self.announcer.heard(state), self.now_ms())

    def _missing_right(self) -> str:
        """Returns the right that a later step would lack, if an authorizer runs."""
        for cluster in (self.old, self.new):
            if read_acls(cluster) is not None and not may_alter_acls(cluster):
                return f"the switch may not change rules of {cluster.name}: grant it Alter on the cluster"
        return ""

    # -- rollback

    undo_claim = do_release

    def undo_announce(self, state: SwitchState) -> StepOutcome:
        return StepDone(state, end_holds(state, self.announcer.heard(state), self.store, self.now_ms()))

    def undo_hold(self, state: SwitchState) -> StepOutcome:
        """Restores rights first, else the authorizer would refuse released writers. An unreachable new home delays no
        writer.
        """
        deferred = [self._restore_rights(state)]
        deferred.append(end_holds(state, self.announcer.heard(state), self.store, self.now_ms()))
        with suppress(StoreError):  # writers write again: what else is to be undone may take long, or never be done
            resume_replication(self.store, state)
        return StepDone(state, "; ".join(filter(None, deferred)) or f"writers continue on {state.old}")

    def _restore_rights(self, state: SwitchState) -> str:
        """Returns what is deferred for an old home that has not answered for some seconds."""
        try:
            self.writers.restore_rights(state)
        except KafkaError as error:
            if not error.retriable or not state.tried_for(UNREACHABLE_MS_MAX, self.now_ms()):
                raise
            later = "; the mirror does it when it answers" if defer_cleanup(self.store, state) else ""
            return f"writers may not write on {state.old} yet, as it does not answer{later}: {error.message}"
        return ""


def home_change_of(state: SwitchState, move: TopicMove, pair: str, now_ms: int) -> HomeChange:
    return HomeChange(
        pair=pair,
        topic=move.topic,
        home=state.new,
        term=next_term(move.term),
        link=state.link,
        back=state.back,
        source_topic_id=move.new_id,
        target_topic_id=move.old_id,
        points=move.points,
        since_ms=now_ms,
        set_by=state.by,
        torn=state.kind is SwitchKind.FORCED,
    )
