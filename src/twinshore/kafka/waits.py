"""Which clusters are waited for at this moment, and since when: for a command that tells a person why it is silent."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple


class Wait(NamedTuple):
    """A question to a cluster that has no answer yet."""

    cluster: str
    at: str
    since_s: float


_NOW: dict[object, Wait] = {}


@contextmanager
def waiting(cluster: str, at: str) -> Iterator[None]:
    """Around a question with all its attempts. Safe for several threads."""
    key = object()
    _NOW[key] = Wait(cluster, at, time.monotonic())
    try:
        yield
    finally:
        del _NOW[key]


def waits() -> list[Wait]:
    """Those of all threads, by `time.monotonic`."""
    return list(_NOW.values())
