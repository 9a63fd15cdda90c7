"""What a forced switch to a protected topic's twin would lose of what was acknowledged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from twinshore.config.sentences import NAMED_MAX, join_names
from twinshore.protection.core.records import GateRecord, TopicProtection


@dataclass(frozen=True, slots=True)
class LossAccount:
    """By partition: `alone`: from which offset on the home alone may have acknowledged. `short`: below which offset all
    was confirmed, though the twin ends earlier. `unknown`: partitions that no gate of this level named.
    """

    topic: str
    level: str
    alone: Mapping[int, int] = field(default_factory=dict)
    short: Mapping[int, int] = field(default_factory=dict)
    unknown: tuple[int, ...] = ()

    @property
    def nothing_lost(self) -> bool:
        return not (self.alone or self.short or self.unknown)

    def sentence(self, home: str, twin: str) -> str:
        if self.nothing_lost:
            return f"topic {self.topic} is {self.level}: nothing that its protected writers were told is lost"
        parts = []
        if self.alone:
            named = [f"partition {number} from offset {since}" for number, since in sorted(self.alone.items())]
            parts.append(f"{home} alone acknowledged {join_names(named, NAMED_MAX)}")
        if self.short:
            named = [f"partition {number} below offset {end}" for number, end in sorted(self.short.items())]
            parts.append(f"{twin} has lost records that it confirmed: {join_names(named, NAMED_MAX)}")
        if self.unknown:
            parts.append(
                f"no writer said how far partition {join_names(list(map(str, self.unknown)), NAMED_MAX)} is confirmed"
            )
        return f"topic {self.topic} is {self.level}, and records may be lost: {'; '.join(parts)}"


def account_of(
    topic: str, protection: TopicProtection, gates: Mapping[str, GateRecord], ends: Mapping[int, int]
) -> LossAccount:
    """`gates`: the topic's records on the twin's cluster. `ends`: of the twin's partitions. Records of an earlier level
    say what was acknowledged alone, but confirm nothing.
    """
    alone: dict[int, int] = {}
    confirmed: dict[int, int] = {}
    for record in gates.values():
        for number, since in record.alone.items():
            alone[number] = min(since, alone.get(number, since))
        if record.level == protection.number:
            for number, end in record.confirmed.items():
                confirmed[number] = max(end, confirmed.get(number, 0))
    short = {number: end for number, end in confirmed.items() if end > ends.get(number, 0)}
    unknown = tuple(sorted(ends.keys() - confirmed.keys()))
    return LossAccount(topic, protection.level, alone, short, unknown)


def is_covered(record: GateRecord, others: Iterable[GateRecord], number: int) -> bool:
    """Whether the record says nothing more than the others to a forced switch. `number`: of the topic's level."""
    same = [other for other in others if other.level == record.level]
    return record.level < number or all(
        any(other.confirmed.get(partition, -1) >= end for other in same) for partition, end in record.confirmed.items()
    )
