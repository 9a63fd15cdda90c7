"""Which fuses cut, whom, and what they answered: what all clients of a process share. Pure.

A fuse cuts a topic, or a client's use of it, without a word to brokers or clients' owners. `fused` is what becomes of
one request; here is what it goes by.

A fuse trips by itself where a limit was passed without a break for some time, and closes once all stayed below half of
the limits for longer: a rate that wavers about its limit does not have it flutter.

What is to be told of what goes through: above or below a bound for long enough, as fuses trip. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final, NamedTuple

from twinshore.config.sections.proxy import AlarmSection
from twinshore.proxy.core.model import RESPONSE_TIMEOUT_S
from twinshore.proxy.core.traffic import get_tail_latency_ms
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

# Of a limit: above it nothing that had tripped is quiet.
QUIET_FRACTION: Final = 0.5
# Clients that are told apart on the ledger of one topic; those beyond it are counted together.
CLIENTS_PER_TOPIC_MAX: Final = 1000
OTHER_CLIENTS: Final = "*"
CLIENT_ID_CHARS_MAX: Final = 255
# Of names that clients may choose freely no more are remembered.
_KNOWN_MAX: Final = 20_000
_GAPS_MAX: Final = 100_000
NAME_SIMILARITY_MIN: Final = 0.7


class DemandRate(NamedTuple):
    """What clients wanted within the last moment, whether they got it or not. `latency_ms`: of the broker's slowest
    answer then, 0 where it gave none."""

    records_s: float = 0.0
    bytes_s: float = 0.0
    latency_ms: float = 0.0


class TripState(NamedTuple):
    """`since_s`: since when what would change it has lasted, None where it does not."""

    tripped: bool = False
    since_s: float | None = None


def update_trip_state(gauge: TripState, limits: BreakerLimits, rate: DemandRate, now_s: float) -> TripState:
    """The gauge behind one more look. While it is tripped the broker answers nothing, so by latency it closes once the
    time of quiet is over, and trips again where the broker is as slow as before."""
    turns = get_limit_usage(limits, rate) < QUIET_FRACTION if gauge.tripped else get_limit_usage(limits, rate) > 1
    return advance_trip_state(gauge, limits, now_s, turns=turns)


def advance_trip_state(gauge: TripState, limits: BreakerLimits, now_s: float, *, turns: bool) -> TripState:
    """The gauge behind one more look, at which it seemed to turn, or not: it does once that has lasted."""
    if not turns:
        return TripState(gauge.tripped)
    since_s = now_s if gauge.since_s is None else gauge.since_s
    lasts_s = limits.quiet_s if gauge.tripped else limits.above_s
    return TripState(not gauge.tripped) if now_s - since_s >= lasts_s else TripState(gauge.tripped, since_s)


def get_limit_usage(limits: BreakerLimits, rate: DemandRate) -> float:
    """How much of the limit that is nearest."""
    both = (
        (limits.records_s, rate.records_s),
        (limits.bytes_s, rate.bytes_s),
        (limits.latency_ms, rate.latency_ms),
    )
    return max((found / limit for limit, found in both if limit), default=0.0)


class PartitionProducer(NamedTuple):
    """An idempotent producer in a partition."""

    topic: str
    partition: int
    producer_id: int
    epoch: int


@dataclass(slots=True)
class BreakerCounts:
    """What one fuse answered."""

    requests: int = 0
    records: int = 0
    bytes: int = 0


@dataclass(slots=True)
class DroppedRecords:
    """Records of one client that were dropped, since its fuse began to."""

    fuse: str
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


class _Judged(NamedTuple):
    """Of one topic and client: which fuse cuts, and which ones measure."""

    cuts: BreakerRow | None
    meters: tuple[_Meter, ...]


class CircuitBreakers:
    """`revision`: of the fuses as they are in force. `now_s` and `now_ms` are as of the last `tick`, on a clock that
    only goes forward and on the wall's. `looks`: the kinds of which some fuse cuts, or has something measured; `times`:
    whether how long brokers take is. `open`: those that cut. `ended`: drops whose fuse has closed, until they are on
    the ledger. `gaps`: producers of which something was dropped, so that brokers would miss numbers. `known`: whether
    a store, or the memory of one, said which there are; or there is no store."""

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
        """These fuses hold from now on."""
        self.revision, self._rows, self.known = revision, tuple(rows), True
        kept = {row.key: self._meters.get(row.key, _Meter()) for row in rows if row.limits.any}
        self._meters = kept
        for row in rows:
            self.tallies.setdefault(row.key, BreakerCounts())
        self._judge_anew()

    def tick(self, now_s: float, now_ms: int) -> None:
        """Some time has gone by: fuses may trip, or close."""
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
            self._judge_anew()

    def tripped(self, key: BreakerKey) -> bool:
        """Whether its limits have it cut."""
        return key in self._meters and self._meters[key].gauge.tripped

    def all_tripped(self) -> set[BreakerKey]:
        """Those that limits have cut just now."""
        return {key for key, meter in self._meters.items() if meter.gauge.tripped}

    def _open_now(self) -> frozenset[BreakerKey]:
        return frozenset(row.key for row in self._rows if self._is_open(row))

    def _is_open(self, row: BreakerRow) -> bool:
        by_hand = row.state is BreakerState.OPEN and (not row.until_ms or self.now_ms < row.until_ms)
        return by_hand or self.tripped(row.key)

    def _judge_anew(self) -> None:
        self.open = self._open_now()
        self.looks = frozenset(row.kind for row in self._rows if row.key in self.open or row.limits.any)
        self.times = any(row.limits.latency_ms for row in self._rows)
        self._known.clear()
        for (topic, client), drop in list(self.drops.items()):
            row = self._cut_by(BreakerKind.PRODUCE, topic, client)
            others = client == OTHER_CLIENTS and any(key[0] == drop.fuse for key in self.open)
            if not others and (row is None or row.topic != drop.fuse):
                del self.drops[topic, client]
                self.ended.append((topic, client, drop))

    def _cut_by(self, kind: BreakerKind, topic: str, client: str) -> BreakerRow | None:
        ours = [row for row in self._rows if row.key in self.open and _means(row, kind, topic, client)]
        return min(ours, key=_widest, default=None)

    def _judged(self, kind: BreakerKind, topic: str, client: str) -> _Judged:
        found = self._known.get((kind, topic, client))
        if found is None:
            measures = (row for row in self._rows if row.limits.any and _means(row, kind, topic, client))
            meters = tuple(self._meters[row.key] for row in measures)
            found = _Judged(self._cut_by(kind, topic, client), meters)
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known[kind, topic, client] = found
        return found

    def cut(self, kind: BreakerKind, topic: str, client: str) -> BreakerRow | None:
        """The fuse that cuts this client off from the topic, the one that names it most closely; None where none
        does."""
        return self._judged(kind, topic, client).cuts if kind in self.looks else None

    def wants(self, kind: BreakerKind, topic: str, client: str, records: int, size: int) -> None:
        """A client wants that much of the topic."""
        for meter in self._judged(kind, topic, client).meters:
            meter.records += records
            meter.bytes += size

    def waited(self, kind: BreakerKind, topics: Iterable[str], client: str, took_ms: float) -> None:
        """A broker took so long to answer."""
        for topic in topics:
            for meter in self._judged(kind, topic, client).meters:
                meter.slowest_ms = max(meter.slowest_ms, took_ms)

    def answered(self, row: BreakerRow, requests: int, records: int, size: int) -> None:
        """In place of the broker."""
        tally = self.tallies.setdefault(row.key, BreakerCounts())
        tally.requests += requests
        tally.records += records
        tally.bytes += size

    def dropped(self, row: BreakerRow, topic: str, client: str, partition: int, records: int, size: int) -> None:
        """For the ledger: a client takes this for written."""
        client = client[:CLIENT_ID_CHARS_MAX]
        if (topic, client) not in self.drops and sum(name == topic for name, _ in self.drops) >= CLIENTS_PER_TOPIC_MAX:
            client = OTHER_CLIENTS
        drop = self.drops.get((topic, client))
        if drop is None:
            self._since_ms = max(self.now_ms, self._since_ms + 1)  # by that rows of the ledger are told apart
            drop = self.drops[topic, client] = DroppedRecords(row.topic, self._since_ms, self._since_ms)
        drop.partitions.add(partition)
        drop.records += records
        drop.bytes += size
        drop.until_ms = max(drop.since_ms, self.now_ms)

    def gap(self, writer: PartitionProducer) -> None:
        """Something of this producer was dropped."""
        self.gaps[writer] = None
        if len(self.gaps) > _GAPS_MAX:
            del self.gaps[next(iter(self.gaps))]


def _means(row: BreakerRow, kind: BreakerKind, topic: str, client: str) -> bool:
    return row.kind is kind and matches_name(row.topic, topic) and matches_name(row.client, client)


def matches_name(pattern: str, name: str) -> bool:
    """Whether the name is meant: by itself, or by how it begins."""
    return name.startswith(pattern[:-1]) if pattern.endswith(WILDCARD_SUFFIX) else name == pattern


def _widest(row: BreakerRow) -> tuple[bool, int, bool, int]:
    """Whole names before beginnings, and long ones before short ones: the client's first."""
    return row.client.endswith(WILDCARD_SUFFIX), -len(row.client), row.topic.endswith(WILDCARD_SUFFIX), -len(row.topic)


