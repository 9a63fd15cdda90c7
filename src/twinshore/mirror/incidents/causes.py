"""Whether the cause of an incident still stands, as far as one can look: before a partition is resumed."""

from __future__ import annotations

from dataclasses import dataclass

from twinshore.fleet import KafkaError, NamedPartition, WireError
from twinshore.kafka.cluster import KafkaCluster
from twinshore.mirror.lane.history import NOWHERE, Stand
from twinshore.mirror.lane.observe import Stop, judge
from twinshore.mirror.lane.stamp import Stamp
from twinshore.mirror.planned import MESSAGE_BYTES_DEFAULT
from twinshore.mirror.pump.twin_look import look_at
from twinshore.store import Incident, IncidentKind, LinkIdentity, TwinRow
from twinshore.wire.batch import PREFIX_BYTES, check_crc

LOG_ENDS = frozenset({IncidentKind.TRUNCATION, IncidentKind.FOREIGN_WRITE, IncidentKind.POSITION_DISAGREEMENT})
BATCHES = frozenset({IncidentKind.CORRUPT_BATCH, IncidentKind.OLD_FORMAT})
SIZES = frozenset({IncidentKind.OVERSIZE_BATCH})


@dataclass(frozen=True, slots=True)
class Sides:
    """Both clusters, and whom the link writes as."""

    source: KafkaCluster
    target: KafkaCluster
    identity: LinkIdentity


def still_stands(incident: Incident, row: TwinRow, twin: NamedPartition, sides: Sides, stand: Stand = NOWHERE) -> str:
    """Why the partition would only stop again; empty where the cause is gone or cannot be looked at. `stand`: as far
    as known, which history of the source was carried."""
    named = NamedPartition(incident.topic, incident.partition)
    try:
        if incident.kind in LOG_ENDS:
            return _log_end(named, row, twin, sides, stand)
        if incident.kind in BATCHES:
            return _batch(named, incident.from_offset, sides.source)
        if incident.kind in SIZES:
            return _size(named, incident.from_offset, twin, sides)
    except KafkaError:
        # Who cannot be asked now is asked by the pump.
        return ""
    return ""


def _log_end(named: NamedPartition, row: TwinRow, twin: NamedPartition, sides: Sides, stand: Stand) -> str:
    identity, inherited = sides.identity, {named: row.inherited}
    asked = {named: twin}, {named: stand}, inherited
    seen = look_at(sides.source, sides.target, identity.producer_id, *asked)[named]
    stamp = Stamp.of((identity.producer_id, identity.producer_epoch), row)
    verdict = judge(seen, stamp, row.inherited, carried=stand.end > 0)
    return verdict.sentence if isinstance(verdict, Stop) else ""


def _batch(named: NamedPartition, offset: int, source: KafkaCluster) -> str:
    try:
        found = source.read_batch(named, offset)
        if found:
            check_crc(*found)
    except WireError as error:
        return str(error)
    return ""


def _size(named: NamedPartition, offset: int, twin: NamedPartition, sides: Sides) -> str:
    found = sides.source.read_batch(named, offset)
    setting = sides.target.admin.topic_settings([twin.topic])[twin.topic].get("max.message.bytes")
    limit = int(setting.value) if setting and setting.value else MESSAGE_BYTES_DEFAULT
    size = PREFIX_BYTES + found[1].length if found else 0
    if size <= limit:
        return ""
    return f"the source's batch at offset {offset} has {size} bytes, max.message.bytes of {twin.topic} is {limit}"
