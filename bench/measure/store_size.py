"""`python -m bench.measure.store_size`: how many bytes the store has on SQLite for each partition, producer and
offset run.

Writes docs/evidence/store.md, from which the pages have their figures; nothing here depends on how fast the machine is.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.kit.sizes import EVIDENCE, Sizes, page_of
from twinshore.config.model import OffsetRun, SourceOffset, TargetOffset
from twinshore.state.core.progress_rules import PRODUCERS_PER_PARTITION_MAX
from twinshore.state.core.values import BATCHES_KEPT, ProgressRecord, SourceBatch, SourceProducer, TwinRow
from twinshore.state.store import Store, open_store

LINK, TOPIC = "east->west", "orders"
PARTITIONS = 2_000
FULL_PARTITIONS = 20
OFFSET_RUNS = 50_000
# Where a cluster stands after years: SQLite writes a large number in more bytes than a small one.
NOW_MS, OFFSET, PRODUCER_ID = 1_760_000_000_000, 1_000_000_000, 10_000_000
_AT_ONCE = 5_000


def measure_sizes(*, part_of: int = 1) -> Sizes:
    """`part_of`: so much less of everything."""
    partitions, full = PARTITIONS // part_of, max(2, FULL_PARTITIONS // part_of)
    return Sizes(
        partition=round(_grown(lambda store: _rows(store, partitions)) / partitions, 1),
        producer=round(_grown(lambda store: _producers(store, full)) / (full * PRODUCERS_PER_PARTITION_MAX), 1),
        producers_max=PRODUCERS_PER_PARTITION_MAX,
        offset_run=round(
            _grown(lambda store: _offset_runs(store, OFFSET_RUNS // part_of)) / (OFFSET_RUNS // part_of), 1
        ),
    )


def _grown(write: Callable[[Store], None]) -> int:
    """By how many bytes the file of an empty store grew."""
    with tempfile.TemporaryDirectory(prefix="store-size-") as folder:
        place = Path(folder) / "twinshore.db"
        open_store(f"sqlite:///{place}").close()
        before = _bytes(place)
        with open_store(f"sqlite:///{place}") as store:
            write(store)
        return _bytes(place) - before


def _bytes(place: Path) -> int:
    return sum(path.stat().st_size for path in place.parent.glob(f"{place.name}*"))


def _rows(store: Store, partitions: int) -> None:
    store.progress.record([_receipt(number) for number in range(partitions)])


def _producers(store: Store, partitions: int) -> None:
    for number in range(partitions):
        batches = tuple(SourceBatch(one * 5, one * 5 + 4, OFFSET + one, NOW_MS + one) for one in range(BATCHES_KEPT))
        known = tuple(SourceProducer(PRODUCER_ID + one, 0, batches) for one in range(PRODUCERS_PER_PARTITION_MAX))
        store.progress.record([_receipt(number, known)])


def _offset_runs(store: Store, count: int) -> None:
    """As a topic of transactions makes them: each commit of the source is an offset that the twin has not."""
    first = _offset_run(0)
    store.offset_runs.adopt([(TwinRow(LINK, TOPIC, 0, "a" * 22, "b" * 22, first.source, first.sequence, 5), first)])
    for begin in range(0, count, _AT_ONCE):
        gained = tuple(_offset_run(number) for number in range(begin, min(begin + _AT_ONCE, count)))
        end = int(gained[-1].source) + gained[-1].length + 1
        store.progress.record(
            [
                ProgressRecord(
                    link=LINK,
                    topic=TOPIC,
                    partition=0,
                    from_offset=int(gained[0].source),
                    to_offset=end,
                    records=end,
                    bytes=end,
                    batches=1,
                    source_end=end,
                    first_ms=0,
                    last_ms=1,
                    lag_records=0,
                    offset_runs=gained,
                )
            ]
        )


def _offset_run(number: int) -> OffsetRun:
    return OffsetRun(SourceOffset(OFFSET + number * 11), TargetOffset(OFFSET + number * 10), 10, number * 10)


def _receipt(partition: int, producers: Sequence[SourceProducer] = ()) -> ProgressRecord:
    return ProgressRecord(
        link=LINK,
        topic=TOPIC,
        partition=partition,
        from_offset=OFFSET,
        to_offset=OFFSET + 10_000,
        records=10_000,
        bytes=10_000_000,
        batches=100,
        source_end=OFFSET + 10_000,
        first_ms=NOW_MS,
        last_ms=NOW_MS,
        source_producers=tuple(producers),
    )


def main() -> int:
    """Writes the page of evidence; the line of JSON to standard output."""
    page = page_of(measure_sizes())
    EVIDENCE.write_text(page, encoding="utf-8")
    print(page.splitlines()[-2])
    return 0


if __name__ == "__main__":
    sys.exit(main())
