"""`twinshore advise`: what is at risk on a live cluster, in which event, and which command mends it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from twinshore.cli.looking import JSON, SETTINGS, load
from twinshore.service.clock import wall_ms

if TYPE_CHECKING:
    from twinshore.advisor.operations.advise import Answer

CLUSTER = typer.Option("", "--cluster", help="The cluster to look at; needless where the settings have only one.")
TOPICS = typer.Option([], "--topic", help="Only topics that this expression meets whole; may be given several times.")
POLICY = typer.Option(None, "--policy", help="A file that says which rules and limits hold, and what is waived.")
SINCE = typer.Option(None, "--since", help="An earlier --json of this cluster: say what is new and what is gone.")
APART = typer.Option(10.0, "--apart", min=0, help="Seconds between both looks at groups.")
WITHIN = typer.Option(60.0, "--within", min=1, help="Seconds that all questions of one look may take.")
ALL = typer.Option(False, "--all", help="Show every finding, not ten of those that are alike.")


def register(app: typer.Typer) -> None:
    """Adds the verb to the command."""
    group = typer.Typer(help="Says what is at risk on a cluster, and what mends it.", invoke_without_command=True)
    group.callback()(advise)
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
    json_output: bool = JSON,
) -> None:
    """Looks at a live cluster and says what is at risk, in which event, and which command mends it.

    Exit code 0: nothing was found; 1: something was, of the weight that the policy names or above (warning, without a
    policy); 2: nothing was found, but not all could be seen. What could not be seen is told.
    """
    if context.invoked_subcommand:
        return
    from twinshore.advisor.operations.advise import Advise, advised

    asked = Advise(cluster, tuple(topic), policy, since, apart, within)
    answer = advised(asked, load(settings), clock=wall_ms, wait=time.sleep)
    _show(answer, as_json=json_output, everything=everything)
    raise typer.Exit(answer.exit_code)


def _show(answer: Answer, *, as_json: bool, everything: bool) -> None:
    from twinshore.advisor.operations.advise import sentences_of, values_of

    if as_json:
        typer.echo(json.dumps(values_of(answer)))
        return
    for line in sentences_of(answer, everything=everything):
        typer.echo(line)
