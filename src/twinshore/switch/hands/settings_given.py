"""The settings that make a twin the topic which its source was: remembered while it followed, given at promotion."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from twinshore.fleet import Link
from twinshore.fleet.sentences import listed
from twinshore.kafka.cluster import KafkaCluster
from twinshore.mirror.driver.plan import COMPACTED, TWINS_OWN
from twinshore.mirror.follow import topic_settings
from twinshore.mirror.follow.reading import copies
from twinshore.mirror.follow.topic_settings import SettingsOf, at_promotion, remembered
from twinshore.store import Store
from twinshore.switch.decision import Done, Outcome
from twinshore.switch.record import Record

NAMED_MAX = 5


def look_up(old: KafkaCluster, record: Record) -> Record:
    """With the old home's settings in the record, for when it cannot be asked any more."""
    found = old.admin.topic_settings(record.names())
    values = {
        topic: remembered(
            SettingsOf(
                {name: one.value for name, one in settings.items() if one.value is not None},
                {name: one.value for name, one in settings.items() if one.own and one.value is not None},
            )
        )
        for topic, settings in found.items()
    }
    return replace(record, given=json.dumps(values, sort_keys=True))


def last_known(store: Store, record: Record) -> Record:
    """The same as the mirror saw it last, where the old home does not answer."""
    rows = store.memories.of(record.link, topic_settings.KIND)
    values = {row.subject: row.value for row in rows if row.subject in record.names()}
    return replace(record, given=json.dumps(values, sort_keys=True))


def give(new: KafkaCluster, link: Link, record: Record) -> Outcome:
    """What the topic had on the old home; of what a twin alone needs nothing is left. Where it is done late, what
    somebody has set on the new home since stays as it is."""
    known: Mapping[str, str] = json.loads(record.given or "{}")
    held = copies(new, list(record.names()))
    stays: list[str] = []
    for one in record.topics:
        if one.topic not in known:
            continue
        wanted: dict[str, str | None] = dict.fromkeys(TWINS_OWN)
        wanted |= at_promotion(known[one.topic], link, held.get(one.topic, 1))
        now = new.admin.topic_settings([one.topic])[one.topic]
        own = {name: setting.value for name, setting in now.items() if setting.own}
        changes = {name: value for name, value in wanted.items() if own.get(name) != value}
        if record.late:
            since = sorted(name for name in changes if not _is_twins(name, own.get(name)))
            changes = {name: value for name, value in changes.items() if name not in since}
            stays += [f"{name} of {one.topic}" for name in since]
        if changes:
            new.admin.alter_topic_settings(one.topic, changes, topic_id=bytes.fromhex(one.new_id))
    unknown = sorted(set(record.names()) - known.keys())
    rest = f"; nothing is known of those of {listed(unknown, NAMED_MAX)}" if unknown else ""
    left = f"; not the twin's any more, and left as it is: {listed(stays, NAMED_MAX)}" if stays else ""
    return Done(record, f"the topics have their settings on {new.name}{rest}{left}")


def _is_twins(name: str, value: str | None) -> bool:
    """Whether the mirror gave the twin this value."""
    return value == TWINS_OWN.get(name) or (name, value) == ("cleanup.policy", COMPACTED)
