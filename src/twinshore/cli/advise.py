"""`twinshore advise`: the risks of a live cluster, and the commands that fix them. `twinshore proxy client-audit`: the
same for clients.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from twinshore.cli import options
from twinshore.cli.app import load_cli_settings, load_settings_file, print_result, run_steps, write_text_file
from twinshore.config.errors import ConfigError
from twinshore.kafka.clock import wall_ms
from twinshore.runtime.process import catch_stop_request

if TYPE_CHECKING:
    from twinshore.advisor.operations.advice_on_cluster import AdviceResult
    from twinshore.config.model import Cluster

TOPICS = typer.Option([], "--topic", help="Only topics whose whole name matches this regular expression; repeatable.")
SINCE = typer.Option(None, "--since", help="Earlier --json output of this cluster: show new and resolved findings.")


def register(app: typer.Typer) -> None:
    group = typer.Typer(invoke_without_command=True)
    group.callback()(advise)
    group.command("settings")(settings_for)
    app.add_typer(group, name="advise")


def advise(
    context: typer.Context,
    settings: Path = options.SETTINGS,
    cluster: str = options.CLUSTER,
    topic: list[str] = TOPICS,
    policy: Path | None = options.POLICY,
    since: Path | None = SINCE,
    apart: float = typer.Option(10.0, "--apart", min=0, help="Seconds between the two checks of groups."),
    within: float = typer.Option(60.0, "--within", min=1, help="Timeout in seconds for all requests of a check."),
    everything: bool = options.ALL_FINDINGS,
    html: Path | None = options.HTML,
    fix: bool = typer.Option(False, "--fix", help="Show the topic settings that are safe to change automatically."),
    yes: bool = typer.Option(False, "--yes", help="With --fix: change them, and read them back."),
    json_output: bool = options.JSON,
) -> None:
    """Checks a live cluster: what is at risk, when, and which command fixes it.

    Exit code 0: no findings; 1: findings at or above the policy's fail_at (warning, without a policy); 2: no findings,
    but some checks failed, which it names. With --fix it shows the topic settings that it would change, and with --yes
    changes them; the exit code is then that of the remaining findings.
    """
    if context.invoked_subcommand:
        return
    from twinshore.advisor.operations import advice_on_cluster as operations

    if json_output and fix:
        raise ConfigError("cli.fix-with-json")
    if yes and not fix:
        raise ConfigError("cli.yes-without-fix")
    loaded = load_cli_settings(settings)
    request = operations.AdviceRequest(cluster, tuple(topic), policy, since, apart, within)
    advice = operations.advise_on_cluster(request, loaded, clock=wall_ms, wait=time.sleep)
    if html is not None:
        write_text_file(html, operations.render_advice(advice))
    lines = operations.describe_result(advice, everything=everything)
    print_result(operations.advice_as_values(advice), lines, as_json=json_output)
    code = _mended(advice, operations.select_cluster(cluster, loaded), yes=yes) if fix else advice.exit_code
    raise typer.Exit(code)


def settings_for(
    loss: str = typer.Option(
        "none", "--loss", help="Tolerated loss of acknowledged records: none, few (a failed leader's last), any."
    ),
    order: str = typer.Option("key", "--order", help="key: records of a key stay in order; any: they need not."),
    duplicates: str = typer.Option(
        "few", "--duplicates", help="none: no record is processed twice; few: some are, after a fault."
    ),
    latency: str = typer.Option("normal", "--latency", help="low: milliseconds count; normal: throughput counts."),
    availability: str = typer.Option(
        "one",
        "--availability",
        help="Writes go on with a broker down (one), with the last replica (last), or need not (none).",
    ),
    replicas: int = typer.Option(3, "--replicas", help="Possible replicas of each partition."),
    json_output: bool = options.JSON,
) -> None:
    """Derives the settings of a producer, topic and consumer from an application's needs, each with a reason.

    Asks no cluster. Exit code 1: the needs conflict; the first line says which, and which one is kept.
    """
    from twinshore.advisor.operations.settings_advice import choice_as_values, choose_for_needs, describe_choice

    choice = choose_for_needs(
        loss=loss, order=order, duplicates=duplicates, latency=latency, availability=availability, replicas=replicas
    )
    print_result(choice_as_values(choice), describe_choice(choice), as_json=json_output)
    raise typer.Exit(1 if choice.against else 0)


def _mended(advice: AdviceResult, cluster: Cluster, *, yes: bool) -> int:
    """Returns the exit code of what is left."""
    from twinshore.advisor.operations.advice_on_cluster import act_fixes, find_unmended, plan_fixes

    plan = plan_fixes(advice.advice, cluster)
    typer.echo("")
    steps = run_steps(plan, act_fixes(plan, advice.advice, cluster), dry_run=not yes)
    if not yes:
        return advice.exit_code
    return advice.policy.exit_code(find_unmended(advice.advice, steps), advice.advice.unseen)


def register_audit(proxy: typer.Typer) -> None:
    proxy.command("client-audit")(audit)


def audit(
    last: str = typer.Option("1h", "--last", help="How far back to look: 10m, 1h, 1d."),
    policy: Path | None = options.POLICY,
    html: Path | None = options.HTML,
    here: bool = typer.Option(False, "--here", help="Run in this process, without Spark."),
    everything: bool = options.ALL_FINDINGS,
    settings: Path = options.SETTINGS,
    json_output: bool = options.JSON,
) -> None:
    """Audits clients by what proxies counted: wasteful or unsafe use, its cost, and the setting that fixes it.

    A Spark job sums the traffic in the store. Exit code 0: no findings; 1: findings at or above the policy's fail_at
    (warning, without a policy); 2: no findings, but some data was missing.
    """
    from twinshore.advisor.operations import client_audits
    from twinshore.proxy.operations.breakers import parse_seconds

    with catch_stop_request() as request:
        look = client_audits.ClientAuditRequest(parse_seconds(last, "--last"), policy, here)
        tell = partial(typer.echo, err=True)
        loaded = load_settings_file(settings)
        answer = client_audits.audit_clients(look, loaded, clock=wall_ms, stop=request.stop, tell=tell)
        if answer is None:
            raise typer.Exit(request.exit_code)
    if html is not None:
        write_text_file(html, client_audits.render_audit(answer))
    lines = client_audits.describe_audit(answer, everything=everything)
    print_result(client_audits.audit_as_values(answer), lines, as_json=json_output)
    raise typer.Exit(answer.exit_code)
