"""Records of `twinshore.protection` and `twinshore.gates`, which each cluster keeps.

| topic | key | value | written by, on |
| --- | --- | --- | --- |
| `protection` | `["level", topic]` | `TopicProtection` | the operator, on every cluster |
| `protection` | `["reached", cluster id of source, topic, partition]` | `ReachedEpoch` | the mirror, on the target |
| `protection` | `["promoted", id of old home, topic]` | `PromotedTwin` | a forced switch, on the new home |
| `gates` | `["gate", topic, gate id]` | `GateRecord` | the gate, on the twin's cluster |

The topics are compacted. Third parties may write there, so records of a foreign form are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from twinshore.config import frozen
from twinshore.config.frozen import GATE_LINE, LEVEL_LINE, PROMOTED_LINE, REACHED_LINE
from twinshore.kafka.protocol.primitives import KEY_BYTES_MAX, encode_json, is_printable, parse_json_or_none
from twinshore.protection.core.model import AfterFailover, ProtectionLevel, ReachedEpoch, ReadFrom
from twinshore.routing.core.home_records import NewerLine, line_value, read_line

KeyValue = tuple[bytes, bytes | None]
# The number of a level that a newer version wrote. What it asks for is unknown, so it counts as the strictest.
NEWER_NUMBER: Final = (1 << 62) - 1
# So many records of each kind are kept: third parties must not fill the memory.
RECORDS_MAX: Final = 200_000
# So many clients that mix are named for a topic.
MIXING_MAX: Final = 20
Seconds = Annotated[float, Field(ge=0, le=86_400)]
Number = Annotated[int, Field(ge=0, lt=1 << 62)]
TEXT_CHARS_MAX: Final = 250
Text = Annotated[str, Field(max_length=TEXT_CHARS_MAX)]


@dataclass(frozen=True, slots=True)
class TopicProtection:
    """A topic's protection, as the operator set it. The highest `rank` counts. `twin`: the cluster whose twin counts
    where there are several, empty if there is one. `loss_at_most_s`: an `ASYNC` topic's writers wait while the twin is
    further behind; 0: never. `read`: what its consumers are shown while acknowledgements wait for the twin.
    """

    level: ProtectionLevel
    number: Number
    alone_after_s: Seconds = 5.0
    twin: Text = ""
    after_failover: AfterFailover = AfterFailover.ALONE
    loss_at_most_s: Seconds = 0.0
    by: Text = ""
    read: ReadFrom = ReadFrom.HOME

    def rank(self) -> tuple[int, int, str]:
        """By number. Of two that were set at once the stricter counts; in any order of them, on each cluster."""
        return self.number, list(ProtectionLevel).index(self.level), repr(self)

    @property
    def holds(self) -> bool:
        """Whether acknowledgements wait for the twin."""
        return self.level is not ProtectionLevel.ASYNC

    @property
    def watches(self) -> bool:
        """Whether writes depend on the twin: they wait for it, or are refused while it is too far behind."""
        return self.holds or self.loss_at_most_s > 0

    @property
    def reads_both(self) -> bool:
        """Whether consumers are shown what both sides have, and no more."""
        return self.holds and self.read is ReadFrom.BOTH


@dataclass(frozen=True, slots=True)
class PromotedTwin:
    """A forced switch made the twin the home in this `term`: what mirrors said in earlier terms is void. Until
    `is_over`, the topic has no twin, and acknowledgements are the home's alone.
    """

    term: Number
    is_over: bool = False


@dataclass(frozen=True, slots=True)
class GateRecord:
    """What a gate says of a topic. `level`: the number of the level that it obeys. `confirmed`: by partition, up to
    which offset the twin has all that is acknowledged. `alone`: by partition, from which offset on acknowledgements may
    be the home's alone; empty if none are. `ttl_ms`: how long the record holds after it was read. `mixing`: ids of
    clients that write other topics on the same connections.

    For people: `state`, a `GateState`, the worst of its partitions, and since when; `waiting`: writes by `WaitCause`;
    `delay_ms`: how long answers wait for the twin, at the median; of an `ASYNC` topic how far the twin is behind.
    """

    level: Number
    confirmed: dict[int, Number]
    alone: dict[int, Number] = field(default_factory=dict)
    at_ms: Number = 0
    ttl_ms: Number = 0
    mixing: Annotated[tuple[Text, ...], Field(max_length=MIXING_MAX)] = ()
    state: Text = ""
    since_ms: Number = 0
    waiting: dict[Text, Number] = field(default_factory=dict)
    delay_ms: Annotated[float, Field(ge=0)] = 0.0


Value = TypeVar("Value", TopicProtection, GateRecord, ReachedEpoch, PromotedTwin)
_LEVEL, _GATE, _REACHED = TypeAdapter(TopicProtection), TypeAdapter(GateRecord), TypeAdapter(ReachedEpoch)
_PROMOTED = TypeAdapter(PromotedTwin)


def level_line(topic: str, protection: TopicProtection) -> KeyValue:
    """ValidationError if readers would ignore it."""
    value = _LEVEL.dump_python(protection, mode="json")
    _LEVEL.validate_python(value)
    return encode_json([LEVEL_LINE, topic]), line_value(value)


def gate_line(topic: str, gate: str, record: GateRecord | None) -> KeyValue:
    """None: the gate is gone."""
    value = None if record is None else line_value(_GATE.dump_python(record, mode="json"))
    return encode_json([GATE_LINE, topic, gate]), value


def reached_line(source_cluster_id: str, topic: str, partition: int, reached: ReachedEpoch) -> KeyValue:
    key = encode_json([REACHED_LINE, source_cluster_id, topic, partition])
    return key, line_value(_REACHED.dump_python(reached, mode="json"))


def promoted_line(old_home_id: str, topic: str, promoted: PromotedTwin) -> KeyValue:
    return encode_json([PROMOTED_LINE, old_home_id, topic]), line_value(_PROMOTED.dump_python(promoted, mode="json"))


@dataclass(slots=True)
class ProtectionLog:
    """The records of `twinshore.protection` as the log is read."""

    levels: dict[str, TopicProtection] = field(default_factory=dict)
    reached: dict[tuple[str, str, int], ReachedEpoch] = field(default_factory=dict)
    promoted: dict[tuple[str, str], PromotedTwin] = field(default_factory=dict)

    def reached_of(self, source_cluster_id: str, topic: str, partition: int) -> ReachedEpoch | None:
        """Returns what counts of what the mirror says of a twin here."""
        reached = self.reached.get((source_cluster_id, topic, partition))
        promoted = self.promoted.get((source_cluster_id, topic))
        return None if reached is None or (promoted and reached.term < promoted.term) else reached

    def is_without_twin(self, topic: str) -> bool:
        """Whether a forced switch brought the topic here, and no mirror has a twin of it yet. What a mirror says in
        that term or a later one shows that the topic has been at home elsewhere since.
        """
        return any(
            name == topic and not one.is_over and self.reached_of(cluster_id, topic, 0) is None
            for (cluster_id, name), one in self.promoted.items()
        )

    def copy(self) -> ProtectionLog:
        return ProtectionLog(dict(self.levels), dict(self.reached), dict(self.promoted))

    def take(self, key: bytes | None, value: bytes | None) -> None:
        match parse_json_or_none(key, KEY_BYTES_MAX):
            case [frozen.LEVEL_LINE, str(topic)]:
                if value is not None and isinstance(read_line(value), NewerLine):
                    self.levels[topic] = TopicProtection(ProtectionLevel.STRICT, NEWER_NUMBER)
                else:
                    before = self.levels.get(topic)
                    _keep(self.levels, topic, _LEVEL, value)
                    if (
                        before and topic in self.levels
                    ):  # perhaps two were set at once, or a mirror gave that of settings
                        self.levels[topic] = max(before, self.levels[topic], key=TopicProtection.rank)
            case [frozen.REACHED_LINE, str(cluster_id), str(topic), int(partition)] if partition >= 0:
                _keep(self.reached, (cluster_id, topic, partition), _REACHED, value)
            case [frozen.PROMOTED_LINE, str(cluster_id), str(topic)]:
                _keep(self.promoted, (cluster_id, topic), _PROMOTED, value)
            case _:
                pass


def current_levels(logs: Iterable[ProtectionLog]) -> dict[str, TopicProtection]:
    """Returns each topic's protection that counts."""
    levels: dict[str, TopicProtection] = {}
    for log in logs:
        for topic, protection in log.levels.items():
            levels[topic] = max(levels.get(topic, protection), protection, key=TopicProtection.rank)
    return levels


