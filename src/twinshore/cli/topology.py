"""`twinshore topology`: which links really run, drawn from the heartbeats that arrived."""

from __future__ import annotations

from pathlib import Path

import typer

from twinshore.cli.app import JSON, SETTINGS, load, tell


def register(app: typer.Typer) -> None:
    """Adds the verb to the command."""
    app.command("topology")(topology)


def topology(settings: Path = SETTINGS, json_output: bool = JSON) -> None:
    """Draws what really runs between the clusters of the settings: links, chains, the age of the last heartbeat."""
    from twinshore.replication.core.heartbeat import drawing
    from twinshore.replication.heartbeat import listen

    seen = listen(load(settings), lambda sentence: typer.echo(sentence, err=True))
    lines = []
    for link in seen.links:
        age = "" if link.age_s is None else f", last heartbeat {link.age_s:.0f} s ago"
        how = f" ({link.naming}{', chain' if link.chain else ''})" if link.settings else " (not in these settings)"
        lines.append(f"{link.link}{how}: {link.state}{age}")
    lines += [*seen.says_of_broadcasts(), *seen.says_of_homes()]
    lines += [f"{name} cannot be asked: {why}" for name, why in seen.away]
    tell(seen.as_values(), [*lines, *(["", *drawing(seen)] if seen.paths else [])], as_json=json_output)
