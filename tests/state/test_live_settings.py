"""Live settings have one writer at a time, and each change is in the audit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from twinshore.state.core.values import AuditRow, LiveSettingRow
from twinshore.state.store import Store

ROW = LiveSettingRow("proxy.new_topics", '"west"', "anna", 1_000)
TOLD = AuditRow(1_000, "", "setting", ROW.key, "", ROW.value, "done", "anna")


def test_of_two_changes_of_settings_only_the_first_is_made(store: Store, open_another: Callable[[], Store]) -> None:
    other = open_another().settings
    assert other.all() == (0, ())
    assert store.settings.change([ROW], [], seen=0, told=[TOLD])
    assert not other.change([replace(ROW, value='"east"')], [ROW.key], seen=0, told=[TOLD])
    assert (other.revision(), other.all()) == (1, (1, (ROW,)))
    other_row = replace(ROW, key='proxy.new_topics_by_name."Bills-*"', set_by="a" * 300)
    assert other.change([other_row, replace(ROW, value="5")], [], seen=1, told=[TOLD])
    assert store.settings.all() == (2, (replace(ROW, value="5"), replace(other_row, set_by="a" * 255)))
    assert store.settings.change([], [ROW.key], seen=2, told=[TOLD])
    assert [row.key for row in other.all()[1]] == [other_row.key]
    assert len(store.audit.rows("")) == 3, "what was not done is not told"
