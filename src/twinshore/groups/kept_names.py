"""A set of groups' names as a row of the store."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Collection, Iterable

from twinshore.store import Remembered

# Beyond so many that a store should not be bothered with them none is kept.
NAMES_MAX = 20_000


def names_row(link: str, kind: str, names: Collection[str], now_ms: int) -> Remembered:
    """The row that keeps them."""
    listed = sorted(names) if len(names) <= NAMES_MAX else []
    value = base64.b85encode(zlib.compress(json.dumps(listed).encode())).decode()
    return Remembered(link, kind, "", value, kind, now_ms)


def names_in(rows: Iterable[Remembered]) -> frozenset[str]:
    """What such a row keeps; nothing without one, or where its value is empty."""
    for row in rows:
        return frozenset(json.loads(zlib.decompress(base64.b85decode(row.value))) if row.value else ())
    return frozenset()
