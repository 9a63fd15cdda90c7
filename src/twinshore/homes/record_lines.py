"""Records of switches, as lines of `twinshore.homes`: there they stand where no store can keep them. Pure.

A record is cut into parts, and a head names them. A head says which one it follows, and one that follows another than
the one that stands has lost, wherever in the log it lies. So of two processes that go on with one switch the log's
order decides, and the other one is told. Compaction keeps the last head: whoever sees that one lies there which has
lost writes what stands again (`mending`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from twinshore.fleet.errors import TooLargeError
from twinshore.wire.note_text import bounded_json, json_or_none, note_text

PART_BYTES = 1 << 18
PARTS_MAX = 32
# What strangers write must not fill the memory.
SWITCHES_MAX = 200
GONE_MAX = 10_000
RECORD_BYTES_MAX = PART_BYTES * PARTS_MAX
RECORDS_BYTES_MAX = 1 << 26
DIGEST_CHARS = 32
SWITCH, PART = "switch", "part"

Line = tuple[bytes, bytes | None]


@dataclass(frozen=True, slots=True)
class Head:
    """`after`: the digest of the record that this one follows, empty for a switch's first."""

    digest: str
    parts: int
    after: str = ""

    def text(self) -> bytes:
        return note_text({"digest": self.digest, "parts": self.parts, "after": self.after})


@dataclass(slots=True)
class RecordLog:
    """The records of one cluster, as the log goes on. `full`: there is more than is taken."""

    full: bool = False
    _heads: dict[str, Head] = field(default_factory=dict)
    _gone: dict[str, None] = field(default_factory=dict)
    _behind: set[str] = field(default_factory=set)
    _parts: dict[tuple[str, str, int], bytes] = field(default_factory=dict)
    _bytes: int = 0

    def switches(self) -> list[str]:
        """Those that have a record."""
        return sorted(self._heads)

    def digest(self, switch: str) -> str:
        """Of the record that stands; empty where none does."""
        head = self._heads.get(switch)
        return head.digest if head else ""

    def record(self, switch: str) -> dict[str, Any] | None:
        """What was saved last of the switch; None where nothing is, or where what is there is not whole."""
        head = self._heads.get(switch)
        pieces = [self._parts.get((switch, head.digest, number)) for number in range(head.parts)] if head else []
        text = b"".join(piece for piece in pieces if piece is not None)
        if head is None or None in pieces or digest_of(text) != head.digest:
            return None
        found = bounded_json(text, RECORD_BYTES_MAX)
        return found if isinstance(found, dict) else None

    def lines(self, switch: str, record: Mapping[str, Any]) -> list[Line]:
        """What is to be written, in this order, so that this record follows the one that stands, which is whole until
        the last of these lines. TooLargeError where it is larger than what is read."""
        text = note_text(record)
        if len(text) > RECORD_BYTES_MAX:
            raise TooLargeError(f"the record of a switch has {len(text)} bytes: {RECORD_BYTES_MAX} are kept at most")
        digest, pieces = (
            digest_of(text),
            [text[start : start + PART_BYTES] for start in range(0, len(text), PART_BYTES)],
        )
        if self.digest(switch) == digest and self.record(switch) is not None:
            return []
        parts: list[Line] = [(note_text([PART, switch, digest, number]), piece) for number, piece in enumerate(pieces)]
        return [*parts, (note_text([SWITCH, switch]), Head(digest, len(pieces), self.digest(switch)).text())]

    def spent(self, switch: str) -> list[Line]:
        """Takes away the parts of records that stand no more."""
        stands = self.digest(switch)
        return [(note_text([PART, *place]), None) for place in self._of(switch) if place[1] != stands]

    def end_lines(self, switch: str) -> list[Line]:
        """The switch is history."""
        head: list[Line] = [(note_text([SWITCH, switch]), None)] if switch in self._heads else []
        return head + [(note_text([PART, *place]), None) for place in self._of(switch)]

    def mending(self) -> list[Line]:
        """Heads that stand and that compaction would lose, because one that has lost lies behind them."""
        heads = ((switch, self._heads.get(switch)) for switch in sorted(self._behind))
        return [(note_text([SWITCH, switch]), head.text() if head else None) for switch, head in heads]

    def take_head(self, switch: str, value: bytes | None) -> None:
        if value is None:
            self._heads.pop(switch, None)
            self._behind.discard(switch)
            self._gone[switch] = None
            if len(self._gone) > GONE_MAX:
                del self._gone[next(iter(self._gone))]
            return
        head, there = _head(value), self._heads.get(switch)
        if head is None:
            return
        if head == there:
            self._behind.discard(switch)
        elif (there and head.after != there.digest) or (there is None and switch in self._gone):
            self._behind.add(switch)
        elif there or len(self._heads) < SWITCHES_MAX:
            # The first that is read may follow one that compaction took away.
            self._heads[switch] = head
            self._behind.discard(switch)
        else:
            self.full = True

    def take_part(self, place: tuple[str, str, int], value: bytes | None) -> None:
        if value is None:
            self._bytes -= len(self._parts.pop(place, b""))
        elif len(value) <= PART_BYTES:
            whole = self._bytes + len(value) - len(self._parts.get(place, b""))
            if whole > RECORDS_BYTES_MAX or len(self._parts) >= SWITCHES_MAX * PARTS_MAX:
                self.full = True
                return
            self._parts[place], self._bytes = value, whole

    def _of(self, switch: str) -> list[tuple[str, str, int]]:
        return [place for place in sorted(self._parts) if place[0] == switch]


def digest_of(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:DIGEST_CHARS]


def record_digest(record: Mapping[str, Any]) -> str:
    """What a record is known by."""
    return digest_of(note_text(record))


def _head(value: bytes) -> Head | None:
    match json_or_none(value):
        case {"digest": str(digest), "parts": int(parts), "after": str(after)} if (
            _is_digest(digest) and 0 < parts <= PARTS_MAX and (not after or _is_digest(after))
        ):
            return Head(digest, parts, after)
        case _:
            return None


def _is_digest(text: str) -> bool:
    return len(text) == DIGEST_CHARS and set(text) <= set("0123456789abcdef")
