"""Moves all topics of a link in waves: planned together, run one by one, stopped when one rolls back."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, replace

from twinshore.config.errors import ConfigError, RefusedError
from twinshore.config.sentences import count_phrase, join_names
from twinshore.config.settings import Settings
from twinshore.groups.offset_move import links_between
from twinshore.groups.view import view_groups
from twinshore.state.store import Store
from twinshore.switch.core.steps import SwitchKind, Wave, WaveProgress, find_wave_plans, split_into_waves
from twinshore.switch.operations import plan as planning
from twinshore.switch.operations.plan import SwitchPlan, SwitchPlanRequest
from twinshore.switch.operations.run import SwitchCaller, run_switch
from twinshore.switch.operations.run import resume as resume_switch
from twinshore.switch.operations.show import SwitchView, find_switch, list_switches

NAMED_MAX = 3
ALL_TOPICS = ".*"


@dataclass(frozen=True, slots=True)
class WavesPlan(SwitchPlan):
    """`waves`: topics by wave. `record`: a state with all topics, which is not run."""

    request: SwitchPlanRequest | None = None
    waves: tuple[Wave, ...] = ()


def plan(request: SwitchPlanRequest, settings: Settings, store: Store, *, by: str = "") -> WavesPlan:
    """Plans all topics that one link replicates to `asked.to`: an obstacle for one refuses all."""
    if request.topics or request.group:
        raise ConfigError("switch.all-or-topics")
    if request.wave < 1:
        raise ConfigError("switch.bad-wave")
    whole = planning.plan(replace(request, topics=[ALL_TOPICS]), settings, store, by=by)
    if whole.state is None:
        return WavesPlan(shown=whole.shown, refusal=whole.refusal)
    state = whole.state
    shared: list[set[str]] = []
    if not request.force:
        links = [one for one in links_between(settings, store, state.old, state.new) if one.name == state.link]
        groups = [view for link in links for view in view_groups(link, settings, store)]
        shared = [{partition.topic for partition in view.parts} for view in groups]
    waves = split_into_waves(state.names(), shared, request.wave)
    shown = [*whole.shown, f"in {count_phrase(len(waves), 'wave')}, one after the other, until one turns back:"]
    for number, wave in enumerate(waves, 1):
        large = "; groups read them together" if len(wave) > request.wave else ""
        shown.append(f"  wave {number}: {count_phrase(len(wave), 'topic')}: {join_names(wave, NAMED_MAX)}{large}")
    steps, remarks = whole.steps, whole.remarks
    return WavesPlan(steps, tuple(shown), remarks, state=state, alive=whole.alive, request=request, waves=waves)


def run(planned: WavesPlan, settings: Settings, store: Store, caller: SwitchCaller) -> SwitchView:
    """Returns the last wave that began, at the end."""
    if planned.state is None or planned.request is None:
        raise planned.refusal or ConfigError("switch.nothing-to-switch")
    return _go_on(planned.request, secrets.token_hex(16), 1, planned.waves, settings, store, caller)


def resume(asked: str, settings: Settings, store: Store, caller: SwitchCaller) -> SwitchView:
    """Resumes a switch whose process is gone, and the waves after it."""
    waves = find_unfinished_waves(store, asked)
    if waves is None:
        ended = resume_switch(asked, settings, store, caller)
        last = ended.state
    else:
        last, ended = waves.last, SwitchView(waves.last.id, waves.last)
    if not last.left or not ended.done:
        return ended
    links, force = (last.link,) if last.link else (), last.kind is SwitchKind.FORCED
    again = SwitchPlanRequest((), last.new, links, force, hold_s=last.hold_s_max)
    return _go_on(again, last.plan, last.wave + 1, last.left, settings, store, caller)


def find_unfinished_waves(store: Store, asked: str = "") -> WaveProgress | None:
    """Returns the plan that stopped between two waves, if no switch is open. `asked`: begin of the plan's id or of the
    last switch's; if empty, the newest.
    """
    found = list_switches(store)
    if any(not view.state.ended and view.id.startswith(asked) for view in found):
        return None
    for plan in find_wave_plans(view.state for view in found):
        if plan.last.ended and not plan.over and (plan.id.startswith(asked) or plan.last.id.startswith(asked)):
            return plan
    return None


def describe_waves(store: Store) -> list[str]:
    plans = find_wave_plans(view.state for view in list_switches(store))
    return [plan.sentence() for plan in plans if not plan.over or (plan is plans[0] and plan.left)]


def topics_moved_by(store: Store, asked: str) -> list[str]:
    plans = find_wave_plans(view.state for view in list_switches(store))
    found = [plan for plan in plans if plan.id.startswith(asked)]
    names = found[0].moved if len(found) == 1 else find_switch(store, asked).state.names()
    if not names:
        raise RefusedError("switch.moved-nothing", switch=asked)
    return [re.escape(name) for name in names]


def _go_on(
    request: SwitchPlanRequest,
    plan_id: str,
    first: int,
    waves: tuple[Wave, ...],
    settings: Settings,
    store: Store,
    caller: SwitchCaller,
) -> SwitchView:
    ended: SwitchView | None = None
    for number, wave in enumerate(waves, first):
        left = waves[number - first + 1 :]
        topics = [re.escape(topic) for topic in wave]
        plan = planning.plan(replace(request, topics=topics), settings, store, by=caller.by)
        behind = f"; {count_phrase(len(left), 'wave')} behind it did not begin" if left else ""
        if plan.state is None:
            refusal = plan.refusal or ConfigError("switch.nothing-to-switch")
            raise RefusedError("switch.wave-refused", wave=number, cause=refusal.message, left=behind)
        caller.tell(f"wave {number} of {first + len(waves) - 1}: {join_names(wave, NAMED_MAX)}")
        state = replace(plan.state, plan=plan_id, wave=number, left=left)
        ended = run_switch(replace(plan, state=state), settings, store, caller)
        if not ended.done:
            caller.tell(f"stopped at wave {number}{behind}")
            return ended
        caller.tell(ended.verdict())
    if ended is None:
        raise ConfigError("switch.nothing-to-switch")
    return ended
