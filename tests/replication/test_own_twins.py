"""What a store knows of where topics came from, whatever became of the links that carried them."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.errors import mentions
from tests.replication.test_known import put, row_of, section, settings_of
from twinshore.config.model import Link, TwinNaming
from twinshore.replication.core.lineage import (
    NO_LINEAGE,
    Hop,
    Lineage,
    LineageVerdict,
    explain_not_replicated,
    judge_lineage,
)
from twinshore.replication.core.link_config import removed_link_row
from twinshore.replication.links import adopt_settings
from twinshore.replication.topic_lineage import read_own_lineage
from twinshore.state.core.values import LinkIdentity, TwinRow
from twinshore.state.store import open_store

THERE, BACK = "east->west", "west->east"


@pytest.mark.claim("topics", "descent-outlives", "where a topic came from outlives its link")
def test_a_twin_stays_one_when_its_link_is_removed(tmp_path: Path) -> None:
    """The journal of twins may not be there to be read."""
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        adopt_settings(settings_of(tmp_path, section(THERE, ".*"), section(BACK, ".*")), store, by="test")
        store.links.save_identity(LinkIdentity(THERE, 1, 0, "id-e", "id-w"))
        store.links.save_identity(LinkIdentity(BACK, 2, 0, "id-w", "id-e"))
        store.twins.save([TwinRow(THERE, "orders", 0, "aa", "bb", 0, 0, 1)])
        put(store, removed_link_row(row_of(store, THERE), 5, "anna"))
        own = read_own_lineage(store, "id-w")
        assert own == {"bb": Lineage("bb", (Hop("id-e", "east"),))}
        assert read_own_lineage(store, "id-e") == {}
        found = judge_lineage(NO_LINEAGE, own=own["bb"], before=None, borne_out=False, waited=True)
        assert found == (LineageVerdict.SURE, own["bb"])
        said = explain_not_replicated(Link("west", "east", naming=TwinNaming.PREFIX), "east.orders", found[1], "id-e")
        assert mentions(said, "east.orders on west", "back to east")
        store.forget_topic(THERE, "orders")
        assert read_own_lineage(store, "id-w") == {}, "an operator says that it is none any more"
