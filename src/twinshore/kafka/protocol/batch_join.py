"""Compiled loops where this machine can compile; plain Python has the same in any case.

Whole neighbouring batches as one larger one: the target appends 256 KB at about the cost of 16 KB.

Offsets, time stamps, keys, values and headers read as before; only deltas are written anew. Uncompressed plain batches
alone are joined: the others would have to be compressed again. Where numba cannot run nothing is joined here.
"""

from __future__ import annotations

import warnings
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, Final, NamedTuple

import numpy as np

from twinshore.kafka.protocol.record_batch import BODY_IN_LENGTH, BatchHeader, seal_known

_being_built: set[str] = set()


def load_loops(module: str) -> ModuleType | None:
    """The module of compiled loops; None where numba is not installed, or cannot compile here, which is said."""
    try:
        return import_module(module)
    except ImportError:  # no wheel of numba for this platform
        return None
    except Exception as error:
        # Whatever a compiler, its folder or its disk has: all that is done by loops is done without them.
        warnings.warn(f"no compiled code here, so batches cross one by one: {error!r}", RuntimeWarning, stacklevel=2)
        return None


def is_compiling(module: str) -> bool:
    """Whether somebody compiles it at present: whoever asked for it now would wait for seconds."""
    return module in _being_built


def disable_loops(module: str) -> None:
    """Until `enable_loops`, what has this module for its speed does without it."""
    _being_built.add(module)


def enable_loops(module: str) -> None:
    """It is built, or cannot be: loading it takes no longer than ever."""
    _being_built.discard(module)


LOOPS_MODULE: Final = "twinshore.kafka.protocol.compiled"

ProducerBatch = tuple[int, int, int, int, int, int]


class JoinedBatches(NamedTuple):
    """`end` is where the joined batches end in the source's bytes; `producers` as (id, epoch, first and last sequence,
    base offset, latest time) for the last five batches of each."""

    body: memoryview
    header: BatchHeader
    end: int
    batches: int
    producers: list[ProducerBatch]


@cache
def compiled_loops() -> ModuleType | None:
    """Loaded when a lane first needs it, since that takes half a second, and some more the first time on a machine."""
    return load_loops(LOOPS_MODULE)


def can_join() -> bool:
    """Whether this machine can join by now."""
    return not is_compiling(LOOPS_MODULE) and compiled_loops() is not None


def join_buffer_bytes(size: int) -> int:
    """How large a room must be so that everything in `size` bytes of batches can be joined within it."""
    return size + size // 2 + 4096


class BatchJoiner:
    """Its tables, used again and again: one for each thread that joins."""

    def __init__(self, *, below_bytes: int, most_bytes: int) -> None:
        self._below, self._most = below_bytes, most_bytes
        self._join: Any = None
        self.able()

    def able(self) -> bool:
        """Whether it joins by now: loops that are still being built are taken up once they are there."""
        if self._join is None and can_join() and (compiled := compiled_loops()) is not None:
            self._row = np.zeros(compiled.ROW_FIELDS, dtype=np.int64)
            self._seen = np.zeros((compiled.SEEN_MAX, compiled.SEEN_FIELDS), dtype=np.int64)
            self._join = compiled.join_batches
        return self._join is not None

    def join(self, source: Any, place: int, first: BatchHeader, room: memoryview, to: int) -> JoinedBatches | None:
        """Joins the batch `first`, at `place` of `source` (see `as_source_array`), with those that follow it and fit,
        into `room` from `to` on. None when fewer than two can be joined: the room's bytes from `to` on are then
        undefined.

        A batch whose CRC is wrong, or that is unusual in any way, ends the run before it.
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
    """The bytes of a fetch in the shape that `BatchJoiner.join` takes; no copy."""
    return np.frombuffer(view.toreadonly(), dtype=np.uint8)
