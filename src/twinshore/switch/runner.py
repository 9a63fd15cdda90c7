"""Runs a switch to its end: does a deed, decides, writes the record down, and again.

The record is written before each deed and after it. Whoever is killed in between is followed by somebody who does the
same deed once more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from twinshore.fleet import KafkaError, StoreError, TwinshoreError, WireError
from twinshore.switch.decision import Cannot, Outcome, Wait, after, turn_back
from twinshore.switch.record import Record

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
) -> Record:
    """The record as it ended. `save` raises where somebody else goes on with the switch. `stop`: turn back, as far as
    that is still possible; past the point of no return it goes on."""
    told = len(record.told)
    _written(save, record, tell)
    while not record.ended:
        before, outcome = record, None
        if stop.is_set():
            record = turn_back(record, "it was stopped", now_ms())
        if not record.ended:
            outcome = _tried(once, record)
            record = after(record, outcome, now_ms())
        for one in record.told[told:] if len(record.told) >= told else record.told[-1:]:
            tell(one.sentence)
        told = len(record.told)
        if record != before:
            _written(save, record, tell)
        if not record.ended and (record.deed, record.state) == (before.deed, before.state):
            time.sleep(AWAY_S if isinstance(outcome, Wait) and outcome.unanswered else PAUSE_S)
    return record


def _written(save: Save, record: Record, tell: Callable[[str], None]) -> None:
    """Writes the record down. A store that does not answer is waited for as long as `save` lets us, since nothing is
    done on a record that nobody could go on with, and writers wait: whoever ended now would leave them held."""
    told = False
    while True:
        try:
            save(record)
            return
        except StoreError as error:
            if not told:
                tell(f"{record.deed}: away: {error.message}")
            told = True
            time.sleep(AWAY_S)


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
    return record.tell(now_ms, f"{by} goes on with the switch")
