"""Single records out of their rows: for keys, for people, and where bytes differ though records do not. Pure."""

from __future__ import annotations

from twinshore.fleet import WireError
from twinshore.proof.rows import Array
from twinshore.proof.values import SHOWN_BYTES_MAX, Shown
from twinshore.wire.primitives import PAST_END, read_varint
from twinshore.wire.records import Headers, Record


def record_at(data: Array, row: Array) -> Record:
    """The record of a row; WireError when its fields do not fill it."""
    offset, timestamp, start, end = row.tolist()
    rest = data[start:end].tobytes()
    try:
        key, place = _blob(rest, 0)
        value, place = _blob(rest, place)
        headers, place = _headers(rest, place)
    except PAST_END as error:
        raise WireError(f"the record at offset {offset} ends too early") from error
    if place != len(rest):
        raise WireError(f"the record at offset {offset} has {len(rest) - place} bytes too many")
    return Record(offset, timestamp, key, value, headers)


def key_at(data: Array, row: Array) -> tuple[bytes | None, bool]:
    """The record's key, and whether it is a tombstone."""
    _, _, start, end = row.tolist()
    rest = data[start:end].tobytes()
    key, place = _blob(rest, 0)
    size, _ = read_varint(rest, place)
    return key, size == -1


def same_record(data: Array, row: Array, peer_data: Array, peer: Array) -> bool:
    """Time stamp, key, value and headers are the same, whatever the bytes they are written in."""
    one, other = row.tolist(), peer.tolist()
    if one[1] != other[1]:
        return False
    return record_at(data, row)[1:] == record_at(peer_data, peer)[1:]


def shown(record: Record) -> Shown:
    """The record for people."""
    headers = tuple((as_text(name) or "", as_text(content)) for name, content in record.headers)
    return Shown(record.offset, record.timestamp, as_text(record.key), as_text(record.value), headers)


def as_text(content: bytes | None) -> str | None:
    """Bytes for people: cut off where they are long, in hex where they are no text."""
    if content is None:
        return None
    cut = content[:SHOWN_BYTES_MAX]
    try:
        text = cut.decode()
        plain = text.isprintable()
    except UnicodeDecodeError:
        plain = False
    words = text if plain else f"0x{cut.hex()}"
    return words if len(content) <= SHOWN_BYTES_MAX else f"{words}... ({len(content)} bytes)"


def _blob(data: bytes, place: int) -> tuple[bytes | None, int]:
    size, start = read_varint(data, place)
    if size == -1:
        return None, start
    if size < 0 or start + size > len(data):
        raise WireError(f"a field claims {size} bytes of {len(data) - start}")
    return data[start : start + size], start + size


def _headers(data: bytes, place: int) -> tuple[Headers, int]:
    count, place = read_varint(data, place)
    if not 0 <= count <= len(data):
        raise WireError(f"a record claims {count} headers in {len(data)} bytes")
    found = []
    for _ in range(count):
        name, place = _blob(data, place)
        content, place = _blob(data, place)
        found.append((name or b"", content))
    return tuple(found), place
