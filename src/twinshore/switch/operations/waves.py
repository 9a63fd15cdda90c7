"""All topics of a link move in waves: planned together, run one after the other, stopped where one turns back."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, replace

from twinshore.config.errors import ConfigError, RefusedError
from twinshore.config.sentences import counted, listed
from twinshore.config.settings import Settings
from twinshore.groups.offset_move import links_between
from twinshore.groups.view import look
from twinshore.state.store import Store
from twinshore.switch.core.steps import Kind, Wave, Waves, as_wave, plans_in, waves_of
from twinshore.switch.operations import plan as planning
from twinshore.switch.operations.plan import Switch, SwitchPlan
from twinshore.switch.operations.run import Asking, run_switch
from twinshore.switch.operations.run import resume as resume_switch
from twinshore.switch.operations.show import Shown, one_switch, switches

NAMED_MAX = 3
ALL = ".*"


@dataclass(frozen=True, slots=True)
class WavesPlan(SwitchPlan):
    """`waves` of topics; `record` is of all of them at once, and is not run."""

    asked: Switch | None = None
    waves: tuple[Wave, ...] = ()


def plan(asked: Switch, settings: Settings, store: Store, *, by: str = "") -> WavesPlan:
    """Of all topics that one link carries to `asked.to`: what stands in the way of any of them refuses all."""
    if asked.topics or asked.group:
        raise ConfigError("--all means all topics of a link", hint="leave topics and --group out")
    if asked.wave < 1:
        raise ConfigError("--wave takes how many topics move at once, 1 or more")
    whole = planning.plan(replace(asked, topics=[ALL]), settings, store, by=by)
    if whole.record is None:
        return WavesPlan(shown=whole.shown, refused=whole.refused)
    record = whole.record
    shared: list[set[str]] = []
    if asked.kind is not Kind.FORCED:
        links = [one for one in links_between(settings, store, record.old, record.new) if one.name == record.link]
        shared = [{part.topic for part in view.parts} for link in links for view in look(link, settings, store)]
    waves = waves_of(record.names(), shared, asked.wave)
    shown = [*whole.shown, f"in {counted(len(waves), 'wave')}, one after the other, until one turns back:"]
    for number, wave in enumerate(waves, 1):
        large = "; groups read them together" if len(wave) > asked.wave else ""
        shown.append(f"  wave {number}: {counted(len(wave), 'topic')}: {listed(wave, NAMED_MAX)}{large}")
    steps, remarks = whole.steps, whole.remarks
    return WavesPlan(steps, tuple(shown), remarks, record=record, alive=whole.alive, asked=asked, waves=waves)


def run(planned: WavesPlan, settings: Settings, store: Store, asking: Asking) -> Shown:
    """The last wave that was begun, as it ended."""
    if planned.record is None or planned.asked is None:
        raise planned.refused or ConfigError("nothing is to be switched")
    return _go_on(planned.asked, secrets.token_hex(16), 1, planned.waves, settings, store, asking)


def resume(asked: str, settings: Settings, store: Store, asking: Asking) -> Shown:
    """Goes on with a switch whose process is no more, and with the waves that are left behind it."""
    waves = waves_left(store, asked)
    if waves is None:
        ended = resume_switch(asked, settings, store, asking)
        last = ended.record
    else:
        last, ended = waves.last, Shown(waves.last.id, waves.last)
    if not last.left or not ended.done:
        return ended
    again = Switch((), last.new, last.kind, (last.link,) if last.link else (), last.hold_s_max)
    return _go_on(again, last.plan, last.wave + 1, last.left, settings, store, asking)


def waves_left(store: Store, asked: str = "") -> Waves | None:
    """The plan that was left between two waves, where no switch is open: by the first letters of its id or of its last
    switch's, or without a word the newest one."""
    found = switches(store)
    if any(not one.record.ended and one.id.startswith(asked) for one in found):
        return None
    plans = [one for one in plans_in(one.record for one in found) if not one.over and one.last.ended]
    return next((one for one in plans if one.id.startswith(asked) or one.last.id.startswith(asked)), None)


def waves_now(store: Store) -> list[str]:
    """What is to be said of plans of waves: those that are under way or owed, and the newest where it fell."""
    plans = plans_in(one.record for one in switches(store))
    return [one.sentence() for number, one in enumerate(plans) if not one.over or (number == 0 and one.left)]


def moved_by(store: Store, asked: str) -> list[str]:
    """Expressions for the topics that a switch, or a whole plan of waves, has moved."""
    found = [one for one in plans_in(one.record for one in switches(store)) if one.id.startswith(asked)]
    names = found[0].moved if len(found) == 1 else one_switch(store, asked).record.names()
    if not names:
        raise RefusedError(f"{asked} has moved no topic", hint="`twinshore switch history` lists switches")
    return [re.escape(name) for name in names]


def _go_on(
    asked: Switch, plan_id: str, first: int, waves: tuple[Wave, ...], settings: Settings, store: Store, asking: Asking
) -> Shown:
    ended: Shown | None = None
    for number, wave in enumerate(waves, first):
        left = waves[number - first + 1 :]
        topics = [re.escape(topic) for topic in wave]
        one = planning.plan(replace(asked, topics=topics), settings, store, by=asking.by)
        behind = f"; {counted(len(left), 'wave')} behind it did not begin" if left else ""
        if one.record is None:
            why = one.refused.message if one.refused else "nothing is to be switched"
            raise RefusedError(f"wave {number} is refused: {why}{behind}", hint="run it again once that is mended")
        asking.tell(f"wave {number} of {first + len(waves) - 1}: {listed(wave, NAMED_MAX)}")
        record = as_wave(one.record, plan_id, number, left)
        ended = run_switch(replace(one, record=record), settings, store, asking)
        if not ended.done:
            asking.tell(f"stopped at wave {number}{behind}")
            return ended
        asking.tell(ended.verdict())
    if ended is None:
        raise ConfigError("nothing is to be switched")
    return ended
