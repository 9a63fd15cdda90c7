"""`twinshore store upgrade`: an earlier version's tables become this version's. Nothing else changes them: a look with
a newer version must not take the way back.

A mirror of the earlier version that still runs would write what the tables no longer hold. So each lease that was not
given up is watched until it has run out, and one that is renewed refuses the upgrade.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from twinshore.fleet import ConfigError, RefusedError
from twinshore.fleet.operations import Plan
from twinshore.fleet.settings import Settings
from twinshore.service.clock import steady_s
from twinshore.store import LeaseRow, LeaseWatch
from twinshore.store.opening import is_there
from twinshore.store.schema import SCHEMA, not_ours
from twinshore.store.unopened import Unopened

LOOK_S = 0.2
STOP_ALL = "stop every process that uses the store, in good order, then run this again"


@dataclass(frozen=True, slots=True)
class UpgradeStep:
    """`before`: the schema that stands there."""

    place: str
    before: str
    after: str

    def sentence(self, *, done: bool) -> str:
        changed = "was changed" if done else "would be changed, for good,"
        return f"the store {self.place} {changed} from schema {self.before} to {self.after}"


def plan(settings: Settings, tell: Callable[[str], None]) -> Plan[UpgradeStep]:
    """Waits until every lease that stands has run out; RefusedError where a process renews one. `tell` hears what is
    waited for. StoreError where a newer version has the store."""
    with _unopened(settings) as store:
        found = store.schema()
        if found is None:
            # Nobody's records are in tables that a killed process left half made.
            return Plan(shown=(f"the store {store.place} has no tables yet: the next verb that needs them makes them",))
        if found == SCHEMA:
            return Plan(shown=(f"the store {store.place} has schema {SCHEMA}, which is this version's: nothing to do",))
        if found > SCHEMA:
            raise not_ours(found, store.place)
        _refuse_while_held(store, tell)
        return Plan(
            (UpgradeStep(store.place, found, SCHEMA),),
            remarks=(
                "the earlier version cannot open it any more: the way back is a backup that was made before",
                "proxies and monitors of the earlier version hold no lease: see that they are stopped too",
            ),
        )


def act(planned: Plan[UpgradeStep], settings: Settings) -> Iterator[UpgradeStep]:
    """RefusedError where a mirror has begun since."""
    for step in planned.steps:
        with _unopened(settings) as store:
            _refuse_while_held(store, lambda _: None)
            store.upgrade()
        yield step


def _unopened(settings: Settings) -> Unopened:
    if not is_there(settings):
        raise ConfigError(f"there is no store at {settings.store.url}", hint="name its settings with --settings")
    return Unopened(settings.store.url, settings.store.password)


def _refuse_while_held(store: Unopened, tell: Callable[[str], None]) -> None:
    """Returns once each lease has stood still for as long as its holder asked others to wait."""
    watches: dict[str, tuple[LeaseRow, LeaseWatch]] = {}
    told = False
    while True:
        rows = store.held()
        now_s = steady_s()
        waits = False
        for row in rows:
            first, watch = watches.setdefault(row.name, (row, LeaseWatch(0)))
            if row != first:
                raise RefusedError(f"{row.name} is carried by {row.owner} now: its mirror runs", hint=STOP_ALL)
            waits |= not watch.observe(row, now_s)
        if not waits:
            return
        if not told:
            owners = ", ".join(sorted({row.owner for row in rows}))
            tell(f"{owners} did not give its leases up; looking whether it is alive ...")
            told = True
        time.sleep(LOOK_S)
