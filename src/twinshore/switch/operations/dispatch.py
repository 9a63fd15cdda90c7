"""Plans and runs any kind of switch."""

from __future__ import annotations

from dataclasses import replace

from twinshore.config.errors import ConfigError, RefusedError
from twinshore.config.sections.switch import SECTION as SWITCH
from twinshore.config.settings import Settings
from twinshore.state.store import Store
from twinshore.switch.core.steps import SwitchKind, SwitchStep
from twinshore.switch.drain import describe_commands, find_missing_command
from twinshore.switch.operations import carrying, one_group, one_producer, plan, run, waves, without_data
from twinshore.switch.operations.carrying import CarryFirstPlan
from twinshore.switch.operations.plan import SwitchPlan, SwitchPlanRequest
from twinshore.switch.operations.run import SwitchCaller
from twinshore.switch.operations.show import SwitchView
from twinshore.switch.operations.waves import WavesPlan


def plan_switch(asked: SwitchPlanRequest, settings: Settings, store: Store, *, by: str = "") -> SwitchPlan:
    """Returns the plan, with obstacles as `refused`. Raises ConfigError if the request matches nothing."""
    planned = _planned(asked, settings, store, by)
    forced = asked.kind is SwitchKind.FORCED
    if planned.record is not None and (forced or asked.wave) and not (asked.bare or asked.group):
        left = carrying.describe_left_out(asked, settings, store, answers=bool(planned.alive) or not forced)
        planned = replace(planned, remarks=(*planned.remarks, *filter(None, (left,))))
    return planned if asked.kind is SwitchKind.DRILL else add_commands(planned, settings)


def add_commands(planned: SwitchPlan, settings: Settings) -> SwitchPlan:
    if planned.record is None and not isinstance(planned, CarryFirstPlan):
        return planned
    commands = settings.of(SWITCH)
    if why := find_missing_command(commands):
        return replace(planned, record=None, refused=RefusedError("switch.command-missing", cause=why))
    none = {
        deed
        for deed, command in ((SwitchStep.BEFORE, commands.before), (SwitchStep.AFTER, commands.after))
        if not command
    }
    steps = tuple(step for step in planned.steps if step.deed not in none)
    return replace(planned, steps=steps, remarks=(*planned.remarks, *describe_commands(commands)))


def _planned(asked: SwitchPlanRequest, settings: Settings, store: Store, by: str) -> SwitchPlan:
    if asked.bare:
        return without_data.plan(asked, settings, store, by=by)
    if asked.producer:
        return one_producer.plan(asked, settings, store)
    if asked.of and (asked.topics or asked.wave or asked.group):
        raise ConfigError("switch.of-names-topics")
    if asked.of:
        asked = replace(asked, topics=waves.topics_moved_by(store, asked.of))
    if asked.wave:
        return waves.plan(asked, settings, store, by=by)
    if asked.group:
        return one_group.plan(asked, settings, store, by=by)
    if not asked.topics:
        raise ConfigError("switch.nothing-to-switch")
    return carrying.plan(asked, settings, store) or plan.plan(asked, settings, store, by=by)


def run_switch_plan(planned: SwitchPlan, settings: Settings, store: Store, asking: SwitchCaller) -> SwitchView:
    """Returns the switch at the end; of waves, the last that began."""
    if isinstance(planned, WavesPlan):
        return waves.run(planned, settings, store, asking)
    if isinstance(planned, CarryFirstPlan) and not planned.refused:
        planned = add_commands(carrying.carry_and_plan(planned, settings, store, asking), settings)
        for line in (*planned.shown, *planned.remarks):
            asking.tell(line)
    return run.run_switch(planned, settings, store, asking)
