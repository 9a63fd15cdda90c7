"""`twinshore mirror extents`: where an offset of a mapped topic lies on the other side."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from twinshore.cli.looking import JSON, LINKS, SETTINGS, load

TOPIC = typer.Argument(help="The topic as the source calls it.")
PARTITION = typer.Option(0, "--partition", help="The partition.", min=0)
SOURCE_OFFSET = typer.Option(None, "--source-offset", help="Say where this offset of the source lies on the target.")
TARGET_OFFSET = typer.Option(None, "--target-offset", help="Say where this offset of the target came from.")
MOST = typer.Option(
    20, "--most", help="Without an offset: how many extents to show, the last ones.", min=1, max=100_000
)


def extents(
    topic: str = TOPIC,
    partition: int = PARTITION,
    source_offset: int | None = SOURCE_OFFSET,
    target_offset: int | None = TARGET_OFFSET,
    most: int = MOST,
    settings: Path = SETTINGS,
    link: list[str] = LINKS,
    json_output: bool = JSON,
) -> None:
    """Looks up an offset of a mapped topic, or shows the topic's map: runs of offsets with one difference.

    An offset that no consumer sees, or that others wrote, has no counterpart: then the command names the next offset
    that has one.
    """
    from twinshore.mirror.operations.extents import LookUp, look_up
    from twinshore.store.opening import open_to_look

    loaded = load(settings)
    with open_to_look(loaded) as store:
        asked = LookUp(
            topic, partition, source_offset=source_offset, target_offset=target_offset, most=most, links=link
        )
        found = look_up(asked, loaded, store)
    if json_output:
        typer.echo(json.dumps([one.as_values() for one in found], indent=2))
        return
    for one in found:
        typer.echo(one.sentence())