def describe_unknown_name(what: str, named: str, known: Collection[str], lately: str) -> str:
    """That no `what` of this name went through `lately`, and which may be meant. Nothing where one did, or where
    nothing is known at all."""
    if not known or any(matches_name(named, one) for one in known):
        return ""
    near = get_close_matches(named.rstrip("*"), sorted(known), n=1, cutoff=NAME_SIMILARITY_MIN)
    meant = f": is it {near[0]}?" if near else ""
    return f"no {what} {named} went through a proxy {lately}{meant}"


# Of answers that took longer than the last bucket tells.
_BEYOND_MS = LATENCY_BUCKETS_MS[-1] * 2


class AlarmChange(NamedTuple):
    """An alarm that stands now, or does no longer."""

    name: str
    stands: bool
    sentence: str


class TrafficAlarms:
    """Those of a process. `standing`: by name. While flows that are not told apart could have made another alarm of it,
    an alarm stays as it is, and so it does while it is about answers and none has come."""

    def __init__(self, asked: Sequence[tuple[str, AlarmSection]]) -> None:
        self._asked = dict(asked)
        self._silent: dict[str, tuple[float, float]] = {}  # since when, and when something was sent last
        self._gauges = {name: TripState() for name in self._asked}

    @property
    def standing(self) -> dict[str, bool]:
        """Whether each stands."""
        return {name: gauge.tripped for name, gauge in self._gauges.items()}

    def place_of(self, key: TrafficKey) -> TrafficKey | None:
        """As what this flow must be counted where there is no room for all: what no alarm tells apart is `*` in it.
        None where no alarm is about it."""
        about = [one for one in self._asked.values() if one.kind == key.kind and _is_about(one, key)]
        if not about:
            return None
        client = OTHER_NAMES if all(one.client == WILDCARD_SUFFIX for one in about) else key.client
        topic = OTHER_NAMES if all(one.topic == WILDCARD_SUFFIX for one in about) else key.topic
        return key._replace(client=client, topic=topic)

    def look(
        self, grown: Iterable[tuple[TrafficKey, TrafficCounter]], lasted_s: float, now_s: float
    ) -> list[AlarmChange]:
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
                found.append(AlarmChange(name, now.tripped, said))
        return found

    def _silent_for(self, name: str, flow: TrafficCounter, now_s: float) -> float | None:
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
        if now_s - last_s < 2 * RESPONSE_TIMEOUT_S:
            return 0.0
        self._silent.pop(name, None)
        return None


