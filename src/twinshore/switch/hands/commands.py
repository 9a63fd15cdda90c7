"""The operator's commands before and after a switch: run without a shell, bounded in time, their words kept."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from twinshore.fleet.sentences import one_line
from twinshore.fleet.settings.sections.switch import SwitchSettings
from twinshore.service.clock import steady_s
from twinshore.switch.decision import Cannot, Done, Outcome, Wait
from twinshore.switch.deeds import Deed
from twinshore.switch.record import Record, State

OUTPUT_MAX = 2_000
TOPICS_MAX = 30_000  # of the environment's one string; all are on standard input besides
END_S = 2.0
ENDED = ", ended well"
ENDED_S = 2 * END_S  # so long at most a command that took too long is being ended


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended. `why`: why it failed, empty where it did not; `output`: the end of what it wrote."""

    why: str
    took_s: float
    output: str

    def sentence(self, command: str) -> str:
        said = f": {one_line(self.output)}" if self.output else ""
        how = f"{self.why}" if self.why else "ended well"
        return f"`{command}` {how} after {self.took_s:.1f} s{said}"


class Hands(Protocol):
    """Whoever does the other deeds."""

    def once(self, record: Record) -> Outcome: ...


class Commands:
    """Of one process that switches. What it has not begun itself may have run before. `others` do all other deeds."""

    def __init__(self, settings: SwitchSettings, others: Hands | None = None) -> None:
        self._settings, self._others = settings, others
        self._begun: set[str] = set()

    def once(self, record: Record) -> Outcome:
        """Of the deeds `before` and `after`, and of turning `before` back."""
        if self._others is not None and record.deed not in (Deed.BEFORE, Deed.AFTER):
            return self._others.once(record)
        back = record.state is State.TURNING_BACK
        which = "after" if back or record.deed is Deed.AFTER else "before"
        command = self._settings.before if which == "before" else self._settings.after
        if back and not record.command:
            return Done(record, "`before` was not run" if self._settings.before else "no command is set")
        if not command:
            return Done(record, "no command is to be run" if back else "")
        moment = f"{which}, turned back" if back else which
        if record.command == f"{moment}{ENDED}":
            return Done(record)  # without the store, by whoever leaves the rest to it
        if record.command != moment:
            # Written down first: whoever goes on must know that it may have run.
            self._begun.add(moment)
            return Wait(
                f"`{command[0]}` is run, for {self._settings.timeout_s:g} s at most", replace(record, command=moment)
            )
        again = "" if moment in self._begun else "it may have run before, for a process that is no more; "
        ran = ran_command(command, variables(record, which, back=back), record.names(), self._settings.timeout_s)
        said = again + ran.sentence(command[0])
        if ran.why and which == "before":
            return Cannot(said)
        if ran.why:
            return Done(replace(record, unfinished=said), said)
        return Done(replace(record, command=f"{moment}{ENDED}", unfinished=""), said)


def variables(record: Record, moment: str, *, back: bool) -> dict[str, str]:
    """What the command is told. Twinshore's own variables begin otherwise, so that it can call `twinshore`."""
    home = record.new if moment == "after" and not back else record.old
    topics = " ".join(record.names())
    return {
        "SWITCH_ID": record.id,
        "SWITCH_KIND": record.kind.value,
        "SWITCH_MOMENT": moment,
        "SWITCH_FROM": record.old,
        "SWITCH_TO": record.new,
        "SWITCH_HOME": home,
        "SWITCH_GROUP": record.group,
        "SWITCH_TOPICS": topics if len(topics) <= TOPICS_MAX else "",
    }


def ran_command(command: Sequence[str], more: dict[str, str], topics: Sequence[str], timeout_s: float) -> Ran:
    """In a separate session, so that it is ended with all that it has begun, and hears no Ctrl-C of ours."""
    began_s = steady_s()
    with tempfile.TemporaryFile() as written, tempfile.TemporaryFile() as given:
        given.write("".join(f"{topic}\n" for topic in topics).encode())
        given.seek(0)
        try:
            child = subprocess.Popen(
                list(command),
                stdin=given,
                stdout=written,
                stderr=subprocess.STDOUT,
                env={**os.environ, **more},
                start_new_session=True,
            )
        except OSError as error:
            return Ran(f"cannot be run ({error.strerror})", 0.0, "")
        code: int | None = None
        try:
            code = child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            pass
        finally:
            if code is None:
                _end(child)
        took_s = steady_s() - began_s
        written.seek(max(0, written.seek(0, os.SEEK_END) - OUTPUT_MAX))
        output = written.read().decode("utf-8", "replace").strip()
    if code is None:
        return Ran(f"was ended, as it took longer than {timeout_s:g} s,", took_s, output)
    return Ran(f"ended with {code}" if code else "", took_s, output)


def _end(child: subprocess.Popen[bytes]) -> None:
    """It and what it began: asked first, then made to, as some of them may not listen."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with suppress(subprocess.TimeoutExpired):
            child.wait(END_S)


def told(settings: SwitchSettings) -> tuple[str, ...]:
    """What a plan says of the commands."""
    both = (("before anybody is held", settings.before), ("once they go on", settings.after))
    return tuple(f"`{command[0]}` is run {when}" for when, command in both if command)


def why_not(settings: SwitchSettings) -> str:
    """Which command could not be run on this host; empty where all could."""
    for name, command in (("before", settings.before), ("after", settings.after)):
        if command and not os.access(command[0], os.X_OK):
            return f"[switch] {name}: {command[0]} cannot be run on this host"
    return ""
