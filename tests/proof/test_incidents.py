"""Differences in the ledger: one row while it stands, closed when a proof goes past it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.proof.test_telling import BAD_ROW, ROW
from twinshore.config.incident_policy import IncidentKind
from twinshore.proof.core.partition_scan import find_expired_incidents, find_resolved_incidents, incident_of
from twinshore.state.store import open_store


def test_a_difference_is_told_without_what_is_in_the_records() -> None:
    assert incident_of(ROW) is None
    found = incident_of(replace(BAD_ROW, sentence=BAD_ROW.sentence.replace('"v"', '"a secret"')))
    assert found is not None
    assert (found.kind, found.from_offset, found.partition) == (IncidentKind.CONTENT_DIFFERS, 450, 3)
    assert "changed value" in found.sentence and "secret" not in found.sentence


def test_it_is_one_row_until_a_proof_goes_past_it(tmp_path: Path) -> None:
    told = incident_of(BAD_ROW)
    assert told is not None
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        first = store.incidents.add(told, now_ms=1)
        assert store.incidents.add(told, now_ms=2) == first
        opened = store.incidents.rows(open_only=True)
    past = replace(ROW, last_incident_id=first.id)
    assert find_resolved_incidents(opened, [replace(BAD_ROW, last_incident_id=first.id)]) == []
    assert find_resolved_incidents(opened, [replace(past, partition=2)]) == [], (
        "another partition's proof mends nothing"
    )
    assert find_resolved_incidents(opened, [replace(past, from_offset=500)]) == [], (
        "a proof that begins behind it says nothing of it"
    )
    assert find_resolved_incidents(opened, [ROW]) == [], "it may have read that offset before the row was opened"
    assert find_resolved_incidents(opened, [replace(past, mode="content")]) == [], "it was compared by another way"
    assert find_resolved_incidents(opened, [past]) == [first.id]
    place = (ROW.link, ROW.topic, ROW.partition)
    assert (
        find_expired_incidents(opened, {place: 450})
        == find_expired_incidents(opened, {(ROW.link, ROW.topic, 2): 451})
        == []
    )
    assert find_expired_incidents(opened, {place: 451}) == [first.id]
