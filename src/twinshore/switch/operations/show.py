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
from twinshore.config.sentences import count_phrase, is_or_are
from twinshore.kafka.clock import steady_s
from twinshore.runtime.lease_keeper import LEASE_S
from twinshore.state.core.values import SwitchRow
from twinshore.state.store import Store
from twinshore.switch.core.steps import MAKES_TWINS, MOVES_HOMES, SwitchKind, SwitchState, SwitchStatus
from twinshore.switch.core.unreplicated import describe_deleted_offsets, ranges_from_json
from twinshore.switch.operations.plan import escape_topic

ID_SHOWN = 8
NAMED_MAX = 5
LEASE_WATCH_S = LEASE_S / 2  # a living process renews its lease more often
POLL_INTERVAL_S = 0.25


@dataclass(frozen=True, slots=True)
class SwitchView:
    """A switch for people and programs. `lifeless`: by the lease in the store, no process runs the switch."""

    id: str
    record: SwitchState
    lifeless: bool = False

    def sentence(self) -> str:
        one = self.record
        begun = datetime.fromtimestamp(one.begun_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        ended = "failed" if one.state is SwitchStatus.DONE and not self.done else one.state
        now = ended if one.ended else "done without the store" if one.awaits_store else f"{one.state}, {one.deed}"
        waits = f": {one.waits}" if one.waits and not one.ended else ""
        why = f": {one.why}" if one.why else ""
        took = "took" if one.kind is SwitchKind.DRILL else self._waited()
        held = f", {took} {one.held_s:.1f} s" if one.held_s else ""
        if one.writable_s:
            held = f", {one.new} writable {one.writable_s:.1f} s after the command"
        return f"{self.id[:ID_SHOWN]}  {begun}  {one.called()}, by {one.by}: {now}{why}{waits}{held}{self._dead()}"

    def _dead(self) -> str:
        if not self.lifeless or self.record.ended:
            return ""
        held = "; WRITERS WAIT" if self.record.holds_writers else ""
        back = "" if self.record.committed else f", `twinshore switch rollback {self.id[:ID_SHOWN]}` turns it back"
        onward = f"`twinshore switch resume {self.id[:ID_SHOWN]}` goes on"
        return f"; its process gives no sign of life{held}: {onward}{back}"

    def _waited(self) -> str:
        """Writers that are no subscribers are stopped by rules alone, if an authorizer runs."""
        rules: dict[str, Any] = {}
        with suppress(ValueError):
            rules = json.loads(self.record.rights)
        return "writers waited" if rules.get("ruled") and not rules["open_to_all"] else "writers that follow waited"

    @property
    def done(self) -> bool:
        """Whether the topics moved, or a drill found no obstacle."""
        in_the_way = self.record.kind is SwitchKind.DRILL and self.record.why
        return self.record.state is SwitchStatus.DONE and not in_the_way

    def verdict(self) -> str:
        left = self.record.unfinished
        return f"{self._ended()}; run it by hand: {left}" if left else self._ended()

    def onward(self) -> tuple[str, ...]:
        one = self.record
        if not self.done:
            return ()
        if one.kind in MOVES_HOMES:
            return tuple(self._moved_on())
        if one.kind in MAKES_TWINS and any(tail.records for tail in ranges_from_json(one.tails)):
            return ("next: `twinshore switch rescue list` names the files; `rescue reinject` writes one to a topic",)
        return ()

    def _moved_on(self) -> Iterator[str]:
        one = self.record
        yield f"next: point producers and consumers to {one.new}; those that follow homes go there by themselves"
        if one.kind is SwitchKind.FORCED:
            named = [escape_topic(name) for name in one.names()]
            if one.plan or len(named) > NAMED_MAX:
                begins = "" if one.plan else commonprefix(one.names())  # noqa: RUF071  # sign by sign is meant
                named = [f"{escape_topic(begins)}.*"]
            topics = " ".join(map(quote, named))
            yield (
                f"once {one.old} is back, and its mirror runs: `twinshore switch failback {topics} --old {one.old}` "
                "saves what never crossed"
            )

    def _ended(self) -> str:
        one, topics = self.record, self.record.moves()
        if self.done and one.why:
            return f"done: nothing is left to be done, as {one.why}"
        if one.kind in (SwitchKind.FAILBACK, SwitchKind.MAPPED_FAILBACK):
            return self._came_back(topics)
        if one.kind is SwitchKind.REBUILD:
            return self._rebuilt(topics)
        if one.kind is SwitchKind.GROUP:
            return self._group_moved(topics)
        if one.state is not SwitchStatus.DONE:
            return f"turned back: {one.why}; {topics} {is_or_are(one.names())} at home on {one.old}"
        if one.kind is SwitchKind.DRILL:
            took = f"to catch up and to prove the tails took {one.held_s:.1f} s"
            return f"{one.why or f'nothing stands in the way of switching {topics} to {one.new}'}; {took}"
        held = f"; {self._waited()} {one.held_s:.1f} s" if one.held_s else ""
        return f"done: {topics} {is_or_are(one.names())} at home on {one.new}{held}"

    def _group_moved(self, group: str) -> str:
        one = self.record
        if not self.done:
            return f"turned back: {one.why}; {group} stays on {one.old}"
        return f"done: {group} continues on {one.new}: start its consumers there"

    def _came_back(self, topics: str) -> str:
        one = self.record
        if not self.done:
            return f"turned back: {one.why}; nothing was deleted on {one.old}"
        found = ranges_from_json(one.tails)
        if not found:
            return f"done: nothing diverged, and nothing was rescued; {topics} on {one.old} is a twin of {one.new}"
        records = count_phrase(sum(tail.records for tail in found), "record")
        saved = f"{records} rescued to {one.folder}{describe_deleted_offsets(found)}"
        return f"done: {saved}; {topics} on {one.old} is a twin of {one.new}"

    def _rebuilt(self, topics: str) -> str:
        one = self.record
        if not self.done:
            return f"turned back: {one.why}; nothing was deleted on {one.old}"
        records = sum(tail.records for tail in ranges_from_json(one.tails))
        saved = f"{count_phrase(records, 'record')} rescued to {one.folder}" if records else "nothing was rescued"
        return f"done: {saved}; {topics} on {one.old} is filled anew from {one.new}"

    def history(self) -> list[str]:
        first = self.record.begun_ms
        return [f"  {(one.at_ms - first) / 1000:8.2f} s  {one.sentence}" for one in self.record.told]

    def as_values(self) -> dict[str, Any]:
        return asdict(self.record) | {"held_s": self.record.held_s}


def list_switches(store: Store, *, open_only: bool = False) -> list[SwitchView]:
    """Newest first."""
    found: list[SwitchView] = []
    for row in store.switches.all(open_only=open_only):
        with suppress(WireError):  # what was taken up from a cluster may be a stranger's
            found.append(_shown(row))
    return found


def mark_lifeless(store: Store, found: Sequence[SwitchView]) -> list[SwitchView]:
    """Marks open switches whose lease is not renewed while this watches. A switch without the store has no lease."""
    first = {one.id: store.leases.read(f"switch {one.id}") for one in found if _leased(one)}
    until_s = steady_s() + LEASE_WATCH_S
    alive: set[str] = set()
    while first.keys() - alive and steady_s() < until_s:
        time.sleep(POLL_INTERVAL_S)
        for switch in first.keys() - alive:
            row = store.leases.read(f"switch {switch}")
            if row is not None and not row.released and row != first[switch]:
                alive.add(switch)
    return [replace(one, lifeless=one.id in first and one.id not in alive) for one in found]


def _leased(one: SwitchView) -> bool:
    return not one.record.ended and not one.record.kept


def find_switch(store: Store, asked: str, *, open_only: bool = False) -> SwitchView:
    """Returns the switch whose id begins with `asked`; if empty, the only open one. Raises ConfigError unless one
    matches.
    """
    found = [one for one in list_switches(store, open_only=open_only or not asked) if one.id.startswith(asked)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise ConfigError("switch.no-such-switch", switch=asked) if asked else ConfigError("switch.none-open")
    raise ConfigError("switch.several-switches", count=len(found), ids=", ".join(_ids(found)))


def _ids(found: list[SwitchView]) -> list[str]:
    return [one.id[:ID_SHOWN] for one in found]


def _shown(row: SwitchRow) -> SwitchView:
    return SwitchView(row.id, SwitchState.from_json(row.switch_state))
