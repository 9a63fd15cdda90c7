"""Which settings of a topic follow to its twin. Pure: both sides' settings in, changes out.

A setting that follows has on the twin the value it has on the source, whether it was set there on the topic or on the
brokers; where the source has Kafka's default, the twin has no setting of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from twinshore.fleet import Link
from twinshore.mirror.follow.acts import Change
from twinshore.wire.batch import MESSAGE_BYTES_DEFAULT

KIND = "topic setting"

FOLLOWS = frozenset(
    {
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "index.interval.bytes",
        "max.compaction.lag.ms",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "preallocate",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
    }
)
# A twin has its own of these while it is one; the source's are remembered for the day it is promoted.
AT_PROMOTION = frozenset(
    {
        "cleanup.policy",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "max.message.bytes",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.difference.max.ms",
        "message.timestamp.type",
        "retention.bytes",
        "retention.ms",
        "unclean.leader.election.enable",
    }
)
# They name brokers, or storage, of one cluster alone, or a format that is no more.
NEVER = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "message.downconversion.enable",
        "message.format.version",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
    }
)


@dataclass(frozen=True, slots=True)
class SettingsOf:
    """A topic's settings that are not Kafka's defaults: all that are in force, and those set on the topic itself."""

    in_force: Mapping[str, str]
    own: Mapping[str, str]


def follows(name: str, exclude: tuple[str, ...]) -> bool:
    """Whether the setting follows, with these exclusions of the link's."""
    return name in FOLLOWS and not any(re.fullmatch(pattern, name) for pattern in exclude)


def followed(source: Mapping[str, str], link: Link, replication: int) -> dict[str, str]:
    """What the twin takes over, the link's own wishes above it."""
    wanted = {name: value for name, value in source.items() if follows(name, link.follow.settings_exclude)}
    if "min.insync.replicas" in wanted:
        # More than the twin has copies would keep it from being written at all.
        wanted["min.insync.replicas"] = str(max(1, min(int(wanted["min.insync.replicas"]), replication)))
    wanted.update(link.topic_settings)
    return wanted


def changes(
    link: Link, source: SettingsOf, target: SettingsOf, replication: int, *, mapped: bool = False
) -> dict[str, tuple[str | None, str | None]]:
    """Settings to change on the twin: what each is and what it shall be, None for Kafka's default. A mapped twin is
    somebody's own topic: it gets what the link's settings name, and room for the source's batches."""
    wanted = dict(link.topic_settings) if mapped else followed(source.in_force, link, replication)
    found: dict[str, tuple[str | None, str | None]] = {
        name: (target.in_force.get(name), value) for name, value in wanted.items() if target.in_force.get(name) != value
    }
    for name, value in () if mapped else target.own.items():
        if follows(name, link.follow.settings_exclude) and name not in wanted:
            found[name] = (value, None)
    # Only ever raised: the twin may hold larger batches than the source would take now.
    largest = int(source.in_force.get("max.message.bytes", MESSAGE_BYTES_DEFAULT))
    now = target.in_force.get("max.message.bytes")
    if int(now or MESSAGE_BYTES_DEFAULT) < largest:
        found["max.message.bytes"] = (now, str(largest))
    return dict(sorted(found.items()))


def as_changes(twin: str, wanted: Mapping[str, tuple[str | None, str | None]]) -> list[Change]:
    """The same, for people."""
    default = "Kafka's default"
    return [
        Change(
            KIND, f"{name} of {twin}", default if before is None else before, default if after is None else after, twin
        )
        for name, (before, after) in wanted.items()
    ]


def remembered(source: SettingsOf) -> str:
    """What the store keeps of the source's topic, so that a promotion can restore it: all that was set on it."""
    kept = {name: value for name, value in source.own.items() if name not in NEVER}
    return json.dumps(kept, sort_keys=True, separators=(",", ":"))


def at_promotion(value: str, link: Link, replication: int) -> dict[str, str]:
    """Out of what `remembered` kept: the settings that make the twin the topic its source was."""
    kept: dict[str, str] = json.loads(value or "{}")
    restored = {name: text for name, text in kept.items() if name in AT_PROMOTION}
    return {**restored, **followed(kept, link, replication)}
