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
    record: SwitchState,
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
    return _Run(once, save, now_ms, tell, stop, behind_flip).to_its_end(record)


@dataclass(frozen=True, slots=True)
class _Run:
    once: Callable[[SwitchState], StepOutcome]
    save: SaveState
    now_ms: Callable[[], int]
    tell: Tell
    stop: threading.Event
    behind_flip: Callable[[], None]

    def to_its_end(self, record: SwitchState) -> SwitchState:
        record = self._written(record)
        while not record.ended:
            before, outcome = record, None
            if self.stop.is_set():
                record = begin_rollback(record, "it was stopped", self.now_ms())
            if not record.ended:
                outcome = _tried(self.once, record)
                record = apply_outcome(record, outcome, self.now_ms())
            self._say(before, record)
            if record != before:
                record = self._written(record)
            if before.deed is SwitchStep.PROMOTE is not record.deed and record.state is SwitchStatus.RUNNING:
                self.behind_flip()
            if not record.ended and (record.deed, record.state) == (before.deed, before.state):
                time.sleep(
                    UNANSWERED_INTERVAL_S
                    if isinstance(outcome, StepPending) and outcome.unanswered
                    else POLL_INTERVAL_S
                )
        return record

    def _say(self, before: SwitchState, now: SwitchState) -> None:
        told = len(before.told)
        for one in now.told[told:] if len(now.told) >= told and now.told[:1] == before.told[:1] else now.told[-1:]:
            self.tell(one.sentence)

    def _written(self, record: SwitchState) -> SwitchState:
        """Returns the state once it is saved.

        While the store is down, this waits as long as `save` permits: no step may run on an unsaved state. Writers wait
        no longer than for any other step, nor after a stop: they are released without the store. A process that resumes
        from the last saved state holds them again.
        """
        told = False
        while True:
            try:
                self.save(record)
                return record
            except StoreError as error:
                if not told:
                    self.tell(f"{record.deed}: away: {error.message}")
                told, before = True, record
                record = self._let_go(record, error)
                self._say(before, record)
                (time.sleep if self.stop.is_set() else self.stop.wait)(UNANSWERED_INTERVAL_S)

    def _let_go(self, record: SwitchState, error: StoreError) -> SwitchState:
        stopped = "it was stopped" if self.stop.is_set() else ""
        if why := stopped or explain_hold_overrun(record, self.now_ms()):
            record = begin_rollback(record, f"{why}: {error.message}", self.now_ms())
        if record.state is SwitchStatus.ROLLING_BACK and record.deed is SwitchStep.HOLD:
            return apply_outcome(record, _tried(self.once, record), self.now_ms())
        if stopped and not record.committed:
            raise RefusedError("switch.stopped-while-held", switch=record.id[:8], cause=error.message)
        return record


def call_before_announcing(
    call: Callable[[], None], once: Callable[[SwitchState], StepOutcome]
) -> Callable[[SwitchState], StepOutcome]:
    """Wraps `once`: runs `call` before the first announcement. If `call` raises, the switch rolls back."""
    called = False

    def do(record: SwitchState) -> StepOutcome:
        nonlocal called
        if record.deed is SwitchStep.ANNOUNCE and record.state is SwitchStatus.RUNNING and not called:
            call()
            called = True
        return once(record)

    return do


def _tried(once: Callable[[SwitchState], StepOutcome], record: SwitchState) -> StepOutcome:
    try:
        return once(record)
    except KafkaError as error:
        return StepPending(error.message, unanswered=True) if error.retriable else StepFailed(error.message)
    except (StoreError, WireError) as error:
        return StepPending(error.message, unanswered=True)
    except TwinshoreError as error:
        return StepFailed(error.message)


def continue_switch(record: SwitchState, by: str, now_ms: int) -> SwitchState:
    return repeat_hold(record, now_ms).tell(now_ms, f"{by} goes on with the switch")


