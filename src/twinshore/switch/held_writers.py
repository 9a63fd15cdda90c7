"""Ends a switch whose process is gone while writers are held. Runs beside a link.

A hold of some seconds is reported as an incident. Once the lease of the switch has expired, the switch is rolled back
here, or resumed if past the point of no return.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading

from twinshore.config.incident_policy import IncidentKind
from twinshore.config.repeat_filter import RepeatFilter, describe_error
from twinshore.kafka.clock import steady_s
from twinshore.replication.core.ownership import pair_name
from twinshore.replication.incidents import stopped
from twinshore.runtime import lease_keeper
from twinshore.runtime.endpoints import LinkContext
from twinshore.runtime.lease_keeper import LeaseKeeper
from twinshore.runtime.logging import LinkLogger
from twinshore.runtime.scheduler import process_scheduler
from twinshore.switch.core.steps import SwitchState, parse_switch_state, switch_lease
from twinshore.switch.operations.run import SwitchCaller, resume, roll_back

log = logging.getLogger(__name__)

CHECK_INTERVAL_S = 1.0
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
        return CHECK_INTERVAL_S

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
            stopped.report_link_incident(self._store, self._link.name, IncidentKind.WRITERS_HELD, sentence)
            self._told = sentence

    def _leave(self, switch: str) -> None:
        self._keepers.pop(switch).close(release=True)

    def _leave_all(self) -> None:
        self._told = None
        for switch in list(self._keepers):
            self._leave(switch)
