"""The plan of whatever a switch is asked for."""

from __future__ import annotations

from twinshore.fleet import ConfigError
from twinshore.fleet.settings import Settings
from twinshore.store import Store
from twinshore.switch.operations import one_group, planning
from twinshore.switch.operations.planning import Switch, SwitchPlan


def plan_of(asked: Switch, settings: Settings, store: Store, *, by: str = "") -> SwitchPlan:
    """ConfigError where nothing is meant; what stands in the way is `refused`."""
    if asked.group:
        return one_group.plan(asked, settings, store, by=by)
    if not asked.topics:
        raise ConfigError("nothing is to be switched", hint="name topics, or one group with --group")
    return planning.plan(asked, settings, store, by=by)
