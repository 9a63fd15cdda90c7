"""`twinshore proxy`: one address for clients, and many clusters behind it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from twinshore.cli import advise, options
from twinshore.cli.app import (
    any_store,
    confirm_and_run,
    get_operator_name,
    load_settings_file,
    print_result,
    run_steps,
    server_log,
)
from twinshore.cli.settings import run_change
from twinshore.config.sentences import count_phrase, escape_line, format_time

if TYPE_CHECKING:
    from twinshore.config.model import Plan
    from twinshore.proxy.operations.breakers import BreakerStep

CUT_TOPIC = typer.Argument(help="A topic, or a prefix followed by `*`.", metavar="TOPIC")
PRODUCE = typer.Option(False, "--produce", help="Only for producers.")
FETCH = typer.Option(False, "--fetch", help="Only for consumers.")
POLICY = typer.Option(
    "refuse", "--policy", help="refuse: producers retry. drop: producers get success, and the records are lost."
)
REASON = typer.Option(..., "--reason", help="Reason, shown to other operators.")
SORT = typer.Option("bytes", "--sort", help="Sort by bytes, requests, records, errors or latency; largest first.")
TIME = typer.Option("", "--to-time", help="To the first record at or after this time, such as 2026-11-26T10:00:00Z.")
NAME = typer.Argument(..., metavar="NAME", help="The user name with which clients log in.")
TOPICS = typer.Argument(None, metavar="[TOPIC]...", help="Also show which cluster serves these topics, and why.")
PASSWORD_FILE = typer.Option(..., "--password-file", help="File with the password.")
NEW_PASSWORD = typer.Option(
    None, "--password-file", help="File with the password; `-`: standard input. Without it, the password is asked for."
)


def register_breaker(proxy: typer.Typer) -> None:
    breaker = typer.Typer(help="Circuit breakers: proxies answer clients in place of brokers.")
    breaker.command("open")(open_breaker)
    options.add_verbs(breaker, close, limit)
    breaker.command("list")(list_breakers)
    options.add_verbs(breaker, drops)
    proxy.add_typer(breaker, name="breaker", no_args_is_help=True)


def open_breaker(
    topic: str = CUT_TOPIC,
    client: str = options.CLIENT,
    produce: bool = PRODUCE,
    fetch: bool = FETCH,
    policy: str = POLICY,
    reason: str = REASON,
    lasts: str = typer.Option("", "--for", help="Close by itself after this time: 90s, 10m, 2h."),
    settings: Path = options.SETTINGS,
    dry_run: bool = options.DRY_RUN,
) -> None:
    """Opens a breaker at every proxy: producers retry, consumers get no new records, brokers get no requests.

    With --policy drop, producers get success, and their records are lost.
    """
    from twinshore.proxy.operations import breakers

    selection = breakers.select_breakers(topic, client, produce=produce, fetch=fetch)
    given = breakers.parse_policy(policy), breakers.parse_seconds(lasts) if lasts else 0
    request = breakers.OpenBreakers(selection, reason, *given)
    with any_store(settings, creates=not dry_run) as (_, store):
        _carry_out(breakers.plan_open(request, store, by=get_operator_name()), store, dry_run=dry_run)


def limit(
    topic: str = CUT_TOPIC,
    client: str = options.CLIENT,
    produce: bool = PRODUCE,
    fetch: bool = FETCH,
    policy: str = POLICY,
    reason: str = REASON,
    records_s: int = typer.Option(0, "--records-s", help="Open above this many produced records per second."),
    bytes_s: int = typer.Option(0, "--bytes-s", help="Open above this many bytes per second."),
    latency_ms: int = typer.Option(0, "--latency-ms", help="Open if brokers take longer to answer producers."),
    above_s: int = typer.Option(5, "--above-s", help="Seconds above a limit before it opens."),
    quiet_s: int = typer.Option(30, "--quiet-s", help="Seconds below half of every limit before it closes."),
    settings: Path = options.SETTINGS,
    dry_run: bool = options.DRY_RUN,
) -> None:
    """Sets limits at which a breaker opens by itself. It closes after traffic has been low for some time.

    Each proxy measures its own traffic, summed over all topics and clients that the breaker matches.
    """
    from twinshore.proxy.operations import breakers

    limits = breakers.build_limits(records_s, bytes_s, latency_ms, above_s, quiet_s)
    selection = breakers.select_breakers(topic, client, produce=produce, fetch=fetch)
    request = breakers.SetBreakerLimits(selection, limits, reason, breakers.parse_policy(policy))
    with any_store(settings, creates=not dry_run) as (_, store):
        _carry_out(breakers.plan_limits(request, store, by=get_operator_name()), store, dry_run=dry_run)


def close(
    topic: str = CUT_TOPIC,
    client: str = options.CLIENT,
    produce: bool = PRODUCE,
    fetch: bool = FETCH,
    settings: Path = options.SETTINGS,
    dry_run: bool = options.DRY_RUN,
) -> None:
    """Closes a breaker and removes its limits. Clients continue where they were."""
    from twinshore.proxy.operations.breakers import plan_close, select_breakers

    with any_store(settings) as (_, store):
        selection = select_breakers(topic, client, produce=produce, fetch=fetch)
        _carry_out(plan_close(selection, store, by=get_operator_name()), store, dry_run=dry_run)


def list_breakers(settings: Path = options.SETTINGS, json_output: bool = options.JSON) -> None:
    """Shows all breakers: state, reason, author, and the number of requests that each answered."""
    from twinshore.proxy.operations.breakers import list_breakers

    with any_store(settings) as (_, store):
        found = list_breakers(store)
    print_result(found, map(_breaker_in_words, found), as_json=json_output, none="none")


def _breaker_in_words(one: Mapping[str, Any]) -> str:
    line = f"{one['kind']} of {one['topic']} for clients {one['client']}: {one['status']}"
    line += f", it has tripped at {one['tripped_at']} of the proxies" if one["tripped_at"] else ""
    line += f", since {format_time(one['since_ms'])} by {one['set_by']}: {one['reason']}"
    line += f"; it has answered {count_phrase(one['requests'], 'request')}"
    return f"{line} with {count_phrase(one['records'], 'record')}, {count_phrase(one['bytes'], 'byte')}"


def drops(settings: Path = options.SETTINGS, json_output: bool = options.JSON) -> None:
    """Shows the records that breakers acknowledged and dropped, newest first."""
    from dataclasses import asdict

    from twinshore.proxy.operations.breakers import list_dropped_records

    with any_store(settings) as (_, store):
        found = list_dropped_records(store)
    lines = (
        f"{row.topic}, partitions {row.partitions}, of client {row.client}: {count_phrase(row.records, 'record')},"
        f" {count_phrase(row.bytes, 'byte')}, from {format_time(row.since_ms)} to {format_time(row.until_ms)}"
        for row in found
    )
    print_result([asdict(row) for row in found], lines, as_json=json_output, none="none")


def _carry_out(plan: Plan[BreakerStep], store: Any, *, dry_run: bool) -> None:
    from twinshore.proxy.operations.breakers import act, wait_until_in_force

    run_steps(plan, act(plan, store, by=get_operator_name()), dry_run=dry_run)
    if plan.steps and not dry_run:
        typer.echo(escape_line(wait_until_in_force(store)))


def traffic(
    by: str = typer.Option(
        "topic", "--by", help="Group by topic, client, cluster, way (proxy to cluster), or flow (all of these)."
    ),
    sort: str = SORT,
    last: str = typer.Option("5m", "--last", help="How far back to look: 90s, 5m, 2h."),
    topic: str = typer.Option("*", "--topic", help="Only this topic, or a prefix followed by `*`."),
    client: str = options.CLIENT,
    page: int = typer.Option(1, "--page", help="Page number.", min=1),
    size: int = typer.Option(20, "--lines", help="Lines per page.", min=1),
    settings: Path = options.SETTINGS,
    json_output: bool = options.JSON,
) -> None:
    """Shows traffic through the proxies: bytes, requests and records per second, latency, connections, errors.

    Reads the store. Proxies report to it every [proxy] traffic_every_s seconds.
    """
    from twinshore.proxy.operations.traffic import parse_query, query_traffic

    query = parse_query(by, sort, last, topic, client, page, size)
    with any_store(settings) as (_, store):
        found = query_traffic(query, store)
    print_result(found.as_values(), found.sentences(), as_json=json_output)


def offsets(
    group: str = typer.Argument(help="The consumer group.", metavar="GROUP"),
    topic: list[str] = typer.Option(
        [], "--topic", help="Only this topic, or these partitions of it, such as orders:0,2; repeatable."
    ),
    to_earliest: bool = typer.Option(False, "--to-earliest", help="To the beginning of each partition."),
    to_latest: bool = typer.Option(False, "--to-latest", help="To the end of each partition."),
    to_offset: int | None = typer.Option(None, "--to-offset", min=0, help="To this offset."),
    to_time: str = TIME,
    shift_by: int | None = typer.Option(None, "--shift-by", help="Forward by this many offsets; backward if negative."),
    resume: bool = typer.Option(False, "--resume", help="Finish an unfinished reset."),
    undo: bool = typer.Option(False, "--undo", help="Undo an unfinished reset: restore the earlier offsets."),
    gather_s: float = typer.Option(10.0, "--gather-s", min=0.0, help="Seconds to wait for members to rejoin."),
    settings: Path = options.SETTINGS,
    dry_run: bool = options.DRY_RUN,
    yes: bool = options.YES,
) -> None:
    """Shows the committed offsets of a proxy clients' group, or resets them while its members run.

    Members wait for some seconds, rejoin and read on from the new offsets. No client restarts.
    """
    from twinshore.proxy.operations.reset_offsets import act, parse_reset_request, plan

    request = parse_reset_request(
        group,
        topic,
        earliest=to_earliest,
        latest=to_latest,
        offset=to_offset,
        time=to_time,
        shift=shift_by,
        resume=resume,
        undo=undo,
        gather_s=gather_s,
    )
    changes = request.target is not None or request.unfinished_action is not None
    with any_store(settings, creates=changes and not dry_run) as (loaded, store):
        planned = plan(request, loaded, store)
        confirm_and_run(planned, act(request, planned, loaded, store, get_operator_name()), yes=yes, dry_run=dry_run)


def register(app: typer.Typer) -> None:
    proxy = typer.Typer(help="Serve several clusters at one address.", no_args_is_help=True)
    options.add_verbs(proxy, run, plan)
    proxy.command("list")(list_proxies)
    register_breaker(proxy)
    options.add_verbs(proxy, traffic)
    advise.register_audit(proxy)
    options.add_verbs(proxy, groups, offsets)
    users = typer.Typer(help="Users with which clients log in at the proxy.")
    users.command("print")(print_user)
    users.command("set")(set_user)
    users.command("remove")(remove_user)
    proxy.add_typer(users, name="user", no_args_is_help=True)
    app.add_typer(proxy, name="proxy")


def run(
    settings: Path = options.SETTINGS,
    processes: int = typer.Option(0, "--processes", min=0, help="Number of processes; 0: as in [proxy] processes."),
) -> None:
    """Serves clients at [proxy] address and port until stopped. Ctrl-C, SIGTERM or a closed terminal stops it cleanly.

    Routes each topic to its home.
    """
    from twinshore.proxy.operations.run import serve_proxy

    loaded = load_settings_file(settings)
    with server_log(loaded):
        serve_proxy(loaded, processes)


def plan(topics: list[str] = TOPICS, settings: Path = options.SETTINGS, json_output: bool = options.JSON) -> None:
    """Shows what clients would see: addresses, ports, versions, the cluster of each topic, and conflicts.

    Asks the clusters once, serves no client and changes nothing. Exit code 1: a cluster does not answer, topics
    conflict, or a named topic does not exist.
    """
    from twinshore.proxy.operations.run import preview_proxy

    found = preview_proxy(load_settings_file(settings), topics or ())
    print_result(found.values(), found.sentences(), as_json=json_output)
    raise typer.Exit(found.exit_code)


def list_proxies(settings: Path = options.SETTINGS, json_output: bool = options.JSON) -> None:
    """Shows the proxies, their start times, and which have not read the latest breakers."""
    from twinshore.proxy.operations.breakers import list_proxy_instances

    with any_store(settings) as (_, store):
        found = list_proxy_instances(store)
    lines = (
        f"{one['name']} on {one['host']}: {one['status']}, since {format_time(one['started_ms'])},"
        f" heard of at {format_time(one['seen_ms'])}, goes by change {one['revision']} of the breakers"
        for one in found
    )
    print_result(found, lines, as_json=json_output, none="none")


def groups(
    settings: Path = options.SETTINGS,
    to: str = typer.Option("", "--to", help="Move the groups to this cluster."),
    force: bool = typer.Option(False, "--force", help="Move even if the old home does not answer."),
    gather_s: float = typer.Option(30.0, "--gather-s", min=0.0, help="Seconds to wait for running members."),
    dry_run: bool = options.DRY_RUN,
    yes: bool = options.YES,
) -> None:
    """Shows which cluster is the home of proxy clients' consumer groups, or moves all of them to another cluster.

    Members commit their offsets, wait for some seconds and continue. If the old home is gone, they continue at the
    offsets that the mirror replicated.
    """
    from twinshore.proxy.operations.groups_move import MoveGroups, act, plan
    from twinshore.state.opening import open_if_exists

    loaded = load_settings_file(settings)
    request = MoveGroups(to, force, gather_s)
    with open_if_exists(loaded) or nullcontext() as store:
        meant = plan(request, loaded, store)
        confirm_and_run(meant, act(request, meant, loaded, store, get_operator_name()), yes=yes, dry_run=dry_run)


def print_user(name: str = NAME, password_file: Path = PASSWORD_FILE) -> None:
    """Prints an entry for [proxy] users_file: a user with a salted hash of the password."""
    from twinshore.config.model import Secret
    from twinshore.proxy.operations.run import format_user_table

    typer.echo(format_user_table(name, Secret(file=str(password_file))))


def set_user(
    name: str = NAME,
    password_file: Path | None = NEW_PASSWORD,
    settings: Path = options.SETTINGS,
    dry_run: bool = options.DRY_RUN,
) -> None:
    """Adds a user, or changes the password, at all running proxies and without a restart.

    The store keeps a salted hash, and no verb shows that. The user counts before one of [proxy] users_file.
    """
    from twinshore.config.settings import read_text_file
    from twinshore.proxy.operations.run import plan_user
    from twinshore.state.opening import open_to_change

    loaded = load_settings_file(settings)
    if password_file is None:
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
    else:
        password = read_text_file(password_file).strip()
    with open_to_change(loaded, dry_run=dry_run) as store:
        run_change(plan_user(name, password, loaded, store, by=get_operator_name()), store, dry_run=dry_run)


def remove_user(name: str = NAME, settings: Path = options.SETTINGS, dry_run: bool = options.DRY_RUN) -> None:
    """Removes a user that `proxy user set` added. Clients that are logged in stay until they reconnect.

    A user of that name in [proxy] users_file counts again.
    """
    from twinshore.proxy.operations.run import plan_no_user

    with any_store(settings) as (loaded, store):
        run_change(plan_no_user(name, loaded, store), store, dry_run=dry_run)
