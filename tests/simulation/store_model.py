"""What the driver of the simulation has written: positions, rows, rests."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from twinshore.config.model import TopicPartition
from twinshore.replication.core.incident_rules import MissingOffsets
from twinshore.replication.task.core.messages import (
    NO_EPOCH_OFFSET,
    EpochOffset,
    PartitionIncident,
    PartitionProgress,
    latest_epoch_offset,
)
from twinshore.state.core.values import LeaseRow

LEASE_S = 3.0
GRACE_S = 3.0
WRITE_S = 0.4
TICK_S = 0.05


@dataclass(slots=True)
class StoreModel:
    """Leases, receipts, the ledger. `receipts` may lag behind twins, never run ahead of them."""

    lease: LeaseRow | None = None
    receipts: dict[TopicPartition, list[PartitionProgress]] = field(default_factory=dict)
    refused: list[PartitionProgress] = field(default_factory=list)
    ledger: dict[TopicPartition, list[PartitionIncident]] = field(default_factory=dict)
    lacks: dict[TopicPartition, MissingOffsets] = field(default_factory=dict)

    def rests(self, named: TopicPartition) -> bool:
        """As `incidents.standing` reads the ledger: a partition that was stopped rests until somebody resumes it."""
        return any(not told.policy for told in self.ledger.get(named, ()))

    def to_offset(self, named: TopicPartition) -> int:
        told = self.receipts.get(named)
        return told[-1].to_offset if told else 0

    def stand(self, named: TopicPartition) -> EpochOffset:
        told = self.receipts.get(named)
        return EpochOffset(told[-1].epoch, told[-1].to_offset) if told else NO_EPOCH_OFFSET

    def source_start(self, named: TopicPartition) -> int:
        """Where tasks last told that the source begins."""
        told = self.receipts.get(named)
        return min(told[-1].source_start, told[-1].to_offset) if told else 0

    def record(self, carried: PartitionProgress, named: TopicPartition) -> None:
        """As `state.core.progress_rules`: what leaves a gap is refused, and only what is new counts."""
        known = self.to_offset(named)
        if carried.from_offset > known:
            self.refused.append(carried)
        elif carried.to_offset > known or carried.from_offset == known:
            epoch = latest_epoch_offset(self.stand(named), EpochOffset(carried.epoch, carried.to_offset)).epoch
            self.receipts.setdefault(named, []).append(replace(carried, from_offset=known, epoch=epoch))
