"""`twinshore mirror`: runs the links or previews a run; manages twins (resume, begin again, forget, keep, delete,
rebuild); looks up offsets on the other side.
"""

from __future__ import annotations

from pathlib import Path

import typer

from twinshore.cli.app import (
    JSON,
    LINKS,
    SETTINGS,
    get_operator_name,
    load_cli_settings,
    print_result,
    run_steps,
    server_log,
)
from twinshore.cli.switch import run_plan
from twinshore.runtime.process import exit_on_interrupt

DRY_RUN = typer.Option(False, "--dry-run", help="Only print the steps, as `plan` does.")
DRY_FORGET = typer.Option(False, "--dry-run", help="Only say what would be forgotten.")
DRY_RESUME = typer.Option(False, "--dry-run", help="Only say what would be resumed.")
DRY_AGREE = typer.Option(False, "--dry-run", help="Only say what would be agreed to.")
DRY_REBUILD = typer.Option(False, "--dry-run", help="Only say what would be rescued, deleted and filled again.")
DETAILS = typer.Option(False, "--details", help="Every step by itself, with each setting, ACL, quota and user.")
STOPPED = typer.Option(None, "--partition", min=0, help="Only this partition; all that are stopped otherwise.")
RATE_MB_S = typer.Option(
    0.0, "--rate-mb-s", min=0, help="Estimate durations with this rate; 0: as measured on the link, else 50."
)
KEPT = typer.Argument("", help="The topic, as the source names it.")
EVERY = typer.Option(False, "--all", help="All topics of the link, also future ones.")
UNDO = typer.Option(False, "--undo", help="Take it back: policies hold again, each deletion after its whole delay.")
UNCARRIED = typer.Option(
    False,
    "--even-uncarried",
    help="Agree that records which the link did not carry, as the plan shows them, are deleted too.",
)
PARTITION = typer.Option(0, "--partition", help="The partition.", min=0)
SOURCE_OFFSET = typer.Option(None, "--source-offset", help="Say where this offset of the source lies on the target.")
TARGET_OFFSET = typer.Option(None, "--target-offset", help="Say where this offset of the target came from.")
MOST = typer.Option(
    20, "--most", help="Without an offset: how many extents to show, the last ones.", min=1, max=100_000
)
REBUILT = typer.Argument(help="The link whose twins these are, as east->west or east..west.", metavar="LINK")
TOPICS = typer.Argument(help="Topics, by their names.", metavar="TOPIC...")
FOLDER = typer.Option(
    None, "--folder", help="Where rescued records are kept; without it `rescued` beside the settings."
)
ANYWAY = typer.Option(False, "--anyway", help="Also while groups have members there, or somebody writes there.")
YES = typer.Option(False, "--yes", help="Do not ask.")


def register(app: typer.Typer) -> None:
    mirror = typer.Typer(help="Carry topics from one cluster to another, offset by offset.", no_args_is_help=True)
    for verb in (run, plan, forget, begin_again, keep, delete, resume, extents, rebuild):
        mirror.command(verb.__name__.replace("_", "-"))(verb)
    app.add_typer(mirror, name="mirror")


def run(settings: Path = SETTINGS, link: list[str] = LINKS, dry_run: bool = DRY_RUN) -> None:
    """Runs the links until stopped (Ctrl-C, SIGTERM or a closed terminal ends it in good order). Changes of links take
    effect while it runs."""
    if dry_run:
        plan(settings, link, json_output=False, details=False, rate_mb_s=0.0)
        return
    exit_on_interrupt()  # until the mirror handles the signals itself
    from twinshore.groups.sync_service import start_group_sync
    from twinshore.proof.service import start_proof_service as begin_proof
    from twinshore.replication.main import Mirror
    from twinshore.switch.old_home import start_switch_services as begin_old_homes

    loaded = load_cli_settings(settings, logs=True)
    with server_log(loaded):
        Mirror(loaded, link, beside=[start_group_sync, begin_proof, begin_old_homes]).run()


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
    from twinshore.replication.operations.run_plan import plan_run
    from twinshore.state.opening import open_or_temporary

    loaded = load_cli_settings(settings)
    with open_or_temporary(loaded) as store:
        found = plan_run(link, loaded, store, rate_bytes_s=rate_mb_s * 1e6)
    lines = found.sentences() if details else found.lines()
    print_result(found.as_values(), lines, as_json=json_output, indent=2)
    if found.away:
        raise typer.Exit(2)


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
    from twinshore.replication.operations.forget import ForgetTopic, act, plan
    from twinshore.state.opening import open_existing

    loaded = load_cli_settings(settings)
    with open_existing(loaded) as store:
        planned = plan(ForgetTopic(topic, link), loaded, store)
        run_steps(planned, act(planned, loaded, store, by=get_operator_name(), tell=typer.echo), dry_run=dry_run)


