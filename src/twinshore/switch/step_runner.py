"""Runs the steps of a planned or forced switch: execute a step, decide, save the state, repeat.

The state is saved before and after each step, so a process that resumes after a crash repeats the step that was under
way.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from twinshore.config.errors import KafkaError, RefusedError, StoreError, TwinshoreError, WireError
from twinshore.config.model import FIRST_TERM, Link, next_term, written_epoch
from twinshore.config.sentences import Tell, count_phrase, has_or_have, is_or_are, join_names
from twinshore.config.settings import Settings
from twinshore.kafka.admin import may_alter_acls, read_acls
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.replication.core.ownership import pair_name
from twinshore.routing.core.home_records import HomeState
from twinshore.runtime.endpoints import verify_cluster_ids
from twinshore.state.core.values import AuditRow, HomeChange
from twinshore.state.store import Store
from twinshore.switch import drain, fencing, handover
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
from twinshore.switch.drain import MirrorWatch, describe_stopped_partitions
from twinshore.switch.write_access import UNREACHABLE_MS_MAX, WriterAccess, defer_cleanup, end_holds

POLL_INTERVAL_S = 0.05
UNANSWERED_INTERVAL_S = 0.5

SaveState = Callable[[SwitchState], None]


def run_steps(
    state: SwitchState,
    once: Callable[[SwitchState], StepOutcome],
    save: SaveState,
    *,
    now_ms: Callable[[], int],
    tell: Tell,
    stop: threading.Event,
    behind_flip: Callable[[], None] = lambda: None,
) -> SwitchState:
    """Returns the state at the end. `save` raises if another process has resumed the switch. `stop`: roll back while
    that is possible; past the point of no return the switch goes on. `behind_flip` is called once the saved state has
    new homes.
    """
    return _Run(once, save, now_ms, tell, stop, behind_flip).to_its_end(state)


@dataclass(frozen=True, slots=True)
class _Run:
    once: Callable[[SwitchState], StepOutcome]
    save: SaveState
    now_ms: Callable[[], int]
    tell: Tell
    stop: threading.Event
    behind_flip: Callable[[], None]

    def to_its_end(self, state: SwitchState) -> SwitchState:
        state = self._written(state)
        while not state.ended:
            before, outcome = state, None
            if self.stop.is_set():
                state = begin_rollback(state, "it was stopped", self.now_ms())
            if not state.ended:
                outcome = _tried(self.once, state)
                state = apply_outcome(state, outcome, self.now_ms())
            self._say(before, state)
            if state != before:
                state = self._written(state)
            if before.step is SwitchStep.PROMOTE is not state.step and state.state is SwitchStatus.RUNNING:
                self.behind_flip()
            if not state.ended and (state.step, state.state) == (before.step, before.state):
                time.sleep(
                    UNANSWERED_INTERVAL_S
                    if isinstance(outcome, StepPending) and outcome.unanswered
                    else POLL_INTERVAL_S
                )
        return state

    def _say(self, before: SwitchState, now: SwitchState) -> None:
        told = len(before.history)
        for entry in (
            now.history[told:]
            if len(now.history) >= told and now.history[:1] == before.history[:1]
            else now.history[-1:]
        ):
            self.tell(entry.sentence)

    def _written(self, state: SwitchState) -> SwitchState:
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
                    self.tell(f"{state.step}: away: {error.message}")
                told, before = True, state
                state = self._let_go(state, error)
                self._say(before, state)
                (time.sleep if self.stop.is_set() else self.stop.wait)(UNANSWERED_INTERVAL_S)

    def _let_go(self, state: SwitchState, error: StoreError) -> SwitchState:
        stopped = "it was stopped" if self.stop.is_set() else ""
        if why := stopped or explain_hold_overrun(state, self.now_ms()):
            state = begin_rollback(state, f"{why}: {error.message}", self.now_ms())
        if state.state is SwitchStatus.ROLLING_BACK and state.step is SwitchStep.HOLD:
            return apply_outcome(state, _tried(self.once, state), self.now_ms())
        if stopped and not state.committed:
            raise RefusedError("switch.stopped-while-held", switch=state.id[:8], cause=error.message)
        return state


def call_before_announcing(
    call: Callable[[], None], once: Callable[[SwitchState], StepOutcome]
) -> Callable[[SwitchState], StepOutcome]:
    """Wraps `once`: runs `call` before the first announcement. If `call` raises, the switch rolls back."""
    called = False

    def do(state: SwitchState) -> StepOutcome:
        nonlocal called
        if state.step is SwitchStep.ANNOUNCE and state.state is SwitchStatus.RUNNING and not called:
            call()
            called = True
        return once(state)

    return do


def _tried(once: Callable[[SwitchState], StepOutcome], state: SwitchState) -> StepOutcome:
    try:
        return once(state)
    except KafkaError as error:
        return StepPending(error.message, unanswered=True) if error.retriable else StepFailed(error.message)
    except (StoreError, WireError) as error:
        return StepPending(error.message, unanswered=True)
    except TwinshoreError as error:
        return StepFailed(error.message)


def continue_switch(state: SwitchState, by: str, now_ms: int) -> SwitchState:
    return repeat_hold(state, now_ms).tell(now_ms, f"{by} goes on with the switch")


class StepExecutor:
    _doing: Mapping[SwitchStep, Callable[[SwitchState], StepOutcome]]
    _undoing: Mapping[SwitchStep, Callable[[SwitchState], StepOutcome]]

    def once(self, state: SwitchState) -> StepOutcome:
        undo = state.state is SwitchStatus.ROLLING_BACK
        return (self._undoing if undo else self._doing)[state.step](state)


NAMED_MAX = 5
PREPARE_LAG_OFFSETS_MAX = 5_000  # what is replicated within the hold
START_REVERSE_MS_MAX = 60_000  # the topics have moved already, and no writer waits for this
OPEN_TRANSACTION_MS_MAX = 5_000  # writers wait; later offsets of an open transaction are read again
STOP_REPLICATION_MS_MAX = 4_000  # for a mirror that may be gone with the old home


class SwitchSteps(StepExecutor):
    """The steps of a planned or forced switch. `link` replicates from `old` to `new`. `now_ms`: the clock of
    `SwitchState.deed_ms`, never set back. Errors of a step are raised, and may be temporary.
    """

    def __init__(
        self,
        link: Link,
        back: Link,
        settings: Settings,
        store: Store,
        old: KafkaCluster,
        new: KafkaCluster,
        announcer: HomeAnnouncer,
        writers: WriterAccess,
        now_ms: Callable[[], int],
    ) -> None:
        self._link, self._back, self._settings, self._store = link, back, settings, store
        self._old, self._new, self._announcer, self._writers = old, new, announcer, writers
        self._now_ms = now_ms
        self._held_again = False
        self._mirror = MirrorWatch(store, link.name, settings.mirror.lease_s)
        self._doing = {
            SwitchStep.CLAIM: self._claim,
            SwitchStep.PREPARE: self._prepare,
            SwitchStep.ANNOUNCE: self._announce,
            SwitchStep.HOLD: self._hold,
            SwitchStep.DRAIN: lambda state: drain.drain(self._old, state),
            SwitchStep.CATCH_UP: self._level,
            SwitchStep.PROVE: self._prove,
            SwitchStep.STOP_REPLICATION: self._let_go,
            SwitchStep.COMMIT: self._commit,
            SwitchStep.FENCE: self._fence,
            SwitchStep.APPLY_SETTINGS: self._give,
            SwitchStep.COPY_OFFSETS: self._places,
            SwitchStep.PROMOTE: self._flip,
            SwitchStep.START_REVERSE: self._take_up,
            SwitchStep.RELEASE: self._release,
        }
        self._undoing = {
            SwitchStep.CLAIM: self._release,
            SwitchStep.ANNOUNCE: self._settle,
            SwitchStep.HOLD: self._unhold,
        }

    def once(self, state: SwitchState) -> StepOutcome:
        """Before a step that cannot be undone, checks that the logs still end at the topics' points."""
        if (
            state.kind in HOLDS
            and state.state is SwitchStatus.RUNNING
            and state.step in (SwitchStep.FENCE, SwitchStep.PROMOTE)
        ):
            return self._not_held(state) or super().once(state)
        return super().once(state)

    # -- before the point of no return

    def _claim(self, state: SwitchState) -> StepOutcome:
        if why := describe_other_claims(claim_topics(self._store, state)):
            return StepFailed(why)
        if why := self._announcer.claim(state):
            return StepFailed(why)
        # Read only now: another switch may have ended before the claim.
        homes = read_homes(self._store, self._link, state.names())
        for move in state.topics:
            home = homes.get(move.topic)
            stays = (
                home is None or home.home == state.old or (state.kind is SwitchKind.FORCED and home.home != state.new)
            )
            if home is not None and not (stays and home.term == max(move.term, FIRST_TERM)):
                return StepFailed(f"topic {move.topic} is at home on {home.home} in term {home.term} by now")
        if state.kind is SwitchKind.FORCED and not state.kept:
            state = handover.record_last_known_settings(self._store, state)
        return StepDone(state)

    def _prepare(self, state: SwitchState) -> StepOutcome:
        verify_cluster_ids(self._link, self._store, self._old, self._new)
        if why := self._changed(state) or self._not_allowed():
            return StepFailed(why)
        if stopped := describe_stopped_partitions(self._link, state.names(), self._store):
            return StepFailed(
                f"{join_names(stopped, NAMED_MAX)} {has_or_have(stopped)} stopped: `twinshore status` says why"
            )
        behind = drain.count_missing_offsets(self._old, self._new, state.topics)
        if behind > PREPARE_LAG_OFFSETS_MAX:
            return StepPending(f"the twins are {count_phrase(behind, 'offset')} behind")
        if waits := self._mirror.check_alive():
            return waits
        switch_state = handover.record_home_settings(self._old, state)
        return handover.prove_twins(self._link, self._settings, self._store, switch_state, whole=False)

    def _announce(self, state: SwitchState) -> StepOutcome:
        switch_state = state if _said(state, SwitchStep.ANNOUNCE) else self._announcer.say(state, HomeState.ANNOUNCED)
        if waits := self._announcer.awaited(switch_state, parked=False):
            return StepPending(
                f"{join_names(waits, NAMED_MAX)} {has_or_have(waits)} not heard of the switch yet", switch_state
            )
        return StepDone(switch_state)

    def _hold(self, state: SwitchState) -> StepOutcome:
        switch_state = (
            state
            if _said(state, SwitchStep.HOLD) and self._announcer.holds()
            else self._announcer.say(state, HomeState.HELD)
        )
        # Subscribers finish their requests in flight first: an earlier rule would refuse these.
        if writing := self._announcer.awaited(switch_state, parked=True):
            return StepPending(f"{join_names(writing, NAMED_MAX)} still writes", switch_state)
        self._announcer.require_claims(state)  # before each change of rights: the switch may have been ended
        denied = self._writers.deny(switch_state)
        if not isinstance(denied, StepDone):
            return replace(denied, state=denied.state or switch_state)
        if waits := self._announcer.awaited(denied.state, parked=True):
            return StepPending(f"{join_names(waits, NAMED_MAX)} still writes", denied.state)
        return StepDone(denied.state, denied.sentence)

    def _level(self, state: SwitchState) -> StepOutcome:
        if state.kind is not SwitchKind.FORCED:
            return drain.check_twins_level(self._new, state)
        shut = self._shut(state)
        return fencing.check_twins_settled(self._new, state, shut) if isinstance(shut, fencing.FencedProducer) else shut

    def _prove(self, state: SwitchState) -> StepOutcome:
        proven = handover.prove_twins(self._link, self._settings, self._store, state, whole=True)
        if state.kind is not SwitchKind.DRILL or not isinstance(proven, StepDone):
            return proven
        return drain.finish_drill(self._old, self._announcer, proven)

    def _let_go(self, state: SwitchState) -> StepOutcome:
        if state.kept:
            return StepDone(
                state, f"no mirror of {state.link} can be asked; what it may still send the fence shuts out"
            )
        outcome = stop_replication(self._store, state)
        if (
            isinstance(outcome, StepPending)
            and state.kind is SwitchKind.FORCED
            and state.tried_for(STOP_REPLICATION_MS_MAX, self._now_ms())
        ):
            return StepDone(
                state, f"no mirror of {state.link} answers; what it may still send is shut out by the fence"
            )
        return outcome

    def _commit(self, state: SwitchState) -> StepOutcome:
        """Checks that the switch still has its claims, and that no client wrote: some writers cannot be held."""
        self._announcer.require_claims(state)
        if state.kind in HOLDS and not self._announcer.holds(HOLD_MARGIN_S):
            return StepFailed("the hold has nearly run out")
        if state.kind in HOLDS and (why := self._changed(state) or self._written(state)):
            return StepFailed(why)
        return StepDone(state, "from here on the switch goes on")

    def _written(self, state: SwitchState) -> str:
        return drain.describe_writes_since(self._old, state) or drain.describe_writes_since(self._new, state)

    # -- past it

    def _not_held(self, state: SwitchState) -> StepOutcome | None:
        """Returns None while the hold lasts. A hold that has nearly expired, or was another process's, is renewed. If
        clients wrote on the old home in between, the switch rolls back: the new home was not announced yet.
        """
        if (self._announcer.holds(HOLD_MARGIN_S) and not self._held_again) or self._announcer.has_promoted(state):
            return None
        away = bool(drain.why_unreachable(self._old))
        self._announcer.left_out = self._old if away else None
        try:
            if not self._announcer.holds(HOLD_MARGIN_S):
                self._announcer.say(state, HomeState.HELD)
                self._held_again = True
            if writing := self._announcer.awaited(state, parked=True):
                return StepPending(f"writers are held again: {join_names(writing, NAMED_MAX)} still writes")
        finally:
            self._announcer.left_out = None
        if not away and (why := drain.describe_writes_since(self._old, state)):
            return MustRollBack(
                f"{why}, as the hold had run out; where {state.new} has the fence already, `twinshore mirror rebuild` "
                "fills its twins anew"
            )
        self._held_again = False
        return None

    def _fence(self, state: SwitchState) -> StepOutcome:
        shut = self._shut(state)
        return fencing.write_fence(self._new, state, shut) if isinstance(shut, fencing.FencedProducer) else shut

    def _shut(self, state: SwitchState) -> fencing.FencedProducer | StepPending:
        identity = self._store.links.identity(state.link)
        if identity is None:
            return StepPending(f"nobody knows as whom {state.link} writes")
        epochs = {
            row.topic: written_epoch(identity.producer_epoch, row.epoch) for row in self._store.twins.of(state.link)
        }
        if lacking := [topic for topic in state.names() if topic not in epochs]:
            return StepPending(f"the store has no twin of {join_names(lacking, NAMED_MAX)} any more")
        return fencing.FencedProducer(identity.producer_id, epochs)

    def _give(self, state: SwitchState) -> StepOutcome:
        """Rights that Twinshore lacks on the new home are reported, for operators to grant: writers must not wait."""
        refused: list[str] = []
        for part in (self._writers.given, lambda one: handover.apply_topic_settings(self._new, self._link, one)):
            try:
                outcome = part(state)
            except KafkaError as error:
                if error.retriable:
                    raise
                refused.append(str(error))
                continue
            if not isinstance(outcome, StepDone):
                return outcome
        if refused:
            return StepDone(state, f"give by hand what {state.new} refused: {'; '.join(refused)}")
        if state.kept:
            return StepDone(state, "the store alone knows which settings and rights were held back from the twins")
        return StepDone(state, f"the topics have their settings and rights on {state.new}")

    def _places(self, state: SwitchState) -> StepOutcome:
        if state.kind is SwitchKind.FORCED:
            return StepDone(state, "groups stand where the mirror last put them")
        if away := drain.why_unreachable(self._old):
            return StepDone(replace(state, unfollowed=True), f"groups stand where the mirror last put them: {away}")
        stable = not state.tried_for(OPEN_TRANSACTION_MS_MAX, self._now_ms())
        copied = handover.copy_group_offsets(
            self._link, self._settings, self._store, state.names(), state.by, stable=stable
        )
        if copied.unheard:
            return StepPending(f"where group {copied.unheard[0]} stands is not known: {copied.unheard[1]}")
        if copied.refused:
            return StepDone(state, f"set by hand what {state.new} refused: {'; '.join(copied.refused[:NAMED_MAX])}")
        left = f"; left alone, as they have members there: {join_names(copied.left, NAMED_MAX)}" if copied.left else ""
        return StepDone(state, f"{count_phrase(len(copied.groups), 'group')} copied{left}")

    def _flip(self, state: SwitchState) -> StepOutcome:
        now_ms, pair = wall_ms(), pair_name(self._link)
        flips = tuple(home_change_of(state, move, pair, now_ms) for move in state.topics)
        switch_state = self._announcer.flip(state, flips)  # on the new home: from then on it is done
        rows = [
            AuditRow(now_ms, link, "home", move.topic, state.old, state.new, f"by {state.by}", state.by, move.topic)
            for move in state.topics
            for link in (state.link, state.back)
        ]
        done = {change.topic for change in self._store.topics_in_switch.change_homes(flips, rows)}
        lacking = [move.topic for move in state.topics if move.topic not in done]
        if lacking:
            return StepPending(f"the store has another home of {join_names(lacking, NAMED_MAX)}", switch_state)
        names = state.names()
        return StepDone(
            switch_state,
            f"{join_names(names, NAMED_MAX)} {is_or_are(names)} at home on {state.new}; writers go on there",
        )

    def _take_up(self, state: SwitchState) -> StepOutcome:
        self._announcer.announce_to_old_home(state)
        guarded = self._writers.guard(state)
        if not isinstance(guarded, StepDone):
            return guarded
        state = guarded.state
        placed = {
            (position.topic, position.partition): position.to_offset
            for position in self._store.progress.positions(state.back)
        }
        waits = [
            f"{move.topic}-{number}"
            for move in state.topics
            for number, point in enumerate(move.points)
            if placed.get((move.topic, number), -1) <= point
        ]
        if waits and state.tried_for(START_REVERSE_MS_MAX, self._now_ms()):
            return StepDone(state, f"{state.back} does not carry the topics yet: `twinshore status` says why")
        if waits:
            return StepPending(f"{state.back} does not carry {join_names(waits, NAMED_MAX)} yet")
        return StepDone(state, f"{state.back} carries the topics to {state.old}")

    def _release(self, state: SwitchState) -> StepOutcome:
        return release_claims(self._store, state, self._announcer.heard(state), self._now_ms())

    def _changed(self, state: SwitchState) -> str:
        return drain.describe_topic_changes(self._old, state.topics, new=False) or drain.describe_topic_changes(
            self._new, state.topics, new=True
        )

    def _not_allowed(self) -> str:
        """Returns the right that a later step would lack, if an authorizer runs."""
        for cluster in (self._old, self._new):
            if read_acls(cluster) is not None and not may_alter_acls(cluster):
                return f"the switch may not change rules of {cluster.name}: grant it Alter on the cluster"
        return ""

    # -- the way back

    def _settle(self, state: SwitchState) -> StepOutcome:
        return StepDone(state, end_holds(state, self._announcer.heard(state), self._store, self._now_ms()))

    def _unhold(self, state: SwitchState) -> StepOutcome:
        """Restores rights first, else the authorizer would refuse released writers. An unreachable new home delays no
        writer.
        """
        debts = [
            self._given_back(state),
            end_holds(state, self._announcer.heard(state), self._store, self._now_ms()),
        ]
        with suppress(StoreError):  # writers write again: what else is to be undone may take long, or never be done
            resume_replication(self._store, state)
        return StepDone(state, "; ".join(filter(None, debts)) or f"writers continue on {state.old}")

    def _given_back(self, state: SwitchState) -> str:
        """Returns what is deferred for an old home that has not answered for some seconds."""
        try:
            self._writers.restore_rights(state)
        except KafkaError as error:
            if not error.retriable or not state.tried_for(UNREACHABLE_MS_MAX, self._now_ms()):
                raise
            later = "; the mirror does it when it answers" if defer_cleanup(self._store, state) else ""
            return f"writers may not write on {state.old} yet, as it does not answer{later}: {error.message}"
        return ""


def _said(state: SwitchState, step: SwitchStep) -> bool:
    """Returns whether this step has announced already; what it waits for now came later."""
    return state.said == step


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
