"""Each kind of topic that a mirror must carry: how it is made and filled, and what its source's files then hold."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from twinshore.lab import LabCluster
from twinshore.lab.stages import log_kinds, log_shapes
from twinshore.lab.stages.log_kinds import COMPACTED
from twinshore.lab.stages.log_shapes import FUTURE_MS, LIMIT_BYTES
from twinshore.wire.batch import CODEC_MASK, CONTROL, DELETE_HORIZON, TIMESTAMP_APPEND, TRANSACTIONAL, BatchHeader

LATE_START = 1_000_123


class Kind(NamedTuple):
    """How a topic of this kind is made and filled."""

    settings: dict[str, str]
    fill: Callable[[LabCluster, str], None]


KINDS = {
    "transactional": Kind({}, lambda cluster, topic: log_kinds.transactional(cluster, topic, 1)),
    "compacted": Kind(COMPACTED, lambda cluster, topic: log_kinds.compacted(cluster, topic)),
    "compacted-transactional": Kind(
        COMPACTED, lambda cluster, topic: log_kinds.compacted(cluster, topic, transactions=True)
    ),
    "late": Kind({}, lambda cluster, topic: log_kinds.late(cluster, topic, LATE_START)),
    "late-compacted": Kind(
        {"cleanup.policy": "compact,delete", "retention.ms": "-1"},
        lambda cluster, topic: log_kinds.late(cluster, topic, 777),
    ),
    "append-time": Kind(
        {"message.timestamp.type": "LogAppendTime"},
        lambda cluster, topic: log_kinds.plain(cluster, topic, codec="gzip"),
    ),
    "delete-horizon": Kind(
        {**COMPACTED, "delete.retention.ms": "86400000"}, lambda cluster, topic: log_kinds.compacted(cluster, topic)
    ),
    "idle": Kind({}, log_shapes.idle),
    "codecs": Kind({}, log_shapes.codecs),
    "bare": Kind({}, log_shapes.bare),
    "at-the-limit": Kind({"max.message.bytes": str(LIMIT_BYTES)}, log_shapes.at_the_limit),
    "future": Kind({"message.timestamp.after.max.ms": str(2 * FUTURE_MS), "retention.ms": "-1"}, log_shapes.future),
    "empty": Kind({}, lambda _cluster, _topic: None),
}
# What must be in the source's files, or the test would show nothing.
HOLDS: dict[str, Callable[[BatchHeader], bool]] = {
    "transactional": lambda batch: bool(batch.attributes & TRANSACTIONAL and not batch.attributes & CONTROL),
    "compacted": lambda batch: 0 < batch.count <= batch.last_offset_delta,
    "compacted-transactional": lambda batch: bool(batch.attributes & CONTROL),
    "delete-horizon": lambda batch: bool(batch.attributes & DELETE_HORIZON),
    "append-time": lambda batch: bool(batch.attributes & TIMESTAMP_APPEND),
    "idle": lambda batch: bool(batch.attributes & CONTROL),
    "codecs": lambda batch: batch.attributes & CODEC_MASK == 4,
    "at-the-limit": lambda batch: batch.length + 12 == LIMIT_BYTES,
    "future": lambda batch: batch.max_timestamp > time.time() * 1000 + FUTURE_MS / 2,
}
