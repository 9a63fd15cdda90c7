"""The table of incidents is whole: the ledger's kinds, each with a policy and sentences for whoever must act."""

from __future__ import annotations

import pytest

from twinshore.config.incident_policy import IncidentKind
from twinshore.replication.core.incident_kinds import INCIDENT_KINDS, IncidentOutcome, kind_entry


def test_every_kind_of_the_ledger_is_in_the_table() -> None:
    assert set(INCIDENT_KINDS) == set(IncidentKind)


@pytest.mark.parametrize("kind", IncidentKind)
def test_each_says_what_it_means_and_what_to_do(kind: IncidentKind) -> None:
    row = kind_entry(kind)
    assert row.kind is kind
    assert row.policy.words
    assert row.means.endswith(".")
    assert row.do.endswith(".")


def test_what_needs_a_human_waits_for_one() -> None:
    asked = {kind for kind, row in INCIDENT_KINDS.items() if row.after is IncidentOutcome.NEEDS_RESUME}
    assert {IncidentKind.TRUNCATION, IncidentKind.FOREIGN_WRITE, IncidentKind.CORRUPT_BATCH} <= asked
    assert IncidentKind.RIGHTS_LOST not in asked, "rights given back need nobody"
