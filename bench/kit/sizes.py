"""docs/evidence/store.md: what `bench.measure.store_size` found, as it writes it and as pages read it again."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass

from bench.kit.page import PAGE

EVIDENCE = PAGE.parent / "evidence" / "store.md"
_HEAD = """\
# The store's size

Written by `.venv/bin/python -m bench.measure.store_size`; no figure is typed by hand. It measures by how much a file of
SQLite grows when each partition gets as many rows as it may have.

"""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes in SQLite's file, indexes among them. `partition`: without producers of the source;
    `producer`: with all the batches that are kept of it; `offset_run`: one row of a mapped topic's map."""

    partition: float
    producer: float
    producers_max: int
    offset_run: float


def recorded(page: str) -> Sizes:
    """What the page of evidence says."""
    line = re.search(r'^\{"bench": "store_size".*\}$', page, re.MULTILINE)
    assert line, "the bench's own line is on its page"
    said = json.loads(line[0])
    return Sizes(**{name: value for name, value in said.items() if name != "bench"})


def page_of(sizes: Sizes) -> str:
    """The page of evidence."""
    rows = [
        f"| a partition | {sizes.partition:,.0f} bytes |",
        f"| a producer of the source in a partition, with its last batches; at most {sizes.producers_max:,} are kept"
        f" | {sizes.producer:,.0f} bytes |",
        f"| an offset run of a mapped topic's map | {sizes.offset_run:,.0f} bytes |",
    ]
    line = json.dumps({"bench": "store_size", **asdict(sizes)})
    return "\n".join([f"{_HEAD}| what | size |", "| --- | ---: |", *rows, "", "```json", line, "```", ""])
