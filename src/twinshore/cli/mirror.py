"""`twinshore mirror`: runs the links or previews a run; manages twins (resume, recreate, forget, keep, delete,
rebuild); looks up offsets and records on the other side.
"""

from __future__ import annotations

from pathlib import Path

import typer

from twinshore.cli import options
from twinshore.cli.app import (
    any_store,
    existing_store,
    get_operator_name,
    load_cli_settings,
    print_result,
    run_steps,
    server_log,
)
from twinshore.cli.switch import run_plan
from twinshore.runtime.process import exit_on_interrupt

STOPPED = typer.Option(None, "--partition", min=0, help="Only this partition; default: all stopped partitions.")
VALUES = typer.Option(False, "--values", help="Show keys, values and headers too, which may be confidential.")
ANYWAY = typer.Option(False, "--anyway", help="Even if consumer groups have members there, or clients write there.")


def register(app: typer.Typer) -> None:
    mirror = typer.Typer(help="Replicate topics from one cluster to another, offset by offset.", no_args_is_help=True)
    options.add_verbs(mirror, run, plan, forget, recreate, keep, delete, resume, offset_map, records, rebuild)
    app.add_typer(mirror, name="mirror")


def run(settings: Path = options.SETTINGS, link: list[str] = options.LINKS, dry_run: bool = options.DRY_RUN) -> None:
    """Replicates the links until stopped. Ctrl-C, SIGTERM or a closed terminal stops it cleanly. Changes of links take
    effect while it runs.
    """
    if dry_run:
        plan(settings, link, json_output=False, details=False, rate_mb_s=0.0)
        return
    exit_on_interrupt()  # until the mirror handles the signals itself
    from twinshore.groups.sync import start_group_sync
    from twinshore.proof.service import start_proof_service as begin_proof
    from twinshore.replication.main import Mirror
    from twinshore.replication.reached_epochs import start_reached_epochs
    from twinshore.switch.old_home import start_switch_services as begin_old_homes

    loaded = load_cli_settings(settings, logs=True)
    with server_log(loaded):
        Mirror(loaded, link, beside=[start_group_sync, begin_proof, begin_old_homes, start_reached_epochs]).run()


def plan(
    settings: Path = options.SETTINGS,
    link: list[str] = options.LINKS,
    details: bool = typer.Option(False, "--details", help="Show each step, with every setting, ACL, quota and user."),
    json_output: bool = options.JSON,
    rate_mb_s: float = typer.Option(
        0.0, "--rate-mb-s", min=0, help="Throughput for estimates; 0: as measured on the link, or else 50."
    ),
) -> None:
    """Shows what `mirror run` would do, with a line for each topic, and how long it would take. Changes nothing.

    Exit code 2: a cluster does not answer, so the plan of its links is unknown.
    """
    from twinshore.replication.operations.run_plan import plan_run

    with any_store(settings, links=True) as (loaded, store):
        found = plan_run(link, loaded, store, rate_bytes_s=rate_mb_s * 1e6)
    lines = found.sentences() if details else found.lines()
    print_result(found.as_values(), lines, as_json=json_output, indent=2)
    if found.away:
        raise typer.Exit(2)


def forget(
    topic: str = typer.Argument(help="The topic whose twin to forget."),
    settings: Path = options.SETTINGS,
    link: list[str] = options.LINKS,
    dry_run: bool = options.DRY_RUN,
) -> None:
    """Forgets a topic's twin, so that a new one can begin. Changes neither cluster; the incident log stays.

    Stop the mirror, delete the twin on the target, forget it here, and start the mirror. Refused while a mirror runs
    the link. If several links have the topic, give --link.
    """
    from twinshore.replication.operations.twins import act_forget, plan_forget

    with existing_store(settings) as (loaded, store):
        planned = plan_forget(topic, link, loaded, store)
        run_steps(planned, act_forget(planned, loaded, store, by=get_operator_name(), tell=typer.echo), dry_run=dry_run)


def resume(
    topic: str = typer.Argument(help="The source topic with stopped partitions."),
    partition: int | None = STOPPED,
    settings: Path = options.SETTINGS,
    link: list[str] = options.LINKS,
    dry_run: bool = options.DRY_RUN,
) -> None:
    """Resumes partitions that an incident stopped. The running mirror continues them within seconds.

    Refused if the command sees that the cause persists.
    """
    from twinshore.replication.operations.incident_admin import act, plan

    with existing_store(settings) as (loaded, store):
        planned = plan(topic, partition, link, loaded, store)
        run_steps(planned, act(planned, store, by=get_operator_name()), dry_run=dry_run)


def recreate(
    topic: str = typer.Argument(help="The source topic that was recreated, or whose twin was deleted."),
    settings: Path = options.SETTINGS,
    link: list[str] = options.LINKS,
    even_unreplicated: bool = typer.Option(
        False,
        "--even-unreplicated",
        help="Also delete the records that the link did not replicate, as the plan shows them.",
    ),
    dry_run: bool = options.DRY_RUN,
) -> None:
    """Lets the running mirror replace a topic's twin: it deletes the old twin with all its records and creates a new
    one.

    Only for a topic that stopped with the incident *recreated topic*. Asks both clusters, and shows what the old twin
    holds and which records the link did not replicate. You agree only to what is shown. Refused for a mapped topic: its
    twin holds other records and is never deleted. With several links in the settings, give --link.
    """
    from twinshore.replication.operations.twins import act_recreate, plan_recreate
    from twinshore.state.opening import open_existing

    loaded = load_cli_settings(settings)
    chosen = loaded.only(link)
    with open_existing(loaded) as store:
        planned = plan_recreate(topic, chosen, loaded, store, even_unreplicated=even_unreplicated)
        run_steps(planned, act_recreate(planned, store, by=get_operator_name()), dry_run=dry_run)


