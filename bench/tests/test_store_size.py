"""The bench of the store's size: a file that grows with what is in it, and a page that can be read again."""

from __future__ import annotations

from bench.kit.sizes import EVIDENCE, page_of, recorded
from bench.measure.store_size import measure_sizes


def test_what_it_writes_is_what_pages_read() -> None:
    found = measure_sizes(part_of=10)
    assert recorded(page_of(found)) == found
    kept = recorded(EVIDENCE.read_text())
    for ours, theirs in (
        (found.partition, kept.partition),
        (found.producer, kept.producer),
        (found.offset_run, kept.offset_run),
    ):
        assert 0.5 < ours / theirs < 2, "the page of evidence is of another store: run the bench again"
