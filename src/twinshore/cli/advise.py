"""`twinshore advise`: the risks of a live cluster, and the commands that fix them."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from twinshore.cli.app import JSON, SETTINGS, load_cli_settings, run_steps, write_text_file
from twinshore.config.errors import ConfigError
from twinshore.kafka.clock import wall_ms

if TYPE_CHECKING:
    from twinshore.advisor.operations.advice_on_cluster import AdviceResult
    from twinshore.config.model import Cluster

CLUSTER = typer.Option("", "--cluster", help="The cluster to look at; needless where the settings have only one.")
TOPICS = typer.Option([], "--topic", help="Only topics that this expression meets whole; may be given several times.")
POLICY = typer.Option(None, "--policy", help="A file that says which rules and limits hold, and what is waived.")
SINCE = typer.Option(None, "--since", help="An earlier --json of this cluster: say what is new and what is gone.")
APART = typer.Option(10.0, "--apart", min=0, help="Seconds between both looks at groups.")
WITHIN = typer.Option(60.0, "--within", min=1, help="Seconds that all questions of one look may take.")
HTML = typer.Option(None, "--html", help="Write the advice to this file too, as one page that needs nothing else.")
FIX = typer.Option(False, "--fix", help="Show which settings of topics are safe to mend by itself, and how.")
YES = typer.Option(False, "--yes", help="With --fix: do it, and read back what holds then.")
LOSS = typer.Option("none", "--loss", help="Of acknowledged records: none, few (the last of a leader that dies), any.")
ORDER = typer.Option("key", "--order", help="Whether records of one key stay in order: key, any.")
DUPLICATES = typer.Option("few", "--duplicates", help="Whether a record may be handled twice after a fault: none, few.")
LATENCY = typer.Option("normal", "--latency", help="Whether milliseconds count, or throughput: low, normal.")
AVAILABILITY = typer.Option(
    "one",
    "--availability",
    help="Writing goes on with one broker away, with the last replica, or need not: one, last, none.",
)
REPLICAS = typer.Option(3, "--replicas", help="How many replicas each partition can have.")
ALL = typer.Option(False, "--all", help="Show every finding, not ten of those that are alike.")


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Says what is at risk on a cluster, and what mends it.", invoke_without_command=True)
    group.callback()(advise)
    group.command("settings")(settings_for)
    app.add_typer(group, name="advise")


def advise(
    context: typer.Context,
    settings: Path = SETTINGS,
    cluster: str = CLUSTER,
    topic: list[str] = TOPICS,
    policy: Path | None = POLICY,
    since: Path | None = SINCE,
    apart: float = APART,
    within: float = WITHIN,
    everything: bool = ALL,
    html: Path | None = HTML,
    fix: bool = FIX,
    yes: bool = YES,
    json_output: bool = JSON,
) -> None:
    """Looks at a live cluster and says what is at risk, in which event, and which command mends it.

    Exit code 0: nothing was found; 1: something was, of the weight that the policy names or above (warning, without a
    policy); 2: nothing was found, but not all could be seen. What could not be seen is told. With --fix it shows which
    settings of topics it would set, and sets them with --yes; then the exit code is that of what is left.
    """
    if context.invoked_subcommand:
        return
    from twinshore.advisor.operations.advice_on_cluster import (
        AdviceRequest,
        advise_on_cluster,
        render_advice,
        select_cluster,
    )

    if json_output and fix:
        raise ConfigError("cli.fix-with-json")
    if yes and not fix:
        raise ConfigError("cli.yes-without-fix")
    loaded = load_cli_settings(settings)
    asked = AdviceRequest(cluster, tuple(topic), policy, since, apart, within)
    answer = advise_on_cluster(asked, loaded, clock=wall_ms, wait=time.sleep)
    if html is not None:
        write_text_file(html, render_advice(answer))
    _show(answer, as_json=json_output, everything=everything)
    code = _mended(answer, select_cluster(cluster, loaded), yes=yes) if fix else answer.exit_code
    raise typer.Exit(code)


def settings_for(
    loss: str = LOSS,
    order: str = ORDER,
    duplicates: str = DUPLICATES,
    latency: str = LATENCY,
    availability: str = AVAILABILITY,
    replicas: int = REPLICAS,
    json_output: bool = JSON,
) -> None:
    """From what an application needs to settings of its producer, topic and consumer, each with its reason.

    Asks no cluster. Exit code 1: the needs contradict each other; which ones, and which is kept, is the first line.
    """
    from twinshore.advisor.operations.settings_for_needs import choice_as_values, choose_for_needs, describe_choice

    choice = choose_for_needs(
        loss=loss,
        order=order,
        duplicates=duplicates,
        latency=latency,
        availability=availability,
        replicas=replicas,
    )
    for line in [json.dumps(choice_as_values(choice))] if json_output else describe_choice(choice):
        typer.echo(line)
    raise typer.Exit(1 if choice.against else 0)


def _mended(answer: AdviceResult, cluster: Cluster, *, yes: bool) -> int:
    """Returns the exit code of what is left."""
    from twinshore.advisor.operations import mend

    planned = mend.plan(answer.advice, cluster)
    typer.echo("")
    steps = run_steps(planned, mend.act(planned, answer.advice, cluster), dry_run=not yes)
    if not yes:
        return answer.exit_code
    return replace(answer.advice, findings=mend.find_unmended(answer.advice, steps)).exit_code(answer.policy)


def _show(answer: AdviceResult, *, as_json: bool, everything: bool) -> None:
    from twinshore.advisor.operations.advice_on_cluster import advice_as_values, describe_result

    if as_json:
        typer.echo(json.dumps(advice_as_values(answer)))
        return
    for line in describe_result(answer, everything=everything):
        typer.echo(line)
