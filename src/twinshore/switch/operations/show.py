"""Shows switches, current and past, from the store alone."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from os.path import commonprefix
from shlex import quote
from typing import Any

from twinshore.config.errors import ConfigError, WireError
from twinshore.config.sentences import NAMED_MAX, count_phrase, is_or_are
from twinshore.kafka.clock import steady_s
from twinshore.runtime.lease_keeper import LEASE_S
from twinshore.state.store import Store
from twinshore.switch.core.steps import MAKES_TWINS, MOVES_HOMES, SwitchKind, SwitchState, SwitchStatus, switch_lease
from twinshore.switch.core.unreplicated import describe_deleted_offsets, ranges_from_json
from twinshore.switch.operations.plan import escape_topic

ID_SHOWN = 8
LEASE_WATCH_S = LEASE_S / 2  # a living process renews its lease more often
POLL_INTERVAL_S = 0.25


@dataclass(frozen=True, slots=True)
class SwitchView:
    """A switch for people and programs. `lifeless`: by the lease in the store, no process runs the switch."""

    id: str
    state: SwitchState
    lifeless: bool = False

    def sentence(self) -> str:
        state = self.state
        begun = datetime.fromtimestamp(state.begun_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        now = "done without the store" if state.awaits_store else f"{state.state}, {state.step.words}"
        if state.ended:
            now = "failed" if state.state is SwitchStatus.DONE and not self.done else state.state
        waits = f": {state.waits}" if state.waits and not state.ended else ""
        why = f": {state.why}" if state.why else ""
        took = "took" if state.kind is SwitchKind.DRILL else self._waited()
        held = f", {took} {state.held_s:.1f} s" if state.held_s else ""
        if state.writable_s:
            held = f", {state.new} writable {state.writable_s:.1f} s after the command"
        return f"{self.id[:ID_SHOWN]}  {begun}  {state.called()}, by {state.by}: {now}{why}{waits}{held}{self._dead()}"

    def _dead(self) -> str:
        if not self.lifeless or self.state.ended:
            return ""
        held = "; WRITERS WAIT" if self.state.holds_writers else ""
        back = "" if self.state.committed else f", `twinshore switch rollback {self.id[:ID_SHOWN]}` turns it back"
        onward = f"`twinshore switch resume {self.id[:ID_SHOWN]}` goes on"
        return f"; its process gives no sign of life{held}: {onward}{back}"

    def _waited(self) -> str:
        """Writers that are no subscribers are stopped by rules alone, if an authorizer runs."""
        rules: dict[str, Any] = {}
        with suppress(ValueError):
            rules = json.loads(self.state.rights)
        return "writers waited" if rules.get("ruled") and not rules["open_to_all"] else "writers that follow waited"

    @property
    def done(self) -> bool:
        """Whether the topics moved, or a drill found no obstacle."""
        in_the_way = self.state.kind is SwitchKind.DRILL and self.state.why
        return self.state.state is SwitchStatus.DONE and not in_the_way

    def verdict(self) -> str:
        left = self.state.unfinished
        return f"{self._ended()}; run it by hand: {left}" if left else self._ended()

    def onward(self) -> tuple[str, ...]:
        state = self.state
        if not self.done:
            return ()
        if state.kind in MOVES_HOMES:
            return tuple(self._moved_on())
        if state.kind in MAKES_TWINS and any(offset_range.records for offset_range in ranges_from_json(state.tails)):
            return ("next: `twinshore switch rescue list` names the files; `rescue reinject` writes one to a topic",)
        return ()

    def _moved_on(self) -> Iterator[str]:
        state = self.state
        yield f"next: point producers and consumers to {state.new}; those that follow homes go there by themselves"
        if state.kind is SwitchKind.FORCED:
            named = [escape_topic(name) for name in state.names()]
            if state.plan or len(named) > NAMED_MAX:
                begins = "" if state.plan else commonprefix(state.names())  # noqa: RUF071  # sign by sign is meant
                named = [f"{escape_topic(begins)}.*"]
            topics = " ".join(map(quote, named))
            failback = f"`twinshore switch failback {topics} --old {state.old}`"
            yield f"once {state.old} is back, and its mirror runs: {failback} saves unreplicated records"

    def _ended(self) -> str:
        state, topics = self.state, self.state.moves()
        if self.done and state.why:
            return f"done: nothing is left to be done, as {state.why}"
        if state.kind is SwitchKind.DRILL and state.state is SwitchStatus.DONE:
            took = f"to catch up and to prove the tails took {state.held_s:.1f} s"
            return f"{state.why or f'nothing stands in the way of switching {topics} to {state.new}'}; {took}"
        if not self.done:
            stays = f"{topics} {is_or_are(state.names())} at home on {state.old}"
            if state.kind in MAKES_TWINS:
                stays = f"nothing was deleted on {state.old}"
            elif state.kind is SwitchKind.GROUP:
                stays = f"{topics} stays on {state.old}"
            return f"turned back: {state.why}; {stays}"
        if state.kind in MAKES_TWINS:
            return f"done: {self._rescued()}"
        if state.kind is SwitchKind.GROUP:
            return f"done: {topics} continues on {state.new}: start its consumers there"
        held = f"; {self._waited()} {state.held_s:.1f} s" if state.held_s else ""
        return f"done: {topics} {is_or_are(state.names())} at home on {state.new}{held}"

    def _rescued(self) -> str:
        state, found = self.state, ranges_from_json(self.state.tails)
        rebuild = state.kind is SwitchKind.REBUILD
        records = sum(offset_range.records for offset_range in found)
        saved = f"{count_phrase(records, 'record')} rescued to {state.folder}{describe_deleted_offsets(found)}"
        if rebuild and not records:
            saved = "nothing was rescued"
        elif not found:
            saved = "nothing diverged, and nothing was rescued"
        now = f"is refilled from {state.new}" if rebuild else f"is a twin of {state.new}"
        return f"{saved}; {state.moves()} on {state.old} {now}"

    def history(self) -> list[str]:
        first = self.state.begun_ms
        return [f"  {(entry.at_ms - first) / 1000:8.2f} s  {entry.sentence}" for entry in self.state.history]

    def as_values(self) -> dict[str, Any]:
        return asdict(self.state) | {"held_s": self.state.held_s}


def list_switches(store: Store, *, open_only: bool = False, limit: int | None = None) -> list[SwitchView]:
    """Newest first."""
    found: list[SwitchView] = []
    for row in store.switches.all(open_only=open_only, limit=limit):
        with suppress(WireError):  # what was taken up from a cluster may be a stranger's
            found.append(SwitchView(row.id, SwitchState.from_json(row.switch_state)))
    return found


def mark_lifeless(store: Store, found: Sequence[SwitchView]) -> list[SwitchView]:
    """Marks open switches whose lease is not renewed while this watches. A switch without the store has no lease."""
    leased = [view for view in found if not (view.state.ended or view.state.kept)]
    first = {view.id: store.leases.read(switch_lease(view.id)) for view in leased}
    until_s = steady_s() + LEASE_WATCH_S
    alive: set[str] = set()
    while first.keys() - alive and steady_s() < until_s:
        time.sleep(POLL_INTERVAL_S)
        for switch in first.keys() - alive:
            row = store.leases.read(switch_lease(switch))
            if row is not None and not row.released and row != first[switch]:
                alive.add(switch)
    return [replace(view, lifeless=view.id in first and view.id not in alive) for view in found]


def find_switch(store: Store, asked: str, *, open_only: bool = False) -> SwitchView:
    """Returns the switch whose id begins with `asked`; if empty, the only open one. Raises ConfigError unless one
    matches.
    """
    found = [view for view in list_switches(store, open_only=open_only or not asked) if view.id.startswith(asked)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise ConfigError("switch.no-such-switch", switch=asked) if asked else ConfigError("switch.none-open")
    ids = ", ".join(view.id[:ID_SHOWN] for view in found)
    raise ConfigError("switch.several-switches", count=len(found), ids=ids)
