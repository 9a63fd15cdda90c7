"""A rescued tail: what an old home took and never sent, as lines of JSON, in a topic and in files. Pure.

The first line says where the records lay, the last one how many they are: a copy without it is not whole. Bytes are in
base 64. All lines of one attempt to save a tail have one key in the topic. What ends transactions is no record: it is
told as the ending of the records that it ended.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from twinshore.fleet import WireError
from twinshore.wire.note_text import note_text
from twinshore.wire.records import Record

WHAT = "rescued tail"
VERSION = 1
RECORD_LINE = b'{"offset":'
MARKER_BYTES = 4
COMMIT = 1


class Ending(StrEnum):
    """What became of a record. OPEN: its transaction never ended."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a tail lay: offsets `first` up to `end` of a partition of `cluster`. `home`: where its topic is at home
    instead, since the switch."""

    switch: str
    cluster: str
    home: str
    topic: str
    topic_id: str
    partition: int
    first: int
    end: int

    def file_name(self) -> str:
        """The same for the same tail, so that a tail saved twice is one file."""
        return f"{self.switch[:8]}-{self.topic}-{self.partition}-{self.first}-{self.end}.jsonl"


@dataclass(frozen=True, slots=True)
class Count:
    """How many records a tail holds, and how many of them consumers see that read what was committed."""

    records: int = 0
    committed: int = 0

    def with_one(self, ending: Ending) -> Count:
        return Count(self.records + 1, self.committed + (ending is Ending.COMMITTED))


@dataclass(frozen=True, slots=True)
class Saved:
    """A record of a tail."""

    record: Record
    ending: Ending


@dataclass(slots=True)
class Endings:
    """What became of each record, by the markers that lie behind it. They are told in the order of the log."""

    _ends: dict[int, list[tuple[int, bool]]] = field(default_factory=lambda: defaultdict(list))

    def note(self, producer_id: int, offset: int, key: bytes | None) -> None:
        """A control record of this producer."""
        self._ends[producer_id].append((offset, is_commit(key)))

    def of(self, producer_id: int, offset: int) -> Ending:
        """Of a record that was written in a transaction."""
        end = next((commit for at, commit in self._ends.get(producer_id, ()) if at > offset), None)
        if end is None:
            return Ending.OPEN
        return Ending.COMMITTED if end else Ending.ABORTED


@dataclass(frozen=True, slots=True)
class Copy:
    """A tail in the topic of rescued records: its first line lies at offset `at` or behind."""

    at: int
    key: bytes


@dataclass(slots=True)
class Copies:
    """Which tails a topic of rescued records holds whole, as its lines are read in order."""

    whole: dict[Origin, tuple[Copy, Count]] = field(default_factory=dict)
    _open: dict[bytes, tuple[Origin, Copy, int]] = field(default_factory=dict)

    def take(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        if key is None or value is None:
            return
        if key not in self._open:
            with suppress(WireError, UnicodeDecodeError):
                self._open[key] = read_head(value.decode(), "a line"), Copy(offset, key), 0
            return
        origin, copy, records = self._open[key]
        if not is_last(value):
            self._open[key] = origin, copy, records + 1
            return
        del self._open[key]
        with suppress(ValueError, TypeError):
            count = Count(**json.loads(value))
            if count.records == records:
                self.whole[origin] = copy, count


def is_last(line: bytes) -> bool:
    """Whether a line behind the first is the one that says how many records there are."""
    return not line.startswith(RECORD_LINE)


def key_of(origin: Origin, attempt: str) -> bytes:
    """The key of all lines of one attempt to save this tail."""
    return note_text([origin.switch, origin.topic, origin.partition, attempt])


def is_commit(key: bytes | None) -> bool:
    """Whether a control record commits: its key holds a version and a type, two bytes each."""
    return key is not None and len(key) >= MARKER_BYTES and int.from_bytes(key[2:4], "big") == COMMIT


def head_line(origin: Origin) -> str:
    return json.dumps({"twinshore": WHAT, "version": VERSION, **asdict(origin)})


def record_line(saved: Saved) -> str:
    one = saved.record
    return json.dumps(
        {
            "offset": one.offset,
            "timestamp": one.timestamp,
            "key": _text(one.key),
            "value": _text(one.value),
            "headers": [[_text(name), _text(value)] for name, value in one.headers],
            "fate": saved.ending,
        },
        separators=(",", ":"),
    )


def last_line(count: Count) -> str:
    return json.dumps(asdict(count))


def read_head(line: str, name: str) -> Origin:
    """WireError where the file is none of a rescued tail."""
    try:
        raw: dict[str, Any] = json.loads(line)
        if raw.pop("twinshore") != WHAT or raw.pop("version") != VERSION:
            raise ValueError(line)
        return Origin(**raw)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise WireError(f"{name} is no file of a rescued tail") from error


def read_lines(lines: Iterable[str], name: str) -> Iterator[Saved]:
    """The records behind the first line, in order. WireError where a line is none, or the last one is not there."""
    count = Count()
    for line in lines:
        try:
            raw: dict[str, Any] = json.loads(line)
            if "offset" not in raw:
                if Count(**raw) != count:
                    raise WireError(f"{name} is damaged: it says {raw['records']} records and holds {count.records}")
                return
            saved = _saved(raw)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise WireError(f"{name} is damaged behind record {count.records}") from error
        count = count.with_one(saved.ending)
        yield saved
    raise WireError(f"{name} is not whole: it ends behind record {count.records}")


def _saved(raw: dict[str, Any]) -> Saved:
    headers = tuple((_bytes(header) or b"", _bytes(value)) for header, value in raw["headers"])
    record = Record(int(raw["offset"]), int(raw["timestamp"]), _bytes(raw["key"]), _bytes(raw["value"]), headers)
    return Saved(record, Ending(raw["fate"]))


def _text(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text, validate=True)
