"""What a mirror that stands by says of itself beside the one that carries the link: that it lives. Pure: moments come
in."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from twinshore.mirror.metrics.lag_word import is_fresh
from twinshore.store.values import Remembered

# The kind under which the word stands in the store. Of several that stand by, the one that spoke last is seen.
STANDBY_KIND = "standby"


@dataclass(frozen=True, slots=True)
class StandbyWord:
    """`who` stands by, and `sentence` says for whom, and until when."""

    who: str
    sentence: str


def as_row(link: str, who: str, sentence: str, now_ms: int) -> Remembered:
    """As it stands in the store."""
    said = json.dumps(asdict(StandbyWord(who, sentence)), separators=(",", ":"))
    return Remembered(link, STANDBY_KIND, "", said, STANDBY_KIND, now_ms)


def standby_of(rows: Iterable[Remembered], now_ms: int, holds_s: float) -> StandbyWord | None:
    """The last word, while it holds: who said it longer ago may be gone."""
    for row in rows:
        if is_fresh((now_ms - row.since_ms) / 1000, holds_s):
            return StandbyWord(**json.loads(row.value))
    return None
