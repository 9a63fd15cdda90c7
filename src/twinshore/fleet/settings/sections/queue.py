"""The section `queue` of a link: what is held for a target of a broadcast that is behind."""

from __future__ import annotations

from dataclasses import dataclass

from twinshore.fleet.nouns import QueuePolicy, QueueRules
from twinshore.fleet.settings.declaring import setting
from twinshore.fleet.settings.edge import Complaints, read_section
from twinshore.fleet.settings.section import Section, Written

HIGH_KB = 64 << 10
# `max.message.bytes` of a topic that sets none, in whole kilobytes.
BATCH_KB = 1025


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSection:
    """What is held in memory for a target of a broadcast that is behind the others."""

    high_kb: int = setting(
        HIGH_KB,
        "the high watermark: so much is held for targets that are behind, of all partitions of a lane together; who is"
        " further behind reads by itself until it has caught up",
        low=0,
        high=64 << 20,
    )


def read_queue(written: Written, complaints: Complaints) -> QueueRules:
    """How much is held; complaints are added, and the defaults returned, where it is wrong."""
    section = read_section(QueueSection, written.raw, written.place, complaints)
    if section is None:
        return QueueRules()
    if section.high_kb < BATCH_KB:
        complaints.add(
            written.place,
            f"high_kb: {section.high_kb} is below one batch, which may have {BATCH_KB} KB where a topic sets no "
            f"max.message.bytes: no target would ever be fed; give it {BATCH_KB} or more",
        )
    return QueueRules(QueuePolicy.KEEP, section.high_kb << 10)


SECTION = Section("queue", 34, (('[links."SOURCE->TARGET".queue]', QueueSection),), read_queue, inside="links")
