"""`twinshore proxy client-audit`: the client audit."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import typer

from twinshore.cli.app import JSON, SETTINGS, load_settings_file, write_text_file
from twinshore.kafka.clock import wall_ms
from twinshore.runtime.process import catch_stop_request

LAST = typer.Option("1h", "--last", help="Of how long: 10m, 1h, 1d.")
POLICY = typer.Option(None, "--policy", help="A file that says which rules and limits hold, and what is waived.")
HTML = typer.Option(None, "--html", help="Write it to this file too, as one page that needs nothing else.")
HERE = typer.Option(False, "--here", help="Sum up in this process, without Spark.")
ALL = typer.Option(False, "--all", help="Show every finding, not ten of those that are alike.")


def register(proxy: typer.Typer) -> None:
    proxy.command("client-audit")(audit)


def audit(
    last: str = LAST,
    policy: Path | None = POLICY,
    html: Path | None = HTML,
    here: bool = HERE,
    everything: bool = ALL,
    settings: Path = SETTINGS,
    json_output: bool = JSON,
) -> None:
    """Audits clients by what proxies counted: what is wasteful or unsafe, what it costs, and which setting mends it.

    A job of Spark sums the store's windows up. Exit code 0: nothing was found; 1: something was, of the weight that the
    policy names or above (warning, without a policy); 2: nothing was found, but not all could be seen.
    """
    from twinshore.advisor.operations.client_audits import (
        ClientAuditRequest,
        audit_as_values,
        audit_clients,
        describe_audit,
        render_audit,
    )
    from twinshore.proxy.operations.breakers import parse_seconds

    with catch_stop_request() as asked:
        look = ClientAuditRequest(parse_seconds(last, "--last"), policy, here)
        tell = partial(typer.echo, err=True)
        answer = audit_clients(look, load_settings_file(settings), clock=wall_ms, stop=asked.stop, tell=tell)
        if answer is None:
            raise typer.Exit(asked.exit_code)
    if html is not None:
        write_text_file(html, render_audit(answer))
    if json_output:
        typer.echo(json.dumps(audit_as_values(answer)))
    else:
        typer.echo("\n".join(describe_audit(answer, everything=everything)))
    raise typer.Exit(answer.exit_code)
