"""Plans and runs any kind of switch."""

from __future__ import annotations

from dataclasses import replace

from twinshore.config.errors import ConfigError, RefusedError
from twinshore.config.sections.switch import SECTION as SWITCH
from twinshore.config.settings import Settings
from twinshore.state.store import Store
from twinshore.switch.core.steps import SwitchStep
from twinshore.switch.drain import describe_commands, find_missing_command
from twinshore.switch.operations import carrying, one_client, plan, run, waves, without_data
from twinshore.switch.operations.carrying import CarryFirstPlan
from twinshore.switch.operations.plan import SwitchPlan, SwitchPlanRequest
from twinshore.switch.operations.run import SwitchCaller
from twinshore.switch.operations.show import SwitchView
from twinshore.switch.operations.waves import WavesPlan


def plan_switch(request: SwitchPlanRequest, settings: Settings, store: Store, *, by: str = "") -> SwitchPlan:
    """Returns the plan, with obstacles as `refused`. Raises ConfigError if the request matches nothing."""
    plan = _planned(request, settings, store, by)
    if plan.state is not None and (request.force or request.wave) and not (request.bare or request.group):
        left = carrying.describe_left_out(request, settings, store, answers=bool(plan.alive) or not request.force)
        plan = replace(plan, remarks=(*plan.remarks, *filter(None, (left,))))
    return plan if request.drill else add_commands(plan, settings)


def add_commands(plan: SwitchPlan, settings: Settings) -> SwitchPlan:
    if plan.state is None and not isinstance(plan, CarryFirstPlan):
        return plan
    commands = settings.of(SWITCH)
    if why := find_missing_command(commands):
        return replace(plan, state=None, refusal=RefusedError("switch.command-missing", cause=why))
    configured = {SwitchStep.BEFORE: commands.before, SwitchStep.AFTER: commands.after}
    steps = tuple(step for step in plan.steps if configured.get(step, True))
    return replace(plan, steps=steps, remarks=(*plan.remarks, *describe_commands(commands)))


def _planned(request: SwitchPlanRequest, settings: Settings, store: Store, by: str) -> SwitchPlan:
    if request.bare:
        return without_data.plan(request, settings, store, by=by)
    if request.producer:
        return one_client.plan_producer(request, settings, store)
    if request.of and (request.topics or request.wave or request.group):
        raise ConfigError("switch.of-names-topics")
    if request.of:
        request = replace(request, topics=waves.topics_moved_by(store, request.of))
    if request.wave:
        return waves.plan(request, settings, store, by=by)
    if request.group:
        return one_client.plan_group(request, settings, store, by=by)
    if not request.topics:
        raise ConfigError("switch.nothing-to-switch")
    return carrying.plan(request, settings, store) or plan.plan(request, settings, store, by=by)


def run_switch_plan(plan: SwitchPlan, settings: Settings, store: Store, caller: SwitchCaller) -> SwitchView:
    """Returns the switch at the end; of waves, the last that began."""
    if isinstance(plan, WavesPlan):
        return waves.run(plan, settings, store, caller)
    if isinstance(plan, CarryFirstPlan) and not plan.refusal:
        plan = add_commands(carrying.carry_and_plan(plan, settings, store, caller), settings)
        for line in (*plan.shown, *plan.remarks):
            caller.tell(line)
    return run.run_switch(plan, settings, store, caller)
