"""Where does the twin end, and may we go on from there? One look, one pure verdict.

All readings are taken at one height (the log end, not the high watermark), because mixing heights puts data at wrong
offsets on replicated topics.
"""

from __future__ import annotations

from dataclasses import dataclass

from twinshore.mirror.cutting import Stamp
from twinshore.wire.batch import SEQUENCE_SPAN


@dataclass(frozen=True, slots=True)
class Tail:
    """The twin's last batch."""

    base_offset: int
    last_offset: int
    producer_id: int
    base_sequence: int


@dataclass(frozen=True, slots=True)
class Observation:
    """`producer` is what the twin's leader remembers of the link: last sequence and last timestamp; None if nothing.

    `source_start` and `source_end` are the source's log start and log end, read after the twin.
    """

    log_start: int
    high_watermark: int
    log_end: int
    tail: Tail | None
    producer: tuple[int, int] | None
    source_start: int
    source_end: int


@dataclass(frozen=True, slots=True)
class Go:
    """The twin ends at `position` and the log is ours. `last_timestamp` is -1 when the broker has forgotten us."""

    position: int
    last_timestamp: int = -1


@dataclass(frozen=True, slots=True)
class Wait:
    """Not to be judged yet; look again."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Stop:
    kind: str
    offset: int
    end: int
    sentence: str


Verdict = Go | Wait | Stop


def judge(seen: Observation, stamp: Stamp) -> Verdict:
    """Go only when both ends, the tail batch and the broker's memory of us tell the same story."""
    end = seen.log_end
    if seen.high_watermark != end:
        return Wait(f"the twin's replicas stand at {seen.high_watermark}, its leader at {end}")
    if end > seen.source_end:
        sentence = f"the source ends at {seen.source_end}, the twin already at {end}: the source has lost offsets"
        return Stop("truncation", seen.source_end, end, sentence)
    if seen.source_start > end:
        sentence = f"the source's log now begins at {seen.source_start}, the twin ends at {end}: retention was faster"
        return Stop("retention gap", end, seen.source_start, sentence)
    expected = (end - stamp.anchor_offset + stamp.anchor_sequence - 1) % SEQUENCE_SPAN
    if end > seen.log_start:
        foreign = _foreign(seen, stamp, expected)
        if foreign:
            return foreign
    if seen.producer is None:
        return Go(end)
    last_sequence, last_timestamp = seen.producer
    if last_sequence != expected and end > seen.log_start:
        return Wait(f"the broker's last sequence is {last_sequence}, the log's end asks for {expected}")
    return Go(end, last_timestamp if last_sequence == expected else -1)


def _foreign(seen: Observation, stamp: Stamp, expected: int) -> Stop | Wait | None:
    tail = seen.tail
    if tail is None or tail.last_offset != seen.log_end - 1:
        return Wait("the log moved between two readings")
    if tail.producer_id != stamp.producer_id:
        sentence = f"offsets up to {tail.last_offset} were written by producer id {tail.producer_id}, not by this link"
        return Stop("foreign write", tail.base_offset, seen.log_end, sentence)
    last = (tail.base_sequence + tail.last_offset - tail.base_offset) % SEQUENCE_SPAN
    if last != expected:
        sentence = f"the twin's last sequence is {last}; at offset {tail.last_offset} it should be {expected}"
        return Stop("position disagreement", tail.base_offset, seen.log_end, sentence)
    return None
