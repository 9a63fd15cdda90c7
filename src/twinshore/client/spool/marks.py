"""What of a spool is done: for each topic a number below which all is, but for a few that are named. Pure.

One line of text: its checksum, and JSON. A line that cannot be read marks nothing: what is on disk is sent again then,
and nothing is lost. `next_number` is above every number that was ever given, so that no mark covers a later record.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from crc32c import crc32c

from twinshore.fleet import NotYetError

VERSION = 1


@dataclass(frozen=True, slots=True)
class Mark:
    """Of one topic: records with a number below `below` are done, but for those in `open`."""

    below: int = 0
    open: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Marks:
    """`end`: the segment, and the byte of it, where the spool ended then. A mark says nothing of what lies behind: what
    comes late has a low number. `gaps`: bytes before there, by segment and where they begin, that are of writes which
    may never have ended: an earlier start said so, when nothing lay behind them yet."""

    next_number: int = 0
    end: tuple[int, int] = (0, 0)
    topics: Mapping[str, Mark] = field(default_factory=dict)
    gaps: frozenset[tuple[int, int]] = frozenset()

    def text(self) -> bytes:
        topics = {name: [mark.below, list(mark.open)] for name, mark in sorted(self.topics.items())}
        told = {"version": VERSION, "next": self.next_number, "end": self.end, "topics": topics}
        if self.gaps:
            told["gaps"] = sorted(self.gaps)
        body = json.dumps(told).encode()
        return b"%08x %s\n" % (crc32c(body), body)


def read_marks(text: bytes) -> Marks | None:
    """None where it cannot be read; NotYetError where it is of a later version."""
    checksum, _, body = text.removesuffix(b"\n").partition(b" ")
    if not body or checksum != b"%08x" % crc32c(body):
        return None
    found = json.loads(body)
    if found["version"] != VERSION:
        raise NotYetError(
            f"the spool's marks are of version {found['version']}, and this is version {VERSION}",
            hint="update the client",
        )
    topics = {name: Mark(below, tuple(still)) for name, (below, still) in found["topics"].items()}
    segment, at = found["end"]
    gaps = frozenset((sequence, begin) for sequence, begin in found.get("gaps", ()))
    return Marks(found["next"], (segment, at), topics, gaps)