def resume(
    topic: str = typer.Argument(help="The topic with stopped partitions, as the source names it."),
    partition: int | None = STOPPED,
    settings: Path = SETTINGS,
    link: list[str] = LINKS,
    dry_run: bool = DRY_RESUME,
) -> None:
    """Lets partitions go on that an incident stopped; the running mirror takes them up within seconds.

    Refused if the command can see that the cause still stands.
    """
    from twinshore.replication.operations.incident_admin import ResumeStopped, act, plan
    from twinshore.state.opening import open_existing

    loaded = load_cli_settings(settings)
    with open_existing(loaded) as store:
        planned = plan(ResumeStopped(topic, partition, link), loaded, store)
        run_steps(planned, act(planned, store, by=get_operator_name()), dry_run=dry_run)


def begin_again(
    topic: str = typer.Argument(help="The topic of the source that was made again, or whose twin was deleted."),
    settings: Path = SETTINGS,
    link: list[str] = LINKS,
    even_uncarried: bool = UNCARRIED,
    dry_run: bool = DRY_AGREE,
) -> None:
    """Agrees that a topic begins again: the running mirror deletes the old twin, with everything it holds, and makes
    a new one.

    Only a topic that has stopped as *recreated topic* can begin again. The command asks both clusters now, and shows
    what the old twin holds and which part of it the link did not carry. You agree only to what is shown. Refused for
    a mapped topic, because its twin holds data of others and is never deleted. With several links in the settings,
    --link is needed.
    """
    from twinshore.replication.operations.begin_again import BeginAgain, act, plan
    from twinshore.state.opening import open_existing

    loaded = load_cli_settings(settings)
    name = loaded.only(link).name
    with open_existing(loaded) as store:
        planned = plan(BeginAgain(topic, [name], even_uncarried), loaded, store)
        run_steps(planned, act(planned, store, by=get_operator_name()), dry_run=dry_run)


def keep(
    topic: str = KEPT, settings: Path = SETTINGS, link: list[str] = LINKS, every: bool = EVERY, undo: bool = UNDO
) -> None:
    """Forbids that a topic's twin is deleted, by any policy or agreement, until it is taken back with --undo.

    A running mirror obeys at once: it asks right before each deletion.
    """
    from twinshore.replication.operations.twin_deletion import KeepTwin, act_keep, plan_keep
    from twinshore.state.opening import open_existing

    loaded = load_cli_settings(settings)
    links = [loaded.only(link).name] if undo else link
    with open_existing(loaded) as store:
        planned = plan_keep(KeepTwin(topic, links, every, undo), loaded, store)
        run_steps(planned, act_keep(planned, store, by=get_operator_name()), dry_run=False)


def delete(
    topic: str = typer.Argument(help="The topic, deleted on the source, whose twin waits for an operator's word."),
    settings: Path = SETTINGS,
    link: list[str] = LINKS,
    dry_run: bool = DRY_AGREE,
) -> None:
    """Agrees to the deletion of a twin that waits because too many twins would be deleted at once.

    The running mirror deletes the twin within seconds, if nothing else forbids it at that moment. With several links
    in the settings, --link says whose twin it is.
    """
    from twinshore.replication.operations.twin_deletion import AllowDeletion, act_delete, plan_delete
    from twinshore.state.opening import open_existing

    loaded = load_cli_settings(settings)
    name = loaded.only(link).name
    with open_existing(loaded) as store:
        planned = plan_delete(AllowDeletion(topic, [name]), loaded, store)
        run_steps(planned, act_delete(planned, store, by=get_operator_name()), dry_run=dry_run)


def extents(
    topic: str = typer.Argument(help="The topic as the source calls it."),
    partition: int = PARTITION,
    source_offset: int | None = SOURCE_OFFSET,
    target_offset: int | None = TARGET_OFFSET,
    most: int = MOST,
    settings: Path = SETTINGS,
    link: list[str] = LINKS,
    json_output: bool = JSON,
) -> None:
    """Looks up an offset of a mapped topic, or shows the topic's map: runs of offsets with one difference.

    An offset that no consumer sees, or that others wrote, has no counterpart: then the command names the next offset
    that has one.
    """
    from twinshore.replication.operations.run_plan import OffsetQuery, look_up_offsets
    from twinshore.state.opening import open_or_temporary

    loaded = load_cli_settings(settings)
    with open_or_temporary(loaded) as store:
        asked = OffsetQuery(
            topic, partition, source_offset=source_offset, target_offset=target_offset, most=most, links=link
        )
        found = look_up_offsets(asked, loaded, store)
    print_result([one.as_values() for one in found], [one.sentence() for one in found], as_json=json_output, indent=2)


def rebuild(
    link: str = REBUILT,
    topics: list[str] = TOPICS,
    folder: Path = FOLDER,
    anyway: bool = ANYWAY,
    settings: Path = SETTINGS,
    yes: bool = YES,
    dry_run: bool = DRY_REBUILD,
) -> None:
    """Deletes spoilt twins and fills them again; what their home lacks is saved to files first.

    The mirror must run. Nothing changes at the home. A killed rebuild goes on with `twinshore switch resume`. Exit code
    1: it turned back, and nothing was deleted.
    """
    from twinshore.switch.operations.rebuilding import RebuildRequest
    from twinshore.switch.operations.rebuilding import plan as plan_rebuild

    run_plan(plan_rebuild, RebuildRequest(link, topics, folder, anyway), settings, yes=yes, dry_run=dry_run)
