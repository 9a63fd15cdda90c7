"""Joins neighbouring batches with compiled loops: a target appends 256 KB at about the cost of 16 KB.

Records read as before; only deltas are rewritten. Only uncompressed plain batches are joined: others would have to be
compressed again. Without numba nothing is.
"""

from __future__ import annotations

import warnings
from functools import cache
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any, Final, NamedTuple

import numpy as np

from twinshore.kafka.protocol.record_batch import BODY_IN_LENGTH, BatchHeader, seal_known

# While this process compiles the loops it does without them: an import would take seconds.
loops_build = SimpleNamespace(runs=False)


def load_loops(module: str) -> ModuleType | None:
    """Returns the compiled module; None without numba, or with a warning where it cannot compile."""
    try:
        return import_module(module)
    except ImportError:  # no wheel of numba for this platform
        return None
    except Exception as error:
        # Any fault of the compiler or its disk: everything also works without the loops.
        warnings.warn(
            f"no compiled code here, so batches are replicated one by one: {error!r}", RuntimeWarning, stacklevel=2
        )
        return None


LOOPS_MODULE: Final = "twinshore.kafka.protocol.compiled"

ProducerBatch = tuple[int, int, int, int, int, int]


class JoinedBatches(NamedTuple):
    """`end`: end of the joined batches in the source. `producers`: (id, epoch, first and last sequence, base offset,
    latest time) of each producer's last five batches.
    """

    body: memoryview
    header: BatchHeader
    end: int
    batches: int
    producers: list[ProducerBatch]


@cache
def compiled_loops() -> ModuleType | None:
    """Import the loops, in half a second, or more the first time on a machine."""
    return load_loops(LOOPS_MODULE)


def can_join() -> bool:
    return not loops_build.runs and compiled_loops() is not None


def join_buffer_bytes(size: int) -> int:
    """Returns the buffer size in which all batches of `size` bytes can be joined."""
    return size + size // 2 + 4096


class BatchJoiner:
    """Joins batches with reused tables; one for each thread."""

    def __init__(self, *, below_bytes: int, most_bytes: int) -> None:
        self._below, self._most = below_bytes, most_bytes
        self._join: Any = None
        self.able()

    def able(self) -> bool:
        """Whether joining is possible by now."""
        if self._join is None and can_join() and (compiled := compiled_loops()) is not None:
            self._row = np.zeros(compiled.ROW_FIELDS, dtype=np.int64)
            self._seen = np.zeros((compiled.SEEN_MAX, compiled.SEEN_FIELDS), dtype=np.int64)
            self._join = compiled.join_batches
        return self._join is not None

    def join(self, source: Any, place: int, first: BatchHeader, room: memoryview, to: int) -> JoinedBatches | None:
        """Join `first`, at `place` of `source` (see `as_source_array`), and following batches into `room` from `to` on.
        None for fewer than two; `room` from `to` on is then undefined.

        A batch with a wrong CRC, or an unusual one, ends the run.
        """
        if self._join is None:
            return None
        row, seen = self._row, self._seen
        self._join(source, np.frombuffer(room, dtype=np.uint8), place, first[0], to, self._below, self._most, row, seen)
        end, room_end, batches, next_offset, base_time, latest, epoch, known, crc = row.tolist()
        if batches < 2:
            return None
        body = room[to:room_end].toreadonly()
        count = next_offset - first[0]
        header = first._replace(
            length=BODY_IN_LENGTH + len(body),
            leader_epoch=epoch,
            last_offset_delta=count - 1,
            base_timestamp=base_time,
            max_timestamp=base_time + latest,
            base_sequence=-1,
            count=count,
        )
        producers = [tuple(entry) for entry in seen[:known].tolist()] if known else []
        return JoinedBatches(body, seal_known(header, len(body), crc), end, batches, producers)


def as_source_array(view: memoryview) -> Any:
    """Returns the bytes of a fetch for `BatchJoiner.join`, without a copy."""
    return np.frombuffer(view.toreadonly(), dtype=np.uint8)
