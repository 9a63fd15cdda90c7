"""`twinshore proxy`: one address for clients, and many clusters behind it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from twinshore.cli import client_audit
from twinshore.cli.app import (
    JSON,
    SETTINGS,
    confirm_and_run,
    get_operator_name,
    load_settings_file,
    print_result,
    run_steps,
    server_log,
)
from twinshore.config.sentences import count_phrase, escape_line, format_time

if TYPE_CHECKING:
    from twinshore.config.model import Plan
    from twinshore.proxy.operations.breakers import BreakerStep

CUT_TOPIC = typer.Argument(help="The topic, or how topics begin, with a `*` behind.", metavar="TOPIC")
CUT_CLIENT = typer.Option("*", "--client", help="Only clients of this id; with a `*` behind, ids that begin so.")
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
DRY_RUN = typer.Option(False, "--dry-run", help="Only say what would be done.")
BY = typer.Option("topic", "--by", help="topic, client, cluster, way (from a proxy to a cluster), or flow: all apart.")
SORT = typer.Option("bytes", "--sort", help="What the largest has most of: bytes, requests, records, errors, latency.")
LAST = typer.Option("5m", "--last", help="Of how long: 90s, 5m, 2h.")
TOPIC = typer.Option("*", "--topic", help="Only this topic, or with a `*` behind, topics that begin so.")
CLIENT = typer.Option("*", "--client", help="Only this client id, or with a `*` behind, ids that begin so.")
PAGE = typer.Option(1, "--page", help="Which page.", min=1)
SIZE = typer.Option(20, "--lines", help="How many lines a page has.", min=1)
GROUP = typer.Argument(help="The group.", metavar="GROUP")
RESET_TOPIC = typer.Option(
    [], "--topic", help="Only this topic, or partitions of it as in orders:0,2; may be repeated."
)
EARLIEST = typer.Option(False, "--to-earliest", help="To the beginning of each partition.")
LATEST = typer.Option(False, "--to-latest", help="To the end of each partition.")
OFFSET = typer.Option(None, "--to-offset", min=0, help="To this offset.")
TIME = typer.Option("", "--to-time", help="To the first record of that time or later, as in 2026-11-26T10:00:00Z.")
SHIFT = typer.Option(None, "--shift-by", help="By so many records on, or back where it is negative.")
RESUME = typer.Option(False, "--resume", help="Finish a reset that was not finished.")
UNDO = typer.Option(False, "--undo", help="Have places as they were before a reset that was not finished.")
GATHER_S = typer.Option(10.0, "--gather-s", min=0.0, help="How long members are waited for, to come back together.")
YES = typer.Option(False, "--yes", help="Do not ask once more.")
NAME = typer.Argument(..., metavar="NAME", help="The user, as clients log in.")
TOPICS = typer.Argument(None, metavar="[TOPIC]...", help="Also says where these are led, and why.")
PASSWORD_FILE = typer.Option(..., "--password-file", help="File that holds the password.")


def register_breaker(proxy: typer.Typer) -> None:
    breaker = typer.Typer(help="Circuit breakers: proxies answer for a topic, or for a client, in place of brokers.")
    breaker.command("open")(open_breaker)
    breaker.command("close")(close)
    breaker.command("limit")(limit)
    breaker.command("list")(list_breakers)
    breaker.command("drops")(drops)
    proxy.add_typer(breaker, name="breaker", no_args_is_help=True)


def open_breaker(
    topic: str = CUT_TOPIC,
    client: str = CUT_CLIENT,
    produce: bool = PRODUCE,
    fetch: bool = FETCH,
    policy: str = POLICY,
    reason: str = REASON,
    lasts: str = FOR,
    settings: Path = SETTINGS,
    dry_run: bool = DRY_RUN,
) -> None:
    """Opens a breaker at every proxy: producers retry, consumers get no new records, brokers see neither.

    With --policy drop producers are told that their records are written, and the records are lost.
    """
    from twinshore.proxy.operations.breakers import (
        OpenBreakers,
        parse_policy,
        parse_seconds,
        plan_open,
        select_breakers,
    )
    from twinshore.state.opening import open_or_create, open_or_temporary

    which = select_breakers(topic, client, produce=produce, fetch=fetch)
    asked = OpenBreakers(which, reason, parse_policy(policy), parse_seconds(lasts) if lasts else 0)
    with (open_or_temporary if dry_run else open_or_create)(load_settings_file(settings)) as store:
        _carry_out(plan_open(asked, store, by=get_operator_name()), store, dry_run=dry_run)


def limit(
    topic: str = CUT_TOPIC,
    client: str = CUT_CLIENT,
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
    """Sets limits at which a breaker opens by itself. It closes once the demand has been low for some time.

    Each proxy measures its own traffic, of all topics and clients that the breaker matches together.
    """
    from twinshore.proxy.operations.breakers import (
        SetBreakerLimits,
        build_limits,
        parse_policy,
        plan_limits,
        select_breakers,
    )
    from twinshore.state.opening import open_or_create, open_or_temporary

    limits = build_limits(records_s, bytes_s, latency_ms, above_s, quiet_s)
    asked = SetBreakerLimits(
        select_breakers(topic, client, produce=produce, fetch=fetch), limits, reason, parse_policy(policy)
    )
    with (open_or_temporary if dry_run else open_or_create)(load_settings_file(settings)) as store:
        _carry_out(plan_limits(asked, store, by=get_operator_name()), store, dry_run=dry_run)


def close(
    topic: str = CUT_TOPIC,
    client: str = CUT_CLIENT,
    produce: bool = PRODUCE,
    fetch: bool = FETCH,
    settings: Path = SETTINGS,
    dry_run: bool = DRY_RUN,
) -> None:
    """Closes a breaker and removes its limits. Clients continue where they were."""
    from twinshore.proxy.operations.breakers import plan_close, select_breakers
    from twinshore.state.opening import open_or_temporary

    with open_or_temporary(load_settings_file(settings)) as store:
        which = select_breakers(topic, client, produce=produce, fetch=fetch)
        _carry_out(plan_close(which, store, by=get_operator_name()), store, dry_run=dry_run)


def list_breakers(settings: Path = SETTINGS, json_output: bool = JSON) -> None:
    """Shows all breakers: state, reason, author, and the number of requests that each answered."""
    from twinshore.proxy.operations.breakers import list_breakers
    from twinshore.state.opening import open_or_temporary

    with open_or_temporary(load_settings_file(settings)) as store:
        found = list_breakers(store)
    print_result(found, map(_breaker_in_words, found), as_json=json_output, none="none")


def _breaker_in_words(one: Mapping[str, Any]) -> str:
    line = f"{one['kind']} of {one['topic']} for clients {one['client']}: {one['status']}"
    line += f", it has tripped at {one['tripped_at']} of the proxies" if one["tripped_at"] else ""
    line += f", since {format_time(one['since_ms'])} by {one['set_by']}: {one['reason']}"
    line += f"; it has answered {count_phrase(one['requests'], 'request')}"
    return f"{line} with {count_phrase(one['records'], 'record')}, {count_phrase(one['bytes'], 'byte')}"


def drops(settings: Path = SETTINGS, json_output: bool = JSON) -> None:
    """Shows the ledger of records that producers take for written and that no broker has, newest first."""
    from dataclasses import asdict

    from twinshore.proxy.operations.breakers import list_dropped_records
    from twinshore.state.opening import open_or_temporary

    with open_or_temporary(load_settings_file(settings)) as store:
        found = list_dropped_records(store)
    lines = (
        f"{one.topic}, partitions {one.partitions}, of client {one.client}: {count_phrase(one.records, 'record')},"
        f" {count_phrase(one.bytes, 'byte')}, from {format_time(one.since_ms)} to {format_time(one.until_ms)}"
        for one in found
    )
    print_result([asdict(one) for one in found], lines, as_json=json_output, none="none")


def _carry_out(planned: Plan[BreakerStep], store: Any, *, dry_run: bool) -> None:
    from twinshore.proxy.operations.breakers import act, wait_until_in_force

    run_steps(planned, act(planned, store, by=get_operator_name()), dry_run=dry_run)
    if planned.steps and not dry_run:
        typer.echo(escape_line(wait_until_in_force(store)))


def traffic(
    by: str = BY,
    sort: str = SORT,
    last: str = LAST,
    topic: str = TOPIC,
    client: str = CLIENT,
    page: int = PAGE,
    size: int = SIZE,
    settings: Path = SETTINGS,
    json_output: bool = JSON,
) -> None:
    """Shows what goes through the proxies: bytes, requests and records a second, latency, connections, errors.

    Proxies tell it to the store once in a window of [proxy] traffic_every_s seconds. Asks no cluster.
    """
    from twinshore.proxy.operations.traffic import parse_query, query_traffic
    from twinshore.state.opening import open_or_temporary

    asked = parse_query(by, sort, last, topic, client, page, size)
    with open_or_temporary(load_settings_file(settings)) as store:
        found = query_traffic(asked, store)
    print_result(found.as_values(), found.sentences(), as_json=json_output)


def offsets(
    group: str = GROUP,
    topic: list[str] = RESET_TOPIC,
    to_earliest: bool = EARLIEST,
    to_latest: bool = LATEST,
    to_offset: int | None = OFFSET,
    to_time: str = TIME,
    shift_by: int | None = SHIFT,
    resume: bool = RESUME,
    undo: bool = UNDO,
    gather_s: float = GATHER_S,
    settings: Path = SETTINGS,
    dry_run: bool = DRY_RUN,
    yes: bool = YES,
) -> None:
    """Shows where a group of the proxies' clients stands, or sets it to other places while its members run.

    Members wait for some seconds, join again, and read on from the new places. No member is started again.
    """
    from twinshore.proxy.operations.reset_offsets import act, parse_reset_request, plan
    from twinshore.state.opening import open_or_create, open_or_temporary

    asked = parse_reset_request(
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
    loaded = load_settings_file(settings)
    changes = asked.target is not None or asked.unfinished_action is not None
    with (open_or_create if changes and not dry_run else open_or_temporary)(loaded) as store:
        meant = plan(asked, loaded, store)
        confirm_and_run(meant, act(asked, meant, loaded, store, get_operator_name()), yes=yes, dry_run=dry_run)


def register(app: typer.Typer) -> None:
    proxy = typer.Typer(help="Serve clients of several clusters at one address.", no_args_is_help=True)
    proxy.command("run")(run)
    proxy.command("plan")(plan)
    proxy.command("list")(list_proxies)
    register_breaker(proxy)
    proxy.command("traffic")(traffic)
    client_audit.register(proxy)
    proxy.command("groups")(groups)
    proxy.command("offsets")(offsets)
    proxy.command("user")(user)
    app.add_typer(proxy, name="proxy")


def run(
    settings: Path = SETTINGS,
    processes: int = typer.Option(0, "--processes", min=0, help="In place of [proxy] processes; 0: as it says."),
) -> None:
    """Serves clients at [proxy] address and port, until stopped (Ctrl-C, SIGTERM or a closed terminal ends it in good
    order).

    Each topic is led to the cluster where it is at home.
    """
    from twinshore.proxy.operations.run import serve_proxy

    loaded = load_settings_file(settings)
    with server_log(loaded):
        serve_proxy(loaded, processes)


def plan(
    topics: list[str] = TOPICS,
    settings: Path = SETTINGS,
    json_output: bool = JSON,
) -> None:
    """Says what clients would see: addresses and ports, versions, where topics are led, and which ones clash.

    Serves no client, asks the clusters once and changes nothing. The exit code is 1 where a cluster is silent, a topic
    clashes, or one that is named is on no cluster.
    """
    from twinshore.proxy.operations.run import preview_proxy

    found = preview_proxy(load_settings_file(settings), topics or ())
    print_result(found.values(), found.sentences(), as_json=json_output)
    raise typer.Exit(found.exit_code)


def list_proxies(settings: Path = SETTINGS, json_output: bool = JSON) -> None:
    """Shows which proxies serve, since when, and which have not read the latest breakers."""
    from twinshore.proxy.operations.breakers import list_proxy_instances
    from twinshore.state.opening import open_or_temporary

    with open_or_temporary(load_settings_file(settings)) as store:
        found = list_proxy_instances(store)
    lines = (
        f"{one['name']} on {one['host']}: {one['status']}, since {format_time(one['started_ms'])},"
        f" heard of at {format_time(one['seen_ms'])}, goes by change {one['revision']} of the breakers"
        for one in found
    )
    print_result(found, lines, as_json=json_output, none="none")


def groups(
    settings: Path = SETTINGS,
    to: str = typer.Option("", "--to", help="The cluster where groups shall be at home from now on."),
    force: bool = typer.Option(False, "--force", help="Also where the old home does not answer."),
    gather_s: float = typer.Option(30.0, "--gather-s", min=0.0, help="How long members at work are waited for."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Only say what would be done."),
    yes: bool = typer.Option(False, "--yes", help="Do not ask once more."),
) -> None:
    """Shows on which cluster the groups of the proxies' clients are at home, or moves them all to another one.

    Members commit what they have read, wait for some seconds, and go on where they were. Behind a home that is gone
    they go on at the places that the mirror has copied.
    """
    from twinshore.proxy.operations.groups_move import MoveGroups, act, plan
    from twinshore.state.opening import open_if_exists

    loaded = load_settings_file(settings)
    asked = MoveGroups(to, force, gather_s)
    with open_if_exists(loaded) or nullcontext() as store:
        meant = plan(asked, loaded, store)
        confirm_and_run(meant, act(asked, meant, loaded, store, get_operator_name()), yes=yes, dry_run=dry_run)


def user(
    name: str = NAME,
    password_file: Path = PASSWORD_FILE,
) -> None:
    """Prints a table for [proxy] users_file: a user with a salted password, from which the password cannot be read."""
    from twinshore.config.model import Secret
    from twinshore.proxy.operations.run import format_user_table

    typer.echo(format_user_table(name, Secret(file=str(password_file))))
