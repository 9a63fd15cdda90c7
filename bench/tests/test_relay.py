"""The bench of a bare relay: everything arrives either way, or its figure would be of nothing."""

from __future__ import annotations

import os
from pathlib import Path

from bench.measure.relay import BATCH_BYTES, COPIED, relayed

WAYS = (COPIED, BATCH_BYTES[0]) if hasattr(os, "splice") else (COPIED,)


def test_each_way_passes_on_every_byte(tmp_path: Path) -> None:
    file = tmp_path / "batches"
    file.write_bytes(os.urandom(BATCH_BYTES[0]) * 64)
    for batch_bytes in WAYS:
        found = relayed(str(file), batch_bytes, passes=2)
        assert found.total_bytes == 2 * 64 * BATCH_BYTES[0], found.name
        assert found.cpu_s > 0
