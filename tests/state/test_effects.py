"""What an incident does is a column of its row."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import update

from testkit.errors import raises
from twinshore.config.errors import StoreError
from twinshore.config.incident_policy import POLICY_STOP, IncidentKind, IncidentSide
from twinshore.config.model import Secret
from twinshore.state.core.values import Incident
from twinshore.state.database import Database
from twinshore.state.store import open_store
from twinshore.state.tables import incidents


def test_a_row_whose_effect_nobody_knows_is_named(store_url: str) -> None:
    incident = Incident("east->west", "orders", 3, IncidentKind.CORRUPT_BATCH, 5, 7, POLICY_STOP, "its CRC is wrong")
    with open_store(store_url) as store:
        row = store.incidents.add(replace(incident, side=IncidentSide.SOURCE), now_ms=1)
        assert store.incidents.rows()[0].incident.side is IncidentSide.SOURCE
        database = Database(store_url, Secret())
        database.write(lambda connection: connection.execute(update(incidents).values(effect="explodes")))
        database.close()
        with raises(StoreError, "state.invalid-row", place=f"incidents, row {row.id}"):
            store.incidents.rows()
