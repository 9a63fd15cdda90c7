"""What a switch does next. Pure: the record and what came of its deed go in, the record as it is then comes out.

A command line, an API, a drill and a simulation call the same `after`. It never turns back past the point of no
return, and never goes on to it once writers have waited for longer than they may.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from twinshore.fleet.sentences import counted
from twinshore.switch.deeds import DEEDS, DUTIES, HOLDS, UNHELD, Deed, Kind, following, is_past, next_undo, to_undo
from twinshore.switch.record import Record, State


@dataclass(frozen=True, slots=True)
class Done:
    """The deed is done, or undone. `record`: with what it found; its deed and state are this module's to change."""

    record: Record
    sentence: str = ""


@dataclass(frozen=True, slots=True)
class Wait:
    """Not yet; to be tried again soon. `record` keeps what was found on the way. `unanswered`: something does not
    answer and is asked more seldom."""

    sentence: str
    record: Record | None = None
    unanswered: bool = False


@dataclass(frozen=True, slots=True)
class Cannot:
    """It will not be, however long one waits."""

    sentence: str
    record: Record | None = None


@dataclass(frozen=True, slots=True)
class Back:
    """It must turn back, also behind its point of no return: the topics have not moved, and writers went on."""

    sentence: str
    record: Record | None = None


Outcome = Done | Wait | Cannot | Back


def begin(record: Record, now_ms: int) -> Record:
    """At its first deed."""
    first = DEEDS[record.kind][0]
    count = counted(len(record.topics), "topic")
    told = f"{record.called('' if record.group else count)}, by {record.by}"
    return replace(record, deed=first, deed_ms=now_ms, state=State.GOING).tell(now_ms, told)


def after(record: Record, outcome: Outcome, now_ms: int) -> Record:
    """The record once this came of its deed."""
    if record.ended:
        return record
    if isinstance(outcome, Back):
        return record if record.state is State.TURNING_BACK else _back(record, outcome.sentence, now_ms)
    found = _kept(record, outcome)
    if record.state is State.TURNING_BACK:
        return _turning(found, outcome, now_ms)
    if isinstance(outcome, Done):
        if late := too_long_held(found, now_ms):
            return turn_back(found, late, now_ms)
        return _onward(found, outcome.sentence, now_ms)
    if not found.committed:
        if isinstance(outcome, Cannot):
            return turn_back(found, outcome.sentence, now_ms)
        if late := _late(found, now_ms):
            return turn_back(found, f"{late}: {outcome.sentence}", now_ms)
    waits = outcome.sentence
    return found if found.waits == waits else replace(found, waits=waits).tell(now_ms, f"{record.deed}: {waits}")


def turn_back(record: Record, why: str, now_ms: int) -> Record:
    """On its way back. Past the point of no return it is left as it is."""
    if record.committed or record.ended or record.state is State.TURNING_BACK:
        return record
    return _back(record, why, now_ms)


def held_anew(record: Record, now_ms: int) -> Record:
    """For whoever goes on with what another process began: a hold is that process's own, and may have run out."""
    going = record.state is State.GOING and record.kind in HOLDS and not record.committed
    return replace(record, deed=Deed.HOLD, deed_ms=now_ms) if going and DUTIES[record.deed].held else record


def _back(record: Record, why: str, now_ms: int) -> Record:
    back = replace(record, why=why, waits="").tell(now_ms, f"turns back: {why}")
    # One that began anew may have run the operator's command before, whose end is owed all the same.
    deed = Deed.BEFORE if record.command and is_past(record.kind, Deed.BEFORE, record.deed) else record.deed
    undo = to_undo(record.kind, deed)
    if undo is None:
        return _turned_back(back, now_ms)
    return replace(back, state=State.TURNING_BACK, deed=undo, deed_ms=now_ms)


def _kept(record: Record, outcome: Done | Wait | Cannot) -> Record:
    """What the deed found; what is this module's stays as it was."""
    if outcome.record is None:
        return record
    mine = {"deed": record.deed, "state": record.state, "deed_ms": record.deed_ms, "held_ms": record.held_ms}
    return replace(outcome.record, **mine)  # type: ignore[arg-type]


def _onward(record: Record, sentence: str, now_ms: int) -> Record:
    told = record.tell(now_ms, f"{record.deed}: {sentence}") if sentence else record
    deed = following(record.kind, record.deed)
    if deed is None:
        let_ms = now_ms if record.kind is Kind.DRILL else record.let_write_ms
        return replace(told, state=State.DONE, waits="", let_write_ms=let_ms).tell(
            now_ms, f"the {_noun(record)} is done"
        )
    held_ms, let_ms = record.held_ms, record.let_write_ms
    if DUTIES[deed].held and not held_ms and record.kind not in UNHELD:
        held_ms = now_ms  # before the first writer is held, so that the bound counts no less than they wait
    if record.deed is Deed.FLIP:
        let_ms = now_ms
    return replace(told, deed=deed, deed_ms=now_ms, held_ms=held_ms, let_write_ms=let_ms, waits="")


def _turning(record: Record, outcome: Done | Wait | Cannot, now_ms: int) -> Record:
    """Nothing ends the way back but its end: whoever was held must be let go."""
    if not isinstance(outcome, Done):
        waits = outcome.sentence
        if record.waits == waits:
            return record
        return replace(record, waits=waits).tell(now_ms, f"turning back, {record.deed}: {waits}")
    told = record.tell(now_ms, f"undone, {record.deed}: {outcome.sentence or DUTIES[record.deed].undoes}")
    if record.deed is Deed.HOLD:
        told = replace(told, let_write_ms=now_ms)
    undo = next_undo(record.kind, record.deed)
    if undo is None:
        return _turned_back(told, now_ms)
    return replace(told, deed=undo, deed_ms=now_ms, waits="")


def _turned_back(record: Record, now_ms: int) -> Record:
    stays = "the twins are as they were" if record.kind is Kind.REBUILD else "the topics are at home where they were"
    if record.group:
        stays = f"group {record.group} stays on {record.old}"
    told = record.tell(now_ms, f"the {_noun(record)} has turned back; {stays}")
    return replace(told, state=State.TURNED_BACK, waits="")


def _noun(record: Record) -> str:
    return str(record.kind) if record.kind in (Kind.REBUILD, Kind.DRILL) else "switch"


def _late(record: Record, now_ms: int) -> str:
    """Why it has taken too long; empty where it has not. A clock that went back counts as late."""
    duty = DUTIES[record.deed]
    waited_s = (now_ms - record.deed_ms) / 1000
    if not 0 <= waited_s <= duty.patience_s:
        return f"it took longer than {duty.patience_s:g} s to {duty.does}"
    return too_long_held(record, now_ms)


def too_long_held(record: Record, now_ms: int) -> str:
    """Why the switch must turn back, as writers wait too long; empty where they may wait, or it cannot."""
    if record.committed or not record.held_ms or not DUTIES[record.deed].held or record.kind not in HOLDS:
        return ""
    held_s = (now_ms - record.held_ms) / 1000
    return "" if 0 <= held_s <= record.hold_s_max else f"writers would wait for longer than {record.hold_s_max:g} s"