class StepExecutor:
    _doing: Mapping[SwitchStep, Callable[[SwitchState], StepOutcome]]
    _undoing: Mapping[SwitchStep, Callable[[SwitchState], StepOutcome]]

    def once(self, record: SwitchState) -> StepOutcome:
        undo = record.state is SwitchStatus.ROLLING_BACK
        return (self._undoing if undo else self._doing)[record.deed](record)


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
        words: HomeAnnouncer,
        writers: WriterAccess,
        now_ms: Callable[[], int],
    ) -> None:
        self._link, self._back, self._settings, self._store = link, back, settings, store
        self._old, self._new, self._words, self._writers = old, new, words, writers
        self._now_ms = now_ms
        self._held_again = False
        self._mirror = MirrorWatch(store, link.name, settings.mirror.lease_s)
        self._doing = {
            SwitchStep.CLAIM: self._claim,
            SwitchStep.PREPARE: self._prepare,
            SwitchStep.ANNOUNCE: self._announce,
            SwitchStep.HOLD: self._hold,
            SwitchStep.DRAIN: lambda record: drain.drain(self._old, record),
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

    def once(self, record: SwitchState) -> StepOutcome:
        """Before a step that cannot be undone, checks that the logs still end at the topics' points."""
        if (
            record.kind in HOLDS
            and record.state is SwitchStatus.RUNNING
            and record.deed in (SwitchStep.FENCE, SwitchStep.PROMOTE)
        ):
            return self._not_held(record) or super().once(record)
        return super().once(record)

    # -- before the point of no return

    def _claim(self, record: SwitchState) -> StepOutcome:
        if why := describe_other_claims(claim_topics(self._store, record)):
            return StepFailed(why)
        if why := self._words.claim(record):
            return StepFailed(why)
        # Read only now: another switch may have ended before the claim.
        homes = read_homes(self._store, self._link, record.names())
        for one in record.topics:
            home = homes.get(one.topic)
            stays = (
                home is None
                or home.home == record.old
                or (record.kind is SwitchKind.FORCED and home.home != record.new)
            )
            if home is not None and not (stays and home.term == max(one.term, FIRST_TERM)):
                return StepFailed(f"topic {one.topic} is at home on {home.home} in term {home.term} by now")
        if record.kind is SwitchKind.FORCED and not record.kept:
            record = handover.record_last_known_settings(self._store, record)
        return StepDone(record)

    def _prepare(self, record: SwitchState) -> StepOutcome:
        verify_cluster_ids(self._link, self._store, self._old, self._new)
        if why := self._changed(record) or self._not_allowed():
            return StepFailed(why)
        if stopped := describe_stopped_partitions(self._link, record.names(), self._store):
            return StepFailed(
                f"{join_names(stopped, NAMED_MAX)} {has_or_have(stopped)} stopped: `twinshore status` says why"
            )
        behind = drain.count_missing_offsets(self._old, self._new, record.topics)
        if behind > PREPARE_LAG_OFFSETS_MAX:
            return StepPending(f"the twins are {count_phrase(behind, 'offset')} behind")
        if waits := self._mirror.check_alive():
            return waits
        known = handover.record_home_settings(self._old, record)
        return handover.prove_twins(self._link, self._settings, self._store, known, whole=False)

    def _announce(self, record: SwitchState) -> StepOutcome:
        said = record if _said(record, SwitchStep.ANNOUNCE) else self._words.say(record, HomeState.ANNOUNCED)
        if waits := self._words.awaited(said, parked=False):
            return StepPending(f"{join_names(waits, NAMED_MAX)} {has_or_have(waits)} not heard of the switch yet", said)
        return StepDone(said)

    def _hold(self, record: SwitchState) -> StepOutcome:
        said = (
            record
            if _said(record, SwitchStep.HOLD) and self._words.holds()
            else self._words.say(record, HomeState.HELD)
        )
        # Subscribers finish their requests in flight first: an earlier rule would refuse these.
        if writing := self._words.awaited(said, parked=True):
            return StepPending(f"{join_names(writing, NAMED_MAX)} still writes", said)
        self._words.require_claims(record)  # before each change of rights: the switch may have been ended
        denied = self._writers.deny(said)
        if not isinstance(denied, StepDone):
            return replace(denied, record=denied.record or said)
        if waits := self._words.awaited(denied.record, parked=True):
            return StepPending(f"{join_names(waits, NAMED_MAX)} still writes", denied.record)
        return StepDone(denied.record, denied.sentence)

    def _level(self, record: SwitchState) -> StepOutcome:
        if record.kind is not SwitchKind.FORCED:
            return drain.check_twins_level(self._new, record)
        shut = self._shut(record)
        return (
            fencing.check_twins_settled(self._new, record, shut) if isinstance(shut, fencing.FencedProducer) else shut
        )

    def _prove(self, record: SwitchState) -> StepOutcome:
        proven = handover.prove_twins(self._link, self._settings, self._store, record, whole=True)
        if record.kind is not SwitchKind.DRILL or not isinstance(proven, StepDone):
            return proven
        return drain.finish_drill(self._old, self._words, proven)

    def _let_go(self, record: SwitchState) -> StepOutcome:
        if record.kept:
            return StepDone(
                record, f"no mirror of {record.link} can be asked; what it may still send the fence shuts out"
            )
        outcome = stop_replication(self._store, record)
        if (
            isinstance(outcome, StepPending)
            and record.kind is SwitchKind.FORCED
            and record.tried_for(STOP_REPLICATION_MS_MAX, self._now_ms())
        ):
            return StepDone(
                record, f"no mirror of {record.link} answers; what it may still send is shut out by the fence"
            )
        return outcome

    def _commit(self, record: SwitchState) -> StepOutcome:
        """Checks that the switch still has its claims, and that no client wrote: some writers cannot be held."""
        self._words.require_claims(record)
        if record.kind in HOLDS and not self._words.holds(HOLD_MARGIN_S):
            return StepFailed("the hold has nearly run out")
        if record.kind in HOLDS and (why := self._changed(record) or self._written(record)):
            return StepFailed(why)
        return StepDone(record, "from here on the switch goes on")

    def _written(self, record: SwitchState) -> str:
        return drain.describe_writes_since(self._old, record) or drain.describe_writes_since(self._new, record)

    # -- past it

    def _not_held(self, record: SwitchState) -> StepOutcome | None:
        """Returns None while the hold lasts. A hold that has nearly expired, or was another process's, is renewed. If
        clients wrote on the old home in between, the switch rolls back: the new home was not announced yet.
        """
        if (self._words.holds(HOLD_MARGIN_S) and not self._held_again) or self._words.has_promoted(record):
            return None
        away = bool(drain.why_unreachable(self._old))
        self._words.left_out = self._old if away else None
        try:
            if not self._words.holds(HOLD_MARGIN_S):
                self._words.say(record, HomeState.HELD)
                self._held_again = True
            if writing := self._words.awaited(record, parked=True):
                return StepPending(f"writers are held again: {join_names(writing, NAMED_MAX)} still writes")
        finally:
            self._words.left_out = None
        if not away and (why := drain.describe_writes_since(self._old, record)):
            return MustRollBack(
                f"{why}, as the hold had run out; where {record.new} has the fence already, `twinshore mirror rebuild` "
                "fills its twins anew"
            )
        self._held_again = False
        return None

    def _fence(self, record: SwitchState) -> StepOutcome:
        shut = self._shut(record)
        return fencing.write_fence(self._new, record, shut) if isinstance(shut, fencing.FencedProducer) else shut

    def _shut(self, record: SwitchState) -> fencing.FencedProducer | StepPending:
        identity = self._store.links.identity(record.link)
        if identity is None:
            return StepPending(f"nobody knows as whom {record.link} writes")
        epochs = {
            row.topic: written_epoch(identity.producer_epoch, row.epoch) for row in self._store.twins.of(record.link)
        }
        if lacking := [topic for topic in record.names() if topic not in epochs]:
            return StepPending(f"the store has no twin of {join_names(lacking, NAMED_MAX)} any more")
        return fencing.FencedProducer(identity.producer_id, epochs)

    def _give(self, record: SwitchState) -> StepOutcome:
        """Rights that Twinshore lacks on the new home are reported, for operators to grant: writers must not wait."""
        refused: list[str] = []
        for part in (self._writers.given, lambda one: handover.apply_topic_settings(self._new, self._link, one)):
            try:
                outcome = part(record)
            except KafkaError as error:
                if error.retriable:
                    raise
                refused.append(str(error))
                continue
            if not isinstance(outcome, StepDone):
                return outcome
        if refused:
            return StepDone(record, f"give by hand what {record.new} refused: {'; '.join(refused)}")
        if record.kept:
            return StepDone(record, "the store alone knows which settings and rights were held back from the twins")
        return StepDone(record, f"the topics have their settings and rights on {record.new}")

    def _places(self, record: SwitchState) -> StepOutcome:
        if record.kind is SwitchKind.FORCED:
            return StepDone(record, "groups stand where the mirror last put them")
        if away := drain.why_unreachable(self._old):
            return StepDone(replace(record, unfollowed=True), f"groups stand where the mirror last put them: {away}")
        stable = not record.tried_for(OPEN_TRANSACTION_MS_MAX, self._now_ms())
        copied = handover.copy_group_offsets(
            self._link, self._settings, self._store, record.names(), record.by, stable=stable
        )
        if copied.unheard:
            return StepPending(f"where group {copied.unheard[0]} stands is not known: {copied.unheard[1]}")
        if copied.refused:
            return StepDone(record, f"set by hand what {record.new} refused: {'; '.join(copied.refused[:NAMED_MAX])}")
        left = f"; left alone, as they have members there: {join_names(copied.left, NAMED_MAX)}" if copied.left else ""
        return StepDone(record, f"{count_phrase(len(copied.groups), 'group')} copied{left}")

    def _flip(self, record: SwitchState) -> StepOutcome:
        now_ms, pair = wall_ms(), pair_name(self._link)
        flips = tuple(home_change_of(record, one, pair, now_ms) for one in record.topics)
        said = self._words.flip(record, flips)  # on the new home: from then on it is done
        told = [
            AuditRow(now_ms, link, "home", one.topic, record.old, record.new, f"by {record.by}", record.by, one.topic)
            for one in record.topics
            for link in (record.link, record.back)
        ]
        done = {one.topic for one in self._store.topics_in_switch.change_homes(flips, told)}
        lacking = [one.topic for one in record.topics if one.topic not in done]
        if lacking:
            return StepPending(f"the store has another home of {join_names(lacking, NAMED_MAX)}", said)
        names = record.names()
        return StepDone(
            said, f"{join_names(names, NAMED_MAX)} {is_or_are(names)} at home on {record.new}; writers go on there"
        )

    def _take_up(self, record: SwitchState) -> StepOutcome:
        self._words.announce_to_old_home(record)
        guarded = self._writers.guard(record)
        if not isinstance(guarded, StepDone):
            return guarded
        record = guarded.record
        placed = {(at.topic, at.partition): at.to_offset for at in self._store.progress.positions(record.back)}
        waits = [
            f"{one.topic}-{number}"
            for one in record.topics
            for number, point in enumerate(one.points)
            if placed.get((one.topic, number), -1) <= point
        ]
        if waits and record.tried_for(START_REVERSE_MS_MAX, self._now_ms()):
            return StepDone(record, f"{record.back} does not carry the topics yet: `twinshore status` says why")
        if waits:
            return StepPending(f"{record.back} does not carry {join_names(waits, NAMED_MAX)} yet")
        return StepDone(record, f"{record.back} carries the topics to {record.old}")

    def _release(self, record: SwitchState) -> StepOutcome:
        return release_claims(self._store, record, self._words.heard(record), self._now_ms())

    def _changed(self, record: SwitchState) -> str:
        return drain.describe_topic_changes(self._old, record.topics, new=False) or drain.describe_topic_changes(
            self._new, record.topics, new=True
        )

    def _not_allowed(self) -> str:
        """Returns the right that a later step would lack, if an authorizer runs."""
        for cluster in (self._old, self._new):
            if read_acls(cluster) is not None and not may_alter_acls(cluster):
                return f"the switch may not change rules of {cluster.name}: grant it Alter on the cluster"
        return ""

    # -- the way back

    def _settle(self, record: SwitchState) -> StepOutcome:
        return StepDone(record, end_holds(record, self._words.heard(record), self._store, self._now_ms()))

    def _unhold(self, record: SwitchState) -> StepOutcome:
        """Restores rights first, else the authorizer would refuse released writers. An unreachable new home delays no
        writer.
        """
        debts = [
            self._given_back(record),
            end_holds(record, self._words.heard(record), self._store, self._now_ms()),
        ]
        with suppress(StoreError):  # writers write again: what else is to be undone may take long, or never be done
            resume_replication(self._store, record)
        return StepDone(record, "; ".join(filter(None, debts)) or f"writers continue on {record.old}")

    def _given_back(self, record: SwitchState) -> str:
        """Returns what is deferred for an old home that has not answered for some seconds."""
        try:
            self._writers.restore_rights(record)
        except KafkaError as error:
            if not error.retriable or not record.tried_for(UNREACHABLE_MS_MAX, self._now_ms()):
                raise
            later = "; the mirror does it when it answers" if defer_cleanup(self._store, record) else ""
            return f"writers may not write on {record.old} yet, as it does not answer{later}: {error.message}"
        return ""


def _said(record: SwitchState, deed: SwitchStep) -> bool:
    """Returns whether this step has announced already; what it waits for now came later."""
    return record.said == deed


def home_change_of(record: SwitchState, one: TopicMove, pair: str, now_ms: int) -> HomeChange:
    return HomeChange(
        pair=pair,
        topic=one.topic,
        home=record.new,
        term=next_term(one.term),
        link=record.link,
        back=record.back,
        source_topic_id=one.new_id,
        target_topic_id=one.old_id,
        points=one.points,
        since_ms=now_ms,
        set_by=record.by,
        torn=record.kind is SwitchKind.FORCED,
    )
