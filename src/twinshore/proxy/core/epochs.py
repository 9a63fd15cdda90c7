"""Leader epochs as clients see them, so that they rise whenever a topic moves. Pure.

Each cluster counts the leaders of its partitions by itself, and a client leaves aside whatever comes with a lower epoch
than it knows. So in each term of a topic clients see its home's epochs above those of all terms before: their *base* is
a matter of the term alone, and every proxy has the same. Of an epoch of an earlier term it is asked where it ended:
where the topic moved. A topic that no switch ever had has no term, and its epochs are not told.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any, Final

from twinshore.proxy.core.seen import Seen
from twinshore.wire.batch import PREFIX_BYTES
from twinshore.wire.serving import fetch

NO_EPOCH: Final = -1
# A partition has fewer leaders than that in one term.
EPOCHS: Final = 1 << 20
TERMS: Final = 1 << 11
_LENGTH_AND_EPOCH: Final = struct.Struct(">8xii")
_EPOCH: Final = struct.Struct(">i")
_EPOCH_AT: Final = PREFIX_BYTES
# Older formats than this have a CRC where it has the epoch.
_MAGIC_AT: Final = PREFIX_BYTES + 4
_MAGIC: Final = 2
# Where a topic moved that has not told its points.
_NOWHERE: Final = (1 << 63) - 1


def base_of(topic: str, seen: Seen) -> int | None:
    """None where the epochs of the topic are not told."""
    lead = seen.leads.get(topic)
    return (lead.term - 1) * EPOCHS if lead is not None and lead.term <= TERMS else None


def told(epoch: int, base: int | None) -> int:
    """The home's epoch as clients see it."""
    return base + epoch if base is not None and 0 <= epoch < EPOCHS else NO_EPOCH


def meant(epoch: int, base: int | None) -> int:
    """The home's epoch that a client means; none where it is of another term."""
    return epoch - base if base is not None and 0 <= epoch - base < EPOCHS else NO_EPOCH


def is_earlier(epoch: int, base: int | None) -> bool:
    """Whether it is one of an earlier term."""
    return base is not None and 0 <= epoch < base


def moved_at(topic: str, partition: int, seen: Seen) -> int:
    """Up to where what was read in earlier terms is what the topic's home has."""
    points = seen.leads[topic].points
    return points[partition] if partition < len(points) else _NOWHERE


def wanted(one: fetch.Wanted, seen: Seen, cluster: str) -> fetch.Wanted:
    """As the broker is asked for it. A twin's epochs are its own."""
    topic = str(one.topic)
    base = None if seen.is_elsewhere(topic, cluster) else base_of(topic, seen)
    epoch, last = meant(one.leader_epoch, base), meant(one.last_fetched_epoch, base)
    return one._replace(leader_epoch=epoch, last_fetched_epoch=last)


def fetched(answer: fetch.FetchAnswer, seen: Seen, cluster: str) -> fetch.FetchAnswer:
    """With epochs as clients see them, the same answer where they are so already. A twin counts other leaders, so of
    its batches none is told."""
    parts = [_fetched(one, seen, cluster) for one in answer.fetched]
    changed = any(one is not before for one, before in zip(parts, answer.fetched, strict=True))
    return answer._replace(fetched=parts) if changed else answer


def _fetched(one: fetch.Fetched, seen: Seen, cluster: str) -> fetch.Fetched:
    topic = str(one.topic)
    base, here = base_of(topic, seen), not seen.is_elsewhere(topic, cluster)
    if here and not base:
        return one
    if one.diverging_epoch is not None:
        epoch, end = one.diverging_epoch
        one = one._replace(diverging_epoch=(told(epoch, base), end) if here else None)
    if not one.records or len(one.records) < _LENGTH_AND_EPOCH.size:
        return one
    return one._replace(records=_restamped(one.records, base if here else None))


def _restamped(records: memoryview | bytes, base: int | None) -> memoryview:
    """The batches with other epochs, which no CRC covers. The last one may be cut off anywhere."""
    out = bytearray(records)
    position, last = 0, len(out) - _MAGIC_AT - 1
    while position <= last:
        length, epoch = _LENGTH_AND_EPOCH.unpack_from(out, position)
        if out[position + _MAGIC_AT] >= _MAGIC:
            _EPOCH.pack_into(out, position + _EPOCH_AT, told(epoch, base))
        if length <= 0:
            break
        position += PREFIX_BYTES + length
    return memoryview(out)


def of_places(asked: Any, seen: Seen) -> Any:
    """A commit without epochs that no cluster counts, the same where it has none: whoever reads the place there would
    take them for its own."""
    topics = tuple(without(one) if base_of(str(one.name), seen) else one for one in asked.topics)
    changed = any(one is not before for one, before in zip(topics, asked.topics, strict=True))
    return replace(asked, topics=topics) if changed else asked


def without(topic: Any) -> Any:
    """Places in a topic, without leader epochs. A client that begins at one asks whether its epoch still holds, and the
    topic may have moved since: on another cluster that epoch says nothing."""
    if topic.partitions and hasattr(topic.partitions[0], "committed_leader_epoch"):
        partitions = tuple(replace(one, committed_leader_epoch=NO_EPOCH) for one in topic.partitions)
        return replace(topic, partitions=partitions)
    return topic
