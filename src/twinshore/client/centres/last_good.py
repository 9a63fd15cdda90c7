"""The last push that was understood, in a file, for an application that starts while its centre is away.

It may hold passwords: only the user of the application can read it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from crc32c import crc32c

from twinshore.fleet.private import opener

HEAD = "twinshore push 1"


def keep(path: Path, text: str) -> None:
    """Whole, or as it was before. OSError where it cannot be written."""
    part = path.with_name(f"{path.name}.part")
    data = text.encode()
    try:
        with open(part, "wb", opener=opener) as file:
            file.write(f"{HEAD} {crc32c(data):08x}\n".encode() + data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError:
        with suppress(OSError):
            part.unlink()
        raise


def kept(path: Path) -> str | None:
    """None where there is none, or where it is damaged."""
    try:
        head, _, data = path.read_bytes().partition(b"\n")
    except OSError:
        return None
    return data.decode("utf-8", "replace") if head == f"{HEAD} {crc32c(data):08x}".encode() else None
