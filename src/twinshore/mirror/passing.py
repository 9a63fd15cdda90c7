"""Errors that pass by themselves: the partition is tried again, and once they have lasted they are told. Pure."""

from __future__ import annotations

from twinshore.kafka.errors import describe
from twinshore.mirror.answers import wait_s
from twinshore.mirror.cutting import Parcel
from twinshore.mirror.orders import WAIT_POLICY, Stoppage
from twinshore.mirror.track import Track
from twinshore.mirror.trouble import TROUBLE_S
from twinshore.wire.fetch import FetchedPartition
from twinshore.wire.produce import ProducedPartition


def unread(track: Track, part: FetchedPartition, now_s: float) -> list[Stoppage]:
    """The source's leader did not let it be read. The row is over once what lies there crosses, or once it can be read
    where nothing lies there."""
    kind = describe(part.error)
    at, name = track.fetched, kind.name if part.error else "another history"
    track.unread += 1
    track.settle(now_s + wait_s(track.unread))
    if not track.trouble.lasts(now_s):
        return []
    end = at + 1 if track.source_end > at else at
    sentence = f"the source's leader answers {name} to fetches at offset {at}, for {TROUBLE_S:.0f} s by now"
    named, told = track.named, f"{sentence}: {kind.sentence}"
    return [Stoppage(named.topic, named.partition, "source away", at, end, told, WAIT_POLICY)]


def untaken(track: Track, part: ProducedPartition, parcel: Parcel, now_s: float) -> list[Stoppage]:
    """The twin's leader did not take a batch."""
    kind, where = describe(part.error), f"offsets {parcel.base} to {parcel.end - 1}"
    track.again(now_s)
    if not track.trouble.lasts(now_s):
        return []
    told = f"the twin's leader answers {kind.name} to {where}, for {TROUBLE_S:.0f} s by now: {kind.sentence}"
    named = track.named
    return [Stoppage(named.topic, named.partition, "target away", parcel.base, parcel.end, told, WAIT_POLICY)]


def read_again(track: Track) -> None:
    """The source can be read: the next account says so, whether anything crosses or not."""
    track.unread, track.told_source = 0, (-1, -1)
    track.trouble.over()


def taken_again(track: Track) -> None:
    """The target took something."""
    track.failures = 0
    track.trouble.over()
