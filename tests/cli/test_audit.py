"""`twinshore audit`: what it prints of the links that are asked for, however much others have changed since."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli import asking
from tests.cli.asking import LINK, opened, write_settings
from twinshore.state.core.values import AuditRow

OTHER = "west->east"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """One change of a link, and sixty of another after it."""
    found = write_settings(tmp_path, f'[links."{LINK}"]\n[links."{OTHER}"]\n')
    with opened(found) as store:
        store.audit.add([AuditRow(1, LINK, "topic setting", "orders segment.ms", "", "60000", "done")])
        store.audit.add([AuditRow(2, OTHER, "acl", f"rule {number}", "", "written", "done") for number in range(60)])
        store.audit.add(
            [AuditRow(3, "old->gone", "acl", f"rule {number}", "", "written", "done") for number in range(9)]
        )
    return found


@pytest.mark.parametrize("name", [LINK, "east..west"])
def test_a_links_changes_lie_behind_any_number_of_others(file: Path, name: str) -> None:
    assert "orders segment.ms" in asking.run(file, "audit", "--link", name)
    assert [row["link"] for row in json.loads(asking.run(file, "audit", "--link", name, "--json"))] == [LINK]


@pytest.mark.parametrize("words", [(), ("--link", LINK, "--link", OTHER)])
def test_the_newest_of_several_links_are_as_many_as_asked_for(file: Path, words: tuple[str, ...]) -> None:
    found = json.loads(asking.run(file, "audit", "--last", "5", "--json", *words))
    assert [row["link"] for row in found] == [OTHER] * 5, "and none of a link that the settings do not name"


def test_a_page_leads_on_to_the_next_and_holds_what_is_asked_for(file: Path) -> None:
    with opened(file) as store:
        store.audit.add([AuditRow(9, LINK, "control", "paused", "", "true", "by anna", "anna")])
    first = asking.run(file, "audit", "--last", "40")
    (before,) = [line.split()[-1] for line in first.splitlines() if line.startswith("older ones: --before ")]
    rest = asking.run(file, "audit", "--last", "40", "--before", before)
    assert len(first.splitlines()) - 1 + len(rest.splitlines()) == 62
    (row,) = json.loads(asking.run(file, "audit", "--by", "anna", "--json"))
    assert (row["actor"], row["kind"], row["subject"]) == ("anna", "control", "paused")
    assert json.loads(asking.run(file, "audit", "--topic", "none", "--json")) == []


def test_it_says_so_where_nothing_was_changed(tmp_path: Path) -> None:
    found = write_settings(tmp_path, f'[links."{LINK}"]\n')
    opened(found).close()
    assert len(asking.run(found, "audit").splitlines()) == 1 and json.loads(asking.run(found, "audit", "--json")) == []
