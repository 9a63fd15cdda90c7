"""Links as rows, and the revision by which whoever follows sees a change: on three databases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from testkit.errors import raises
from twinshore.config.errors import ConfigError
from twinshore.state.core.values import AuditRow, LinkPresence, LinkRow, TwinRow
from twinshore.state.log import LINKS_SUBJECT
from twinshore.state.store import Store

EAST = LinkRow("east->west", LinkPresence.KEPT, '{"topics":["orders"]}', "", 0, 5, "anna")
WEST = replace(EAST, link="west->east")
TOLD = (AuditRow(5, "east->west", "link", "east->west", "", "added", "by anna"),)


def test_rows_stand_at_the_revision_of_their_last_change(store: Store) -> None:
    assert store.link_rows.read() == (0, ())
    assert store.revisions.of(LINKS_SUBJECT) == 0
    assert store.link_rows.change([EAST, WEST], seen=0, told=TOLD)
    assert store.link_rows.read() == (1, (replace(EAST, revision=1), replace(WEST, revision=1)))
    assert store.link_rows.change([replace(WEST, state=LinkPresence.REMOVED)], seen=1)
    assert store.revisions.of(LINKS_SUBJECT) == 2
    assert [(row.revision, row.state) for row in store.link_rows.read()[1]] == [(1, "kept"), (2, "removed")]
    assert store.audit.rows("east->west") == TOLD
    assert store.revisions.of("another subject") == 0


def test_of_two_who_change_links_at_once_one_is_told_to_look_again(
    store: Store, open_another: Callable[[], Store]
) -> None:
    other = open_another()
    assert other.link_rows.change([EAST], seen=0, told=TOLD)
    assert not store.link_rows.change([WEST], seen=0, told=TOLD)
    assert [row.link for row in store.link_rows.read()[1]] == ["east->west"]
    assert len(store.audit.rows("east->west")) == 1, "what was not done is not told"


def test_a_link_that_is_turned_has_no_twin_before_and_none_afterwards(store: Store) -> None:
    """Its mirror goes on for a moment: what it wrote until then is seen, and nothing is added later."""
    rows = [replace(EAST, state=LinkPresence.REMOVED), WEST]
    twin = TwinRow("east->west", "orders", 0, "aa", "bb", 0, 0, 1)
    beats = replace(twin, topic="twinshore.heartbeats", target_topic_id="cc")
    assert store.link_rows.change([EAST], seen=0)
    store.twins.save([twin, beats])
    before = store.link_rows.read()
    assert not store.link_rows.change(rows, seen=1, told=TOLD, turned=("east->west", "west->east"))
    assert store.link_rows.read() == before, "what was begun is taken back"
    assert store.audit.rows() == ()
    store.forget_topic("east->west", "orders")
    assert store.link_rows.change(rows, seen=1, told=TOLD, turned=("east->west", "west->east"))
    with raises(ConfigError, "state.link-removed", links="east->west"):
        store.twins.save([twin])
    assert store.twins.of("east->west") == (beats,)
    back = replace(twin, link="west->east")
    assert store.twins.save([back]) == (back,)
    assert not store.link_rows.change([EAST], seen=2, turned=("east->west", "west->east")), "nor the other way"
