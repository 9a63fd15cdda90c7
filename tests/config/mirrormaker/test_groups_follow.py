"""Whether groups follow is taken over from MirrorMaker where it was said; here they do unless somebody says no."""

from __future__ import annotations

import pytest

from twinshore.config.import_mirrormaker import ImportOutcome, propose
from twinshore.config.settings import parse_settings

GROUND = """
clusters = east, west
east.bootstrap.servers = e1:9092
west.bootstrap.servers = w1:9092
east->west.enabled = true
"""
KEY = "sync.group.offsets.enabled"


@pytest.mark.parametrize(("said", "follow"), [("", True), (f"{KEY} = true", True), (f"{KEY} = false", False)])
def test_groups_follow_unless_it_was_turned_off(said: str, follow: bool) -> None:
    proposal = propose(f"{GROUND}{said}\n", "mm2.properties")
    (link,) = parse_settings(proposal.text, name="proposal", env={}).links
    assert link.groups.enabled is follow
    assert [one.fate for one in proposal.findings if one.key == KEY] == ([ImportOutcome.CONVERTED] if said else [])
