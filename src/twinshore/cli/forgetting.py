"""`twinshore mirror forget`: a topic's twin begins again, under no mirror that is at work."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from twinshore.cli.looking import LINKS, SETTINGS, load, who
from twinshore.cli.resuming import close_forgotten
from twinshore.fleet import ConfigError, RefusedError
from twinshore.fleet.settings_edge import did_you_mean

if TYPE_CHECKING:
    from twinshore.store import Store

DRY_RUN = typer.Option(False, "--dry-run", help="Only say what would be forgotten.")
LOOK_S = 0.1
GRACE_S = 5.0  # what of a dead mirror may be on its way still, as its successors wait for it


def forget(
    topic: str = typer.Argument(help="The topic whose twin shall be forgotten."),
    settings: Path = SETTINGS,
    link: list[str] = LINKS,
    dry_run: bool = DRY_RUN,
) -> None:
    """Forgets a topic's twin, so that it can begin again. Neither cluster is touched; the ledger keeps its rows.

    Stop the mirror first, delete the twin on the target, forget it here, start the mirror again. Refused while a
    mirror runs the link; where several links know the topic, --link says which.
    """
    from twinshore.mirror.follow.memories import spent
    from twinshore.store import AuditRow
    from twinshore.store.opening import open_known

    loaded, now_ms = load(settings), time.time_ns() // 1_000_000
    with open_known(loaded) as store:
        names = [one.name for one in loaded.chosen(link)]
        known = {name: _topics(store, name) for name in names}
        ours = [name for name in names if topic in known[name]]
        if not ours:
            hint = did_you_mean(topic, sorted(set().union(*known.values()))).removeprefix("; ")
            raise ConfigError(f"no link knows topic {topic}", hint=hint or "no link knows any topic")
        if len(ours) > 1 and not link:
            raise ConfigError(f"{', '.join(ours)} know topic {topic}", hint="say with --link whose twin is forgotten")
        for name in ours if not dry_run else ():
            refuse_under_a_mirror(store, name, loaded.mirror.lease_s)
        for name in ours:
            count = known[name][topic]
            if not dry_run:
                told = AuditRow(now_ms, name, "topic", topic, "", "forgotten: a new twin may begin", f"by {who()}")
                store.forget_topic(name, topic, spent(name, topic), [told])
                # What stopped the old twin's partitions does not stop the new one's.
                close_forgotten(store, name, topic)
            typer.echo(f"{name}: {count} partitions of {topic} {'would be forgotten' if dry_run else 'forgotten'}")


def _topics(store: Store, link: str) -> dict[str, int]:
    """How many partitions the link knows of each topic; 0 of one of which only the ledger speaks, as a whole."""
    told = [row.incident for row in store.incidents(link, open_only=True)]
    known = {incident.topic: 0 for incident in told if incident.partition < 0 and incident.topic}
    for row in store.twins(link):
        known[row.topic] = known.get(row.topic, 0) + 1
    return known


def refuse_under_a_mirror(store: Store, link: str, lease_s: float) -> None:
    """Nothing where the link's lease is given up, or has run out before our eyes: no two hosts' clocks are compared."""
    from twinshore.store import LeaseWatch

    watch = LeaseWatch(lease_s, GRACE_S)
    first = row = store.read_lease(f"link {link}")
    if row is None or row.released:
        return
    typer.echo(f"{link}: {row.owner} has not given its lease up; looking whether it is alive")
    while not watch.observe(row, time.monotonic()):
        if row != first:
            hint = "stop that mirror in good order, then run this again"
            raise RefusedError(f"{link} is carried by {row.owner if row else 'nobody'} now", hint=hint)
        time.sleep(LOOK_S)
        row = store.read_lease(f"link {link}")
