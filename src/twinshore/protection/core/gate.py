"""Decides when the answer to a write may be passed on: one gate for each protected partition and process.

A high watermark above an offset proves that some record is there, not which. So the gate ties each write to a history:
the home's topic id and leader epoch as known when the write was sent. It confirms the write once, in this order,

1. the home has answered it with its offset;
2. the twin has a watermark above that offset;
3. the home, asked after the twin answered, still has that topic id and epoch: the record at the offset was not replaced
   before the twin copied it. After an election the home's leader is asked where that epoch ends in its log: above the
   offset, the record is still there;
4. the mirror has said that the twin is a copy of that topic and has reached that epoch or the home's present one, and
   this was read less than `REACHED_TTL_S` ago: a forced switch takes it back, and waits that long before anybody else
   writes to the twin.

What is not confirmed is refused with an error that makes clients try again. Nothing here reads a clock or a socket.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from twinshore.kafka.protocol.error_codes import Code
from twinshore.protection.core.model import (
    AskEpochEnd,
    ClearAlone,
    Confirm,
    GateCommand,
    GateState,
    ProtectionIncidentKind,
    ProtectionLevel,
    ProtectionSettings,
    ReachedEpoch,
    ReadEnd,
    RefuseWrite,
    ReportProtection,
    SideView,
    WaitCause,
    WriteAlone,
)

# Views of both sides are compared only if both are younger.
VIEW_AGE_S_MAX = 2.0
REACHED_TTL_S = 3.0
ALONE_RETRY_S = 1.0
EPOCH_RETRY_S = 1.0
GOAL_INTERVAL_S = 0.5


@dataclass(slots=True)
class PendingWrite:
    """A write that is not answered to its client. `topic_id`, `epoch`: the home's when it was sent, empty and -1 if
    unknown. `twin_had`: the twin's watermark known then. `last`: its last offset, -1 until it is known. `is_committed`:
    a transaction's end, whose offset is below the home's next watermark. `is_tied`: whether `epoch` is of the write's
    history. `twin_heard_s`: when the twin `twin_id` answered that it has an offset above `last`, -1 before.
    """

    sent_s: float
    hold_s: float
    has_producer: bool
    topic_id: str
    epoch: int
    twin_had: int
    last: int = -1
    is_committed: bool = False
    is_tied: bool = True
    answered_s: float = 0.0
    twin_id: str = ""
    twin_heard_s: float = -1.0


class PartitionGate:
    """Events in, commands out. Every event has the time `now_s` of the gate's monotonic clock."""

    def __init__(self, settings: ProtectionSettings, now_s: float) -> None:
        self.settings = settings
        self.state = GateState.PROTECTED
        self.since_s = now_s
        # Below this offset the twin has all that was acknowledged; -1 until it was level once.
        self.confirmed_end = -1
        # What both sides have, as last proven: it stays on both while nothing new is heard.
        self.read_end = ReadEnd()
        self._writes: dict[int, PendingWrite] = {}
        self._home: SideView | None = None
        self._twin: SideView | None = None
        # A view of the home of some moments ago: under load the twin never has what the home has now.
        self._goal: SideView | None = None
        self._reached: ReachedEpoch | None = None
        self._reached_until_s = 0.0
        self._begun_s = now_s
        # The view of each topic id with the highest watermark: a fall is an incident.
        self._highest: dict[str, SideView] = {}
        # Where epochs of writes end in the log of a later one, and when that was heard; and when it was asked.
        self._epoch_ends: dict[AskEpochEnd, tuple[int, float]] = {}
        self._epochs_asked_s: dict[AskEpochEnd, float] = {}
        # Until when acknowledgements may be the home's alone; 0 while that is written nowhere.
        self._alone_until_s = 0.0
        self._alone_due_s = 0.0  # when the permission may be asked for
        self._is_alone_asked = False
        self._alone_through = -1

    # -- writes

    def refusal(self) -> Code | None:
        """Returns the error for a write that is not to be sent at all; None to send it. Until the home has answered
        once, a write could be tied to no history.
        """
        is_sent = self.state is not GateState.STALLED and self._home is not None
        return None if is_sent else Code.not_enough_replicas

    def sent(self, write: int, now_s: float, hold_s: float, *, has_producer: bool) -> None:
        """The write goes to the home now. `hold_s`: how long its answer may be held."""
        home, twin = self._home, self._twin
        topic_id, epoch = (home.topic_id, home.epoch) if home else ("", -1)
        twin_had = twin.watermark if twin and self._is_copy(topic_id, twin) else -1
        self._writes[write] = PendingWrite(now_s, hold_s, has_producer, topic_id, epoch, twin_had)

    def failed(self, write: int) -> None:
        """The home refused the write, or its answer is lost: nothing is to be confirmed."""
        self._writes.pop(write, None)

    def appended(self, write: int, last: int, now_s: float) -> list[GateCommand]:
        """The home has the write, up to offset `last`."""
        pending = self._writes.get(write)
        if pending is None:
            return []
        pending.last, pending.answered_s = last, now_s
        if pending.twin_had > last and not pending.has_producer:
            # Retries of idempotent producers get an old offset. Any other write there is of another history.
            del self._writes[write]
            early = ReportProtection(ProtectionIncidentKind.TOO_EARLY, last)
            return [early, RefuseWrite(write, Code.request_timed_out, WaitCause.IDENTITY)]
        return self._decide(now_s)

    def committed(self, write: int, now_s: float) -> None:
        """The write is a transaction, and the home has its end, at an offset that is not told."""
        if (pending := self._writes.get(write)) is not None:
            pending.is_committed, pending.answered_s = True, now_s

    def reported(self, write: int, last: int, now_s: float) -> list[GateCommand]:
        """The home has a write, up to offset `last`, -1 if that is not told. When and in which epoch it was sent is not
        known: it belongs to the history of the home's next answer, if that has the offset. It is held without end.
        """
        topic_id = self._home.topic_id if self._home else ""
        self._writes[write] = PendingWrite(
            now_s, math.inf, True, topic_id, -1, -1, last, is_tied=False, answered_s=now_s
        )
        return self._decide(now_s)

    # -- what is learned

    def on_home(self, view: SideView) -> list[GateCommand]:
        """A view that was asked before the known one is late, and is ignored."""
        if self._home is None or view.asked_s >= self._home.asked_s:
            self._home = view
            goal = self._goal
            is_old = goal is None or view.asked_s - goal.asked_s >= GOAL_INTERVAL_S
            if goal is None or is_old or (goal.topic_id, goal.epoch) != (view.topic_id, view.epoch):
                self._goal = view
            for pending in self._writes.values():
                is_history = (view.topic_id, view.epoch) == (pending.topic_id, pending.epoch)
                if pending.is_committed and pending.last < 0 and is_history and view.asked_s >= pending.answered_s:
                    pending.last = view.watermark - 1
        return self._tie(view) + self._fell(view) + self._decide(view.heard_s)

    def _tie(self, view: SideView) -> list[GateCommand]:
        """Ties reported writes to the history that the home answers with, or refuses them: the home has lost them."""
        lost: list[GateCommand] = []
        for write, pending in list(self._writes.items()):
            if pending.is_tied or view.asked_s < pending.answered_s:
                continue
            pending.last = view.watermark - 1 if pending.last < 0 else pending.last
            if pending.topic_id in ("", view.topic_id) and pending.last < view.watermark:
                pending.topic_id, pending.epoch, pending.is_tied = view.topic_id, view.epoch, True
            else:
                del self._writes[write]
                lost.append(RefuseWrite(write, Code.not_leader_or_follower, WaitCause.EPOCH))
        return lost

    def on_twin(self, view: SideView) -> list[GateCommand]:
        """As `on_home`."""
        if self._twin is None or view.asked_s >= self._twin.asked_s:
            self._twin = view
            for pending in self._writes.values():
                if not view.watermark > pending.last >= 0:
                    pending.twin_heard_s = -1.0
                elif pending.twin_heard_s < 0 or pending.twin_id != view.topic_id:
                    pending.twin_id, pending.twin_heard_s = view.topic_id, view.heard_s
        return self._fell(view) + self._decide(view.heard_s)

    def on_reached(self, reached: ReachedEpoch | None, asked_s: float, now_s: float) -> list[GateCommand]:
        """What the mirror says, as read by a request of `asked_s`."""
        self._reached, self._reached_until_s = reached, asked_s + REACHED_TTL_S
        return self._decide(now_s)

    def on_epoch_end(self, question: AskEpochEnd, end: int, heard_s: float) -> list[GateCommand]:
        """The home's leader of that epoch answered; -1: its log has no record of the writes' epoch."""
        self._epoch_ends[question] = end, heard_s
        return self._decide(heard_s)

    def on_alone_written(self, asked_s: float, now_s: float) -> list[GateCommand]:
        """`WriteAlone`, asked at `asked_s`, is written. The permission ends `ttl_s` later."""
        self._alone_due_s = now_s
        if self.state is GateState.PROTECTED:
            return [ClearAlone()]  # the twin came back before it was written
        self._alone_until_s = asked_s + self.settings.ttl_s
        if self.state is GateState.STALLED:
            self._enter(GateState.ALONE, now_s)
        return self._decide(now_s)

    def on_alone_failed(self, now_s: float) -> None:
        """`WriteAlone` reached nothing outside the home; it is asked again."""
        self._alone_due_s = now_s + ALONE_RETRY_S

    def stand_alone(self, until_s: float, now_s: float) -> list[GateCommand]:
        """A forced switch left the partition without a twin, and that is written until then."""
        self._alone_until_s = until_s
        if self.state is not GateState.ALONE:
            self._enter(GateState.ALONE, now_s)
        return self._decide(now_s)

    def _fell(self, view: SideView) -> list[GateCommand]:
        highest = self._highest.get(view.topic_id)
        if highest and view.watermark < highest.watermark and view.asked_s < highest.heard_s:
            return []  # a late answer
        self._highest[view.topic_id] = view
        fell = highest is not None and view.watermark < highest.watermark
        return [ReportProtection(ProtectionIncidentKind.WATERMARK_FELL, view.watermark)] if fell else []

    # -- decisions

    def tick(self, now_s: float) -> list[GateCommand]:
        """Call several times a second."""
        commands = self._decide(now_s)
        self._watch(now_s)
        return commands + self._overdue(now_s) + self._ask_epoch_ends(now_s) + self._ask_alone(now_s)

    def awaits_home(self) -> bool:
        """Whether a view of the home that is asked now may confirm a write."""
        asked_s = self._home.asked_s if self._home else -1.0
        return any(
            (pending.is_committed and pending.last < 0)
            or not pending.is_tied
            or (pending.twin_heard_s >= 0 and asked_s < max(pending.twin_heard_s, pending.answered_s))
            for pending in self._writes.values()
        )

    def reset(self) -> list[GateCommand]:
        """The topic has moved, or its protection changed: nothing that was sent is confirmed any more."""
        writes, self._writes = self._writes, {}
        self._home = self._twin = self._goal = self._reached = None
        return [RefuseWrite(write, Code.not_leader_or_follower, WaitCause.NO_TWIN) for write in writes]

    def cause(self) -> WaitCause:
        """Returns why writes are not confirmed now."""
        home, twin, reached = self._home, self._twin, self._reached
        if twin is None:
            return WaitCause.TWIN_AWAY
        if home is None:
            return WaitCause.HOME_AWAY
        if reached is None:
            return WaitCause.NO_TWIN
        if not self._is_copy(home.topic_id, twin):
            return WaitCause.IDENTITY
        if reached.is_stopped:
            return WaitCause.STOPPED
        if reached.epoch != home.epoch:
            return WaitCause.EPOCH
        return WaitCause.REPLICATION

    def _is_copy(self, topic_id: str, twin: SideView) -> bool:
        """Whether the mirror says that the twin asked is a copy of the topic."""
        reached = self._reached
        return reached is not None and (reached.source_id, reached.target_id) == (topic_id, twin.topic_id)

    def _is_confirmed(self, pending: PendingWrite, now_s: float) -> bool:
        home, reached = self._home, self._reached
        if home is None or reached is None or pending.last < 0 or pending.twin_heard_s < 0:
            return False
        if now_s >= self._reached_until_s:
            return False
        return (
            home.asked_s >= max(pending.twin_heard_s, pending.answered_s)
            and self._is_in_log(pending, home) is True
            and pending.topic_id == reached.source_id
            and reached.epoch in (pending.epoch, home.epoch)
            and pending.twin_id == reached.target_id
            and not reached.is_stopped
        )

    def _is_in_log(self, pending: PendingWrite, home: SideView) -> bool | None:
        """Whether the home's log still has the write; None if that is not known yet."""
        if home.topic_id != pending.topic_id:
            return False
        if home.epoch == pending.epoch:
            return True
        if pending.last < 0 or not 0 <= pending.epoch < home.epoch:
            return False
        end = self._epoch_end(pending.epoch, home)
        return end > pending.last if end is not None else None

    def _epoch_end(self, epoch: int, home: SideView) -> int | None:
        """Where that epoch ends in the home's log, -1 if it has no record of it; None if that is not known yet."""
        end, heard_s = self._epoch_ends.get(AskEpochEnd(home.topic_id, epoch, home.epoch), (-1, math.inf))
        return end if home.asked_s >= heard_s else None

    def _prove_read_end(self, now_s: float) -> None:
        """A view of the twin counts while the mirror's word does: after a forced switch others write there."""
        home, twin, reached = self._home, self._twin, self._reached
        if home is None or twin is None or reached is None:
            return
        if not self._is_copy(home.topic_id, twin):
            self.read_end = ReadEnd()
        elif not reached.is_stopped and now_s < self._reached_until_s:
            self.read_end = ReadEnd(twin.watermark, reached.epoch)

    def _decide(self, now_s: float) -> list[GateCommand]:
        self._prove_read_end(now_s)
        commands: list[GateCommand] = []
        is_alone = self.state is GateState.ALONE and now_s < self._alone_until_s
        for write, pending in list(self._writes.items()):
            if self._is_confirmed(pending, now_s):
                self.confirmed_end = max(self.confirmed_end, pending.last + 1)
                commands.append(Confirm(write))
            elif is_alone and pending.last >= 0:
                self._alone_through = max(self._alone_through, pending.last)
                commands.append(Confirm(write, is_alone=True))
            elif self._is_lost(pending):
                commands.append(RefuseWrite(write, Code.not_leader_or_follower, WaitCause.EPOCH))
            else:
                continue
            del self._writes[write]
        return commands + self._rejoin(now_s)

    def _is_lost(self, pending: PendingWrite) -> bool:
        home = self._home
        is_answered = pending.is_tied and (pending.last >= 0 or pending.is_committed)
        return (
            home is not None
            and is_answered
            and home.asked_s >= pending.answered_s
            and self._is_in_log(pending, home) is False
        )

    def _ask_epoch_ends(self, now_s: float) -> list[GateCommand]:
        """After elections the home is asked which writes it still has, and which epoch's records are its last."""
        home, reached = self._home, self._reached
        if home is None:
            return []
        epochs = {one.epoch for one in self._writes.values() if one.last >= 0}
        if reached is not None and (self.state is not GateState.PROTECTED or self.confirmed_end < 0):
            epochs.add(reached.epoch)
        if not epochs:
            self._epoch_ends.clear()
            self._epochs_asked_s.clear()
        asked: list[GateCommand] = []
        for epoch in epochs:
            question = AskEpochEnd(home.topic_id, epoch, home.epoch)
            is_due = now_s - self._epochs_asked_s.get(question, -math.inf) >= EPOCH_RETRY_S
            if 0 <= epoch < home.epoch and question not in self._epoch_ends and is_due:
                self._epochs_asked_s[question] = now_s
                asked.append(question)
        return asked

    def _is_level(self, now_s: float) -> bool:
        """Whether the twin has what the home had a moment ago."""
        home, twin, goal, reached = self._home, self._twin, self._goal, self._reached
        if home is None or twin is None or goal is None or reached is None or reached.is_stopped:
            return False
        return (
            now_s - min(home.asked_s, twin.asked_s, goal.asked_s) < VIEW_AGE_S_MAX
            and now_s < self._reached_until_s
            and self._is_copy(home.topic_id, twin)
            and (goal.topic_id, goal.epoch) == (home.topic_id, home.epoch)
            and twin.watermark >= goal.watermark
            and self._is_reached(reached, home, goal.watermark)
        )

    def _is_reached(self, reached: ReachedEpoch, home: SideView, end: int) -> bool:
        """Whether the mirror has reached the epoch of the home's last record below `end`. Since an election there may
        be no record of the home's epoch: while gates refuse writes, no client may write one.
        """
        if not end or reached.epoch == home.epoch:
            return True
        found = self._epoch_end(reached.epoch, home)
        return found is not None and found >= end

    def _rejoin(self, now_s: float) -> list[GateCommand]:
        """Leaves `STALLED` and `ALONE` once the twin is level, and `CATCHING_UP` once it has all that was acknowledged
        alone.
        """
        if self.state is GateState.PROTECTED and self.confirmed_end >= 0:
            return []
        if not self._is_level(now_s):
            return []
        assert self._goal is not None
        if self.confirmed_end < 0:
            self.confirmed_end = self._goal.watermark
        if self.state is GateState.PROTECTED:
            return []
        if self.state is not GateState.CATCHING_UP:
            state = GateState.CATCHING_UP if self._alone_until_s else GateState.PROTECTED
            self._enter(state, now_s)
            is_asked, self._is_alone_asked = self._is_alone_asked, False
            return [ClearAlone()] if is_asked and state is GateState.PROTECTED else []
        assert self._twin is not None
        if self._twin.watermark <= self._alone_through or self._twin.asked_s < self.since_s:
            return []
        self._enter(GateState.PROTECTED, now_s)
        self._alone_through, self._alone_until_s = -1, 0.0
        return [ClearAlone()]

    def _watch(self, now_s: float) -> None:
        """Enters `STALLED` when nothing is replicated any more, and leaves `ALONE` when its permission has ended."""
        if self.state is GateState.ALONE:
            if now_s >= self._alone_until_s:
                self._enter(GateState.STALLED, now_s)
        elif self.state is not GateState.STALLED and now_s - self.waits_since_s(now_s) >= self.settings.stalled_after_s:
            is_alone = self.state is GateState.CATCHING_UP and now_s < self._alone_until_s
            self._enter(GateState.ALONE if is_alone else GateState.STALLED, now_s)

    def waits_since_s(self, now_s: float) -> float:
        """Returns since when a write waits for the twin, or the twin does not answer; now if neither."""
        heard_s = self._twin.asked_s if self._twin else self._begun_s
        since_s = heard_s if now_s - heard_s > VIEW_AGE_S_MAX else now_s
        answered = (pending.answered_s for pending in self._writes.values() if pending.last >= 0)
        return min(since_s, min(answered, default=now_s))

    def _overdue(self, now_s: float) -> list[GateCommand]:
        late = [write for write, one in self._writes.items() if now_s - one.sent_s >= one.hold_s]
        cause = self.cause()
        for write in late:
            del self._writes[write]
        return [RefuseWrite(write, Code.request_timed_out, cause) for write in late]

    def _ask_alone(self, now_s: float) -> list[GateCommand]:
        """Asks for the permission to acknowledge alone, or to keep it."""
        if self.settings.level is not ProtectionLevel.SYNC or now_s < self._alone_due_s:
            return []
        waits_s = self.settings.alone_after_s - self.settings.stalled_after_s
        is_due = self.state is GateState.STALLED and now_s - self.since_s >= waits_s
        renews = self.state is GateState.ALONE and self._alone_until_s - now_s < self.settings.ttl_s / 2
        if not is_due and not renews:
            return []
        self._alone_due_s = math.inf  # until it is answered
        self._is_alone_asked = True
        return [WriteAlone(self._twin.watermark if self._twin else 0, self.cause())]

    def _enter(self, state: GateState, now_s: float) -> None:
        self.state, self.since_s = state, now_s
