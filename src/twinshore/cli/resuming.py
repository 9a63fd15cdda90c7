"""`twinshore mirror resume`: an incident's cause is mended, its partitions may go on."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from twinshore.cli.looking import LINKS, SETTINGS, load, who
from twinshore.fleet import ConfigError, Link, NamedPartition, RefusedError
from twinshore.fleet.settings_edge import did_you_mean

if TYPE_CHECKING:
    from twinshore.fleet.settings import Settings
    from twinshore.mirror.incidents.causes import Sides
    from twinshore.store import LedgerRow, Store

PARTITION = typer.Option(None, "--partition", min=0, help="Only this partition; all that are stopped otherwise.")
DRY_RUN = typer.Option(False, "--dry-run", help="Only say what would be resumed.")
PATIENCE_S = 5.0


def resume(
    topic: str = typer.Argument(help="The topic with stopped partitions, as the source names it."),
    partition: int | None = PARTITION,
    settings: Path = SETTINGS,
    link: list[str] = LINKS,
    dry_run: bool = DRY_RUN,
) -> None:
    """Lets partitions go on that an incident stopped; the running mirror takes them up within seconds.

    Refused while the cause still stands, where that can be looked at.
    """
    from twinshore.store.opening import open_known

    loaded = load(settings)
    refused: list[str] = []
    asked = 0
    with open_known(loaded) as store:
        stopped: set[str] = set()
        for one in loaded.chosen(link):
            rows = _stopping(store, one.name)
            stopped |= {row.incident.topic for row in rows}
            ours = [r for r in rows if r.incident.topic == topic and partition in (None, r.incident.partition)]
            asked += len(ours)
            refused += _resume(loaded, one, store, ours, dry_run=dry_run)
    if not asked:
        place = topic if partition is None else f"{topic}-{partition}"
        known = "" if topic in stopped else did_you_mean(topic, sorted(stopped)).removeprefix("; ")
        raise ConfigError(f"no incident stops {place}", hint=known or "`twinshore status` shows what is open")
    if refused:
        raise RefusedError("not resumed: " + "; ".join(refused), hint="docs/incidents.md says what to do about each")


def close_forgotten(store: Store, link: str, topic: str) -> None:
    """Closes what stops any partition of the topic, and what was said of it as a whole: nobody knows it any more."""
    from twinshore.mirror.incidents.kinds import OF_KNOWN_TOPICS

    now_ms = int(time.time() * 1000)
    for row in store.incidents(link, open_only=True):
        of_all = row.incident.partition < 0 and row.incident.kind in OF_KNOWN_TOPICS
        if row.incident.topic == topic and (of_all or _stops_a_partition(row)):
            store.close_incident(row.id, now_ms=now_ms)


def _stopping(store: Store, link: str) -> list[LedgerRow]:
    return [row for row in store.incidents(link, open_only=True) if _stops_a_partition(row)]


def _stops_a_partition(row: LedgerRow) -> bool:
    from twinshore.mirror.incidents.kinds import stops

    return row.incident.partition >= 0 and stops(row.incident.policy)


def _resume(loaded: Settings, link: Link, store: Store, rows: list[LedgerRow], *, dry_run: bool) -> list[str]:
    """Closes the rows of partitions whose causes are gone; the reasons of the others."""
    from twinshore.mirror.history import NOWHERE, Stand
    from twinshore.mirror.incidents.causes import still_stands
    from twinshore.store import AuditRow

    refused: list[str] = []
    twins = {(row.topic, row.partition): row for row in store.twins(link.name)}
    mapped = store.reached(link.name)
    told = {(at.topic, at.partition): Stand(at.source_epoch, at.to_offset) for at in store.positions(link.name)}
    places = sorted({(row.incident.topic, row.incident.partition) for row in rows})
    with _sides(loaded, link, store) as sides:
        for topic, number in places:
            ours = [row for row in rows if row.incident.partition == number]
            place, twin = f"{topic}-{number}", NamedPartition(link.twin_of(topic), number)
            # At offsets of its own a mapped twin cannot be looked at so; its pump does it.
            known = None if (topic, number) in mapped else twins.get((topic, number))
            at = told.get((topic, number), NOWHERE)
            reasons = [still_stands(row.incident, known, twin, sides, at) for row in ours] if known and sides else []
            reason = next(filter(None, reasons), "")
            if reason:
                refused.append(f"{place}: {reason}")
                continue
            now_ms = int(time.time() * 1000)
            for row in [] if dry_run else ours:
                store.close_incident(row.id, now_ms=now_ms)
                change = f"{row.incident.kind} at offset {row.incident.from_offset}"
                store.add_audit([AuditRow(now_ms, link.name, "resume", place, change, "resumed", f"by {who()}")])
            typer.echo(f"{link.name}: {place} {'would be' if dry_run else 'is'} resumed")
    return refused


@contextlib.contextmanager
def _sides(loaded: Settings, link: Link, store: Store) -> Iterator[Sides | None]:
    """Both clusters to look at; None for a link that never wrote."""
    from twinshore.kafka.cluster import KafkaCluster
    from twinshore.mirror.incidents.causes import Sides

    identity = store.link_identity(link.name)
    if identity is None:
        yield None
        return
    with contextlib.ExitStack() as stack:
        source, target = (KafkaCluster(loaded.cluster(n), patience_s=PATIENCE_S) for n in (link.source, link.target))
        stack.callback(source.close)
        stack.callback(target.close)
        yield Sides(source, target, identity)
