"""Runs a switch to its end: does a deed, decides, writes the record down, and again.

The record is written before each deed and after it. Whoever is killed in between is followed by somebody who does the
same deed once more.

What all have in common that do each deed of a switch, and undo it, by a separate hand.

A switch at work: which hand does which deed, on both clusters and in the store.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from twinshore.config.errors import KafkaError, RefusedError, StoreError, TwinshoreError, WireError
from twinshore.config.model import FIRST_TERM, Link, next_term, written_epoch
from twinshore.config.sentences import are, counted, have, listed
from twinshore.config.settings import Settings
from twinshore.kafka.admin import may_alter, read_acls
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.replication.core.ownership import pair_of
from twinshore.routing.core.records import HomeState
from twinshore.runtime.endpoints import recognise
from twinshore.state.core.values import AuditRow, Flip
from twinshore.state.store import Store
from twinshore.switch import drain, fencing, handover
from twinshore.switch.announce import MARGIN_S, ClusterWords, busy, carry_again, claim, give_back, homes_of, let_go
from twinshore.switch.core.steps import (
    HOLDS,
    Back,
    Cannot,
    Deed,
    Done,
    Kind,
    Moved,
    Outcome,
    State,
    SwitchState,
    Wait,
    after,
    held_anew,
    too_long_held,
    turn_back,
)
from twinshore.switch.drain import MirrorWatch, stopped_of
from twinshore.switch.write_access import SILENT_MS_MAX, Writers, debts_settled, remember

PAUSE_S = 0.05
AWAY_S = 0.5

Save = Callable[[SwitchState], None]


def run(
    record: SwitchState,
    once: Callable[[SwitchState], Outcome],
    save: Save,
    *,
    now_ms: Callable[[], int],
    tell: Callable[[str], None],
    stop: threading.Event,
    behind_flip: Callable[[], None] = lambda: None,
) -> SwitchState:
    """The record as it ended. `save` raises where somebody else goes on with the switch. `stop`: turn back, as far as
    that is still possible; past the point of no return it goes on. `behind_flip` is called once the record says that
    the topics are at home elsewhere."""
    return _Run(once, save, now_ms, tell, stop, behind_flip).to_its_end(record)


@dataclass(frozen=True, slots=True)
class _Run:
    once: Callable[[SwitchState], Outcome]
    save: Save
    now_ms: Callable[[], int]
    tell: Callable[[str], None]
    stop: threading.Event
    behind_flip: Callable[[], None]

    def to_its_end(self, record: SwitchState) -> SwitchState:
        record = self._written(record)
        while not record.ended:
            before, outcome = record, None
            if self.stop.is_set():
                record = turn_back(record, "it was stopped", self.now_ms())
            if not record.ended:
                outcome = _tried(self.once, record)
                record = after(record, outcome, self.now_ms())
            self._say(before, record)
            if record != before:
                record = self._written(record)
            if before.deed is Deed.FLIP is not record.deed and record.state is State.GOING:
                self.behind_flip()
            if not record.ended and (record.deed, record.state) == (before.deed, before.state):
                time.sleep(AWAY_S if isinstance(outcome, Wait) and outcome.unanswered else PAUSE_S)
        return record

    def _say(self, before: SwitchState, now: SwitchState) -> None:
        """What is new in its history, which keeps no more than so much."""
        told = len(before.told)
        for one in now.told[told:] if len(now.told) >= told and now.told[:1] == before.told[:1] else now.told[-1:]:
            self.tell(one.sentence)

    def _written(self, record: SwitchState) -> SwitchState:
        """The record once it is written down. A store that does not answer is waited for as long as `save` lets us,
        since nothing is done on a record that nobody could go on with. Writers wait no longer for it than for anything
        else, nor after a stop: they are let go without it. Whoever goes on from the last record holds them again."""
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
                (time.sleep if self.stop.is_set() else self.stop.wait)(AWAY_S)

    def _let_go(self, record: SwitchState, error: StoreError) -> SwitchState:
        stopped = "it was stopped" if self.stop.is_set() else ""
        if why := stopped or too_long_held(record, self.now_ms()):
            record = turn_back(record, f"{why}: {error.message}", self.now_ms())
        if record.state is State.TURNING_BACK and record.deed is Deed.HOLD:
            return after(record, _tried(self.once, record), self.now_ms())
        if stopped and not record.committed:
            raise RefusedError(
                f"stopped, and nobody is held; what is left of switch {record.id[:8]} is in the store: {error.message}",
                hint="once the store answers, the mirror turns it back, or `twinshore switch rollback` does",
            )
        return record


def announced_behind(
    call: Callable[[], None], once: Callable[[SwitchState], Outcome]
) -> Callable[[SwitchState], Outcome]:
    """Does deeds by `once`, and before the first announcement the call. The switch turns back where it is refused."""
    called = False

    def do(record: SwitchState) -> Outcome:
        nonlocal called
        if record.deed is Deed.ANNOUNCE and record.state is State.GOING and not called:
            call()
            called = True
        return once(record)

    return do


def _tried(once: Callable[[SwitchState], Outcome], record: SwitchState) -> Outcome:
    """What came of the deed; a failure that may pass is waited for."""
    try:
        return once(record)
    except KafkaError as error:
        return Wait(error.message, unanswered=True) if error.retriable else Cannot(error.message)
    except (StoreError, WireError) as error:
        return Wait(error.message, unanswered=True)
    except TwinshoreError as error:
        return Cannot(error.message)


def anew(record: SwitchState, by: str, now_ms: int) -> SwitchState:
    """The record for whoever goes on with a switch that somebody else began."""
    return held_anew(record, now_ms).tell(now_ms, f"{by} goes on with the switch")


class ByDeed:
    """Each has two tables of its own: by whom a deed is done, and by whom it is undone."""

    _doing: Mapping[Deed, Callable[[SwitchState], Outcome]]
    _undoing: Mapping[Deed, Callable[[SwitchState], Outcome]]

    def once(self, record: SwitchState) -> Outcome:
        """The deed that is due, or its undoing, as far as it goes now."""
        undo = record.state is State.TURNING_BACK
        return (self._undoing if undo else self._doing)[record.deed](record)


NAMED_MAX = 5
BEHIND_MAX = 5_000  # what crosses within the hold
TAKE_UP_MS_MAX = 60_000  # the topics are at home elsewhere already, and nobody waits for it
PENDING_MS_MAX = 5_000  # writers wait, and what an open transaction then does is read again
LET_GO_MS_MAX = 4_000  # of a mirror that may be gone with the old home


class Work(ByDeed):
    """`old` and `new` are the clusters; `link` carried the topics. `now_ms` is the clock by which the record says since
    when a deed is tried: nobody sets it meanwhile. Whatever fails in a deed is raised, and may pass."""

    def __init__(
        self,
        link: Link,
        back: Link,
        settings: Settings,
        store: Store,
        old: KafkaCluster,
        new: KafkaCluster,
        words: ClusterWords,
        writers: Writers,
        log: Callable[[str], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._link, self._back, self._settings, self._store = link, back, settings, store
        self._old, self._new, self._words, self._writers, self._log = old, new, words, writers, log
        self._now_ms = now_ms
        self._held_again = False
        self._mirror = MirrorWatch(store, link.name, settings.mirror.lease_s)
        self._doing = {
            Deed.CLAIM: self._claim,
            Deed.PREPARE: self._prepare,
            Deed.ANNOUNCE: self._announce,
            Deed.HOLD: self._hold,
            Deed.DRAIN: lambda record: drain.drain(self._old, record),
            Deed.LEVEL: self._level,
            Deed.PROVE: self._prove,
            Deed.LET_GO: self._let_go,
            Deed.COMMIT: self._commit,
            Deed.FENCE: self._fence,
            Deed.GIVE: self._give,
            Deed.PLACES: self._places,
            Deed.FLIP: self._flip,
            Deed.TAKE_UP: self._take_up,
            Deed.RELEASE: self._release,
        }
        self._undoing = {
            Deed.CLAIM: self._release,
            Deed.ANNOUNCE: self._settle,
            Deed.HOLD: self._unhold,
        }

    def once(self, record: SwitchState) -> Outcome:
        """As `ByDeed`. Before what nobody can undo it is sure that nobody has written since the topics' points."""
        if record.kind in HOLDS and record.state is State.GOING and record.deed in (Deed.FENCE, Deed.FLIP):
            return self._not_held(record) or super().once(record)
        return super().once(record)

    # -- before the point of no return

    def _claim(self, record: SwitchState) -> Outcome:
        if why := busy(claim(self._store, record)):
            return Cannot(why)
        if why := self._words.claim(record):
            return Cannot(why)
        # Asked only now: until it was ours, another switch may have ended.
        homes = homes_of(self._store, self._link, record.names())
        for one in record.topics:
            home = homes.get(one.topic)
            stays = home is None or home.home == record.old or (record.kind is Kind.FORCED and home.home != record.new)
            if home is not None and not (stays and home.term == max(one.term, FIRST_TERM)):
                return Cannot(f"topic {one.topic} is at home on {home.home} in term {home.term} by now")
        if record.kind is Kind.FORCED and not record.kept:
            record = handover.last_known(self._store, record)
        return Done(record)

    def _prepare(self, record: SwitchState) -> Outcome:
        recognise(self._link, self._store, self._old, self._new)
        if why := self._changed(record) or self._not_allowed():
            return Cannot(why)
        if stopped := stopped_of(self._link, record.names(), self._store):
            return Cannot(f"{listed(stopped, NAMED_MAX)} {have(stopped)} stopped: `twinshore status` says why")
        behind = drain.behind(self._old, self._new, record.topics)
        if behind > BEHIND_MAX:
            return Wait(f"the twins are {counted(behind, 'offset')} behind")
        if waits := self._mirror.why_not():
            return waits
        known = handover.look_up(self._old, record)
        return handover.prove(self._link, self._settings, self._store, known, log=self._log, whole=False)

    def _announce(self, record: SwitchState) -> Outcome:
        said = record if _said(record, Deed.ANNOUNCE) else self._words.say(record, HomeState.ANNOUNCED)
        if waits := self._words.awaited(said, parked=False):
            return Wait(f"{listed(waits, NAMED_MAX)} {have(waits)} not heard of the switch yet", said)
        return Done(said)

    def _hold(self, record: SwitchState) -> Outcome:
        said = record if _said(record, Deed.HOLD) and self._words.holds() else self._words.say(record, HomeState.HELD)
        # Whoever follows ends by itself what is on its way: a rule that came first would have it refused.
        if writing := self._words.awaited(said, parked=True):
            return Wait(f"{listed(writing, NAMED_MAX)} still writes", said)
        self._words.must_be_ours(record)  # before each change of rights: somebody may have ended the switch meanwhile
        denied = self._writers.deny(said)
        if not isinstance(denied, Done):
            return replace(denied, record=denied.record or said)
        if waits := self._words.awaited(denied.record, parked=True):
            return Wait(f"{listed(waits, NAMED_MAX)} still writes", denied.record)
        return Done(denied.record, denied.sentence)

    def _level(self, record: SwitchState) -> Outcome:
        if record.kind is not Kind.FORCED:
            return drain.level(self._new, record)
        shut = self._shut(record)
        return fencing.level_as_it_is(self._new, record, shut) if isinstance(shut, fencing.Shut) else shut

    def _prove(self, record: SwitchState) -> Outcome:
        proven = handover.prove(self._link, self._settings, self._store, record, log=self._log, whole=True)
        if record.kind is not Kind.DRILL or not isinstance(proven, Done):
            return proven
        return drain.looked_back(self._old, self._words, proven)

    def _let_go(self, record: SwitchState) -> Outcome:
        if record.kept:
            return Done(record, f"no mirror of {record.link} can be asked; what it may still send the fence shuts out")
        outcome = let_go(self._store, record)
        if isinstance(outcome, Wait) and record.kind is Kind.FORCED and record.tried_for(LET_GO_MS_MAX, self._now_ms()):
            return Done(record, f"no mirror of {record.link} answers; what it may still send is shut out by the fence")
        return outcome

    def _commit(self, record: SwitchState) -> Outcome:
        """The topics are this switch's still, and nobody wrote meanwhile: whoever cannot be held may have."""
        self._words.must_be_ours(record)
        if record.kind in HOLDS and not self._words.holds(MARGIN_S):
            return Cannot("the hold has nearly run out")
        if record.kind in HOLDS and (why := self._changed(record) or self._written(record)):
            return Cannot(why)
        return Done(record, "from here on the switch goes on")

    def _written(self, record: SwitchState) -> str:
        return drain.written_since(self._old, record) or drain.written_since(self._new, record)

    # -- past it

    def _not_held(self, record: SwitchState) -> Outcome | None:
        """None while the hold lasts. One that has nearly run out, or was another process's, is said again; where
        somebody has written on the old home meanwhile, the switch turns back: nobody was told of the new home yet."""
        if (self._words.holds(MARGIN_S) and not self._held_again) or self._words.has_flipped(record):
            return None
        away = bool(drain.answers(self._old))
        self._words.left_out = self._old if away else None
        try:
            if not self._words.holds(MARGIN_S):
                self._words.say(record, HomeState.HELD)
                self._held_again = True
            if writing := self._words.awaited(record, parked=True):
                return Wait(f"writers are held again: {listed(writing, NAMED_MAX)} still writes")
        finally:
            self._words.left_out = None
        if not away and (why := drain.written_since(self._old, record)):
            return Back(
                f"{why}, as the hold had run out; where {record.new} has the fence already, `twinshore mirror rebuild` "
                "fills its twins anew"
            )
        self._held_again = False
        return None

    def _fence(self, record: SwitchState) -> Outcome:
        shut = self._shut(record)
        return fencing.put_up(self._new, record, shut) if isinstance(shut, fencing.Shut) else shut

    def _shut(self, record: SwitchState) -> fencing.Shut | Wait:
        identity = self._store.links.identity(record.link)
        if identity is None:
            return Wait(f"nobody knows as whom {record.link} writes")
        epochs = {
            row.topic: written_epoch(identity.producer_epoch, row.epoch) for row in self._store.twins.of(record.link)
        }
        if lacking := [topic for topic in record.names() if topic not in epochs]:
            return Wait(f"the store has no twin of {listed(lacking, NAMED_MAX)} any more")
        return fencing.Shut(identity.producer_id, epochs)

    def _give(self, record: SwitchState) -> Outcome:
        """What the new home lacks a right for is told, and given by hand: writers must not wait for it."""
        refused: list[str] = []
        for part in (self._writers.given, lambda one: handover.give(self._new, self._link, one)):
            try:
                outcome = part(record)
            except KafkaError as error:
                if error.retriable:
                    raise
                refused.append(str(error))
                continue
            if not isinstance(outcome, Done):
                return outcome
        if refused:
            return Done(record, f"give by hand what {record.new} refused: {'; '.join(refused)}")
        if record.kept:
            return Done(record, "the store alone knows which settings and rights were held back from the twins")
        return Done(record, f"the topics have their settings and rights on {record.new}")

    def _places(self, record: SwitchState) -> Outcome:
        if record.kind is Kind.FORCED:
            return Done(record, "groups stand where the mirror last put them")
        if away := drain.answers(self._old):
            return Done(replace(record, unfollowed=True), f"groups stand where the mirror last put them: {away}")
        stable = not record.tried_for(PENDING_MS_MAX, self._now_ms())
        copied = handover.copy_places(self._link, self._settings, self._store, record.names(), record.by, stable=stable)
        if copied.unheard:
            return Wait(f"where group {copied.unheard[0]} stands is not known: {copied.unheard[1]}")
        if copied.refused:
            return Done(record, f"set by hand what {record.new} refused: {'; '.join(copied.refused[:NAMED_MAX])}")
        left = f"; left alone, as they have members there: {listed(copied.left, NAMED_MAX)}" if copied.left else ""
        return Done(record, f"{counted(len(copied.groups), 'group')} copied{left}")

    def _flip(self, record: SwitchState) -> Outcome:
        now_ms, pair = wall_ms(), pair_of(self._link)
        flips = tuple(flip_of(record, one, pair, now_ms) for one in record.topics)
        said = self._words.flip(record, flips)  # on the new home: from then on it is done
        told = [
            AuditRow(now_ms, link, "home", one.topic, record.old, record.new, f"by {record.by}", record.by, one.topic)
            for one in record.topics
            for link in (record.link, record.back)
        ]
        done = {one.topic for one in self._store.switching.flip(flips, told)}
        lacking = [one.topic for one in record.topics if one.topic not in done]
        if lacking:
            return Wait(f"the store has another home of {listed(lacking, NAMED_MAX)}", said)
        names = record.names()
        return Done(said, f"{listed(names, NAMED_MAX)} {are(names)} at home on {record.new}; writers go on there")

    def _take_up(self, record: SwitchState) -> Outcome:
        self._words.tell_old(record)
        guarded = self._writers.guard(record)
        if not isinstance(guarded, Done):
            return guarded
        record = guarded.record
        placed = {(at.topic, at.partition): at.to_offset for at in self._store.receipts.positions(record.back)}
        waits = [
            f"{one.topic}-{number}"
            for one in record.topics
            for number, point in enumerate(one.points)
            if placed.get((one.topic, number), -1) <= point
        ]
        if waits and record.tried_for(TAKE_UP_MS_MAX, self._now_ms()):
            return Done(record, f"{record.back} does not carry the topics yet: `twinshore status` says why")
        if waits:
            return Wait(f"{record.back} does not carry {listed(waits, NAMED_MAX)} yet")
        return Done(record, f"{record.back} carries the topics to {record.old}")

    def _release(self, record: SwitchState) -> Outcome:
        return give_back(self._store, record, self._words.heard(record), self._now_ms())

    def _changed(self, record: SwitchState) -> str:
        return drain.changed(self._old, record.topics, new=False) or drain.changed(self._new, record.topics, new=True)

    def _not_allowed(self) -> str:
        """Which right a later deed would lack, where an authorizer runs."""
        for cluster in (self._old, self._new):
            if read_acls(cluster) is not None and not may_alter(cluster):
                return f"the switch may not change rules of {cluster.name}: grant it Alter on the cluster"
        return ""

    # -- the way back

    def _settle(self, record: SwitchState) -> Outcome:
        return Done(record, debts_settled(record, self._words.heard(record), self._store, self._now_ms()))

    def _unhold(self, record: SwitchState) -> Outcome:
        """Rights first: whoever is told to go on must be let in. A new home that is gone keeps no writer waiting."""
        debts = [
            self._given_back(record),
            debts_settled(record, self._words.heard(record), self._store, self._now_ms()),
        ]
        with suppress(StoreError):  # writers write again: what else is to be undone may take long, or never be done
            carry_again(self._store, record)
        return Done(record, "; ".join(filter(None, debts)) or f"writers continue on {record.old}")

    def _given_back(self, record: SwitchState) -> str:
        """What is owed to an old home that does not answer, after it was asked for some seconds."""
        try:
            self._writers.give_back_rights(record)
        except KafkaError as error:
            if not error.retriable or not record.tried_for(SILENT_MS_MAX, self._now_ms()):
                raise
            later = "; the mirror does it when it answers" if remember(self._store, record) else ""
            return f"writers may not write on {record.old} yet, as it does not answer{later}: {error.message}"
        return ""


def _said(record: SwitchState, deed: Deed) -> bool:
    """Whether the word of this deed was said already: what waits now was found after it."""
    return record.said == deed


def flip_of(record: SwitchState, one: Moved, pair: str, now_ms: int) -> Flip:
    """What the store is told of one topic."""
    return Flip(
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
        torn=record.kind is Kind.FORCED,
    )
