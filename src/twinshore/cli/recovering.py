"""`twinshore link recover`: a link whose store is lost goes on with this one, and nothing is copied again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from twinshore.cli.forgetting import refuse_under_a_mirror
from twinshore.cli.looking import SETTINGS, load, who

if TYPE_CHECKING:
    from twinshore.mirror.recovery import Recovery
    from twinshore.store import Store

LINK = typer.Argument(help="The link, as its settings name it: `east->west`.")
DRY_RUN = typer.Option(False, "--dry-run", help="Only say what would be put back, and whose the link is now.")
LOST = (
    "lost for good, as the target does not have it: receipts so far and the source's producers in them, the ledger and "
    "what stopped there, audit, proofs, alarms, the delays' windows, pauses, throttles, filters, what was held back"
)


def recover(link: str = LINK, settings: Path = SETTINGS, dry_run: bool = DRY_RUN) -> None:
    """Puts a lost store together again from what the link's target says, or takes the link over from another store.

    Positions, anchors and whom the link writes as come back; each twin is looked at as a pump does, and nothing is
    copied again. Stop the other store's mirror first, if it still runs. Refused while a mirror runs the link here.
    """
    from twinshore.mirror.recovery import open_recoverer
    from twinshore.store.opening import open_or_make, open_to_look

    loaded = load(settings)
    (one,) = loaded.chosen([link])
    with (open_to_look if dry_run else open_or_make)(loaded) as store:
        refuse_under_a_mirror(store, one.name, loaded.mirror.lease_s)
        with open_recoverer(loaded, one, store) as recoverer:
            seen = recoverer.look()
            if not dry_run and not seen.whole:
                recoverer.recover(seen, who())
        _say(one.name, seen, store, dry_run=dry_run)


def _say(link: str, seen: Recovery, store: Store, *, dry_run: bool) -> None:
    if seen.whole and seen.identity:
        typer.echo(
            f"{link}: nothing is lost and nothing is to be done: this store, {store.place}, writes the link as producer"
            f" {seen.identity.producer_id} and knows all {len(seen.found):,} partitions of which {seen.target} tells"
        )
        return
    would = "would be " if dry_run else ""
    writes = "which has never begun to write"
    if seen.kept:
        writes = f"which goes on with the twins it knows, as producer {seen.kept.producer_id}; nothing is put back"
    elif seen.identity:
        writes = f"as producer {seen.identity.producer_id}"
    if seen.holder and seen.holder.store == seen.own:
        typer.echo(f"{link}: {would}kept by this store, {store.place}, {writes}")
    else:
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seen.holder.since_ms / 1000)) if seen.holder else ""
        whose = f"store {seen.holder.store[:8]} (host {seen.holder.host}, since {since})" if seen.holder else "nobody"
        typer.echo(f"{link}: {would}taken over from {whose} by this store, {store.place}, {writes}")
    for found in seen.found:
        row = found.row
        anchor = f"sequence {row.anchor_sequence} at offset {row.anchor_offset}"
        typer.echo(f"{link}: {would}put back: {row.topic}-{row.partition} {found.sentence}; {anchor}")
    for topic, why in seen.left:
        typer.echo(f"{link}: {'would not be' if dry_run else 'not'} put back: {topic} {why}")
    if seen.identity:
        typer.echo(f"{link}: {LOST}")
