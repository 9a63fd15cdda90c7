"""Records of `twinshore.protection`, which each cluster keeps: which level topics have, and what mirrors and gates say.

| key | value | written by, on |
| --- | --- | --- |
| `["level", topic]` | the topic's protection | the operator's command, on every cluster |
| `["reached", cluster id of the source, topic, partition]` | `ReachedEpoch` | the mirror, on the target |
| `["gate", topic, gate id]` | `GateRecord` | the gate, on the twin's cluster |

The topic is compacted. Third parties may write there, so records of a foreign form are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Final, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from twinshore.config import frozen
from twinshore.config.frozen import GATE_LINE, LEVEL_LINE, REACHED_LINE
from twinshore.kafka.protocol.primitives import KEY_BYTES_MAX, encode_json, is_printable, parse_json_or_none
from twinshore.protection.core.model import AfterFailover, ProtectionLevel, ReachedEpoch
from twinshore.routing.core.home_records import NewerLine, line_value, read_line

KeyValue = tuple[bytes, bytes | None]
# So many records of each kind are kept: third parties must not fill the memory.
RECORDS_MAX: Final = 200_000
Seconds = Annotated[float, Field(ge=0, le=86_400)]
Number = Annotated[int, Field(ge=0, lt=1 << 62)]
Text = Annotated[str, Field(max_length=250)]


@dataclass(frozen=True, slots=True)
class TopicProtection:
    """A topic's protection, as the operator set it. The highest `number` counts. `twin`: the cluster whose twin counts
    where there are several, empty if there is one. `loss_at_most_s`: an `ASYNC` topic's writers wait while the twin is
    further behind; 0: never.
    """

    level: ProtectionLevel
    number: Number
    alone_after_s: Seconds = 5.0
    twin: Text = ""
    after_failover: AfterFailover = AfterFailover.ALONE
    loss_at_most_s: Seconds = 0.0
    by: Text = ""


@dataclass(frozen=True, slots=True)
class GateRecord:
    """What a gate says of a topic. `confirmed`: by partition, up to which offset writes are confirmed. `alone`: by
    partition, from which offset on acknowledgements may be the home's alone; empty if none are. `ttl_ms`: how long the
    record holds after it was read.
    """

    confirmed: dict[int, Number]
    alone: dict[int, Number] = field(default_factory=dict)
    at_ms: Number = 0
    ttl_ms: Number = 0


Value = TypeVar("Value", TopicProtection, GateRecord, ReachedEpoch)
_LEVEL, _GATE, _REACHED = TypeAdapter(TopicProtection), TypeAdapter(GateRecord), TypeAdapter(ReachedEpoch)


def level_line(topic: str, protection: TopicProtection) -> KeyValue:
    return encode_json([LEVEL_LINE, topic]), line_value(_LEVEL.dump_python(protection, mode="json"))


def gate_line(topic: str, gate: str, record: GateRecord | None) -> KeyValue:
    """None: the gate is gone."""
    value = None if record is None else line_value(_GATE.dump_python(record, mode="json"))
    return encode_json([GATE_LINE, topic, gate]), value


def reached_line(source_cluster_id: str, topic: str, partition: int, reached: ReachedEpoch) -> KeyValue:
    key = encode_json([REACHED_LINE, source_cluster_id, topic, partition])
    return key, line_value(_REACHED.dump_python(reached, mode="json"))


@dataclass(slots=True)
class ProtectionLog:
    """The records as the log is read. `newer`: topics whose level is of a newer version, so that writes wait."""

    levels: dict[str, TopicProtection] = field(default_factory=dict)
    reached: dict[tuple[str, str, int], ReachedEpoch] = field(default_factory=dict)
    gates: dict[tuple[str, str], GateRecord] = field(default_factory=dict)
    newer: set[str] = field(default_factory=set)

    def take(self, key: bytes | None, value: bytes | None) -> None:
        match parse_json_or_none(key, KEY_BYTES_MAX):
            case [frozen.LEVEL_LINE, str(topic)]:
                self.newer.discard(topic)
                if isinstance(read_line(value), NewerLine):
                    self.newer.add(topic)
                else:
                    _keep(self.levels, topic, _LEVEL, value)
            case [frozen.REACHED_LINE, str(cluster_id), str(topic), int(partition)] if partition >= 0:
                _keep(self.reached, (cluster_id, topic, partition), _REACHED, value)
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
