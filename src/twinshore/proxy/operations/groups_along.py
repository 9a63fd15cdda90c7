"""Groups of the proxies' clients go along with a switch: their members gather before it, and go on right behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Self

from twinshore.fleet import RefusedError, TwinshoreError
from twinshore.fleet.operations import Plan
from twinshore.fleet.settings import Settings
from twinshore.proxy.operations.groups_home import Asked, GroupsStep, act, plan
from twinshore.store import Store
from twinshore.switch.operations.planning import SwitchPlan
from twinshore.switch.operations.running import Asking
from twinshore.switch.operations.waves import WavesPlan


def planned(to: str, settings: Settings, store: Store, switch: SwitchPlan) -> Plan[GroupsStep]:
    """`refused`: why groups cannot go along. Their consumers wait from before the hold until the switch is done, so
    several switches one behind the other are too long."""
    if isinstance(switch, WavesPlan):
        hint = f"switch without --groups, then `twinshore proxy groups --to {to}`"
        return Plan(refused=RefusedError("groups do not go along with several waves", hint=hint))
    return plan(Asked(to), settings, store)


class Gathering:
    """Members wait from `begin` on, for as long as the switch may hold writers and some time more. `go_on` moves them
    right behind the flip; where it is not called they stay, and go on at the end."""

    def __init__(
        self,
        meant: Plan[GroupsStep] | None,
        to: str,
        settings: Settings,
        store: Store,
        asking: Asking,
        switch: SwitchPlan,
    ) -> None:
        self._meant, self._to, self._settings, self._store, self._asking = meant, to, settings, store, asking
        self._hold_s = switch.record.hold_s_max if switch.record else 0.0
        self._steps: Iterator[GroupsStep] | None = None
        self._refused: TwinshoreError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._steps is not None:
            self._steps.close()  # type: ignore[attr-defined]

    def begin(self) -> None:
        """Members have committed, and wait."""
        if self._meant is not None:
            asked = Asked(self._to, hold_s=self._hold_s)
            self._steps = act(asked, self._meant, self._settings, self._store, self._asking.by)
            self._tell_next()

    def go_on(self) -> None:
        """The switch goes on also where they cannot be moved."""
        try:
            while self._tell_next():
                pass
        except TwinshoreError as error:
            self._asking.tell(f"groups stay: {error.message}")
            self._refused = error

    def end(self) -> None:
        """Behind the switch. Raises where groups were not moved."""
        self.go_on()
        if self._refused is not None:
            raise self._refused

    def _tell_next(self) -> bool:
        step = next(self._steps, None) if self._steps is not None else None
        if step is not None:
            self._asking.tell(step.sentence(done=True))
        return step is not None


def by_force(to: str, settings: Settings, where: object, by: str, tell: Callable[[str], None]) -> None:
    """Behind a switch by force, also where the groups' home does not answer. `where`: the store, if it answers."""
    store = where if isinstance(where, Store) else None
    asked = Asked(to, force=True)
    meant = plan(asked, settings, store)
    if meant.refused:
        asked = Asked(to)
        meant = plan(asked, settings, store)
    if meant.refused:
        raise meant.refused
    for step in act(asked, meant, settings, store, by):
        tell(step.sentence(done=True))
