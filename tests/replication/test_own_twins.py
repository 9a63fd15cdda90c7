"""What a store knows of where topics came from, whatever became of the links that carried them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.replication.test_known import put, row_of, section, settings_of
from twinshore.config.model import Link, Naming
from twinshore.replication.core.lineage import ORIGINAL, Belief, Descent, Hop, judge, why_it_stays
from twinshore.replication.core.link_config import removed
from twinshore.replication.lineage import own_twins
from twinshore.replication.links import taken
from twinshore.state.core.values import LinkIdentity, TwinRow
from twinshore.state.store import open_store

THERE, BACK = "east->west", "west->east"


@pytest.mark.claim("topics", "descent-outlives", "where a topic came from outlives its link")
def test_a_twin_stays_one_when_its_link_is_removed(tmp_path: Path) -> None:
    """The journal of twins may not be there to be read."""
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        taken(settings_of(tmp_path, section(THERE, ".*"), section(BACK, ".*")), store, by="test")
        store.links.save_identity(LinkIdentity(THERE, 1, 0, "id-e", "id-w"))
        store.links.save_identity(LinkIdentity(BACK, 2, 0, "id-w", "id-e"))
        store.twins.save([TwinRow(THERE, "orders", 0, "aa", "bb", 0, 0, 1)])
        put(store, removed(row_of(store, THERE), 5, "anna"))
        own = own_twins(store, "id-w")
        assert own == {"bb": Descent("bb", (Hop("id-e", "east"),))}
        assert own_twins(store, "id-e") == {}
        found = judge(ORIGINAL, own=own["bb"], before=None, borne_out=False, waited=True)
        assert found == (Belief.SURE, own["bb"])
        said = why_it_stays(Link("west", "east", naming=Naming.PREFIX), "east.orders", found[1], "id-e")
        assert said == "east.orders on west came by east and does not go back to east"
        store.forget_topic(THERE, "orders")
        assert own_twins(store, "id-w") == {}, "an operator says that it is none any more"
