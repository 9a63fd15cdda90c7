"""`twinshore serve` and `twinshore login`: the platform, and a command line that asks it."""

from __future__ import annotations

import json
from copy import copy
from importlib import resources
from pathlib import Path
from typing import Any

import typer

from twinshore.cli import options
from twinshore.cli.app import load_settings_file, server_log

WEB = typer.Option(False, "--web", help="Only pages and API; needs the store alone.")
WORKER = typer.Option(False, "--worker", help="Only take jobs; needs the settings of the clusters.")
NEW_ADMIN = typer.Option(
    False, "--new-admin", help="Only print a link that makes an admin, or gives a person a new password."
)
SERVER = typer.Option(..., "--server", help="The platform's address, such as https://twinshore.example.")
OUT = typer.Option(False, "--out", help="Log out: the kept token ends.")


def register(app: typer.Typer) -> None:
    app.command("serve")(serve)
    app.command("login")(login)


def offer_server(whole: Any) -> None:
    """Shows in the help of each verb that a platform takes how to ask one. `remote` takes the option out before."""
    server = copy(next(one for one in whole.commands["login"].params if one.name == "server"))
    server.required = server.expose_value = False
    verbs = json.loads(resources.files(__package__).joinpath("core/verbs.json").read_text(encoding="utf-8"))
    for name in verbs["asked"]:
        verb = whole
        for word in name.split():
            verb = verb.commands[word]
        verb.params.append(server)


def serve(
    web: bool = WEB, worker: bool = WORKER, new_admin: bool = NEW_ADMIN, settings: Path = options.SETTINGS
) -> None:
    """Serves pages and an API, and runs the jobs that they ask for, until stopped. Any number may share a store."""
    from twinshore.server.serve import print_admin_link, serve_both, serve_web, serve_worker

    loaded = load_settings_file(settings)
    with server_log(loaded):
        if new_admin:
            print_admin_link(loaded)
        elif web and not worker:
            serve_web(loaded)
        elif worker and not web:
            serve_worker(settings)
        else:
            serve_both(settings.absolute(), loaded)


def login(server: str = SERVER, out: bool = OUT) -> None:
    """Logs this command line in to a platform: shows a code that you confirm on its pages. Verbs with --server then act
    for you.
    """
    from twinshore.server.remote import log_in, log_out

    (log_out if out else log_in)(server)
