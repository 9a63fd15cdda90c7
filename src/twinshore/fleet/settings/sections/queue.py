"""The section `queue` of a link: what is held for a target of a broadcast that is behind, and what is dropped."""

from __future__ import annotations

from dataclasses import dataclass

from twinshore.fleet.nouns import QueuePolicy, QueueRules
from twinshore.fleet.settings.declaring import setting
from twinshore.fleet.settings.edge import Complaints, did_you_mean, read_section
from twinshore.fleet.settings.section import Section, Written

HIGH_KB = 64 << 10
# `max.message.bytes` of a topic that sets none, in whole kilobytes.
BATCH_KB = 1025
FRESH_ALONE = ("low_kb", "max_age_s", "transactions")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSection:
    """What is held in memory for a target of a broadcast that is behind the others, and what is dropped of it."""

    policy: str = setting(
        "keep",
        "`keep`: nothing is dropped, a target that is further behind reads the source's log by itself;"
        " `fresh`: the oldest records are dropped, each with a row in the ledger",
    )
    high_kb: int = setting(
        HIGH_KB,
        "the high watermark: at most so much is held, of all partitions of a lane together",
        low=0,
        high=64 << 20,
    )
    low_kb: int = setting(
        0,
        "with `fresh`, beyond the high watermark the oldest go until so much is left; 0: half of it",
        low=0,
        high=64 << 20,
    )
    parts_max: int = setting(
        10_000,
        "at most so many parts are held; a part is what one read of one partition brought",
        low=1,
        high=10_000_000,
    )
    max_age_s: float = setting(
        0.0, "with `fresh`, records that are older are not sent; 0: whatever their age", low=0, high=31536000
    )
    transactions: bool = setting(
        False, "with `fresh`, also records of transactions, of which a part may be dropped; without it they are refused"
    )


def read_queue(written: Written, complaints: Complaints) -> QueueRules:
    """What is held and dropped; complaints are added, and the defaults returned, where it is wrong."""
    section = read_section(QueueSection, written.raw, written.place, complaints)
    if section is None:
        return QueueRules()
    known = [policy.value for policy in QueuePolicy]
    if section.policy not in known:
        complaints.add(written.place, f"policy: no such policy {section.policy!r}{did_you_mean(section.policy, known)}")
        return QueueRules()
    policy = QueuePolicy(section.policy)
    _check(section, policy, written.place, complaints)
    low_kb = section.low_kb or section.high_kb // 2
    return QueueRules(
        policy,
        section.high_kb << 10,
        low_kb << 10,
        section.parts_max,
        section.max_age_s,
        section.transactions,
    )


def _check(section: QueueSection, policy: QueuePolicy, place: str, complaints: Complaints) -> None:
    if policy is QueuePolicy.KEEP:
        for name in FRESH_ALONE:
            if getattr(section, name):
                sentence = f'{name}: a queue that keeps drops nothing; give it policy = "fresh", or leave {name} out'
                complaints.add(place, sentence)
    for name in ("high_kb", "low_kb"):
        size = getattr(section, name)
        if size < BATCH_KB and (size or name == "high_kb"):
            complaints.add(
                place,
                f"{name}: {size} is below one batch, which may have {BATCH_KB} KB where a topic sets no "
                f"max.message.bytes; give it {BATCH_KB} or more",
            )
    if section.low_kb > section.high_kb:
        complaints.add(place, f"low_kb: {section.low_kb} is above high_kb, {section.high_kb}; give it less")


SECTION = Section("queue", 34, (('[links."SOURCE->TARGET".queue]', QueueSection),), read_queue, inside="links")
