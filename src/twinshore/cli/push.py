"""`twinshore push`: the configuration service that tells an application's clients their settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from twinshore.cli import options
from twinshore.cli.app import any_store, get_operator_name, load_settings_file, print_result, run_steps, server_log
from twinshore.config.sentences import format_time

APP = typer.Argument(help="The application's name, as its clients give it.", metavar="APP")
FILE = typer.Argument(help="File with the settings, a JSON object; `-` reads standard input.", metavar="FILE")
MAY_PUSH = typer.Option(False, "--may-push", help="The token may also change settings, not only read them.")
BEGINNING = typer.Argument(help="First characters of the token's digest, as `push tokens` shows it.", metavar="TOKEN")


def register(app: typer.Typer) -> None:
    push = typer.Typer(help="Push settings to clients of the client library.", no_args_is_help=True)
    push.command("set")(set_push)
    options.add_verbs(push, show, remove, token, tokens, revoke, serve)
    push.command("list")(list_pushes)
    app.add_typer(push, name="push")


def set_push(
    app: str = APP, file: Path = FILE, settings: Path = options.SETTINGS, dry_run: bool = options.DRY_RUN
) -> None:
    """Changes the settings of an application's clients. A running server sends them within a second.

    Refused if clients would reject the settings, or if they hold a secret: the store keeps no secrets.
    """
    from twinshore.config.settings import read_text_file
    from twinshore.switch.pushes import SetPush, apply_push, plan_set

    text = read_text_file(file)
    with any_store(settings, creates=not dry_run) as (_, store):
        plan = plan_set(SetPush(app, text), store)
        run_steps(plan, apply_push(plan, store, by=get_operator_name()), dry_run=dry_run)


def show(app: str = APP, settings: Path = options.SETTINGS, json_output: bool = options.JSON) -> None:
    """Shows the settings pushed to an application."""
    from twinshore.switch.pushes import read_pushes

    with any_store(settings) as (_, store):
        (found,) = read_pushes(store, app)
    pushed = json.dumps(json.loads(found["push"]), indent=2)
    print_result(found, [_said(found), *pushed.splitlines()], as_json=json_output)


def list_pushes(settings: Path = options.SETTINGS, json_output: bool = options.JSON) -> None:
    """Lists the applications with pushed settings, since when, and who pushed them."""
    from twinshore.switch.pushes import read_pushes

    with any_store(settings) as (_, store):
        found = read_pushes(store)
    print_result(found, map(_said, found), as_json=json_output, none="none")


def _said(found: dict[str, Any]) -> str:
    return f"{found['app']}: revision {found['revision']}, by {found['set_by']}, {format_time(found['changed_ms'])}"


def remove(app: str = APP, settings: Path = options.SETTINGS, dry_run: bool = options.DRY_RUN) -> None:
    """Removes an application's pushed settings. Running clients keep them; one that starts uses the last it saved."""
    from twinshore.switch.pushes import apply_push, plan_remove

    with any_store(settings) as (_, store):
        plan = plan_remove(app, store)
        run_steps(plan, apply_push(plan, store, by=get_operator_name()), dry_run=dry_run)


def token(app: str = APP, settings: Path = options.SETTINGS, may_push: bool = MAY_PUSH) -> None:
    """Creates a token for an application's clients and prints it, this once."""
    from twinshore.switch.pushes import NewToken, make_token

    with any_store(settings, creates=True) as (_, store):
        typer.echo(make_token(NewToken(app, may_push), store, by=get_operator_name()))


def tokens(settings: Path = options.SETTINGS, json_output: bool = options.JSON) -> None:
    """Lists the valid tokens, each by the first characters of its digest."""
    from twinshore.switch.pushes import read_tokens

    with any_store(settings) as (_, store):
        found = read_tokens(store)
    lines = [
        f"{one['token']}: {one['app']}, {one['may']}, made by {one['made_by']}, {format_time(one['made_ms'])}"
        for one in found
    ]
    print_result(found, lines, as_json=json_output, none="none")


def revoke(beginning: str = BEGINNING, settings: Path = options.SETTINGS, dry_run: bool = options.DRY_RUN) -> None:
    """Revokes a token, within a second."""
    from twinshore.switch import pushes

    with any_store(settings) as (_, store):
        plan = pushes.plan_revoke(beginning, store)
        run_steps(plan, pushes.revoke(plan, store, by=get_operator_name()), dry_run=dry_run)


def serve(settings: Path = options.SETTINGS) -> None:
    """Serves pushed settings to clients until stopped. Ctrl-C, SIGTERM or a closed terminal stops it cleanly."""
    from twinshore.switch.pushes import serve as run

    loaded = load_settings_file(settings)
    with server_log(loaded):
        run(loaded)
