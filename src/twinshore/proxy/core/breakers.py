"""Circuit breakers and traffic alarms of a process.

A circuit breaker cuts a topic, or a client's use of it, without the knowledge of brokers or clients. `session` applies
breakers; their state is here.

A breaker opens by itself when a limit is exceeded for some time, and closes once all values stay below half of the
limits for longer. So a rate near the limit does not make it flap.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final, NamedTuple, TypeAlias

from twinshore.config.sections.proxy import AlarmSection
from twinshore.proxy.core.model import RESPONSE_TIMEOUT_S
from twinshore.proxy.core.traffic import CLIENT_ID_CHARS_MAX, get_tail_latency_ms
from twinshore.routing.core.subscribers import pattern_matches
from twinshore.state.core.proxy_values import (
    LATENCY_BUCKETS_MS,
    OTHER_NAMES,
    WILDCARD_SUFFIX,
    BreakerKey,
    BreakerKind,
    BreakerLimits,
    BreakerRow,
    BreakerState,
    TrafficCounter,
    TrafficKey,
)

# Of a limit: a tripped breaker counts as quiet only below this.
QUIET_FRACTION: Final = 0.5
# Clients counted separately in the dropped records of a topic; others are counted together.
CLIENTS_PER_TOPIC_MAX: Final = 1000
OTHER_CLIENTS: Final = "*"
# Limits what is remembered of freely chosen names.
_KNOWN_MAX: Final = 20_000
_GAPS_MAX: Final = 100_000
NAME_SIMILARITY_MIN: Final = 0.7


class DemandRate(NamedTuple):
    """What clients asked for in the last interval, granted or not. `latency_ms`: the slowest response, or 0."""

    records_s: float = 0.0
    bytes_s: float = 0.0
    latency_ms: float = 0.0


class TripState(NamedTuple):
    """Whether a breaker is tripped. `since_s`: since when the condition to change holds, if it does."""

    tripped: bool = False
    since_s: float | None = None


def update_trip_state(gauge: TripState, limits: BreakerLimits, rate: DemandRate, now_s: float) -> TripState:
    """Returns the next state.

    While tripped, brokers are not asked. So a breaker with a latency limit closes after the quiet time, and trips again
    if the broker is still slow.
    """
    turns = get_limit_usage(limits, rate) < QUIET_FRACTION if gauge.tripped else get_limit_usage(limits, rate) > 1
    return advance_trip_state(gauge, limits, now_s, turns=turns)


def advance_trip_state(gauge: TripState, limits: BreakerLimits, now_s: float, *, turns: bool) -> TripState:
    """Returns the next state, which changes once `turns` has held long enough."""
    if not turns:
        return TripState(gauge.tripped)
    since_s = now_s if gauge.since_s is None else gauge.since_s
    lasts_s = limits.quiet_s if gauge.tripped else limits.above_s
    return TripState(not gauge.tripped) if now_s - since_s >= lasts_s else TripState(gauge.tripped, since_s)


def get_limit_usage(limits: BreakerLimits, rate: DemandRate) -> float:
    """Returns the highest ratio of a rate to its limit."""
    pairs = zip((limits.records_s, limits.bytes_s, limits.latency_ms), rate, strict=True)
    return max((found / limit for limit, found in pairs if limit), default=0.0)


class PartitionProducer(NamedTuple):
    topic: str
    partition: int
    producer_id: int
    epoch: int


@dataclass(slots=True)
class BreakerCounts:
    requests: int = 0
    records: int = 0
    bytes: int = 0


@dataclass(slots=True)
class DroppedRecords:
    """Records of one client dropped since its breaker opened."""

    breaker: str
    since_ms: int
    until_ms: int
    partitions: set[int] = field(default_factory=set)
    records: int = 0
    bytes: int = 0


@dataclass(slots=True)
class _Meter:
    gauge: TripState = field(default_factory=TripState)
    records: int = 0
    bytes: int = 0
    slowest_ms: float = 0.0


# The breaker that cuts a topic and client, and the meters.
_Judged: TypeAlias = tuple[BreakerRow | None, tuple[_Meter, ...]]


class CircuitBreakers:
    """The circuit breakers of a process.

    `revision`: of those in force. `now_s`, `now_ms`: monotonic and wall time of the last `tick`. `looks`: kinds with an
    open breaker or limits; `times`: whether latency is measured. `ended`: drops of closed breakers, not in the store
    yet. `gaps`: producers with dropped batches, whose sequences have gaps at brokers. `known`: breakers were read from
    store or memory file, or there is no store.
    """

    def __init__(self) -> None:
        self.revision, self.known = 0, False
        self.now_s, self.now_ms = 0.0, 0
        self.looks: frozenset[BreakerKind] = frozenset()
        self.times = False
        self.tallies: dict[BreakerKey, BreakerCounts] = {}
        self.drops: dict[tuple[str, str], DroppedRecords] = {}
        self.ended: list[tuple[str, str, DroppedRecords]] = []
        self.gaps: dict[PartitionProducer, None] = {}
        self._rows: tuple[BreakerRow, ...] = ()
        self._meters: dict[BreakerKey, _Meter] = {}
        self.open: frozenset[BreakerKey] = frozenset()
        self._known: dict[tuple[BreakerKind, str, str], _Judged] = {}
        self._ticked_s: float | None = None
        self._since_ms = 0

    def take(self, rows: Sequence[BreakerRow], revision: int) -> None:
        """Replace the breakers."""
        self.revision, self._rows, self.known = revision, tuple(rows), True
        self._meters = {row.key: self._meters.get(row.key, _Meter()) for row in rows if row.limits.any}
        for row in rows:
            self.tallies.setdefault(row.key, BreakerCounts())
        self._judge_again()

    def tick(self, now_s: float, now_ms: int) -> None:
        """Set the time: breakers may open or close."""
        took_s = now_s - self._ticked_s if self._ticked_s is not None else 0.0
        self.now_s, self.now_ms, self._ticked_s = now_s, now_ms, now_s
        if took_s > 0:
            for row in self._rows:
                if (meter := self._meters.get(row.key)) is not None:
                    rate = DemandRate(meter.records / took_s, meter.bytes / took_s, meter.slowest_ms)
                    meter.gauge = update_trip_state(meter.gauge, row.limits, rate, now_s)
                    meter.records = meter.bytes = 0
                    meter.slowest_ms = 0.0
        if self.open != self._open_now():
            self._judge_again()

    def tripped(self, key: BreakerKey) -> bool:
        """Whether limits have opened the breaker."""
        return key in self._meters and self._meters[key].gauge.tripped

    def all_tripped(self) -> set[BreakerKey]:
        return {key for key, meter in self._meters.items() if meter.gauge.tripped}

    def _open_now(self) -> frozenset[BreakerKey]:
        return frozenset(row.key for row in self._rows if self._is_open(row))

    def _is_open(self, row: BreakerRow) -> bool:
        by_hand = row.state is BreakerState.OPEN and (not row.until_ms or self.now_ms < row.until_ms)
        return by_hand or self.tripped(row.key)

    def _judge_again(self) -> None:
        self.open = self._open_now()
        self.looks = frozenset(row.kind for row in self._rows if row.key in self.open or row.limits.any)
        self.times = any(row.limits.latency_ms for row in self._rows)
        self._known.clear()
        for (topic, client), dropped in list(self.drops.items()):
            row = self._cut_by(BreakerKind.PRODUCE, topic, client)
            others = client == OTHER_CLIENTS and any(key[0] == dropped.breaker for key in self.open)
            if not others and (row is None or row.topic != dropped.breaker):
                del self.drops[topic, client]
                self.ended.append((topic, client, dropped))

    def _cut_by(self, kind: BreakerKind, topic: str, client: str) -> BreakerRow | None:
        ours = [row for row in self._rows if row.key in self.open and _means(row, kind, topic, client)]
        return min(ours, key=_widest, default=None)

    def _judged(self, kind: BreakerKind, topic: str, client: str) -> _Judged:
        found = self._known.get((kind, topic, client))
        if found is None:
            measures = (row for row in self._rows if row.limits.any and _means(row, kind, topic, client))
            meters = tuple(self._meters[row.key] for row in measures)
            found = self._cut_by(kind, topic, client), meters
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known[kind, topic, client] = found
        return found

    def cut(self, kind: BreakerKind, topic: str, client: str) -> BreakerRow | None:
        """Returns the open breaker that names client and topic most closely, if any."""
        return self._judged(kind, topic, client)[0] if kind in self.looks else None

    def wants(self, kind: BreakerKind, topic: str, client: str, records: int, size: int) -> None:
        """Add a client's demand."""
        for meter in self._judged(kind, topic, client)[1]:
            meter.records += records
            meter.bytes += size

    def waited(self, kind: BreakerKind, topics: Iterable[str], client: str, took_ms: float) -> None:
        """Add a broker's response time."""
        for topic in topics:
            for meter in self._judged(kind, topic, client)[1]:
                meter.slowest_ms = max(meter.slowest_ms, took_ms)

    def answered(self, row: BreakerRow, requests: int, records: int, size: int) -> None:
        """Count what was answered in place of the broker."""
        tally = self.tallies.setdefault(row.key, BreakerCounts())
        tally.requests += requests
        tally.records += records
        tally.bytes += size

    def dropped(self, row: BreakerRow, topic: str, client: str, partition: int, records: int, size: int) -> None:
        """Record dropped records, which the client takes for written."""
        client = client[:CLIENT_ID_CHARS_MAX]
        if (topic, client) not in self.drops and sum(name == topic for name, _ in self.drops) >= CLIENTS_PER_TOPIC_MAX:
            client = OTHER_CLIENTS
        dropped = self.drops.get((topic, client))
        if dropped is None:
            self._since_ms = max(self.now_ms, self._since_ms + 1)  # distinguishes rows in the store
            dropped = self.drops[topic, client] = DroppedRecords(row.topic, self._since_ms, self._since_ms)
        dropped.partitions.add(partition)
        dropped.records += records
        dropped.bytes += size
        dropped.until_ms = max(dropped.since_ms, self.now_ms)

    def gap(self, writer: PartitionProducer) -> None:
        """Note a dropped batch of this producer."""
        self.gaps[writer] = None
        if len(self.gaps) > _GAPS_MAX:
            del self.gaps[next(iter(self.gaps))]