def _is_about(asked: AlarmSection, key: TrafficKey) -> bool:
    return matches_name(asked.topic, key.topic) and matches_name(asked.client, key.client)


def _sum(
    asked: AlarmSection, grown: Sequence[tuple[TrafficKey, TrafficCounter]], *, with_others: bool = False
) -> TrafficCounter:
    """What the alarm is about. `with_others`: as if all that is not told apart were meant."""
    whole = TrafficCounter()
    for key, flow in grown:
        is_others = key.client == key.topic == OTHER_NAMES
        if key.kind == asked.kind and (_is_about(asked, key) or (with_others and is_others)):
            whole.add(flow)
    return whole


def _rates(flow: TrafficCounter, lasted_s: float, silent_s: float | None) -> list[DemandRate]:
    """What may have been: with an answer that is owed between how long it is owed and for ever."""
    if flow.answered:
        found: tuple[float, ...] = (get_tail_latency_ms(flow.latency) or _BEYOND_MS,)
    else:
        found = (0.0,) if silent_s is None else (silent_s * 1000, math.inf)
    return [DemandRate(flow.records / lasted_s, flow.bytes / lasted_s, latency_ms) for latency_ms in found]


def _step(gauge: TripState, asked: AlarmSection, rate: DemandRate, now_s: float) -> TripState:
    limits = BreakerLimits(asked.above_records_s, asked.above_bytes_s, asked.latency_ms, asked.for_s, asked.quiet_s)
    low = rate.records_s < asked.below_records_s or rate.bytes_s < asked.below_bytes_s
    most = get_limit_usage(limits, rate)
    turns = not low and most < QUIET_FRACTION if gauge.tripped else low or most > 1
    return advance_trip_state(gauge, limits, now_s, turns=turns)


def _sentence(name: str, asked: AlarmSection, rate: DemandRate, *, stands: bool, is_silent: bool) -> str:
    clients = "" if asked.client == "*" else f" for clients {asked.client}"
    measured = f"{rate.bytes_s:,.0f} bytes/s"
    if asked.kind == "produce":
        measured += f", {rate.records_s:,.0f} records/s, "
        measured += f"{'without an answer for' if is_silent else 'answered within'} {rate.latency_ms:,.0f} ms"
    what = f"alarm {name} stands" if stands else f"alarm {name} is over"
    return f"{what}: {asked.kind} of {asked.topic}{clients}: {measured}"
