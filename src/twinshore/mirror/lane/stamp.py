"""What a batch bears of one target: a producer, and sequences that follow from the offsets. Pure.

A stamp writes a header and leaves the body as it is, so one parcel can be stamped for several targets. The new CRC
follows from the old one, so no body is read again.
"""

from __future__ import annotations

from typing import NamedTuple

from twinshore.fleet.terms import written_epoch
from twinshore.mirror.lane.cutting import Parcel
from twinshore.mirror.lane.orders import TrackOrder
from twinshore.store.values import TwinRow
from twinshore.wire.batch import restamp, sequence_of


class Stamp(NamedTuple):
    """How offsets become sequences on one twin: the data's own, so that the broker can compare and swap."""

    producer_id: int
    producer_epoch: int
    anchor_offset: int
    anchor_sequence: int

    @classmethod
    def of(cls, producer: tuple[int, int], twin: TrackOrder | TwinRow) -> Stamp:
        """`producer`: the link's id and epoch."""
        producer_id, epoch = producer
        return cls(producer_id, written_epoch(epoch, twin.epoch), twin.anchor_offset, twin.anchor_sequence)

    def sequence(self, offset: int) -> int:
        """Of this offset, when all between the anchor and it are records."""
        return sequence_of(self.anchor_offset, self.anchor_sequence, offset)

    def head(self, parcel: Parcel) -> bytes:
        """The header of this parcel on the twin; its body follows as it is."""
        producer_id, producer_epoch, anchor_offset, anchor_sequence = self
        sequence = sequence_of(anchor_offset, anchor_sequence, parcel.base)
        return restamp(parcel.header, producer_id, producer_epoch, sequence)

    def after(self, blanks: int) -> Stamp:
        """The stamp behind so many more offsets that no sequence counts."""
        return self._replace(anchor_offset=self.anchor_offset + blanks)
