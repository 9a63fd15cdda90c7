"""The ledger as operators read it: also what is over, page by page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli import asking
from tests.cli.asking import LINK, opened, write_settings
from twinshore.config.errors import ConfigError
from twinshore.config.incident_policy import POLICY_DROP, POLICY_STOP, IncidentKind
from twinshore.config.settings import load_settings
from twinshore.replication.operations.incident_admin import list_incidents
from twinshore.state.core.values import Incident


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A drop that is over, and a gap that is open."""
    found = write_settings(tmp_path, f'[links."{LINK}"]\n[links."west->east"]\n')
    with opened(found) as store:
        dropped = Incident(LINK, "prices", 2, IncidentKind.STALE_DROPPED, 100, 150, POLICY_DROP, "50 were dropped")
        row = store.incidents.add(dropped, now_ms=1_700_000_000_000)
        store.incidents.close(row.id, now_ms=1_700_000_001_000)
        gap = Incident("west->east", "bills", 0, IncidentKind.FOREIGN_WRITE, 7, 8, POLICY_STOP, "somebody wrote")
        store.incidents.add(gap, now_ms=1_700_000_002_000)
    return found


def test_what_is_over_is_shown_with_its_offsets(file: Path) -> None:
    said = asking.run(file, "incidents").splitlines()
    assert len(said) == 2
    assert "west->east: bills-0: foreign write, offsets 7 to 7: somebody wrote (open)" in said[0]
    assert "east->west: prices-2: stale dropped, offsets 100 to 149: 50 were dropped (closed 2023-11-14" in said[1]
    assert "prices-2" not in asking.run(file, "incidents", "--open")
    assert "bills" not in asking.run(file, "incidents", "--kind", "stale dropped")
    (row,) = json.loads(asking.run(file, "incidents", "--link", LINK, "--json"))
    assert (row["from_offset"], row["to_offset"], row["kind"]) == (100, 150, "stale dropped")
    assert row["joined_ranges"] == []
    first = asking.run(file, "incidents", "--last", "1").splitlines()
    assert first[1].startswith("older ones: --before ")
    assert "prices-2" in asking.run(file, "incidents", "--last", "1", "--before", first[1].split()[-1])
    assert json.loads(asking.run(file, "incidents", "--topic", "orders", "--json")) == []


def test_older_rows_are_offered_only_where_there_are_some(file: Path) -> None:
    assert "older ones" not in asking.run(file, "incidents", "--last", "2")
    assert len(json.loads(asking.run(file, "incidents", "--last", "1", "--json"))) == 1
    first = asking.run(file, "incidents", "--last", "1").splitlines()
    before = first[1].split()[-1]
    assert len(first) == 2
    assert len(asking.run(file, "incidents", "--last", "1", "--before", before).splitlines()) == 1


def test_what_is_about_a_whole_link_names_it_alone(file: Path) -> None:
    with opened(file) as store:
        away = Incident(LINK, "", -1, IncidentKind.TARGET_AWAY, -1, -1, POLICY_STOP, "west does not answer")
        store.incidents.add(away, now_ms=1_700_000_003_000)
    (said, *_) = asking.run(file, "incidents").splitlines()
    assert f"{LINK}: target away: west does not answer (open)" in said


def test_an_empty_ledger_is_told_from_one_that_has_nothing_of_that(tmp_path: Path) -> None:
    found = write_settings(tmp_path, f'[links."{LINK}"]\n')
    opened(found).close()
    assert asking.run(found, "incidents") != asking.run(found, "incidents", "--open")


def test_a_kind_that_does_not_exist_is_refused_with_those_that_do(file: Path) -> None:
    with opened(file) as store, pytest.raises(ConfigError, match="no such incident 'stale'") as refused:
        list_incidents((), load_settings(file, {}), store, kind="stale", last=5)
    assert "stale dropped" in refused.value.hint