def keep(
    topic: str = typer.Argument("", help="The source topic."),
    settings: Path = options.SETTINGS,
    link: list[str] = options.LINKS,
    every: bool = typer.Option(False, "--all", help="All topics of the link, also future ones."),
    undo: bool = typer.Option(False, "--undo", help="Allow deletion by policies again, after the full delay."),
) -> None:
    """Protects a topic's twin from deletion by any policy or agreement, until you run it with --undo.

    A running mirror obeys at once: it checks right before each deletion.
    """
    from twinshore.replication.operations.twins import act_keep, plan_keep
    from twinshore.state.opening import open_existing

    loaded = load_cli_settings(settings)
    links = [loaded.only(link).name] if undo else link
    with open_existing(loaded) as store:
        plan = plan_keep(topic, links, loaded, store, every=every, undo=undo)
        run_steps(plan, act_keep(plan, store, by=get_operator_name()), dry_run=False)


def delete(
    topic: str = typer.Argument(help="The deleted source topic whose twin waits for approval."),
    settings: Path = options.SETTINGS,
    link: list[str] = options.LINKS,
    dry_run: bool = options.DRY_RUN,
) -> None:
    """Allows the deletion of a twin that waits because too many twins would be deleted at once.

    The running mirror deletes the twin within seconds, unless something else forbids it. With several links in the
    settings, give --link.
    """
    from twinshore.replication.operations.twins import act_delete, plan_delete
    from twinshore.state.opening import open_existing

    loaded = load_cli_settings(settings)
    chosen = loaded.only(link)
    with open_existing(loaded) as store:
        plan = plan_delete(topic, chosen, loaded, store)
        run_steps(plan, act_delete(plan, store, by=get_operator_name()), dry_run=dry_run)


def offset_map(
    topic: str = typer.Argument(help="The source topic."),
    partition: int = options.PARTITION,
    source_offset: int | None = typer.Option(None, "--source-offset", help="Find this source offset on the target."),
    target_offset: int | None = typer.Option(None, "--target-offset", help="Find this target offset on the source."),
    most: int = typer.Option(
        20, "--most", help="Without an offset: number of offset runs to show, the last ones.", min=1, max=100_000
    ),
    settings: Path = options.SETTINGS,
    link: list[str] = options.LINKS,
    json_output: bool = options.JSON,
) -> None:
    """Translates an offset of a mapped topic, or shows the topic's offset runs.

    An offset that others wrote, or that no consumer sees, has no counterpart. The command then names the next offset
    that has one.
    """
    from twinshore.replication.operations.run_plan import OffsetQuery, look_up_offsets

    with any_store(settings, links=True) as (loaded, store):
        query = OffsetQuery(
            topic, partition, source_offset=source_offset, target_offset=target_offset, most=most, links=link
        )
        found = look_up_offsets(query, loaded, store)
    print_result([one.as_values() for one in found], [one.sentence() for one in found], as_json=json_output, indent=2)


def records(
    topic: str = typer.Argument(help="The source topic."),
    partition: int = options.PARTITION,
    offset: int = typer.Option(..., "--offset", help="The record's offset on the source.", min=0),
    values: bool = VALUES,
    settings: Path = options.SETTINGS,
    link: list[str] = options.LINKS,
    json_output: bool = options.JSON,
) -> None:
    """Shows a record of both sides beside each other. Each look is in the audit.

    Exit code 1: the two sides differ.
    """
    from twinshore.proof.operations import RecordPairRequest, show_record_pairs

    with existing_store(settings) as (loaded, store):
        request = RecordPairRequest(topic, partition, offset, link, values=values)
        found = show_record_pairs(request, loaded, store, by=get_operator_name())
    lines = [line for pair in found for line in pair.lines(values=values)]
    print_result([pair.as_values() for pair in found], lines, as_json=json_output)
    if not all(pair.is_same for pair in found):
        raise typer.Exit(1)


def rebuild(
    link: str = typer.Argument(help="The link of the twins, as east->west or east..west.", metavar="LINK"),
    topics: list[str] = typer.Argument(help="Topic names.", metavar="TOPIC..."),
    folder: Path = options.RESCUE_FOLDER,
    anyway: bool = ANYWAY,
    settings: Path = options.SETTINGS,
    yes: bool = options.YES,
    dry_run: bool = options.DRY_RUN,
) -> None:
    """Deletes damaged twins and replicates them again. First saves records that their home lacks to files.

    The mirror must run. Nothing changes at the home. `twinshore switch resume` continues a killed rebuild. Exit code 1:
    it rolled back and deleted nothing.
    """
    from twinshore.switch.operations.returning import RebuildRequest, plan_rebuild

    run_plan(plan_rebuild, RebuildRequest(link, topics, folder, anyway), settings, yes=yes, dry_run=dry_run)
