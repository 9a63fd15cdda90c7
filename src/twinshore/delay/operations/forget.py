"""No more is expected of one that watched, and was killed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from twinshore.delay.watchers import key_of
from twinshore.fleet import ConfigError
from twinshore.fleet.operations import Plan
from twinshore.service.clock import wall_ms
from twinshore.store import AlarmRow, AuditRow, Store

KIND = "monitor"


@dataclass(frozen=True, slots=True)
class ForgetWatcher:
    """By its name, as `twinshore delay` shows it."""

    name: str


@dataclass(frozen=True, slots=True)
class ForgetWatcherStep:
    """`missed`: the alarms that end with it."""

    name: str
    missed: tuple[AlarmRow, ...]

    def sentence(self, *, done: bool) -> str:
        word = "is not missed" if done else "would not be missed"
        return f"{self.name} {word} any more; if it is alive after all, it says so again at once"


def plan(asked: ForgetWatcher, store: Store) -> Plan[ForgetWatcherStep]:
    """ConfigError where nobody of that name watches or is missed."""
    names, key = [row.name for row in store.delay.watches()], key_of(asked.name)
    missed = tuple(row for row in store.delay.alarms(key.link, open_only=True) if row.kind == key.kind)
    if asked.name not in names and not missed:
        known = "; ".join(names) or "nobody"
        raise ConfigError(f"no monitor {asked.name!r} runs or is missed", hint=f"there are: {known}")
    return Plan((ForgetWatcherStep(asked.name, missed),))


def act(planned: Plan[ForgetWatcherStep], store: Store, *, by: str) -> Iterator[ForgetWatcherStep]:
    """One that is alive after all says so again."""
    for step in planned.steps:
        now_ms = wall_ms()
        was = "missed" if step.missed else "expected"
        told = AuditRow(now_ms, "", KIND, step.name, was, "forgotten", f"by {by}", by)
        store.delay.end_watch(step.name, [told])
        for row in step.missed:
            store.delay.clear_alarm(row.id, now_ms)
        yield step
