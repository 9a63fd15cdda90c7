"""The table of incidents has every kind of the incident log, each with a policy and a section on the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinshore.config.incident_policy import IncidentKind, IncidentOutcome

PAGE = Path(__file__).resolve().parents[3] / "docs" / "incidents.md"


@pytest.mark.parametrize("kind", IncidentKind)
def test_the_page_says_what_each_means_and_what_to_do(kind: IncidentKind) -> None:
    _, _, rest = PAGE.read_text(encoding="utf-8").partition(f"\n## {kind.value}\n")
    section = rest.partition("\n## ")[0]
    assert kind.policy.words
    parts = {line.partition(".** ")[0] for line in section.splitlines() if line.startswith("**")}
    wanted = {"**What it means", "**What to do"}
    assert parts >= (wanted | {"**To go on"} if kind.after is IncidentOutcome.NEEDS_RESUME else wanted)


def test_what_needs_a_human_waits_for_one() -> None:
    asked = {kind for kind in IncidentKind if kind.after is IncidentOutcome.NEEDS_RESUME}
    assert {IncidentKind.TRUNCATION, IncidentKind.FOREIGN_WRITE, IncidentKind.CORRUPT_BATCH} <= asked
    assert IncidentKind.RIGHTS_LOST not in asked, "rights given back need nobody"
