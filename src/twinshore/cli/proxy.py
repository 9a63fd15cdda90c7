"""`twinshore proxy`: one address for clients, and many clusters behind it."""

from __future__ import annotations

from pathlib import Path

import typer

from twinshore.cli.looking import SETTINGS, load_alone


def register(app: typer.Typer) -> None:
    """Adds the verb to the command."""
    proxy = typer.Typer(help="Serve clients of several clusters at one address.", no_args_is_help=True)
    proxy.command("run")(run)
    app.add_typer(proxy, name="proxy")


def run(settings: Path = SETTINGS) -> None:
    """Serves clients at [proxy] address and port, until stopped (Ctrl-C or SIGTERM ends it in good order).

    Each topic is led to the cluster where it is at home.
    """
    from twinshore.proxy.operations.run import serve
    from twinshore.service.log_lines import LogLines

    log = LogLines()
    try:
        serve(load_alone(settings), log)
    finally:
        log.close()
