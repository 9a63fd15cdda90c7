"""`twinshore proxy client-audit`: the client audit."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import typer

from twinshore.cli import options
from twinshore.cli.app import load_settings_file, print_result, write_text_file
from twinshore.kafka.clock import wall_ms
from twinshore.runtime.process import catch_stop_request

LAST = typer.Option("1h", "--last", help="How far back to look: 10m, 1h, 1d.")
HERE = typer.Option(False, "--here", help="Run in this process, without Spark.")


def register(proxy: typer.Typer) -> None:
    proxy.command("client-audit")(audit)


def audit(
    last: str = LAST,
    policy: Path | None = options.POLICY,
    html: Path | None = options.HTML,
    here: bool = HERE,
    everything: bool = options.ALL_FINDINGS,
    settings: Path = options.SETTINGS,
    json_output: bool = options.JSON,
) -> None:
    """Audits clients by what proxies counted: wasteful or unsafe use, its cost, and the setting that fixes it.

    A Spark job sums the traffic in the store. Exit code 0: no findings; 1: findings at or above the policy's fail_at
    (warning, without a policy); 2: no findings, but some data was missing.
    """
    from twinshore.advisor.operations.client_audits import (
        ClientAuditRequest,
        audit_as_values,
        audit_clients,
        describe_audit,
        render_audit,
    )
    from twinshore.proxy.operations.breakers import parse_seconds

    with catch_stop_request() as request:
        look = ClientAuditRequest(parse_seconds(last, "--last"), policy, here)
        tell = partial(typer.echo, err=True)
        answer = audit_clients(look, load_settings_file(settings), clock=wall_ms, stop=request.stop, tell=tell)
        if answer is None:
            raise typer.Exit(request.exit_code)
    if html is not None:
        write_text_file(html, render_audit(answer))
    print_result(audit_as_values(answer), describe_audit(answer, everything=everything), as_json=json_output)
    raise typer.Exit(answer.exit_code)
