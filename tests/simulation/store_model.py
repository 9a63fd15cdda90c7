"""What the driver of the simulation has written: positions, rows, rests."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from twinshore.config.model import NamedPartition
from twinshore.replication.core.incident_rules import Lack
from twinshore.replication.task.core.config import NOWHERE, Carried, Stand, Stoppage, told_on
from twinshore.state.core.values import LeaseRow

LEASE_S = 3.0
GRACE_S = 3.0
WRITE_S = 0.4
TICK_S = 0.05


@dataclass(slots=True)
class StoreModel:
    """Leases, receipts, the ledger. `receipts` may lag behind twins, never run ahead of them."""

    lease: LeaseRow | None = None
    receipts: dict[NamedPartition, list[Carried]] = field(default_factory=dict)
    refused: list[Carried] = field(default_factory=list)
    ledger: dict[NamedPartition, list[Stoppage]] = field(default_factory=dict)
    lacks: dict[NamedPartition, Lack] = field(default_factory=dict)

    def rests(self, named: NamedPartition) -> bool:
        """As `incidents.standing` reads the ledger: a partition that was stopped rests until somebody resumes it."""
        return any(not told.policy for told in self.ledger.get(named, ()))

    def to_offset(self, named: NamedPartition) -> int:
        told = self.receipts.get(named)
        return told[-1].to_offset if told else 0

    def stand(self, named: NamedPartition) -> Stand:
        told = self.receipts.get(named)
        return Stand(told[-1].epoch, told[-1].to_offset) if told else NOWHERE

    def source_start(self, named: NamedPartition) -> int:
        """Where pumps last told that the source begins."""
        told = self.receipts.get(named)
        return min(told[-1].source_start, told[-1].to_offset) if told else 0

    def record(self, carried: Carried, named: NamedPartition) -> None:
        """As `state.core.progress`: what leaves a gap is refused, and only what is new counts."""
        known = self.to_offset(named)
        if carried.from_offset > known:
            self.refused.append(carried)
        elif carried.to_offset > known or carried.from_offset == known:
            epoch = told_on(self.stand(named), Stand(carried.epoch, carried.to_offset)).epoch
            self.receipts.setdefault(named, []).append(replace(carried, from_offset=known, epoch=epoch))
