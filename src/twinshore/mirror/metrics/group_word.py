"""What the rounds of a link's consumer groups last said of themselves, as metrics. They run beside the mirror."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from twinshore.mirror.metrics import table
from twinshore.mirror.metrics.table import Metric
from twinshore.store import Remembered

# The kind under which a link's rounds leave their word in the store.
GROUPS_KIND = "groups"
Put = Callable[[Metric, Sequence[str], float], None]


def group_word(rows: Iterable[Remembered]) -> Mapping[str, Any]:
    """The last word; empty where no round has ever spoken."""
    return next((dict(json.loads(row.value)) for row in rows), {})


def put_groups(put: Put, link: str, word: Mapping[str, Any], now_s: float) -> None:
    """The word's figures."""
    if word:
        for state, count in word["states"].items():
            put(table.GROUPS, (link, state), count)
        put(table.GROUPS_BEHIND, (link,), word["behind"])
        put(table.GROUPS_ROUND, (link,), word["took_ms"] / 1000)
        put(table.GROUPS_WORD_AGE, (link,), max(0.0, now_s - word["at_ms"] / 1000))
