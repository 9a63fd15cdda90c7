"""The table `outputs` of a link's section `groups`: which topics the readers of which groups write to."""

from __future__ import annotations

from collections.abc import Mapping

from twinshore.fleet.settings_control import why_not_pattern
from twinshore.fleet.settings_edge import Complaints

EXAMPLE = '{ "billing" = ["invoices"], ".*-app" = ["{group}-.*"] }'


def read_outputs(table: object, place: str, complaints: Complaints) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Pairs of an expression for groups and expressions for topics; complaints are added where they are wrong."""
    if not isinstance(table, Mapping):
        complaints.add(place, f"outputs: must be a table like {EXAMPLE}, not {table!r}")
        return ()
    found = []
    for groups, topics in table.items():
        texts = topics if isinstance(topics, list) and all(isinstance(one, str) for one in topics) else None
        if not texts:
            complaints.add(place, f"outputs: {groups!r}: must be a list of expressions like {EXAMPLE}, not {topics!r}")
            continue
        # A group's name stands for itself there, whatever it consists of.
        wrong = [
            why for one in (groups, *(text.replace("{group}", "g") for text in texts)) if (why := why_not_pattern(one))
        ]
        for why in wrong:
            complaints.add(place, f"outputs: {why}")
        if not wrong:
            found.append((groups, tuple(texts)))
    return tuple(found)
