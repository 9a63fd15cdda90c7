"""The table in docs/delay.md: always of this seed, so that it changes only when an algorithm does."""

from __future__ import annotations

import functools

from twinshore.delay.simulation.trial import table
from twinshore.fleet.settings.sections.delay import DelaySettings

SEED, HOURS, RUNS = 1, 3.0, 10
BEGIN, END = "<!-- simulated -->\n", "<!-- end -->"


def with_table(page: str) -> str:
    """The page with the table as the code makes it now."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}{_table()}\n{END}{tail}"


@functools.cache
def _table() -> str:
    return table(SEED, HOURS, RUNS, DelaySettings())
