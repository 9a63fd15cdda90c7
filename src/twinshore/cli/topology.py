"""`twinshore topology`: which links really run, by the heartbeats that arrived."""

from __future__ import annotations

from pathlib import Path

import typer

from twinshore.cli import options
from twinshore.cli.app import load_cli_settings, print_result


def register(app: typer.Typer) -> None:
    app.command("topology")(topology)


def topology(settings: Path = options.SETTINGS, json_output: bool = options.JSON) -> None:
    """Draws what really runs between the clusters of the settings: links, chains, age of the last heartbeat."""
    from twinshore.replication.core.topology_view import draw_topology
    from twinshore.replication.heartbeat import read_topology

    topology = read_topology(load_cli_settings(settings))
    lines = []
    for link in topology.links:
        age = "" if link.age_s is None else f", last heartbeat {link.age_s:.0f} s ago"
        how = f" ({link.naming}{', chain' if link.chain else ''})" if link.settings else " (not in these settings)"
        lines.append(f"{link.link}{how}: {link.state}{age}")
    lines += [*topology.describe_broadcasts(), *topology.describe_homes()]
    lines += [f"{name} cannot be asked: {why}" for name, why in topology.away]
    print_result(
        topology.as_values(), [*lines, *(["", *draw_topology(topology)] if topology.paths else [])], as_json=json_output
    )
