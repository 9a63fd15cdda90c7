"""What is to be told of what goes through: above or below a bound for long enough, as fuses trip. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from twinshore.fleet.settings.sections.proxy import AlarmSection
from twinshore.proxy.core.fuses import QUIET_PART, Gauge, Rate, matches, most_of, turned
from twinshore.proxy.core.moves import ANSWER_S
from twinshore.proxy.core.viewed import tail_ms
from twinshore.store.proxy_values import EVERY, Limits
from twinshore.store.traffic_values import LATENCY_MS, OTHERS, Flow, FlowKey

# Of answers that took longer than the last bucket tells.
_BEYOND_MS = LATENCY_MS[-1] * 2


class Turned(NamedTuple):
    """An alarm that stands now, or does no longer."""

    name: str
    stands: bool
    sentence: str


class Alarms:
    """Those of a process. `standing`: by name. While flows that are not told apart could have made another alarm of it,
    an alarm stays as it is, and so it does while it is about answers and none has come."""

    def __init__(self, asked: Sequence[tuple[str, AlarmSection]]) -> None:
        self._asked = dict(asked)
        self._silent: dict[str, tuple[float, float]] = {}  # since when, and when something was sent last
        self._gauges = {name: Gauge() for name in self._asked}

    @property
    def standing(self) -> dict[str, bool]:
        """Whether each stands."""
        return {name: gauge.tripped for name, gauge in self._gauges.items()}

    def place_of(self, key: FlowKey) -> FlowKey | None:
        """As what this flow must be counted where there is no room for all: what no alarm tells apart is `*` in it.
        None where no alarm is about it."""
        about = [one for one in self._asked.values() if one.kind == key.kind and _is_about(one, key)]
        if not about:
            return None
        client = OTHERS if all(one.client == EVERY for one in about) else key.client
        topic = OTHERS if all(one.topic == EVERY for one in about) else key.topic
        return key._replace(client=client, topic=topic)

    def look(self, grown: Iterable[tuple[FlowKey, Flow]], lasted_s: float, now_s: float) -> list[Turned]:
        """One more window has ended: which alarms have turned."""
        flows = list(grown)
        found = []
        for name, asked in self._asked.items():
            before, known = self._gauges[name], _sum(asked, flows)
            silent_s = self._silent_for(name, known, now_s)
            most = _sum(asked, flows, with_others=True)
            rates = [*_rates(known, lasted_s, silent_s), *_rates(most, lasted_s, silent_s)]
            steps = {_step(before, asked, rate, now_s) for rate in rates}
            # Nobody knows whose the others are, nor how late an answer will be that is not there yet.
            now = self._gauges[name] = steps.pop() if len(steps) == 1 else before
            if now.tripped is not before.tripped:
                said = _sentence(name, asked, rates[0], stands=now.tripped, is_silent=silent_s is not None)
                found.append(Turned(name, now.tripped, said))
        return found

    def _silent_for(self, name: str, flow: Flow, now_s: float) -> float | None:
        """For how long at least brokers owe an answer, as of the end of a window; None where they owe none, or it has
        come. Requests of whoever waits for no answer are none. Where nothing more is sent nobody knows whether they
        were given up: then they are late for no longer than they may be."""
        if flow.answered:
            self._silent.pop(name, None)
            return None
        first_s, last_s = self._silent.get(name, (now_s, -math.inf))
        if flow.requests > flow.acks_none:
            self._silent[name] = first_s, now_s
            return now_s - first_s
        if now_s - last_s < 2 * ANSWER_S:
            return 0.0
        self._silent.pop(name, None)
        return None


def _is_about(asked: AlarmSection, key: FlowKey) -> bool:
    return matches(asked.topic, key.topic) and matches(asked.client, key.client)


def _sum(asked: AlarmSection, grown: Sequence[tuple[FlowKey, Flow]], *, with_others: bool = False) -> Flow:
    """What the alarm is about. `with_others`: as if all that is not told apart were meant."""
    whole = Flow()
    for key, flow in grown:
        is_others = key.client == key.topic == OTHERS
        if key.kind == asked.kind and (_is_about(asked, key) or (with_others and is_others)):
            whole.add(flow)
    return whole


def _rates(flow: Flow, lasted_s: float, silent_s: float | None) -> list[Rate]:
    """What may have been: with an answer that is owed between how long it is owed and for ever."""
    if flow.answered:
        found: tuple[float, ...] = (tail_ms(flow.latency) or _BEYOND_MS,)
    else:
        found = (0.0,) if silent_s is None else (silent_s * 1000, math.inf)
    return [Rate(flow.records / lasted_s, flow.bytes / lasted_s, latency_ms) for latency_ms in found]


def _step(gauge: Gauge, asked: AlarmSection, rate: Rate, now_s: float) -> Gauge:
    limits = Limits(asked.above_records_s, asked.above_bytes_s, asked.latency_ms, asked.for_s, asked.quiet_s)
    low = rate.records_s < asked.below_records_s or rate.bytes_s < asked.below_bytes_s
    most = most_of(limits, rate)
    turns = not low and most < QUIET_PART if gauge.tripped else low or most > 1
    return turned(gauge, limits, now_s, turns=turns)


def _sentence(name: str, asked: AlarmSection, rate: Rate, *, stands: bool, is_silent: bool) -> str:
    clients = "" if asked.client == "*" else f" for clients {asked.client}"
    measured = f"{rate.bytes_s:,.0f} bytes/s"
    if asked.kind == "produce":
        measured += f", {rate.records_s:,.0f} records/s, "
        measured += f"{'without an answer for' if is_silent else 'answered within'} {rate.latency_ms:,.0f} ms"
    what = f"alarm {name} stands" if stands else f"alarm {name} is over"
    return f"{what}: {asked.kind} of {asked.topic}{clients}: {measured}"