def _means(row: BreakerRow, kind: BreakerKind, topic: str, client: str) -> bool:
    return row.kind is kind and pattern_matches(row.topic, topic) and pattern_matches(row.client, client)


def _widest(row: BreakerRow) -> tuple[bool, int, bool, int]:
    """Sort whole names before prefixes, long before short, the client first."""
    return row.client.endswith(WILDCARD_SUFFIX), -len(row.client), row.topic.endswith(WILDCARD_SUFFIX), -len(row.topic)


def describe_unknown_name(what: str, named: str, known: Collection[str], lately: str) -> str:
    """Returns that no such `what` was seen `lately`, with a suggestion. Empty if one was, or nothing is known."""
    if not known or any(pattern_matches(named, one) for one in known):
        return ""
    near = get_close_matches(named.rstrip("*"), sorted(known), n=1, cutoff=NAME_SIMILARITY_MIN)
    meant = f": is it {near[0]}?" if near else ""
    return f"no {what} {named} went through a proxy {lately}{meant}"


# For responses beyond the last bucket.
_BEYOND_MS = LATENCY_BUCKETS_MS[-1] * 2


class AlarmChange(NamedTuple):
    name: str
    stands: bool
    sentence: str


class TrafficAlarms:
    """Alarms for traffic above or below a bound for long enough.

    An alarm stays while a decisive response is due. Flows that are not told apart do not count.
    """

    def __init__(self, asked: Sequence[tuple[str, AlarmSection]]) -> None:
        self._asked: Mapping[str, AlarmSection] = {}
        self._silent: dict[str, tuple[float, float]] = {}  # since when, and when something was sent last
        self._gauges: dict[str, TripState] = {}
        self.ask(asked)

    def ask(self, asked: Sequence[tuple[str, AlarmSection]]) -> None:
        """Measure by these from now on. An alarm that is the same as before goes on; others begin again."""
        same = {name for name, section in asked if self._asked.get(name) == section}
        self._asked = dict(asked)
        self._silent = {name: when for name, when in self._silent.items() if name in same}
        self._gauges = {name: self._gauges[name] if name in same else TripState() for name in self._asked}

    @property
    def standing(self) -> dict[str, bool]:
        """Whether each alarm is on."""
        return {name: gauge.tripped for name, gauge in self._gauges.items()}

    def place_of(self, key: TrafficKey) -> TrafficKey | None:
        """Returns the key under which alarms need this flow, with `*` for what they do not tell apart; None if no alarm
        does.
        """
        about = [section for section in self._asked.values() if section.kind == key.kind and _is_about(section, key)]
        if not about:
            return None
        client = OTHER_NAMES if all(section.client == WILDCARD_SUFFIX for section in about) else key.client
        topic = OTHER_NAMES if all(section.topic == WILDCARD_SUFFIX for section in about) else key.topic
        return key._replace(client=client, topic=topic)

    def look(
        self, grown: Iterable[tuple[TrafficKey, TrafficCounter]], lasted_s: float, now_s: float
    ) -> list[AlarmChange]:
        """Take a window, and return the alarms that changed."""
        flows = list(grown)
        found = []
        for name, section in self._asked.items():
            before, counter = self._gauges[name], _sum(section, flows)
            silent_s = self._silent_for(name, counter, now_s)
            rates = _rates(counter, lasted_s, silent_s)
            steps = {_step(before, section, rate, now_s) for rate in rates}
            # Unknown: how late a due response will be.
            now = self._gauges[name] = steps.pop() if len(steps) == 1 else before
            if now.tripped is not before.tripped:
                said = _sentence(name, section, rates[0], stands=now.tripped, is_silent=silent_s is not None)
                found.append(AlarmChange(name, now.tripped, said))
        return found

    def _silent_for(self, name: str, counter: TrafficCounter, now_s: float) -> float | None:
        """Returns for how many seconds, at least, a response is due at the end of a window; None if none is.

        Requests without acks do not count. Once clients send nothing more they may have given up, so a response stays
        due only within its timeout.
        """
        if counter.answered:
            self._silent.pop(name, None)
            return None
        first_s, last_s = self._silent.get(name, (now_s, -math.inf))
        if counter.requests > counter.acks_none:
            self._silent[name] = first_s, now_s
            return now_s - first_s
        if now_s - last_s < 2 * RESPONSE_TIMEOUT_S:
            return 0.0
        self._silent.pop(name, None)
        return None


