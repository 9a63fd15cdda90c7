"""The word of a link's groups, as the server tells it."""

from __future__ import annotations

import json

from twinshore.mirror.metrics import table
from twinshore.mirror.metrics.table import Metric
from twinshore.mirror.metrics.words import GROUPS_KIND, group_word, put_groups
from twinshore.store import Remembered


def test_the_last_word_is_told_with_its_age() -> None:
    said = {"at_ms": 10_000, "took_ms": 250.0, "states": {"same": 7, "behind": 1}, "behind": 42, "differ": {}}
    word = group_word([Remembered("east->west", GROUPS_KIND, "", json.dumps(said), GROUPS_KIND, 0)])
    told: dict[tuple[Metric, tuple[str, ...]], float] = {}
    put_groups(lambda metric, labels, value: told.update({(metric, tuple(labels)): value}), "l", word, now_s=13.0)
    assert told == {
        (table.GROUPS, ("l", "same")): 7,
        (table.GROUPS, ("l", "behind")): 1,
        (table.GROUPS_BEHIND, ("l",)): 42,
        (table.GROUPS_ROUND, ("l",)): 0.25,
        (table.GROUPS_WORD_AGE, ("l",)): 3.0,
    }


def test_where_no_round_ever_spoke_nothing_is_told() -> None:
    told: list[Metric] = []
    put_groups(lambda *said: told.append(said[0]), "l", group_word([]), now_s=13.0)
    assert told == []
