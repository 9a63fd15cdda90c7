"""`twinshore mirror`: run the links, or say what running them would do; a topic goes on, or its twin is forgotten."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from twinshore.cli.deleting import delete, keep
from twinshore.cli.extents import extents
from twinshore.cli.following import begin_again
from twinshore.cli.looking import JSON, LINKS, SETTINGS, load, who
from twinshore.cli.rebuilding import rebuild
from twinshore.cli.steps import carry_out
from twinshore.fleet.sentences import one_line
from twinshore.service.log_lines import LogLines
from twinshore.service.signals import end_when_interrupted

DRY_RUN = typer.Option(False, "--dry-run", help="Only print the steps, as `plan` does.")
DRY_FORGET = typer.Option(False, "--dry-run", help="Only say what would be forgotten.")
DRY_RESUME = typer.Option(False, "--dry-run", help="Only say what would be resumed.")
DETAILS = typer.Option(False, "--details", help="Every step by itself, with each setting, ACL, quota and user.")
PARTITION = typer.Option(None, "--partition", min=0, help="Only this partition; all that are stopped otherwise.")

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
    mirror.command("rebuild")(rebuild)
    app.add_typer(mirror, name="mirror")


def run(settings: Path = SETTINGS, link: list[str] = LINKS, dry_run: bool = DRY_RUN) -> None:
    """Runs the links until stopped (Ctrl-C, SIGTERM or a closed terminal ends it in good order). Changes of links take
    effect while it runs."""
    if dry_run:
        plan(settings, link, json_output=False, details=False, rate_mb_s=0.0)
        return
    end_when_interrupted()  # until the mirror hears the signals itself
    from twinshore.groups.companion import begin
    from twinshore.mirror.driver.run import Mirror
    from twinshore.proof.continuous import begin as begin_proof
    from twinshore.switch.companion import begin as begin_old_homes

    loaded = load(settings, logs=True)
    log = LogLines()
    try:
        Mirror(loaded, link, log, beside=[begin, begin_proof, begin_old_homes]).run()
    finally:
        log.close()


def plan(
    settings: Path = SETTINGS,
    link: list[str] = LINKS,
    details: bool = DETAILS,
    json_output: bool = JSON,
    rate_mb_s: float = RATE_MB_S,
) -> None:
    """Prints with what a run of the links would begin, a line for each topic, and what it will take; does none of it.

    Exit code 2: a cluster does not answer, so the plan of its links is not known.
    """
    from twinshore.mirror.operations.running import plan_of_running
    from twinshore.store.opening import open_to_look

    loaded = load(settings)
    with open_to_look(loaded) as store:
        found = plan_of_running(link, loaded, store, rate_bytes_s=rate_mb_s * 1e6, log=_warn)
    if json_output:
        typer.echo(json.dumps(found.as_values(), indent=2))
    else:
        for sentence in found.sentences() if details else found.lines():
            typer.echo(one_line(sentence))
    if found.away:
        raise typer.Exit(2)


def _warn(sentence: str) -> None:
    typer.echo(sentence, err=True)


def forget(
    topic: str = typer.Argument(help="The topic whose twin is to be forgotten."),
    settings: Path = SETTINGS,
    link: list[str] = LINKS,
    dry_run: bool = DRY_FORGET,
) -> None:
    """Forgets a topic's twin, so that it can begin again. Neither cluster is touched; the ledger keeps its rows.

    Stop the mirror first, delete the twin on the target, forget it here, start the mirror again. Refused while a
    mirror runs the link; where several links know the topic, --link says which.
    """
    from twinshore.mirror.operations.forget import Forget, act, plan
    from twinshore.store.opening import open_known

    loaded = load(settings)
    with open_known(loaded) as store:
        planned = plan(Forget(topic, link), loaded, store)
        carry_out(planned, act(planned, loaded, store, by=who(), tell=typer.echo), dry_run=dry_run)


def resume(
    topic: str = typer.Argument(help="The topic with stopped partitions, as the source names it."),
    partition: int | None = PARTITION,
    settings: Path = SETTINGS,
    link: list[str] = LINKS,
    dry_run: bool = DRY_RESUME,
) -> None:
    """Lets partitions go on that an incident stopped; the running mirror takes them up within seconds.

    Refused if the command can see that the cause still stands.
    """
    from twinshore.mirror.operations.resume import ResumeStopped, act, plan
    from twinshore.store.opening import open_known

    loaded = load(settings)
    with open_known(loaded) as store:
        planned = plan(ResumeStopped(topic, partition, link), loaded, store)
        carry_out(planned, act(planned, store, by=who()), dry_run=dry_run)
