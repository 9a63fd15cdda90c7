"""`twinshore mirror resume`: which rows it closes, what it says where there is nothing to resume."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli import asking
from tests.cli.asking import LINK, opened, write_settings
from twinshore.config.errors import ConfigError
from twinshore.config.incident_policy import POLICY_KEEP_TWIN, POLICY_RETRY, POLICY_STOP, IncidentKind
from twinshore.state.core.values import Incident, TwinRow

GAP = IncidentKind.RETENTION_GAP.policy


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = write_settings(tmp_path, f'[links."{LINK}"]\n')
    with opened(found) as store:
        for topic, number, kind, policy in (
            ("orders", 0, IncidentKind.CORRUPT_BATCH, POLICY_STOP),
            ("orders", 1, IncidentKind.RIGHTS_LOST, POLICY_RETRY),
            ("orders", 2, IncidentKind.RETENTION_GAP, GAP),
            ("orders", -1, IncidentKind.DELETED_TOPIC, POLICY_KEEP_TWIN),
            ("bills", 0, IncidentKind.REFUSED, POLICY_STOP),
        ):
            store.incidents.add(Incident(LINK, topic, number, kind, 5, 7, policy, "a sentence."), now_ms=1)
    return found


def still_open(file: Path) -> set[tuple[str, int]]:
    with opened(file) as store:
        return {(row.incident.topic, row.incident.partition) for row in store.incidents.rows(LINK, open_only=True)}


def run(file: Path, *words: str) -> str:
    return asking.run(file, "mirror", "resume", *words)


def test_all_stopped_partitions_of_a_topic_and_nothing_else(file: Path) -> None:
    said = run(file, "orders")
    assert "orders-0 is resumed" in said
    assert "orders-1 is resumed" in said
    assert "orders-2" not in said, "a gap stops nothing"
    assert still_open(file) == {("orders", 2), ("orders", -1), ("bills", 0)}
    with opened(file) as store:
        told = store.audit.rows(LINK)
    assert [(row.kind, row.subject, row.after) for row in told] == [
        ("resume", "orders-1", "resumed"),
        ("resume", "orders-0", "resumed"),
    ]


def test_one_partition_alone(file: Path) -> None:
    run(file, "orders", "--partition", "1")
    assert ("orders", 0) in still_open(file)
    assert ("orders", 1) not in still_open(file)


def test_a_dry_run_changes_nothing(file: Path) -> None:
    before = still_open(file)
    assert "orders-0 would be resumed" in run(file, "orders", "--dry-run")
    assert still_open(file) == before


def test_a_forgotten_twin_stops_no_new_one(file: Path) -> None:
    with opened(file) as store:
        store.twins.save([TwinRow(LINK, "orders", 0, "aa", "bb", 0, 0, 1)])
    asking.run(file, "mirror", "forget", "orders")
    assert still_open(file) == {("orders", 2), ("bills", 0)}, "and nothing waits for a topic that nobody knows"


@pytest.mark.parametrize(
    ("words", "hint"), [(["order"], "did you mean orders"), (["orders", "--partition", "2"], "twinshore status")]
)
def test_what_is_not_stopped_is_named(file: Path, words: list[str], hint: str) -> None:
    with pytest.raises(ConfigError, match="no incident stops") as found:
        run(file, *words)
    assert hint in f"{found.value.message} {found.value.hint}"
