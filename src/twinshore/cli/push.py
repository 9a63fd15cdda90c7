"""`twinshore push`: what an application's clients are told by a configuration centre of Twinshore's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from twinshore.cli.app import JSON, SETTINGS, carry_out, load_alone, read, tell, who
from twinshore.config.sentences import moment, one_line

APP = typer.Argument(help="The application, by the name that its clients give.", metavar="APP")
FILE = typer.Argument(help="A file with the push, a JSON object; `-` reads it from standard input.", metavar="FILE")
DRY_RUN = typer.Option(False, "--dry-run", help="Only say what would change.")
MAY_PUSH = typer.Option(False, "--may-push", help="It may change what clients are told, besides asking for it.")
BEGINNING = typer.Argument(help="How the token begins that `push tokens` shows.", metavar="TOKEN")


def register(app: typer.Typer) -> None:
    """Adds the verb to the command."""
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
    from twinshore.state.opening import open_or_make, open_to_look
    from twinshore.switch.config_service.push import SetPush, act, plan_set

    text = read(file)
    with (open_to_look if dry_run else open_or_make)(load_alone(settings)) as store:
        planned = plan_set(SetPush(app, text), store)
        carry_out(planned, act(planned, store, by=who()), dry_run=dry_run)


def show(app: str = APP, settings: Path = SETTINGS, json_output: bool = JSON) -> None:
    """Shows what an application's clients are told."""
    from twinshore.state.opening import open_to_look
    from twinshore.switch.config_service.push import look

    with open_to_look(load_alone(settings)) as store:
        (found,) = look(store, app)
    if json_output:
        typer.echo(json.dumps(found))
        return
    typer.echo(one_line(_said(found)))
    typer.echo(json.dumps(json.loads(found["push"]), indent=2))


def list_pushes(settings: Path = SETTINGS, json_output: bool = JSON) -> None:
    """Shows which applications something is pushed to, since when and by whom."""
    from twinshore.state.opening import open_to_look
    from twinshore.switch.config_service.push import look

    with open_to_look(load_alone(settings)) as store:
        found = look(store)
    tell(found, map(_said, found), as_json=json_output, none="none")


def _said(found: dict[str, Any]) -> str:
    return f"{found['app']}: revision {found['revision']}, by {found['set_by']}, {moment(found['changed_ms'])}"


def remove(app: str = APP, settings: Path = SETTINGS, dry_run: bool = DRY_RUN) -> None:
    """Takes an application's push away. Its clients stay as they are; one that starts goes by the last it has kept."""
    from twinshore.state.opening import open_to_look
    from twinshore.switch.config_service.push import act, plan_remove

    with open_to_look(load_alone(settings)) as store:
        planned = plan_remove(app, store)
        carry_out(planned, act(planned, store, by=who()), dry_run=dry_run)


def token(app: str = APP, settings: Path = SETTINGS, may_push: bool = MAY_PUSH) -> None:
    """Makes a token for an application's clients and prints it: nothing shows it again."""
    from twinshore.state.opening import open_or_make
    from twinshore.switch.config_service.tokens import NewToken, make

    with open_or_make(load_alone(settings)) as store:
        typer.echo(make(NewToken(app, may_push), store, by=who()))


def tokens(settings: Path = SETTINGS, json_output: bool = JSON) -> None:
    """Shows which tokens count, each by the beginning of its digest."""
    from twinshore.state.opening import open_to_look
    from twinshore.switch.config_service.tokens import look

    with open_to_look(load_alone(settings)) as store:
        found = look(store)
    lines = [
        f"{one['token']}: {one['app']}, {one['may']}, made by {one['made_by']}, {moment(one['made_ms'])}"
        for one in found
    ]
    tell(found, lines, as_json=json_output, none="none")


def revoke(beginning: str = BEGINNING, settings: Path = SETTINGS, dry_run: bool = DRY_RUN) -> None:
    """Has a token count no more, within a second."""
    from twinshore.state.opening import open_to_look
    from twinshore.switch.config_service import tokens as operations

    with open_to_look(load_alone(settings)) as store:
        row = operations.named(beginning, store)
        if not dry_run:
            operations.revoke(row, store, by=who())
    typer.echo(f"{row.digest[:8]} of {row.app} {'would count' if dry_run else 'counts'} no more")


def serve(settings: Path = SETTINGS) -> None:
    """Tells clients what they are set to, until stopped (Ctrl-C, SIGTERM or a closed terminal ends it in good
    order)."""
    from twinshore.runtime.logging import LogLines
    from twinshore.switch.config_service.tokens import serve as run

    with LogLines() as log:
        run(load_alone(settings), log)
