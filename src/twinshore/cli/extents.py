"""`twinshore mirror extents`: where an offset of a mapped topic lies on the other side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from twinshore.cli.looking import JSON, LINKS, SETTINGS, load
from twinshore.fleet import ConfigError, SourceOffset, TargetOffset

if TYPE_CHECKING:
    from twinshore.store import Store

TOPIC = typer.Argument(help="The topic as the source calls it.")
PARTITION = typer.Option(0, "--partition", help="The partition.", min=0)
SOURCE_OFFSET = typer.Option(None, "--source-offset", help="Say where this offset of the source lies on the target.")
TARGET_OFFSET = typer.Option(None, "--target-offset", help="Say where this offset of the target came from.")
MOST = typer.Option(20, "--most", help="Without an offset: so many extents, the last ones.", min=1, max=100_000)


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
    """Looks an offset of a mapped topic up, or shows its map: runs of offsets with one difference.

    An offset that nobody sees, or that others wrote, has no counterpart: then the next one that has is named.
    """
    from twinshore.store.opening import open_to_look

    if source_offset is not None and target_offset is not None:
        raise ConfigError("--source-offset and --target-offset: one or the other")
    loaded = load(settings)
    rows: list[dict[str, Any]] = []
    with open_to_look(loaded) as store:
        for one in loaded.chosen(link):
            key = (one.name, topic, partition)
            if store.extents.of(*key, limit=1):
                rows += _found(store, key, source_offset, target_offset, most)
    if not rows:
        raise ConfigError(
            f"no map of {topic}-{partition}: no link carries it as mapped",
            hint="exact topics need none: an offset is the same on both sides",
        )
    if json_output:
        typer.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        typer.echo(_in_words(row))


def _found(
    store: Store, key: tuple[str, str, int], source_offset: int | None, target_offset: int | None, most: int
) -> list[dict[str, Any]]:
    from twinshore.mirror.mapping.place import on_source, on_target

    place = {"link": key[0], "topic": key[1], "partition": key[2]}
    if source_offset is not None:
        found = on_target(SourceOffset(source_offset), *store.extents.around(*key, source_offset))
        there = {"target": found.offset, "exact": found.exact} if found else {"target": None, "exact": False}
        return [{**place, "source": source_offset, **there}]
    if target_offset is not None:
        found = on_source(TargetOffset(target_offset), *store.extents.around(*key, target_offset, on_target=True))
        there = {"source": found.offset, "exact": found.exact} if found else {"source": None, "exact": False}
        return [{**place, "target": target_offset, **there}]
    return [{**place, **one._asdict()} for one in store.extents.of(*key, limit=most)]


def _in_words(row: dict[str, Any]) -> str:
    where = f"{row['link']}: {row['topic']}-{row['partition']}"
    if "length" in row:
        source, target, length = row["source"], row["target"], row["length"]
        if not length:
            return f"{where}: nothing yet; goes on with {source} of the source behind {target} of the target"
        span = f"source {source} to {source + length - 1} is target {target} to {target + length - 1}"
        return f"{where}: {span} ({target - source:+d})"
    note = "" if row["exact"] else ", the next record that both sides have"
    return f"{where}: source {row['source']} is target {row['target']}{note}"