@dataclass(slots=True)
class GateLog:
    """The records of `twinshore.gates` as the log is read, by topic and gate."""

    gates: dict[tuple[str, str], GateRecord] = field(default_factory=dict)

    def alone(self) -> frozenset[tuple[str, int]]:
        """Returns the topics and partitions that some gate acknowledges by the home alone, or did."""
        return frozenset((topic, number) for (topic, _), record in self.gates.items() for number in record.alone)

    def take(self, key: bytes | None, value: bytes | None) -> None:
        match parse_json_or_none(key, KEY_BYTES_MAX):
            case [frozen.GATE_LINE, str(topic), str(gate)] if is_printable(gate):
                _keep(self.gates, (topic, gate), _GATE, value)
            case _:
                pass


def _keep(kept: dict[Any, Value], key: object, kind: TypeAdapter[Value], value: bytes | None) -> None:
    """Keeps what the value says. A tombstone removes it; a foreign form changes nothing."""
    if value is None:
        kept.pop(key, None)
        return
    found = read_line(value)
    if not isinstance(found, dict) or (key not in kept and len(kept) >= RECORDS_MAX):
        return
    try:
        kept[key] = kind.validate_python({name: one for name, one in found.items() if name != frozen.LINE_VERSION_KEY})
    except ValidationError:
        return
