"""The text of notes on a cluster: JSON, bounded on its way in, because strangers may write there too. Pure."""

from __future__ import annotations

import json
from typing import Any

from twinshore.fleet.errors import WireError

KEY_BYTES_MAX = 2048
VALUE_BYTES_MAX = 1 << 16
WORD_CHARS_MAX = 512


def bounded_json(text: bytes, bytes_max: int = VALUE_BYTES_MAX) -> Any:
    """What a stranger may have written; WireError whatever is wrong with it."""
    if len(text) > bytes_max:
        raise WireError(f"a note of {len(text)} bytes")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WireError("a note that is not JSON") from error


def json_or_none(text: bytes | None, bytes_max: int = VALUE_BYTES_MAX) -> Any:
    """The same; None whatever is wrong with it."""
    try:
        return bounded_json(text, bytes_max) if text else None
    except WireError:
        return None


def note_text(value: object) -> bytes:
    """As keys and values of notes are written."""
    return json.dumps(value, separators=(",", ":")).encode()


def is_word(text: str, chars_max: int = WORD_CHARS_MAX) -> bool:
    """Whether it may stand in a sentence as it is: what is compared cannot be changed for that."""
    return len(text) <= chars_max and text.isprintable()


def as_word(text: str) -> str:
    """As it may stand in a sentence: what strangers write reaches terminals and logs."""
    return "".join(sign if sign.isprintable() else "?" for sign in text[:WORD_CHARS_MAX])
