"""`twinshore push`: the configuration service that tells an application's clients their settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from twinshore.cli.app import (
    JSON,
    SETTINGS,
    get_operator_name,
    load_settings_file,
    print_result,
    read_text_file,
    run_steps,
    server_log,
)
from twinshore.config.sentences import escape_line, format_time

APP = typer.Argument(help="The application, by the name that its clients give.", metavar="APP")
FILE = typer.Argument(help="A file with the push, a JSON object; `-` reads it from standard input.", metavar="FILE")
DRY_RUN = typer.Option(False, "--dry-run", help="Only say what would change.")
MAY_PUSH = typer.Option(False, "--may-push", help="It may change what clients are told, besides asking for it.")
BEGINNING = typer.Argument(help="How the token begins that `push tokens` shows.", metavar="TOKEN")


def register(app: typer.Typer) -> None:
    push = typer.Typer(help="Tell clients of the client library what they are set to.", no_args_is_help=True)
    push.command("set")(set_push)
    for verb in (show, remove, token, tokens, revoke, serve):
        push.command(verb.__name__)(verb)
    push.command("list")(list_pushes)
    app.add_typer(push, name="push")


def set_push(app: str = APP, file: Path = FILE, settings: Path = SETTINGS, dry_run: bool = DRY_RUN) -> None:
    """Tells an application's clients something else. A running server tells it to them within a second.

    Refused where clients would not take it, or where it holds a secret: the store keeps none.
    """
    from twinshore.state.opening import open_or_create, open_or_temporary
    from twinshore.switch.config_service.push import SetPush, apply_push, plan_set

    text = read_text_file(file)
    with (open_or_temporary if dry_run else open_or_create)(load_settings_file(settings)) as store:
        planned = plan_set(SetPush(app, text), store)
        run_steps(planned, apply_push(planned, store, by=get_operator_name()), dry_run=dry_run)


def show(app: str = APP, settings: Path = SETTINGS, json_output: bool = JSON) -> None:
    """Shows what an application's clients are told."""
    from twinshore.state.opening import open_or_temporary
    from twinshore.switch.config_service.push import read_pushes

    with open_or_temporary(load_settings_file(settings)) as store:
        (found,) = read_pushes(store, app)
    if json_output:
        typer.echo(json.dumps(found))
        return
    typer.echo(escape_line(_said(found)))
    typer.echo(json.dumps(json.loads(found["push"]), indent=2))


def list_pushes(settings: Path = SETTINGS, json_output: bool = JSON) -> None:
    """Shows which applications something is pushed to, since when, and who pushed it."""
    from twinshore.state.opening import open_or_temporary
    from twinshore.switch.config_service.push import read_pushes

    with open_or_temporary(load_settings_file(settings)) as store:
        found = read_pushes(store)
    print_result(found, map(_said, found), as_json=json_output, none="none")


def _said(found: dict[str, Any]) -> str:
    return f"{found['app']}: revision {found['revision']}, by {found['set_by']}, {format_time(found['changed_ms'])}"


def remove(app: str = APP, settings: Path = SETTINGS, dry_run: bool = DRY_RUN) -> None:
    """Takes an application's push away. Its clients stay as they are; one that starts goes by the last it has kept."""
    from twinshore.state.opening import open_or_temporary
    from twinshore.switch.config_service.push import apply_push, plan_remove

    with open_or_temporary(load_settings_file(settings)) as store:
        planned = plan_remove(app, store)
        run_steps(planned, apply_push(planned, store, by=get_operator_name()), dry_run=dry_run)


def token(app: str = APP, settings: Path = SETTINGS, may_push: bool = MAY_PUSH) -> None:
    """Makes a token for an application's clients and prints it: nothing shows it again."""
    from twinshore.state.opening import open_or_create
    from twinshore.switch.config_service.tokens import NewToken, make_token

    with open_or_create(load_settings_file(settings)) as store:
        typer.echo(make_token(NewToken(app, may_push), store, by=get_operator_name()))


def tokens(settings: Path = SETTINGS, json_output: bool = JSON) -> None:
    """Shows which tokens count, each by the beginning of its digest."""
    from twinshore.state.opening import open_or_temporary
    from twinshore.switch.config_service.tokens import read_tokens

    with open_or_temporary(load_settings_file(settings)) as store:
        found = read_tokens(store)
    lines = [
        f"{one['token']}: {one['app']}, {one['may']}, made by {one['made_by']}, {format_time(one['made_ms'])}"
        for one in found
    ]
    print_result(found, lines, as_json=json_output, none="none")


def revoke(beginning: str = BEGINNING, settings: Path = SETTINGS, dry_run: bool = DRY_RUN) -> None:
    """Has a token count no more, within a second."""
    from twinshore.state.opening import open_or_temporary
    from twinshore.switch.config_service import tokens as operations

    with open_or_temporary(load_settings_file(settings)) as store:
        row = operations.find_token(beginning, store)
        if not dry_run:
            operations.revoke(row, store, by=get_operator_name())
    typer.echo(f"{row.digest[:8]} of {row.app} {'would count' if dry_run else 'counts'} no more")


def serve(settings: Path = SETTINGS) -> None:
    """Tells clients what they are set to, until stopped (Ctrl-C, SIGTERM or a closed terminal ends it in good
    order)."""
    from twinshore.switch.config_service.tokens import serve as run

    loaded = load_settings_file(settings)
    with server_log(loaded):
        run(loaded)
