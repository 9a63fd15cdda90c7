"""When the keys of compacted twins were compared: on three databases."""

from __future__ import annotations

from dataclasses import replace

from twinshore.state.core.values import KeyCheckRow
from twinshore.state.store import Store

LINK = "east->west"
ROW = KeyCheckRow(
    link=LINK,
    topic="customers",
    partition=3,
    source_topic_id="aa" * 16,
    target_topic_id="bb" * 16,
    mark_end=2**40,
    mark_ms=1_700_000_000_000,
    since_ms=1_699_999_000_000,
    retention_ms=86_400_000,
    may_lack_tombstones=1,
    checked_ms=0,
    checked_end=2**40 - 3,
    missing_tombstones=2,
    from_offset=7,
    to_offset=2**40 - 9,
)


def test_the_last_word_on_a_partitions_keys_stands(store: Store) -> None:
    assert store.key_checks.of(LINK) == ()
    rows = [ROW, replace(ROW, partition=1), replace(ROW, topic="Customers"), replace(ROW, link="west->east")]
    store.key_checks.save(rows)
    store.key_checks.save([replace(ROW, may_lack_tombstones=0, missing_tombstones=0, from_offset=-1, to_offset=-1)])
    assert set(store.key_checks.of()) == {
        replace(ROW, may_lack_tombstones=0, missing_tombstones=0, from_offset=-1, to_offset=-1),
        *rows[1:],
    }
    assert store.key_checks.of("west->east") == (rows[3],)


def test_a_topic_that_begins_again_has_no_keys_compared(store: Store) -> None:
    rows = [ROW, replace(ROW, topic="orders")]
    store.key_checks.save(rows)
    store.forget_topic(LINK, "customers")
    assert store.key_checks.of() == (rows[1],)
