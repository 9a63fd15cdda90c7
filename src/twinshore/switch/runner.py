"""Runs a switch to its end: does a deed, decides, writes the record down, and again.

The record is written before each deed and after it. Whoever is killed in between is followed by somebody who does the
same deed once more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from twinshore.fleet import KafkaError, RefusedError, StoreError, TwinshoreError, WireError
from twinshore.switch.decision import Cannot, Outcome, Wait, after, held_anew, too_long_held, turn_back
from twinshore.switch.deeds import Deed
from twinshore.switch.record import Record, State

PAUSE_S = 0.05
AWAY_S = 0.5

Save = Callable[[Record], None]


def run(
    record: Record,
    once: Callable[[Record], Outcome],
    save: Save,
    *,
    now_ms: Callable[[], int],
    tell: Callable[[str], None],
    stop: threading.Event,
    behind_flip: Callable[[], None] = lambda: None,
) -> Record:
    """The record as it ended. `save` raises where somebody else goes on with the switch. `stop`: turn back, as far as
    that is still possible; past the point of no return it goes on. `behind_flip` is called once the record says that
    the topics are at home elsewhere."""
    return _Run(once, save, now_ms, tell, stop, behind_flip).to_its_end(record)


@dataclass(frozen=True, slots=True)
class _Run:
    once: Callable[[Record], Outcome]
    save: Save
    now_ms: Callable[[], int]
    tell: Callable[[str], None]
    stop: threading.Event
    behind_flip: Callable[[], None]

    def to_its_end(self, record: Record) -> Record:
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

    def _say(self, before: Record, now: Record) -> None:
        """What is new in its history, which keeps no more than so much."""
        told = len(before.told)
        for one in now.told[told:] if len(now.told) >= told and now.told[:1] == before.told[:1] else now.told[-1:]:
            self.tell(one.sentence)

    def _written(self, record: Record) -> Record:
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

    def _let_go(self, record: Record, error: StoreError) -> Record:
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


def announced_behind(call: Callable[[], None], once: Callable[[Record], Outcome]) -> Callable[[Record], Outcome]:
    """Does deeds by `once`, and before the first announcement the call. The switch turns back where it is refused."""
    called = False

    def do(record: Record) -> Outcome:
        nonlocal called
        if record.deed is Deed.ANNOUNCE and record.state is State.GOING and not called:
            call()
            called = True
        return once(record)

    return do


def _tried(once: Callable[[Record], Outcome], record: Record) -> Outcome:
    """What came of the deed; a failure that may pass is waited for."""
    try:
        return once(record)
    except KafkaError as error:
        return Wait(error.message, unanswered=True) if error.retriable else Cannot(error.message)
    except (StoreError, WireError) as error:
        return Wait(error.message, unanswered=True)
    except TwinshoreError as error:
        return Cannot(error.message)


def anew(record: Record, by: str, now_ms: int) -> Record:
    """The record for whoever goes on with a switch that somebody else began."""
    return held_anew(record, now_ms).tell(now_ms, f"{by} goes on with the switch")
