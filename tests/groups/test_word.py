"""What is said of groups once the source is lost: nothing that was not seen."""

from __future__ import annotations

import json
from pathlib import Path

from twinshore.groups.core.commit_rules import GroupSyncStatus
from twinshore.groups.core.sync_state import GroupState, SyncRoundResult
from twinshore.groups.sync import (
    COMPARED_KIND,
    GROUPS_LISTED_MAX,
    NAMES_MAX,
    NEVER_COMPARED,
    NOT_NAMED,
    build_status,
    compared_groups,
    group_names_row,
    last_compared_status,
    offsets_in,
    parse_group_names,
)
from twinshore.kafka.protocol.offsets import GroupOffsets
from twinshore.state.store import open_store


def entry(name: str, behind: int = 0) -> GroupState:
    made = GroupState(GroupOffsets(name, 0, {}, {}, b""), check=False)
    if behind:
        made.standing[("orders", 0)] = (GroupSyncStatus.BEHIND, behind, 1.0)
    return made


def said(entries: dict[str, GroupState], group: str) -> tuple[str, int]:
    word = build_status(entries, SyncRoundResult(groups=len(entries)), now_s=5.0, now_ms=5000)
    return last_compared_status(
        word, parse_group_names([group_names_row("east->west", COMPARED_KIND, compared_groups(entries), 5000)]), group
    )


def test_a_group_stood_the_same_only_where_a_round_has_compared_it() -> None:
    entries = {"same": entry("same"), "behind": entry("behind", 7)}
    assert said(entries, "same") == ("same", 0)
    assert said(entries, "behind") == ("behind", 7)
    assert said(entries, "only-on-the-target") == (NEVER_COMPARED, 0)
    entries["same"].check = True
    assert said(entries, "same") == (NEVER_COMPARED, 0), "its coordinator has not answered yet"
    assert last_compared_status({}, (), "same") == (NEVER_COMPARED, 0)


def test_where_more_differed_than_are_named_no_other_is_called_the_same() -> None:
    entries = {f"g{number}": entry(f"g{number}", 3) for number in range(GROUPS_LISTED_MAX + 1)} | {
        "same": entry("same")
    }
    assert said(entries, "g0") == ("behind", 3)
    assert said(entries, f"g{GROUPS_LISTED_MAX}") == (NOT_NAMED, 0)
    assert said(entries, "same") == (NOT_NAMED, 0)


def test_so_many_groups_that_they_are_not_written_down_were_never_compared() -> None:
    assert (
        parse_group_names([group_names_row("l", COMPARED_KIND, [str(n) for n in range(NAMES_MAX + 1)], 0)])
        == frozenset()
    )


def test_the_names_come_back_from_the_store_as_they_were(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'store.db'}")
    names = {"plain", "grüße", 'a "quoted"\nname', ""}
    store.link_states.remember([group_names_row("east->west", COMPARED_KIND, names, 1)])
    assert parse_group_names(store.link_states.of("east->west", COMPARED_KIND)) == names
    store.close()


def test_the_word_names_the_places_that_are_somebodys_own() -> None:
    made = entry("flink", 7)
    made.standing[("orders", 1)] = (GroupSyncStatus.OWN, 5, 1.0)
    word = json.loads(json.dumps(build_status({"flink": made}, SyncRoundResult(groups=1), now_s=5.0, now_ms=5000)))
    none, first, second = frozenset[tuple[str, int]](), frozenset({("orders", 1)}), frozenset({("orders", 2)})
    assert offsets_in(word, "flink") == (first, none)
    assert offsets_in(word, "other") == offsets_in({}, "flink") == (none, none)
    made.standing[("orders", 2)] = (GroupSyncStatus.REFUSED, 5, 1.0)
    word = json.loads(json.dumps(build_status({"flink": made}, SyncRoundResult(groups=1), now_s=5.0, now_ms=5000)))
    assert offsets_in(word, "flink") == (first, second)
    assert offsets_in({"differ": {"flink": ["behind", 7, 1]}}, "flink") == (none, none), "as an older version left it"
