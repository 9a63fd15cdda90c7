"""`twinshore proxy`: one address for clients, and many clusters behind it."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import typer

from twinshore.cli import conduct, fuse, traffic
from twinshore.cli.looking import JSON, SETTINGS, load_alone, who
from twinshore.cli.offsets import offsets
from twinshore.cli.steps import agreed
from twinshore.fleet.sentences import moment, one_line

NAME = typer.Argument(..., metavar="NAME", help="The user, as clients log in.")
TOPICS = typer.Argument(None, metavar="[TOPIC]...", help="Also says where these are led, and why.")
PASSWORD_FILE = typer.Option(..., "--password-file", help="File that holds the password.")


def register(app: typer.Typer) -> None:
    """Adds the verb to the command."""
    proxy = typer.Typer(help="Serve clients of several clusters at one address.", no_args_is_help=True)
    proxy.command("run")(run)
    proxy.command("plan")(plan)
    proxy.command("list")(list_proxies)
    fuse.register(proxy)
    traffic.register(proxy)
    conduct.register(proxy)
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
    from twinshore.proxy.operations.run import serve
    from twinshore.service.log_lines import LogLines

    log = LogLines()
    try:
        serve(load_alone(settings), log, processes)
    finally:
        log.close()


def plan(
    topics: list[str] = TOPICS,
    settings: Path = SETTINGS,
    json_output: bool = JSON,
) -> None:
    """Says what clients would see: addresses and ports, versions, where topics are led, and which ones clash.

    Serves nobody, asks the clusters once and changes nothing. The exit code is 1 where a cluster is silent, a topic
    clashes, or one that is named is on no cluster.
    """
    from twinshore.proxy.operations.plan import look

    found = look(load_alone(settings), topics or ())
    if json_output:
        typer.echo(json.dumps(found.values()))
    else:
        for sentence in found.sentences():
            typer.echo(one_line(sentence))
    raise typer.Exit(found.exit_code)


def list_proxies(settings: Path = SETTINGS, json_output: bool = JSON) -> None:
    """Shows which proxies serve, since when, and which do not go by the fuses as they are now."""
    from twinshore.proxy.operations.instances import look
    from twinshore.store.opening import open_to_look

    with open_to_look(load_alone(settings)) as store:
        found = look(store)
    if json_output:
        typer.echo(json.dumps(found))
        return
    for one in found:
        since, seen = moment(one["started_ms"]), moment(one["seen_ms"])
        line = f"{one['name']} on {one['host']}: {one['stands']}, since {since}, heard of at {seen}"
        typer.echo(one_line(f"{line}, goes by change {one['revision']} of the fuses"))
    if not found:
        typer.echo("none")


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
    from twinshore.proxy.operations.groups_home import Asked, act, plan
    from twinshore.store.opening import open_if_there

    loaded = load_alone(settings)
    asked = Asked(to, force, gather_s)
    with open_if_there(loaded) or nullcontext() as store:
        meant = plan(asked, loaded, store)
        agreed(meant, act(asked, meant, loaded, store, who()), yes=yes, dry_run=dry_run)


def user(
    name: str = NAME,
    password_file: Path = PASSWORD_FILE,
) -> None:
    """Prints a table for [proxy] users_file: a user with a salted password, from which nobody can read it."""
    from twinshore.fleet import Secret
    from twinshore.proxy.operations.user import user_table

    typer.echo(user_table(name, Secret(file=str(password_file))))
