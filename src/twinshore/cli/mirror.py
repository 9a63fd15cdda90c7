"""`twinshore mirror`: run the links, or say what running them would do."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from twinshore.cli.deleting import delete, keep
from twinshore.cli.early import end_when_interrupted
from twinshore.cli.examining import examine
from twinshore.cli.extents import extents
from twinshore.cli.following import begin_again
from twinshore.cli.forgetting import forget
from twinshore.cli.log_lines import LogLines
from twinshore.cli.looking import JSON, LINKS, SETTINGS, load
from twinshore.cli.resuming import resume
from twinshore.fleet import KafkaError
from twinshore.fleet.lines import one_line

if TYPE_CHECKING:
    from twinshore.mirror.follow.preview import Line
    from twinshore.mirror.mapping.cost import Cost
    from twinshore.mirror.plan import Step

DRY_RUN = typer.Option(False, "--dry-run", help="Only print the steps, as `plan` does.")

RATE_MB_S = typer.Option(
    0.0, "--rate-mb-s", min=0, help="Estimate durations with this rate; 0: as measured on the link, else 50."
)


def register(app: typer.Typer) -> None:
    """Adds the verb to the command."""
    mirror = typer.Typer(help="Carry topics from one cluster to another, offset by offset.", no_args_is_help=True)
    mirror.command("run")(run)
    mirror.command("plan")(plan)
    mirror.command("forget")(forget)
    mirror.command("begin-again")(begin_again)
    mirror.command("keep")(keep)
    mirror.command("delete")(delete)
    mirror.command("resume")(resume)
    mirror.command("extents")(extents)
    mirror.command("examine")(examine)
    app.add_typer(mirror, name="mirror")


def run(settings: Path = SETTINGS, link: list[str] = LINKS, dry_run: bool = DRY_RUN) -> None:
    """Runs the links of the settings until stopped (Ctrl-C or SIGTERM ends it in good order)."""
    if dry_run:
        plan(settings, link, json_output=False, rate_mb_s=0.0)
        return
    end_when_interrupted()  # until the mirror hears the signals itself
    from twinshore.groups.companion import begin
    from twinshore.mirror.run import Mirror
    from twinshore.proof.continuous import begin as begin_proof

    loaded = load(settings)
    log = LogLines()
    try:
        Mirror(loaded, loaded.chosen(link), log, beside=[begin, begin_proof]).run()
    finally:
        log.close()


def plan(
    settings: Path = SETTINGS, link: list[str] = LINKS, json_output: bool = JSON, rate_mb_s: float = RATE_MB_S
) -> None:
    """Prints every step that running the links would begin with, and what each topic will take; does none of them.

    Exit code 2: a cluster does not answer, so that nobody can tell what its link would do.
    """
    from twinshore.mirror.follow.preview import preview as follows
    from twinshore.mirror.plan import Refuse, Stay
    from twinshore.mirror.preview import holding, preview
    from twinshore.mirror.ready import check_chosen
    from twinshore.store.opening import open_to_look

    loaded = load(settings)
    check_chosen(loaded, loaded.chosen(link))
    steps: list[tuple[str, Step | Cost]] = []
    besides: list[tuple[str, Line]] = []
    away: list[tuple[str, str]] = []
    with open_to_look(loaded) as store:
        store.leases.check_writable()
        for one in [holding(one, loaded, store, _warn) for one in loaded.chosen(link)]:
            try:
                found = list(preview(one, loaded, store, rate_mb_s * 1e6))
                carried = {step.topic for step in found if not isinstance(step, Refuse | Stay)}
                lines = list(follows(one, loaded, store, carried))
            except KafkaError as error:
                # A cluster that is away is the word on its link; the others are planned.
                away.append((one.name, str(error)))
                continue
            steps += [(one.name, step) for step in found]
            besides += [(one.name, line) for line in lines]
    if json_output:
        values = [{"link": name, "step": "unknown", "sentence": why} for name, why in away]
        values += [_values(name, step) for name, step in steps]
        values += [{"link": name, "step": type(line).__name__.lower(), **asdict(line)} for name, line in besides]
        typer.echo(json.dumps(values, indent=2))
    else:
        _say(steps, besides, away)
    if away:
        raise typer.Exit(2)


def _say(steps: list[tuple[str, Step | Cost]], besides: list[tuple[str, Line]], away: list[tuple[str, str]]) -> None:
    """The plan for people: first what is not known."""
    from twinshore.mirror.preview import in_words

    for name, why in away:
        typer.echo(one_line(f"{name}: cannot tell what it would do: {why}"))
    for name, step in steps:
        typer.echo(one_line(f"{name}: {in_words(step)}"))
    for name, line in besides:
        typer.echo(one_line(f"{name}: {line}"))
    if not steps and not away:
        typer.echo("nothing to do: the links' filters admit no topic of their sources")


def _values(link: str, step: Step | Cost) -> dict[str, Any]:
    values = asdict(step)
    if "settings" in values:
        values["settings"] = dict(values["settings"])
    return {"link": link, "step": type(step).__name__.lower(), **values}


def _warn(sentence: str) -> None:
    typer.echo(sentence, err=True)
