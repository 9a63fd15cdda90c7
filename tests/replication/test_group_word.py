"""The word of a link's groups, as the server tells it."""

from __future__ import annotations

import json

from twinshore.replication.core.lag import GROUPS_KIND, parse_groups_status, put_group_metrics
from twinshore.state.core.values import LinkStateRow


def test_the_last_word_is_told_with_its_age() -> None:
    said = {"at_ms": 10_000, "took_ms": 250.0, "states": {"same": 7, "behind": 1}, "behind": 42, "differ": {}}
    word = parse_groups_status([LinkStateRow("east->west", GROUPS_KIND, "", json.dumps(said), GROUPS_KIND, 0)])
    told: dict[tuple[str, tuple[str, ...]], float] = {}
    put_group_metrics(
        lambda metric, labels, value: told.update({(metric, tuple(labels)): value}), "l", word, now_s=13.0
    )
    assert told == {
        ("groups", ("l", "same")): 7,
        ("groups", ("l", "behind")): 1,
        ("groups_lag_records", ("l",)): 42,
        ("groups_sync_seconds", ("l",)): 0.25,
        ("groups_status_age_seconds", ("l",)): 3.0,
    }


def test_where_no_round_ever_spoke_nothing_is_told() -> None:
    told: list[str] = []
    put_group_metrics(lambda *said: told.append(said[0]), "l", parse_groups_status([]), now_s=13.0)
    assert told == []