def _is_about(section: AlarmSection, key: TrafficKey) -> bool:
    return pattern_matches(section.topic, key.topic) and pattern_matches(section.client, key.client)


def _sum(section: AlarmSection, grown: Sequence[tuple[TrafficKey, TrafficCounter]]) -> TrafficCounter:
    whole = TrafficCounter()
    for key, counter in grown:
        if key.kind == section.kind and _is_about(section, key):
            whole.add(counter)
    return whole


def _rates(counter: TrafficCounter, lasted_s: float, silent_s: float | None) -> list[DemandRate]:
    """Returns possible rates: a due response may take any time from now."""
    if counter.answered:
        found: tuple[float, ...] = (get_tail_latency_ms(counter.latency) or _BEYOND_MS,)
    else:
        found = (0.0,) if silent_s is None else (silent_s * 1000, math.inf)
    return [DemandRate(counter.records / lasted_s, counter.bytes / lasted_s, latency_ms) for latency_ms in found]


def _step(gauge: TripState, section: AlarmSection, rate: DemandRate, now_s: float) -> TripState:
    limits = BreakerLimits(
        section.above_records_s, section.above_bytes_s, section.latency_ms, section.for_s, section.quiet_s
    )
    low = rate.records_s < section.below_records_s or rate.bytes_s < section.below_bytes_s
    most = get_limit_usage(limits, rate)
    turns = not low and most < QUIET_FRACTION if gauge.tripped else low or most > 1
    return advance_trip_state(gauge, limits, now_s, turns=turns)


def _sentence(name: str, section: AlarmSection, rate: DemandRate, *, stands: bool, is_silent: bool) -> str:
    clients = "" if section.client == "*" else f" for clients {section.client}"
    measured = f"{rate.bytes_s:,.0f} bytes/s"
    if section.kind == "produce":
        measured += f", {rate.records_s:,.0f} records/s, "
        measured += f"{'without an answer for' if is_silent else 'answered within'} {rate.latency_ms:,.0f} ms"
    what = f"alarm {name} stands" if stands else f"alarm {name} is over"
    return f"{what}: {section.kind} of {section.topic}{clients}: {measured}"
