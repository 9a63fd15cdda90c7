"""`twinshore proxy fuse`: cutting a topic, or one client's use of it, at all proxies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from twinshore.cli.looking import JSON, SETTINGS, load_alone, who
from twinshore.cli.steps import carry_out
from twinshore.fleet.sentences import counted, moment, one_line

if TYPE_CHECKING:
    from twinshore.fleet.operations import Plan
    from twinshore.proxy.operations.fuses import FuseStep

TOPIC = typer.Argument(help="The topic, or how topics begin, with a `*` behind.", metavar="TOPIC")
CLIENT = typer.Option("*", "--client", help="Only clients of this id; with a `*` behind, ids that begin so.")
PRODUCE = typer.Option(False, "--produce", help="Only for producers.")
FETCH = typer.Option(False, "--fetch", help="Only for consumers.")
POLICY = typer.Option(
    "refuse", "--policy", help="What producers are answered: refuse, and they try again; drop, and records are lost."
)
REASON = typer.Option(..., "--reason", help="Why, for whoever finds it.")
FOR = typer.Option("", "--for", help="It closes by itself behind that: 90s, 10m, 2h.")
RECORDS_S = typer.Option(0, "--records-s", help="Trips above so many records a second, of producers.")
BYTES_S = typer.Option(0, "--bytes-s", help="Trips above so many bytes a second.")
LATENCY_MS = typer.Option(0, "--latency-ms", help="Trips where the broker's answers to producers take longer.")
ABOVE_S = typer.Option(5, "--above-s", help="For how many seconds a limit must be passed.")
QUIET_S = typer.Option(30, "--quiet-s", help="For how many seconds all must be below half of it to close again.")
DRY_RUN = typer.Option(False, "--dry-run", help="Only say what would change.")


def register(proxy: typer.Typer) -> None:
    """Adds the verb to `proxy`."""
    fuse = typer.Typer(help="Cut a topic, or a client's use of it: proxies answer in place of brokers.")
    fuse.command("open")(open_fuse)
    fuse.command("close")(close)
    fuse.command("limit")(limit)
    fuse.command("list")(list_fuses)
    fuse.command("drops")(drops)
    proxy.add_typer(fuse, name="fuse", no_args_is_help=True)


def open_fuse(
    topic: str = TOPIC,
    client: str = CLIENT,
    produce: bool = PRODUCE,
    fetch: bool = FETCH,
    policy: str = POLICY,
    reason: str = REASON,
    lasts: str = FOR,
    settings: Path = SETTINGS,
    dry_run: bool = DRY_RUN,
) -> None:
    """Cuts a topic from now on, at every proxy: producers try again, consumers find nothing new, brokers see neither.

    With --policy drop producers are told that their records are written, and the records are lost.
    """
    from twinshore.proxy.operations.fuses import Cut, named, plan_open, policy_of, seconds_of
    from twinshore.store.opening import open_or_make, open_to_look

    which = named(topic, client, produce=produce, fetch=fetch)
    asked = Cut(which, reason, policy_of(policy), seconds_of(lasts) if lasts else 0)
    with (open_to_look if dry_run else open_or_make)(load_alone(settings)) as store:
        _carry_out(plan_open(asked, store, by=who()), store, dry_run=dry_run)


def limit(
    topic: str = TOPIC,
    client: str = CLIENT,
    produce: bool = PRODUCE,
    fetch: bool = FETCH,
    policy: str = POLICY,
    reason: str = REASON,
    records_s: int = RECORDS_S,
    bytes_s: int = BYTES_S,
    latency_ms: int = LATENCY_MS,
    above_s: int = ABOVE_S,
    quiet_s: int = QUIET_S,
    settings: Path = SETTINGS,
    dry_run: bool = DRY_RUN,
) -> None:
    """Has a fuse cut by itself where a limit is passed for some time, and close again once all is quiet.

    Each proxy measures what goes through itself, of all topics and clients that the fuse names together.
    """
    from twinshore.proxy.operations.fuses import Guard, limits_of, named, plan_limits, policy_of
    from twinshore.store.opening import open_or_make, open_to_look

    limits = limits_of(records_s, bytes_s, latency_ms, above_s, quiet_s)
    asked = Guard(named(topic, client, produce=produce, fetch=fetch), limits, reason, policy_of(policy))
    with (open_to_look if dry_run else open_or_make)(load_alone(settings)) as store:
        _carry_out(plan_limits(asked, store, by=who()), store, dry_run=dry_run)


def close(
    topic: str = TOPIC,
    client: str = CLIENT,
    produce: bool = PRODUCE,
    fetch: bool = FETCH,
    settings: Path = SETTINGS,
    dry_run: bool = DRY_RUN,
) -> None:
    """Has a fuse cut no more, by hand or by its limits: clients go on where they were."""
    from twinshore.proxy.operations.fuses import named, plan_close
    from twinshore.store.opening import open_to_look

    with open_to_look(load_alone(settings)) as store:
        which = named(topic, client, produce=produce, fetch=fetch)
        _carry_out(plan_close(which, store, by=who()), store, dry_run=dry_run)


def list_fuses(settings: Path = SETTINGS, json_output: bool = JSON) -> None:
    """Shows all fuses: how they stand, why and by whom, and what each has answered so far."""
    from twinshore.proxy.operations.fuses import look
    from twinshore.store.opening import open_to_look

    with open_to_look(load_alone(settings)) as store:
        found = look(store)
    if json_output:
        typer.echo(json.dumps(found))
        return
    for one in found:
        line = f"{one['kind']} of {one['topic']} for clients {one['client']}: {one['stands']}"
        line += f", it has tripped at {one['tripped_at']} of the proxies" if one["tripped_at"] else ""
        line += f", since {moment(one['since_ms'])} by {one['set_by']}: {one['reason']}"
        line += f"; it has answered {counted(one['requests'], 'request')}"
        typer.echo(one_line(f"{line} with {counted(one['records'], 'record')}, {counted(one['bytes'], 'byte')}"))
    if not found:
        typer.echo("none")


def drops(settings: Path = SETTINGS, json_output: bool = JSON) -> None:
    """Shows the ledger of records that producers take for written and that no broker has, newest first."""
    from dataclasses import asdict

    from twinshore.proxy.operations.fuses import ledger
    from twinshore.store.opening import open_to_look

    with open_to_look(load_alone(settings)) as store:
        found = ledger(store)
    if json_output:
        typer.echo(json.dumps([asdict(one) for one in found]))
        return
    for one in found:
        what = f"{counted(one.records, 'record')}, {counted(one.bytes, 'byte')}"
        where = f"{one.topic}, partitions {one.partitions}, of client {one.client}"
        typer.echo(one_line(f"{where}: {what}, from {moment(one.since_ms)} to {moment(one.until_ms)}"))
    if not found:
        typer.echo("none")


def _carry_out(planned: Plan[FuseStep], store: Any, *, dry_run: bool) -> None:
    from twinshore.proxy.operations.fuses import act, in_force

    carry_out(planned, act(planned, store, by=who()), dry_run=dry_run)
    if planned.steps and not dry_run:
        typer.echo(one_line(in_force(store)))
